"""Predicates made smaller without changing what they say, taken apart, and asked about single columns.

`simplify` keeps all three truth values of every row (it may drop a part that would have been an error). `restrict` and
`literals` only weaken: wherever the predicate is true, what they say is true as well, so both are safe to prune with.
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
    flattened,
)
from tidelake.spec.arrow_types import from_arrow, to_arrow
from tidelake.spec.types import DataType, TimeType

_LEAVES: Final = (Compare, In, IsNull, StartsWith)
_OPPOSITE: Final = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def simplify(predicate: Predicate) -> Predicate:
    """An equivalent predicate: constants folded, ANDs and ORs flat and without doubles, NOT as far inside as it goes.

    Raises:
        InvalidInputError: it is nested too deeply.
    """
    return _bounded(lambda: _simplified(predicate))


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """The parts that all must hold, without ANDs among them."""
    return tuple(flattened(predicate)) if isinstance(predicate, And) else (predicate,)


def restrict(predicate: Predicate, names: Collection[str]) -> Predicate:
    """What the predicate says about these columns alone; `ALWAYS` if that is nothing.

    It is true wherever the predicate is: a conjunct that looks at another column is left out, and an OR stays if each
    of its parts says something about the columns.
    """
    kept = []
    for part in conjuncts(predicate):
        if part.columns() <= frozenset(names):
            kept.append(part)
        elif isinstance(part, Or):
            options = tuple(restrict(option, names) for option in flattened(part))
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
    return _bounded(lambda: _simplified(_put(predicate, scalars)))


def literals(predicate: Predicate, column: str, dtype: DataType | None = None) -> tuple[Any, ...] | None:
    """The values of a column outside of which the predicate is never true; None where it does not say.

    Each conjunct that is an OR of `=` and `IN` on this column alone gives its values; several conjuncts are
    intersected, and an empty intersection says nothing. With `dtype` the values are brought to the column's type first,
    so that `'2024-01-01'` and a date are one value; without it they must be of that type, as the parser makes them.
    Nanoseconds have no Python value: a TIMESTAMP of more than 6 digits has no answer.

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
        typed = [_typed(value, column, dtype) for value in options if value is not None]
        typed = [value for value in typed if not is_fine(value)]  # the column has no nanoseconds: nothing is equal
        if any(isinstance(value, float) and (value == 0 or math.isnan(value)) for value in typed):
            return None  # 0.0 and -0.0 are equal, and so is every NaN, but they do not hash alike
        found = _distinct(typed) if found is None else [value for value in found if value in typed]
    return tuple(found) if found else None


# ------------------------------------------------------------------------------------------------------- simplified


def _bounded(compute: Callable[[], Predicate]) -> Predicate:
    try:
        return compute()
    except RecursionError as cause:
        raise InvalidInputError("predicate is nested too deeply", hint="use IN for a long list of values") from cause


def _simplified(predicate: Predicate) -> Predicate:
    match predicate:
        case And():
            return _joined(predicate, ALWAYS, NEVER)
        case Or():
            return _joined(predicate, NEVER, ALWAYS)
        case Not(part):
            return _negated(_simplified(part))
        case Compare(_, _, None):
            return UNKNOWN
        case In(column, values):
            return _simplified_in(column, values)
        case Holds(Truth(part)):
            return _simplified(part)
        case Missing(ColumnRef(column)):
            return IsNull(column)
        case Is(part, value):
            return _simplified_is(_simplified(part), value)
    if isinstance(predicate, (*_LEAVES, Unknown)):
        return predicate
    return _folded(with_children(predicate, _simplified_node))


def _joined(predicate: And | Or, neutral: Predicate, decisive: Predicate) -> Predicate:
    kind = type(predicate)
    parts: list[Predicate] = []
    for part in flattened(predicate):
        simple = _simplified(part)
        parts.extend(flattened(simple) if isinstance(simple, kind) else [simple])
    parts = [part for part in _distinct(parts) if part != neutral]
    if decisive in parts:
        return decisive
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _simplified_in(column: str, values: tuple[Any, ...]) -> Predicate:
    if not values:
        return NEVER
    if all(value is None for value in values):
        return UNKNOWN
    return Compare(column, "=", values[0]) if len(values) == 1 else In(column, values)


