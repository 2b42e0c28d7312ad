"""Keys that move between partitions: a primary key without all partition columns, and dynamic buckets.

A writer knows the partition and bucket of every key of the table (`key_index`): it reads the keys of all live rows
once, which is called the bootstrap. For each batch `moves` decides where its rows go. The index is kept from round to
round as long as no other job writes; if one did, the next round starts with a new bootstrap. Rows that were just read
from the table (`relocate`) do not need the index.

Invariant: no commit puts a key into two partitions or buckets. If another job has added one of our keys since the rows
were planned, they are sent to its bucket before they are published (`reassign_keys`). An overwrite or a row-level
change is refused instead (`KeysUnmoved`), and has to be planned again on the newest snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitConflictError, FormatError, InvalidInputError
from tidelake.io.clock import local_time_ms
from tidelake.lsm.engine import KIND
from tidelake.lsm.engines.build import MergeEngine, MergeOptions
from tidelake.ops.commit.conflicts import KEYS_MOVED
from tidelake.ops.commit.guards import Proposal
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.commit.since import LaterCommit, commits_since
from tidelake.ops.context import TableContext
from tidelake.ops.placement.dynamic_buckets import Assigner, DynamicBucketOptions, place_new
from tidelake.ops.placement.key_index import (
    KEY_BYTES,
    Digester,
    Digests,
    KeyIndex,
    Layer,
    sorted_layer,
    spill_layers,
)
from tidelake.ops.placement.moves import Moves, known_place, parts_of, plan_moves, policy_of
from tidelake.ops.placement.routing import partitions_of
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.read.keyed import Merging, read_keyed_split
from tidelake.ops.read.rows import count_rows
from tidelake.ops.scan.deletion_vectors import snapshot_vectors
from tidelake.ops.scan.keyed import keyed_splits
from tidelake.ops.scan.partitions import PartitionFilter, PartitionSet
from tidelake.ops.scan.plan import EVERY_PARTITION, data_manifests, live_entries
from tidelake.ops.scan.planner import refuse_unreadable
from tidelake.ops.scan.split import Split, bucket_splits
from tidelake.options import Affects, Bytes, DurationMs, OptionGroup, at_least, option
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.manifests.manifest import ADD
from tidelake.spec.rows.binary_hash import hash_rows
from tidelake.spec.rows.binary_row import decode_rows
from tidelake.spec.rows.bucket_function import PartitionBucket, bucket_default
from tidelake.spec.rows.row_kind import KINDS
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import with_nullable
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

__all__ = [
    "CrossPartitionOptions",
    "KeysUnmoved",
    "MovingKeys",
    "PlacedKeys",
    "key_splits",
    "owners_of",
    "read_keys",
    "refuse_keys_elsewhere",
]

Ints = np.ndarray[Any, Any]
PlacedKeys = tuple[bytes, int, pa.RecordBatch]
"""Keys with the partition and bucket that hold them."""
_HAND_KEYS: Final = 1 << 20
"""Keys that a bootstrap sorts at a time."""
_HARMLESS: Final = frozenset({CommitKind.COMPACT, CommitKind.ANALYZE})
_WRITE: Final = (Affects.WRITE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossPartitionOptions(OptionGroup):
    """What a writer knows about keys that move between partitions."""

    index_ttl_ms: DurationMs | None = option(
        "cross-partition-upsert.index-ttl",
        None,
        doc="Forget keys whose files are all older; one that comes back then may be in two partitions.",
        affects=_WRITE,
        check=at_least(1),
    )
    parallelism: int = option(
        "cross-partition-upsert.bootstrap-parallelism",
        10,
        doc="Splits whose keys are read at a time when a writer starts, at most as many as the lake has threads.",
        affects=_WRITE,
        check=at_least(1),
    )
    memory: Bytes = option(
        "lookup.cache-max-memory-size",
        Bytes(256 << 20),
        doc="Memory for keys that are looked up; beyond it they are kept on local disk.",
        affects=_WRITE,
        check=at_least(1),
    )


def digester_for(store: TableStore) -> Digester:
    """A digester of whole primary keys, partition columns included."""
    names = store.schema.primary_keys
    return Digester.of(names, [store.schema.field(name).type for name in names], store.env.ids)


# ------------------------------------------------------------------------------------------------ one writer


class MovingKeys:
    """The partition and bucket of every key, as one writer knows them. Not shared between threads."""

    def __init__(
        self,
        context: TableContext,
        snapshot: Snapshot | None,
        *,
        without: PartitionFilter | None = None,
        assigner: Assigner | None = None,
        known: Iterable[PlacedKeys] | None = None,
    ) -> None:
        """Read the options; keys are read when the first rows come.

        Args:
            context: The table.
            snapshot: The snapshot to start from; None for an empty table or an overwrite of all of it.
            without: Partitions whose keys are ignored.
            assigner: Says which buckets this writer fills, if several share the work; then only keys of one owner
                (`owners_of`) may come.
            known: The keys of the snapshot, at least those of this owner, if they were read elsewhere.

        Raises:
            InvalidInputError: an option has a wrong value, or two of them would lead to one key in two partitions.
        """
        options = context.options
        merge = options.of(MergeOptions)
        self._policy = policy_of(merge.engine)
        if merge.ignore_delete and merge.engine is MergeEngine.DEDUPLICATE:
            raise InvalidInputError(
                "a key could not leave its partition, because deletions are ignored",
                option="ignore-delete",
                hint="unset the option, or put the partition columns into the primary key",
            )
        self._context, self._store, self._paths = context, context.store, context.paths
        self._options = options.of(CrossPartitionOptions)
        self._buckets = options.of(DynamicBucketOptions)
        self._snapshot, self._without, self._known = snapshot, without, known
        self._assigner = assigner or Assigner()
        self._digester = digester_for(self._store)
        self._index = KeyIndex(self._options.memory)
        self._partitions: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._counts: dict[int, dict[int, int]] = {}
        self._gone: dict[tuple[int, int], int] = {}
        """The number of keys that left buckets whose key counts are not loaded yet."""
        self._loaded = False
        self._prepared: list[tuple[int | None, frozenset[str]]] = []

    # -------------------------------------------------------------------------------------------- rows

    def settle(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Ints, Ints]:
        """The rows to write for new rows, with the number of the partition and the bucket of each.

        Raises:
            InvalidInputError: no bucket is left, or a key is null.
            FormatError: a file is missing or damaged, or a key is in two buckets.
        """
        self._refuse_null_keys(rows)
        self.load()
        numbers, names = partitions_of(rows, self._store.schema)
        partitions = np.array([self._number(name) for name in names], np.int64)[numbers]
        digests = self._digester.digests(rows)
        firsts, keys = digests.group_keys()
        distinct = digests[firsts]
        counts: dict[int, dict[int, int]] = {}
        moves = plan_moves(
            keys,
            self._index.find(distinct),
            partitions,
            self._policy,
            lambda fresh, where: self._allocate_buckets(digests[fresh], where, counts),
        )
        self._index.put(Layer(distinct, moves.places))
        self._counts |= counts
        self._leave(moves.left)
        return self._build_rows(rows, moves), moves.partitions, moves.buckets

    def relocate(self, rows: pa.RecordBatch, home: PartitionBucket) -> tuple[pa.RecordBatch, Ints]:
        """The rows to write for new versions of rows that were found in one bucket, and the bucket of each.

        Their old bucket is known, so the only thing to look up is how full the buckets of the new partitions are.

        Raises:
            InvalidInputError: no bucket is left.
            FormatError: a file is missing or damaged, or a key was found in two buckets.
        """
        place = known_place(np.int64(self._number(home[0])), np.int64(home[1]))
        digests = self._digester.digests(rows)
        self._meet(digests, place)
        numbers, names = partitions_of(rows, self._store.schema)
        for name in names:
            if name != home[0] and self._number(name) not in self._counts:
                number, filled = self._number(name), self._count_keys(name)
                self._counts[number] = {each: keys - self._gone.get((number, each), 0) for each, keys in filled.items()}
        counts: dict[int, dict[int, int]] = {}
        moves = plan_moves(
            np.arange(rows.num_rows),
            np.full(rows.num_rows, place),
            np.array([self._number(name) for name in names], np.int64)[numbers],
            self._policy,
            lambda fresh, where: self._allocate_buckets(digests[fresh], where, counts),
        )
        self._counts |= counts
        self._leave(moves.left)
        return self._build_rows(rows, moves), moves.buckets

    def _meet(self, keys: Digests, place: np.int64) -> None:
        """Remember keys that were found in a bucket; none of them may have been found before."""
        before = self._index.find(keys)
        again = np.flatnonzero(before >= 0)
        if len(again):
            first = again[:1]
            raise self._duplicate(Layer(keys[first], np.append(before[first], place)))
        self._index.put(sorted_layer(keys, np.full(len(keys), place)))

    def _count_keys(self, partition: bytes) -> dict[int, int]:
        """Count the keys in the buckets of a partition, from the metadata where that is enough."""
        if self._snapshot is None:
            return {}
        only = PartitionSet(frozenset([partition]), tuple(self._store.schema.partition_types))
        counts: dict[int, int] = {}
        for split in key_splits(self._context, self._snapshot, only=only):
            keys = count_rows(self._context, [split])
            counts[split.bucket] = counts.get(split.bucket, 0) + keys
        # A writer that has read all keys does not know empty buckets. Without them both kinds of writers choose alike.
        return {bucket: keys for bucket, keys in counts.items() if keys}

    def knows_any(self, messages: Sequence[CommitMessage]) -> bool:
        """Whether a key of files that were written is in the table.

        Raises:
            FormatError: a file is missing or damaged, or a key is in two buckets.
        """
        self.load()
        splits = (_new_files(message, self._paths) for message in messages)
        return any((self._index.find(keys) >= 0).any() for keys in _keys_of(self._store, splits, self._digester))

    def load_places(self) -> tuple[KeyIndex, list[bytes], Digester]:
        """Load the index of the keys' places by number (`known_place`), the partitions, and the digester of keys.

        Raises:
            FormatError: a file is missing or damaged, or a key is in two buckets.
        """
        self.load()
        return self._index, self._partitions, self._digester

    @property
    def partitions(self) -> Sequence[bytes]:
        """The partitions by number."""
        return self._partitions

    def _refuse_null_keys(self, rows: pa.RecordBatch) -> None:
        for name in self._store.schema.primary_keys:
            if rows.column(name).null_count:
                raise InvalidInputError("primary key is null", column=name, hint="give every row a key")

    def _number(self, partition: bytes) -> int:
        found = self._numbers.get(partition)
        if found is None:
            found = self._numbers[partition] = len(self._partitions)
            self._partitions.append(partition)
        return found

    def _allocate_buckets(self, keys: Digests, partitions: Ints, counts: dict[int, dict[int, int]]) -> Ints:
        """Choose buckets for new keys, partition by partition; `counts` gets the new key counts of the buckets."""
        buckets = np.empty(len(keys), np.int64)
        order = np.argsort(partitions, kind="stable")
        cuts = np.flatnonzero(np.diff(partitions[order])) + 1
        for here in np.split(order, cuts):
            if not len(here):
                continue
            number = int(partitions[here[0]])
            hashes = keys.low[here].astype(np.uint32).view(np.int32)
            known = self._own(self._counts.get(number, {}))
            buckets[here], counts[number] = place_new(hashes, known, self._assigner, self._buckets)
        return buckets

    def _own(self, counts: Mapping[int, int]) -> dict[int, int]:
        """The buckets that this writer fills; of the keys of other buckets it knows only a part."""
        mine = self._assigner.owned_buckets(max(self._buckets.bucket_max, *counts, 0))
        return {bucket: count for bucket, count in counts.items() if bucket in mine}

    def _leave(self, places: Ints) -> None:
        """Subtract keys that have left their buckets, which then have room again."""
        numbers, counts = np.unique(places, return_counts=True)
        partitions, buckets = parts_of(numbers)
        for partition, bucket, count in zip(partitions.tolist(), buckets.tolist(), counts.tolist(), strict=True):
            there = self._counts.get(partition)
            if there is None:
                self._gone[partition, bucket] = self._gone.get((partition, bucket), 0) + count
            elif bucket in there:
                there[bucket] = max(0, there[bucket] - count)

    def _build_rows(self, rows: pa.RecordBatch, moves: Moves) -> pa.RecordBatch:
        """Build the rows to write, with the partition columns of their new partition and their row kind there."""
        schema = self._store.schema
        taken = rows.take(pa.array(moves.rows))
        types = [with_nullable(dtype, True) for dtype in schema.partition_types]
        values = decode_rows(pa.array(self._partitions, pa.large_binary()), types)
        where = pa.array(moves.partitions)
        columns = dict(zip(taken.schema.names, taken.columns, strict=True))
        for name, column in zip(schema.partition_keys, values, strict=True):
            columns[name] = column.take(where).cast(taken.schema.field(name).type)
        kinds = np.where(moves.deletes, KINDS["-D"], columns[KIND].to_numpy()).astype(np.int8)
        columns[KIND] = pa.array(kinds)
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=taken.schema)

    # -------------------------------------------------------------------------------------------- the bootstrap

    def load(self) -> None:
        """Read the keys of the table, if they are not loaded yet. Without this call the first rows wait for it.

        Raises:
            FormatError: a file is missing or damaged, or a key is in two buckets.
        """
        if self._loaded:
            return
        twice = self._index.load(self._read() if self._known is None else list(self._layers(self._known, 1)))
        if len(twice):
            raise self._duplicate(twice)
        for place, count in self._index.counts().items():
            partition, bucket = parts_of(np.array([place]))
            self._counts.setdefault(int(partition[0]), {})[int(bucket[0])] = count
        self._loaded = True

    def _read(self) -> list[Layer]:
        """The keys of all live rows, several splits at a time."""
        if self._snapshot is None:
            return []
        splits = key_splits(self._context, self._snapshot, self._without)
        for split in splits:  # number the partitions before several threads do
            self._number(split.partition)
        width = min(self._options.parallelism, max(len(splits), 1))
        shares = [splits[start::width] for start in range(width)]
        loaded = self._store.env.executor.map(
            lambda share: list(self._layers(read_keys(self._context, share), width)), shares
        )
        return [layer for layers in loaded for layer in layers]

    def _layers(self, keys: Iterable[PlacedKeys], readers: int) -> Iterator[Layer]:
        """Keys as sorted layers; beyond this reader's part of the memory they are kept on local disk."""
        hand: list[tuple[Digests, Ints]] = []
        held = 0
        room = self._options.memory // readers
        for partition, bucket, rows in keys:
            place = known_place(np.int64(self._number(partition)), np.int64(bucket))
            digests = self._digester.digests(rows)
            hand.append((digests, np.full(len(digests), place, np.int64)))
            held += len(digests)
            if held >= _HAND_KEYS:
                layer, hand, held = _in_order(hand), [], 0
                room -= len(layer) * KEY_BYTES
                yield layer if room > 0 else spill_layers([layer])
        if hand:
            yield _in_order(hand)

    def _duplicate(self, twice: Layer) -> FormatError:
        partitions, buckets = parts_of(twice.places[:2])
        first, second = (
            self._paths.bucket(self._partitions[partition], bucket)
            for partition, bucket in zip(partitions.tolist(), buckets.tolist(), strict=True)
        )
        return FormatError(
            "primary key is in two buckets of the table",
            code="key-twice",
            table=self._store.env.io.root,
            first=first,
            second=second,
            keys=len(np.unique(twice.keys.high)),
            hint="several jobs wrote at once, or an index TTL forgot keys: overwrite the table with one row per key",
        )

    # -------------------------------------------------------------------------------------------- rounds

    def note_prepared(self, messages: Sequence[CommitMessage], identifier: int | None) -> None:
        """Note the files of messages that will be committed, to recognise their commit as our own."""
        names = frozenset(file.file_name for message in messages for file in message.data.new_files)
        if names:
            self._prepared.append((identifier, names))

    def follows(self, latest: Snapshot | None, user: str | None) -> bool:
        """Whether the index is still right at a newer snapshot, because no other job wrote in between.

        Args:
            latest: The newest snapshot.
            user: The commit user of this writer, if it is known; else its commits are recognised by their files.
        """
        base_id = self._snapshot.id if self._snapshot else 0
        foreign = latest is None and self._snapshot is not None
        for later in commits_since(self._store, base_id, latest.id if latest else 0):
            foreign |= later.snapshot is None or not (
                later.kind in _HARMLESS or self._ours(later, later.snapshot, user)
            )
        if not foreign:
            self._snapshot = latest
        return not foreign

    def _ours(self, later: LaterCommit, snapshot: Snapshot, user: str | None) -> bool:
        """Whether a commit is one that was prepared here; if so, its note is dropped."""
        if user is not None and snapshot.commit_user == user:
            done = snapshot.commit_identifier
            self._prepared = [each for each in self._prepared if each[0] is not None and each[0] > done]
            return True
        entries = later.read_entries(columns=("kind", "file_name"))
        names = set(entries.column("file_name").to_pylist())
        added = pc.all(pc.equal(entries.column("kind"), ADD)).as_py()
        ours = bool(names) and bool(added) and any(names <= held for _, held in self._prepared)
        if ours:
            self._prepared = [each for each in self._prepared if not names & each[1]]
        return ours


