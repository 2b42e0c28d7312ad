"""Writing data files: one file (`FileWriter`), or as many as the target size asks for (`RollingWriter`).

A file that was closed is complete and durable, and still belongs to nobody: it counts once a commit names it. Until
then `abort` takes it back. A file without rows is never made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from tidelake.errors import InvalidInputError, StorageError
from tidelake.files.avro_write import AvroEncoder
from tidelake.files.options import FileOptions, check_format, extension_of
from tidelake.files.orc_write import OrcEncoder
from tidelake.files.parquet_write import ParquetEncoder
from tidelake.io.fileio import FileIO, OutputFile, join
from tidelake.spec.arrow_types import row_to_arrow
from tidelake.spec.stats import ColumnStats
from tidelake.spec.stats_modes import StatsMode
from tidelake.spec.types import Field

__all__ = ["FileWriter", "RollingWriter", "WrittenFile"]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A complete data file: its name in its folder, its size, its rows and the statistics of each field, in order."""

    file_name: str
    file_size: int
    row_count: int
    columns: tuple[ColumnStats, ...]


class Encoder(Protocol):
    """Turns batches into the bytes of one format. It writes to an output that its owner closes."""

    @property
    def estimated_size(self) -> int:
        """Bytes of the file if it ended here, as far as that can be told."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes of rows that were taken in and not written."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take in rows."""

    def flush(self) -> None:
        """Write the rows taken in so far."""

    def finish(self) -> tuple[ColumnStats, ...]:
        """Write the rest of the file; returns the statistics of each field."""

    def discard(self) -> None:
        """Let go without writing anything more."""


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
            keys: Names of value columns whose statistics are kept as those of keys are.
            durable: Whether it survives a power loss when `close` returns, or after a later `io.sync`.

        Raises:
            InvalidInputError: there are no fields, or an option has a value the format does not take.
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
        try:
            self._encoder = make(self._output, self._fields, options, modes)
        except BaseException:
            self._output.abort()
            raise

    @property
    def row_count(self) -> int:
        """Rows taken in so far."""
        return self._rows

    @property
    def estimated_size(self) -> int:
        """Bytes of the file if it ended here, as far as that can be told before the rows are compressed."""
        return self._encoder.estimated_size

    @property
    def buffered_bytes(self) -> int:
        """Bytes of rows that were taken in and not written."""
        return self._encoder.buffered_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Take in rows whose columns have the canonical Arrow types of the fields, in their order.

        Raises:
            InvalidInputError: the columns are not those of the file, or one declared NOT NULL holds nulls.
            UnsupportedError: the format cannot hold a value.
            StorageError: the storage failed.
        """
        if not self._open:
            raise InvalidInputError("data file is closed", path=self._path)
        self._check(batch)
        if batch.num_rows:
            self._encoder.write(batch)
            self._rows += batch.num_rows

    def flush(self) -> None:
        """Write the rows taken in so far, so that `estimated_size` is no guess any more."""
        self._encoder.flush()

    def close(self) -> WrittenFile:
        """Complete the file.

        Raises:
            InvalidInputError: no row was written; nothing is left of the file.
            StorageError: the storage failed; nothing is left of the file, as far as the storage lets us.
        """
        if not self._open:
            raise InvalidInputError("data file is closed", path=self._path)
        if self._rows == 0:
            self.abort()
            raise InvalidInputError(
                "data file without rows is never made", path=self._path, hint="write rows, or abort the writer"
            )
        try:
            columns = self._encoder.finish()
            size = self._output.tell()
            self._output.close()
        except BaseException:
            self.abort()
            raise
        self._open = False
        return WrittenFile(self._path.rpartition("/")[2], size, self._rows, columns)

    def abort(self) -> None:
        """Remove what was written; after `close` this does nothing."""
        if self._open:
            self._open = False
            self._encoder.discard()
            self._output.abort()

    def _check(self, batch: pa.RecordBatch) -> None:
        if batch.schema.names != self._schema.names or batch.schema.types != self._schema.types:
            raise InvalidInputError(
                "columns of the batch are not those of the file",
                path=self._path,
                expected=_shown(self._schema),
                found=_shown(batch.schema),
                hint="cast the batch to arrow_types.row_to_arrow of the fields",
            )
        for field, column in zip(self._fields, batch.columns, strict=True):
            if not field.type.nullable and column.null_count:
                raise InvalidInputError(
                    "column declared NOT NULL holds nulls", column=field.name, nulls=column.null_count
                )


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)[:500]


class RollingWriter:
    """Data files in one folder, a new one whenever the last has reached its target."""

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
        """Prepare to write; the first file is made with the first row.

        Args:
            io: Where to write.
            folder: The bucket folder, relative to the root of `io`.
            fields: The columns.
            names: Makes a new file name from an extension such as `parquet`.
            format: `parquet`, `orc` or `avro`.
            options: How to write the files.
            target_bytes: Size at which a file is closed.
            target_rows: Rows at which a file is closed; those of the options when None.
            keys: Names of value columns whose statistics are kept as those of keys are.
            durable: Whether a file survives a power loss once it is closed.

        Raises:
            InvalidInputError: a target is not positive, or an option has a value the format does not take.
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
    def written(self) -> tuple[WrittenFile, ...]:
        """The files completed so far."""
        return tuple(self._written)

    def write(self, batch: pa.RecordBatch) -> None:
        """Take in rows, closing files on the way.

        Raises:
            InvalidInputError: the columns are not those of the files, or one declared NOT NULL holds nulls.
            UnsupportedError: the format cannot hold a value.
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
        """Complete the last file; returns all of them in the order of their rows, none when there were no rows.

        Raises:
            StorageError: the storage failed; call `abort`.
        """
        if self._current is not None:
            self._written.append(self._current.close())
            self._current = None
        self._done = True
        return list(self._written)

    def abort(self) -> None:
        """Remove all files, the completed ones too: nothing refers to them yet."""
        self._done = True
        self._written = []
        if self._current is not None:
            self._current.abort()
            self._current = None
        # By name: an interrupt can come after a file was created and before anything knows it.
        while self._names_used:
            with suppress(StorageError):  # found by orphan cleaning
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
            self._names_used.pop()  # it was not created, or removed again; if the name was taken the file is another's
            raise
        return self._current

    def _step(self, batch: pa.RecordBatch) -> int:
        """Rows to write before the size is looked at: about an eighth of the target."""
        per_row: int = max(1, batch.nbytes // batch.num_rows)
        return max(1000, self._target_bytes // 8 // per_row)

    def _is_full(self, writer: FileWriter) -> bool:
        if writer.row_count >= self._target_rows:
            return True
        if writer.estimated_size < self._target_bytes:
            return False
        # The guess says full: compress what gathered and look at what it really takes.
        writer.flush()
        return writer.estimated_size >= self._target_bytes
