"""Timestamps as INT96, which Parquet files have for precisions above microseconds.

Invariant: a value survives the way to INT96 and back, whatever its sign.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from tidelake.errors import UnsupportedError
from tidelake.spec.types.arrow_nested import compact
from tidelake.spec.types.data_types import DataType, Root, TimeType

__all__ = ["INT96", "INT96_BYTES", "from_int96", "is_int96", "to_int96"]

INT96_BYTES: Final = 12
INT96: Final = pa.binary(INT96_BYTES)
_PARTS: Final = np.dtype([("nanos", "<i8"), ("day", "<i4")])
_JULIAN_EPOCH: Final = 2_440_588
_NANOS_OF_DAY: Final = 86_400_000_000_000


def is_int96(dtype: DataType) -> bool:
    """Return whether values of the type are stored as INT96."""
    return isinstance(dtype, TimeType) and dtype.root is not Root.TIME and dtype.precision > 6


def to_int96(array: pa.Array) -> pa.Array:
    """Convert nanoseconds since 1970 to INT96: nanoseconds of the day, then the Julian day, both little-endian.

    Days are rounded down, so that the nanoseconds are never negative, which every INT96 reader accepts. (Paimon rounds
    towards zero before 1970; readers must add the two parts as signed numbers either way.)
    """
    values = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    days, nanos = np.divmod(values, _NANOS_OF_DAY)
    parts = np.empty(len(values), _PARTS)
    parts["nanos"] = nanos
    parts["day"] = days + _JULIAN_EPOCH
    validity = compact(array.is_valid()).buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(INT96, len(values), [validity, pa.py_buffer(parts)])


def from_int96(array: pa.Array, unit: str) -> pa.Array:
    """Convert INT96 to timestamps of a unit; finer digits are dropped.

    Raises:
        UnsupportedError: a value does not fit into 64 bits of that unit.
    """
    array = compact(array)
    parts = np.frombuffer(array.buffers()[1], _PARTS, len(array), array.offset * INT96_BYTES)
    scale = {"ms": 1_000_000, "us": 1_000, "ns": 1}[unit]
    # Add the parts as signed numbers: before 1970 Paimon rounds the day towards zero.
    more_days, nanos = np.divmod(parts["nanos"], _NANOS_OF_DAY)
    days = parts["day"].astype(np.int64) - _JULIAN_EPOCH + more_days
    per_day = _NANOS_OF_DAY // scale
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    if not _all_fit(days[valid], nanos[valid] // scale, per_day):
        raise UnsupportedError(
            "timestamp does not fit into 64 bits of its unit",
            unit=unit,
            hint="change the type of the column to TIMESTAMP(6), or to TIMESTAMP(3)",
        )
    counts = np.where(valid, days * per_day + nanos // scale, 0)
    return pa.array(counts, mask=None if valid.all() else ~valid).view(pa.timestamp(unit))


def _all_fit(days: np.ndarray, rest: np.ndarray, per_day: int) -> bool:
    """Return whether `days * per_day + rest` fits into 64 bits for every value."""
    limit = (2**63 - 1) // per_day
    if np.any((days > limit) | (days < -limit - 1)):
        return False
    # The rest only matters on the first and the last day. Python's integers do not wrap.
    edge = np.flatnonzero((days == limit) | (days == -limit - 1))
    return all(-(2**63) <= int(days[row]) * per_day + int(rest[row]) < 2**63 for row in edge)
