"""Exact evaluation of a predicate on Arrow columns, with SQL's three truth values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.expr.tree import And, Compare, In, IsNull, Not, Or, Predicate

COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def matches(predicate: Predicate, columns: Mapping[str, pa.Array], count: int) -> pa.BooleanArray:
    """Which of `count` rows the predicate keeps; never null.

    Raises:
        InvalidInputError: a column is not there, or a value does not fit its type.
    """
    return pc.fill_null(_evaluate(predicate, columns, count), False)


def _evaluate(predicate: Predicate, columns: Mapping[str, pa.Array], count: int) -> pa.BooleanArray:
    match predicate:
        case Compare(name, op, value):
            values = find_column(columns, name)
            return COMPARISONS[op](values, typed_scalar(value, values.type, name))
        case In(name, options):
            return _evaluate(Or(tuple(Compare(name, "=", option) for option in options)), columns, count)
        case IsNull(name):
            return pc.is_null(find_column(columns, name))
        case Not(part):
            return pc.invert(_evaluate(part, columns, count))
        case And(parts):
            return reduce(pc.and_kleene, (_evaluate(part, columns, count) for part in parts), constant(True, count))
        case Or(parts):
            return reduce(pc.or_kleene, (_evaluate(part, columns, count) for part in parts), constant(False, count))
    raise InvalidInputError("predicate is of an unknown kind", predicate=predicate)


def constant(value: bool, count: int) -> pa.BooleanArray:
    """An array of one truth value."""
    return pa.repeat(pa.scalar(value), count)


def find_column(columns: Mapping[str, pa.Array], name: str) -> pa.Array:
    """The column of this name.

    Raises:
        InvalidInputError: there is none.
    """
    if name not in columns:
        raise InvalidInputError("column is not known here", column=name, hint=f"columns are {', '.join(columns)}")
    return columns[name]


def typed_scalar(value: Any, dtype: pa.DataType, name: str) -> pa.Scalar:
    """The value as a scalar of the column's type.

    Raises:
        InvalidInputError: it does not fit.
    """
    try:
        if isinstance(value, str) and not (pa.types.is_string(dtype) or pa.types.is_large_string(dtype)):
            return pa.scalar(value).cast(dtype)
        return pa.scalar(value, dtype)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError) as cause:
        raise InvalidInputError(
            "value does not fit the column", column=name, value=value, type=dtype, hint="write a value of that type"
        ) from cause
