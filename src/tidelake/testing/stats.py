"""Column statistics, one value and one file at a time: the slow, correct twin of `tidelake.spec.stats.column_stats`.

Values are those of the format's internal domain (see `binary_row_scalar`), so nothing here depends on Arrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidelake.spec.data_file import SimpleStats
from tidelake.spec.rows.binary_row_scalar import EMPTY_ROW, decode_row, encode_row
from tidelake.spec.stats.column_stats import ColumnStats, is_comparable
from tidelake.spec.stats.stats_evolution import widens
from tidelake.spec.stats.stats_modes import StatsKind, StatsMode
from tidelake.spec.types.data_types import DataType, Field, with_nullable

__all__ = ["slow_bounds_under", "slow_collect", "slow_decode", "slow_partition_stats", "slow_truncate_max"]


def slow_truncate_max(value: str | bytes, length: int) -> str | bytes | None:
    """Truncate a maximum: try every shorter prefix with every larger last character or byte, in order."""
    if len(value) <= length:
        return value
    for size in range(length, 0, -1):
        if isinstance(value, bytes):
            if value[size - 1] < 0xFF:
                return value[: size - 1] + bytes([value[size - 1] + 1])
            continue
        for code in range(ord(value[size - 1]) + 1, 0x110000):
            try:
                chr(code).encode("utf-8")
            except UnicodeEncodeError:
                continue
            return value[: size - 1] + chr(code)
    return None


def slow_collect(values: Iterable[Any], dtype: DataType, mode: StatsMode) -> ColumnStats:
    """Collect statistics value by value."""
    if mode.kind is StatsKind.NONE:
        return ColumnStats()
    nulls = 0
    low: Any = None
    high: Any = None
    trusted = is_comparable(dtype) and mode.kind is not StatsKind.COUNTS
    for value in values:
        if value is None:
            nulls += 1
            continue
        if isinstance(value, float) and math.isnan(value):
            trusted = False
        low = value if low is None or value < low else low
        high = value if high is None or value > high else high
    if not trusted or low is None or high is None:
        return ColumnStats(null_count=nulls)
    if isinstance(low, float):
        low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
    if mode.length is not None and isinstance(high, str | bytes):
        low, high = low[: mode.length], slow_truncate_max(high, mode.length)
    return ColumnStats(null_count=nulls) if high is None else ColumnStats(low, high, nulls)


def slow_decode(stats: SimpleStats, fields: Sequence[Field], names: Sequence[str] | None) -> dict[str, ColumnStats]:
    """Read the statistics of one file, field by field."""
    if names is None:
        names = [] if stats.min_values == EMPTY_ROW == stats.max_values else [field.name for field in fields]
    types = [with_nullable(field.type, True) for name in names for field in fields if field.name == name]
    minima, maxima = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    found = {field.name: ColumnStats() for field in fields}
    for index, (name, dtype) in enumerate(zip(names, types, strict=True)):
        low, high = minima[index], maxima[index]
        unordered = low is not None and high is not None and not low <= high
        nan = any(isinstance(bound, float) and math.isnan(bound) for bound in (low, high))
        if unordered or nan or not is_comparable(dtype):
            low = high = None
        found[name] = ColumnStats(low, high, stats.null_counts[index] if stats.null_counts else None)
    return found


def slow_bounds_under(
    decoded: Mapping[str, ColumnStats],
    row_count: int,
    *,
    file_fields: Sequence[Field],
    read_fields: Sequence[Field],
) -> dict[str, ColumnStats]:
    """Map the statistics of one file to another schema; bounds stay in the domain of the file's types."""
    found = {}
    for wanted in read_fields:
        sources = [field for field in file_fields if field.id == wanted.id]
        if not sources:
            found[wanted.name] = ColumnStats(null_count=row_count)
        elif widens(sources[0].type, wanted.type):
            found[wanted.name] = decoded[sources[0].name]
        else:
            found[wanted.name] = ColumnStats()
    return found


def slow_partition_stats(partitions: Iterable[bytes], types: Sequence[DataType]) -> SimpleStats:
    """Decode every record's partition, and return the smallest and largest value of each column."""
    nullable = [with_nullable(dtype, True) for dtype in types]
    rows = [decode_row(row, nullable) for row in partitions]
    columns = [
        slow_collect((row[index] for row in rows), dtype, StatsMode(StatsKind.FULL))
        for index, dtype in enumerate(nullable)
    ]
    return SimpleStats(
        encode_row([column.min for column in columns], nullable),
        encode_row([column.max for column in columns], nullable),
        tuple(column.null_count for column in columns),
    )
