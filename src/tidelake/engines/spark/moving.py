"""Keys that move between partitions, over many tasks: who knows where a key is, and how its rows get there.

The rows of a key and the place where it lives, read from the table by other tasks, are sent to the owner of its hash.
It settles the rows (`ops.write.moves`): a row may bring a deletion along for the partition that its key leaves, follow
its key to another partition, or drop out. What is settled is sent to the task of its partition and bucket, which
writes it. No task holds more than the keys of one owner.

What an owner settles depends on the order in which rows reach it and on the buckets it opens. If Spark runs it again
after some of its rows were written, two answers would be mixed: each run marks its rows, and the driver refuses a write
in which one owner has two marks. Invariant: a committed key is in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from tidelake.engines.spark.assign import new_mark
from tidelake.engines.spark.batches import joined, rows_of
from tidelake.engines.spark.failures import carrying
from tidelake.engines.spark.parcels import PARCELS, Parcel, delivered, opened, packed, ranks, tasks_of
from tidelake.engines.spark.receive import BUCKET
from tidelake.engines.spark.remote import TableRef
from tidelake.engines.spark.tasks import balanced
from tidelake.ops.scan.split import Split
from tidelake.ops.write.admission import Admission
from tidelake.ops.write.assign import Assigner, DynamicBucketOptions, assigners_for
from tidelake.ops.write.cross_partition import MovingKeys, PlacedKeys, key_splits, owners_of, read_keys
from tidelake.ops.write.local_merge import with_kinds
from tidelake.spec.snapshot import Snapshot
from tidelake.table import Table

_BEFORE_ROWS: Final = -1
"""The rank of parcels with keys of the table."""
_PARTITION, _BUCKET = b"partition", b"bucket"
_SHARE_BYTES: Final = 16 << 20
"""Files whose keys are worth another task."""


@dataclass(frozen=True, slots=True)
class Moving:
    """How the rows of one write find the places of their keys."""

    assigners: tuple[Assigner, ...]
    base_id: int
    """The snapshot that every task starts from, 0 for none."""
    known: tuple[tuple[Split, ...], ...]
    """Where the keys of that snapshot lie, in shares; nowhere if they do not count."""

    @classmethod
    def of(cls, table: Table, *, overwrite: bool, cores: int) -> Moving:
        """The plan of a write that starts from the newest snapshot.

        Raises:
            InvalidInputError: options would lead to one key in two partitions.
            FormatError: the metadata of the table is damaged.
        """
        base = table.store.snapshots.latest()
        MovingKeys(table.store, table.paths, table.options, None)  # refuses options before a job runs
        assigners = assigners_for(DynamicBucketOptions.parse(table.options), cores)
        known: tuple[tuple[Split, ...], ...] = ()
        if not overwrite and base is not None:
            with table.store.snapshots.held_to(base.id):
                known = _shares(table, base, cores)
        return cls(assigners, base.id if base else 0, known)

    def distributed(self, frame: DataFrame, ref: TableRef, row_kind: str | None, tasks: int) -> DataFrame:
        """The settled rows as parcels, those of one bucket in one task."""
        owners = len(self.assigners)
        parcels = frame.mapInArrow(Dealing(ref, row_kind, self.assigners[0]).run, PARCELS)
        if self.known:
            count = len(self.known)
            numbers = frame.sparkSession.range(0, count, 1, count)
            reading = KeyReading(ref, self.known, self.assigners[0], self.base_id)
            parcels = parcels.unionAll(numbers.mapInArrow(reading.run, PARCELS))
        settling = Settling(ref, self.assigners, tasks)
        settled = delivered(parcels, owners, ordered=True).mapInArrow(settling.run, PARCELS)
        return delivered(settled, tasks, ordered=False)


def _shares(table: Table, base: Snapshot, cores: int) -> tuple[tuple[Split, ...], ...]:
    splits = key_splits(table.store, table.paths, table.options, base)
    return balanced(splits, lambda split: split.size, cores, least=_SHARE_BYTES) if splits else ()


@dataclass(frozen=True, slots=True)
class Dealing:
    """Sends rows to the owners of their keys."""

    ref: TableRef
    row_kind: str | None
    assigner: Assigner

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows as parcels, in the order of tasks and rows."""
        with carrying():
            yield from self._dealt(joined(batches))

    def _dealt(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = self.ref.open()
        admission = Admission(table.schema, table.options)
        rank = ranks()
        for batch in batches:
            for rows, kinds in rows_of(batch, table, self.row_kind):
                counted = admission.counted(with_kinds(rows, kinds))
                if counted.num_rows:
                    owners = owners_of(counted, table.schema, self.assigner)
                    yield packed(counted, owners, rank=next(rank))


@dataclass(frozen=True, slots=True)
class KeyReading:
    """Sends the keys of the table to their owners."""

    ref: TableRef
    shares: tuple[tuple[Split, ...], ...]
    assigner: Assigner
    base_id: int = 0

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The keys as parcels that come before all rows."""
        with carrying():
            table = self.ref.open()
            with table.store.snapshots.held_to(self.base_id or None):
                yield from self._read(table, batches)

    def _read(self, table: Table, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            for partition, bucket, keys in read_keys(table.store, table.options, self.shares[number]):
                place = {_PARTITION: partition.hex().encode(), _BUCKET: str(bucket).encode()}
                owners = owners_of(keys, table.schema, self.assigner)
                yield packed(keys.replace_schema_metadata(place), owners, rank=_BEFORE_ROWS)


@dataclass(frozen=True, slots=True)
class Settling:
    """Finds out where the rows of one owner go; one run for all of them."""

    ref: TableRef
    assigners: tuple[Assigner, ...]
    tasks: int

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The settled rows as parcels, with the mark of this run."""
        with carrying():
            yield from self._settled(opened(batches))

    def _settled(self, parcels: Iterator[Parcel]) -> Iterator[pa.RecordBatch]:
        table = self.ref.open()
        keys: MovingKeys | None = None
        rank = ranks(0)
        for (owner, are_rows), group in groupby(parcels, key=lambda each: (each.task, each.rank > _BEFORE_ROWS)):
            if not are_rows:
                keys = self._knowing(table, owner, map(_placed, group))
                continue
            keys = keys or self._knowing(table, owner, ())
            mark = new_mark(table.store.env.ids, owner)
            for rows in joined(parcel.rows for parcel in group):
                settled, partitions, buckets = keys.settle(rows)
                if settled.num_rows:
                    tasks = tasks_of(partitions, keys.partitions, buckets, self.tasks)
                    numbers = pa.array(buckets.astype(np.int32))
                    yield packed(settled.append_column(BUCKET, numbers), tasks, rank=next(rank), mark=mark)

    def _knowing(self, table: Table, owner: int, known: Iterable[PlacedKeys]) -> MovingKeys:
        keys = MovingKeys(table.store, table.paths, table.options, None, assigner=self.assigners[owner], known=known)
        keys.load()
        return keys


def _placed(parcel: Parcel) -> PlacedKeys:
    told = parcel.rows.schema.metadata
    return bytes.fromhex(told[_PARTITION].decode()), int(told[_BUCKET]), parcel.rows
