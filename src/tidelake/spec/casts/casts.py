"""Which type changes of a column are allowed, and which texts may be its default.

The matrix is the one that Java enforces when a table is altered. Constructed types never change as a whole, except to
text: their members change one by one, by nested path.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Final

from tidelake.errors import InvalidInputError
from tidelake.spec.types.data_types import (
    LENGTH_MAX,
    DataType,
    DecimalType,
    ElementType,
    LengthType,
    MapType,
    Root,
    RowType,
    VectorType,
    with_nullable,
)


class CastRule(Enum):
    """What a type change needs."""

    IDENTITY = "identity"
    """The same type: nothing to convert."""
    IMPLICIT = "implicit"
    """Always allowed."""
    EXPLICIT = "explicit"
    """Allowed unless the table sets `disable-explicit-type-casting`."""
    REFUSED = "refused"
    """Never allowed."""


_COLUMNS: Final = (
    Root.CHAR, Root.VARCHAR, Root.BOOLEAN, Root.BINARY, Root.VARBINARY, Root.DECIMAL, Root.TINYINT, Root.SMALLINT,
    Root.INT, Root.BIGINT, Root.FLOAT, Root.DOUBLE, Root.DATE, Root.TIME, Root.TIMESTAMP, Root.TIMESTAMP_LTZ,
)  # fmt: skip

# One letter per target in the order above: I implicit, E explicit, S explicit but only to STRING, - refused. The
# diagonal is for changes of parameters (length, precision).
_MATRIX: Final = {
    Root.CHAR:          "I I E E E E E E E E E E E E E E",
    Root.VARCHAR:       "E I E E E E E E E E E E E E E E",
    Root.BOOLEAN:       "E E - - - E E E E E E E - - - -",
    Root.BINARY:        "E E - I I - - - - - - - - - - -",
    Root.VARBINARY:     "E E - E I - - - - - - - - - - -",
    Root.DECIMAL:       "E E - - - I E E E E I I - - - -",
    Root.TINYINT:       "E E E - - I - I I I I I - - - -",
    Root.SMALLINT:      "E E E - - I E - I I I I - - - -",
    Root.INT:           "E E E - - I E E - I I I - - E E",
    Root.BIGINT:        "E E E - - I E E E - I I - - E E",
    Root.FLOAT:         "E E - - - I E E E E - I - - - -",
    Root.DOUBLE:        "E E - - - I E E E E E - - - - -",
    Root.DATE:          "- S - - - - - - - - - - - - E E",
    Root.TIME:          "- S - - - - - - - - - - - - E E",
    Root.TIMESTAMP:     "- S - - - - - - E E - - I I I I",
    Root.TIMESTAMP_LTZ: "- S - - - - - - E E - - E E I I",
    Root.ARRAY:         "E E - - - - - - - - - - - - - -",
    Root.MAP:           "E E - - - - - - - - - - - - - -",
    Root.ROW:           "E E - - - - - - - - - - - - - -",
}  # fmt: skip

_TEXTS: Final = frozenset({Root.CHAR, Root.VARCHAR})
_LETTERS: Final = {"I": CastRule.IMPLICIT, "E": CastRule.EXPLICIT, "-": CastRule.REFUSED}
_RULES: Final = {
    (source, target): letter
    for source, letters in _MATRIX.items()
    for target, letter in zip(_COLUMNS, letters.split(), strict=True)
}


def cast_rule(source: DataType, target: DataType) -> CastRule:
    """What changing a column from one type to another needs, ignoring nullability."""
    if same_type(source, target):
        return CastRule.IDENTITY
    letter = _RULES.get((source.root, target.root), "-")
    if letter == "S":
        unbounded = isinstance(target, LengthType) and target.length == LENGTH_MAX
        return CastRule.EXPLICIT if unbounded else CastRule.REFUSED
    return _LETTERS[letter]


def may_fail(source: DataType, target: DataType) -> bool:
    """Whether some values of the source type may have no counterpart in the target: a text can be anything."""
    return source.root in _TEXTS and target.root not in _TEXTS | {Root.BINARY, Root.VARBINARY}


def same_type(one: DataType, other: DataType) -> bool:
    """Whether two types are equal, ignoring their own nullability and the ids and descriptions of ROW members."""
    return _bare(with_nullable(one, True)) == _bare(with_nullable(other, True))


def _bare(dtype: DataType) -> object:
    match dtype:
        case RowType(fields=fields):
            return Root.ROW, dtype.nullable, tuple((field.name, _bare(field.type)) for field in fields)
        case ElementType(element=element):
            return dtype.root, dtype.nullable, _bare(element)
        case VectorType(element=element, length=length):
            return Root.VECTOR, dtype.nullable, _bare(element), length
        case MapType(key=key, value=value):
            return Root.MAP, dtype.nullable, _bare(key), _bare(value)
    return dtype


# --------------------------------------------------------------------------------------------------- default values

_INTEGER_BITS: Final = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}
_BOOLEANS: Final = frozenset({"true", "t", "yes", "y", "1", "false", "f", "no", "n", "0"})
_BRACKETS: Final = {
    Root.ARRAY: ("[", "]", "ARRAY("),
    Root.VECTOR: ("[", "]", "ARRAY("),
    Root.MAP: ("{", "}", "MAP("),
    Root.ROW: ("{", "}", "STRUCT("),
}
_DATE: Final = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_TIME: Final = re.compile(r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.\d{1,9})?)?", re.ASCII)


def default_text(value: object, *, column: str) -> str | None:
    """The text of a default value given as text, number, boolean, date or time; None for no default.

    Raises:
        InvalidInputError: the value has another type.
    """
    match value:
        case None | str():
            return value
        case bool():
            return str(value).lower()
        case dt.datetime() if value.tzinfo is None:
            return value.isoformat(" ")
        case dt.date() | dt.time() if not isinstance(value, dt.datetime):
            return value.isoformat()
        case Decimal() if value.is_finite():
            return format(value, "f")
        case int():
            return str(int(value))
        case float():
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), repr(float(value)))
    raise InvalidInputError(
        "default value cannot be converted to text",
        column=column,
        got=f"{type(value).__name__} {value!r}"[:100],
        hint='write it as text, such as "5" or "2026-01-31 00:00:00"',
    )


def is_default_for(dtype: DataType, text: str) -> bool:
    """Whether the text can be the default value of a column of this type."""
    root = dtype.root
    if root in (Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY):
        return True
    if root in _INTEGER_BITS:
        number = _number(text) if re.fullmatch(r"[+-]?\d{1,40}", text, re.ASCII) else None
        bound = 2 ** (_INTEGER_BITS[root] - 1)
        return number is not None and -bound <= number < bound
    if root in (Root.FLOAT, Root.DOUBLE):
        return _number(text) is not None or text in ("NaN", "Infinity", "-Infinity")
    if isinstance(dtype, DecimalType):
        number = _number(text)
        return number is not None and abs(number) < Decimal(10) ** (dtype.precision - dtype.scale)
    if root is Root.BOOLEAN:
        return text.lower() in _BOOLEANS
    if root is Root.DATE:
        return _is_date(text)
    if root is Root.TIME:
        return _is_time(text)
    if root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ):
        date, separator, time = text.replace("T", " ", 1).partition(" ")
        return _is_date(date) and (not separator or _is_time(time))
    if root in _BRACKETS:
        return _is_constructed(dtype, text)
    return False


def _is_constructed(dtype: DataType, text: str) -> bool:
    """Whether the text is a value such as `[1, 2]`, `{k -> v}` or `{1, a}`, every member of which fits its type."""
    opening, closing, call = _BRACKETS[dtype.root]
    if text.startswith(opening) and text.endswith(closing):
        parts, called = _parts(text[1:-1]), False
    elif text.upper().startswith(call) and text.endswith(")"):
        parts, called = _parts(text[len(call) : -1]), True
    else:
        return False
    match dtype:
        case VectorType(element=element, length=length):
            return len(parts) == length and all(_is_member(element, part) for part in parts)
        case ElementType(element=element):
            return all(_is_member(element, part) for part in parts)
        case RowType(fields=fields):
            types = [field.type for field in fields]
            return len(parts) == len(types) and all(map(_is_member, types, parts))
        case MapType(key=key, value=value):
            pairs = [parts[place : place + 2] for place in range(0, len(parts), 2)] if called else _arrows(parts)
            return all(len(pair) == 2 and _is_member(key, pair[0]) and _is_member(value, pair[1]) for pair in pairs)
    return False


def _is_member(dtype: DataType, text: str) -> bool:
    if text.lower() == "null":
        return dtype.nullable
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return is_default_for(dtype, text[1:-1] if quoted else text)


def _arrows(parts: list[str]) -> list[list[str]]:
    return [[half.strip() for half in part.split("->", 1)] for part in parts]


def _parts(text: str) -> list[str]:
    """Split at the commas that are outside brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    last = text[start:].strip()
    return [*parts, last] if parts or last else []


def _number(text: str) -> Decimal | None:
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", text, re.ASCII):
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    try:
        dt.date(*map(int, match.groups()))
    except ValueError:
        return False
    return True


def _is_time(text: str) -> bool:
    match = _TIME.fullmatch(text)
    if match is None:
        return False
    hour, minute, second = (int(part or 0) for part in match.groups())
    return hour < 24 and minute < 60 and second < 60
