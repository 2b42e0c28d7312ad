"""Dynamic buckets: which bucket a key goes to when buckets are opened as they fill up.

A partition's index maps the 32-bit hash of every key it holds to a bucket. A known hash keeps its bucket. A new one
gets the first bucket that is not full, or a new bucket, or, if no more may be opened, one of the existing buckets. Two
keys with one hash share a bucket: the index counts distinct hashes, not rows.

Several writers share the work without communicating: `Assigner` says which writer owns which hashes and buckets.
Planning is pure; `DynamicBuckets` keeps the partitions of a writer in one process, reads index files and writes new
ones.

Invariant: a hash never changes its bucket, a bucket gets hashes of its owner only, and a batch gets the same buckets as
its rows would one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.cleanup import undo_on_error
from tidelake.errors import FormatError, InvalidInputError, NotFoundError, StorageError, UnsupportedError
from tidelake.index.hash_index import HASH_BYTES, Hashes, decode_hash_index, encode_hash_index
from tidelake.options import Affects, Int64, OptionGroup, at_least, option, same_option
from tidelake.spec.manifests.index_manifest import HASH, IndexEntry, IndexFile
from tidelake.spec.rows.binary_hash import hash_bytes
from tidelake.spec.rows.binary_row_layout import ARITY_PREFIX_SIZE
from tidelake.spec.rows.bucket_function import PartitionBucket, bucket_default
from tidelake.store.paths import PathOptions
from tidelake.store.table_store import TableStore

__all__ = [
    "BUCKET_MAX",
    "Assigner",
    "BucketIndex",
    "DynamicBucketOptions",
    "DynamicBuckets",
    "PartitionIndex",
    "assign",
    "assigners_for",
    "hash_entries",
    "index_state",
    "load_hashes",
    "load_index",
    "merge_hashes",
    "place_new",
    "remove_hash_files",
    "write_indexes",
]

Buckets = npt.NDArray[np.int32]

BUCKET_MAX: Final = 32766
"""The greatest dynamic bucket: the format keeps bucket numbers in 16 bits."""

_WRITE: Final = (Affects.WRITE,)
_INDEX_READ_LIMIT: Final = 1 << 32
_SIGN: Final = np.uint32(1 << 31)
_NO_HASHES: Final[Hashes] = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicBucketOptions(OptionGroup):
    """The size and the number of dynamic buckets."""

    target_rows: Int64 = option(
        "dynamic-bucket.target-row-num",
        Int64(2_000_000),
        doc="Distinct key hashes of a bucket that is full.",
        affects=_WRITE,
        check=at_least(1),
    )
    initial_buckets: int | None = option(
        "dynamic-bucket.initial-buckets",
        None,
        doc="Buckets that a new partition starts with.",
        affects=_WRITE,
        immutable=True,
        check=at_least(1),
    )
    max_buckets: int = option(
        "dynamic-bucket.max-buckets",
        -1,
        doc="Buckets of a partition at most; -1: no limit.",
        affects=_WRITE,
        check=lambda count: None if count == -1 or count > 0 else "-1 or at least 1",
    )
    assigner_parallelism: int | None = option(
        "dynamic-bucket.assigner-parallelism", None, doc="Tasks that assign buckets.", affects=_WRITE, check=at_least(1)
    )

    index_beside_data: bool = same_option(PathOptions, "index_beside_data")

    @property
    def bucket_max(self) -> int:
        """The greatest bucket that may be opened."""
        return BUCKET_MAX if self.max_buckets < 0 else min(self.max_buckets - 1, BUCKET_MAX)


# ------------------------------------------------------------------------------------------------ who assigns what


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigner:
    """One of the `assigners` that share the work; it runs on one of `channels` tasks."""

    id: int = 0
    assigners: int = 1
    channels: int = 1

    def owned_hashes(self, partition_hash: int, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Which hashes of a partition this assigner places."""
        mine: npt.NDArray[np.bool_] = self.owners(partition_hash, hashes) == self.id
        return mine

    def owners(self, partition_hash: int, hashes: Hashes) -> Buckets:
        """The channel that places each hash of a partition."""
        start = abs(partition_hash) % self.channels
        return (bucket_default(hashes, self.assigners) + start) % np.int32(self.channels)

    def owned_buckets(self, bucket_max: int) -> range:
        """The buckets, up to the greatest one, that only this assigner opens and fills."""
        return range(self.id % self.assigners, bucket_max + 1, self.assigners)