def _simplified_is(part: Predicate, value: bool | None) -> Predicate:
    known = _constant(part)
    if known is not None:
        return ALWAYS if known[0] is value else NEVER
    if isinstance(part, (IsNull, Missing, Is)):  # never unknown
        return NEVER if value is None else part if value else _negated(part)
    return Is(part, value)


def _negated(part: Predicate) -> Predicate:
    """NOT of a simplified predicate."""
    match part:
        case Not(inner):
            return inner
        case And(parts):
            return _joined(Or(tuple(map(_negated, parts))), NEVER, ALWAYS) if parts else NEVER
        case Or(parts):
            return _joined(And(tuple(map(_negated, parts))), ALWAYS, NEVER) if parts else ALWAYS
        case Unknown():
            return part
        case Compare(column, op, value):
            return Compare(column, _OPPOSITE[op], value)
    return Not(part)


def _simplified_node(node: Node) -> Node:
    if isinstance(node, Predicate):
        return _simplified(node)
    assert isinstance(node, Scalar)
    return _folded_scalar(with_children(node, _simplified_node))


def _folded(predicate: Predicate) -> Predicate:
    """A condition that looks at no column, as its truth value."""
    if predicate.columns():
        return predicate
    try:
        return _of(truth(predicate, {}, 1)[0].as_py())
    except InvalidInputError:
        return predicate  # it stays an error for whoever evaluates it


def _folded_scalar(scalar: Scalar) -> Scalar:
    if isinstance(scalar, Literal) or scalar.columns():
        return scalar
    try:
        return _as_literal(evaluate_scalar(scalar, {}, 1)[0]) or scalar
    except InvalidInputError:
        return scalar


def _as_literal(value: pa.Scalar) -> Literal | None:
    """The constant, if its type and value survive the way through Python."""
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


def _of(value: bool | None) -> Predicate:
    return UNKNOWN if value is None else ALWAYS if value else NEVER


# ------------------------------------------------------------------------------------------------------ substituted


def _put(node: Any, values: Mapping[str, pa.Scalar]) -> Any:
    name = node.reads()
    if name is not None:
        if name not in values:
            return node
        if isinstance(node, ColumnRef):
            return _as_literal(values[name]) or node
        if not values[name].is_valid:
            return ALWAYS if isinstance(node, IsNull) else NEVER if node == In(name, ()) else UNKNOWN
        return _of(truth(node, {name: pa.array([values[name]], values[name].type)}, 1)[0].as_py())
    return with_children(node, lambda child: _put(child, values))


def _scalar(value: Any) -> pa.Scalar:
    if isinstance(value, pa.Scalar):
        return value
    dtype = literal_type(value)
    return pa.scalar(None) if dtype is None else pa.scalar(value, to_arrow(dtype))


def with_children(node: Any, change: Any) -> Any:
    """The node with each node directly below it changed."""
    return replace(node, **{each.name: _changed(getattr(node, each.name), change) for each in fields(node)})


def _changed(value: Any, change: Any) -> Any:
    if isinstance(value, Node):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_changed(each, change) for each in value)
    return value


# --------------------------------------------------------------------------------------------------------- literals


def _options(part: Predicate, column: str) -> list[Any] | None:
    """The values of an OR of `=` and `IN` on this column alone."""
    values: list[Any] = []
    for leaf in flattened(part) if isinstance(part, Or) else [part]:
        match leaf:
            case Compare(name, "=", value) if name == column:
                values.append(value)
            case In(name, options) if name == column:
                values.extend(options)
            case _:
                return None
    return values


def _typed(value: Any, column: str, dtype: DataType | None) -> Any:
    return value if dtype is None else plain_value(typed_scalar(value, to_arrow(dtype), column))


def _distinct(values: list[Any]) -> list[Any]:
    """Each once, in order; as they are where they cannot be told apart by a hash."""
    try:
        return list(dict.fromkeys(values))
    except TypeError:
        return values
