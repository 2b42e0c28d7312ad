"""Translate conditions of a Polars query, as far as possible, to push them down.

The result is never stronger than the Polars condition. Polars filters the rows again afterwards, so a part that is not
understood is simply left out. Parts that Polars evaluates differently are not translated: comparisons between types,
timestamps of different units (Polars compares them in the coarser one), and negation.
"""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidelake.expr.moments import plain_value
from tidelake.expr.tree import And, Compare, In, IsNull, Not, Or, Predicate, StartsWith
from tidelake.spec.types.data_types import DataType, Field, Root, TimeType

if TYPE_CHECKING:
    import polars as pl

_IN_MAX: Final = 1_000
_OPERATORS: Final = {"Eq": "=", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MICROSECONDS: Final = (4, 5, 6)
"""Precisions of TIMESTAMP that are stored in microseconds, the unit of Python's datetimes."""


def weaker_predicate(expression: pl.Expr, fields: Sequence[Field]) -> Predicate | None:
    """A predicate that is true wherever the expression is; None if nothing of it can be translated."""
    try:
        tree = json.loads(expression.meta.serialize(format="json"))
    except Exception:  # noqa: BLE001 - an expression that Polars cannot serialize (a Python function in it) is not pushed down
        return None
    return _translate(tree, {field.name: field.type for field in fields})


def _translate(node: Any, types: Mapping[str, DataType]) -> Predicate | None:
    match node:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            parts = [part for part in (_translate(left, types), _translate(right, types)) if part is not None]
            return None if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            one, other = _translate(left, types), _translate(right, types)
            return None if one is None or other is None else Or((one, other))
        case {"BinaryExpr": {"left": {"Column": str(name)}, "op": str(op), "right": right}} if op in _OPERATORS:
            return _translate_comparison(name, _OPERATORS[op], right, types)
        case {"BinaryExpr": {"left": left, "op": str(op), "right": {"Column": str(name)}}} if op in _OPERATORS:
            return _translate_comparison(name, _MIRRORED[_OPERATORS[op]], left, types)
        case {"Function": {"input": [{"Column": str(name)}, *arguments], "function": function}} if name in types:
            return _translate_function(name, function, arguments, types)
    return None


def _translate_comparison(name: str, op: str, node: Any, types: Mapping[str, DataType]) -> Predicate | None:
    values = _literal(node)
    if values is None or len(values) != 1 or name not in types or not _fits(values[0], types[name]):
        return None
    return Compare(name, op, plain_value(values[0]))


def _translate_function(
    name: str, function: Any, arguments: Sequence[Any], types: Mapping[str, DataType]
) -> Predicate | None:
    match function:
        case {"Boolean": "IsNull"}:
            return IsNull(name)
        case {"Boolean": "IsNotNull"}:
            return Not(IsNull(name))
        case {"Boolean": {"IsIn": {"nulls_equal": False}}} if len(arguments) == 1:
            values = _literal(arguments[0])
            if values is None or len(values) > _IN_MAX:
                return None
            wanted = [value for value in values if value is not None]
            return (
                In(name, tuple(map(plain_value, wanted)))
                if all(_fits(value, types[name]) for value in wanted)
                else None
            )
        case {"Boolean": {"IsBetween": {"closed": "Both"}}} if len(arguments) == 2:
            low, high = (
                _translate_comparison(name, ">=", arguments[0], types),
                _translate_comparison(name, "<=", arguments[1], types),
            )
            return None if low is None or high is None else And((low, high))
        case {"StringExpr": "StartsWith"} if len(arguments) == 1:
            values = _literal(arguments[0])
            text = types[name].root is Root.VARCHAR and values is not None and len(values) == 1
            return StartsWith(name, values[0]) if text and values and isinstance(values[0], str) else None
    return None


def _literal(node: Any) -> list[Any] | None:
    """The values of a constant: one, or those of a list. None if the node is not a constant."""
    cast = False
    match node:
        case {"Cast": {"expr": {"Literal": _}}} if len(node) == 1:
            cast = True
        case {"Literal": _} if len(node) == 1:
            pass
        case _:
            return None
    import polars as pl

    try:
        series = pl.select(pl.Expr.deserialize(io.BytesIO(json.dumps(node).encode()), format="json")).to_series()
    except Exception:  # noqa: BLE001 - the JSON is internal to Polars and may change: what cannot be read is not pushed down
        return None
    if len(series) == 1 and isinstance(series.dtype, pl.List):
        series = series.explode()
    if isinstance(series.dtype, pl.Datetime) and series.dtype.time_unit == "ns":
        return list(series.to_arrow())  # a Python datetime would cut the nanoseconds
    if cast:
        return None  # a cast changes how Polars compares; only its own cast to nanoseconds is understood
    values: list[Any] = series.to_list()
    return values


_INTEGER_BITS: Final = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}


def _fits(value: Any, dtype: DataType) -> bool:
    """Whether Polars and we compare a column of this type with this value in the same way."""
    root = dtype.root
    if root in _INTEGER_BITS:
        bound = 1 << (_INTEGER_BITS[root] - 1)
        return isinstance(value, int) and not isinstance(value, bool) and -bound <= value < bound
    if root in (Root.FLOAT, Root.DOUBLE):
        # Polars compares a FLOAT as it is; here it is widened to DOUBLE.
        return isinstance(value, float) and root is Root.DOUBLE
    if root is Root.BOOLEAN:
        return isinstance(value, bool)
    if root is Root.VARCHAR:
        return isinstance(value, str)
    if root in (Root.BINARY, Root.VARBINARY):
        return isinstance(value, bytes)
    if root is Root.DATE:
        return isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    if isinstance(value, pa.TimestampScalar):
        nanos = isinstance(dtype, TimeType) and root is not Root.TIME and dtype.precision > _MICROSECONDS[-1]
        return nanos and value.is_valid and (value.type.tz is not None) is (root is Root.TIMESTAMP_LTZ)
    if isinstance(dtype, TimeType) and root is not Root.TIME and isinstance(value, dt.datetime):
        zoned = root is Root.TIMESTAMP_LTZ
        return dtype.precision in _MICROSECONDS and (value.tzinfo is not None) is zoned
    return False
