"""Points in time as constants: a `datetime` where microseconds say it all, else an Arrow scalar of nanoseconds.

Python's own datetime ends at microseconds, and so would a constant that passes through it. Invariant: `plain_value`
loses no digit, and a constant that needs none of the finer ones is a plain Python value.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.errors import InvalidInputError

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the clock of no zone
_DAYS: Final = frozenset("YMWD")
_FINER: Final = frozenset({"ps", "fs", "as"})


def plain_value(value: Any) -> Any:
    """A value of numpy, pandas or Arrow as a constant; any other as it is.

    Raises:
        InvalidInputError: it is a point in time that no type holds.
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
    """A moment to the microsecond (with a zone: of UTC), and the nanoseconds beyond.

    Raises:
        InvalidInputError: it has nanoseconds, and lies outside of the years that have them.
    """
    if not nanos:
        return moment
    micros = (moment.replace(tzinfo=None) - _EPOCH) // dt.timedelta(microseconds=1)
    return from_nanos(micros * 1_000 + nanos, zoned=moment.tzinfo is not None)


def from_nanos(nanos: int, *, zoned: bool) -> Any:
    """Nanoseconds since 1970 as a constant.

    Raises:
        InvalidInputError: there are more than 64 bits of them.
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
    """Whether it is a point in time that no `datetime` holds."""
    return isinstance(value, pa.TimestampScalar)


def shown(value: pa.TimestampScalar) -> str:
    """A point in time that no `datetime` holds, with all its digits and without its zone (which is UTC)."""
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
    if not isinstance(found, dt.date):  # of other moments numpy gives numbers
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
