"""Reading a data file with the eyes of a schema that may be newer than the file.

The pipeline is the same for every format: rows that statistics rule out are not read, columns are found by field id and
brought to the wanted types, deleted rows (`skip`) and rows the predicate does not keep are dropped, and what is left
comes out in batches of the wanted columns.

Invariant: what comes out is what reading everything and then filtering would give. No shortcut loses a row.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import FormatError, InvalidInputError, StorageError, TidelakeError
from tidelake.expr.evaluate import matches
from tidelake.expr.tree import Predicate
from tidelake.files.avro_read import AvroSource
from tidelake.files.groups import Group
from tidelake.files.options import check_format
from tidelake.files.orc_read import OrcSource
from tidelake.files.parquet_read import ParquetSource
from tidelake.files.projection import Source, align, canonical, find_sources, same_values
from tidelake.io.fileio import FileIO, InputFile
from tidelake.spec.arrow_types import row_to_arrow, to_arrow
from tidelake.spec.types import Field

__all__ = ["ROW_NUMBER", "check_same", "read_file", "row_count_of"]

ROW_NUMBER: Final = "_ROW_NUMBER"
"""The column that `row_numbers` adds at the end: the place of the row in the file, counted from 0."""


class FileSource(Protocol):
    """An open data file of some format, in groups of consecutive rows."""

    @property
    def row_count(self) -> int:
        """Rows of the file."""

    def groups(self) -> list[Group]:
        """The groups, in the order of their rows."""

    def has(self, name: str) -> bool:
        """Whether the file has a column of this name."""

    def matching(self, groups: Sequence[Group], where: Predicate, sources: Sequence[Source]) -> list[Group]:
        """The groups that may hold a row that matches."""

    def read(self, group: Group, sources: Sequence[Source], batch_rows: int) -> Iterator[pa.Table]:
        """The columns that the file has, by their names in it, in tables of consecutive rows."""

    def pick(self, group: Group, rows: npt.NDArray[np.int64], sources: Sequence[Source]) -> pa.Table | None:
        """The columns that the file has of some rows of a group, counted from its first, without reading the others.

        None where the format cannot do that, or where it saves too little.
        """


class _Opener(Protocol):
    def __call__(self, file: InputFile, *, path: str) -> FileSource: ...


_HEAD_SHARE: Final = 0.8
"""Share of a group's rows up to the last match from which on the group is read whole."""
_SOURCES: Final[dict[str, _Opener]] = {"parquet": ParquetSource, "orc": OrcSource, "avro": AvroSource}


