"""Data files of primary-key tables: their columns, and the writer of sorted rows of one level of a bucket.

A file has the key columns (unless thin), the sequence number and the kind of each row, then the columns of the table.
Files are durable when `close` returns, and not part of the table until a commit adds them; before that `abort` deletes
them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.files.options import FileOptions
from tidelake.files.write.rolling import RollingWriter, WrittenFile
from tidelake.io.clock import local_time_ms
from tidelake.io.env import Env
from tidelake.lsm.engine import KIND, SEQUENCE
from tidelake.spec.data_file import DataFile, FileSource
from tidelake.spec.rows.binary_row import encode_rows
from tidelake.spec.schemas.schema import KEY_COLUMN_PREFIX, SYSTEM_FIELD_ID_MIN, Schema
from tidelake.spec.stats.column_stats import encode_stats
from tidelake.spec.types.arrow_types import row_to_arrow
from tidelake.spec.types.data_types import Field, Root, SimpleType, with_nullable

__all__ = ["KIND_FIELD", "SEQUENCE_FIELD", "KeyedWriter", "keyed_fields"]

SEQUENCE_FIELD: Final = Field(2147483646, SEQUENCE, SimpleType(Root.BIGINT, nullable=False))
KIND_FIELD: Final = Field(2147483645, KIND, SimpleType(Root.TINYINT, nullable=False))


def keyed_fields(schema: Schema, *, thin: bool = False) -> tuple[Field, ...]:
    """Return the columns of a data file of a primary-key table, in order.

    Args:
        schema: The schema of the table.
        thin: Whether to leave out the key columns, whose values are also in the columns of the table.
    """
    keys = [schema.field(name) for name in schema.trimmed_primary_keys]
    stored = [
        Field(SYSTEM_FIELD_ID_MIN + key.id, KEY_COLUMN_PREFIX + key.name, with_nullable(key.type, False))
        for key in keys
    ]
    return (*(() if thin else stored), SEQUENCE_FIELD, KIND_FIELD, *schema.fields)


@dataclass(slots=True)
class _FileTally:
    """What the manifest entry of an open file needs to know of its rows."""

    rows: int = 0
    min_key: bytes = b""
    max_key: bytes = b""
    min_sequence: int = 0
    max_sequence: int = 0
    deletes: int = 0


class KeyedWriter:
    """Writes data files of sorted rows with each key once into the folder of a bucket, or changelog files.

    In a changelog file a key may occur several times.
    """

    def __init__(
        self,
        env: Env,
        folder: str,
        schema: Schema,
        options: FileOptions,
        *,
        level: int,
        source: FileSource,
        changelog: bool = False,
        names: Callable[[str], str] | None = None,
    ) -> None:
        """Prepare to write; the first file is created with the first row.

        `names` returns a new file name for an extension, if the default names are not wanted.

        Raises:
            InvalidInputError: an option has a value that the format does not accept.
            UnsupportedError: the format is not supported.
        """
        job, numbers = env.ids.uuid(), itertools.count()
        self._env = env
        self._schema = schema
        self._options = options.for_changelog(level) if changelog else options.for_level(level)
        self._level = level
        self._source = source
        self._fields = keyed_fields(schema, thin=options.thin)
        self._arrow = row_to_arrow(self._fields)
        self._thin = options.thin
        self._seen: list[_FileTally] = [_FileTally()]
        self._writer = RollingWriter(
            env.io,
            folder,
            self._fields,
            names=names or (lambda extension: f"{self._options.prefix}{job}-{next(numbers)}.{extension}"),
            format=self._options.format,
            options=self._options,
            target_bytes=options.target_bytes(primary_key=True),
            keys=schema.trimmed_primary_keys if options.thin else (),
        )

    def write(self, rows: pa.Table) -> None:
        """Write rows that sort after all previous ones: the columns of the table, the sequence number and the kind.

        Raises:
            InvalidInputError: a NOT NULL column has nulls.
            UnsupportedError: the format cannot store a value.
            StorageError: the storage failed.
        """
        for batch in rows.combine_chunks().to_batches():
            before = len(self._writer.written_files)
            self._writer.write(self._to_file_columns(batch))
            self._note(batch, self._writer.written_files[before:])

    def close(self) -> tuple[DataFile, ...]:
        """Complete the files and return their manifest entries.

        Raises:
            StorageError: the storage failed; call `abort`.
        """
        complete = self._writer.close()
        time_ms = local_time_ms(self._env.clock)
        return tuple(
            self._describe(written, seen, time_ms) for written, seen in zip(complete, self._seen, strict=False)
        )

    def abort(self) -> None:
        """Delete all files, including completed ones."""
        self._writer.abort()

    def _to_file_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays: list[Any] = []
        for field in self._fields:
            name = field.name
            if name.startswith(KEY_COLUMN_PREFIX) and name not in batch.schema.names:
                name = name[len(KEY_COLUMN_PREFIX) :]
            arrays.append(batch.column(name))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)

    def _note(self, batch: pa.RecordBatch, closed: tuple[WrittenFile, ...]) -> None:
        """Update the tally of each file; writing the batch may have closed some files and opened others."""
        start = 0
        for written in closed:
            rows = written.row_count - self._seen[-1].rows
            self._add(batch.slice(start, rows))
            self._seen.append(_FileTally())
            start += rows
        if start < batch.num_rows:
            self._add(batch.slice(start))

    def _add(self, rows: pa.RecordBatch) -> None:
        seen = self._seen[-1]
        names = self._schema.trimmed_primary_keys
        types = [with_nullable(self._schema.field(name).type, False) for name in names]
        ends = pa.array([0, rows.num_rows - 1])
        first, last = encode_rows([rows.column(name).take(ends) for name in names], types, length=2).to_pylist()
        numbers = pc.min_max(rows.column(SEQUENCE))
        low, high = numbers["min"].as_py(), numbers["max"].as_py()
        kinds = rows.column(KIND).to_numpy(zero_copy_only=False)
        if seen.rows == 0:
            seen.min_key, seen.min_sequence, seen.max_sequence = first, low, high
        seen.max_key = last
        seen.min_sequence, seen.max_sequence = min(seen.min_sequence, low), max(seen.max_sequence, high)
        seen.deletes += int((kinds & 1).sum())
        seen.rows += rows.num_rows

    def _describe(self, written: WrittenFile, seen: _FileTally, time_ms: int) -> DataFile:
        by_name = dict(zip((field.name for field in self._fields), written.columns, strict=True))
        keys = [self._schema.field(name) for name in self._schema.trimmed_primary_keys]
        prefix = "" if self._thin else KEY_COLUMN_PREFIX
        key_stats, _ = encode_stats([by_name[prefix + key.name] for key in keys], keys, dense=False)
        values = [by_name[field.name] for field in self._schema.fields]
        value_stats, names = encode_stats(values, self._schema.fields, dense=self._options.stats_dense)
        return DataFile(
            file_name=written.file_name,
            file_size=written.file_size,
            row_count=written.row_count,
            min_key=seen.min_key,
            max_key=seen.max_key,
            key_stats=key_stats,
            value_stats=value_stats,
            value_stats_cols=names,
            min_sequence=seen.min_sequence,
            max_sequence=seen.max_sequence,
            schema_id=self._schema.id,
            level=self._level,
            creation_time_ms=time_ms,
            delete_row_count=seen.deletes,
            file_source=self._source,
        )
