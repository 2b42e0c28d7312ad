"""Read manifests and manifest lists of old tables that are stored as ORC or Parquet.

The option `manifest.format` allowed these formats up to release 2.0. The records are the same as in Avro, so the
columns have the same paths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.cleanup import raise_as_damage
from tidelake.errors import FormatError
from tidelake.spec.avro.decode import Column, RecordLayout
from tidelake.spec.limits import LIMITS, Limits

_RECORD_BYTES_MIN = 64
"""The least size of a decoded record of a manifest or manifest list: its rows of bounds alone take this much."""


def read_columnar(
    file: BinaryIO, layout: RecordLayout, *, path: str, columns: Sequence[str], limits: Limits = LIMITS
) -> pa.Table:
    """Read the wanted columns of metadata records from an ORC or Parquet file.

    Raises:
        FormatError: the bytes are damaged or expand beyond the limits, a required column is missing, or the version
            is unknown.
    """
    with raise_as_damage(lambda cause: FormatError(f"{layout.kind} is damaged", path=path, cause=str(cause)[:200])):
        table = _read(file, layout, path, limits)
        version = _column(table, layout.columns[0], layout, path)
        wrong = set(pc.unique(version).to_pylist()) - layout.versions
        if wrong:
            raise FormatError(f"{layout.kind} has an unknown version", path=path, version=min(wrong, key=str))
        wanted = [column for column in layout.columns if column.name in columns]
        arrays = [_column(table, column, layout, path) for column in wanted]
        return pa.table(arrays, schema=pa.schema([layout.schema.field(column.name) for column in wanted]))


def _read(file: BinaryIO, layout: RecordLayout, path: str, limits: Limits) -> pa.Table:
    """Read the whole file, in pieces: a small file that expands to a huge table is refused before it fills memory."""
    size = file.seek(0, 2)
    most = min(limits.manifest_bytes_max, size * limits.manifest_ratio_max)
    file.seek(0)
    magic = file.read(4)
    file.seek(0)
    rows, schema, pieces = _parquet(file, most) if magic == b"PAR1" else _orc(file)
    _require(rows * _RECORD_BYTES_MIN <= most, layout, path)
    kept: list[pa.RecordBatch] = []
    taken = 0
    for piece in pieces:
        taken += piece.nbytes
        _require(taken <= limits.manifest_bytes_max, layout, path)
        kept.append(piece)
    return pa.Table.from_batches(kept) if kept else schema.empty_table()


_Opened = tuple[int, pa.Schema, Iterator[pa.RecordBatch]]
"""The number of rows in the metadata of a file, its columns, and its rows piece by piece."""


def _parquet(file: BinaryIO, most: int) -> _Opened:
    import pyarrow.parquet

    reader = pyarrow.parquet.ParquetFile(file)
    meta = reader.metadata
    stored = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
    # A dictionary may store a large value once for all rows, so that larger files are read in smaller batches.
    at_once = max(1, min(65_536, most // max(1, stored)))
    # No Arrow threads: one that releases the Python file while the interpreter shuts down would abort the process.
    pieces = reader.iter_batches(batch_size=at_once, use_threads=False)
    return meta.num_rows, reader.schema_arrow, pieces


def _orc(file: BinaryIO) -> _Opened:
    import pyarrow.orc

    reader = pyarrow.orc.ORCFile(pa.PythonFile(file, mode="r"))
    return reader.nrows, reader.schema, (reader.read_stripe(number) for number in range(reader.nstripes))


def _require(small: bool, layout: RecordLayout, path: str) -> None:
    if not small:
        raise FormatError(f"{layout.kind} is too large after decompression", code="too-large", path=path)


def _column(table: pa.Table, column: Column, layout: RecordLayout, path: str) -> pa.ChunkedArray:
    try:
        values = table.column(column.path[0])
        for name in column.path[1:]:
            values = pc.struct_field(values, name)
    except (KeyError, pa.ArrowInvalid) as cause:
        if column.required:
            field = ".".join(column.path)
            raise FormatError(f"{layout.kind} lacks a field", path=path, field=field) from cause
        return pa.chunked_array([pa.nulls(table.num_rows, column.type)])
    if column.required and values.null_count:
        raise FormatError(f"{layout.kind} lacks a value", path=path, field=".".join(column.path))
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("ms")).cast(pa.int64())
    return values.cast(column.type)
