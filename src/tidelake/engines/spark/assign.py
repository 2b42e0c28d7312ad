"""Dynamic buckets over many tasks: who assigns the bucket of a key, and how the rows get there.

Rows are sent to the task that owns the hash of their key; it knows the index of its part and gives each row a bucket.
Then they are sent to the task of their bucket, which writes them and the index. Where nothing was there before and no
two owners open the same buckets, the owner writes at once.

What an owner assigns to new keys depends on the order in which they reach it. If Spark runs it again after some of its
rows were written, two answers would be mixed: each run marks its rows, and the driver refuses a write in which one
owner has two marks. What another job assigned meanwhile the committer finds, and puts the rows there. Invariant: a
committed key has one bucket.
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

from tidelake.engines.spark.buckets import TASK, arrow_udf, fitted, raw, task_of
from tidelake.engines.spark.conditions import column_named as named
from tidelake.engines.spark.failures import carrying
from tidelake.engines.spark.remote import TableRef
from tidelake.errors import InvalidInputError
from tidelake.index.hash_index import Hashes
from tidelake.io.ids import Ids
from tidelake.ops.write.assign import (
    Assigner,
    BucketIndex,
    Buckets,
    DynamicBucketOptions,
    DynamicBuckets,
    PartitionIndex,
    Place,
    assigners_for,
    hash_entries,
    load_hashes,
    merge_hashes,
    write_indexes,
)
from tidelake.spec.binary_hash import hash_bytes, hash_rows
from tidelake.spec.binary_row import EMPTY_ROW, encode_rows
from tidelake.spec.binary_row_layout import ARITY_PREFIX_SIZE
from tidelake.spec.bucket import bucket_default
from tidelake.spec.index_manifest import IndexEntry, IndexFile
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import Snapshot
from tidelake.spec.types import Field, with_nullable
from tidelake.store.table_store import TableStore

CODE: Final = "__tidelake_code"
"""What an owner says of a row: its mark (31 bits), its number (15 bits) and the bucket (15 bits)."""
_BITS: Final = 15
_BUCKET: Final = (1 << _BITS) - 1
_MARK_MAX: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Assigning:
    """How the rows of one write find their dynamic buckets."""

    options: DynamicBucketOptions
    assigners: tuple[Assigner, ...]
    snapshot_id: int | None
    """The snapshot whose index is continued; None where there is none to continue."""
    at_once: bool
    """Whether the owner of a key writes it too."""

    @classmethod
    def of(cls, options: DynamicBucketOptions, base: Snapshot | None, tasks: int) -> Assigning:
        """The plan of a write that starts from a snapshot, or from nothing."""
        assigners = assigners_for(options, tasks)
        empty = base is None or base.index_manifest is None
        apart = assigners[0].assigners == len(assigners)
        return cls(options, assigners, None if empty or base is None else base.id, empty and apart)

    def distributed(self, frame: DataFrame, ref: TableRef, tasks: int) -> DataFrame:
        """The rows, those of one bucket in one task, and what the task needs to know of them."""
        keys = key_fields(ref.schema)
        columns = frame.columns
        channels = len(self.assigners)
        values = [raw(columns, field) for field in keys]
        owner = Owner(ref.schema, self.assigners[0])
        frame = frame.withColumn(TASK, arrow_udf(owner.run, "int")(*values)).repartitionById(channels, f.col(TASK))
        if self.at_once:
            return frame
        marking = Marking(ref, self)
        members = [named(TASK).alias("task"), *(each.alias(f"key{i}") for i, each in enumerate(values))]
        udf = arrow_udf(marking.run, "bigint").asNondeterministic()
        frame = frame.withColumn(CODE, udf(f.struct(*members))).drop(TASK)
        bucket = named(CODE).bitwiseAND(_BUCKET)
        return frame.repartitionById(tasks, task_of(columns, ref.schema, bucket, tasks))

    def entries(self, store: TableStore) -> tuple[IndexEntry, ...]:
        """The index files that the write continues.

        Raises:
            NotFoundError: the snapshot has expired meanwhile (`snapshot-expired`).
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
        """Those of columns in the order of `key_fields`."""
        count = len(schema.partition_keys)
        parts, keys = columns[:count], columns[count:]
        hashes = hash_rows(list(keys), [schema.field(name).type for name in schema.trimmed_primary_keys])
        if not count:
            return cls(np.zeros(len(hashes), np.int64), (EMPTY_ROW,), hashes)
        types = [with_nullable(dtype, True) for dtype in schema.partition_types]
        encoded = encode_rows(list(parts), types, length=len(hashes)).dictionary_encode()
        return cls(encoded.indices.to_numpy().astype(np.int64), tuple(encoded.dictionary.to_pylist()), hashes)

    def by_partition(self) -> Iterator[tuple[bytes, npt.NDArray[np.intp]]]:
        """Each partition with the places of its rows."""
        order = np.argsort(self.partitions, kind="stable")
        bounds = np.searchsorted(self.partitions[order], np.arange(len(self.names) + 1))
        for name, (start, end) in zip(self.names, pairwise(bounds.tolist()), strict=True):
            if end > start:
                yield name, order[start:end]


