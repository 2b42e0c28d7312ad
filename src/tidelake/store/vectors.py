"""Deletion vectors in storage: where the vector of a data file lies, reading it, writing index files.

An index file is never changed: who marks more rows writes a new one. So what was read of one may be kept.

Invariant: a vector that cannot be read, or that does not fit its data file, is an error, never an empty vector: a
deleted row must not come back to life because a file is damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelake.errors import FormatError, StorageError
from tidelake.index.deletion_vectors import (
    Positions,
    block_bytes_max,
    check_version,
    decode_vector,
    encode_vectors,
)
from tidelake.io.fileio import FileIO
from tidelake.options import Affects, Bytes, OptionGroup, option
from tidelake.spec.index_manifest import DELETION_VECTORS, DeletionVectorRange, IndexFile
from tidelake.store.external import open_external
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

if TYPE_CHECKING:
    from pyroaring import BitMap

__all__ = ["FileVector", "VectorOptions", "read_vector", "remove_index_files", "write_vectors"]

SPAN_BYTES: Final = 4 << 20
"""Bytes of an index file that are read in one go for the vectors of neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOptions(OptionGroup):
    """Whether rows are deleted by marking them, and how the marks are stored."""

    enabled: bool = option(
        "deletion-vectors.enabled",
        False,
        doc="Mark rows that were replaced or deleted.",
        affects=(Affects.READ, Affects.WRITE, Affects.MAINTENANCE),
    )
    wide: bool = option(
        "deletion-vectors.bitmap64",
        False,
        doc="Deletion vectors with 64 bits, as Apache Iceberg has them.",
        affects=(Affects.WRITE, Affects.MAINTENANCE),
    )
    target_bytes: Bytes = option(
        "deletion-vector.index-file.target-size",
        Bytes(2 << 20),
        doc="Size at which a file of deletion vectors is full, where a bucket has several.",
        affects=(Affects.WRITE, Affects.MAINTENANCE),
    )


@dataclass(frozen=True, slots=True)
class FileVector:
    """Where the deletion vector of one data file lies. Picklable, free of credentials."""

    path: str
    """The index file, relative to the table."""
    file_size: int
    range: DeletionVectorRange
    external_path: str | None = None

    @property
    def cardinality(self) -> int | None:
        """How many rows it marks, if the index manifest tells."""
        return self.range.cardinality


def read_vector(
    store: TableStore, vector: FileVector, *, row_count: int, neighbours: Iterable[FileVector] = ()
) -> Positions:
    """The positions of the deleted rows of a data file.

    Args:
        store: The table.
        vector: Where the vector lies.
        row_count: Rows of the data file.
        neighbours: Vectors that will be asked for next; those in the same index file are read with this one.

    Raises:
        NotFoundError: the index file is gone.
        FormatError: it is damaged, or marks rows that the data file does not have.
        UnsupportedError: it lies outside the table on a storage that is not read yet.
    """
    where = vector.range
    if where.offset < 1 or where.length < 1 or where.offset + where.length > vector.file_size:
        raise FormatError("deletion vector lies outside its index file", path=vector.path, data_file=where.data_file)
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
        found.setflags(write=False)  # shared from now on, with those who read other parts of the data file
        cache.put(known, found, found.nbytes)
    return found


def _span(vectors: Sequence[FileVector]) -> tuple[int, int]:
    """From where to where the file is read; from its version on, if that is not far."""
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
        paths: Where its files lie.
        vectors: Names of data files and the positions of their deleted rows.
        partition: The partition of the bucket.
        bucket: Its number.
        options: How vectors are stored.
        rolled: Whether a new file is begun when one is full; otherwise all vectors come into one.

    Raises:
        StorageError: a file cannot be written; what was written is removed, as far as the storage lets us.
        InvalidInputError: a position is too large for the width of the vectors.
    """
    written: list[IndexFile] = []
    uuid = store.env.ids.uuid() if vectors else ""
    groups = _rolled(vectors, options.target_bytes) if rolled else [vectors] if vectors else []
    try:
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
            written.append(file)  # before it is there: a write whose answer is lost may have left it
            store.env.io.write(paths.index(partition, bucket, name), data)
    except BaseException:
        remove_index_files(store, paths, written, partition=partition, bucket=bucket)
        raise
    return tuple(written)


def remove_index_files(
    store: TableStore, paths: DataPaths, files: Iterable[IndexFile], *, partition: bytes, bucket: int
) -> None:
    """Remove index files that nobody committed, as far as the storage lets us; the rest are orphans."""
    for file in files:
        with suppress(StorageError):
            store.env.io.delete(paths.index(partition, bucket, file.file_name))


def _rolled(vectors: Sequence[tuple[str, BitMap]], target_bytes: int) -> Iterator[list[tuple[str, BitMap]]]:
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
