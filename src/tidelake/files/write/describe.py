"""The manifest entry of a new data file of an append table."""

from __future__ import annotations

from tidelake.files.options import FileOptions
from tidelake.files.write.rolling import WrittenFile
from tidelake.spec.data_file import DataFile, FileSource
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.stats.column_stats import encode_stats


def describe(
    written: WrittenFile,
    schema: Schema,
    options: FileOptions,
    *,
    sequence: int,
    time_ms: int,
    source: FileSource = FileSource.APPEND,
) -> DataFile:
    """Return the entry of a file whose rows are numbered from `sequence` on."""
    stats, names = encode_stats(written.columns, schema.fields, dense=options.stats_dense)
    return DataFile(
        file_name=written.file_name,
        file_size=written.file_size,
        row_count=written.row_count,
        value_stats=stats,
        value_stats_cols=names,
        min_sequence=sequence,
        max_sequence=sequence + written.row_count - 1,
        schema_id=schema.id,
        creation_time_ms=time_ms,
        file_source=source,
    )
