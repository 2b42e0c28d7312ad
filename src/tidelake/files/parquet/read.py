"""Reads Parquet files: prunes row groups by statistics and streams the others.

Columns are selected by the index of their leaves, because the name of a column may contain dots. Page checksums are
verified. With a predicate, its columns are read first, and the others only for row groups with a match.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.errors import FormatError, UnsupportedError
from tidelake.expr.prune import Bounds, may_match
from tidelake.expr.tree import Predicate
from tidelake.files.arrow_input import copy_ranges, open_natively
from tidelake.files.column_stats import FLOATS, bounds_of_chunk
from tidelake.files.groups import Group, bound_array
from tidelake.files.parquet.footer import Footer, open_footer
from tidelake.files.parquet.pages import PAGE_ROWS, PagesOfFile, Places, estimate_page_share
from tidelake.files.ranges import Range
from tidelake.files.schema_mapping import Source, same_values
from tidelake.io.fileio import InputFile
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import (
    DataType,
    DecimalType,
    ElementType,
    MapType,
    Root,
    RowType,
    TimeType,
    VectorType,
)

__all__ = ["ParquetSource"]

_TABLE_BYTES_MAX: Final = 512 << 20
"""Row groups up to this size are decoded as one table with columns in parallel, larger ones batch by batch."""

_PICKED_MAX: Final = 0.5
"""If the wanted rows are in more than this share of a group's pages, the whole group is read."""
_CODED_BYTES_MAX: Final = 6
"""Text columns with at most so many bytes per row have few distinct values, stored as codes and a dictionary."""
_PADDING_BYTES: Final = 100
"""How far Arrow reads beyond a column chunk, because old writers may store a length that is too small."""