def assigners_for(options: DynamicBucketOptions, parallelism: int | None = None) -> tuple[Assigner, ...]:
    """The assigners of a job.

    Args:
        options: The table's options.
        parallelism: Tasks of the job. None for a job in one process: then there are as many assigners as buckets to
            start with, one after the other.

    Raises:
        InvalidInputError: the number of tasks is less than 1.
    """
    wanted = options.assigner_parallelism or parallelism or options.initial_buckets or 1
    if wanted < 1:
        raise InvalidInputError("dynamic buckets need at least one task", parallelism=wanted)
    channels = min(wanted, options.bucket_max + 1)
    count = min(options.initial_buckets or channels, channels)
    return tuple(Assigner(id=channel, assigners=count, channels=channels) for channel in range(channels))


# ------------------------------------------------------------------------------------------------ one partition


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """Distinct hashes in ascending order, and the bucket of each."""

    hashes: Hashes
    buckets: Buckets

    def __len__(self) -> int:
        return len(self.hashes)


@dataclass(frozen=True, slots=True, eq=False)
class PartitionIndex:
    """The buckets of the hashes of a partition, as one assigner knows them. A change makes a new value.

    New hashes are kept in layers that grow by doubling. A single sorted array would be copied for every small batch.
    """

    layers: tuple[_Layer, ...] = ()
    counts: Mapping[int, int] = field(default_factory=dict)
    """Distinct hashes of every bucket of this assigner that exists."""

    def __len__(self) -> int:
        return sum(len(layer) for layer in self.layers)

    def hashes_of(self, bucket: int) -> Hashes:
        """The known hashes of one bucket."""
        return np.concatenate([_NO_HASHES, *(layer.hashes[layer.buckets == bucket] for layer in self.layers)])

    def find(self, hashes: Hashes) -> Buckets:
        """The bucket of each hash; -1 if the hash is unknown."""
        found: Buckets = np.full(len(hashes), -1, np.int32)
        for layer in self.layers:
            places = np.minimum(np.searchsorted(layer.hashes, hashes), len(layer) - 1)
            hit = layer.hashes[places] == hashes
            found[hit] = layer.buckets[places[hit]]
        return found

    def add_hashes(self, hashes: Hashes, buckets: Buckets, counts: Mapping[int, int]) -> PartitionIndex:
        """The index with further hashes, which are new and in ascending order."""
        layers, top = list(self.layers), _Layer(hashes, buckets)
        while layers and len(layers[-1]) <= 2 * len(top):
            top = _join_layers(layers.pop(), top)
        return PartitionIndex((*layers, top), counts)


def _join_layers(*layers: _Layer) -> _Layer:
    """Join layers that have no hash in common."""
    hashes = np.concatenate([layer.hashes for layer in layers])
    buckets = np.concatenate([layer.buckets for layer in layers])
    hashes, payload = _sorted_pairs(hashes, buckets.view(np.uint32))
    return _Layer(hashes, payload.view(np.int32))


def _sorted_pairs(hashes: Hashes, payload: npt.NDArray[np.uint32]) -> tuple[Hashes, npt.NDArray[np.uint32]]:
    """Sort by hash, then payload. Sorting one 64-bit number per pair is several times as fast as an argsort."""
    high = (hashes.view(np.uint32) ^ _SIGN).astype(np.uint64) << np.uint64(32)
    packed = np.sort(high | payload)
    low: npt.NDArray[np.uint32] = packed.astype(np.uint32)
    return ((packed >> np.uint64(32)).astype(np.uint32) ^ _SIGN).view(np.int32), low


def load_index(
    buckets: Mapping[int, Hashes], assigner: Assigner, partition_hash: int, *, bucket_max: int = BUCKET_MAX
) -> PartitionIndex:
    """What one assigner must know about a partition: the buckets of its hashes, and how full its buckets are.

    Args:
        buckets: The hashes of every bucket of the partition, each once.
        assigner: Whose index it is.
        partition_hash: The hash code of the partition.
        bucket_max: The greatest bucket that may be opened.

    Raises:
        FormatError: one hash is in two buckets, because two jobs wrote at the same time.
    """
    mine = assigner.owned_buckets(max(bucket_max, *buckets, 0))
    counts = {bucket: len(hashes) for bucket, hashes in sorted(buckets.items()) if bucket in mine}
    chosen = {bucket: hashes[assigner.owned_hashes(partition_hash, hashes)] for bucket, hashes in buckets.items()}
    if not any(map(len, chosen.values())):
        return PartitionIndex((), counts)
    parts = [_Layer(part, np.full(len(part), bucket, np.int32)) for bucket, part in chosen.items()]
    layer = _join_layers(*parts)
    twice = np.flatnonzero(layer.hashes[1:] == layer.hashes[:-1])
    if len(twice):
        first = int(twice[0])
        raise FormatError(
            "key hash is in two dynamic buckets",
            hash=layer.hashes[first],
            first=layer.buckets[first],
            second=layer.buckets[first + 1],
            hint="two jobs wrote to the partition at the same time: overwrite it, and write with one job",
        )
    return PartitionIndex((layer,), counts)


