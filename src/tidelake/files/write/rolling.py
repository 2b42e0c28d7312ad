"""Writes data files: one file (`FileWriter`), or several of a target size (`RollingWriter`).

A closed file is complete and durable, but not part of a table until a commit adds it. Until then `abort` deletes it. A
file without rows is never created.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from tidelake.cleanup import undo_on_error
from tidelake.errors import InvalidInputError, StorageError
from tidelake.files.avro.write import AvroEncoder
from tidelake.files.options import FileOptions, check_format, extension_of
from tidelake.files.orc.write import OrcEncoder
from tidelake.files.parquet.write import ParquetEncoder
from tidelake.io.fileio import FileIO, OutputFile, join
from tidelake.spec.stats.column_stats import ColumnStats
from tidelake.spec.stats.stats_modes import StatsMode
from tidelake.spec.types.arrow_types import row_to_arrow
from tidelake.spec.types.data_types import Field

__all__ = ["FileWriter", "RollingWriter", "WrittenFile"]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A complete data file: its name in its folder, its size, its row count and the statistics of each field."""

    file_name: str
    file_size: int
    row_count: int
    columns: tuple[ColumnStats, ...]


class Encoder(Protocol):
    """Encodes batches in one format and writes them to an output, which the caller closes."""

    @property
    def estimated_size(self) -> int:
        """The estimated size of the file if it were completed now."""

    @property
    def buffered_bytes(self) -> int:
        """The size of buffered rows."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Buffer or write rows."""

    def flush(self) -> None:
        """Write the buffered rows."""

    def finish(self) -> tuple[ColumnStats, ...]:
        """Write the rest of the file; return the statistics of each field."""

    def discard(self) -> None:
        """Drop everything without writing any more."""


_ENCODERS: Final[dict[str, Callable[[OutputFile, Sequence[Field], FileOptions, Sequence[StatsMode]], Encoder]]] = {
    "parquet": ParquetEncoder,
    "orc": OrcEncoder,
    "avro": AvroEncoder,
}