class ParquetSource:
    """An open Parquet file."""

    def __init__(self, file: InputFile, *, path: str, dictionaries: Collection[str] = ()) -> None:
        """Open the file and check its footer.

        Args:
            file: The file.
            path: Its name, for errors.
            dictionaries: Text columns to read as Arrow dictionaries if they are stored with a dictionary.

        Raises:
            FormatError: it is not a Parquet file, or is damaged.
            StorageError: the storage failed.
        """
        self._path = path
        self._file = file
        self._footer: Footer = open_footer(file, path=path)
        self._metadata = self._footer.metadata
        self._dictionaries = self._find_coded_columns(dictionaries)
        native = open_natively(file)
        self._opened = None if native is None else self._open(native)
        schema = self._schema()
        if len(set(schema.names)) != len(schema.names):
            raise FormatError("file has two columns with the same name", path=path)
        self._columns: dict[str, tuple[int, pa.DataType]] = {}
        leaf = 0
        for field in schema:
            plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            self._columns[field.name] = leaf, plain
            leaf += _leaf_count(field.type)
        if leaf != self._metadata.num_columns:
            raise UnsupportedError("Parquet file has columns of an unknown structure", path=path)

    def _open(self, file: pa.NativeFile) -> pq.ParquetFile:
        return pq.ParquetFile(
            file,
            metadata=self._footer.readable,
            page_checksum_verification=True,
            pre_buffer=not isinstance(file, pa.BufferReader),
            arrow_extensions_enabled=False,
            read_dictionary=self._dictionaries,
        )

    def _schema(self) -> pa.Schema:
        opened = self._opened or self._open(pa.BufferReader(b""))  # only the footer is used
        return opened.schema_arrow

    def _find_coded_columns(self, names: Collection[str]) -> list[str]:
        """Return the text columns that are stored as codes of few distinct values."""
        if not names:
            return []
        schema = self._metadata.schema
        # A name with a dot could also be the path of a ROW member, so leave such columns out.
        leaves = {schema.column(place).path: place for place in reversed(range(len(schema)))}
        return [name for name in names if "." not in name and name in leaves and self._is_coded(leaves[name])]

    def _is_coded(self, leaf: int) -> bool:
        if self._metadata.schema.column(leaf).physical_type != "BYTE_ARRAY":
            return False
        chunks = [self._metadata.row_group(number).column(leaf) for number in range(self._metadata.num_row_groups)]
        size = sum(chunk.total_uncompressed_size for chunk in chunks)
        return all(chunk.has_dictionary_page for chunk in chunks) and size <= _CODED_BYTES_MAX * self.row_count

    @property
    def row_count(self) -> int:
        """The number of rows of the file."""
        return int(self._metadata.num_rows)

    def groups(self) -> list[Group]:
        """Return the row groups.

        Raises:
            FormatError: their rows do not add up to those of the file.
        """
        found, first = [], 0
        for number in range(self._metadata.num_row_groups):
            stored = self._metadata.row_group(number)
            rows = stored.num_rows
            found.append(Group(number, first, rows, whole=stored.total_byte_size <= _TABLE_BYTES_MAX))
            first += rows
        if first != self.row_count or any(group.row_count < 0 for group in found):
            raise FormatError("row groups do not add up to the rows of the file", path=self._path, rows=self.row_count)
        return found

    def has(self, name: str) -> bool:
        """Return whether the file has a column with this name."""
        return name in self._columns

    # -- pruning

    def prune_groups(self, groups: Sequence[Group], where: Predicate, sources: Sequence[Source]) -> list[Group]:
        """Return the groups that may have a matching row.

        Raises:
            InvalidInputError: a value of the predicate does not fit its column.
        """
        names = where.columns()
        bounds: dict[str, Bounds] = {}
        rows = pa.array([group.row_count for group in groups], pa.int64())
        for source in sources:
            if source.field.name in names:
                found = self._bounds(groups, source, rows)
                if found is not None:
                    bounds[source.field.name] = found
        keep = may_match(where, bounds, len(groups)).to_pylist()
        return [group for group, kept in zip(groups, keep, strict=True) if kept]

    def _bounds(self, groups: Sequence[Group], source: Source, rows: pa.Array) -> Bounds | None:
        found = source.found
        if found is None or found.name not in self._columns:
            nothing = pa.nulls(len(groups), to_arrow(source.field.type))
            return Bounds(nothing, nothing, rows, rows)
        leaf, arrow_type = self._columns[found.name]
        if not same_values(found.type, source.field.type) or not _is_exact(arrow_type, found.type):
            return None
        if found.type.root in FLOATS and (not self._footer.sealed or leaf in self._footer.nan_leaves):
            return None  # bounds leave NaN out, and it may match
        parts = [bounds_of_chunk(self._metadata.row_group(group.number).column(leaf), found.type) for group in groups]
        target = to_arrow(source.field.type)
        low, high = (bound_array([part[side] for part in parts], target) for side in (0, 1))
        if low is None or high is None:
            return None
        return Bounds(low, high, pa.array([part[2] for part in parts], pa.int64()), rows, without_nan=True)

    # -- rows

    def read(self, group: Group, sources: Sequence[Source], batch_rows: int) -> Iterator[pa.Table]:
        """Yield tables of consecutive rows with the wanted columns that the file has, under the file's names.

        Raises:
            FormatError: the file is damaged.
            StorageError: the storage failed.
        """
        places: list[int] = []
        for source in sources:
            if source.found is not None and source.found.name in self._columns:
                first, arrow_type = self._columns[source.found.name]
                places += _wanted_leaves(arrow_type, source.found.type, first)
        rows = 0
        for table in self._tables(group, places, batch_rows):
            rows += table.num_rows
            yield table
        if rows != group.row_count:
            raise FormatError("row group does not have the number of rows in the footer", path=self._path, rows=rows)

    def pick(self, group: Group, rows: Places, sources: Sequence[Source]) -> pa.Table | None:
        """Read rows of a group from their pages; return None without a page index, or if that would save too little.

        Raises:
            FormatError: the file is damaged.
            StorageError: the storage failed.
        """
        names = {source.found.name for source in sources if source.found is not None}
        leaves = {name: self._columns[name][0] for name in names & self._columns.keys()}
        if not leaves or not len(rows):
            return None
        stored = self._metadata.row_group(group.number)
        largest = max(stored.column(leaf).total_uncompressed_size for leaf in leaves.values())
        if (
            estimate_page_share(rows, row_count=group.row_count, byte_count=largest) > _PICKED_MAX
            or self._pages is None
        ):
            return None
        pages = self._pages.find(group.number, leaves.values())
        shares = [each.share(rows) for each in pages.values()]
        if not pages or sum(held for held, _ in shares) > _PICKED_MAX * sum(whole for _, whole in shares):
            return None
        taken = self._pages.take(group.number, pages, rows)
        columns = {name: taken[leaf] for name, leaf in leaves.items() if leaf in taken}
        others = [
            source for source in sources if source.found is not None and source.found.name in names - columns.keys()
        ]
        return pa.table(columns | self._take_rows(group, rows, others))

    @functools.cached_property
    def _pages(self) -> PagesOfFile | None:
        return PagesOfFile.of(self._file, self._footer, path=self._path)

    def _take_rows(self, group: Group, rows: Places, sources: Sequence[Source]) -> dict[str, pa.ChunkedArray]:
        """Read rows of columns without a usable page index, from the whole group."""
        if not any(source.found is not None and source.found.name in self._columns for source in sources):
            return {}
        first, parts = 0, []
        for table in self.read(group, sources, PAGE_ROWS):
            low, high = np.searchsorted(rows, (first, first + table.num_rows))
            parts.append(table.take(pa.array(rows[low:high] - first)))
            first += table.num_rows
        whole = pa.concat_tables(parts)
        return dict(zip(whole.column_names, whole.columns, strict=True))

    def _tables(self, group: Group, places: list[int], batch_rows: int) -> Iterator[pa.Table]:
        opened = self._opened or self._open(copy_ranges(self._file, self._footer.start, self._chunks(group, places)))
        reader = opened.reader
        several = len(places) > 1  # handing a single column to another thread costs more than decoding it
        if group.whole:
            yield reader.read_row_groups([group.number], column_indices=places, use_threads=several)
            return
        for batch in reader.iter_batches(batch_rows, [group.number], column_indices=places, use_threads=several):
            yield pa.Table.from_batches([batch])

    def _chunks(self, group: Group, places: Sequence[int]) -> Iterator[Range]:
        """Yield the byte ranges of a row group's column chunks."""
        stored = self._metadata.row_group(group.number)
        padding = 0 if self._footer.sealed else _PADDING_BYTES
        for leaf in places:
            chunk = stored.column(leaf)
            # Some writers store 0 as the offset of a missing dictionary.
            start = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
            end = start + chunk.total_compressed_size
            if not 0 <= start <= end <= self._footer.start:
                raise FormatError("footer of the Parquet file refers to pages outside of the file", path=self._path)
            yield start, min(end + padding, self._footer.start)


