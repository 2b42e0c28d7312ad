"""Write to dynamic buckets from many tasks: assign the bucket of each key, and send its rows there.

Rows are first sent to the task that owns the hash of their key. The owner knows its part of the key index and gives
each row a bucket. Then rows are sent to the task of their bucket, which writes them and the index. If the table has no
index yet and no two owners open the same buckets, the owner writes its rows itself.

The bucket of a new key depends on the order in which keys reach the owner, and Spark does not keep that order when it
runs a task again. If some rows of the first run are already written by then, keys could end up in two buckets. So every
run of an owner puts its run id on its rows, and the driver refuses a write with two runs of one owner. Buckets that
another job assigned while this one ran are found by the committer, which reassigns the rows. Invariant: a committed key
has one bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tidelake.engines.spark.bridge.conditions import column_named as named
from tidelake.engines.spark.bridge.failures import wrap_task_errors
from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.write.buckets import TASK, arrow_udf, compute_task, fit_array, frame_column
from tidelake.errors import InvalidInputError
from tidelake.index.hash_index import Hashes
from tidelake.io.ids import Ids
from tidelake.ops.placement.dynamic_buckets import (
    Assigner,
    BucketIndex,
    Buckets,
    DynamicBucketOptions,
    DynamicBuckets,
    PartitionIndex,
    assigners_for,
    hash_entries,
    load_hashes,
    merge_hashes,
    write_indexes,
)
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.index_manifest import IndexEntry, IndexFile
from tidelake.spec.rows.binary_hash import hash_bytes, hash_rows
from tidelake.spec.rows.binary_row import EMPTY_ROW, encode_rows
from tidelake.spec.rows.binary_row_layout import ARITY_PREFIX_SIZE
from tidelake.spec.rows.bucket_function import PartitionBucket, bucket_default
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import Field, with_nullable
from tidelake.store.table_store import TableStore

PLACEMENT: Final = "__tidelake_placement"
"""The column in which an owner sends on where a row goes: a drawn number (31 bits), the owner (15) and the bucket (15).

