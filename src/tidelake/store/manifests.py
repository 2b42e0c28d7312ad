"""Manifest lists, manifests and index manifests in storage.

Reading is columnar with a projection: a filter first gets only the pruning columns, and all columns are decoded only
for blocks with kept entries. Writing starts a new file at the target size. Unchanged blocks are copied, not decoded
(`concat`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import FormatError
from tidelake.io.cache import Cache
from tidelake.io.executor import Executor, SerialExecutor
from tidelake.io.fileio import FileIO
from tidelake.spec.avro.container import (
    Container,
    RawBlock,
    copy_block,
    encode_container,
    frame_block,
    parse_container,
    read_block,
    read_blocks,
)
from tidelake.spec.avro.decode import FlatSchema, decode_blocks, flatten_schema
from tidelake.spec.avro.encode import split_blocks
from tidelake.spec.layout import TableLayout
from tidelake.spec.limits import LIMITS, Limits
from tidelake.spec.manifests.index_manifest import (
    IndexEntry,
    decode_index_manifest,
    decode_vector_table,
    encode_index_manifest,
)
from tidelake.spec.manifests.manifest import (
    BLOCK_BYTES,
    ENTRIES,
    LAYOUT,
    PRUNING_COLUMNS,
    SCHEMA,
    SCHEMA_TEXT,
    check_file_names,
    decode_manifest,
    encode_entries,
)
from tidelake.spec.manifests.manifest_list import ManifestMeta, decode_manifest_list, encode_manifest_list
from tidelake.spec.manifests.manifest_meta import combine_metas, meta_of_entries
from tidelake.spec.types.data_types import DataType

Keep = Callable[[pa.Table], pa.BooleanArray]
"""Which entries are wanted, decided by the pruning columns alone."""

BATCH_BYTES = 64 << 20
"""Bytes of encoded records that are decoded at a time; bounds the memory of a plan over many manifests."""
SMALL_BYTES = 1 << 18
"""Total size of manifests up to which a read caches them decoded; larger reads decode only the needed columns."""
META_BYTES = 2_000
"""About how much memory a cached object takes in addition to its data."""
COPY_COUNT, COPY_BYTES = 128, 16_000
"""Records, or compressed bytes, from which a block is copied as it is; smaller neighbours are packed together."""


class ManifestNames:
    """The file names of one committer: one UUID, and a counter for each kind of file."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._counts: dict[str, int] = {}
        self.given: list[str] = []
        """Names returned since this was last emptied: all files that an interrupted commit may have written."""

    def next(self, kind: str) -> str:
        """The next name of a kind: `manifest`, `manifest-list` or `index-manifest`."""
        number = self._counts.get(kind, 0)
        self._counts[kind] = number + 1
        name = f"{kind}-{self._uuid}-{number}"
        self.given.append(name)
        return name


