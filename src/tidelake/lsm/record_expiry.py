"""Record-level expiry: rows whose time lies too far back are left out of what a compaction reads.

A row is past its time when the whole seconds since its time column are more than `record-level.expire-time`; a row
without a time stays. Nobody promises when that happens: a read shows such rows until a compaction has met them, and a
version that expired no longer hides an older one that did not.

Invariant: whether a row is kept depends on its time and the moment given, nothing else. A file is only called expired
where its statistics say that it holds such a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.options import Affects, DurationMs, OptionGroup, option
from tidelake.spec.schema import RECORD_TIME_ROOTS, Schema
from tidelake.spec.types import Field

__all__ = ["RecordExpiry", "RecordExpiryOptions", "expiry_for"]

_COMPACT: Final = (Affects.WRITE, Affects.MAINTENANCE)
_MILLISECONDS_FROM: Final = 1_000_000_000_000
"""From here on a BIGINT is taken for milliseconds: as seconds it would be the year 33658."""
_UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Seconds = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordExpiryOptions(OptionGroup):
    """How long rows are kept, by a time of their own."""

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
    """Rows live for some seconds after the time in one of their columns."""

    field: Field
    seconds: int

    def expired(self, times: pa.Array | pa.ChunkedArray, now_ms: int) -> Mask:
        """Which times lie too far back at a moment (milliseconds since 1970); a null never does."""
        whole = times.combine_chunks() if isinstance(times, pa.ChunkedArray) else times
        nulls = whole.is_null().to_numpy(zero_copy_only=False)
        seconds = _seconds(pc.fill_null(whole, _any_time(whole.type)))
        past: Mask = (seconds < now_ms // 1000 - self.seconds) & ~nulls
        return past

    def living(self, rows: pa.Table, now_ms: int) -> pa.Table:
        """The rows that are not past their time."""
        past = self.expired(rows.column(self.field.name), now_ms)
        return rows.filter(pa.array(~past)) if past.any() else rows


def expiry_for(schema: Schema, options: Mapping[str, str]) -> RecordExpiry | None:
    """How the rows of a table expire; None where they do not.

    Raises:
        InvalidInputError: the time column is missing, or holds no time.
    """
    chosen = RecordExpiryOptions.parse(options)
    if chosen.expire_ms is None:
        return None
    if chosen.time_field is None:
        raise InvalidInputError(
            "expiry of rows needs a column with their time",
            option="record-level.time-field",
            hint="set it to an INT, BIGINT or TIMESTAMP column, or unset record-level.expire-time",
        )
    field = schema.field(chosen.time_field)
    if field.type.root not in RECORD_TIME_ROOTS:
        raise InvalidInputError(
            "column cannot tell when rows expire",
            option="record-level.time-field",
            column=field.name,
            type=field.type,
            hint="name an INT, BIGINT or TIMESTAMP column",
        )
    return RecordExpiry(field, chosen.expire_ms // 1000)


def _seconds(times: pa.Array) -> Seconds:
    """Times as whole seconds since 1970, rounded down."""
    if pa.types.is_timestamp(times.type):
        ticks: Seconds = times.view(pa.int64()).to_numpy(zero_copy_only=False)
        return ticks // _UNITS[times.type.unit]
    numbers: Seconds = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if pa.types.is_int64(times.type):
        return np.where(numbers >= _MILLISECONDS_FROM, numbers // 1000, numbers)
    return numbers


def _any_time(dtype: pa.DataType) -> pa.Scalar:
    return pa.scalar(0, pa.int64()).cast(dtype) if pa.types.is_timestamp(dtype) else pa.scalar(0, dtype)