class FileWriter:
    """One open data file."""

    def __init__(
        self,
        io: FileIO,
        path: str,
        fields: Sequence[Field],
        *,
        format: str,  # noqa: A002 - the word of the options
        options: FileOptions,
        keys: Collection[str] = (),
        durable: bool = True,
    ) -> None:
        """Open the file.

        Args:
            io: Where to write.
            path: The name of the file, relative to the root of `io`.
            fields: Its columns.
            format: `parquet`, `orc` or `avro`.
            options: How to write it.
            keys: Names of value columns that keep statistics like key columns.
            durable: Whether it survives a power loss when `close` returns, or only after a later `io.sync`.

        Raises:
            InvalidInputError: `fields` is empty, or an option has a value that the format does not accept.
            UnsupportedError: the format, one of its options or a type is not supported.
            StorageError: the storage failed, or the name is taken.
        """
        if not fields:
            raise InvalidInputError("data file needs at least one column", path=path)
        make = _ENCODERS[check_format(format)]
        options.check_library_options(format)
        extension_of(format, options)
        self._io = io
        self._path = path
        self._fields = tuple(fields)
        self._schema = row_to_arrow(fields)
        self._rows = 0
        self._open = True
        modes = options.stats_modes(fields, keys)
        self._output = io.open_output(path, durable=durable)
        with undo_on_error(self._output.abort):
            self._encoder = make(self._output, self._fields, options, modes)

    @property
    def row_count(self) -> int:
        """The number of rows so far."""
        return self._rows

    @property
    def estimated_size(self) -> int:
        """The estimated size of the file if it were completed now; buffered rows are not compressed yet."""
        return self._encoder.estimated_size

    @property
    def buffered_bytes(self) -> int:
        """The size of buffered rows."""
        return self._encoder.buffered_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows whose columns have the canonical Arrow types of the fields, in the same order.

        Raises:
            InvalidInputError: the columns are not those of the file, or a NOT NULL column has nulls.
            UnsupportedError: the format cannot store a value.
            StorageError: the storage failed.
        """
        if not self._open:
            raise InvalidInputError("data file is closed", path=self._path)
        self._check(batch)
        if batch.num_rows:
            self._encoder.write(batch)
            self._rows += batch.num_rows

    def flush(self) -> None:
        """Write the buffered rows if the format allows it, so that `estimated_size` gets more exact."""
        self._encoder.flush()

    def close(self) -> WrittenFile:
        """Complete the file.

        Raises:
            InvalidInputError: no row was written; the file was deleted.
            StorageError: the storage failed; the file was deleted if the storage allowed it.
        """
        if not self._open:
            raise InvalidInputError("data file is closed", path=self._path)
        if self._rows == 0:
            self.abort()
            raise InvalidInputError(
                "data file without rows cannot be completed", path=self._path, hint="write rows, or abort the writer"
            )
        with undo_on_error(self.abort):
            columns = self._encoder.finish()
            size = self._output.tell()
            self._output.close()
        self._open = False
        return WrittenFile(self._path.rpartition("/")[2], size, self._rows, columns)

    def abort(self) -> None:
        """Delete what was written; after `close` this does nothing."""
        if self._open:
            self._open = False
            self._encoder.discard()
            self._output.abort()

    def _check(self, batch: pa.RecordBatch) -> None:
        if batch.schema.names != self._schema.names or batch.schema.types != self._schema.types:
            raise InvalidInputError(
                "columns of the batch are not those of the file",
                path=self._path,
                expected=_format_schema(self._schema),
                found=_format_schema(batch.schema),
                hint="cast the batch to arrow_types.row_to_arrow of the fields",
            )
        for field, column in zip(self._fields, batch.columns, strict=True):
            if not field.type.nullable and column.null_count:
                raise InvalidInputError(
                    "NOT NULL column has nulls",
                    column=field.name,
                    nulls=column.null_count,
                    hint="give every row a value, or make the column nullable",
                )


def _format_schema(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)[:500]


class RollingWriter:
    """Writes data files into one folder, and starts a new one when the last has reached its target."""

    def __init__(
        self,
        io: FileIO,
        folder: str,
        fields: Sequence[Field],
        *,
        names: Callable[[str], str],
        format: str,  # noqa: A002 - the word of the options
        options: FileOptions,
        target_bytes: int,
        target_rows: int | None = None,
        keys: Collection[str] = (),
        durable: bool = True,
    ) -> None:
        """Prepare to write; the first file is created with the first row.

        Args:
            io: Where to write.
            folder: The bucket folder, relative to the root of `io`.
            fields: The columns.
            names: Returns a new file name for an extension such as `parquet`.
            format: `parquet`, `orc` or `avro`.
            options: How to write the files.
            target_bytes: The size at which a file is closed.
            target_rows: The number of rows at which a file is closed; by default that of the options.
            keys: Names of value columns that keep statistics like key columns.
            durable: Whether a file survives a power loss once it is closed.

        Raises:
            InvalidInputError: a target is not positive, or an option has a value that the format does not accept.
            UnsupportedError: the format is not supported.
        """
        rows = options.target_rows if target_rows is None else target_rows
        if target_bytes < 1 or rows < 1:
            raise InvalidInputError("target of a data file is not positive", bytes=target_bytes, rows=rows)
        self._io = io
        self._folder = folder
        self._fields = tuple(fields)
        self._extension = extension_of(check_format(format), options)
        self._names = names
        self._format = format
        self._options = options
        self._target_bytes = target_bytes
        self._target_rows = rows
        self._keys = frozenset(keys)
        self._durable = durable
        self._current: FileWriter | None = None
        self._written: list[WrittenFile] = []
        self._names_used: list[str] = []
        self._done = False

    @property
    def written_files(self) -> tuple[WrittenFile, ...]:
        """The files completed so far."""
        return tuple(self._written)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows, and close every file that has reached its target.

        Raises:
            InvalidInputError: the columns are not those of the files, or a NOT NULL column has nulls.
            UnsupportedError: the format cannot store a value.
            StorageError: the storage failed.
        """
        if self._done:
            raise InvalidInputError("writer is closed", folder=self._folder)
        start = 0
        while start < batch.num_rows:
            writer = self._current or self._open()
            rows = min(batch.num_rows - start, self._target_rows - writer.row_count, self._step(batch))
            writer.write(batch.slice(start, rows))
            start += rows
            if self._is_full(writer):
                self._written.append(writer.close())
                self._current = None

    def close(self) -> list[WrittenFile]:
        """Complete the last file; return all files in the order of their rows, or none if there were no rows.

        Raises:
            StorageError: the storage failed; call `abort`.
        """
        if self._current is not None:
            self._written.append(self._current.close())
            self._current = None
        self._done = True
        return list(self._written)

    def abort(self) -> None:
        """Delete all files, including completed ones: nothing refers to them yet."""
        self._done = True
        self._written = []
        if self._current is not None:
            self._current.abort()
            self._current = None
        # Delete by name: an interrupt may have come after a file was created and before its writer was stored.
        while self._names_used:
            with suppress(StorageError):  # orphan cleaning deletes it later
                self._io.delete(join(self._folder, self._names_used.pop()))

    def _open(self) -> FileWriter:
        name = self._names(self._extension)
        self._names_used.append(name)
        try:
            self._current = FileWriter(
                self._io,
                join(self._folder, name),
                self._fields,
                format=self._format,
                options=self._options,
                keys=self._keys,
                durable=self._durable,
            )
        except Exception:
            # The file was not created or already deleted; if the name was taken, the file is another writer's.
            self._names_used.pop()
            raise
        return self._current

    def _step(self, batch: pa.RecordBatch) -> int:
        """Return how many rows to write before checking the size: about an eighth of the target."""
        per_row: int = max(1, batch.nbytes // batch.num_rows)
        return max(1000, self._target_bytes // 8 // per_row)

    def _is_full(self, writer: FileWriter) -> bool:
        if writer.row_count >= self._target_rows:
            return True
        if writer.estimated_size < self._target_bytes:
            return False
        # The estimate says that the file is full: write the buffered rows to get the exact size.
        writer.flush()
        return writer.estimated_size >= self._target_bytes
