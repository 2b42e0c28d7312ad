"""Reads rows of a Parquet row group from the pages that have them, instead of the whole row group.

Arrow can only read whole row groups. If a file has a page index, the pages with wanted rows are copied, column by
column, into a small Parquet file with its own footer, which Arrow then reads with all its checks. The page index is
verified with its checksum if the footer has one (`footer`), and is always checked for consistency.

Invariant: the rows are those that reading the whole row group would give.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.errors import FormatError
from tidelake.files.parquet.footer import MAGIC, Footer
from tidelake.files.parquet.thrift import I32, I64, LIST, STRUCT, Struct, read_struct, write_struct
from tidelake.files.ranges import Range, join_ranges, read_at
from tidelake.io.fileio import InputFile

__all__ = ["PAGE_ROWS", "Pages", "PagesOfFile", "Places", "estimate_page_share", "locate_rows"]

Places = npt.NDArray[np.int64]
"""Rows of a group, counted from its first row, ascending and distinct."""

PAGE_ROWS: Final = 20_000
"""The largest number of rows that writers put into a page; below, the usual size in bytes."""
_PAGE_BYTES: Final = 1 << 20
_CHUNKS_MAX: Final = 2048
"""The number of column chunks up to which a footer is parsed: each costs Python time."""
_INDEX_BYTES_MAX: Final = 16 << 20

# Numbers of the Parquet definition: fields of FileMetaData, SchemaElement, RowGroup, ColumnChunk, ColumnMetaData.
_VERSION, _SCHEMA, _FILE_ROWS, _GROUPS = 1, 2, 3, 4
_CHILDREN = 5
_COLUMNS, _GROUP_BYTES, _GROUP_ROWS = 1, 2, 3
_FILE_OFFSET, _META, _INDEX_OFFSET, _INDEX_LENGTH = 2, 3, 4, 5
_TYPE, _ENCODINGS, _PATH, _CODEC = 1, 2, 3, 4
_VALUES, _RAW_BYTES, _BYTES, _DATA_OFFSET, _DICTIONARY_OFFSET = 5, 6, 7, 9, 11


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of one column of one row group."""

    start: int
    """The offset of the first page, which may be the dictionary."""
    offsets: Places
    """The offsets of the data pages."""
    sizes: Places
    firsts: Places
    """The first row of each data page, counted from the first row of the group."""
    row_count: int

    @property
    def counts(self) -> Places:
        """The number of rows of each data page."""
        return np.diff(np.append(self.firsts, self.row_count))

    def share(self, rows: Places) -> tuple[int, int]:
        """Return the size of the pages with wanted rows, and of all pages."""
        return int(self.sizes[self.find_pages(rows)].sum()), int(self.sizes.sum())

    def find_pages(self, rows: Places) -> Places:
        """Return the numbers of the pages with wanted rows."""
        return np.unique(np.searchsorted(self.firsts, rows, side="right") - 1)


