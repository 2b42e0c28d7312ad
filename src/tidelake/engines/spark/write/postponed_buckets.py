"""Write to postponed buckets from many tasks: stage rows in files, send them on when the number of buckets is known.

If a later compaction is to give the rows their buckets, every task stages its own rows, and the files are committed. If
the size of the batch decides the number of buckets, the rows are staged too, but their files are never committed: the
driver adds up their sizes, tasks read them again and send the rows to the task of their bucket. A compaction does the
same with the staged files of a snapshot.

Invariant: rows reach their bucket in the order of their files, and in each file in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidelake.cleanup import undo_on_error
from tidelake.engines.spark.bridge.failures import wrap_task_errors
from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.bridge.output import TaskOutput, report_output
from tidelake.engines.spark.bridge.packed_rows import (
    SHUFFLE_COLUMNS,
    assign_tasks,
    pack_rows,
    sender_ranks,
    shuffle,
    task_count,
)
from tidelake.engines.spark.bridge.tasks import balance
from tidelake.engines.spark.write.batches import convert_rows, join_batches
from tidelake.errors import StorageError
from tidelake.ops.placement.bucket_counts import KnownBuckets, PartitionBuckets
from tidelake.ops.placement.routing import Router
from tidelake.ops.scan.split import Split
from tidelake.ops.write.local_merge import with_kinds
from tidelake.ops.write.postpone import StagingWriter, staged_rows
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.schemas.bucket_mode import BucketOptions
from tidelake.table import Table

_SHARE_BYTES: Final = 4 << 20
"""How many bytes of staged files a task reads at least."""


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """How many buckets each partition has at one snapshot."""

    base_id: int
    """The snapshot, 0 for none."""
    known: KnownBuckets

    @classmethod
    def of(cls, table: Table, chosen: Mapping[bytes, int], *, overwrite: bool) -> BucketCounts:
        """Count the buckets at the newest snapshot; partitions without buckets get the `chosen` numbers.

        Raises:
            FormatError: the metadata of the table is damaged.
        """

        def count(base: Snapshot | None) -> BucketCounts:
            buckets = PartitionBuckets(table.store, table.context.options, chosen, overwrite)
            buckets.start(base)
            return cls(base.id if base else 0, buckets.load_counts())

        return table.store.snapshots.on_newest(count)


@dataclass(frozen=True, slots=True)
class StageRows:
    """Stages the rows of a task, and reports the files."""

    ref: TableRef
    row_kind: str | None
    user: str | None
    committed: bool
    """Whether the files are committed."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage the rows, and report the files."""
        yield from report_output(batches, lambda: self._stage(join_batches(batches)))

    def _stage(self, batches: Iterator[pa.RecordBatch]) -> TaskOutput:
        table = self.ref.open()
        writer = StagingWriter(table.context, self.user)
        with undo_on_error(writer.abort, ignore=(StorageError,)):
            for batch in batches:
                for rows, kinds in convert_rows(batch, table, self.row_kind):
                    writer.write(rows, kinds)
            return TaskOutput(tuple(writer.prepare()))


@dataclass(frozen=True, slots=True)
class SendStagedRows:
    """Reads staged files and sends their rows to the tasks of their buckets."""

    ref: TableRef
    shares: tuple[tuple[tuple[int, Split], ...], ...]
    """The staged files that each task reads: splits with one file, numbered in the order of arrival."""
    known: KnownBuckets
    tasks: int

    @classmethod
    def of(cls, ref: TableRef, splits: Sequence[Split], known: KnownBuckets, *, cores: int) -> SendStagedRows:
        """Plan for the files of these splits, in their order."""
        files = [replace(split, files=(file,)) for split in splits for file in split.files]
        shares = balance(list(enumerate(files)), lambda each: each[1].size, cores, least=_SHARE_BYTES)
        buckets = sum(known.of(partition) for partition in {split.partition for split in splits})
        return cls(ref, shares, known, min(task_count(cores), buckets))

    def shuffle_rows(self, session: SparkSession) -> DataFrame:
        """Send all rows of a bucket to one task, in the order of their files."""
        count = len(self.shares)
        packed = session.range(0, count, 1, count).mapInArrow(self.run, SHUFFLE_COLUMNS)
        return shuffle(packed, self.tasks, ordered=True)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the shares of these numbers, and pack their rows."""
        table = self.ref.open()
        router = Router(table.schema, table.context.options.of(BucketOptions), self.known)
        with wrap_task_errors():
            for share in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
                for number, split in self.shares[share]:
                    yield from self._pack_file(table, router, number, split)

    def _pack_file(self, table: Table, router: Router, number: int, split: Split) -> Iterator[pa.RecordBatch]:
        rank = sender_ranks(number)
        for rows in join_batches(with_kinds(each, kinds) for each, kinds in staged_rows(table.store, split)):
            tasks = assign_tasks(*router.find_buckets(rows), self.tasks)
            yield pack_rows(rows, tasks, rank=next(rank))
