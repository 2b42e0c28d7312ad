"""The writer of one bucket of an append table: rows in, described data files out.

The one place that says how new data files are named and sized. Files are durable when `close` returns and belong to
nobody until a commit names them; `abort` takes them back at any time before.
"""

from __future__ import annotations

import itertools

import pyarrow as pa

from tidelake.files.describe import describe
from tidelake.files.options import FileOptions
from tidelake.files.write import RollingWriter
from tidelake.io.clock import local_time_ms
from tidelake.io.env import Env
from tidelake.spec.data_file import DataFile, FileSource
from tidelake.spec.schema import Schema

__all__ = ["BucketWriter"]


class BucketWriter:
    """Rolling data files in the folder of a bucket, in the format and size that the options ask for."""

    def __init__(self, env: Env, folder: str, schema: Schema, options: FileOptions) -> None:
        """Prepare to write; the first file is made with the first row.

        Raises:
            InvalidInputError: an option has a value the format does not take.
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
        """Take in rows of the schema's columns and types.

        Raises:
            InvalidInputError: the columns are not those of the schema, or one declared NOT NULL holds nulls.
            UnsupportedError: the format cannot hold a value.
            StorageError: the storage failed.
        """
        self._writer.write(batch)

    def close(self, *, sequence: int, source: FileSource = FileSource.APPEND) -> tuple[DataFile, ...]:
        """Complete the files and describe them; their rows are numbered from `sequence` on.

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
        """Remove all files, the completed ones too."""
        self._writer.abort()