def read_file(
    io: FileIO,
    path: str,
    *,
    format: str,  # noqa: A002 - the word of the options
    file_fields: Sequence[Field],
    read_fields: Sequence[Field],
    where: Predicate | None = None,
    filter_fields: Sequence[Field] = (),
    batch_rows: int = 65536,
    zone: str = "UTC",
    row_numbers: bool = False,
    skip: npt.NDArray[np.int64] | None = None,
    only: npt.NDArray[np.int64] | None = None,
    share: tuple[int, int] = (0, 1),
    file_size: int | None = None,
    row_count: int | None = None,
    dictionaries: Collection[str] = (),
    stream: bool = False,
    loosely: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Read the wanted columns of a file, in the canonical Arrow types of `read_fields`.

    The file is opened with the first batch that is asked for and closed with the last, or when the iterator is closed.

    Args:
        io: Where the file is.
        path: Its name, relative to the root of `io`.
        format: `parquet`, `orc` or `avro`; see `options.format_of`.
        file_fields: The columns of the schema it was written with, system columns included.
        read_fields: The columns to give back, with the ids, names and types of the schema that asks.
        where: Keeps the rows that match, by the names of the schema that asks.
        filter_fields: Columns of that schema which `where` looks at and which are not given back. A name that is in
            neither list is taken from `file_fields`.
        batch_rows: Rows of a batch at most.
        zone: The time zone of casts between timestamps with and without one.
        row_numbers: Whether to add the column `ROW_NUMBER`.
        skip: Places of rows in the file, ascending, each once: they were deleted and do not come out.
        only: Places of rows in the file, ascending, each once: no others come out, and no groups of others are read.
        share: Which of how many parts of the file to read, by groups of rows; the parts together are the file.
        file_size: The size it must have; another one means that it is another file. Not looked at when None.
        row_count: The number of rows it must have, likewise.
        dictionaries: Names of `read_fields` that may come as Arrow dictionaries of their type instead. Those do that
            the file itself has so, with few values; none that `where` looks at.
        stream: Whether memory holds a batch at a time, not a group of rows; with `where` it does not matter, unless
            that is asked `loosely`.
        loosely: Whether `where` only rules out groups of rows: of the others all come out.

    Yields:
        Batches that are not empty, in the order of the file.

    Raises:
        NotFoundError: there is no such file.
        FormatError: it is damaged, or a value of it cannot be converted.
        InvalidInputError: an argument is wrong: a predicate on an unknown column, a `skip` beyond the file's rows.
        UnsupportedError: the format, a type or a conversion is not supported.
        StorageError: the storage failed.
    """
    open_source = _SOURCES[check_format(format, file=path)]
    if batch_rows < 1:
        raise InvalidInputError("batch needs at least one row", batch_rows=batch_rows)
    wanted = find_sources(read_fields, file_fields)
    needed = find_sources(_filter_fields(where, read_fields, filter_fields, file_fields), file_fields)
    if dictionaries and format == "parquet":
        asked = set(dictionaries) - (where.columns() if where is not None else set())
        names = frozenset(each.found.name for each in wanted if each.found is not None and each.field.name in asked)
        open_source = functools.partial(ParquetSource, dictionaries=names)
    pipeline = _Pipeline(path, wanted, needed, where, batch_rows, zone, row_numbers, skip, only, share, stream, loosely)
    return _run(io, path, open_source, pipeline, file_size, row_count)


def row_count_of(io: FileIO, path: str, *, format: str) -> int:  # noqa: A002 - the word of the options
    """How many rows a file has, without reading them where the format says so itself.

    Raises:
        NotFoundError: there is no such file.
        FormatError: it is damaged.
        UnsupportedError: the format is not supported.
        StorageError: the storage failed.
    """
    open_source = _SOURCES[check_format(format, file=path)]
    with _Guard(path):
        file = io.open_input(path)
        try:
            return open_source(file, path=path).row_count
        finally:
            file.close()


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


def _run(
    io: FileIO, path: str, open_source: _Opener, pipeline: _Pipeline, file_size: int | None, row_count: int | None
) -> Iterator[pa.RecordBatch]:
    with _Guard(path):
        file = io.open_input(path)
        try:
            check_same("bytes", file.size(), file_size, path)
            source = open_source(file, path=path)
            check_same("rows", source.row_count, row_count, path)
            yield from pipeline.batches(source)
        finally:
            file.close()


def check_same(what: str, found: int, expected: int | None, path: str) -> None:
    """Refuse a file that is not the one its manifest tells of: its rows would be taken for those of the table.

    Raises:
        FormatError: it has more or less of `what` than it must.
    """
    if expected is not None and found != expected:
        raise FormatError(
            f"data file has another number of {what} than its manifest says",
            code="file-replaced",
            path=path,
            expected=expected,
            found=found,
            hint="the file was cut off or replaced: restore it from a copy, or remove it from the table",
        )


class _Guard:
    """Turns what a library says of damaged bytes into a `FormatError` that names the file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TidelakeError):
            if isinstance(error, FormatError):
                error.facts.setdefault("path", self._path)
            return
        if isinstance(error, OSError) and error.errno is not None:
            # With a number it came from the system: the disk failed while the open file was read.
            raise StorageError("data file could not be read", path=self._path, cause=str(error)[:300]) from error
        # Arrow reports damage as any of these.
        if isinstance(error, pa.ArrowException | OSError | ValueError | KeyError | IndexError | OverflowError):
            raise FormatError(
                "data file is damaged",
                path=self._path,
                cause=f"{type(error).__name__}: {error}"[:300],
                hint="restore the file from a copy, or remove it from the table",
            ) from error


