"""Points in time as constants: a `datetime` if microseconds are exact, else an Arrow scalar of nanoseconds.

Python's datetime has only microseconds, so a constant that passed through it would lose its nanoseconds. Invariant:
`plain_value` loses no digit, and a constant without nanoseconds is a plain Python value.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.errors import InvalidInputError

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock without a zone
_DAYS: Final = frozenset("YMWD")
_FINER: Final = frozenset({"ps", "fs", "as"})


def plain_value(value: Any) -> Any:
    """Convert a value of numpy, pandas or Arrow to a constant; other values stay as they are.

    Raises:
        InvalidInputError: it is a point in time outside the range of all types.
    """
    match value:
        case pa.Scalar():
            return _from_arrow(value)
        case np.datetime64():
            return _from_numpy(value)
        case dt.datetime() if hasattr(value, "nanosecond"):  # a Timestamp of pandas
            return _from_pandas(value)
    return value


def from_parts(moment: dt.datetime, nanos: int) -> Any:
    """Combine a moment (in UTC if it has a zone) with the nanoseconds beyond its microseconds.

    Raises:
        InvalidInputError: it has nanoseconds and is outside the years that nanoseconds can represent.
    """
    if not nanos:
        return moment
    micros = (moment.replace(tzinfo=None) - _EPOCH) // dt.timedelta(microseconds=1)
    return from_nanos(micros * 1_000 + nanos, zoned=moment.tzinfo is not None)


def from_nanos(nanos: int, *, zoned: bool) -> Any:
    """Nanoseconds since 1970 as a constant.

    Raises:
        InvalidInputError: they do not fit into 64 bits.
    """
    micros, rest = divmod(nanos, 1_000)
    if not rest:
        plain = _EPOCH + dt.timedelta(microseconds=micros)
        return plain.replace(tzinfo=dt.UTC) if zoned else plain
    try:
        return pa.scalar(nanos, pa.timestamp("ns", "UTC" if zoned else None))
    except (OverflowError, pa.ArrowInvalid) as cause:
        raise _out_of_range(_EPOCH + dt.timedelta(microseconds=micros)) from cause


def is_fine(value: object) -> bool:
    """Whether it is a point in time with nanoseconds, which a `datetime` cannot hold."""
    return isinstance(value, pa.TimestampScalar)


def format_nanos(value: pa.TimestampScalar) -> str:
    """The text of a point in time with all nine digits, without its zone (which is UTC)."""
    micros, rest = divmod(value.value, 1_000)
    plain = _EPOCH + dt.timedelta(microseconds=micros)
    return f"{plain.isoformat(sep=' ', timespec='microseconds')}{rest:03d}"


def _from_arrow(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    if isinstance(value, pa.TimestampScalar) and value.type.unit == "ns":
        return from_nanos(value.value, zoned=value.type.tz is not None)
    return value.as_py()


def _from_numpy(value: np.datetime64) -> Any:
    if np.isnat(value):
        return None
    unit = np.datetime_data(value.dtype)[0]
    if unit == "ns":
        return from_nanos(int(value.astype("datetime64[ns]").astype(np.int64)), zoned=False)
    found = None if unit in _FINER else value.astype(f"datetime64[{'D' if unit in _DAYS else 'us'}]").item()
    if not isinstance(found, dt.date):  # numpy returns an integer for a moment outside the range of datetime
        raise _out_of_range(value)
    return found


def _from_pandas(value: Any) -> Any:
    if value != value:  # NaT
        return None
    if value.nanosecond:
        return from_nanos(value.value, zoned=value.tzinfo is not None)
    return value.to_pydatetime()


def _out_of_range(value: object) -> InvalidInputError:
    hint = "nanoseconds go from the year 1677 to 2262, microseconds from 1 to 9999"
    return InvalidInputError("point in time is out of range", value=str(value), hint=hint)
