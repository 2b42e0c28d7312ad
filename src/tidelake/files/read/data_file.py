"""Reading a data file with the eyes of a schema that may be newer than the file.

A `RowRequest` says what is wanted, a `StoredFile` which file it is. The same stages follow each other for every format,
each of them one place:

1. **open** (here): the file, checked to be the one that its manifest names, as a `FileSource` of its format;
2. **choose** (`stages.choose_groups`): the groups of rows that positions and statistics do not rule out;
3. **decode** (`FileSource.read`, `pick`): the stored columns that are needed, of those groups;
4. **align** (`projection`): columns found by field id and brought to the wanted types, null where the file has none;
5. **select**: rows that the condition keeps, without those that a deletion vector or `only` leaves out;
6. **deliver**: batches of the wanted columns, their positions behind them where they are wanted.

Where something new goes:

- **column files** (data evolution: several files with some columns each of the same rows): stage 1, a `FileSource` over
  the sources of those files. Later stages ask a source for columns by name and do not see how many files have them;
- **VARIANT shredding**: `stored leaves -> VARIANT` belongs to stage 4, as a case of `projection.canonical`; the leaves
  that a path needs are chosen where a format chooses the leaves of a ROW (stage 3);
- **BLOB**: a stage between 5 and 6 that replaces descriptors by bytes, so that only rows that are left are fetched;
- **file indexes** (bloom, bitmap): stage 2, before statistics are asked; one that knows rows gives `StoredFile.only`.

Planning, merging and what surrounds a file in its table is in `ops/read`.

Invariant: what comes out is what reading everything and then filtering would give. No shortcut loses a row.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final, Protocol

import pyarrow as pa

from tidelake.errors import FormatError, InvalidInputError, StorageError, TidelakeError
from tidelake.files.avro.read import AvroSource
from tidelake.files.options import check_format
from tidelake.files.orc.read import OrcSource
from tidelake.files.parquet.read import ParquetSource
from tidelake.files.read.request import RowRequest, StoredFile
from tidelake.files.read.stages import ROW_NUMBER, Columns, FileSource, find_columns, read_groups
from tidelake.io.fileio import FileIO, InputFile

__all__ = ["ROW_NUMBER", "check_same", "read_file", "row_count_of"]


class _Opener(Protocol):
    def __call__(self, file: InputFile, *, path: str) -> FileSource: ...


_SOURCES: Final[dict[str, _Opener]] = {"parquet": ParquetSource, "orc": OrcSource, "avro": AvroSource}


def read_file(file: StoredFile, request: RowRequest) -> Iterator[pa.RecordBatch]:
    """Read the wanted columns of a file, in the canonical Arrow types of the fields that are asked for.

    The file is opened with the first batch that is asked for and closed with the last, or when the iterator is closed.

    Yields:
        Batches that are not empty, in the order of the file.

    Raises:
        NotFoundError: the file does not exist.
        FormatError: it is damaged, or a value of it cannot be converted.
        InvalidInputError: the request is wrong: a condition on an unknown column, deleted rows beyond the file's.
        UnsupportedError: the format, a type or a conversion is not supported.
        StorageError: the storage failed.
    """
    open_source = _SOURCES[check_format(file.format, file=file.path)]
    if request.delivery.batch_rows < 1:
        raise InvalidInputError("batch needs at least one row", batch_rows=request.delivery.batch_rows)
    columns = find_columns(file, request)
    if request.delivery.dictionaries and file.format == "parquet":
        open_source = functools.partial(ParquetSource, dictionaries=_stored_names(request, columns))
    return _read(file, request, columns, open_source)


def _stored_names(request: RowRequest, columns: Columns) -> frozenset[str]:
    """The names in the file of the columns that may come as dictionaries."""
    asked = request.delivery.dictionaries - (request.where.columns() if request.where is not None else frozenset())
    sources = [each for each in columns.wanted if each.field.name in asked]
    return frozenset(each.found.name for each in sources if each.found is not None)


def _read(stored: StoredFile, request: RowRequest, columns: Columns, open_source: _Opener) -> Iterator[pa.RecordBatch]:
    with _Guard(stored.path):
        file = stored.io.open_input(stored.path)
        try:
            check_same("bytes", file.size(), stored.size, stored.path)
            source = open_source(file, path=stored.path)
            check_same("rows", source.row_count, stored.row_count, stored.path)
            yield from read_groups(source, stored, request, columns)
        finally:
            file.close()


def row_count_of(io: FileIO, path: str, *, format: str) -> int:  # noqa: A002 - the word of the options
    """How many rows a file has, without reading them where the format says so itself.

    Raises:
        NotFoundError: the file does not exist.
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


def check_same(what: str, found: int, expected: int | None, path: str) -> None:
    """Refuse a file that is not the one its manifest describes: its rows would pass for rows of the table.

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