class _Pipeline:
    """The steps from a group of stored rows to batches of the wanted columns."""

    def __init__(
        self,
        path: str,
        wanted: Sequence[Source],
        needed: Sequence[Source],
        where: Predicate | None,
        batch_rows: int,
        zone: str,
        row_numbers: bool,
        skip: npt.NDArray[np.int64] | None,
        only: npt.NDArray[np.int64] | None,
        share: tuple[int, int],
        stream: bool,
        loosely: bool,
    ) -> None:
        self._path = path
        self._wanted = wanted
        self._needed = needed
        self._where = where
        self._batch_rows = batch_rows
        self._zone = zone
        self._row_numbers = row_numbers
        self._skip = skip if skip is not None and len(skip) else None
        self._only = only
        self._share = share
        self._stream = stream
        self._loosely = loosely
        schema = row_to_arrow([source.field for source in wanted])
        self._schema = schema.append(pa.field(ROW_NUMBER, pa.int64(), nullable=False)) if row_numbers else schema
        needed_names = {source.field.name for source in needed}
        # Read once the predicate has found a match; what it looks at is there already.
        self._later = [source for source in wanted if source.field.name not in needed_names]

    def batches(self, source: FileSource) -> Iterator[pa.RecordBatch]:
        groups = source.groups()
        if self._skip is not None:
            if int(self._skip[0]) < 0 or int(self._skip[-1]) >= source.row_count:
                raise InvalidInputError(
                    "deleted rows are given that the file does not have",
                    path=self._path,
                    rows=source.row_count,
                    given=self._skip[-1],
                )
            groups = [group for group in groups if not self._is_gone(group)]
        if self._only is not None:
            groups = [group for group in groups if len(_among(self._only, group.first_row, group.row_count))]
        if self._where is not None and groups:
            groups = source.matching(groups, self._where, self._needed)
        part, parts = self._share
        for group in groups[len(groups) * part // parts : len(groups) * (part + 1) // parts]:
            if self._where is None or self._loosely:
                yield from self._plain(source, group)
            else:
                yield from self._filtered(source, group, self._where)

    def _is_gone(self, group: Group) -> bool:
        assert self._skip is not None
        return 0 < group.row_count == len(_among(self._skip, group.first_row, group.row_count))

    def _plain(self, source: FileSource, group: Group) -> Iterator[pa.RecordBatch]:
        first = group.first_row
        if self._only is not None:
            keep = self._kept(first, group.row_count)
            rows = np.arange(group.row_count) if keep is None else np.flatnonzero(keep)
            picked = source.pick(group, rows, self._wanted) if len(rows) else None
            if picked is not None:
                yield from self._batches(self._columns(picked, self._wanted), len(rows), first + rows)
                return
        if self._stream and group.row_count > self._batch_rows:
            group = replace(group, whole=False)
        for table in self._tables(source, group, self._wanted):
            keep = self._kept(first, table.num_rows)
            yield from self._out(self._columns(table, self._wanted), first, table.num_rows, keep)
            first += table.num_rows

    def _filtered(self, source: FileSource, group: Group, where: Predicate) -> Iterator[pa.RecordBatch]:
        # A group that comes in one piece shows first what the predicate looks at, and the rest if that matches. One
        # that comes in several is read once: its pieces need not be cut alike for other columns.
        first = group.first_row
        for table in self._tables(source, group, self._needed if group.whole else (*self._needed, *self._later)):
            columns = self._columns(table, self._needed)
            keep = _matching(where, columns, table.num_rows)
            kept = self._kept(first, table.num_rows)
            keep = keep if kept is None else keep & kept
            if keep.any():
                rest = table
                if self._later and group.whole:
                    rows = np.flatnonzero(keep)
                    picked = source.pick(group, rows, self._later)
                    if picked is not None:
                        columns = {name: column.filter(pa.array(keep)) for name, column in columns.items()}
                        columns |= self._columns(picked, self._later)
                        yield from self._batches(columns, len(rows), first + rows)
                        return
                    rest = self._head(source, group, int(rows[-1]) + 1)
                columns |= self._columns(rest, self._later)
                if rest.num_rows < table.num_rows:
                    columns = {name: column.slice(0, rest.num_rows) for name, column in columns.items()}
                yield from self._out(columns, first, rest.num_rows, keep[: rest.num_rows])
            first += table.num_rows

    def _head(self, source: FileSource, group: Group, rows: int) -> pa.Table:
        """At least so many rows of the columns that the predicate does not look at; what follows is not decoded."""
        if rows > group.row_count * _HEAD_SHARE:
            return next(self._tables(source, group, self._later))
        found: list[pa.Table] = []
        for table in self._tables(source, replace(group, whole=False), self._later):
            found.append(table)
            rows -= table.num_rows
            if rows <= 0:
                break
        return pa.concat_tables(found)

    def _tables(self, source: FileSource, group: Group, sources: Sequence[Source]) -> Iterator[pa.Table]:
        """The stored columns of a group."""
        if any(each.found is not None and source.has(each.found.name) for each in sources):
            yield from source.read(group, sources, self._batch_rows)
            return
        # Nothing of it is stored: rows without columns, which still count.
        yield pa.table({"nothing": pa.nulls(group.row_count)})

    def _columns(self, table: pa.Table, sources: Sequence[Source]) -> dict[str, pa.ChunkedArray]:
        found = {}
        stored = dict(zip(table.column_names, table.columns, strict=True))  # Arrow looks through all names for each
        for source in sources:
            target = to_arrow(source.field.type)
            column = None if source.found is None else stored.get(source.found.name)
            if source.found is None or column is None:
                found[source.field.name] = pa.chunked_array([pa.nulls(table.num_rows, target)])
                continue
            if pa.types.is_dictionary(column.type):
                if column.type.value_type == target and same_values(source.found.type, source.field.type):
                    found[source.field.name] = column
                    continue
                column = column.cast(column.type.value_type)
            try:
                chunks = [
                    align(canonical(chunk, source.found.type), source.found.type, source.field.type, self._zone)
                    for chunk in column.chunks
                ]
            except TidelakeError as error:
                error.facts.setdefault("column", source.field.name)
                error.facts.setdefault("path", self._path)
                raise
            found[source.field.name] = pa.chunked_array(chunks, target)
        return found

    def _kept(self, first: int, rows: int) -> np.ndarray | None:
        """Which of some rows come out, as far as places tell; None for all."""
        keep: np.ndarray | None = None
        if self._only is not None:
            keep = np.zeros(rows, dtype=bool)
            keep[_among(self._only, first, rows)] = True
        if self._skip is not None:
            deleted = _among(self._skip, first, rows)
            if len(deleted):
                keep = np.ones(rows, dtype=bool) if keep is None else keep
                keep[deleted] = False
        return keep

    def _out(
        self, columns: dict[str, pa.ChunkedArray], first: int, rows: int, keep: np.ndarray | None
    ) -> Iterator[pa.RecordBatch]:
        if keep is None or keep.all():
            numbers = np.arange(first, first + rows, dtype=np.int64) if self._row_numbers else None
            yield from self._batches(columns, rows, numbers)
            return
        mask = pa.array(keep)
        names = [source.field.name for source in self._wanted]
        columns = {name: columns[name].filter(mask) for name in names}  # half the time of a filter of the table
        left = np.flatnonzero(keep) + first if self._row_numbers else None
        yield from self._batches(columns, int(np.count_nonzero(keep)), left)

    def _batches(
        self, columns: dict[str, pa.ChunkedArray], rows: int, numbers: npt.NDArray[np.int64] | None
    ) -> Iterator[pa.RecordBatch]:
        """The wanted ones of columns in batches; `numbers` are the places of their rows in the file, where wanted."""
        arrays = [columns[source.field.name] for source in self._wanted]
        if self._row_numbers:
            arrays.append(pa.chunked_array([pa.array(numbers)]))
        if not arrays:
            yield from _empty_batches(rows, self._batch_rows)
            return
        table = pa.Table.from_arrays(arrays, schema=_with_dictionaries(self._schema, arrays))
        for batch in table.to_batches(max_chunksize=self._batch_rows):
            if batch.num_rows:
                yield batch


def _among(places: npt.NDArray[np.int64], first: int, rows: int) -> npt.NDArray[np.int64]:
    """Those of sorted places that lie among some rows, counted from the first of these."""
    low, high = np.searchsorted(places, (first, first + rows))
    return places[low:high] - first


def _with_dictionaries(schema: pa.Schema, arrays: Sequence[pa.ChunkedArray]) -> pa.Schema:
    if not any(pa.types.is_dictionary(array.type) for array in arrays):
        return schema
    fields = zip(schema, arrays, strict=True)
    return pa.schema(
        [field.with_type(array.type) if pa.types.is_dictionary(array.type) else field for field, array in fields],
        schema.metadata,
    )


def _matching(where: Predicate, columns: dict[str, pa.ChunkedArray], rows: int) -> np.ndarray:
    whole = {name: _one_chunk(column) for name, column in columns.items()}
    mask: np.ndarray = pc.fill_null(matches(where, whole, rows), False).to_numpy(zero_copy_only=False)
    return mask


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _empty_batches(rows: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Rows without columns: their number is all there is."""
    for start in range(0, rows, batch_rows):
        count = min(batch_rows, rows - start)
        yield pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None]))