@dataclass(frozen=True, slots=True)
class ManifestStore:
    """The manifest folder of a table. Writes do not wait until files are durable: call `sync` before publishing."""

    io: FileIO
    layout: TableLayout
    partition_types: tuple[DataType, ...]
    codec: str = "zstandard"
    target_bytes: int = 8 << 20
    executor: Executor = field(default_factory=SerialExecutor)
    limits: Limits = LIMITS
    cache: Cache | None = None

    # -------------------------------------------------------------------------------------------- lists

    def read_list(self, name: str, *, size: int | None = None) -> tuple[ManifestMeta, ...]:
        """Read a manifest list; `size` is the size in the snapshot.

        Raises:
            FormatError: it is missing although a snapshot names it, is damaged, or has another size.
        """
        path = self.layout.manifest_path(name)
        key = (self.io.root, path, size)
        found: tuple[ManifestMeta, ...] | None = self.cache.get(key) if self.cache else None
        if found is None:
            data = self._read(path, size)
            found = decode_manifest_list(data, path=path, limits=self.limits)
            if self.cache and len(data) <= SMALL_BYTES:
                self.cache.put(key, found, len(found) * META_BYTES)
        return found

    def write_list(self, name: str, metas: Sequence[ManifestMeta]) -> int:
        """Write a manifest list and return its size."""
        return self._write(name, encode_manifest_list(metas, codec=self.codec))

    def read_index(self, name: str) -> tuple[IndexEntry, ...]:
        """Read an index manifest.

        Raises:
            FormatError: it is missing although a snapshot names it, or damaged.
        """
        path = self.layout.manifest_path(name)
        return decode_index_manifest(self._read(path, None), path=path, limits=self.limits)

    def read_vectors(self, name: str) -> pa.Table:
        """The deletion vectors of an index manifest, as a table of `index_manifest.VECTORS`.

        Raises:
            FormatError: it is missing although a snapshot names it, or damaged.
        """
        path = self.layout.manifest_path(name)
        key = (self.io.root, path, "vectors")
        found: pa.Table | None = self.cache.get(key) if self.cache else None
        if found is None:
            data = self._read(path, None)
            found = decode_vector_table(data, path=path, limits=self.limits)
            if self.cache and len(data) <= SMALL_BYTES:
                self.cache.put(key, found, found.nbytes + META_BYTES)
        return found

    def write_index(self, name: str, entries: Sequence[IndexEntry]) -> int:
        """Write an index manifest and return its size."""
        return self._write(name, encode_index_manifest(entries, codec=self.codec))

    # -------------------------------------------------------------------------------------------- entries

    def read_entries(
        self, metas: Sequence[ManifestMeta], *, columns: Sequence[str] | None = None, keep: Keep | None = None
    ) -> pa.Table:
        """The entries of manifests in order, those that `keep` selects.

        Raises:
            FormatError: a manifest is missing or damaged, holds another number of entries than its list says, or
                names a file outside its folder.
        """
        names = [name for name in ENTRIES.names if columns is None or name in columns]
        schema = pa.schema([ENTRIES.field(name) for name in names])
        small = sum(meta.file_size for meta in metas) <= SMALL_BYTES
        if self.cache and small:
            tables = [self._read_cached(metas, self.cache, names, keep)] if metas else []
        else:
            tables = [self._decode_batch(batch, names, keep) for batch in self._batches(metas)]
        result = pa.concat_tables(tables).select(names) if tables else schema.empty_table()
        if "file_name" in names:
            check_file_names(result.column("file_name"), path=self.io.root)
        if "extra_files" in names:
            check_file_names(pc.list_flatten(result.column("extra_files")), path=self.io.root)
        return result

    def _read_cached(
        self, metas: Sequence[ManifestMeta], cache: Cache, names: list[str], keep: Keep | None
    ) -> pa.Table:
        """The entries of a few small manifests, through the cache."""
        keys = [(self.io.root, self.layout.manifest_path(meta.file_name), meta.file_size) for meta in metas]
        tables: list[pa.Table] = [cache.get(key) for key in keys]
        missing = [number for number, table in enumerate(tables) if table is None]
        if missing:
            batches = self._batches([metas[number] for number in missing])
            read = pa.concat_tables([self._decode_batch(batch, ENTRIES.names, None) for batch in batches])
            first = 0
            for number in missing:
                table = read.slice(first, metas[number].num_entries)
                first += table.num_rows
                cache.put(keys[number], table, table.nbytes + META_BYTES)
                tables[number] = table
        for table, meta, key in zip(tables, metas, keys, strict=True):
            _check_count(table.num_rows, meta, key[1])
        whole = pa.concat_tables(tables).combine_chunks()
        return (whole.filter(keep(whole.select(PRUNING_COLUMNS))) if keep else whole).select(names)

    def _batches(self, metas: Sequence[ManifestMeta]) -> Iterator[list[_Loaded]]:
        pending: list[ManifestMeta] = []
        size = 0
        for meta in metas:
            pending.append(meta)
            size += meta.file_size * 8  # a guess at the decompressed size, only to bound memory
            if size >= BATCH_BYTES:
                yield from _runs(self.executor.map(self._load, pending))
                pending, size = [], 0
        if pending:
            yield from _runs(self.executor.map(self._load, pending))

    def _load(self, meta: ManifestMeta) -> _Loaded:
        path = self.layout.manifest_path(meta.file_name)
        data = self._read(path, meta.file_size)
        if data[:4] == b"PAR1" or data[:3] == b"ORC":
            table = decode_manifest(data, path=path)
            _check_count(table.num_rows, meta, path)
            return _Loaded(path, None, (), table)
        container = parse_container(data, path=path)
        _check_count(container.record_count, meta, path)
        flat = flatten_schema(container.schema, LAYOUT, path=path)
        return _Loaded(path, flat, tuple(read_blocks(container, limits=self.limits)), None)

    def _decode_batch(self, batch: list[_Loaded], names: list[str], keep: Keep | None) -> pa.Table:
        first = batch[0]
        if first.table is not None:
            table = first.table
            return (table.filter(keep(table.select(PRUNING_COLUMNS))) if keep else table).select(names)
        assert first.flat is not None
        blocks = list(chain.from_iterable(loaded.blocks for loaded in batch))
        if keep is None:
            return decode_blocks(first.flat, blocks, LAYOUT, path=first.path, columns=names)
        deciding = decode_blocks(first.flat, blocks, LAYOUT, path=first.path, columns=PRUNING_COLUMNS)
        mask = keep(deciding)
        if set(names) <= set(PRUNING_COLUMNS):
            return deciding.filter(mask).select(names)
        chosen, rows = _surviving_blocks(blocks, mask)
        table = decode_blocks(first.flat, chosen, LAYOUT, path=first.path, columns=names)
        return table.filter(rows)

    def write_entries(self, names: ManifestNames, entries: pa.Table, *, schema_id: int) -> list[ManifestMeta]:
        """Write entries to as many manifests as their size requires."""
        if entries.num_rows == 0:
            return []
        text, records = encode_entries(entries)
        metas: list[ManifestMeta] = []
        start = 0
        for blocks in self._split_by_size(_frame_blocks(split_blocks(records, block_bytes=BLOCK_BYTES), self.codec)):
            count = sum(block.count for block in blocks)
            part = entries.slice(start, count)
            start += count
            name = names.next("manifest")
            size = self._write(name, encode_container(text, self.codec, [block.frame for block in blocks]))
            metas.append(meta_of_entries(part, name, size, self.partition_types, schema_id=schema_id))
        return metas

    @property
    def header_bytes(self) -> int:
        """The size of a manifest without entries."""
        return len(encode_container(SCHEMA_TEXT, self.codec, []))

    def concat(self, names: ManifestNames, metas: Sequence[ManifestMeta]) -> list[ManifestMeta] | None:
        """Concatenate manifests without deletions; the bytes of records do not change.

        Large blocks are copied, small ones packed together. Returns None, and writes nothing, if the files do not all
        have the schema and codec that we write.

        Raises:
            FormatError: a manifest is missing, damaged, or holds another number of entries than its list says.
        """
        if sum(meta.file_size for meta in metas) >= self.target_bytes:
            return None  # several files may be needed, whose ranges are known only after decoding
        containers = [container for container in self.executor.map(self._container, metas) if container]
        if len(containers) < len(metas):
            return None
        frames = list(_pack_small_blocks(containers, self.codec, self.limits))
        if not frames:
            return []
        name = names.next("manifest")
        size = self._write(name, encode_container(SCHEMA_TEXT, self.codec, [frame.frame for frame in frames]))
        return [combine_metas(metas, name, size, self.partition_types)]

    def _container(self, meta: ManifestMeta) -> Container | None:
        path = self.layout.manifest_path(meta.file_name)
        data = self._read(path, meta.file_size)
        if data[:4] == b"PAR1" or data[:3] == b"ORC":
            return None
        container = parse_container(data, path=path)
        _check_count(container.record_count, meta, path)
        same = container.schema == SCHEMA and container.codec == self.codec
        return container if same else None

    def _split_by_size(self, frames: Iterable[_Frame]) -> Iterator[list[_Frame]]:
        file: list[_Frame] = []
        size = 0
        for frame in frames:
            file.append(frame)
            size += len(frame.frame)
            if size >= self.target_bytes:
                yield file
                file, size = [], 0
        if file:
            yield file

    # -------------------------------------------------------------------------------------------- bytes

    def sync(self, file_names: Iterable[str]) -> None:
        """Wait until these manifest files are durable."""
        self.io.sync([self.layout.manifest_path(name) for name in file_names])

    def delete(self, file_names: Iterable[str]) -> None:
        """Delete manifest files that certainly nothing refers to."""
        for name in file_names:
            self.io.delete(self.layout.manifest_path(name))

    def _write(self, name: str, data: bytes) -> int:
        self.io.write(self.layout.manifest_path(name), data, durable=False)
        return len(data)

    def _read(self, path: str, size: int | None) -> bytes:
        data = self.io.read(path, limit=self.limits.manifest_bytes_max)
        if size is not None and len(data) != size:
            raise FormatError("metadata file has another size than recorded", path=path, size=len(data), recorded=size)
        return data


