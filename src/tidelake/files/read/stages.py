"""The stages from an open file to batches: choose groups of rows, decode, align, select rows, deliver.

`files/read` says what each stage does and where a new one goes.

Invariant: what comes out is what reading everything and then filtering would give. No shortcut loses a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError, TidelakeError
from tidelake.expr.evaluate import matches
from tidelake.expr.tree import Predicate
from tidelake.files.groups import Group
from tidelake.files.read.request import RowRequest, StoredFile
from tidelake.files.schema_mapping import Source, canonical, cast_to_schema, find_sources, same_values
from tidelake.spec.types.arrow_types import row_to_arrow, to_arrow
from tidelake.spec.types.data_types import Field

__all__ = ["ROW_NUMBER", "Columns", "FileSource", "choose_groups", "find_columns", "read_groups"]

ROW_NUMBER: Final = "_ROW_NUMBER"
"""The column that `positions` adds at the end: the position of the row in the file, counted from 0."""
_HEAD_SHARE: Final = 0.8
"""Share of a group's rows up to the last match from which on the group is read whole."""

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class FileSource(Protocol):
    """An open data file of some format, in groups of consecutive rows."""

    @property
    def row_count(self) -> int:
        """Rows of the file."""

    def groups(self) -> list[Group]:
        """The groups, in the order of their rows."""

    def has(self, name: str) -> bool:
        """Whether the file has a column of this name."""

    def prune_groups(self, groups: Sequence[Group], where: Predicate, sources: Sequence[Source]) -> list[Group]:
        """The groups that may hold a row that matches."""

    def read(self, group: Group, sources: Sequence[Source], batch_rows: int) -> Iterator[pa.Table]:
        """The columns that the file has, by their names in it, in tables of consecutive rows."""

    def pick(self, group: Group, rows: npt.NDArray[np.int64], sources: Sequence[Source]) -> pa.Table | None:
        """The columns that the file has of some rows of a group, counted from its first, without reading the others.

        None where the format cannot do that, or where it saves too little.
        """


