"""Decides from a sample of the first rows which columns of a Parquet file get a dictionary.

Building a dictionary of values that hardly repeat costs more than all other work on the column, and makes the file
larger. If equal values are always adjacent, the sample misses that they repeat; such columns compress well without a
dictionary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["dictionary_columns"]

_ROWS_MIN: Final = 1024
"""With fewer rows the choice does not matter."""
_SAMPLE: Final = 8192


def dictionary_columns(table: pa.Table, *, wanted: bool) -> bool | list[str]:
    """Return `use_dictionary` for Arrow's writer: the columns whose values repeat, and nested columns."""
    if not wanted or table.num_rows < _ROWS_MIN:
        return wanted
    plain = {name for name, column in zip(table.column_names, table.columns, strict=True) if not _repeats(column)}
    if not plain:
        return True
    return [path for path in _paths(table.schema) if path not in plain]


def _paths(schema: pa.Schema) -> Sequence[str]:
    """Return Parquet's names of all leaves; for nested columns only Arrow knows them, so let it write an empty file."""
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
    # In a sample of s rows, D equally likely values give about s² / 2D repetitions. A dictionary pays if D is at most a
    # quarter of the rows.
    return bool(seen >= min(sample / 2, 2 * sample * sample / rows))
