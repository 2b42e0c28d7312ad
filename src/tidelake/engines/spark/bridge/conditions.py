"""Translate conditions into Spark columns, where both mean the same.

A condition that Spark would evaluate differently is not translated: our reader then filters the rows before they reach
Spark.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import TimestampNTZType

from tidelake.engines.spark.bridge.types import to_spark
from tidelake.errors import InvalidInputError
from tidelake.expr.evaluate import typed_scalar
from tidelake.expr.moments import is_fine, plain_value
from tidelake.expr.scalar import ColumnRef
from tidelake.expr.tree import And, Compare, Holds, In, IsNull, Not, Or, Predicate, StartsWith, flatten
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import DataType, Root, TimeType

NODES_MAX: Final = 500
"""Nodes and values of a condition above which Spark spends more time planning it than we spend filtering."""
_OPERATORS: Final[Mapping[str, Callable[[Column, Column], Column]]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
_FLOATS: Final = frozenset({Root.FLOAT, Root.DOUBLE})
_TEXTS: Final = frozenset({Root.CHAR, Root.VARCHAR})
_COMPARED: Final = frozenset(
    {
        Root.BOOLEAN, Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.DECIMAL, Root.DATE, Root.TIMESTAMP,
        Root.TIMESTAMP_LTZ, *_FLOATS, *_TEXTS,
    }
)  # fmt: skip
_MICROS: Final = 6
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def to_column(where: Predicate, types: Mapping[str, DataType]) -> Column | None:
    """Translate a condition; None if it would mean something else in Spark, or would be too long."""
    return _column(where, types) if _fits(where) else None


def column_named(name: str) -> Column:
    """The column of exactly this name, whatever characters it has."""
    return f.col(quote_name(name))


def quote_name(name: str) -> str:
    """The name of a column in a text of SQL, whatever characters it has."""
    return f"`{name.replace('`', '``')}`"


def _fits(where: Predicate) -> bool:
    pending, count = [where], 0
    while pending and count <= NODES_MAX:
        node = pending.pop()
        count += len(node.values) if isinstance(node, In) else 1
        match node:
            case And(parts=parts) | Or(parts=parts):
                pending.extend(parts)
            case Not(part=part):
                pending.append(part)
    return count <= NODES_MAX


def _column(where: Predicate, types: Mapping[str, DataType]) -> Column | None:
    match where:
        case And() | Or() if where.parts:
            found = [_column(part, types) for part in flatten(where)]
            whole = [each for each in found if each is not None]
            if len(whole) < len(found):
                return None
            return reduce(lambda a, b: a & b if isinstance(where, And) else a | b, whole)
        case Not(part=part):
            inner = _column(part, types)
            return None if inner is None else ~inner
        case IsNull(column=name):
            return column_named(name).isNull()
        case Holds(operand=ColumnRef(column=name)) if types[name].root is Root.BOOLEAN:
            return column_named(name)
        case StartsWith(column=name, prefix=prefix) if types[name].root in _TEXTS:
            return column_named(name).startswith(prefix)
        case Compare(column=name, op=op, value=value) if op in _OPERATORS:
            literal = _literal(value, types[name], name)
            return None if literal is None else _OPERATORS[op](column_named(name), literal)
        case In(column=name, values=values) if values:
            literals = [_literal(value, types[name], name) for value in values]
            whole = [each for each in literals if each is not None]
            if len(whole) < len(literals):
                return None
            if types[name].root in _FLOATS:
                # Spark evaluates a long IN with a hash set, for which -0.0 and 0.0 differ.
                return reduce(lambda a, b: a | b, (column_named(name) == each for each in whole))
            return column_named(name).isin(*whole)
    return None


def _literal(value: Any, dtype: DataType, name: str) -> Column | None:
    """The value as a literal of the column's type, so that Spark compares without a cast; or None."""
    root = dtype.root
    if root not in _COMPARED or (isinstance(dtype, TimeType) and dtype.precision > _MICROS):
        return None
    try:
        known = plain_value(typed_scalar(value, to_arrow(dtype), name))
    except InvalidInputError:
        return None  # our reader raises the error for such a value
    if known is None or is_fine(known) or (isinstance(known, float) and math.isinf(known)):
        return None
    if root is Root.TIMESTAMP:
        return f.lit(known.isoformat()).cast(TimestampNTZType())
    if root is Root.TIMESTAMP_LTZ:
        return f.timestamp_micros(f.lit((known - _EPOCH) // dt.timedelta(microseconds=1)))
    # A timestamp compared with a DATE column is finer than the column.
    return None if isinstance(known, dt.datetime) else f.lit(known).cast(to_spark(dtype))