def key_splits(
    context: TableContext,
    snapshot: Snapshot,
    without: PartitionFilter | None = None,
    only: PartitionFilter = EVERY_PARTITION,
) -> list[Split]:
    """All live files, level 0 included, except ignored partitions and files older than the TTL of the index.

    Raises:
        FormatError: the metadata of the table is damaged.
    """
    store = context.store
    metas = data_manifests(store.manifests, snapshot)
    entries = live_entries(store.manifests, metas, partitions=only)
    entries = entries.filter(pc.greater_equal(entries.column("bucket"), 0))
    if without is not None:
        entries = entries.filter(pc.invert(without.mask(entries.column("partition"))))
    refuse_unreadable(store, snapshot, entries)
    vectors = snapshot_vectors(store.manifests, snapshot)
    splits = keyed_splits(context, entries, snapshot.id, store.schema, vectors)
    ttl = context.options.of(CrossPartitionOptions).index_ttl_ms
    oldest = None if ttl is None else local_time_ms(store.env.clock) - ttl
    return [split for split in splits if oldest is None or not _all_older(split, oldest)]


def _all_older(split: Split, time_ms: int) -> bool:
    return all(file.creation_time_ms is not None and file.creation_time_ms < time_ms for file in split.files)


def read_keys(context: TableContext, splits: Iterable[Split]) -> Iterator[PlacedKeys]:
    """The keys of the live rows of splits, with their partition and bucket.

    Raises:
        FormatError: a file is missing or damaged.
    """
    store, schema = context.store, context.schema
    request = ReadRequest(schema=schema, columns=tuple(schema.primary_keys))
    merging = Merging(schema, context.options)
    for split in splits:
        for rows in read_keyed_split(store, split, request, merging):
            for batch in rows.to_batches():
                yield split.partition, split.bucket, batch


