"""Rows whose bucket another commit settled otherwise: they are put where their keys belong now.

The port of the committer, in process. A writer gives new keys dynamic buckets by the hash indexes of the snapshot that
it started from. If another commit changed those of the same partition first, the hashes of this one are looked up in
the newest indexes: rows of keys that got a bucket there move to it, all others stay, and the index of a bucket becomes
what is in the newest one and what this commit adds. Where the number of buckets is fixed, or was decided when the first
rows came, rows move if the partition has another number by now (`redeal`).

Invariant: what comes out names, for each hash index that it brings, the one of the newest snapshot that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from tidelake.index.hash_index import Hashes
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.scan.options import BucketOptions
from tidelake.ops.write.assign import (
    Assigner,
    BucketIndex,
    Buckets,
    Place,
    hash_entries,
    index_state,
    load_hashes,
    load_index,
    remove_hash_files,
    write_indexes,
)
from tidelake.ops.write.redeal import Redealer, brings_rows, numbered
from tidelake.ops.write.rewrite import Deal, Places, move_rows, new_split
from tidelake.spec.binary_hash import hash_rows
from tidelake.spec.index_manifest import HASH, IndexEntry, IndexFile
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import Snapshot

__all__ = ["BucketReassigner"]

_NO_HASHES: Hashes = np.empty(0, np.int32)


@dataclass(slots=True)
class BucketReassigner(Redealer):
    """Reassigns rows of tables whose keys stay in their partition. Not shared between threads."""

    _hashes: dict[str, Hashes] = field(default_factory=dict)
    """The key hashes of new files, by name: other commits may come first again and again."""

    def reassign(
        self,
        messages: Sequence[CommitMessage],
        latest: Snapshot | None,
        index: Sequence[IndexEntry],
        *,
        checked_id: int = 0,
    ) -> tuple[CommitMessage, ...]:
        """The messages, with rows of keys that other commits placed elsewhere where these are now.

        Raises:
            FormatError: a file is missing or damaged, or a hash is in two buckets; nothing is left behind.
            StorageError: the storage failed; nothing is left behind that it lets us remove.
        """
        del checked_id
        if BucketOptions.parse(self.options).bucket != -1:
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
        indexes = write_indexes(self.store, plan.indexes)
        try:
            with copier.all_or_nothing():
                moved = move_rows(
                    copier, messages, plan.deals, plan.places, latest, self.options, partitions=frozenset(stale)
                )
        except BaseException:
            remove_hash_files(self.store, (new for new, _ in indexes.values()))
            raise
        states = {partition: index_state(found.get(partition, {})) for partition in stale}
        return _with_indexes(moved, states, indexes)

    def _plan(
        self, plan: _Plan, partition: bytes, messages: Sequence[CommitMessage], files: Mapping[int, IndexFile]
    ) -> None:
        """Where the keys of messages belong in one partition, and which hashes its buckets get."""
        there = load_hashes(self.store, files)
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
                known = known.added(hashes[fresh], buckets[fresh], {})
                gained.setdefault(message.bucket, []).append(hashes[fresh])
            if (buckets != message.bucket).any():
                plan.deals[position] = _deal_by_hash(self.store.schema, partition, hashes, buckets, plan.places)
        for bucket, more in gained.items():
            hashes = np.concatenate([there.get(bucket, _NO_HASHES), *more])
            plan.indexes[partition, bucket] = BucketIndex(files.get(bucket), hashes, True)

    def _hashes_of(self, message: CommitMessage) -> Hashes:
        """The hashes of the keys that a message brings, sorted, each once."""
        request = ReadRequest(schema=self.store.schema, columns=tuple(self.store.schema.trimmed_primary_keys))
        split = new_split(message, self.paths)
        for file in message.data.new_files:
            if file.file_name not in self._hashes:
                batches = read_data_file(self.store, split, file, request)
                parts = [_key_hashes(self.store.schema, batch) for batch in batches]
                self._hashes[file.file_name] = np.unique(np.concatenate([_NO_HASHES, *parts]))
        return np.unique(np.concatenate([self._hashes[file.file_name] for file in message.data.new_files]))


@dataclass(slots=True)
class _Plan:
    """What becomes of messages: which of them move rows, and the hash indexes that come of it."""

    places: Places = field(default_factory=Places)
    deals: dict[int, Deal] = field(default_factory=dict)
    indexes: dict[Place, BucketIndex] = field(default_factory=dict)


def _stale_partitions(messages: Sequence[CommitMessage], found: Mapping[bytes, Mapping[int, IndexFile]]) -> list[bytes]:
    """The partitions whose hash indexes are not those that messages were planned on, or that two writers filled."""
    states: dict[bytes, str] = {}
    writers: dict[bytes, set[str]] = {}
    extended: set[Place] = set()
    stale: dict[bytes, None] = {}
    for message in messages:
        if not brings_rows(message):
            continue
        partition = message.partition
        if partition not in states:
            states[partition] = index_state(found.get(partition, {}))
        place = (partition, message.bucket)
        extends = any(file.index_type == HASH for file in message.data.new_index_files)
        # Writers that do not know of each other may have chosen different new buckets for one key.
        known = writers.setdefault(partition, set())
        known |= {message.assigned_by} if message.assigned_by is not None else set()
        if message.assigned_on != states[partition] or (extends and place in extended) or len(known) > 1:
            stale[partition] = None
        extended |= {place} if extends else set()
    return list(stale)


def _key_hashes(schema: Schema, batch: pa.RecordBatch) -> Hashes:
    keys = schema.trimmed_primary_keys
    return hash_rows([batch.column(name) for name in keys], [schema.field(name).type for name in keys])


def _deal_by_hash(schema: Schema, partition: bytes, hashes: Hashes, buckets: Buckets, places: Places) -> Deal:
    numbers = numbered(partition, buckets, places)
    return lambda batch: numbers[np.searchsorted(hashes, _key_hashes(schema, batch))]


def _new_names(messages: Iterable[CommitMessage]) -> Iterable[str]:
    return (file.file_name for message in messages for file in message.data.new_files)


def _with_indexes(
    messages: Sequence[CommitMessage],
    states: Mapping[bytes, str],
    indexes: Mapping[Place, tuple[IndexFile, IndexFile | None]],
) -> tuple[CommitMessage, ...]:
    """The messages with these hash indexes, and no others, in the partitions that were looked at."""
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