# ------------------------------------------------------------------------------------------------ pieces


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A manifest in memory: as decompressed blocks, or (ORC, Parquet) already as a table."""

    path: str
    flat: FlatSchema | None
    blocks: tuple[RawBlock, ...]
    table: pa.Table | None


@dataclass(frozen=True, slots=True)
class _Frame:
    """A framed block and its record count."""

    frame: bytes
    count: int


def _runs(loaded: list[_Loaded]) -> Iterator[list[_Loaded]]:
    """Neighbours with the same schema, to be decoded together."""
    run: list[_Loaded] = []
    for each in loaded:
        if run and (each.table is not None or run[-1].flat != each.flat):
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def _surviving_blocks(blocks: list[RawBlock], mask: pa.BooleanArray) -> tuple[list[RawBlock], pa.BooleanArray]:
    """The blocks with a wanted entry, and the mask over the entries of those blocks."""
    wanted = mask.to_numpy(zero_copy_only=False)
    ends = np.cumsum([block.count for block in blocks])
    seen = np.concatenate([[0], np.cumsum(wanted)])
    hits = seen[ends] - seen[ends - [block.count for block in blocks]]
    chosen = [block for block, hit in zip(blocks, hits.tolist(), strict=True) if hit]
    rows = wanted[np.repeat(hits > 0, [block.count for block in blocks])]
    return chosen, pa.array(rows)


def _frame_blocks(blocks: Iterable[RawBlock], codec: str) -> Iterator[_Frame]:
    for block in blocks:
        yield _Frame(frame_block(block, codec), block.count)


def _pack_small_blocks(containers: Sequence[Container], codec: str, limits: Limits) -> Iterator[_Frame]:
    pending: list[RawBlock] = []
    for container in containers:
        for block in container.blocks:
            if block.count >= COPY_COUNT or block.size >= COPY_BYTES:
                yield from _pack(pending, codec)
                pending = []
                yield _Frame(copy_block(container, block), block.count)
                continue
            pending.append(read_block(container, block, limits=limits))
            if sum(len(raw.payload) for raw in pending) >= BLOCK_BYTES:
                yield from _pack(pending, codec)
                pending = []
    yield from _pack(pending, codec)


def _pack(blocks: list[RawBlock], codec: str) -> Iterator[_Frame]:
    if blocks:
        count = sum(block.count for block in blocks)
        yield _Frame(frame_block(RawBlock(count, b"".join(raw.payload for raw in blocks)), codec), count)


def _check_count(count: int, meta: ManifestMeta, path: str) -> None:
    if count != meta.num_entries:
        raise FormatError(
            "manifest holds another number of entries than its list says",
            path=path,
            entries=count,
            recorded=meta.num_entries,
        )