def assign(
    index: PartitionIndex, hashes: Hashes, assigner: Assigner, options: DynamicBucketOptions
) -> tuple[Buckets, PartitionIndex]:
    """The bucket of every row of a batch of one partition, and the index with the new hashes.

    Args:
        index: The partition as this assigner knows it; an empty one for a first write or an overwrite.
        hashes: The hash code of each row's trimmed primary key; this assigner owns all of them.
        assigner: The assigner.
        options: The table's options.

    Raises:
        InvalidInputError: all buckets are full, and `dynamic-bucket.max-buckets` does not allow to fill them further.
    """
    if len(hashes) == 0:
        return np.empty(0, np.int32), index
    ordered, rows = _sorted_pairs(hashes, np.arange(len(hashes), dtype=np.uint32))
    starts = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    distinct = ordered[starts]
    groups = np.empty(len(hashes), np.intp)
    groups[rows] = np.cumsum(starts) - 1
    buckets = index.find(distinct)
    unknown = buckets == -1
    if unknown.any():
        # New hashes are placed in the order of their rows, as if the rows came one by one.
        is_first = np.zeros(len(hashes), np.bool_)
        is_first[rows[starts]] = unknown
        fresh = groups[is_first]
        buckets[fresh], counts = place_new(distinct[fresh], index.counts, assigner, options)
        index = index.add_hashes(distinct[unknown], buckets[unknown], counts)
    return buckets[groups], index


def place_new(
    hashes: Hashes, counts: Mapping[int, int], assigner: Assigner, options: DynamicBucketOptions
) -> tuple[Buckets, dict[int, int]]:
    """Buckets for new hashes, in their order: first fill existing buckets, then open new ones, then overfill.

    Raises:
        InvalidInputError: all buckets are full, and `dynamic-bucket.max-buckets` does not allow to fill them further.
    """
    target, wanted = options.target_rows, len(hashes)
    after = dict(sorted(counts.items()))
    numbers: list[int] = []
    rooms: list[int] = []
    for bucket, room in _rooms(after, assigner, options):
        if wanted <= 0:
            break
        numbers.append(bucket)
        rooms.append(min(room, wanted))
        after[bucket] = target - room + rooms[-1]
        wanted -= rooms[-1]
    placed = np.repeat(np.array(numbers, np.int32), rooms)
    if wanted > 0:
        rest = hashes[len(placed) :]
        placed = np.concatenate([placed, _share(rest, after, assigner, options)])
        numbers_of, more = np.unique(placed[len(hashes) - len(rest) :], return_counts=True)
        after |= {int(b): after[int(b)] + int(n) for b, n in zip(numbers_of, more, strict=True)}
    return placed, after


def _rooms(counts: Mapping[int, int], assigner: Assigner, options: DynamicBucketOptions) -> Iterator[tuple[int, int]]:
    """Buckets with room for more hashes and how much: those that exist, then new ones, each by number."""
    existing = tuple(counts.items())
    taken = frozenset(counts)
    for bucket, count in existing:
        if count < options.target_rows:
            yield bucket, options.target_rows - count
    for bucket in assigner.owned_buckets(options.bucket_max):
        if bucket not in taken:
            yield bucket, options.target_rows


