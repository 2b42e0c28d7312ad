"""Rows of keys that another commit has placed in a partition first: they are put where their keys live now.

The port of the committer for keys that move between partitions, in process. Where the keys live that commits wrote
since the rows were settled, these commits say, in their order; of all other keys nothing has changed. If one of the
commits replaced rows, or has expired, the keys of the newest snapshot are read instead. What then becomes of a row is
what its engine makes of a key that lives elsewhere (`moves`): the key is deleted there, the row goes there, or it is
left out.

Invariant: after the commit a key is in one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitConflictError, InvalidInputError
from tidelake.files.keyed import KIND_FIELD
from tidelake.lsm.engine import KIND
from tidelake.lsm.engines.build import MergeOptions
from tidelake.ops.commit.conflicts import KEYS_MOVED
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.read.keyed import KeyedRequest
from tidelake.ops.scan.plan import delta_manifests, read_changes
from tidelake.ops.scan.split import Split, bucket_splits
from tidelake.ops.write.cross_partition import CrossPartitionOptions, MovingKeys, digester_for
from tidelake.ops.write.key_index import NO_KEYS, Digests, KeyIndex, Layer
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.kinds import KINDS
from tidelake.ops.write.moves import Policy, known_place, parts_of, policy_of
from tidelake.ops.write.redeal import Redealer, brings_rows
from tidelake.ops.write.restore import sequence_floors
from tidelake.ops.write.rewrite import (
    LEFT_OUT,
    Deal,
    Ints,
    Places,
    in_partition,
    join_messages,
    move_rows,
    new_split,
)
from tidelake.ops.write.routing import Place
from tidelake.spec.manifest import ADD
from tidelake.spec.snapshot import CommitKind, Snapshot
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

__all__ = ["KeyReassigner"]

_NOWHERE: Final = -1
_RETRACT: Final = 1
"""The bit that kinds of rows which take something back have in common."""


def _refuse_two_writers(messages: Sequence[CommitMessage]) -> None:
    """Refuse what cannot be compared: where keys live is read from commits, and neither writer has one yet."""
    writers = {each.assigned_by for each in messages if brings_rows(each)} - {None}
    if len(writers) > 1:
        raise InvalidInputError(
            "one commit holds rows of several writers, which may have put one key into different partitions",
            code="several-writers",
            writers=len(writers),
            hint="commit the messages of each writer on their own: a later commit finds the keys of an earlier one",
        )


@dataclass(slots=True)
class KeyReassigner(Redealer):
    """Reassigns rows of keys that move between partitions. Not shared between threads."""

    def reassign(
        self,
        messages: Sequence[CommitMessage],
        latest: Snapshot | None,
        index: object,
        *,
        checked_id: int = 0,
    ) -> tuple[CommitMessage, ...]:
        """The messages, with rows of keys that other commits placed elsewhere where these are now.

        Raises:
            InvalidInputError: the messages are those of several writers; nothing is left behind.
            FormatError: a file is missing or damaged, or a key is in two places; nothing is left behind.
            StorageError: the storage failed; nothing is left behind that it lets us remove.
        """
        del index
        _refuse_two_writers(messages)
        bases = [each.base_snapshot_id or 0 for each in messages if brings_rows(each)]
        since = max(checked_id, min(bases, default=0))
        if latest is None or not bases or since >= latest.id:
            return tuple(messages)
        homes = _Homes(self.store, self.paths, self.options)
        homes.look(since, latest)
        if homes.policy is Policy.MOVES:
            return self._deleted_elsewhere(messages, homes, latest)
        return self._followed(messages, homes, latest)

    # -------------------------------------------------------------------------------------------- rows that go there

    def _followed(
        self, messages: Sequence[CommitMessage], homes: _Homes, latest: Snapshot
    ) -> tuple[CommitMessage, ...]:
        """Rows follow their keys to where these live, or are left out where the first row of a key counts."""
        places = Places()
        deals: dict[int, Deal] = {}
        for position, message in enumerate(messages):
            deal, own = _follow(message, homes, places), places.number((message.partition, message.bucket))
            if brings_rows(message) and any((deal(keys) != own).any() for keys in self._rows(message)):
                deals[position] = deal
        if not deals:
            return tuple(messages)
        copier = self.copier()
        with copier.all_or_nothing():
            reached = frozenset(homes.partitions) | {each.partition for each in messages}
            return move_rows(copier, messages, deals, places, latest, self.options, partitions=reached)

    # -------------------------------------------------------------------------------------------- keys that leave

    def _deleted_elsewhere(
        self, messages: Sequence[CommitMessage], homes: _Homes, latest: Snapshot
    ) -> tuple[CommitMessage, ...]:
        """Keys of rows are deleted where these live, unless the rows go there or delete them there already."""
        missing = self._missing(messages, homes)
        if not len(missing):
            return tuple(messages)
        extra = self._deletions(messages, homes, missing, latest)
        return tuple(join_messages(messages, extra))

    def _missing(self, messages: Sequence[CommitMessage], homes: _Homes) -> Layer:
        """The keys of rows that live in places to which none of the rows goes, and those places."""
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
        firsts, numbers = keys.grouped()
        there = np.zeros(len(firsts), np.bool_)
        there[numbers[reached]] = True
        chosen = firsts[~there]
        return Layer(keys[chosen], at[chosen])

    def _deletions(
        self, messages: Sequence[CommitMessage], homes: _Homes, missing: Layer, latest: Snapshot
    ) -> list[CommitMessage]:
        """Deletions of keys in places."""
        left = KeyIndex(CrossPartitionOptions.parse(self.options).memory)
        left.load([missing])
        options = {**self.options, "write-only": "true"}
        skip = self._taken(messages, latest)
        writer = KeyedTableWriter(self.store, self.paths, options, base_id=latest.id, skip=skip)
        try:
            for message in filter(brings_rows, messages):
                for rows in self._rows(message, whole=True):
                    digests = homes.digester.digests(rows)
                    at = left.find(digests)
                    firsts, _ = digests.grouped()
                    chosen = firsts[at[firsts] >= 0]
                    if len(chosen):
                        left.put(_nowhere(digests[chosen]))
                        self._delete(writer, rows.take(pa.array(chosen)), at[chosen], homes)
            return writer.prepare()
        except BaseException:
            writer.abort()
            raise

    def _delete(self, writer: KeyedTableWriter, rows: pa.RecordBatch, at: Ints, homes: _Homes) -> None:
        kinds = pa.repeat(pa.scalar(KINDS["-D"], pa.int8()), rows.num_rows)
        for place in np.unique(at).tolist():
            here = pa.array(at == place)
            partition, bucket = homes.place(place)
            gone = in_partition(pa.Table.from_batches([rows.filter(here)]), self.store.schema, partition)
            for batch in gone.combine_chunks().to_batches():
                writer.write(batch, kinds.slice(0, batch.num_rows), np.full(batch.num_rows, bucket, np.int64))

    def _taken(self, messages: Sequence[CommitMessage], latest: Snapshot) -> int:
        """Sequence numbers above those of the table that the messages have taken in their buckets."""
        places = {(each.partition, each.bucket): each for each in messages if brings_rows(each)}
        floors = sequence_floors(self.store, latest, frozenset(place[0] for place in places), self.options)
        tops = (max(file.max_sequence for file in each.data.new_files) - floors(at) for at, each in places.items())
        return max(0, *tops)

    def _rows(self, message: CommitMessage, *, whole: bool = False) -> Iterator[pa.RecordBatch]:
        """The keys of the rows that a message brings, or the whole rows."""
        schema = self.store.schema
        request = ReadRequest(schema=schema, columns=tuple(schema.names if whole else schema.primary_keys))
        split = new_split(message, self.paths)
        for file in message.data.new_files:
            yield from read_data_file(self.store, split, file, request)


def _nowhere(keys: Digests) -> Layer:
    return Layer(keys, np.full(len(keys), _NOWHERE, np.int64))


def _follow(message: CommitMessage, homes: _Homes, places: Places) -> Deal:
    """Rows go where their keys live; those that would have to leave their partition lose if the first row counts."""
    own = places.number((message.partition, message.bucket))
    loses = homes.policy is Policy.LOSES

    def deal(batch: pa.RecordBatch) -> Ints:
        at = homes.find(homes.digester.digests(batch))
        to = np.full(len(at), own, np.int64)
        for each in np.unique(at[at >= 0]).tolist():
            place = homes.place(each)
            to[at == each] = LEFT_OUT if loses and place[0] != message.partition else places.number(place)
        return to

    return deal


# ------------------------------------------------------------------------------------------------ where keys live


class _Homes:
    """Where keys live that commits wrote since a snapshot."""

    def __init__(self, store: TableStore, paths: DataPaths, options: Mapping[str, str]) -> None:
        self._store, self._paths, self._options = store, paths, options
        self.policy = policy_of(MergeOptions.parse(options).engine)
        self.digester = digester_for(store)
        self.partitions: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._index = KeyIndex(CrossPartitionOptions.parse(options).memory)

    def number(self, place: Place) -> int:
        """The number of a place."""
        partition, bucket = place
        if partition not in self._numbers:
            self._numbers[partition] = len(self.partitions)
            self.partitions.append(partition)
        return int(known_place(self._numbers[partition], bucket))

    def place(self, number: int) -> Place:
        """The place with a number."""
        partition, bucket = parts_of(np.array([number]))
        return self.partitions[int(partition[0])], int(bucket[0])

    def find(self, keys: Digests) -> Ints:
        """The number of the place of each key; -1 where it has none, or has not moved."""
        return self._index.find(keys)

    def look(self, since: int, latest: Snapshot) -> None:
        """Look at the commits after a snapshot, up to the newest one.

        Raises:
            CommitConflictError: rows were overwritten that decided where others go.
            FormatError: a file is missing or damaged, or a key is in two places.
        """
        for number in range(since + 1, latest.id + 1):
            snapshot = self._store.snapshots.find(number)
            replaces = snapshot is not None and snapshot.commit_kind is CommitKind.OVERWRITE
            if replaces and self.policy is not Policy.MOVES:
                # Rows were sent to where their keys lived, or left out: where the keys are gone that cannot be undone.
                raise CommitConflictError(
                    "keys that decided where rows go were replaced by another commit",
                    code=KEYS_MOVED,
                    snapshot_id=number,
                    hint="write the rows again",
                )
            if snapshot is None or replaces:
                self._read_all(latest)
                return
            if snapshot.commit_kind is CommitKind.APPEND and not self._follow(snapshot):
                self._read_all(latest)
                return

    def _read_all(self, latest: Snapshot) -> None:
        keys = MovingKeys(self._store, self._paths, self._options, latest)
        self._index, self.partitions, self.digester = keys.loaded()
        self._numbers = {partition: number for number, partition in enumerate(self.partitions)}

    def _follow(self, snapshot: Snapshot) -> bool:
        """Take in what one commit wrote: a key is where it wrote a row of it, and not where it took one back.

        False where only a look at all rows shows whether a row that takes something back removed its key.
        """
        metas = delta_manifests(self._store.manifests, snapshot)
        entries = read_changes(self._store.manifests, metas)
        here = pc.and_(pc.equal(entries.column("kind"), ADD), pc.greater_equal(entries.column("bucket"), 0))
        gone: list[Layer] = []
        come: list[Layer] = []
        for split in bucket_splits(entries.filter(here), snapshot.id, self._paths, None):
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
        """The keys of a bucket in the order of their digests, with the kind of the last version of each."""
        schema = self._store.schema
        fields = (KIND_FIELD, *(schema.field(name) for name in schema.primary_keys))
        request = KeyedRequest(schema=schema, columns=tuple(schema.primary_keys), wanted=fields)
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
        firsts, _ = keys.grouped()
        return keys[firsts], np.concatenate([np.empty(0, np.int8), *kinds])[firsts]
