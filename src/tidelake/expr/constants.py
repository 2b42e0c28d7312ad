"""Constants of SQL text: how they are parsed, and what they become when compared with a column.

A constant that is compared with a column becomes a value of the column's type if the comparison still means the same:
`id = '7'` and `id = 7.0` both look for 7. If it would not (`id < 1.5`), the constant keeps its own type and both sides
are converted to a type that holds both. Numbers are parsed exactly; a DECIMAL never passes through floating point.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.expr.moments import from_nanos, from_parts
from tidelake.expr.scalar import Literal, literal
from tidelake.spec.types.data_types import DOUBLE, FLOAT, DataType, DecimalType, Root, TimeType

_INT_BITS: Final = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}
_MICROS: Final = 6
_EXACT_FLOAT_MAX: Final = 2**53
_TRUE: Final = frozenset({"t", "true", "y", "yes", "1"})
_FALSE: Final = frozenset({"f", "false", "n", "no", "0"})
_DATE: Final = r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?"
_CLOCK: Final = r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?"
_ZONE: Final = r"(?:\s*(Z|UTC|GMT|(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?))?"
_DATE_PATTERN: Final = re.compile(rf"{_DATE}(?:[ T].*)?", re.ASCII | re.DOTALL)
_TIMESTAMP_PATTERN: Final = re.compile(rf"{_DATE}(?:[ T]{_CLOCK}{_ZONE})?", re.ASCII)
_TIME_PATTERN: Final = re.compile(_CLOCK, re.ASCII)
_NUMBER_PATTERN: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_NAMED_FLOATS: Final = {
    "nan": math.nan,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-infinity": -math.inf,
    "inf": math.inf,
    "+inf": math.inf,
    "-inf": -math.inf,
}


def number(text: str) -> Literal:
    """Parse a number, with or without a sign: 5 is an integer, 5.0 a DECIMAL, 5e0 a DOUBLE.

    Raises:
        InvalidInputError: the text is not a number, or has more than 38 digits.
    """
    if not _NUMBER_PATTERN.fullmatch(text):
        raise _unreadable(text, "a number")
    if "e" in text or "E" in text:
        return literal(_finite(text))
    if "." in text:
        return literal(_decimal(text))
    return literal(int(text)) if len(text) <= 50 else literal(_decimal(text))


def parse_typed(text: str, dtype: DataType) -> Literal | None:
    """Parse a constant that names its type (DATE '2024-01-01', 5L); None if the value needs a real cast.

    Raises:
        InvalidInputError: the text is not a value of the type.
    """
    match dtype:
        case DecimalType(precision=precision, scale=scale):
            exact = _decimal(text)
            return literal(exact, dtype) if _digits_fit(exact, precision, scale) else None
        case TimeType(root=Root.TIMESTAMP | Root.TIMESTAMP_LTZ, precision=precision):
            moment, nanos = _timestamp(text)
            return literal(from_parts(_of_kind(moment, dtype), nanos if precision > _MICROS else 0), dtype)
        case TimeType(root=Root.TIME):
            return literal(_time(text), dtype)
    match dtype.root:
        case Root.DATE:
            return literal(_date(text))
        case Root.FLOAT | Root.DOUBLE:
            value = _named_float(text)
            return literal(value if dtype.root is Root.DOUBLE else _single(value), _FLOATS[dtype.root])
        case Root.TINYINT | Root.SMALLINT | Root.INT | Root.BIGINT:
            return literal(_integer(text, dtype), dtype)
    return None


def timestamp(text: str) -> Literal:
    """Parse TIMESTAMP '...': with a time zone if the text has one, else without.

    Raises:
        InvalidInputError: the text is not a timestamp.
    """
    moment, nanos = _timestamp(text)
    return literal(from_parts(_in_utc(moment) if moment.tzinfo else moment, nanos))


def moment_of(text: str, *, zoned: bool) -> Any:
    """Parse a timestamp with all its digits. A text with a zone is converted to UTC, and one without is taken as UTC.

    Raises:
        InvalidInputError: the text is not a timestamp.
    """
    moment, nanos = _timestamp(text)
    return from_parts(_of_kind(moment, TimeType(Root.TIMESTAMP_LTZ if zoned else Root.TIMESTAMP)), nanos)


def _of_kind(moment: dt.datetime, dtype: DataType) -> dt.datetime:
    """The moment with the zone UTC or without a zone, as the type requires."""
    if dtype.root is Root.TIMESTAMP_LTZ:
        return _in_utc(moment)
    return _in_utc(moment).replace(tzinfo=None) if moment.tzinfo else moment


def beside_column(constant: Literal, dtype: DataType) -> tuple[Any] | None:
    """Convert a constant to the type of the column that it is compared with; None if that changed the comparison.

    Raises:
        InvalidInputError: the column cannot be compared with such a constant.
    """
    value = constant.value
    if value is None:
        return (None,)
    convert = _CONVERSIONS.get(dtype.root)
    if convert is None:
        raise InvalidInputError("column of this type cannot be compared", type=dtype, hint="use IS NULL or a member")
    try:
        converted: tuple[Any] | None = convert(value, dtype)
    except _MismatchError as cause:
        raise InvalidInputError(
            "constant cannot be compared with the column", value=ascii(value), type=dtype, hint="cast one of them"
        ) from cause
    return converted


class _MismatchError(Exception):
    """The constant has a type that the column cannot be compared with."""


def _to_boolean(value: Any, _: DataType) -> tuple[Any]:
    match value:
        case bool():
            return (value,)
        case str() if value.strip().lower() in _TRUE:
            return (True,)
        case str() if value.strip().lower() in _FALSE:
            return (False,)
        case str():
            raise _unreadable(value, "true or false")
    raise _MismatchError


def _to_integer(value: Any, dtype: DataType) -> tuple[Any] | None:
    match value:
        case bool():
            raise _MismatchError
        case str():
            text = value.strip()
            if not re.fullmatch(r"[+-]?\d{1,50}", text, re.ASCII):
                raise _unreadable(value, "a whole number")
            whole = int(text)
        case int():
            whole = value
        case Decimal() if value == value.to_integral_value():
            whole = int(value)
        case float() if value.is_integer() and abs(value) < _EXACT_FLOAT_MAX:
            whole = int(value)
        case Decimal() | float():
            return None
        case _:
            raise _MismatchError
    half = 1 << (_INT_BITS[dtype.root] - 1)
    return (whole,) if -half <= whole < half else None


def _to_decimal(value: Any, dtype: DataType) -> tuple[Any] | None:
    assert isinstance(dtype, DecimalType)
    match value:
        case bool():
            raise _MismatchError
        case str():
            exact = _decimal(value.strip())
        case int() | Decimal():
            exact = Decimal(value)
        case float():
            return None
        case _:
            raise _MismatchError
    return (exact,) if _digits_fit(exact, dtype.precision, dtype.scale) else None


def _to_float(value: Any, dtype: DataType) -> tuple[Any] | None:
    match value:
        case bool():
            raise _MismatchError
        case str():
            near = _named_float(value.strip())
        case int() | Decimal() | float():
            near = float(value)
        case _:
            raise _MismatchError
    if dtype.root is Root.DOUBLE or math.isnan(near) or math.isinf(near):
        return (near,)
    # A FLOAT is compared with other numbers as DOUBLE, and the DOUBLE 0.1 differs from the FLOAT nearest to it.
    return (near,) if _single(near) == near else None


def _to_text(value: Any, _: DataType) -> tuple[Any] | None:
    if isinstance(value, bytes):
        raise _MismatchError
    if isinstance(value, str):
        return (value,)
    return None  # the text is read as the constant's type, row by row


def _to_bytes(value: Any, _: DataType) -> tuple[Any] | None:
    match value:
        case bytes():
            return (value,)
        case str():
            return (value.encode(),)
    raise _MismatchError


def _to_date(value: Any, _: DataType) -> tuple[Any] | None:
    match value:
        case str():
            return (_date(value),)
        case dt.datetime():
            plain = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
            return (plain.date(),) if plain.time() == dt.time() else None
        case dt.date() | pa.TimestampScalar():
            return (value,)
    raise _MismatchError


def _to_timestamp(value: Any, dtype: DataType) -> tuple[Any] | None:
    nanos = 0
    match value:
        case pa.TimestampScalar():
            return (from_nanos(value.value, zoned=dtype.root is Root.TIMESTAMP_LTZ),)
        case str():
            moment, nanos = _timestamp(value)
        case dt.datetime():
            moment = value
        case dt.date():
            moment = dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001  midnight of no zone yet
        case _:
            raise _MismatchError
    return (from_parts(_of_kind(moment, dtype), nanos),)


def _to_time(value: Any, _: DataType) -> tuple[Any] | None:
    match value:
        case str():
            return (_time(value),)
        case dt.time():
            return (value,)
    raise _MismatchError


_FLOATS: Final = {Root.FLOAT: FLOAT, Root.DOUBLE: DOUBLE}
_CONVERSIONS: Final[dict[Root, Callable[[Any, DataType], Any]]] = {
    Root.BOOLEAN: _to_boolean,
    **dict.fromkeys(_INT_BITS, _to_integer),
    Root.DECIMAL: _to_decimal,
    Root.FLOAT: _to_float,
    Root.DOUBLE: _to_float,
    Root.CHAR: _to_text,
    Root.VARCHAR: _to_text,
    Root.BINARY: _to_bytes,
    Root.VARBINARY: _to_bytes,
    Root.DATE: _to_date,
    Root.TIMESTAMP: _to_timestamp,
    Root.TIMESTAMP_LTZ: _to_timestamp,
    Root.TIME: _to_time,
}


# ------------------------------------------------------------------------------------------------------------ texts


def _integer(text: str, dtype: DataType) -> int:
    if not re.fullmatch(r"[+-]?\d{1,50}", text.strip(), re.ASCII):
        raise _unreadable(text, "a whole number")
    value, half = int(text), 1 << (_INT_BITS[dtype.root] - 1)
    if not -half <= value < half:
        raise InvalidInputError("number does not fit its type", value=text, type=dtype, hint="use a wider type")
    return value


def _decimal(text: str) -> Decimal:
    if not _NUMBER_PATTERN.fullmatch(text):
        raise _unreadable(text, "a number")
    try:
        return Decimal(text)
    except InvalidOperation as cause:
        raise _unreadable(text, "a number") from cause


def _digits_fit(value: Decimal, precision: int, scale: int) -> bool:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if not any(digits):
        return True
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    lowest = exponent + len(text) - len(kept)
    return -lowest <= scale and len(kept) + lowest <= precision - scale


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise InvalidInputError("number is beyond the range of DOUBLE", value=text, hint="write a smaller number")
    return value


def _named_float(text: str) -> float:
    named = _NAMED_FLOATS.get(text.strip().lower())
    if named is not None:
        return named
    if not _NUMBER_PATTERN.fullmatch(text.strip()):
        raise _unreadable(text, "a number")
    return float(text)


def _single(value: float) -> float:
    """The nearest FLOAT."""
    try:
        nearest: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return nearest


def _date(text: str) -> dt.date:
    found = _DATE_PATTERN.fullmatch(text.strip())
    if not found:
        raise _unreadable(text, "a date", "write it as 2024-01-31")
    year, month, day = (int(part or 1) for part in found.groups()[:3])
    try:
        return dt.date(year, month, day)
    except ValueError as cause:
        raise _unreadable(text, "a date", "the month does not have this day") from cause


def _timestamp(text: str) -> tuple[dt.datetime, int]:
    """The moment to the microsecond (with a zone if the text has one), and the nanoseconds beyond it."""
    hint = "write it as 2024-01-31 23:59:59.999999, if need be with Z or an offset such as +02:00"
    found = _TIMESTAMP_PATTERN.fullmatch(text.strip())
    if not found:
        raise _unreadable(text, "a timestamp", hint)
    year, month, day = (int(part or 1) for part in found.groups()[:3])
    hour, minute, second = (int(part or 0) for part in found.groups()[3:6])
    fraction = (found[7] or "").ljust(9, "0")
    zone = None
    if found[8]:
        offset = dt.timedelta(hours=int(found[10] or 0), minutes=int(found[11] or 0))
        zone = dt.UTC if not offset else _offset(-offset if found[9] == "-" else offset, text)
    try:
        moment = dt.datetime(year, month, day, hour, minute, second, int(fraction[:6]), zone)
    except ValueError as cause:
        raise _unreadable(text, "a timestamp", hint) from cause
    return moment, int(fraction[6:])


def _offset(offset: dt.timedelta, text: str) -> dt.timezone:
    if abs(offset) > dt.timedelta(hours=18):
        raise _unreadable(text, "a timestamp", "offsets go from -18:00 to +18:00")
    return dt.timezone(offset)


def _in_utc(moment: dt.datetime) -> dt.datetime:
    if moment.tzinfo is None:
        return moment.replace(tzinfo=dt.UTC)
    try:
        return moment.astimezone(dt.UTC)
    except OverflowError as cause:
        raise _unreadable(moment.isoformat(), "a timestamp", "years go from 1 to 9999") from cause


def _time(text: str) -> dt.time:
    found = _TIME_PATTERN.fullmatch(text.strip())
    try:
        if found:
            hour, minute, second = (int(part or 0) for part in found.groups()[:3])
            return dt.time(hour, minute, second, int((found[4] or "").ljust(6, "0")[:6]))
    except ValueError as cause:
        raise _unreadable(text, "a time of day", "write it as 23:59:59.999") from cause
    raise _unreadable(text, "a time of day", "write it as 23:59:59.999")


def _unreadable(text: str, wanted: str, hint: str = "correct the constant") -> InvalidInputError:
    return InvalidInputError("text is not a valid constant", text=ascii(text), wanted=wanted, hint=hint)


_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-1][0-7]{2}|.)", re.DOTALL)
_ESCAPED: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def unescape(body: str) -> str:
    """Replace the escapes in the body of a quoted string as Spark does.

    Raises:
        InvalidInputError: an escape does not stand for a character.
    """
    return _ESCAPE.sub(_escape_value, body)


def _escape_value(found: re.Match[str]) -> str:
    code = found[1]
    if len(code) == 1:
        return _ESCAPED.get(code, code)
    point = int(code, 8) if len(code) == 3 else int(code[1:], 16)
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise InvalidInputError(
            "escape does not stand for a character", escape=found[0], hint="write the character itself"
        )
    return chr(point)
