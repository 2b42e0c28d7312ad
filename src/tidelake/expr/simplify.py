"""Simplify predicates, split them into conjuncts, and derive what they say about single columns.

`simplify` keeps all three truth values of every row (it may drop a part that would have been an error). `restrict` and
`literals` only weaken: their result is true wherever the predicate is, so that both are safe for pruning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from typing import Any, Final

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.expr.evaluate import evaluate_scalar, truth, typed_scalar
from tidelake.expr.moments import is_fine, plain_value
from tidelake.expr.node import Node, Scalar
from tidelake.expr.scalar import ColumnRef, Literal, literal, literal_type
from tidelake.expr.tree import (
    ALWAYS,
    NEVER,
    UNKNOWN,
    And,
    Compare,
    Holds,
    In,
    Is,
    IsNull,
    Missing,
    Not,
    Or,
    Predicate,
    StartsWith,
    Truth,
    Unknown,
    flatten,
)
from tidelake.spec.types.arrow_types import from_arrow, to_arrow
from tidelake.spec.types.data_types import DataType, TimeType

_LEAVES: Final = (Compare, In, IsNull, StartsWith)
_OPPOSITE: Final = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def simplify(predicate: Predicate) -> Predicate:
    """An equivalent predicate: constants folded, ANDs and ORs flat and without duplicates, NOT pushed inward.

    Raises:
        InvalidInputError: it is nested too deeply.
    """
    return _refuse_deep_nesting(lambda: _simplify(predicate))


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """The parts that must all be true, none of them an AND."""
    return tuple(flatten(predicate)) if isinstance(predicate, And) else (predicate,)


def restrict(predicate: Predicate, names: Collection[str]) -> Predicate:
    """The part of the predicate about these columns only; `ALWAYS` if it says nothing about them.

    It is true wherever the predicate is: a conjunct that reads another column is left out, and an OR stays if each of
    its parts says something about the columns.
    """
    kept = []
    for part in conjuncts(predicate):
        if part.columns() <= frozenset(names):
            kept.append(part)
        elif isinstance(part, Or):
            options = tuple(restrict(option, names) for option in flatten(part))
            if ALWAYS not in options:
                kept.append(Or(options))
    return kept[0] if len(kept) == 1 else And(tuple(kept))


def substitute(predicate: Predicate, values: Mapping[str, Any]) -> Predicate:
    """The predicate with columns replaced by their values, simplified.

    A value is a Python value, or a `pyarrow.Scalar` where its type matters (a DECIMAL, a TIMESTAMP with nanoseconds).

    Raises:
        InvalidInputError: a value cannot be compared with what the predicate compares its column with.
    """
    scalars = {name: _scalar(value) for name, value in values.items()}
    return _refuse_deep_nesting(lambda: _simplify(_replace_columns(predicate, scalars)))


def literals(predicate: Predicate, column: str, dtype: DataType | None = None) -> tuple[Any, ...] | None:
    """The values that a column must have for the predicate to be true; None if they are not limited to a list.

    Each conjunct that is an OR of `=` and `IN` on only this column gives a list of values. Lists of several conjuncts
    are intersected; if nothing is left, the result is None. With `dtype` the values are converted to the column's type
    first, so that `'2024-01-01'` and a date are one value; without it they must have that type, as the parser makes
    them. The result is None for a TIMESTAMP of more than 6 digits, because Python has no values for nanoseconds.

    Raises:
        InvalidInputError: a value does not fit the column's type.
    """
    if isinstance(dtype, TimeType) and dtype.precision > 6:
        return None
    found: list[Any] | None = None
    for part in conjuncts(predicate):
        options = _options(part, column)
        if options is None:
            continue
        typed = [_to_column_type(value, column, dtype) for value in options if value is not None]
        typed = [
            value for value in typed if not is_fine(value)
        ]  # the column has no nanoseconds, so that no row is equal
        if any(isinstance(value, float) and (value == 0 or math.isnan(value)) for value in typed):
            return None  # 0.0 and -0.0 are equal, and so is every NaN, but they do not hash alike
        found = _drop_duplicates(typed) if found is None else [value for value in found if value in typed]
    return tuple(found) if found else None


# ------------------------------------------------------------------------------------------------------- simplified


def _refuse_deep_nesting(compute: Callable[[], Predicate]) -> Predicate:
    try:
        return compute()
    except RecursionError as cause:
        raise InvalidInputError("predicate is nested too deeply", hint="use IN for a long list of values") from cause


def _simplify(predicate: Predicate) -> Predicate:
    match predicate:
        case And():
            return _simplify_parts(predicate, ALWAYS, NEVER)
        case Or():
            return _simplify_parts(predicate, NEVER, ALWAYS)
        case Not(part):
            return _negate(_simplify(part))
        case Compare(_, _, None):
            return UNKNOWN
        case In(column, values):
            return _simplify_in(column, values)
        case Holds(Truth(part)):
            return _simplify(part)
        case Missing(ColumnRef(column)):
            return IsNull(column)
        case Is(part, value):
            return _simplify_is(_simplify(part), value)
    if isinstance(predicate, (*_LEAVES, Unknown)):
        return predicate
    return _fold(with_children(predicate, _simplify_node))


def _simplify_parts(predicate: And | Or, neutral: Predicate, decisive: Predicate) -> Predicate:
    kind = type(predicate)
    parts: list[Predicate] = []
    for part in flatten(predicate):
        simple = _simplify(part)
        parts.extend(flatten(simple) if isinstance(simple, kind) else [simple])
    parts = [part for part in _drop_duplicates(parts) if part != neutral]
    if decisive in parts:
        return decisive
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _simplify_in(column: str, values: tuple[Any, ...]) -> Predicate:
    if not values:
        return NEVER
    if all(value is None for value in values):
        return UNKNOWN
    return Compare(column, "=", values[0]) if len(values) == 1 else In(column, values)


def _simplify_is(part: Predicate, value: bool | None) -> Predicate:
    known = _constant(part)
    if known is not None:
        return ALWAYS if known[0] is value else NEVER
    if isinstance(part, (IsNull, Missing, Is)):  # never unknown
        return NEVER if value is None else part if value else _negate(part)
    return Is(part, value)


def _negate(part: Predicate) -> Predicate:
    """NOT of a simplified predicate."""
    match part:
        case Not(inner):
            return inner
        case And(parts):
            return _simplify_parts(Or(tuple(map(_negate, parts))), NEVER, ALWAYS) if parts else NEVER
        case Or(parts):
            return _simplify_parts(And(tuple(map(_negate, parts))), ALWAYS, NEVER) if parts else ALWAYS
        case Unknown():
            return part
        case Compare(column, op, value):
            return Compare(column, _OPPOSITE[op], value)
    return Not(part)


def _simplify_node(node: Node) -> Node:
    if isinstance(node, Predicate):
        return _simplify(node)
    assert isinstance(node, Scalar)
    return _fold_scalar(with_children(node, _simplify_node))


def _fold(predicate: Predicate) -> Predicate:
    """A condition that looks at no column, as its truth value."""
    if predicate.columns():
        return predicate
    try:
        return _truth_predicate(truth(predicate, {}, 1)[0].as_py())
    except InvalidInputError:
        return predicate  # its evaluation fails, and the error belongs to the evaluation


def _fold_scalar(scalar: Scalar) -> Scalar:
    if isinstance(scalar, Literal) or scalar.columns():
        return scalar
    try:
        return _as_literal(evaluate_scalar(scalar, {}, 1)[0]) or scalar
    except InvalidInputError:
        return scalar


def _as_literal(value: pa.Scalar) -> Literal | None:
    """The constant, if Python can represent its type and value."""
    if pa.types.is_null(value.type):
        return Literal(None)
    if pa.types.is_nested(value.type):
        return None
    dtype = from_arrow(value.type)
    return literal(plain_value(value), dtype) if to_arrow(dtype) == value.type else None


def _constant(predicate: Predicate) -> tuple[bool | None] | None:
    if isinstance(predicate, Unknown):
        return (None,)
    return (True,) if predicate == ALWAYS else (False,) if predicate == NEVER else None


def _truth_predicate(value: bool | None) -> Predicate:
    return UNKNOWN if value is None else ALWAYS if value else NEVER


# ------------------------------------------------------------------------------------------------------ substituted


def _replace_columns(node: Any, values: Mapping[str, pa.Scalar]) -> Any:
    name = node.reads()
    if name is not None:
        if name not in values:
            return node
        if isinstance(node, ColumnRef):
            return _as_literal(values[name]) or node
        if not values[name].is_valid:
            return ALWAYS if isinstance(node, IsNull) else NEVER if node == In(name, ()) else UNKNOWN
        return _truth_predicate(truth(node, {name: pa.array([values[name]], values[name].type)}, 1)[0].as_py())
    return with_children(node, lambda child: _replace_columns(child, values))


def _scalar(value: Any) -> pa.Scalar:
    if isinstance(value, pa.Scalar):
        return value
    dtype = literal_type(value)
    return pa.scalar(None) if dtype is None else pa.scalar(value, to_arrow(dtype))


def with_children(node: Any, change: Any) -> Any:
    """The node with `change` applied to each of its children."""
    return replace(node, **{each.name: _map_nodes(getattr(node, each.name), change) for each in fields(node)})


def _map_nodes(value: Any, change: Any) -> Any:
    if isinstance(value, Node):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_map_nodes(each, change) for each in value)
    return value


# --------------------------------------------------------------------------------------------------------- literals


def _options(part: Predicate, column: str) -> list[Any] | None:
    """The values of an OR of `=` and `IN` on this column alone."""
    values: list[Any] = []
    for leaf in flatten(part) if isinstance(part, Or) else [part]:
        match leaf:
            case Compare(name, "=", value) if name == column:
                values.append(value)
            case In(name, options) if name == column:
                values.extend(options)
            case _:
                return None
    return values


def _to_column_type(value: Any, column: str, dtype: DataType | None) -> Any:
    return value if dtype is None else plain_value(typed_scalar(value, to_arrow(dtype), column))


def _drop_duplicates(values: list[Any]) -> list[Any]:
    """Each value once, in order; unchanged if one of them cannot be hashed."""
    try:
        return list(dict.fromkeys(values))
    except TypeError:
        return values