def _in_order(hand: Sequence[tuple[Digests, Ints]]) -> Layer:
    keys = Digests(
        np.concatenate([digests.high for digests, _ in hand]), np.concatenate([digests.low for digests, _ in hand])
    )
    return sorted_layer(keys, np.concatenate([places for _, places in hand]))


def _keys_of(store: TableStore, splits: Iterable[Split], digester: Digester) -> Iterator[Digests]:
    """The keys of all versions in files."""
    request = ReadRequest(schema=store.schema, columns=tuple(store.schema.primary_keys))
    for split in splits:
        for file in split.files:
            for batch in read_data_file(store, split, file, request):
                yield digester.digests(batch)


def _new_files(message: CommitMessage, paths: DataPaths) -> Split:
    return Split(
        snapshot_id=0,
        partition=message.partition,
        bucket=message.bucket,
        bucket_path=paths.bucket(message.partition, message.bucket),
        total_buckets=-1,
        files=message.data.new_files,
    )


def refuse_keys_elsewhere(
    context: TableContext,
    messages: Sequence[CommitMessage],
    replaced: PartitionFilter,
) -> None:
    """Refuse an overwrite of some partitions with keys that are in other partitions, because they would be in both.

    Raises:
        InvalidInputError: there is such a key.
        FormatError: a file is missing or damaged, or a key is in two buckets.
    """
    base = min((each.base_snapshot_id or 0 for each in messages), default=0)
    if base and MovingKeys(context, context.store.snapshots.get(base), without=replaced).knows_any(messages):
        raise InvalidInputError(
            "overwrite of a partition has a key that is in another partition",
            code="key-elsewhere",
            table=context.store.env.io.root,
            hint="delete the key there first, overwrite that partition too, or upsert the rows with mode=append",
        )


