"""Reassign rows of dynamic buckets: another commit gave their keys other buckets first, and the rows move there.

This is the committer's port, in process. A writer gives new keys dynamic buckets by the hash indexes of the snapshot
that it started from. If another commit changed the indexes of the same partition first, the hashes of this commit are
looked up in the newest indexes: rows of keys that have a bucket there move to it, all others stay, and the new index of
a bucket is the newest one plus the keys of this commit. With a fixed number of buckets, or one that was decided for the
first rows, rows move if the partition has another number now (`reassign_by_count`).

Invariant: for each hash index that a message adds, it names the index of the newest snapshot that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from tidelake.cleanup import undo_on_error
from tidelake.index.hash_index import Hashes
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.placement.dynamic_buckets import (
    Assigner,
    BucketIndex,
    Buckets,
    hash_entries,
    index_state,
    load_hashes,
    load_index,
    remove_hash_files,
    write_indexes,
)
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.write.bucket_count import CountReassigner, brings_rows, number_buckets
from tidelake.ops.write.rewrite import PlaceRows, Places, move_rows, new_split
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.index_manifest import HASH, IndexEntry, IndexFile
from tidelake.spec.rows.binary_hash import hash_rows
from tidelake.spec.rows.bucket_function import PartitionBucket
from tidelake.spec.schemas.bucket_mode import BucketMode
from tidelake.spec.schemas.schema import Schema

__all__ = ["BucketReassigner"]

_NO_HASHES: Hashes = np.empty(0, np.int32)


@dataclass(slots=True)
class BucketReassigner(CountReassigner):
    """Reassigns rows of tables whose keys stay in their partition. Not shared between threads."""

    _hashes: dict[str, Hashes] = field(default_factory=dict)
    """The key hashes of new files, by name; kept because the commit may lose several races."""

    def reassign(
        self,
        messages: Sequence[CommitMessage],
        latest: Snapshot | None,
        index: Sequence[IndexEntry],
        *,
        checked_id: int = 0,
    ) -> tuple[CommitMessage, ...]:
        """Move rows of keys that other commits gave other buckets to these buckets; return the new messages.

        Raises:
            FormatError: a file is missing or damaged, or a hash is in two buckets; the new files are removed.
            StorageError: the storage failed; the new files are removed as far as it lets us.
        """
        del checked_id
        if self.context.bucket_mode is not BucketMode.DYNAMIC:
            return tuple(messages)
        found = hash_entries(index)
        stale = _stale_partitions(messages, found)
        if not stale:
            return tuple(messages)
        plan = _Plan()
        for partition in stale:
            self._plan(plan, partition, messages, found.get(partition, {}))
        self._hashes = {name: self._hashes[name] for name in _new_names(messages) if name in self._hashes}
        copier = self.copier()
        indexes = write_indexes(self.context.store, plan.indexes)
        remove = partial(remove_hash_files, self.context.store, [new for new, _ in indexes.values()])
        with undo_on_error(remove), copier.all_or_nothing():
            moved = move_rows(
                copier, messages, plan.placers, plan.places, latest, self.context.options, partitions=frozenset(stale)
            )
        states = {partition: index_state(found.get(partition, {})) for partition in stale}
        return _with_indexes(moved, states, indexes)

    def _plan(
        self, plan: _Plan, partition: bytes, messages: Sequence[CommitMessage], files: Mapping[int, IndexFile]
    ) -> None:
        """Plan where the rows of messages go in one partition, and which hashes its buckets get."""
        there = load_hashes(self.context.store, files)
        known = load_index(there, Assigner(), 0)
        gained: dict[int, list[Hashes]] = {}
        for position, message in enumerate(messages):
            if message.partition != partition or not brings_rows(message):
                continue
            hashes = self._hashes_of(message)
            buckets = known.find(hashes)
            fresh = buckets == -1
            if fresh.any():
                buckets[fresh] = message.bucket
                known = known.add_hashes(hashes[fresh], buckets[fresh], {})
                gained.setdefault(message.bucket, []).append(hashes[fresh])
            if (buckets != message.bucket).any():
                plan.placers[position] = _place_by_hash(
                    self.context.store.schema, partition, hashes, buckets, plan.places
                )
        for bucket, more in gained.items():
            hashes = np.concatenate([there.get(bucket, _NO_HASHES), *more])
            plan.indexes[partition, bucket] = BucketIndex(files.get(bucket), hashes, True)

    def _hashes_of(self, message: CommitMessage) -> Hashes:
        """The distinct hashes of the keys in a message, in ascending order."""
        request = ReadRequest(
            schema=self.context.store.schema, columns=tuple(self.context.store.schema.trimmed_primary_keys)
        )
        split = new_split(message, self.context.paths)
        for file in message.data.new_files:
            if file.file_name not in self._hashes:
                batches = read_data_file(self.context.store, split, file, request)
                parts = [_key_hashes(self.context.store.schema, batch) for batch in batches]
                self._hashes[file.file_name] = np.unique(np.concatenate([_NO_HASHES, *parts]))
        return np.unique(np.concatenate([self._hashes[file.file_name] for file in message.data.new_files]))


@dataclass(slots=True)
class _Plan:
    """Which messages move rows, and the new hash indexes."""

    places: Places = field(default_factory=Places)
    placers: dict[int, PlaceRows] = field(default_factory=dict)
    indexes: dict[PartitionBucket, BucketIndex] = field(default_factory=dict)


def _stale_partitions(messages: Sequence[CommitMessage], found: Mapping[bytes, Mapping[int, IndexFile]]) -> list[bytes]:
    """The partitions whose hash indexes changed since messages were planned, or to which two writers added keys."""
    states: dict[bytes, str] = {}
    writers: dict[bytes, set[str]] = {}
    extended: set[PartitionBucket] = set()
    stale: dict[bytes, None] = {}
    for message in messages:
        if not brings_rows(message):
            continue
        partition = message.partition
        if partition not in states:
            states[partition] = index_state(found.get(partition, {}))
        place = (partition, message.bucket)
        extends = any(file.index_type == HASH for file in message.data.new_index_files)
        # Independent writers may have chosen different new buckets for one key.
        known = writers.setdefault(partition, set())
        known |= {message.assigned_by} if message.assigned_by is not None else set()
        if message.assigned_on != states[partition] or (extends and place in extended) or len(known) > 1:
            stale[partition] = None
        extended |= {place} if extends else set()
    return list(stale)


def _key_hashes(schema: Schema, batch: pa.RecordBatch) -> Hashes:
    keys = schema.trimmed_primary_keys
    return hash_rows([batch.column(name) for name in keys], [schema.field(name).type for name in keys])


def _place_by_hash(schema: Schema, partition: bytes, hashes: Hashes, buckets: Buckets, places: Places) -> PlaceRows:
    numbers = number_buckets(partition, buckets, places)
    return lambda batch: numbers[np.searchsorted(hashes, _key_hashes(schema, batch))]


def _new_names(messages: Iterable[CommitMessage]) -> Iterable[str]:
    return (file.file_name for message in messages for file in message.data.new_files)


def _with_indexes(
    messages: Sequence[CommitMessage],
    states: Mapping[bytes, str],
    indexes: Mapping[PartitionBucket, tuple[IndexFile, IndexFile | None]],
) -> tuple[CommitMessage, ...]:
    """Replace the hash indexes of messages in the stale partitions by these."""
    left = dict(indexes)
    done = []
    for message in messages:
        if message.partition not in states:
            done.append(message)
            continue
        found = left.pop((message.partition, message.bucket), None) if brings_rows(message) else None
        new, old = (None, None) if found is None else found
        data = replace(
            message.data,
            new_index_files=_with_hash(message.data.new_index_files, new),
            deleted_index_files=_with_hash(message.data.deleted_index_files, old),
        )
        done.append(replace(message, data=data, assigned_on=states[message.partition], assigned_by=None))
    assert not left, "a bucket that gains hashes has rows"
    return tuple(done)


def _with_hash(files: Sequence[IndexFile], file: IndexFile | None) -> tuple[IndexFile, ...]:
    others = tuple(each for each in files if each.index_type != HASH)
    return others if file is None else (*others, file)
