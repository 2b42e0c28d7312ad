"""Conditions as Spark columns, where both mean the same.

Spark orders NaN above all numbers and calls it equal to itself; here it is neither. What cannot be said exactly has no
translation: the rows are then filtered before they reach Spark.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from tidelake.engines.spark.types import to_spark
from tidelake.expr.tree import And, Compare, In, IsNull, Not, Or, Predicate, StartsWith
from tidelake.spec.types import DataType, Root

_OPERATORS: Final[Mapping[str, Callable[[Column, Column], Column]]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
_INTEGERS: Final = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}
_FLOATS: Final = frozenset({Root.FLOAT, Root.DOUBLE})
_TEXTS: Final = frozenset({Root.CHAR, Root.VARCHAR})


def to_column(where: Predicate, types: Mapping[str, DataType]) -> Column | None:
    """The condition as a column of Spark; None where it would not mean the same."""
    match where:
        case And(parts=parts) | Or(parts=parts) if parts:
            found = [to_column(part, types) for part in parts]
            whole = [each for each in found if each is not None]
            if len(whole) < len(found):
                return None
            return reduce(lambda a, b: a & b if isinstance(where, And) else a | b, whole)
        case Not(part=part):
            inner = to_column(part, types)
            return None if inner is None else ~inner
        case IsNull(column=name):
            return f.col(_quoted(name)).isNull()
        case StartsWith(column=name, prefix=prefix) if types[name].root in _TEXTS:
            return f.col(_quoted(name)).startswith(prefix)
        case Compare(column=name, op=op, value=value) if op in _OPERATORS:
            literal = _literal(value, types[name])
            return None if literal is None else _compared(f.col(_quoted(name)), op, literal, types[name])
        case In(column=name, values=values) if values:
            literals = [_literal(value, types[name]) for value in values]
            whole = [each for each in literals if each is not None]
            return None if len(whole) < len(literals) else f.col(_quoted(name)).isin(*whole)
    return None


def _compared(column: Column, op: str, literal: Column, dtype: DataType) -> Column:
    found = _OPERATORS[op](column, literal)
    return found & ~f.isnan(column) if dtype.root in _FLOATS and op in (">", ">=") else found


def _literal(value: Any, dtype: DataType) -> Column | None:
    """A value that compares with a column of this type without a conversion, or nothing."""
    root = dtype.root
    if isinstance(value, bool) or root is Root.BOOLEAN:
        fits = isinstance(value, bool) and root is Root.BOOLEAN
    elif root in _INTEGERS:
        fits = isinstance(value, int) and -(1 << (_INTEGERS[root] - 1)) <= value < 1 << (_INTEGERS[root] - 1)
    elif root is Root.DOUBLE:
        fits = isinstance(value, float) and math.isfinite(value)
    elif root is Root.DECIMAL:
        return f.lit(value) if isinstance(value, Decimal) and value.is_finite() else None
    elif root in _TEXTS:
        fits = isinstance(value, str)
    elif root is Root.DATE:
        fits = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    else:
        fits = False
    return f.lit(value).cast(to_spark(dtype)) if fits else None


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