The first two are the run id.
"""
_BITS: Final = 15
_BUCKET: Final = (1 << _BITS) - 1
_RUNS_MAX: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class DynamicBucketPlan:
    """How the rows of one write get their dynamic buckets."""

    options: DynamicBucketOptions
    assigners: tuple[Assigner, ...]
    snapshot_id: int | None
    """The snapshot whose key index is continued; None to start without one."""
    owner_writes: bool
    """Whether the owner of a key also writes its rows."""

    @classmethod
    def of(cls, options: DynamicBucketOptions, base: Snapshot | None, tasks: int) -> DynamicBucketPlan:
        """Plan a write that starts from a snapshot, or without one."""
        assigners = assigners_for(options, tasks)
        empty = base is None or base.index_manifest is None
        apart = assigners[0].assigners == len(assigners)
        return cls(options, assigners, None if empty or base is None else base.id, empty and apart)

    def shuffle_rows(self, frame: DataFrame, ref: TableRef, tasks: int) -> DataFrame:
        """Send all rows of a bucket to one task, with their placements."""
        keys = key_fields(ref.schema)
        columns = frame.columns
        channels = len(self.assigners)
        values = [frame_column(columns, field) for field in keys]
        owner = Owner(ref.schema, self.assigners[0])
        frame = frame.withColumn(TASK, arrow_udf(owner.run, "int")(*values)).repartitionById(channels, f.col(TASK))
        if self.owner_writes:
            return frame
        assigning = AssignBuckets(ref, self)
        members = [named(TASK).alias("task"), *(each.alias(f"key{i}") for i, each in enumerate(values))]
        # Nondeterministic, so that no optimizer rule evaluates it twice, which would give two run ids.
        udf = arrow_udf(assigning.run, "bigint").asNondeterministic()
        frame = frame.withColumn(PLACEMENT, udf(f.struct(*members))).drop(TASK)
        bucket = named(PLACEMENT).bitwiseAND(_BUCKET)
        return frame.repartitionById(tasks, compute_task(columns, ref.schema, bucket, tasks))

    def entries(self, store: TableStore) -> tuple[IndexEntry, ...]:
        """Read the entries of the key index that the write continues.

        Raises:
            NotFoundError: the snapshot has expired since the write was planned (`snapshot-expired`).
        """
        if self.snapshot_id is None:
            return ()
        with store.snapshots.held_to(self.snapshot_id):
            manifest = store.snapshots.get(self.snapshot_id).index_manifest
            return () if manifest is None else tuple(store.manifests.read_index(manifest))


# ------------------------------------------------------------------------------------------------ keys of rows


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """The partition and the key hash of each row of a batch."""

    partitions: npt.NDArray[np.int64]
    names: tuple[bytes, ...]
    hashes: Hashes

    @classmethod
    def of(cls, schema: Schema, columns: Sequence[pa.Array]) -> Keys:
        """Compute them from columns in the order of `key_fields`."""
        count = len(schema.partition_keys)
        parts, keys = columns[:count], columns[count:]
        hashes = hash_rows(list(keys), [schema.field(name).type for name in schema.trimmed_primary_keys])
        if not count:
            return cls(np.zeros(len(hashes), np.int64), (EMPTY_ROW,), hashes)
        types = [with_nullable(dtype, True) for dtype in schema.partition_types]
        encoded = encode_rows(list(parts), types, length=len(hashes)).dictionary_encode()
        return cls(encoded.indices.to_numpy().astype(np.int64), tuple(encoded.dictionary.to_pylist()), hashes)

    def by_partition(self) -> Iterator[tuple[bytes, npt.NDArray[np.intp]]]:
        """Each partition with the positions of its rows."""
        order = np.argsort(self.partitions, kind="stable")
        bounds = np.searchsorted(self.partitions[order], np.arange(len(self.names) + 1))
        for name, (start, end) in zip(self.names, pairwise(bounds.tolist()), strict=True):
            if end > start:
                yield name, order[start:end]


def key_fields(schema: Schema) -> tuple[Field, ...]:
    """The columns that the bucket of a row depends on: those of the partition, then those of the key."""
    return tuple(schema.field(name) for name in (*schema.partition_keys, *schema.trimmed_primary_keys))


@dataclass(frozen=True, slots=True)
class Owner:
    """Computes which owner assigns the bucket of a row."""

    schema: Schema
    assigner: Assigner

    def run(self, *columns: pa.Array) -> pa.Array:
        """The number of the owner, for each row."""
        try:
            given = zip(columns, key_fields(self.schema), strict=True)
            keys = Keys.of(self.schema, [fit_array(column, field) for column, field in given])
        except InvalidInputError:  # the task that writes the row raises it
            return pa.repeat(pa.scalar(0, pa.int32()), len(columns[0]))
        rows = pa.array([name[ARITY_PREFIX_SIZE:] for name in keys.names], pa.large_binary())
        channels = self.assigner.channels
        starts = np.array([abs(each) % channels for each in hash_bytes(rows).tolist()], np.int64)
        spread = bucket_default(keys.hashes, self.assigner.assigners)
        return pa.array((spread + starts[keys.partitions]) % channels, pa.int32())


@dataclass(frozen=True, slots=True)
class AssignBuckets:
    """Gives rows their bucket; all rows of an owner go through one run of it."""

    ref: TableRef
    plan: DynamicBucketPlan

    def run(self, batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """The placement of each row."""
        store = self.ref.open().store
        run_id = 0
        buckets: DynamicBuckets | None = None
        for batch in batches:
            task, *columns = batch.flatten()
            if not len(batch):
                yield pa.array([], pa.int64())
                continue
            owner = task[0].as_py()
            with wrap_task_errors():
                if buckets is None:
                    run_id = new_run_id(store.env.ids, owner)
                    mine = (self.plan.assigners[owner],)
                    buckets = DynamicBuckets(store, self.plan.options, self.plan.entries(store), mine)
                yield self._placements(buckets, columns, run_id << _BITS)

    def _placements(self, buckets: DynamicBuckets, columns: Sequence[pa.Array], base: int) -> pa.Array:
        schema = self.ref.schema
        try:
            given = zip(columns, key_fields(schema), strict=True)
            keys = Keys.of(schema, [fit_array(column, field) for column, field in given])
        except InvalidInputError:  # the task that writes the row raises it
            return pa.repeat(pa.scalar(base, pa.int64()), len(columns[0]))
        found = np.empty(len(keys.hashes), np.int64)
        for partition, here in keys.by_partition():
            found[here] = buckets.assign(partition, keys.hashes[here])
        return pa.array(found + base, pa.int64())


# ------------------------------------------------------------------------------------------------ writing


class AssignedBuckets(DynamicBuckets):
    """Buckets that owners assigned in other tasks, and the index files of those that have new keys."""

    def __init__(self, store: TableStore, options: DynamicBucketOptions, entries: Sequence[IndexEntry]) -> None:
        super().__init__(store, options, entries)
        self._index_store = store
        self._base_files = hash_entries(entries)
        self._learned: dict[bytes, PartitionIndex] = {}
        self.owner_runs: set[int] = set()

    def learn(self, schema: Schema, rows: pa.RecordBatch, placements: pa.Array) -> None:
        """Note the buckets of rows that are written next."""
        numbers = placements.to_numpy()
        self.owner_runs |= set(np.unique(numbers >> _BITS).tolist())
        buckets = (numbers & _BUCKET).astype(np.int32)
        keys = Keys.of(schema, [rows.column(field.name) for field in key_fields(schema)])
        for partition, here in keys.by_partition():
            known = self._learned.get(partition, PartitionIndex())
            hashes, first = np.unique(keys.hashes[here], return_index=True)
            new = known.find(hashes) == -1
            if new.any():
                known = known.add_hashes(hashes[new], buckets[here][first[new]], {})
            self._learned[partition] = known

    def assign(self, partition: bytes, hashes: Hashes) -> Buckets:
        """The bucket of each row, from what `learn` noted."""
        return self._learned[partition].find(hashes)

    def prepare(self) -> dict[PartitionBucket, tuple[IndexFile, IndexFile | None]]:
        """Write the index of every bucket that has new keys.

        Raises:
            FormatError: an index file is missing or damaged.
            StorageError: a file cannot be written.
        """
        indexes: dict[PartitionBucket, BucketIndex] = {}
        for partition, known in self._learned.items():
            files = self._base_files.get(partition, {})
            numbers = sorted({int(each) for layer in known.layers for each in np.unique(layer.buckets)})
            there = load_hashes(self._index_store, {each: files[each] for each in numbers if each in files})
            for number in numbers:
                before = BucketIndex(files.get(number), np.sort(there.get(number, np.empty(0, np.int32))))
                indexes[partition, number] = merge_hashes(before, known.hashes_of(number))
        self._learned = {}
        return write_indexes(self._index_store, indexes)


def new_run_id(ids: Ids, owner: int) -> int:
    """The id of one run of an owner: a drawn number (31 bits) and that of the owner (15 bits)."""
    drawn = int(ids.uuid().replace("-", "")[:8], 16) % _RUNS_MAX
    return (drawn << _BITS) + owner


def owners_ran_once(owner_runs: Sequence[int]) -> bool:
    """Whether all written rows of each owner come from one run of it."""
    owners = [run_id & _BUCKET for run_id in set(owner_runs)]
    return len(owners) == len(set(owners))
