"""Manifests and manifest lists of old tables, stored as ORC or Parquet.

The option `manifest.format` allowed them up to release 2.0. The records are the same as in Avro, so the columns are
found by the same paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import FormatError
from tidelake.spec.avro_decode import Column, RecordLayout


def read_columnar(file: BinaryIO, layout: RecordLayout, *, path: str, columns: Sequence[str]) -> pa.Table:
    """Read the wanted columns of metadata records from an ORC or Parquet file.

    Raises:
        FormatError: the bytes are damaged, a required column is missing, or the version is not known.
    """
    try:
        table = _read(file)
        version = _column(table, layout.columns[0], layout, path)
        wrong = set(pc.unique(version).to_pylist()) - layout.versions
        if wrong:
            raise FormatError(f"{layout.kind} has a version that is not known", path=path, version=min(wrong, key=str))
        wanted = [column for column in layout.columns if column.name in columns]
        arrays = [_column(table, column, layout, path) for column in wanted]
        return pa.table(arrays, schema=pa.schema([layout.schema.field(column.name) for column in wanted]))
    except FormatError:
        raise
    except Exception as cause:
        raise FormatError(f"{layout.kind} is damaged", path=path, cause=str(cause)[:200]) from cause


def _read(file: BinaryIO) -> pa.Table:
    magic = file.read(4)
    file.seek(0)
    if magic == b"PAR1":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(file)
    import pyarrow.orc

    return pyarrow.orc.ORCFile(pa.PythonFile(file, mode="r")).read()


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
