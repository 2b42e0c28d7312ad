"""The directory of a partition, computed from its values.

A manifest entry stores the partition of its file as a BinaryRow; readers derive the directory from it. So the text must
equal that of all other writers, with all oddities of Java. Invariant: the result is a relative path with one
`key=value` segment per partition key. No value can lead out of the table, because separators are escaped and no segment
is only dots.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.spec.rows.binary_row_decode import decode_rows
from tidelake.spec.rows.binary_row_layout import MILLIS_OF_DAY, NANOS_OF_MILLI
from tidelake.spec.rows.binary_row_scalar import unscaled_value
from tidelake.spec.types.data_types import DataType, DecimalType, Root, TimeType

__all__ = ["escape_name", "partition_path", "partition_paths", "unescape_name", "value_text"]

_ESCAPED: Final = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}\[\]^]""")
_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})")
# White space as Java defines it, which differs from Python: no-break spaces and U+0085 do not count.
_BLANK: Final = re.compile(r"[\t-\r\x1c-\x20\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000]*")
# Java replaces an encoded surrogate by one replacement character, Python by one for each byte.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\ufffd".encode()
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
# Outside this range the 32-bit calendar arithmetic of Java overflows, so that no text would be right.
_DATE_MIN, _DATE_MAX = -2_472_632, 534_000_000

_TEXTS: Final = frozenset({Root.CHAR, Root.VARCHAR})
_BINARIES: Final = frozenset({Root.BINARY, Root.VARBINARY})
_INTEGERS: Final = frozenset({Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT})


def partition_path(
    keys: Sequence[str],
    values: Sequence[object],
    types: Sequence[DataType],
    *,
    legacy: bool,
    default_name: str,
    zone: str = "UTC",
) -> str:
    """The directory of one partition, `k1=v1/k2=v2/`: with a slash at the end, and empty without partition keys.

    Args:
        keys: Names of the partition columns.
        values: Values in the internal domain, see `binary_row_scalar`.
        types: Types of the partition columns.
        legacy: Option `partition.legacy-name`.
        default_name: Option `partition.default-name`, the text for null and for blank text.
        zone: The time zone for TIMESTAMP WITH LOCAL TIME ZONE if not `legacy`.

    Raises:
        InvalidInputError: The counts differ, or a value or type has no text.
    """
    if not len(keys) == len(values) == len(types):
        raise InvalidInputError(
            "number of partition values differs from the number of keys",
            keys=len(keys),
            values=len(values),
            types=len(types),
        )
    texts = [
        None if value is None else value_text(value, dtype, legacy=legacy, zone=zone)
        for value, dtype in zip(values, types, strict=True)
    ]
    return _path([escape_name(key) for key in keys], [_segment(text, default_name) for text in texts])


def partition_paths(
    unique_rows: pa.BinaryArray,
    keys: Sequence[str],
    types: Sequence[DataType],
    *,
    legacy: bool,
    default_name: str,
    zone: str = "UTC",
) -> list[str]:
    """The directories of partitions given as stored BinaryRows; see `partition_path`.

    Raises:
        FormatError: The bytes are not rows of these types.
        InvalidInputError: The counts differ, or a value or type has no text.
    """
    if len(keys) != len(types):
        raise InvalidInputError("number of keys and number of types differ", keys=len(keys), types=len(types))
    columns = []
    for array, dtype in zip(decode_rows(unique_rows, types), types, strict=True):
        cache: dict[object, str] = {}
        texts = []
        for value in internal_values(array, dtype):
            # 0.0 and -0.0 are equal as keys of a dict, but are two directories.
            key = str(value) if isinstance(value, float) else value
            if key not in cache:
                text = None if value is None else value_text(value, dtype, legacy=legacy, zone=zone)
                cache[key] = _segment(text, default_name)
            texts.append(cache[key])
        columns.append(texts)
    names = [escape_name(key) for key in keys]
    return [_path(names, row) for row in zip(*columns, strict=True)] if columns else [""] * len(unique_rows)


