"""Reassign rows of keys that move between partitions: another commit put the keys into a partition first.

This is the committer's port for such tables, in process. The commits since the rows were planned say where their keys
are now, in the order of these commits; all other keys are where they were. If one of the commits replaced rows, or has
expired, the keys of the newest snapshot are read instead. What happens to a row then depends on its engine (`moves`):
the key is deleted there, the row goes there, or the row is dropped.

Invariant: after the commit a key is in one bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.cleanup import undo_on_error
from tidelake.errors import CommitConflictError, InvalidInputError
from tidelake.files.write.keyed import KIND_FIELD
from tidelake.lsm.engine import KIND
from tidelake.lsm.engines.build import MergeOptions
from tidelake.ops.commit.conflicts import KEYS_MOVED
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.commit.since import LaterCommit, commits_since
from tidelake.ops.context import TableContext
from tidelake.ops.placement.cross_partition import CrossPartitionOptions, MovingKeys, digester_for
from tidelake.ops.placement.key_index import NO_KEYS, Digests, KeyIndex, Layer
from tidelake.ops.placement.moves import Policy, known_place, parts_of, policy_of
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.scan.split import Split, bucket_splits
from tidelake.ops.write.bucket_count import CountReassigner, brings_rows
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.restore import sequence_floors
from tidelake.ops.write.rewrite import (
    LEFT_OUT,
    Ints,
    PlaceRows,
    Places,
    in_partition,
    join_messages,
    move_rows,
    new_split,
)
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.manifests.manifest import ADD
from tidelake.spec.rows.bucket_function import PartitionBucket
from tidelake.spec.rows.row_kind import KINDS

__all__ = ["KeyReassigner"]

_NOWHERE: Final = -1
_RETRACT: Final = 1
"""The bit that is set in the kinds of retract rows."""


def _refuse_two_writers(messages: Sequence[CommitMessage]) -> None:
    """Refuse messages of several writers: the places of keys are read from commits, and neither writer has one yet."""
    writers = {each.assigned_by for each in messages if brings_rows(each)} - {None}
    if len(writers) > 1:
        raise InvalidInputError(
            "commit has rows of several writers, which may have put one key into different partitions",
            code="several-writers",
            writers=len(writers),
            hint="commit the messages of each writer separately: a later commit finds the keys of an earlier one",
        )


@dataclass(slots=True)
class KeyReassigner(CountReassigner):
    """Reassigns rows of keys that move between partitions. Not shared between threads."""

    def reassign(
        self,
        messages: Sequence[CommitMessage],
        latest: Snapshot | None,
        index: object,
        *,
        checked_id: int = 0,
    ) -> tuple[CommitMessage, ...]:
        """Fix rows of keys that other commits put into other partitions or buckets; return the new messages.

        Raises:
            InvalidInputError: the messages come from several writers; no file is written.
            FormatError: a file is missing or damaged, or a key is in two buckets; the new files are removed.
            StorageError: the storage failed; the new files are removed as far as it lets us.
        """
        del index
        _refuse_two_writers(messages)
        bases = [each.base_snapshot_id or 0 for each in messages if brings_rows(each)]
        since = max(checked_id, min(bases, default=0))
        if latest is None or not bases or since >= latest.id:
            return tuple(messages)
        homes = _Homes(self.context)
        homes.look(since, latest)
        if homes.policy is Policy.MOVES:
            return self._deleted_elsewhere(messages, homes, latest)
        return self._move_to_homes(messages, homes, latest)

    # -------------------------------------------------------------------------------------------- rows that go there

    def _move_to_homes(
        self, messages: Sequence[CommitMessage], homes: _Homes, latest: Snapshot
    ) -> tuple[CommitMessage, ...]:
        """Move rows to the buckets of their keys, or drop them if the first row of a key wins."""
        places = Places()
        placers: dict[int, PlaceRows] = {}
        for position, message in enumerate(messages):
            place_rows, own = _follow(message, homes, places), places.number((message.partition, message.bucket))
            if brings_rows(message) and any((place_rows(keys) != own).any() for keys in self._rows(message)):
                placers[position] = place_rows
        if not placers:
            return tuple(messages)
        copier = self.copier()
        with copier.all_or_nothing():
            reached = frozenset(homes.partitions) | {each.partition for each in messages}
            return move_rows(copier, messages, placers, places, latest, self.context.options, partitions=reached)

    # -------------------------------------------------------------------------------------------- keys that leave

    def _deleted_elsewhere(
        self, messages: Sequence[CommitMessage], homes: _Homes, latest: Snapshot
    ) -> tuple[CommitMessage, ...]:
        """Delete keys in their other buckets, unless one of the rows goes there or deletes them there already."""
        missing = self._find_stale_keys(messages, homes)
        if not len(missing):
            return tuple(messages)
        extra = self._deletions(messages, homes, missing, latest)
        return tuple(join_messages(messages, extra))

    def _find_stale_keys(self, messages: Sequence[CommitMessage], homes: _Homes) -> Layer:
        """Find the keys of rows that are in a bucket to which none of the rows goes, and these buckets."""
        met: list[tuple[Digests, Ints, Ints]] = []
        for message in filter(brings_rows, messages):
            own = homes.number((message.partition, message.bucket))
            for rows in self._rows(message):
                digests = homes.digester.digests(rows)
                at = homes.find(digests)
                here = at >= 0
                if here.any():
                    met.append((digests[here], at[here], at[here] == own))
        if not met:
            return _nowhere(NO_KEYS)
        keys = Digests(np.concatenate([each.high for each, *_ in met]), np.concatenate([each.low for each, *_ in met]))
        at, reached = (np.concatenate([each[column] for each in met]) for column in (1, 2))
        firsts, numbers = keys.group_keys()
        there = np.zeros(len(firsts), np.bool_)
        there[numbers[reached]] = True
        chosen = firsts[~there]
        return Layer(keys[chosen], at[chosen])

    def _deletions(
        self, messages: Sequence[CommitMessage], homes: _Homes, missing: Layer, latest: Snapshot
    ) -> list[CommitMessage]:
        """Write deletions of keys in their buckets."""
        left = KeyIndex(self.context.options.of(CrossPartitionOptions).memory)
        left.load([missing])
        skip = self._count_taken_numbers(messages, latest)
        writer = KeyedTableWriter(self.context, base_id=latest.id, skip=skip, compacts=False)
        with undo_on_error(writer.abort):
            for message in filter(brings_rows, messages):
                for rows in self._rows(message, whole=True):
                    digests = homes.digester.digests(rows)
                    at = left.find(digests)
                    firsts, _ = digests.group_keys()
                    chosen = firsts[at[firsts] >= 0]
                    if len(chosen):
                        left.put(_nowhere(digests[chosen]))
                        self._delete(writer, rows.take(pa.array(chosen)), at[chosen], homes)
            return writer.prepare()

    def _delete(self, writer: KeyedTableWriter, rows: pa.RecordBatch, at: Ints, homes: _Homes) -> None:
        kinds = pa.repeat(pa.scalar(KINDS["-D"], pa.int8()), rows.num_rows)
        for place in np.unique(at).tolist():
            here = pa.array(at == place)
            partition, bucket = homes.place(place)
            gone = in_partition(pa.Table.from_batches([rows.filter(here)]), self.context.store.schema, partition)
            for batch in gone.combine_chunks().to_batches():
                writer.write(batch, kinds.slice(0, batch.num_rows), np.full(batch.num_rows, bucket, np.int64))

    def _count_taken_numbers(self, messages: Sequence[CommitMessage], latest: Snapshot) -> int:
        """The most sequence numbers that the messages use in a bucket above those of the table."""
        places = {(each.partition, each.bucket): each for each in messages if brings_rows(each)}
        floors = sequence_floors(
            self.context.store, latest, frozenset(place[0] for place in places), self.context.options
        )
        tops = (max(file.max_sequence for file in each.data.new_files) - floors(at) for at, each in places.items())
        return max(0, *tops)

    def _rows(self, message: CommitMessage, *, whole: bool = False) -> Iterator[pa.RecordBatch]:
        """Read the keys of the new rows of a message, or the whole rows."""
        schema = self.context.store.schema
        request = ReadRequest(schema=schema, columns=tuple(schema.names if whole else schema.primary_keys))
        split = new_split(message, self.context.paths)
        for file in message.data.new_files:
            yield from read_data_file(self.context.store, split, file, request)


def _nowhere(keys: Digests) -> Layer:
    return Layer(keys, np.full(len(keys), _NOWHERE, np.int64))


def _follow(message: CommitMessage, homes: _Homes, places: Places) -> PlaceRows:
    """Send rows to the buckets of their keys; drop rows that would leave their partition if the first row wins."""
    own = places.number((message.partition, message.bucket))
    loses = homes.policy is Policy.LOSES

    def place_rows(batch: pa.RecordBatch) -> Ints:
        at = homes.find(homes.digester.digests(batch))
        to = np.full(len(at), own, np.int64)
        for each in np.unique(at[at >= 0]).tolist():
            place = homes.place(each)
            to[at == each] = LEFT_OUT if loses and place[0] != message.partition else places.number(place)
        return to

    return place_rows


# ------------------------------------------------------------------------------------------------ where keys live


class _Homes:
    """The places of keys that commits wrote since a snapshot."""

    def __init__(self, context: TableContext) -> None:
        store, options = context.store, context.options
        self._context, self._store, self._paths = context, store, context.paths
        self.policy = policy_of(options.of(MergeOptions).engine)
        self.digester = digester_for(store)
        self.partitions: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._index = KeyIndex(options.of(CrossPartitionOptions).memory)

    def number(self, place: PartitionBucket) -> int:
        """The number of a place."""
        partition, bucket = place
        if partition not in self._numbers:
            self._numbers[partition] = len(self.partitions)
            self.partitions.append(partition)
        return int(known_place(self._numbers[partition], bucket))

    def place(self, number: int) -> PartitionBucket:
        """The place with a number."""
        partition, bucket = parts_of(np.array([number]))
        return self.partitions[int(partition[0])], int(bucket[0])

    def find(self, keys: Digests) -> Ints:
        """The number of the place of each key; -1 if it is new or has not moved."""
        return self._index.find(keys)

    def look(self, since: int, latest: Snapshot) -> None:
        """Read the commits after a snapshot, up to the newest one.

        Raises:
            CommitConflictError: rows that decided where others go were overwritten.
            FormatError: a file is missing or damaged, or a key is in two buckets.
        """
        for later in commits_since(self._store, since, latest.id):
            replaces = later.kind is CommitKind.OVERWRITE
            if replaces and self.policy is not Policy.MOVES:
                # Rows were sent to the buckets of their keys, or dropped. If the keys are gone, that cannot be undone.
                raise CommitConflictError(
                    "keys that decided where rows go were replaced by another commit",
                    code=KEYS_MOVED,
                    snapshot_id=later.id,
                    hint="write the rows again",
                )
            if later.snapshot is None or replaces:
                self._read_all(latest)
                return
            if later.kind is CommitKind.APPEND and not self._follow(later):
                self._read_all(latest)
                return

    def _read_all(self, latest: Snapshot) -> None:
        keys = MovingKeys(self._context, latest)
        self._index, self.partitions, self.digester = keys.load_places()
        self._numbers = {partition: number for number, partition in enumerate(self.partitions)}

    def _follow(self, later: LaterCommit) -> bool:
        """Apply one commit: a key is in the bucket in which it wrote a row, and not where it wrote a retract row.

        Returns False if all rows have to be read to know whether a retract row removed its key.
        """
        entries = later.read_entries()
        here = pc.and_(pc.equal(entries.column("kind"), ADD), pc.greater_equal(entries.column("bucket"), 0))
        gone: list[Layer] = []
        come: list[Layer] = []
        for split in bucket_splits(entries.filter(here), later.id, self._paths, None):
            keys, kinds = self._versions(split)
            takes = (kinds & _RETRACT).astype(np.bool_)
            if takes.any() and self.policy is not Policy.MOVES:
                return False
            place = self.number((split.partition, split.bucket))
            gone.append(_nowhere(keys[takes]))
            come.append(Layer(keys[~takes], np.full(int((~takes).sum()), place, np.int64)))
        for layer in (*gone, *come):
            self._index.put(layer)
        return True

    def _versions(self, split: Split) -> tuple[Digests, Ints]:
        """The distinct keys of a bucket in digest order, with the row kind of the last version of each."""
        schema = self._store.schema
        fields = (KIND_FIELD, *(schema.field(name) for name in schema.primary_keys))
        request = ReadRequest(schema=schema, columns=tuple(schema.primary_keys), stored=fields)
        digests: list[Digests] = []
        kinds: list[Ints] = []
        for file in sorted(split.files, key=lambda each: each.max_sequence, reverse=True):
            for batch in read_data_file(self._store, split, file, request):
                digests.append(self.digester.digests(batch))
                kinds.append(batch.column(KIND).to_numpy(zero_copy_only=False))
        keys = Digests(
            np.concatenate([NO_KEYS.high, *(each.high for each in digests)]),
            np.concatenate([NO_KEYS.low, *(each.low for each in digests)]),
        )
        firsts, _ = keys.group_keys()
        return keys[firsts], np.concatenate([np.empty(0, np.int8), *kinds])[firsts]
