"""The writer of primary-key tables: rows to sorted level-0 files, and the compaction that follows.

Rows of a bucket wait in memory, in the order of their arrival, which their sequence numbers keep. When the buffers
together are full, the largest is sorted, merged key by key and written as files of level 0. Files are durable when
`prepare` returns and belong to nobody until their messages are committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError, StorageError, UnsupportedError
from tidelake.files.keyed import KeyedWriter
from tidelake.files.options import FileOptions
from tidelake.io.clock import local_time_ms
from tidelake.lsm.engine import KIND, SEQUENCE
from tidelake.lsm.engines.build import MergeOptions
from tidelake.lsm.kernel import merge_rows
from tidelake.lsm.levels import Levels, build_levels
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import PickState, first_state
from tidelake.ops.commit.messages import CommitMessage, CompactIncrement, DataIncrement
from tidelake.ops.compact.keyed import Bucket, pick, refuse_unsupported, run_compaction
from tidelake.ops.read.keyed import Merging
from tidelake.ops.scan.options import BucketOptions
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.ops.scan.split import Split
from tidelake.ops.write.assign import DynamicBucketOptions, DynamicBuckets
from tidelake.ops.write.kinds import KINDS
from tidelake.options import Affects, Bytes, OptionGroup, option
from tidelake.spec.binary_hash import hash_rows
from tidelake.spec.binary_row import encode_rows
from tidelake.spec.bucket import assign_buckets
from tidelake.spec.data_file import DataFile, FileSource, data_files
from tidelake.spec.index_manifest import IndexFile
from tidelake.spec.snapshot import Snapshot
from tidelake.spec.types import with_nullable
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

Place = tuple[bytes, int]
"""A partition and a bucket of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedWriteOptions(OptionGroup):
    """How rows of primary-key tables are written."""

    write_only: bool = option(
        "write-only",
        False,
        doc="Writers neither compact nor expire.",
        affects=(Affects.WRITE,),
        fallback=("write.compaction-skip",),
    )
    buffer_bytes: Bytes = option(
        "write-buffer-size",
        Bytes(256 << 20),
        doc="Rows that wait in memory, over all buckets.",
        affects=(Affects.WRITE,),
    )
    thin: bool = option(
        "data-file.thin-mode", False, doc="Data files do not repeat key columns.", affects=(Affects.WRITE,)
    )
    force_compact: bool = option(
        "commit.force-compact", False, doc="Every commit compacts fully.", affects=(Affects.WRITE,)
    )


@dataclass(slots=True)
class _Open:
    """A bucket that is being written to."""

    bucket: Bucket
    levels: Levels
    state: PickState
    next_sequence: int
    total_buckets: int
    base_snapshot_id: int
    waiting: list[pa.Table] = field(default_factory=list)
    waiting_bytes: int = 0
    written: list[DataFile] = field(default_factory=list)
    compacted: list[CompactIncrement] = field(default_factory=list)


