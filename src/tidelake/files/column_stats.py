"""Statistics of a data file's columns, taken from a Parquet footer or collected batch by batch.

A second pass over the data would cost more than the statistics are worth, so Parquet's own are used where they are
exact. What they leave out is collected while rows are written: NaN, which Arrow silently skips, and bounds of texts and
bytes that are too long for Arrow's footer.

Invariant: as in `spec.stats`, bounds are never wrong; if they might be, there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelake.files.int96 import is_int96
from tidelake.spec.stats.column_stats import UNKNOWN, ColumnStats, collect, is_comparable
from tidelake.spec.stats.stats_modes import FULL, StatsKind, StatsMode, truncate
from tidelake.spec.types.data_types import DataType, DecimalType, Root, TimeType

__all__ = ["RunningStats", "bounds_of_chunk", "finish", "has_nan", "long_bounds"]

FLOATS: Final = frozenset({Root.FLOAT, Root.DOUBLE})
_NESTED: Final = frozenset({Root.ARRAY, Root.MAP, Root.ROW, Root.MULTISET, Root.VECTOR, Root.VARIANT})
_WITHOUT: Final = _NESTED | {Root.BLOB, Root.GEOMETRY, Root.GEOGRAPHY}
_ARROW_LENGTH_MAX: Final = 4096
"""Arrow's writer leaves longer bounds out of the footer."""


def finish(low: Any, high: Any, null_count: int | None, dtype: DataType, mode: StatsMode) -> ColumnStats:
    """Return the statistics of a column that a mode keeps, given its exact bounds (None: unknown)."""
    if mode.kind is StatsKind.NONE or dtype.root in _WITHOUT:
        return UNKNOWN
    if mode.kind is StatsKind.COUNTS or low is None or high is None or not is_comparable(dtype):
        return ColumnStats(null_count=null_count)
    if dtype.root in FLOATS:
        # A query treats both zeros as equal, but not every reader orders doubles so: widen to -0.0 and 0.0.
        low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
    if mode.length is not None and isinstance(high, str | bytes):
        cut = truncate(low, high, mode.length)
        if cut is None:
            return ColumnStats(null_count=null_count)
        low, high = cut
    return ColumnStats(low, high, null_count)


def has_nan(array: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether a float column has NaN values."""
    return bool(pc.any(pc.is_nan(array)).as_py())


def long_bounds(column: pa.ChunkedArray, dtype: DataType) -> tuple[Any, Any] | None:
    """Return the bounds of a text or bytes column if it has values too long for Arrow's footer, else None."""
    if dtype.root not in (Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY):
        return None
    if all(_longest(chunk) <= _ARROW_LENGTH_MAX for chunk in column.chunks):
        return None
    stats = collect(column, dtype, FULL)
    return stats.min, stats.max


def _longest(chunk: pa.Array) -> int:
    offsets = np.frombuffer(chunk.buffers()[1], np.int32, len(chunk) + 1, chunk.offset * 4)
    return int(np.max(np.diff(offsets), initial=0))


def bounds_of_chunk(chunk: pq.ColumnChunkMetaData, dtype: DataType) -> tuple[Any, Any, int | None]:
    """Return the footer's bounds (in the internal domain) and null count of one column of one row group.

    Bounds are None if there are none, or if the stored type is not that of the column.
    """
    statistics = chunk.statistics if chunk.is_stats_set else None
    if statistics is None:
        return None, None, None
    null_count = statistics.null_count if statistics.has_null_count else None
    if not statistics.has_min_max or is_int96(dtype) or not is_comparable(dtype):
        return None, None, null_count
    low = _internal(statistics.min_raw, statistics.physical_type, dtype)
    high = _internal(statistics.max_raw, statistics.physical_type, dtype)
    return (None, None, null_count) if low is None or high is None else (low, high, null_count)


def _internal(raw: Any, physical: str, dtype: DataType) -> Any:
    """Return a raw bound in the internal domain of the type; None if the physical type does not fit it."""
    root = dtype.root
    if root in (Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY):
        if not isinstance(raw, bytes) or physical != "BYTE_ARRAY":
            return None
        if root in (Root.BINARY, Root.VARBINARY):
            return raw
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(dtype, DecimalType):
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        # Exact whatever the decimal context: this only shifts the digits.
        return Decimal(unscaled).scaleb(-dtype.scale, _EXACT)
    if root in FLOATS:
        return raw if physical in ("FLOAT", "DOUBLE") and raw == raw else None
    if root is Root.BOOLEAN:
        return raw if physical == "BOOLEAN" else None
    if physical not in ("INT32", "INT64"):
        return None
    if isinstance(dtype, TimeType) and root is not Root.TIME:
        per_milli = 1 if dtype.precision <= 3 else 1_000
        millis, rest = divmod(raw, per_milli)
        return millis, rest * (1_000_000 // per_milli)
    return raw


_EXACT: Final = Context(prec=60)


@dataclass(slots=True)
class RunningStats:
    """The statistics of a column, collected batch by batch for formats whose own statistics cannot be used.

    Nulls of nested columns are counted too, as Paimon does in these formats but not in Parquet.
    """

    type: DataType
    mode: StatsMode
    low: Any = None
    high: Any = None
    null_count: int = 0
    unknown: bool = False

    def add(self, column: pa.Array) -> None:
        """Add the next rows."""
        if self.mode.kind is StatsKind.NONE or self.type.root in _WITHOUT - _NESTED:
            return
        # An unknown bound stays unknown: only nulls are counted from then on.
        wanted = StatsMode(StatsKind.COUNTS) if self.unknown else self.mode
        stats = collect(column, self.type, FULL if wanted.kind is not StatsKind.COUNTS else wanted)
        self.null_count += stats.null_count or 0
        if stats.min is None:
            # There are values but no bounds, so one of them is NaN.
            self.unknown = self.unknown or stats.null_count != len(column)
            return
        self.low = stats.min if self.low is None else min(self.low, stats.min)
        self.high = stats.max if self.high is None else max(self.high, stats.max)

    def result(self) -> ColumnStats:
        """Return the statistics of all rows so far."""
        if self.type.root in _NESTED and self.mode.kind is not StatsKind.NONE:
            return ColumnStats(null_count=self.null_count)
        low, high = (None, None) if self.unknown else (self.low, self.high)
        return finish(low, high, self.null_count, self.type, self.mode)


def merge_bounds(
    parts: Sequence[tuple[Any, Any, int | None]], row_counts: Sequence[int]
) -> tuple[Any, Any, int | None]:
    """Return the bounds and null count of several row groups together; unknown if one of them is unknown.

    A row group with nulls only has no bounds and needs none.
    """
    nulls = [part[2] for part in parts]
    count = None if any(null is None for null in nulls) else sum(null for null in nulls if null is not None)
    bounded = [part for part, rows in zip(parts, row_counts, strict=True) if part[2] != rows]
    if not bounded or any(part[0] is None or part[1] is None for part in bounded):
        return None, None, count
    return min(part[0] for part in bounded), max(part[1] for part in bounded), count
