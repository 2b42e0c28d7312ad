"""Write keys that may move between partitions from many tasks: find the partition and bucket of each key, and send it.

Other tasks read the keys of the table with their partitions and buckets. These and the new rows are sent to the owner
of the key's hash, which decides about the rows (`ops.placement.moves`): a row may add a deletion in the partition
that its key leaves, follow its key to another partition, or be dropped. The results are sent to the task of their
partition and bucket, which writes them. No task holds more than the keys of one owner.

What an owner decides depends on the order in which rows reach it, and Spark does not keep that order when it runs a
task again. As with dynamic buckets every run of an owner puts its run id on its rows, and the driver refuses a write
with two runs of one owner. Invariant: a committed key is in one partition and bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from tidelake.engines.spark.bridge.failures import wrap_task_errors
from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.bridge.packed_rows import (
    SHUFFLE_COLUMNS,
    TaskInput,
    assign_tasks,
    pack_rows,
    sender_ranks,
    shuffle,
    unpack_rows,
)
from tidelake.engines.spark.bridge.tasks import balance
from tidelake.engines.spark.write.batches import convert_rows, join_batches
from tidelake.engines.spark.write.dynamic_buckets import new_run_id
from tidelake.engines.spark.write.receive import BUCKET
from tidelake.ops.placement.cross_partition import MovingKeys, PlacedKeys, key_splits, owners_of, read_keys
from tidelake.ops.placement.dynamic_buckets import Assigner, DynamicBucketOptions, assigners_for
from tidelake.ops.scan.split import Split
from tidelake.ops.write.local_merge import with_kinds
from tidelake.ops.write.row_kind_filter import RowKindFilter
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.table import Table

_BEFORE_ROWS: Final = -1
"""The rank of keys of the table: an owner gets them before all rows."""
_PARTITION, _BUCKET = b"partition", b"bucket"
_SHARE_BYTES: Final = 16 << 20
"""How many bytes of files a task reads at least for their keys."""


@dataclass(frozen=True, slots=True)
class CrossPartitionPlan:
    """How the rows of one write find the partitions and buckets of their keys."""

    assigners: tuple[Assigner, ...]
    base_id: int
    """The snapshot that all tasks start from, 0 for none."""
    known: tuple[tuple[Split, ...], ...]
    """The files with the keys of that snapshot, a share for each task that reads them; empty for an overwrite."""

    @classmethod
    def of(cls, table: Table, *, overwrite: bool, cores: int) -> CrossPartitionPlan:
        """Plan a write that starts from the newest snapshot.

        Raises:
            InvalidInputError: the options would allow one key in two partitions.
            FormatError: the metadata of the table is damaged.
        """
        base = table.store.snapshots.latest()
        MovingKeys(table.context, None)  # refuses options before a job runs
        assigners = assigners_for(table.context.options.of(DynamicBucketOptions), cores)
        known: tuple[tuple[Split, ...], ...] = ()
        if not overwrite and base is not None:
            with table.store.snapshots.held_to(base.id):
                known = _share_keys(table, base, cores)
        return cls(assigners, base.id if base else 0, known)

    def shuffle_rows(self, frame: DataFrame, ref: TableRef, row_kind: str | None, tasks: int) -> DataFrame:
        """Place the rows, and send all rows of a bucket to one task."""
        owners = len(self.assigners)
        packed = frame.mapInArrow(SendRowsToOwners(ref, row_kind, self.assigners[0]).run, SHUFFLE_COLUMNS)
        if self.known:
            count = len(self.known)
            numbers = frame.sparkSession.range(0, count, 1, count)
            reading = SendKeysToOwners(ref, self.known, self.assigners[0], self.base_id)
            packed = packed.unionAll(numbers.mapInArrow(reading.run, SHUFFLE_COLUMNS))
        placing = PlaceRows(ref, self.assigners, tasks)
        placed = shuffle(packed, owners, ordered=True).mapInArrow(placing.run, SHUFFLE_COLUMNS)
        return shuffle(placed, tasks, ordered=False)


def _share_keys(table: Table, base: Snapshot, cores: int) -> tuple[tuple[Split, ...], ...]:
    splits = key_splits(table.context, base)
    return balance(splits, lambda split: split.size, cores, least=_SHARE_BYTES) if splits else ()


@dataclass(frozen=True, slots=True)
class SendRowsToOwners:
    """Packs rows for the owners of their keys."""

    ref: TableRef
    row_kind: str | None
    assigner: Assigner

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pack the rows, ranked in the order of tasks and rows."""
        with wrap_task_errors():
            yield from self._pack_for_owners(join_batches(batches))

    def _pack_for_owners(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = self.ref.open()
        row_kind_filter = RowKindFilter(table.schema, table.context.options)
        rank = sender_ranks()
        for batch in batches:
            for rows, kinds in convert_rows(batch, table, self.row_kind):
                counted = row_kind_filter.drop_ignored_rows(with_kinds(rows, kinds))
                if counted.num_rows:
                    owners = owners_of(counted, table.schema, self.assigner)
                    yield pack_rows(counted, owners, rank=next(rank))


@dataclass(frozen=True, slots=True)
class SendKeysToOwners:
    """Packs the keys of the table for their owners."""

    ref: TableRef
    shares: tuple[tuple[Split, ...], ...]
    assigner: Assigner
    base_id: int = 0

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the keys of these shares, and pack them with a rank before all rows."""
        with wrap_task_errors():
            table = self.ref.open()
            with table.store.snapshots.held_to(self.base_id or None):
                yield from self._pack_keys(table, batches)

    def _pack_keys(self, table: Table, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            for partition, bucket, keys in read_keys(table.context, self.shares[number]):
                place = {_PARTITION: partition.hex().encode(), _BUCKET: str(bucket).encode()}
                owners = owners_of(keys, table.schema, self.assigner)
                yield pack_rows(keys.replace_schema_metadata(place), owners, rank=_BEFORE_ROWS)


@dataclass(frozen=True, slots=True)
class PlaceRows:
    """Decides where the rows of one owner go; all of them go through one run of it."""

    ref: TableRef
    assigners: tuple[Assigner, ...]
    tasks: int

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Place the rows, and pack them with the id of this run."""
        with wrap_task_errors():
            yield from self._place_rows(unpack_rows(batches))

    def _place_rows(self, inputs: Iterator[TaskInput]) -> Iterator[pa.RecordBatch]:
        table = self.ref.open()
        keys: MovingKeys | None = None
        rank = sender_ranks(0)
        for (owner, is_rows), group in groupby(inputs, key=lambda each: (each.task, each.rank > _BEFORE_ROWS)):
            if not is_rows:
                keys = self._load_keys(table, owner, map(_to_placed_keys, group))
                continue
            keys = keys or self._load_keys(table, owner, ())
            run_id = new_run_id(table.store.env.ids, owner)
            for rows in join_batches(each.rows for each in group):
                placed, partitions, buckets = keys.settle(rows)
                if placed.num_rows:
                    tasks = assign_tasks(partitions, keys.partitions, buckets, self.tasks)
                    numbers = pa.array(buckets.astype(np.int32))
                    yield pack_rows(placed.append_column(BUCKET, numbers), tasks, rank=next(rank), run_id=run_id)

    def _load_keys(self, table: Table, owner: int, known: Iterable[PlacedKeys]) -> MovingKeys:
        keys = MovingKeys(table.context, None, assigner=self.assigners[owner], known=known)
        keys.load()
        return keys


def _to_placed_keys(given: TaskInput) -> PlacedKeys:
    place = given.rows.schema.metadata
    return bytes.fromhex(place[_PARTITION].decode()), int(place[_BUCKET]), given.rows
