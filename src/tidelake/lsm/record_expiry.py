"""Record-level expiry: a compaction drops rows whose time column is too old.

A row has expired if more whole seconds than `record-level.expire-time` have passed since the time in its column; a row
with a null time never expires. It is not defined when the row disappears: reads return it until a compaction rewrites
its file, and an expired version that was dropped no longer hides an older one that has not expired.

Invariant: whether a row is kept depends only on its time and the given moment. A file counts as expired only if its
statistics show that it has an expired row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.options import Affects, DurationMs, OptionGroup, TableOptions, option
from tidelake.spec.schemas.schema import RECORD_TIME_ROOTS, Schema
from tidelake.spec.types.data_types import Field

__all__ = ["RecordExpiry", "RecordExpiryOptions", "expiry_for"]

_COMPACT: Final = (Affects.WRITE, Affects.MAINTENANCE)
_MILLISECONDS_FROM: Final = 1_000_000_000_000
"""BIGINT values from here on are milliseconds: as seconds this would be the year 33658."""
_UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Seconds = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordExpiryOptions(OptionGroup):
    """How long rows are kept, counted from a time column."""

    expire_ms: DurationMs | None = option(
        "record-level.expire-time",
        None,
        doc="Compactions drop rows whose time is longer ago than this.",
        affects=_COMPACT,
    )
    time_field: str | None = option(
        "record-level.time-field",
        None,
        doc="The column with the time of a row: INT (seconds), BIGINT (seconds or milliseconds) or TIMESTAMP.",
        affects=_COMPACT,
    )


@dataclass(frozen=True, slots=True)
class RecordExpiry:
    """The time column, and how many seconds after it a row expires."""

    field: Field
    seconds: int

    def mask_expired(self, times: pa.Array | pa.ChunkedArray, now_ms: int) -> Mask:
        """Return a mask of the times that have expired at a moment (milliseconds since 1970); nulls never do."""
        whole = times.combine_chunks() if isinstance(times, pa.ChunkedArray) else times
        nulls = whole.is_null().to_numpy(zero_copy_only=False)
        seconds = _seconds(pc.fill_null(whole, _any_time(whole.type)))
        past: Mask = (seconds < now_ms // 1000 - self.seconds) & ~nulls
        return past

    def drop_expired(self, rows: pa.Table, now_ms: int) -> pa.Table:
        """Return the rows that have not expired."""
        past = self.mask_expired(rows.column(self.field.name), now_ms)
        return rows.filter(pa.array(~past)) if past.any() else rows


def expiry_for(schema: Schema, options: TableOptions) -> RecordExpiry | None:
    """Return how the rows of a table expire; None if they do not.

    Raises:
        InvalidInputError: the time column is not set, does not exist, or is not of a time type.
    """
    chosen = options.of(RecordExpiryOptions)
    if chosen.expire_ms is None:
        return None
    if chosen.time_field is None:
        raise InvalidInputError(
            "record-level expiry needs a time column",
            option="record-level.time-field",
            hint="set it to an INT, BIGINT or TIMESTAMP column, or unset record-level.expire-time",
        )
    field = schema.field(chosen.time_field)
    if field.type.root not in RECORD_TIME_ROOTS:
        raise InvalidInputError(
            "column cannot be the time column of record-level expiry",
            option="record-level.time-field",
            column=field.name,
            type=field.type,
            hint="name an INT, BIGINT or TIMESTAMP column",
        )
    return RecordExpiry(field, chosen.expire_ms // 1000)


def _seconds(times: pa.Array) -> Seconds:
    """Return times as whole seconds since 1970, rounded down."""
    if pa.types.is_timestamp(times.type):
        ticks: Seconds = times.view(pa.int64()).to_numpy(zero_copy_only=False)
        return ticks // _UNITS[times.type.unit]
    numbers: Seconds = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if pa.types.is_int64(times.type):
        return np.where(numbers >= _MILLISECONDS_FROM, numbers // 1000, numbers)
    return numbers


def _any_time(dtype: pa.DataType) -> pa.Scalar:
    return pa.scalar(0, pa.int64()).cast(dtype) if pa.types.is_timestamp(dtype) else pa.scalar(0, dtype)