def escape_name(text: str) -> str:
    """Escape a key or value for a directory name."""
    return _ESCAPED.sub(lambda match: f"%{ord(match.group()):02X}", text)


def unescape_name(text: str) -> str:
    """The inverse of `escape_name`; a `%` that does not start an escape is kept."""
    return _ESCAPE.sub(lambda match: chr(int(match.group(1), 16)), text)


def value_text(value: object, dtype: DataType, *, legacy: bool, zone: str = "UTC") -> str:
    """The text of a value that is not null, before escaping.

    Raises:
        InvalidInputError: The value does not fit its type, or the type has no text in this style.
    """
    root = dtype.root
    match value:
        case str() if root in _TEXTS:
            return value
        case bool() if root is Root.BOOLEAN:
            return "true" if value else "false"
        case int() if root in _INTEGERS and not isinstance(value, bool):
            return str(value)
        case float() | int() if root in (Root.FLOAT, Root.DOUBLE):
            return _float_text(float(value), single=root is Root.FLOAT)
        case Decimal() | int() if isinstance(dtype, DecimalType):
            return format(Decimal(f"{unscaled_value(value, dtype)}E-{dtype.scale}"), "f")
        case int() if root is Root.DATE:
            return str(value) if legacy else _date_text(value)
        case int() if isinstance(dtype, TimeType) and root is Root.TIME:
            return str(value) if legacy else _time_text(value, dtype)
        case (int(millis), int(nanos)) if isinstance(dtype, TimeType) and root is not Root.TIME:
            if legacy:
                return _iso_text(millis, nanos)
            if root is Root.TIMESTAMP_LTZ:
                millis += _zone_offset_millis(millis, zone)
            return _timestamp_text(millis, nanos, dtype.precision)
        case bytes() if root in _BINARIES:
            if not legacy:
                return _SURROGATE.sub(_REPLACEMENT, value).decode(errors="replace")
            raise InvalidInputError(
                "binary column has no legacy partition name",
                type=dtype,
                hint="set `partition.legacy-name` to false when the table is created",
            )
    raise InvalidInputError("value cannot be a partition of its type", value=repr(value)[:100], type=dtype)


def _segment(text: str | None, default_name: str) -> str:
    return escape_name(default_name if text is None or _BLANK.fullmatch(text) else text)


def _path(names: Sequence[str], segments: Sequence[str]) -> str:
    return "".join(f"{name}={segment}/" for name, segment in zip(names, segments, strict=True))


def internal_values(array: pa.Array, dtype: DataType) -> list[Any]:
    """The values of a column as `value_text` takes them: days, milliseconds, (milliseconds, nanoseconds)."""
    values: list[Any]
    if dtype.root in (Root.DATE, Root.TIME):
        values = array.cast(pa.int32()).to_pylist()
    elif isinstance(dtype, TimeType):
        per_milli = {"ms": 1, "us": 1_000, "ns": NANOS_OF_MILLI}[array.type.unit]
        nanos = NANOS_OF_MILLI // per_milli
        numbers = array.cast(pa.int64()).to_pylist()
        values = [None if n is None else (n // per_milli, n % per_milli * nanos) for n in numbers]
    else:
        values = array.to_pylist()
    return values


# ------------------------------------------------------------------------------------------------ numbers


def _float_text(value: float, *, single: bool) -> str:
    """Format like Java's `toString` of Float and Double: the shortest exact decimal, with at least two digits."""
    if single:
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1, value) < 0 else ""
    if math.isinf(value):
        return f"{sign}Infinity"
    if value == 0:
        return f"{sign}0.0"
    digits, exponent = _shortest_digits(abs(value), single=single)
    if not -3 <= exponent < 7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    digits = digits.ljust(exponent + 2, "0")
    return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :]}"