def _share(hashes: Hashes, counts: Mapping[int, int], assigner: Assigner, options: DynamicBucketOptions) -> Buckets:
    """Spread hashes over the existing buckets when none can be opened; by hash, so that the result is reproducible."""
    if options.max_buckets < 0 or not counts:
        raise InvalidInputError(
            "all dynamic buckets are full",
            buckets=len(counts),
            assigner=assigner.id,
            target_rows=options.target_rows,
            hint="raise `dynamic-bucket.target-row-num`, or set `dynamic-bucket.max-buckets` to fill buckets further",
        )
    numbers = np.array(sorted(counts), np.int32)
    # All hashes of this assigner have the same remainder by the number of assigners, so only the quotient spreads them.
    return numbers[bucket_default(hashes // np.int32(assigner.assigners), len(numbers))]


# ------------------------------------------------------------------------------------------------ index files


def hash_entries(entries: Iterable[IndexEntry]) -> dict[bytes, dict[int, IndexFile]]:
    """The hash index file of each bucket, by partition; other kinds of index files are ignored.

    Raises:
        FormatError: a bucket has two hash indexes.
    """
    found: dict[bytes, dict[int, IndexFile]] = {}
    for entry in entries:
        if entry.file.index_type == HASH:
            files = found.setdefault(entry.partition, {})
            first = files.setdefault(entry.bucket, entry.file)
            if first is not entry.file:
                raise FormatError(
                    "bucket has two hash indexes",
                    bucket=entry.bucket,
                    first=first.file_name,
                    second=entry.file.file_name,
                )
    return found


def index_state(files: Mapping[int, IndexFile]) -> str:
    """A short digest of the hash index files of a partition; it changes when one of the files is replaced."""
    names = "\n".join(f"{bucket} {file.file_name}" for bucket, file in sorted(files.items()))
    return sha256(names.encode()).hexdigest()[:32]


def load_hashes(store: TableStore, files: Mapping[int, IndexFile]) -> dict[int, Hashes]:
    """Read the hash indexes of buckets of one partition.

    Raises:
        FormatError: a file is missing, or is not a hash index of the size that the metadata says.
        UnsupportedError: a file is stored outside of the table.
    """
    return {bucket: _read(store, file) for bucket, file in files.items()}


def _read(store: TableStore, file: IndexFile) -> Hashes:
    if file.external_path is not None:
        raise UnsupportedError("hash index outside of the table is not read", path=file.external_path)
    path = store.layout.index_path(file.file_name)
    try:
        data = store.env.io.read(path, limit=min(_INDEX_READ_LIMIT, HASH_BYTES * max(file.row_count, 0)))
    except NotFoundError as cause:
        raise FormatError("hash index of a bucket is missing", path=path) from cause
    return decode_hash_index(data, path=path, row_count=file.row_count)


@dataclass(frozen=True, slots=True, eq=False)
class BucketIndex:
    """The hashes of one bucket as its writer knows them: those of the index file, and those added since."""

    file: IndexFile | None
    hashes: Hashes
    changed: bool = False


def merge_hashes(index: BucketIndex, hashes: Hashes) -> BucketIndex:
    """The index of a bucket after it received rows with these key hashes, whatever their row kinds."""
    fresh = np.setdiff1d(hashes, index.hashes)
    if len(fresh) == 0:
        return index
    places = np.searchsorted(index.hashes, fresh)
    return BucketIndex(index.file, np.insert(index.hashes, places, fresh), True)


def write_indexes(
    store: TableStore, indexes: Mapping[PartitionBucket, BucketIndex]
) -> dict[PartitionBucket, tuple[IndexFile, IndexFile | None]]:
    """Write the whole index of every bucket with new hashes, and return it with the file that it replaces.

    A commit message lists the new file and the one it replaces, which is removed when the last snapshot that names it
    expires. A commit that finds another file there, or finds one where the message names none, has to be planned again.
    A file that is never committed is an orphan.

    Raises:
        StorageError: a file cannot be written.
    """
    changed = [(place, index) for place, index in indexes.items() if index.changed]
    uuid = store.env.ids.uuid() if changed else ""
    written: dict[PartitionBucket, tuple[IndexFile, IndexFile | None]] = {}
    with undo_on_error(lambda: remove_hash_files(store, (file for file, _ in written.values()))):
        for number, (place, index) in enumerate(changed):
            data = encode_hash_index(index.hashes)
            count = len(data) // HASH_BYTES
            file = IndexFile(index_type=HASH, file_name=f"index-{uuid}-{number}", file_size=len(data), row_count=count)
            written[place] = (file, index.file)
            store.env.io.write(store.layout.index_path(file.file_name), data)
    return written


def remove_hash_files(store: TableStore, files: Iterable[IndexFile]) -> None:
    """Delete hash indexes that no snapshot refers to; orphan cleaning finds those that the storage does not delete."""
    for file in files:
        with suppress(StorageError):
            store.env.io.delete(store.layout.index_path(file.file_name))


# ------------------------------------------------------------------------------------------------ one process


class DynamicBuckets:
    """The dynamic buckets of a table, as a writer in one process keeps them. Not shared between threads.

    Another job may give the same keys other buckets while this one writes. The job that commits second finds that
    `state_of` a partition has changed, and sends its rows to the buckets of the other job (`reassign`).
    """

    def __init__(
        self,
        store: TableStore,
        options: DynamicBucketOptions,
        entries: Iterable[IndexEntry] = (),
        assigners: Sequence[Assigner] | None = None,
    ) -> None:
        """Start from the index files of a snapshot; an overwrite starts without any.

        With `assigners`, which are some of a job's, only hashes that they own may come.

        Raises:
            InvalidInputError: the options allow no bucket.
            UnsupportedError: the table keeps index files beside its data.
            FormatError: a bucket has two hash indexes.
        """
        if options.index_beside_data:
            raise UnsupportedError(
                "index files beside data files are not written", option="index-file-in-data-file-dir"
            )
        self._store = store
        self._options = options
        self._assigners = assigners_for(options) if assigners is None else tuple(assigners)
        self._files = hash_entries(entries)
        self._there = _names(self._files)
        self._prepared: list[dict[PartitionBucket, str]] = []
        self._known: dict[bytes, list[PartitionIndex]] = {}
        self._grown: dict[PartitionBucket, None] = {}
        self._touched: set[bytes] = set()

    def assign(self, partition: bytes, hashes: Hashes) -> Buckets:
        """The bucket of each row of one partition, by the hash of its trimmed primary key.

        Raises:
            InvalidInputError: no bucket is left.
            FormatError: an index file is missing or damaged, or a hash is in two buckets.
        """
        row = pa.array([partition[ARITY_PREFIX_SIZE:]], pa.large_binary())
        partition_hash = int(hash_bytes(row)[0])
        known = self._known.get(partition) or self._load(partition, partition_hash)
        self._touched.add(partition)
        owners = self._assigners[0].owners(partition_hash, hashes)
        buckets: Buckets = np.empty(len(hashes), np.int32)
        after = list(known)
        for number, assigner in enumerate(self._assigners):
            mine = owners == assigner.id
            buckets[mine], after[number] = assign(known[number], hashes[mine], assigner, self._options)
        self._known[partition] = after
        for old, new in zip(known, after, strict=True):
            self._grown |= {
                (partition, bucket): None for bucket, count in new.counts.items() if count != old.counts.get(bucket)
            }
        return buckets

    def state_of(self, partition: bytes) -> str:
        """The `index_state` of the hash indexes of a partition that this state was read from."""
        return index_state(self._files.get(partition, {}))

    def prepare(self) -> dict[PartitionBucket, tuple[IndexFile, IndexFile | None]]:
        """Write the index of every bucket that grew since the last call; see `write_indexes`.

        Partitions without a row since then are dropped from memory: they can be read from their files again.

        Raises:
            StorageError: a file cannot be written.
        """
        indexes = {}
        for partition, bucket in self._grown:
            hashes = np.concatenate([index.hashes_of(bucket) for index in self._known[partition]])
            file = self._files.get(partition, {}).get(bucket)
            indexes[partition, bucket] = BucketIndex(file, hashes, True)
        written = write_indexes(self._store, indexes)
        for (partition, bucket), (new, _) in written.items():
            self._files.setdefault(partition, {})[bucket] = new
        self._prepared += [{place: new.file_name for place, (new, _) in written.items()}] if written else []
        self._known = {partition: self._known[partition] for partition in self._touched}
        self._grown, self._touched = {}, set()
        return written

    def follows(self, entries: Iterable[IndexEntry]) -> bool:
        """Whether this state continues the index files of a snapshot.

        It does if the snapshot has the files that this state started from, with the replacements of the first few
        rounds prepared since: the later rounds are not committed yet and are known only here.

        Raises:
            FormatError: a bucket has two hash indexes.
        """
        found, state = _names(hash_entries(entries)), self._there
        for count in range(len(self._prepared) + 1):
            if state == found:
                self._there, self._prepared = state, self._prepared[count:]
                return True
            state = {**state, **self._prepared[count]} if count < len(self._prepared) else state
        return False

    def _load(self, partition: bytes, partition_hash: int) -> list[PartitionIndex]:
        buckets = load_hashes(self._store, self._files.get(partition, {}))
        limit = self._options.bucket_max
        return [load_index(buckets, each, partition_hash, bucket_max=limit) for each in self._assigners]


def _names(files: Mapping[bytes, Mapping[int, IndexFile]]) -> dict[PartitionBucket, str]:
    return {(partition, bucket): file.file_name for partition, each in files.items() for bucket, file in each.items()}
