"""Deletion vectors in storage: find and read the vector of a data file, and write index files.

An index file never changes: to delete more rows a new one is written. So its content may be cached.

Invariant: a vector that cannot be read, or that does not fit its data file, is an error and never an empty vector:
a deleted row must not reappear because a file is damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelake.cleanup import undo_on_error
from tidelake.errors import FormatError, StorageError
from tidelake.index.vector_codec import (
    Positions,
    block_bytes_max,
    check_version,
    decode_vector,
    encode_vectors,
)
from tidelake.io.fileio import FileIO
from tidelake.options import Affects, Bytes, OptionGroup, option, same_option
from tidelake.spec.manifests.index_manifest import DELETION_VECTORS, DeletionVectorRange, IndexFile
from tidelake.spec.schemas.schema_options import SchemaOptions
from tidelake.store.external import open_external
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

if TYPE_CHECKING:
    from pyroaring import BitMap

__all__ = ["FileVector", "VectorOptions", "read_vector", "remove_index_files", "write_vectors"]

SPAN_BYTES: Final = 4 << 20
"""Bytes of an index file that are read at once, with the vectors of neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOptions(OptionGroup):
    """Whether rows are deleted with deletion vectors, and how these are stored."""

    enabled: bool = same_option(SchemaOptions, "deletion_vectors")
    wide: bool = option(
        "deletion-vectors.bitmap64",
        False,
        doc="Deletion vectors with 64 bits, as Apache Iceberg has them.",
        affects=(Affects.WRITE, Affects.MAINTENANCE),
    )
    target_bytes: Bytes = option(
        "deletion-vector.index-file.target-size",
        Bytes(2 << 20),
        doc="Size at which a file of deletion vectors is full, if a bucket has several.",
        affects=(Affects.WRITE, Affects.MAINTENANCE),
    )


@dataclass(frozen=True, slots=True)
class FileVector:
    """Where the deletion vector of one data file is stored. Picklable, without credentials."""

    path: str
    """The index file, relative to the table."""
    file_size: int
    range: DeletionVectorRange
    external_path: str | None = None

    @property
    def cardinality(self) -> int | None:
        """How many positions it has, if the index manifest says so."""
        return self.range.cardinality


def read_vector(
    store: TableStore, vector: FileVector, *, row_count: int, neighbours: Iterable[FileVector] = ()
) -> Positions:
    """The positions of the deleted rows of a data file.

    Args:
        store: The table.
        vector: Where the vector is stored.
        row_count: Rows of the data file.
        neighbours: Vectors that will be read next; those in the same index file are read with this one.

    Raises:
        NotFoundError: the index file is gone.
        FormatError: it is damaged, or has positions that the data file does not have.
        UnsupportedError: it is outside the table on a storage that cannot be read yet.
    """
    where = vector.range
    if where.offset < 1 or where.length < 1 or where.offset + where.length > vector.file_size:
        raise FormatError("deletion vector is outside its index file", path=vector.path, data_file=where.data_file)
    io, path = store.env.io, vector.path
    if vector.external_path is not None:
        io, path = open_external(io, store.schema.options, vector.external_path)
    cache, known = store.env.cache, (io.root, path, where, row_count)
    if cache is not None and (kept := cache.get(known)) is not None:
        found: Positions = kept
        return found
    start, end = _span([vector])
    if cache is not None:
        start, end = _span([vector, *(each for each in neighbours if each.path == vector.path)])
        if end - start > SPAN_BYTES:
            start, end = _span([vector])
    data = _bytes(store, io, path, start, end)
    if start == 0:
        check_version(data, path=path)
    first = where.offset - start
    block = data[first : first + block_bytes_max(where)]
    found = decode_vector(block, range=where, path=path, row_count=row_count)
    if cache is not None and found.nbytes <= SPAN_BYTES:
        found.setflags(write=False)  # the cache shares it with other reads of the data file
        cache.put(known, found, found.nbytes)
    return found


def _span(vectors: Sequence[FileVector]) -> tuple[int, int]:
    """The range of the file to read; from its version byte on, if that is not too much."""
    start = min(each.range.offset for each in vectors)
    end = max(min(each.range.offset + block_bytes_max(each.range), each.file_size) for each in vectors)
    return (0 if end <= SPAN_BYTES else max(start, 0)), end


def _bytes(store: TableStore, io: FileIO, path: str, start: int, end: int) -> bytes:
    cache = store.env.cache
    key = (io.root, path, start, end)
    found: bytes | None = cache.get(key) if cache is not None else None
    if found is None:
        found = io.read_range(path, start, end - start)
        if cache is not None and len(found) <= SPAN_BYTES:
            cache.put(key, found, len(found))
    return found


def write_vectors(
    store: TableStore,
    paths: DataPaths,
    vectors: Sequence[tuple[str, BitMap]],
    *,
    partition: bytes,
    bucket: int,
    options: VectorOptions,
    rolled: bool,
) -> tuple[IndexFile, ...]:
    """Write the vectors of data files of one bucket; files that are never committed are orphans.

    Args:
        store: The table.
        paths: The folders of the table.
        vectors: Names of data files and the positions of their deleted rows.
        partition: The partition of the bucket.
        bucket: Its number.
        options: How vectors are stored.
        rolled: Whether a new file is started when one is full; otherwise all vectors go into one.

    Raises:
        StorageError: a file cannot be written; files written so far are deleted if the storage allows it.
        InvalidInputError: a position is too large for the width of the vectors.
    """
    written: list[IndexFile] = []
    uuid = store.env.ids.uuid() if vectors else ""
    groups = _split_by_size(vectors, options.target_bytes) if rolled else [vectors] if vectors else []
    with undo_on_error(lambda: remove_index_files(store, paths, written, partition=partition, bucket=bucket)):
        for number, group in enumerate(groups):
            data, ranges = encode_vectors(group, wide=options.wide)
            name = f"index-{uuid}-{number}"
            file = IndexFile(
                index_type=DELETION_VECTORS,
                file_name=name,
                file_size=len(data),
                row_count=len(ranges),
                deletion_vectors=ranges,
            )
            written.append(file)  # before the write: even if its answer is lost the file may exist
            store.env.io.write(paths.index(partition, bucket, name), data)
    return tuple(written)


def remove_index_files(
    store: TableStore, paths: DataPaths, files: Iterable[IndexFile], *, partition: bytes, bucket: int
) -> None:
    """Delete index files that were not committed; those that the storage does not delete stay as orphans."""
    for file in files:
        with suppress(StorageError):
            store.env.io.delete(paths.index(partition, bucket, file.file_name))


def _split_by_size(vectors: Sequence[tuple[str, BitMap]], target_bytes: int) -> Iterator[list[tuple[str, BitMap]]]:
    group: list[tuple[str, BitMap]] = []
    size = 0
    for name, bitmap in vectors:
        group.append((name, bitmap))
        size += len(bitmap.serialize())
        if size >= target_bytes:
            yield group
            group, size = [], 0
    if group:
        yield group