def estimate_page_share(rows: Places, *, row_count: int, byte_count: int) -> float:
    """Estimate the share of a column's pages that have wanted rows, from its rows and bytes in the group."""
    page = max(1, min(PAGE_ROWS, row_count * _PAGE_BYTES // max(byte_count, 1)))
    return len(np.unique(rows // page)) / max(1, -(-row_count // page))


class PagesOfFile:
    """The page index of an open file."""

    def __init__(self, file: InputFile, footer: Footer, *, path: str) -> None:
        """Parse the footer without reading the file."""
        self._file, self._footer, self._path = file, footer, path
        tree = read_struct(footer.readable_bytes)
        elements: list[Struct] = tree[_SCHEMA][1][1]
        self._root = elements[0]
        self._leaves = [element for element in elements if _CHILDREN not in element]
        self._groups: list[Struct] = tree[_GROUPS][1][1] if _GROUPS in tree else []
        self._index: tuple[int, bytes] | None = None

    @classmethod
    def of(cls, file: InputFile, footer: Footer, *, path: str) -> PagesOfFile | None:
        """Return the page index of a file; None if it has no reliable one, or if parsing it would cost too much."""
        metadata = footer.metadata
        chunks = metadata.num_row_groups * metadata.num_columns
        # With an Arrow schema in the footer columns have other types than in our small file, which does not have it.
        if not 0 < chunks <= _CHUNKS_MAX or b"ARROW:schema" in (metadata.metadata or {}):
            return None
        if footer.sealed and not 0 < footer.index_bytes <= _INDEX_BYTES_MAX:
            return None
        return cls(file, footer, path=path)

    def find(self, group: int, leaves: Iterable[int]) -> dict[int, Pages]:
        """Return the pages of a row group's columns by leaf, for leaves that are flat and have a page index.

        An inconsistent index of another writer is ignored.

        Raises:
            FormatError: an index that we wrote is damaged.
            StorageError: the storage failed.
        """
        chunks: list[Struct] = self._groups[group][_COLUMNS][1][1]
        wanted = {leaf: chunks[leaf] for leaf in leaves if self._is_flat(leaf) and _INDEX_OFFSET in chunks[leaf]}
        if not wanted:
            return {}
        rows = int(self._groups[group][_GROUP_ROWS][1])
        try:
            start, data = self._index_bytes(wanted.values())
            return {leaf: self._pages(data, start, chunk, rows) for leaf, chunk in wanted.items()}
        except (FormatError, KeyError, IndexError, TypeError, ValueError) as error:
            if not self._footer.sealed:
                return {}
            raise FormatError(
                "page index of the Parquet file does not match its checksum",
                path=self._path,
                hint="the file is damaged: restore it from a copy, or remove it from the table",
            ) from error

    def _is_flat(self, leaf: int) -> bool:
        column = self._footer.metadata.schema.column(leaf)
        return bool(
            column.max_repetition_level == 0 and column.max_definition_level <= 1 and column.path == column.name
        )

    def _index_bytes(self, chunks: Iterable[Struct]) -> tuple[int, bytes]:
        """Return the offset and the bytes of the page index of these columns."""
        if self._index is not None:
            return self._index
        if self._footer.sealed:
            start, size = self._footer.start - self._footer.index_bytes, self._footer.index_bytes
        else:
            ends = [(int(chunk[_INDEX_OFFSET][1]), int(chunk[_INDEX_LENGTH][1])) for chunk in chunks]
            start = min(offset for offset, _ in ends)
            size = max(offset + length for offset, length in ends) - start
        _check(start >= len(MAGIC) and 0 < size <= _INDEX_BYTES_MAX and start + size <= self._footer.start)
        data = read_at(self._file, start, size)
        if self._footer.sealed:
            _check(zlib.crc32(data) == self._footer.index_checksum)
            self._index = start, data
        return start, data

    def _pages(self, data: bytes, start: int, chunk: Struct, rows: int) -> Pages:
        at, size = int(chunk[_INDEX_OFFSET][1]) - start, int(chunk[_INDEX_LENGTH][1])
        _check(at >= 0 and 0 < size <= len(data) - at)
        locations = read_struct(data[at : at + size])[1][1][1]
        cells = [(each[1][1], each[2][1], each[3][1]) for each in locations]
        offsets, sizes, firsts = (np.array(column, np.int64) for column in zip(*cells, strict=True))
        meta: Struct = chunk[_META][1]
        data_offset = int(meta[_DATA_OFFSET][1])
        # Some writers store 0 as the offset of a missing dictionary.
        dictionary = int(meta[_DICTIONARY_OFFSET][1]) if _DICTIONARY_OFFSET in meta else 0
        first = min(data_offset, dictionary or data_offset)
        end, ends = first + int(meta[_BYTES][1]), offsets + sizes
        _check(len(MAGIC) <= first <= offsets[0] and ends[-1] <= end <= self._footer.start)
        _check((sizes > 0).all() and (ends[:-1] <= offsets[1:]).all())
        _check(firsts[0] == 0 and (np.diff(np.append(firsts, rows)) > 0).all())
        return Pages(first, offsets, sizes, firsts, rows)

    def take(self, group: int, pages: Mapping[int, Pages], rows: Places) -> dict[int, pa.ChunkedArray]:
        """Read rows of a row group's columns, by leaf.

        Raises:
            FormatError: the file is damaged.
            StorageError: the storage failed.
        """
        chosen = {leaf: each.find_pages(rows) for leaf, each in pages.items()}
        ranges: list[tuple[int, int]] = []
        for leaf, each in pages.items():
            ranges.append((each.start, int(each.offsets[0])))
            ranges += [(int(each.offsets[at]), int(each.offsets[at] + each.sizes[at])) for at in chosen[leaf].tolist()]
        read = _Ranges(self._file, ranges)
        found = {}
        for leaf, each in pages.items():
            dictionary = read.bytes(each.start, int(each.offsets[0]))
            body = [
                read.bytes(int(each.offsets[at]), int(each.offsets[at] + each.sizes[at]))
                for at in chosen[leaf].tolist()
            ]
            counts = each.counts[chosen[leaf]]
            column = self._column(group, leaf, dictionary, b"".join(body), int(counts.sum()))
            found[leaf] = column.take(pa.array(locate_rows(each.firsts[chosen[leaf]], counts, rows)))
        return found

    def _column(self, group: int, leaf: int, dictionary: bytes, body: bytes, rows: int) -> pa.ChunkedArray:
        """Decode pages of a column as a Parquet file that has nothing else."""
        stored: Struct = self._groups[group][_COLUMNS][1][1][leaf][_META][1]
        meta: Struct = {number: stored[number] for number in (_TYPE, _ENCODINGS, _PATH, _CODEC)}
        meta[_VALUES] = I64, rows
        meta[_RAW_BYTES] = stored[_RAW_BYTES]
        meta[_BYTES] = I64, len(dictionary) + len(body)
        meta[_DATA_OFFSET] = I64, len(MAGIC) + len(dictionary)
        if dictionary:
            meta[_DICTIONARY_OFFSET] = I64, len(MAGIC)
        chunk: Struct = {_FILE_OFFSET: (I64, len(MAGIC)), _META: (STRUCT, meta)}
        row_group: Struct = {
            _COLUMNS: (LIST, (STRUCT, [chunk])),
            _GROUP_BYTES: stored[_RAW_BYTES],
            _GROUP_ROWS: (I64, rows),
        }
        footer = write_struct(
            {
                _VERSION: (I32, 1),
                _SCHEMA: (LIST, (STRUCT, [{**self._root, _CHILDREN: (I32, 1)}, self._leaves[leaf]])),
                _FILE_ROWS: (I64, rows),
                _GROUPS: (LIST, (STRUCT, [row_group])),
            }
        )
        data = b"".join((MAGIC, dictionary, body, footer, len(footer).to_bytes(4, "little"), MAGIC))
        opened = pq.ParquetFile(
            pa.BufferReader(data), page_checksum_verification=True, pre_buffer=False, arrow_extensions_enabled=False
        )
        column = opened.read(use_threads=False).column(0)
        if len(column) != rows:
            raise FormatError("pages do not have the number of rows in their index", path=self._path, rows=rows)
        return column


def locate_rows(firsts: Places, counts: Places, rows: Places) -> Places:
    """Return the positions of rows of a group among the concatenated rows of some of its pages."""
    page = np.searchsorted(firsts, rows, side="right") - 1
    found: Places = rows - firsts[page] + (np.cumsum(counts) - counts)[page]
    return found


def _check(fine: object) -> None:
    if not fine:
        raise FormatError("page index of the Parquet file is inconsistent")


class _Ranges:
    """Ranges of a file, read in as few steps as possible."""

    def __init__(self, file: InputFile, ranges: Sequence[Range]) -> None:
        joined = join_ranges(ranges)
        self._starts = [start for start, _ in joined]
        self._data = [read_at(file, start, end - start) for start, end in joined]

    def bytes(self, start: int, end: int) -> bytes:
        """Return the bytes of one range."""
        if end <= start:
            return b""
        at = int(np.searchsorted(self._starts, start, side="right")) - 1
        first = start - self._starts[at]
        return self._data[at][first : first + end - start]