@dataclass(slots=True)
class KeyedTableWriter:
    """Writes batches that have the table's columns and types, and perhaps kinds. Not shared between threads."""

    store: TableStore
    paths: DataPaths
    table_options: Mapping[str, str]
    overwrite: bool = False
    _open: dict[Place, _Open] = field(default_factory=dict)
    _dynamic: DynamicBuckets | None = None
    _snapshot: Snapshot | None = None
    _begun: bool = False

    def __post_init__(self) -> None:
        """Look at the options.

        Raises:
            UnsupportedError: the table is of a kind that is not written yet.
        """
        schema = self.store.schema
        if not self.options.write_only:
            refuse_unsupported(self.merge)
        bucket = self.buckets.bucket
        if bucket == -2 or (bucket == -1 and not set(schema.partition_keys) <= set(schema.primary_keys)):
            raise UnsupportedError(
                "tables with postponed buckets, or with keys that move between partitions, are not written yet",
                option="bucket",
                value=bucket,
                hint="choose a number of buckets",
            )

    @property
    def options(self) -> KeyedWriteOptions:
        """How rows are written."""
        return KeyedWriteOptions.parse(self.table_options)

    @property
    def merge(self) -> MergeOptions:
        """How versions of a key are merged."""
        return MergeOptions.parse(self.table_options)

    @property
    def buckets(self) -> BucketOptions:
        """How rows find their bucket."""
        return BucketOptions.parse(self.table_options)

    # -------------------------------------------------------------------------------------------- rows

    def write(self, batch: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Route the rows of a batch to their partitions and buckets.

        Args:
            batch: Rows of the table's columns and types.
            kinds: The kind of each row as a number (0 +I, 1 -U, 2 +U, 3 -D); all are +I when None.

        Raises:
            InvalidInputError: the partition has another number of buckets, a key is null, or a row cannot be merged.
            StorageError: the storage failed.
        """
        rows = pa.Table.from_batches([batch])
        numbers = kinds.cast(pa.int8()) if kinds is not None else pa.repeat(pa.scalar(0, pa.int8()), batch.num_rows)
        rows = self._counted(rows.append_column(KIND, numbers))
        if not rows.num_rows:
            return
        self._begin()
        for place, part in self._routed(rows):
            bucket = self._open.get(place) or self._opened(place)
            bucket.waiting.append(part)
            bucket.waiting_bytes += part.nbytes
        self._make_room()

    def _counted(self, rows: pa.Table) -> pa.Table:
        """Without the rows that the options leave out."""
        merge = self.merge
        if not (merge.ignore_delete or merge.ignore_update_before):
            return rows
        kinds = rows.column(KIND).to_numpy()
        drop = (kinds & 1) == 1 if merge.ignore_delete else kinds == KINDS["-U"]
        return rows.filter(pa.array(~drop)) if drop.any() else rows

    def _routed(self, rows: pa.Table) -> Iterator[tuple[Place, pa.Table]]:
        schema = self.store.schema
        rows = rows.combine_chunks()
        columns = [rows.column(name).combine_chunks() for name in schema.partition_keys]
        types = [with_nullable(dtype, True) for dtype in schema.partition_types]
        partitions = encode_rows(columns, types, length=rows.num_rows).dictionary_encode()
        codes = partitions.indices.to_numpy().astype(np.int64)
        names = partitions.dictionary.to_pylist()
        buckets = self._bucket_ids(rows, codes, names)
        both = codes * (int(buckets.max(initial=0)) + 1) + buckets
        order = np.argsort(both, kind="stable")
        cuts = np.flatnonzero(np.diff(both[order])) + 1
        ordered = rows if len(cuts) == 0 else rows.take(pa.array(order))
        for start, end in pairwise([0, *cuts.tolist(), rows.num_rows]):
            first = order[start]
            yield (names[codes[first]], int(buckets[first])), ordered.slice(start, end - start)

    def _bucket_ids(
        self, rows: pa.Table, partitions: np.ndarray, names: list[bytes]
    ) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        schema, count = self.store.schema, self.buckets.bucket
        if count > 0:
            keys = schema.bucket_keys
            arrays = [rows.column(name).combine_chunks() for name in keys]
            types = [schema.field(name).type for name in keys]
            return assign_buckets(arrays, types, function=self.buckets.function, count=count).astype(np.int64)
        keys = schema.trimmed_primary_keys
        arrays = [rows.column(name).combine_chunks() for name in keys]
        hashes = hash_rows(arrays, [schema.field(name).type for name in keys])
        buckets = np.empty(rows.num_rows, np.int64)
        assert self._dynamic is not None
        for code, partition in enumerate(names):
            here = np.flatnonzero(partitions == code)
            if len(here):
                buckets[here] = self._dynamic.assign(partition, hashes[here])
        return buckets

    def _make_room(self) -> None:
        limit = self.options.buffer_bytes
        total = sum(bucket.waiting_bytes for bucket in self._open.values())
        while total > limit:
            largest = max(self._open.values(), key=lambda bucket: bucket.waiting_bytes)
            total -= largest.waiting_bytes
            self._flush(largest)

    # -------------------------------------------------------------------------------------------- files

    def _flush(self, bucket: _Open) -> None:
        """Sort and merge the rows that wait and write them to level 0."""
        if not bucket.waiting:
            return
        rows = pa.concat_tables(bucket.waiting).combine_chunks()
        numbers = np.arange(bucket.next_sequence, bucket.next_sequence + rows.num_rows, dtype=np.int64)
        rows = rows.append_column(SEQUENCE, pa.array(numbers))
        bucket.next_sequence += rows.num_rows
        bucket.waiting, bucket.waiting_bytes = [], 0
        plan = bucket.bucket.merging.buffer_plan()
        writer = KeyedWriter(
            self.store.env,
            bucket.bucket.split.bucket_path,
            self.store.schema,
            bucket.bucket.files,
            level=0,
            source=FileSource.APPEND,
            thin=bucket.bucket.thin,
        )
        try:
            writer.write(merge_rows(rows, plan))
            files = writer.close()
        except BaseException:
            writer.abort()
            raise
        bucket.written += files
        bucket.levels = bucket.levels.apply((), bucket.bucket.merging.files(files))
        if not self.options.write_only:
            self._compact(bucket, full=False)

    def _compact(self, bucket: _Open, *, full: bool) -> None:
        now = local_time_ms(self.store.env.clock)
        chosen, bucket.state = pick(bucket.levels, bucket.bucket, bucket.state, now_ms=now, full=full)
        if chosen is not None:
            increment, bucket.levels = run_compaction(bucket.bucket, bucket.levels, chosen)
            bucket.compacted.append(increment)

    def compact(self, partition: bytes, bucket: int, *, full: bool = False) -> None:
        """Compact one bucket now; what it did is part of the next `prepare`.

        Raises:
            UnsupportedError: the table's compactions do more than merge.
            FormatError: a file is missing or damaged.
        """
        self._begin()
        place = (partition, bucket)
        opened = self._open.get(place) or self._opened(place)
        self._flush(opened)
        self._compact(opened, full=full)

    def prepare(self) -> list[CommitMessage]:
        """Write what waits and describe everything since the last call; the writer starts afresh."""
        for bucket in self._open.values():
            self._flush(bucket)
            if self.options.force_compact and not self.options.write_only:
                self._compact(bucket, full=True)
        indexes = self._dynamic.prepare() if self._dynamic is not None else {}
        messages = [
            self._message(place, bucket, *indexes.get(place, (None, None))) for place, bucket in self._open.items()
        ]
        for bucket in self._open.values():
            self._remove(bucket, passing(bucket.compacted))
        self._open, self._begun = {}, False
        return [message for message in messages if not message.is_empty]

    def _message(self, place: Place, bucket: _Open, new: IndexFile | None, old: IndexFile | None) -> CommitMessage:
        return CommitMessage(
            partition=place[0],
            bucket=place[1],
            total_buckets=bucket.total_buckets,
            data=DataIncrement(
                new_files=tuple(bucket.written),
                new_index_files=() if new is None else (new,),
                deleted_index_files=() if old is None else (old,),
            ),
            compact=joined(bucket.compacted),
            base_snapshot_id=bucket.base_snapshot_id,
        )

    def abort(self) -> None:
        """Remove what was written and not yet prepared."""
        for bucket in self._open.values():
            kept = {file.file_name for file in joined(bucket.compacted).before}
            made = (file for increment in bucket.compacted for file in increment.after)
            self._remove(bucket, bucket.written)
            self._remove(bucket, [file for file in made if file.file_name not in kept])
        self._open, self._begun = {}, False

    def _remove(self, bucket: _Open, files: Iterable[DataFile]) -> None:
        for file in files:
            with suppress(StorageError):  # found by orphan cleaning
                self.store.env.io.delete(bucket.bucket.split.path_of(file))

    # -------------------------------------------------------------------------------------------- buckets

    def _begin(self) -> None:
        """Look at the newest snapshot once per round: sequence numbers and levels continue from it."""
        if self._begun:
            return
        self._begun = True
        self._snapshot = self.store.snapshots.latest()
        if self.buckets.bucket == -1:
            fresh = self.overwrite or self._snapshot is None or self._snapshot.index_manifest is None
            entries = () if fresh else self.store.manifests.read_index(self._snapshot.index_manifest)  # type: ignore[union-attr, arg-type]
            options = DynamicBucketOptions.parse(self.table_options)
            self._dynamic = DynamicBuckets(self.store, options, entries)

    def _opened(self, place: Place) -> _Open:
        schema = self.store.schema
        files, total = self._restored(place)
        count = self.buckets.bucket
        if count > 0 and total not in (None, count):
            raise InvalidInputError(
                "partition has another number of buckets",
                code="bucket-count",
                partition=self.paths.partition(place[0]) or "the table",
                previous=total,
                new=count,
                hint="overwrite the partition to give it the new number",
            )
        merging = Merging(schema, self.table_options)
        compaction = CompactionOptions.parse(self.table_options)
        bucket = Bucket(
            self.store,
            Split(
                snapshot_id=self._snapshot.id if self._snapshot else 0,
                partition=place[0],
                bucket=place[1],
                bucket_path=self.paths.bucket(*place),
                total_buckets=count,
                files=(),
            ),
            merging,
            FileOptions.parse(self.table_options),
            compaction,
            self.options.thin,
        )
        levels = build_levels(merging.files(files), num_levels=compaction.num_levels)
        top = max((file.max_sequence for file in files), default=-1)
        opened = _Open(bucket, levels, first_state(levels), top + 1, count, self._snapshot.id if self._snapshot else 0)
        self._open[place] = opened
        return opened

    def _restored(self, place: Place) -> tuple[list[DataFile], int | None]:
        """The live files of a bucket and the bucket count of its partition."""
        if self._snapshot is None or self.overwrite:
            return [], None
        partition = PartitionSet(frozenset({place[0]}), tuple(self.store.schema.partition_types))
        metas = data_manifests(self.store.manifests, self._snapshot)
        entries = live_entries(self.store.manifests, metas, partitions=partition)
        totals = [total for total in entries.column("total_buckets").unique().to_pylist() if total > 0]
        here = entries.filter(pc.equal(entries.column("bucket"), place[1]))
        return data_files(here), max(totals, default=None)


def joined(increments: Sequence[CompactIncrement]) -> CompactIncrement:
    """Compactions that followed each other as one: what lived only in between is in neither list."""
    before: dict[tuple[str, int], DataFile] = {}
    after: dict[tuple[str, int], DataFile] = {}
    for increment in increments:
        for file in increment.before:
            if after.pop((file.file_name, file.level), None) is None:
                before[file.file_name, file.level] = file
        for file in increment.after:
            after[file.file_name, file.level] = file
    return CompactIncrement(before=tuple(before.values()), after=tuple(after.values()))


def passing(increments: Sequence[CompactIncrement]) -> tuple[DataFile, ...]:
    """Files that one compaction made and a later one read: no commit will ever name them."""
    whole = joined(increments)
    named = {file.file_name for file in (*whole.before, *whole.after)}
    made = {file.file_name: file for increment in increments for file in increment.after}
    return tuple(file for name, file in made.items() if name not in named)