def _leaf_count(arrow_type: pa.DataType) -> int:
    return max(1, sum(_leaf_count(child) for child in _child_types(arrow_type))) if _is_nested(arrow_type) else 1


def _is_nested(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_struct(arrow_type) or pa.types.is_map(arrow_type) or _is_list(arrow_type))


def _is_list(arrow_type: pa.DataType) -> bool:
    # Other writers store their Arrow schema in the file, which may have large or fixed-size lists.
    kinds = pa.types
    return bool(kinds.is_list(arrow_type) or kinds.is_large_list(arrow_type) or kinds.is_fixed_size_list(arrow_type))


def _child_types(arrow_type: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_map(arrow_type):
        return [arrow_type.key_type, arrow_type.item_type]
    if _is_list(arrow_type):
        return [arrow_type.value_type]
    return [arrow_type.field(index).type for index in range(arrow_type.num_fields)]


def _wanted_leaves(arrow_type: pa.DataType, dtype: DataType, first: int) -> list[int]:
    """Return the leaves below a node of the file that the wanted type needs."""
    everything = list(range(first, first + _leaf_count(arrow_type)))
    if not _is_nested(arrow_type):
        return everything
    kinds = _child_types(arrow_type)
    starts = [first]
    for kind in kinds[:-1]:
        starts.append(starts[-1] + _leaf_count(kind))
    match dtype:
        case RowType(fields=fields) if pa.types.is_struct(arrow_type):
            asked = {field.name: field.type for field in fields}
            found = [
                leaf
                for index, (kind, start) in enumerate(zip(kinds, starts, strict=True))
                if arrow_type.field(index).name in asked
                for leaf in _wanted_leaves(kind, asked[arrow_type.field(index).name], start)
            ]
            return found or everything[:1]
        case ElementType(root=Root.ARRAY, element=element) | VectorType(element=element) if _is_list(arrow_type):
            return _wanted_leaves(kinds[0], element, first)
        case MapType(value=value) if pa.types.is_map(arrow_type):
            # Read keys completely: a map cannot be built without them.
            return [*range(first, starts[1]), *_wanted_leaves(kinds[1], value, starts[1])]
    return everything


def _is_exact(arrow_type: pa.DataType, dtype: DataType) -> bool:
    """Return whether raw statistics of the stored column are values of the type."""
    expected = to_arrow(dtype)
    if isinstance(dtype, DecimalType):
        return bool(pa.types.is_decimal(arrow_type)) and arrow_type.scale == dtype.scale
    if isinstance(dtype, TimeType) and dtype.root is not Root.TIME:
        return bool(pa.types.is_timestamp(arrow_type)) and arrow_type.unit == expected.unit
    return bool(arrow_type == expected)
