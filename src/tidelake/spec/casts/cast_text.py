"""Parse values from text and format them as text, for casts.

The parsers accept what the Java reader accepts: numbers without blanks around them (only floats may have them), an
integer instead of a date, time or timestamp (days, milliseconds, or a count in the unit of the precision), and dates
with missing parts. Any other text raises; it never silently becomes null.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.spec.rows.partition_path import value_text
from tidelake.spec.types.data_types import DataType, DecimalType, Root, TimeType

__all__ = ["bad_value", "decode", "fit_decimal", "parse_moment", "parse_value", "texts"]

_INTEGER: Final = re.compile(r"([+-]?)(?:(\d+)(?:\.\d*)?|\.\d*)", re.ASCII)
_COUNT: Final = re.compile(r"-?\d+", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?")
_FLOAT: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|0[xX][0-9a-fA-F.]+[pP][+-]?\d+)[fFdD]?)", re.ASCII
)
_DATE: Final = re.compile(r"\s*(\d{1,4})\s*(?:-\s*(\d{1,2})\s*(?:-\s*(\d{1,2})(?:\s.*)?)?)?\s*", re.ASCII | re.DOTALL)
_TIME: Final = re.compile(r"\s*(\d{1,2})\s*(?::\s*(\d{1,2})\s*(?::\s*(\d{1,2})(?:\.(\d*))?)?)?\s*", re.ASCII)
_MOMENT: Final = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?", re.ASCII)
_BOOLEANS: Final = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
_BITS: Final = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}
_WHITE: Final = "".join(map(chr, range(0x21)))
_MILLIS_OF_DAY: Final = 86_400_000
_EXACT: Final = Context(prec=120, rounding=ROUND_HALF_UP)
_EPOCH: Final = dt.date(1970, 1, 1)
_PER_MILLI: Final = {0: 0, 3: 1, 6: 1_000, 9: 1_000_000}


def bad_value(value: object, target: DataType) -> InvalidInputError:
    """The error for a value that cannot be cast."""
    return InvalidInputError(
        "value cannot be cast to the type",
        code="cast-value",
        value=ascii(value)[:100],
        type=target,
        hint="correct the value, or change the column back to a type that holds it",
    )


def parse_value(text: str, target: DataType) -> Any:
    """Parse a value of any type but text, bytes and timestamps to a form that Arrow takes; None if a decimal overflows.

    Raises:
        InvalidInputError: (`cast-value`) the text is not a value of the type.
    """
    root = target.root
    if root in _BITS:
        found = _INTEGER.fullmatch(text)
        value = None if found is None else int(found[1] + (found[2] or "0")[-40:])
        bound = 1 << (_BITS[root] - 1)
        if value is None or not -bound <= value < bound or len((found[2] if found else "") or "") > 40:
            raise bad_value(text, target)
        return value
    if root in (Root.FLOAT, Root.DOUBLE):
        return _parse_float(text, target)
    if isinstance(target, DecimalType):
        if not _DECIMAL.fullmatch(text):
            raise bad_value(text, target)
        return fit_decimal(Decimal(text), target)
    if root is Root.BOOLEAN:
        if text.lower() not in _BOOLEANS:
            raise bad_value(text, target)
        return _BOOLEANS[text.lower()]
    return _parse_date(text, target) if root is Root.DATE else _parse_time(text, target)


def _parse_float(text: str, target: DataType) -> float:
    trimmed = text.strip(_WHITE)
    if not _FLOAT.fullmatch(trimmed):
        raise bad_value(text, target)
    if "x" in trimmed.lower():
        value = float.fromhex(trimmed.rstrip("fFdD"))
    else:
        value = float(trimmed if trimmed.endswith(("NaN", "Infinity")) else trimmed.rstrip("fFdD"))
    if target.root is Root.FLOAT:
        with np.errstate(over="ignore"):
            return float(np.float32(value))
    return value


def fit_decimal(value: Decimal, target: DecimalType) -> Decimal | None:
    """The value rounded half up to the scale, or None if it has too many digits."""
    if value and value.adjusted() >= 40:
        return None
    if value and value.adjusted() < -target.scale - 1:
        return Decimal(0).scaleb(-target.scale)
    rounded = value.quantize(Decimal(1).scaleb(-target.scale), context=_EXACT)
    return rounded if abs(rounded) < Decimal(10) ** (target.precision - target.scale) else None


def _parse_date(text: str, target: DataType) -> int:
    if _COUNT.fullmatch(text):
        days = int(text[:20])
        if len(text) > 12 or not -(2**31) <= days < 2**31:
            raise bad_value(text, target)
        return days
    found = _DATE.fullmatch(text)
    if found is None:
        raise bad_value(text, target)
    year, month, day = int(found[1]), int(found[2] or 1), int(found[3] or 1)
    found_days = _days(year, month, day)
    if found_days is None:
        raise bad_value(text, target)
    return found_days


def _days(year: int, month: int, day: int) -> int | None:
    """Days since 1970 of a date in the years 0 to 9999; None if the date does not exist."""
    # Python has no year 0. It is a leap year like 400, and 400 years have 146097 days.
    shift = 0 if year else 400
    try:
        return (dt.date(year + shift, month, day) - _EPOCH).days - (146_097 if shift else 0)
    except ValueError:
        return None


def _parse_time(text: str, target: DataType) -> int:
    if _COUNT.fullmatch(text):
        millis = int(text[:20])
    else:
        found = _TIME.fullmatch(text)
        if found is None:
            raise bad_value(text, target)
        hour, minute, second = (int(found[part] or 0) for part in (1, 2, 3))
        millis = (hour * 3600 + minute * 60 + second) * 1000 + int((found[4] or "").ljust(3, "0")[:3])
    if not 0 <= millis < _MILLIS_OF_DAY:
        # Java keeps such values. We refuse them: no other type can hold them.
        raise bad_value(text, target)
    return millis


def parse_moment(text: str, target: TimeType) -> tuple[int, int]:
    """Parse a timestamp to milliseconds since 1970 and nanoseconds beyond them, cut to the precision.

    Raises:
        InvalidInputError: (`cast-value`) the text is not a timestamp.
    """
    if target.root is Root.TIMESTAMP and target.precision in _PER_MILLI and _COUNT.fullmatch(text):
        count = int(text[:25])
        if not -(2**63) <= count < 2**63:
            raise bad_value(text, target)
        if target.precision == 0:
            return count * 1_000, 0
        per_milli = _PER_MILLI[target.precision]
        return count // per_milli, count % per_milli * (1_000_000 // per_milli)
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise bad_value(text, target)
    year, month, day, hour, minute, second = (int(found[part] or 0) for part in range(1, 7))
    nanos = int((found[7] or "").ljust(9, "0"))
    days = _days(year, month, day)
    if days is None and 28 < day <= 31:
        # Java takes a day that the month does not have as the last day of the month.
        days = next((known for last in (30, 29, 28) if (known := _days(year, month, last)) is not None), None)
    midnight = hour == 24 and not (minute or second or nanos)
    if days is None or year == 0 or (hour > 23 and not midnight) or minute > 59 or second > 59:
        raise bad_value(text, target)
    nanos = nanos // 10 ** (9 - target.precision) * 10 ** (9 - target.precision)
    millis = days * _MILLIS_OF_DAY + (hour * 3600 + minute * 60 + second) * 1000 + nanos // 1_000_000
    return millis, nanos % 1_000_000


def texts(values: Sequence[Any], source: DataType, zone: str) -> list[str | None]:
    """The text of each value, given in the format's internal domain (see `binary_row_scalar`).

    Raises:
        InvalidInputError: a value has no text.
    """
    return [None if value is None else value_text(value, source, legacy=False, zone=zone) for value in values]


def decode(array: pa.Array) -> pa.Array:
    """Bytes as text; invalid UTF-8 becomes the replacement character, as in Java."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if value is None else value.decode(errors="replace") for value in array.to_pylist()])