def key_fields(schema: Schema) -> tuple[Field, ...]:
    """The columns that say which bucket a row goes to: those of the partition, then those of the key."""
    return tuple(schema.field(name) for name in (*schema.partition_keys, *schema.trimmed_primary_keys))


@dataclass(frozen=True, slots=True)
class Owner:
    """Says which assigner places a row."""

    schema: Schema
    assigner: Assigner

    def run(self, *columns: pa.Array) -> pa.Array:
        """The number of the assigner, for each row."""
        try:
            given = zip(columns, key_fields(self.schema), strict=True)
            keys = Keys.of(self.schema, [fitted(column, field) for column, field in given])
        except InvalidInputError:  # the writer says what is wrong
            return pa.repeat(pa.scalar(0, pa.int32()), len(columns[0]))
        rows = pa.array([name[ARITY_PREFIX_SIZE:] for name in keys.names], pa.large_binary())
        channels = self.assigner.channels
        starts = np.array([abs(each) % channels for each in hash_bytes(rows).tolist()], np.int64)
        spread = bucket_default(keys.hashes, self.assigner.assigners)
        return pa.array((spread + starts[keys.partitions]) % channels, pa.int32())


@dataclass(frozen=True, slots=True)
class Marking:
    """Gives rows their bucket; one run for all rows of an owner."""

    ref: TableRef
    plan: Assigning

    def run(self, batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """The code of each row."""
        store = self.ref.open().store
        mark = 0
        buckets: DynamicBuckets | None = None
        for batch in batches:
            task, *columns = batch.flatten()
            if not len(batch):
                yield pa.array([], pa.int64())
                continue
            owner = task[0].as_py()
            with carrying():
                if buckets is None:
                    mark = new_mark(store.env.ids, owner)
                    mine = (self.plan.assigners[owner],)
                    buckets = DynamicBuckets(store, self.plan.options, self.plan.entries(store), mine)
                yield self._codes(buckets, columns, mark << _BITS)

    def _codes(self, buckets: DynamicBuckets, columns: Sequence[pa.Array], base: int) -> pa.Array:
        schema = self.ref.schema
        try:
            given = zip(columns, key_fields(schema), strict=True)
            keys = Keys.of(schema, [fitted(column, field) for column, field in given])
        except InvalidInputError:  # the writer says what is wrong
            return pa.repeat(pa.scalar(base, pa.int64()), len(columns[0]))
        found = np.empty(len(keys.hashes), np.int64)
        for partition, here in keys.by_partition():
            found[here] = buckets.assign(partition, keys.hashes[here])
        return pa.array(found + base, pa.int64())


# ------------------------------------------------------------------------------------------------ writing


class AssignedBuckets(DynamicBuckets):
    """Buckets that others assigned, and the index files of those that have new keys."""

    def __init__(self, store: TableStore, options: DynamicBucketOptions, entries: Sequence[IndexEntry]) -> None:
        super().__init__(store, options, entries)
        self._store_of_files = store
        self._there_files = hash_entries(entries)
        self._learned: dict[bytes, PartitionIndex] = {}
        self.marks: set[int] = set()

    def learn(self, schema: Schema, rows: pa.RecordBatch, codes: pa.Array) -> None:
        """Take in what was assigned to rows that are written next."""
        numbers = codes.to_numpy()
        self.marks |= set(np.unique(numbers >> _BITS).tolist())
        buckets = (numbers & _BUCKET).astype(np.int32)
        keys = Keys.of(schema, [rows.column(field.name) for field in key_fields(schema)])
        for partition, here in keys.by_partition():
            known = self._learned.get(partition, PartitionIndex())
            hashes, first = np.unique(keys.hashes[here], return_index=True)
            new = known.find(hashes) == -1
            if new.any():
                known = known.added(hashes[new], buckets[here][first[new]], {})
            self._learned[partition] = known

    def assign(self, partition: bytes, hashes: Hashes) -> Buckets:
        """The bucket of each row, as it was learned."""
        return self._learned[partition].find(hashes)

    def prepare(self) -> dict[Place, tuple[IndexFile, IndexFile | None]]:
        """Write the index of every bucket that has new keys.

        Raises:
            FormatError: an index file is missing or damaged.
            StorageError: a file cannot be written.
        """
        indexes: dict[Place, BucketIndex] = {}
        for partition, known in self._learned.items():
            files = self._there_files.get(partition, {})
            numbers = sorted({int(each) for layer in known.layers for each in np.unique(layer.buckets)})
            there = load_hashes(self._store_of_files, {each: files[each] for each in numbers if each in files})
            for number in numbers:
                before = BucketIndex(files.get(number), np.sort(there.get(number, np.empty(0, np.int32))))
                indexes[partition, number] = merge_hashes(before, known.hashes_of(number))
        self._learned = {}
        return write_indexes(self._store_of_files, indexes)


def new_mark(ids: Ids, owner: int) -> int:
    """The mark of one run of an owner: a number drawn for it (31 bits), and its own (15 bits)."""
    drawn = int(ids.uuid().replace("-", "")[:8], 16) % _MARK_MAX
    return (drawn << _BITS) + owner


def check_marks(marks: Sequence[int]) -> bool:
    """Whether every owner ran once as far as the written rows tell."""
    owners = [mark & _BUCKET for mark in set(marks)]
    return len(owners) == len(set(owners))
