"""Expressions as SQL text, for error messages and plans; parsing the text gives an equal tree.

Every operand that is not a single word gets parentheses, so that nothing depends on precedence.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from tidelake.expr import moments
from tidelake.expr.node import Node, Scalar
from tidelake.expr.scalar import Arithmetic, Call, Cast, Coalesce, ColumnRef, Literal, Member, Negate, NullIf
from tidelake.expr.tree import (
    And,
    Case,
    Compare,
    Holds,
    In,
    Is,
    IsNull,
    Like,
    Missing,
    Not,
    Or,
    Predicate,
    Regex,
    StartsWith,
    Test,
    Truth,
)
from tidelake.spec.types.data_types import DataType, LengthType, Root

_SUFFIX: Final = {Root.TINYINT: "Y", Root.SMALLINT: "S", Root.BIGINT: "L"}
_ESCAPES: Final = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0", "\x1a": "\\Z"}
_TRIMS: Final = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}
_COMPOUND: Final = (And, Or, Not, Is)


def to_sql(node: Node) -> str:
    """The expression as SQL text of the Spark dialect."""
    return _scalar(node) if isinstance(node, Scalar) else _predicate(node)


def quote_name(name: str) -> str:
    """A column's name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def _predicate(node: Node) -> str:
    match node:
        case And(()):
            return "TRUE"
        case Or(()):
            return "FALSE"
        case And(parts):
            return " AND ".join(map(_parenthesize, parts))
        case Or(parts):
            return " OR ".join(map(_parenthesize, parts))
        case Not(part):
            return f"NOT ({_predicate(part)})"
        case Compare(column, op, value):
            return f"{quote_name(column)} {_operator(op)} {_constant(value)}"
        case In(_, ()):
            return "FALSE"
        case In(column, values):
            return f"{quote_name(column)} IN ({', '.join(map(_constant, values))})"
        case IsNull(column):
            return f"{quote_name(column)} IS NULL"
        case StartsWith(column, prefix):
            return f"startswith({quote_name(column)}, {_constant(prefix)})"
    return _predicate_of_scalars(node)


def _predicate_of_scalars(node: Node) -> str:
    match node:
        case Test(left, op, right):
            return f"{_operand(left)} {_operator(op)} {_operand(right)}"
        case Holds(operand):
            return _operand(operand)
        case Missing(operand):
            return f"{_operand(operand)} IS NULL"
        case Is(part, value):
            return f"({_predicate(part)}) IS {'UNKNOWN' if value is None else str(value).upper()}"
        case Like(operand, pattern, ignore_case):
            return f"{_operand(operand)} {'ILIKE' if ignore_case else 'LIKE'} {_constant(pattern)}"
        case Regex(operand, pattern):
            return f"{_operand(operand)} RLIKE {_constant(pattern)}"
    return "NULL"


def _parenthesize(part: Predicate) -> str:
    text = _predicate(part)
    return f"({text})" if isinstance(part, _COMPOUND) and text not in ("TRUE", "FALSE") else text


def _operator(op: str) -> str:
    return "<>" if op == "!=" else op


def _scalar(node: Node) -> str:
    match node:
        case Literal(value, dtype):
            return _constant(value, dtype)
        case ColumnRef(column):
            return quote_name(column)
        case Member(operand, name):
            return f"{_operand(operand)}.{quote_name(name)}"
        case Arithmetic(op, left, right):
            return f"{_operand(left)} {op} {_operand(right)}"
        case Negate(operand):
            return f"-({_scalar(operand)})"
        case Case(branches, default):
            whens = " ".join(f"WHEN {_predicate(condition)} THEN {_scalar(value)}" for condition, value in branches)
            return f"CASE {whens} ELSE {_scalar(default)} END"
        case Coalesce(parts):
            return f"coalesce({', '.join(map(_scalar, parts))})"
        case NullIf(left, right):
            return f"nullif({_scalar(left)}, {_scalar(right)})"
        case Cast(operand, dtype):
            return f"CAST({_scalar(operand)} AS {_type(dtype)})"
        case Call(function, (text, characters)) if function in _TRIMS:
            return f"trim({_TRIMS[function]} {_scalar(characters)} FROM {_scalar(text)})"
        case Call(function, arguments):
            return f"{function}({', '.join(map(_scalar, arguments))})"
        case Truth(predicate):
            return f"({_predicate(predicate)})"
    return repr(node)


def _operand(node: Scalar) -> str:
    text = _scalar(node)
    return f"({text})" if isinstance(node, (Arithmetic, Negate)) else text


def _type(dtype: DataType) -> str:
    if isinstance(dtype, LengthType) and dtype.root is Root.VARBINARY:
        return "BINARY"
    if dtype.root is Root.TIMESTAMP_LTZ:
        return "TIMESTAMP_LTZ"
    return dtype.body()


def _constant(value: Any, dtype: DataType | None = None) -> str:
    match value:
        case None:
            return "NULL" if dtype is None else f"CAST(NULL AS {_type(dtype)})"
        case bool():
            return str(value).upper()
        case int():
            return f"{value}{_SUFFIX.get(dtype.root, '') if dtype else ''}"
        case float():
            return _float(value, "FLOAT" if dtype is not None and dtype.root is Root.FLOAT else "DOUBLE")
        case Decimal():
            text = f"{value:f}"
            return text if "." in text else f"{text}BD"
        case str():
            return "'" + "".join(_ESCAPES.get(each, each) for each in value) + "'"
        case bytes():
            return f"X'{value.hex()}'"
        case pa.TimestampScalar() if value.type.tz is not None:
            return f"TIMESTAMP_LTZ '{moments.format_nanos(value)} UTC'"
        case pa.TimestampScalar():
            return f"TIMESTAMP '{moments.format_nanos(value)}'"
        case dt.datetime() if value.tzinfo is not None:
            return f"TIMESTAMP_LTZ '{_moment(value.astimezone(dt.UTC))} UTC'"
        case dt.datetime():
            return f"TIMESTAMP '{_moment(value)}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case dt.time():
            return f"TIME '{value.isoformat()}'"
    return ascii(value)


def _moment(value: dt.datetime) -> str:
    return value.replace(tzinfo=None).isoformat(sep=" ")


def _float(value: float, kind: str) -> str:
    if math.isnan(value) or math.isinf(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"CAST('{name}' AS {kind})"
    return f"{value!r}{kind[0]}"