def owners_of(rows: pa.RecordBatch, schema: Schema, assigner: Assigner) -> Ints:
    """The task that owns each row, by its whole primary key."""
    names = schema.primary_keys
    hashes = hash_rows([rows.column(name) for name in names], [schema.field(name).type for name in names])
    return bucket_default(hashes, assigner.channels)


# ------------------------------------------------------------------------------------------------ others in between


@dataclass(frozen=True, slots=True)
class KeysUnmoved:
    """Refuses to publish rows whose keys another commit wrote since their partitions and buckets were looked up.

    Commits of other keys do no harm, nor do compactions. An overwrite may have removed any key.
    """

    store: TableStore
    paths: DataPaths
    user: str = ""
    """The commit user whose own commits do no harm."""
    since: int | None = None
    """The snapshot that the rows depend on, if it is older than the one in which their buckets were looked up."""

    def check(self, proposal: Proposal) -> None:
        """Check the commits since the messages were planned.

        Raises:
            CommitConflictError: one of them wrote the same keys, or has expired and cannot be checked.
        """
        written = [each for each in proposal.messages if each.data.new_files and each.base_snapshot_id is not None]
        if not written:
            return
        digester = digester_for(self.store)
        bases = [each.base_snapshot_id or 0 for each in written]
        base = min(bases if self.since is None else (self.since, *bases))
        for later in commits_since(self.store, base, proposal.latest.id):
            if later.snapshot is None:
                raise self._refusal(later.id)
            if later.is_by(self.user) or later.kind in _HARMLESS:
                continue
            if later.kind is not CommitKind.APPEND or self._meets(later, written, digester):
                raise self._refusal(later.id)

    def _meets(self, later: LaterCommit, written: Sequence[CommitMessage], digester: Digester) -> bool:
        entries = later.read_entries()
        real = entries.filter(pc.greater_equal(entries.column("bucket"), 0))
        theirs = bucket_splits(real, later.id, self.paths, None)  # deleted files count too
        layers = [_in_order([(keys, np.zeros(len(keys), np.int64))]) for keys in _keys_of(self.store, theirs, digester)]
        if not layers:
            return False
        index = KeyIndex(Bytes(256 << 20))
        index.load(layers)
        ours = (_new_files(message, self.paths) for message in written)
        return any((index.find(keys) >= 0).any() for keys in _keys_of(self.store, ours, digester))

    def _refusal(self, snapshot_id: int) -> CommitConflictError:
        return CommitConflictError(
            "another commit wrote the same keys first, and they may be in other partitions now",
            code=KEYS_MOVED,
            table=self.store.env.io.root,
            snapshot_id=snapshot_id,
            hint="write the rows again on the newest snapshot",
        )