# ------------------------------------------------------------------------------------------------ columns


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a file that a read looks at."""

    wanted: Sequence[Source]
    """Those that come out."""
    of_condition: Sequence[Source]
    """Those that the condition looks at."""

    @property
    def without_condition(self) -> list[Source]:
        """The wanted ones that the condition does not look at: they are read once it has found a match."""
        known = {source.field.name for source in self.of_condition}
        return [source for source in self.wanted if source.field.name not in known]


def find_columns(file: StoredFile, request: RowRequest) -> Columns:
    """Find the columns of a read in the schema that a file was written with.

    Raises:
        InvalidInputError: the condition looks at a column that does not exist.
    """
    looked_at = _filter_fields(request.where, request.fields, request.filter_fields, file.fields)
    return Columns(find_sources(request.fields, file.fields), find_sources(looked_at, file.fields))


def _filter_fields(
    where: Predicate | None, read_fields: Sequence[Field], more: Sequence[Field], file_fields: Sequence[Field]
) -> list[Field]:
    """The fields that the predicate looks at, in the order of the lists."""
    if where is None:
        return []
    names = where.columns()
    by_name = {field.name: field for fields in (file_fields, more, read_fields) for field in fields}
    unknown = sorted(names - by_name.keys())
    if unknown:
        raise InvalidInputError(
            "predicate looks at a column that is not there",
            column=unknown[0],
            hint=f"columns are {', '.join(by_name)}",
        )
    return [field for name, field in by_name.items() if name in names]


# ------------------------------------------------------------------------------------------------ choose


def choose_groups(source: FileSource, file: StoredFile, request: RowRequest, columns: Columns) -> list[Group]:
    """The groups of rows to read: none that is deleted whole, not asked for, or ruled out by its statistics.

    Raises:
        InvalidInputError: deleted rows are given that the file does not have.
    """
    groups = source.groups()
    deleted, only = file.deleted, file.only
    if deleted is not None and len(deleted):
        if int(deleted[0]) < 0 or int(deleted[-1]) >= source.row_count:
            raise InvalidInputError(
                "deleted rows are given that the file does not have",
                path=file.path,
                rows=source.row_count,
                given=deleted[-1],
            )
        groups = [group for group in groups if not _is_deleted(group, deleted)]
    if only is not None:
        groups = [group for group in groups if len(_positions_in(only, group.first_row, group.row_count))]
    if request.where is not None and groups:
        groups = source.prune_groups(groups, request.where, columns.of_condition)
    part, parts = request.delivery.share
    return groups[len(groups) * part // parts : len(groups) * (part + 1) // parts]


def _is_deleted(group: Group, deleted: Positions) -> bool:
    return 0 < group.row_count == len(_positions_in(deleted, group.first_row, group.row_count))


def _positions_in(positions: Positions, first: int, rows: int) -> Positions:
    """Those of sorted positions that lie among some rows, counted from the first of these."""
    low, high = np.searchsorted(positions, (first, first + rows))
    return positions[low:high] - first


# ------------------------------------------------------------------------------------------------ the other stages


def read_groups(
    source: FileSource, file: StoredFile, request: RowRequest, columns: Columns
) -> Iterator[pa.RecordBatch]:
    """The wanted rows of an open file in batches that are not empty, in the order of the file."""
    reader = _GroupReader(source, file, request, columns)
    for group in choose_groups(source, file, request, columns):
        if request.where is None or request.prune_only:
            yield from reader.read_whole(group)
        else:
            yield from reader.read_matches(group, request.where)


class _GroupReader:
    """Takes the groups of one file through the stages behind the choice of groups."""

    def __init__(self, source: FileSource, file: StoredFile, request: RowRequest, columns: Columns) -> None:
        self._source, self._file, self._request = source, file, request
        self._wanted, self._of_condition = columns.wanted, columns.of_condition
        self._rest = columns.without_condition
        self._batch_rows = request.delivery.batch_rows
        self._deleted = file.deleted if file.deleted is not None and len(file.deleted) else None
        schema = row_to_arrow([each.field for each in columns.wanted])
        numbered = request.positions
        self._schema = schema.append(pa.field(ROW_NUMBER, pa.int64(), nullable=False)) if numbered else schema

    def read_whole(self, group: Group) -> Iterator[pa.RecordBatch]:
        """The rows of a group that positions let through."""
        first = group.first_row
        if self._file.only is not None:
            keep = self._mask_of(first, group.row_count)
            rows = np.arange(group.row_count) if keep is None else np.flatnonzero(keep)
            picked = self._source.pick(group, rows, self._wanted) if len(rows) else None
            if picked is not None:
                yield from self._deliver(self._align(picked, self._wanted), len(rows), first + rows)
                return
        if self._request.delivery.stream and group.row_count > self._batch_rows:
            group = replace(group, whole=False)
        for table in self._decode(group, self._wanted):
            keep = self._mask_of(first, table.num_rows)
            yield from self._select(self._align(table, self._wanted), first, table.num_rows, keep)
            first += table.num_rows

    def read_matches(self, group: Group, where: Predicate) -> Iterator[pa.RecordBatch]:
        """The rows of a group that the condition and positions let through."""
        # A group that comes in one piece shows first what the condition looks at, and the rest if that matches. One
        # that comes in several is read once: its pieces need not be cut alike for other columns.
        first = group.first_row
        for table in self._decode(group, self._of_condition if group.whole else (*self._of_condition, *self._rest)):
            columns = self._align(table, self._of_condition)
            keep = _find_matches(where, columns, table.num_rows)
            there = self._mask_of(first, table.num_rows)
            keep = keep if there is None else keep & there
            if keep.any():
                rest = table
                if self._rest and group.whole:
                    rows = np.flatnonzero(keep)
                    picked = self._source.pick(group, rows, self._rest)
                    if picked is not None:
                        columns = {name: column.filter(pa.array(keep)) for name, column in columns.items()}
                        columns |= self._align(picked, self._rest)
                        yield from self._deliver(columns, len(rows), first + rows)
                        return
                    rest = self._decode_head(group, int(rows[-1]) + 1)
                columns |= self._align(rest, self._rest)
                if rest.num_rows < table.num_rows:
                    columns = {name: column.slice(0, rest.num_rows) for name, column in columns.items()}
                yield from self._select(columns, first, rest.num_rows, keep[: rest.num_rows])
            first += table.num_rows

    # -- decode

    def _decode(self, group: Group, sources: Sequence[Source]) -> Iterator[pa.Table]:
        """The stored columns of a group."""
        if any(each.found is not None and self._source.has(each.found.name) for each in sources):
            yield from self._source.read(group, sources, self._batch_rows)
            return
        # Nothing of it is stored: rows without columns, which still count.
        yield pa.table({"nothing": pa.nulls(group.row_count)})

    def _decode_head(self, group: Group, rows: int) -> pa.Table:
        """At least so many rows of the columns that the condition does not look at; what follows is not decoded."""
        if rows > group.row_count * _HEAD_SHARE:
            return next(self._decode(group, self._rest))
        found: list[pa.Table] = []
        for table in self._decode(replace(group, whole=False), self._rest):
            found.append(table)
            rows -= table.num_rows
            if rows <= 0:
                break
        return pa.concat_tables(found)

    # -- align

    def _align(self, table: pa.Table, sources: Sequence[Source]) -> dict[str, pa.ChunkedArray]:
        """Stored columns as the columns of the schema that asks."""
        aligned = {}
        stored = dict(zip(table.column_names, table.columns, strict=True))  # Arrow looks through all names for each
        for source in sources:
            target = to_arrow(source.field.type)
            column = None if source.found is None else stored.get(source.found.name)
            if source.found is None or column is None:
                aligned[source.field.name] = pa.chunked_array([pa.nulls(table.num_rows, target)])
                continue
            if pa.types.is_dictionary(column.type):
                if column.type.value_type == target and same_values(source.found.type, source.field.type):
                    aligned[source.field.name] = column
                    continue
                column = column.cast(column.type.value_type)
            try:
                found, wanted, zone = source.found.type, source.field.type, self._request.zone
                chunks = [cast_to_schema(canonical(chunk, found), found, wanted, zone) for chunk in column.chunks]
            except TidelakeError as error:
                error.facts.setdefault("column", source.field.name)
                error.facts.setdefault("path", self._file.path)
                raise
            aligned[source.field.name] = pa.chunked_array(chunks, target)
        return aligned

    # -- select rows

    def _mask_of(self, first: int, rows: int) -> Mask | None:
        """Which of some rows positions let through; None for all."""
        keep: Mask | None = None
        if self._file.only is not None:
            keep = np.zeros(rows, dtype=bool)
            keep[_positions_in(self._file.only, first, rows)] = True
        if self._deleted is not None:
            deleted = _positions_in(self._deleted, first, rows)
            if len(deleted):
                keep = np.ones(rows, dtype=bool) if keep is None else keep
                keep[deleted] = False
        return keep

    def _select(
        self, columns: dict[str, pa.ChunkedArray], first: int, rows: int, keep: Mask | None
    ) -> Iterator[pa.RecordBatch]:
        """The kept rows of columns, delivered."""
        if keep is None or keep.all():
            numbers = np.arange(first, first + rows, dtype=np.int64) if self._request.positions else None
            yield from self._deliver(columns, rows, numbers)
            return
        mask = pa.array(keep)
        names = [source.field.name for source in self._wanted]
        columns = {name: columns[name].filter(mask) for name in names}  # half the time of a filter of the table
        left = np.flatnonzero(keep) + first if self._request.positions else None
        yield from self._deliver(columns, int(np.count_nonzero(keep)), left)

    # -- deliver

    def _deliver(
        self, columns: dict[str, pa.ChunkedArray], rows: int, numbers: Positions | None
    ) -> Iterator[pa.RecordBatch]:
        """The wanted columns in batches; `numbers` are the positions of their rows in the file, where wanted."""
        arrays = [columns[source.field.name] for source in self._wanted]
        if self._request.positions:
            arrays.append(pa.chunked_array([pa.array(numbers)]))
        if not arrays:
            yield from _empty_batches(rows, self._batch_rows)
            return
        table = pa.Table.from_arrays(arrays, schema=_with_dictionaries(self._schema, arrays))
        for batch in table.to_batches(max_chunksize=self._batch_rows):
            if batch.num_rows:
                yield batch


def _find_matches(where: Predicate, columns: dict[str, pa.ChunkedArray], rows: int) -> Mask:
    whole = {name: _one_chunk(column) for name, column in columns.items()}
    mask: Mask = pc.fill_null(matches(where, whole, rows), False).to_numpy(zero_copy_only=False)
    return mask


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _with_dictionaries(schema: pa.Schema, arrays: Sequence[pa.ChunkedArray]) -> pa.Schema:
    if not any(pa.types.is_dictionary(array.type) for array in arrays):
        return schema
    fields = zip(schema, arrays, strict=True)
    return pa.schema(
        [field.with_type(array.type) if pa.types.is_dictionary(array.type) else field for field, array in fields],
        schema.metadata,
    )


def _empty_batches(rows: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Rows without columns: their number is all there is."""
    for start in range(0, rows, batch_rows):
        count = min(batch_rows, rows - start)
        yield pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None]))