def _shortest_digits(value: float, *, single: bool) -> tuple[str, int]:
    """Significant digits and the power of ten of the first one."""
    shortest = Decimal(str(np.float32(value)) if single else repr(value))
    if len(shortest.normalize().as_tuple().digits) == 1:
        # Java prints two digits at least, and then the closest two: the smallest double is 4.9E-324, not 5.0E-324.
        better = f"{value:.1e}"
        if (float(np.float32(better)) if single else float(better)) == value:
            shortest = Decimal(better)
    _, digits, _ = shortest.as_tuple()
    return "".join(map(str, digits)).rstrip("0"), shortest.adjusted()


# ------------------------------------------------------------------------------------------------ time


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of the proleptic Gregorian calendar, of any number of days since the epoch."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    return year + 400 * era + (month <= 2), month, day


def _four_digits(year: int) -> str:
    # Outside the years 0 to 9999 Java adds each digit to the character "0", also if it is negative.
    sign = -1 if year < 0 else 1
    return "".join(chr(ord("0") + sign * int(digit)) for digit in f"{abs(year) % 10_000:04d}")


def _date_text(days: int) -> str:
    if not _DATE_MIN <= days <= _DATE_MAX:
        raise InvalidInputError("date is too far from the epoch for a partition name", days=days)
    year, month, day = _civil(days)
    return f"{_four_digits(year)}-{month:02d}-{day:02d}"


def _clock(millis_of_day: int) -> tuple[int, int, int, int]:
    seconds, millis = divmod(millis_of_day, 1_000)
    return seconds // 3_600, seconds // 60 % 60, seconds % 60, millis


def _time_text(millis_of_day: int, dtype: TimeType) -> str:
    if not 0 <= millis_of_day < MILLIS_OF_DAY:
        raise InvalidInputError("time of day is out of range", millis=millis_of_day)
    hour, minute, second, millis = _clock(millis_of_day)
    text = f"{hour:02d}:{minute:02d}:{second:02d}"
    if dtype.precision == 0:
        return text
    # Java first removes trailing zeros except one digit, and then cuts to the precision.
    return f"{text}.{(f'{millis:03d}'.rstrip('0') or '0')[: dtype.precision]}"


def _timestamp_text(millis: int, nanos: int, precision: int) -> str:
    days, millis_of_day = divmod(millis, MILLIS_OF_DAY)
    year, month, day = _civil(days)
    hour, minute, second, rest = _clock(millis_of_day)
    text = f"{_four_digits(year)}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}:{second:02d}"
    fraction = f"{rest * NANOS_OF_MILLI + nanos:09d}".rstrip("0").ljust(precision, "0")
    return f"{text}.{fraction}" if fraction else text


def _iso_text(millis: int, nanos: int) -> str:
    days, millis_of_day = divmod(millis, MILLIS_OF_DAY)
    year, month, day = _civil(days)
    hour, minute, second, rest = _clock(millis_of_day)
    sign = "+" if year > 9_999 else "-" if year < 0 else ""
    text = f"{sign}{abs(year):04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}"
    fraction = rest * NANOS_OF_MILLI + nanos
    if not second and not fraction:
        return text
    text += f":{second:02d}"
    if not fraction:
        return text
    digits = 3 if fraction % 1_000_000 == 0 else 6 if fraction % 1_000 == 0 else 9
    return f"{text}.{fraction:09d}"[: len(text) + 1 + digits]


def _zone_offset_millis(millis: int, zone: str) -> int:
    if zone == "UTC":
        return 0
    try:
        instant = _EPOCH + dt.timedelta(milliseconds=millis)
        offset = instant.astimezone(ZoneInfo(zone)).utcoffset()
    except (OverflowError, ValueError, KeyError, OSError) as cause:
        # The zone is unknown, malformed or a folder name, or Python's datetime cannot represent the instant.
        raise InvalidInputError(
            "instant cannot be converted to the time zone", zone=zone, millis=millis, hint="use a zone such as UTC"
        ) from cause
    return 0 if offset is None else offset // dt.timedelta(milliseconds=1)
