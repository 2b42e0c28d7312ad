"""The writer of one bucket of an append table.

It decides the names and sizes of new data files. Files are durable when `close` returns, and not part of the table
until a commit adds them; before that `abort` deletes them.
"""

from __future__ import annotations

import itertools

import pyarrow as pa

from tidelake.files.options import FileOptions
from tidelake.files.write.describe import describe
from tidelake.files.write.rolling import RollingWriter
from tidelake.io.clock import local_time_ms
from tidelake.io.env import Env
from tidelake.spec.data_file import DataFile, FileSource
from tidelake.spec.schemas.schema import Schema

__all__ = ["BucketWriter"]


class BucketWriter:
    """Writes data files into the folder of a bucket, in the format and size that the options ask for."""

    def __init__(self, env: Env, folder: str, schema: Schema, options: FileOptions) -> None:
        """Prepare to write; the first file is created with the first row.

        Raises:
            InvalidInputError: an option has a value that the format does not accept.
            UnsupportedError: the format is not supported.
        """
        job, numbers = env.ids.uuid(), itertools.count()
        self._env = env
        self._schema = schema
        self._options = options
        self._writer = RollingWriter(
            env.io,
            folder,
            schema.fields,
            names=lambda extension: f"{options.prefix}{job}-{next(numbers)}.{extension}",
            format=options.format,
            options=options,
            target_bytes=options.target_bytes(primary_key=False),
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows with the columns and types of the schema.

        Raises:
            InvalidInputError: the columns are not those of the schema, or a NOT NULL column has nulls.
            UnsupportedError: the format cannot store a value.
            StorageError: the storage failed.
        """
        self._writer.write(batch)

    def close(self, *, sequence: int, source: FileSource = FileSource.APPEND) -> tuple[DataFile, ...]:
        """Complete the files and return their manifest entries; their rows are numbered from `sequence` on.

        Raises:
            StorageError: the storage failed; call `abort`.
        """
        complete = self._writer.close()
        time_ms = local_time_ms(self._env.clock)
        files = []
        for written in complete:
            files.append(
                describe(written, self._schema, self._options, sequence=sequence, time_ms=time_ms, source=source)
            )
            sequence += written.row_count
        return tuple(files)

    def abort(self) -> None:
        """Delete all files, including completed ones."""
        self._writer.abort()
