"""Which columns of a Parquet file are worth a dictionary, told from a sample of their first rows.

A dictionary of values that hardly repeat is built in vain: it costs more than all other work on such a column, and the
file grows. The sample errs on the side of no dictionary where equal values only ever stand side by side; those compress
well without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["dictionary_columns"]

_ROWS_MIN: Final = 1024
"""With fewer rows neither choice matters."""
_SAMPLE: Final = 8192


def dictionary_columns(table: pa.Table, *, wanted: bool) -> bool | list[str]:
    """What Arrow's writer takes as `use_dictionary`: columns of a row group whose values repeat, and nested ones."""
    if not wanted or table.num_rows < _ROWS_MIN:
        return wanted
    plain = {name for name, column in zip(table.column_names, table.columns, strict=True) if not _repeats(column)}
    if not plain:
        return True
    return [path for path in _paths(table.schema) if path not in plain]


def _paths(schema: pa.Schema) -> Sequence[str]:
    """The leaves of all columns as Parquet names them, which only Arrow itself can tell of nested ones."""
    if not any(pa.types.is_nested(dtype) for dtype in schema.types):
        return tuple(schema.names)
    empty = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), empty, version="1.0", use_compliant_nested_type=True)
    found = pq.ParquetFile(empty.getvalue()).schema
    return tuple(found.column(index).path for index in range(len(found)))


def _repeats(column: pa.ChunkedArray) -> bool:
    dtype = column.type
    if pa.types.is_nested(dtype) or pa.types.is_boolean(dtype) or pa.types.is_null(dtype):
        return True
    rows = len(column)
    places = np.arange(0, rows, -(-rows // _SAMPLE))
    sample = len(places)
    seen = sample - len(column.take(pa.array(places)).unique())
    # Of a sample of s rows among D equally likely values about s² / 2D repeat; a quarter as many values as rows pay.
    return bool(seen >= min(sample / 2, 2 * sample * sample / rows))
