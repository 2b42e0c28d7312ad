"""Postponed buckets over many tasks: rows are staged where they are, and sent to buckets once their number is known.

Rows that wait for a compaction are staged by each task on its own and committed. A batch whose rows decide on the
number of buckets is staged too, but its files are never committed: the driver counts them, and tasks read them again
and send the rows to the task of their bucket. A compaction of staged rows does the same with those of a snapshot.

Invariant: rows that are sent reach their bucket in the order of their files, and in that of the rows in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidelake.engines.spark.batches import joined, rows_of
from tidelake.engines.spark.failures import carrying
from tidelake.engines.spark.parcels import PARCELS, delivered, packed, ranks, tasks_for, tasks_of
from tidelake.engines.spark.receive import Done, told
from tidelake.engines.spark.remote import TableRef
from tidelake.engines.spark.tasks import balanced
from tidelake.errors import StorageError
from tidelake.ops.scan.options import BucketOptions
from tidelake.ops.scan.split import Split
from tidelake.ops.write.bucket_counts import KnownBuckets, PartitionBuckets
from tidelake.ops.write.local_merge import with_kinds
from tidelake.ops.write.postpone import StagingWriter, staged_rows
from tidelake.ops.write.routing import Router
from tidelake.spec.snapshot import Snapshot
from tidelake.table import Table

_SHARE_BYTES: Final = 4 << 20
"""Staged files that are worth another task."""


@dataclass(frozen=True, slots=True)
class Counted:
    """How many buckets each partition has at one snapshot."""

    base_id: int
    """The snapshot, 0 for none."""
    known: KnownBuckets

    @classmethod
    def of(cls, table: Table, chosen: Mapping[bytes, int], *, overwrite: bool) -> Counted:
        """The buckets at the newest snapshot, with what was chosen for partitions that have none.

        Raises:
            FormatError: the metadata of the table is damaged.
        """

        def count(base: Snapshot | None) -> Counted:
            buckets = PartitionBuckets(table.store, table.options, chosen, overwrite)
            buckets.start(base)
            return cls(base.id if base else 0, buckets.known())

        return table.store.snapshots.on_newest(count)


@dataclass(frozen=True, slots=True)
class Staging:
    """Stages the rows that reach a task, and describes the files."""

    ref: TableRef
    row_kind: str | None
    user: str | None
    for_good: bool
    """Whether the files are committed."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the task did, for the driver."""
        yield from told(batches, lambda: self._done(joined(batches)))

    def _done(self, batches: Iterator[pa.RecordBatch]) -> Done:
        table = self.ref.open()
        writer = StagingWriter(table.store, table.paths, table.options, self.user)
        try:
            for batch in batches:
                for rows, kinds in rows_of(batch, table, self.row_kind):
                    writer.write(rows, kinds)
            return Done(tuple(writer.prepare()))
        except BaseException:
            with suppress(StorageError):
                writer.abort()
            raise


@dataclass(frozen=True, slots=True)
class Sending:
    """Reads staged files and sends their rows to the tasks of their buckets."""

    ref: TableRef
    shares: tuple[tuple[tuple[int, Split], ...], ...]
    """Staged files of each task, one in each split, with the number by which they come."""
    known: KnownBuckets
    tasks: int

    @classmethod
    def of(cls, ref: TableRef, splits: Sequence[Split], known: KnownBuckets, *, cores: int) -> Sending:
        """Files of splits, in the order in which they are given."""
        files = [replace(split, files=(file,)) for split in splits for file in split.files]
        shares = balanced(list(enumerate(files)), lambda each: each[1].size, cores, least=_SHARE_BYTES)
        buckets = sum(known.of(partition) for partition in {split.partition for split in splits})
        return cls(ref, shares, known, min(tasks_for(cores), buckets))

    def sent(self, session: SparkSession) -> DataFrame:
        """The rows as parcels, in the tasks of their buckets and in their order."""
        count = len(self.shares)
        parcels = session.range(0, count, 1, count).mapInArrow(self.run, PARCELS)
        return delivered(parcels, self.tasks, ordered=True)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the shares with these numbers."""
        table = self.ref.open()
        router = Router(table.schema, BucketOptions.parse(table.options), self.known)
        with carrying():
            for share in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
                for number, split in self.shares[share]:
                    yield from self._packed(table, router, number, split)

    def _packed(self, table: Table, router: Router, number: int, split: Split) -> Iterator[pa.RecordBatch]:
        rank = ranks(number)
        for rows in joined(with_kinds(each, kinds) for each, kinds in staged_rows(table.store, split)):
            tasks = tasks_of(*router.found(rows), self.tasks)
            yield packed(rows, tasks, rank=next(rank))
