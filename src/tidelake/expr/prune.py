"""Decide from bounds whether rows may satisfy a predicate. The answer is never no if a row could match."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.expr.coerce import common_type, has_nan, is_text, keeps_order, to_common_type
from tidelake.expr.evaluate import beside_column, constant, literal_scalar, read_text
from tidelake.expr.scalar import ColumnRef, Literal
from tidelake.expr.tree import (
    SAME,
    And,
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
    StartsWith,
    Test,
    Unknown,
    flatten,
)

_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", SAME: SAME}
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Per group of rows: the least and greatest value (null: not known), how many are null, how many there are."""

    low: pa.Array
    high: pa.Array
    null_count: pa.Array
    row_count: pa.Array
    without_nan: bool = False
    """Whether groups with bounds are known to contain no NaN. For most files that is unknown: NaN is greater than every
    number, but many writers leave it out of their bounds."""


def may_match(predicate: Predicate, bounds: Mapping[str, Bounds], count: int) -> pa.BooleanArray:
    """For each of `count` groups of rows, whether one of them may satisfy the predicate.

    Raises:
        InvalidInputError: a value does not fit its column's type.
    """
    try:
        return _may_match(predicate, bounds, count)
    except RecursionError as cause:
        raise InvalidInputError("predicate is nested too deeply", hint="use IN for a long list of values") from cause


def _may_match(predicate: Predicate, bounds: Mapping[str, Bounds], count: int) -> pa.BooleanArray:
    match predicate:
        case And():
            parts = (_may_match(part, bounds, count) for part in flatten(predicate))
            return reduce(pc.and_, parts, constant(True, count))
        case Or():
            parts = (_may_match(part, bounds, count) for part in flatten(predicate))
            return reduce(pc.or_, parts, constant(False, count))
        case Not(IsNull(name)) if name in bounds:
            return _unknown_as_true(pc.less(bounds[name].null_count, bounds[name].row_count))
        case Not(StartsWith(name, prefix)) if name in bounds:
            return _some_start_otherwise(bounds[name], prefix)
        case Not(part):
            negated = _negate(part)
            return constant(True, count) if negated is None else _may_match(negated, bounds, count)
        case In(name, options):
            return _may_match(Or(tuple(Compare(name, "=", option) for option in options)), bounds, count)
        case IsNull(name) if name in bounds:
            return _unknown_as_true(pc.greater(bounds[name].null_count, 0))
        case Compare(name, op, value) if name in bounds:
            return _compare(bounds[name], name, op, value, count)
        case StartsWith(name, prefix) if name in bounds:
            return _some_start(bounds[name], prefix)
        case Test(ColumnRef(name), op, Literal() as value) if name in bounds:
            return _test(bounds[name], name, op, value, count)
        case Test(Literal() as value, op, ColumnRef(name)) if name in bounds:
            return _test(bounds[name], name, _MIRRORED[op], value, count)
        case Unknown():
            return constant(False, count)
    simpler = _simpler(predicate)
    return constant(True, count) if simpler is None else _may_match(simpler, bounds, count)


def _simpler(predicate: Predicate) -> Predicate | None:
    """A predicate that is true wherever this one is and that bounds can decide; None if there is none."""
    match predicate:
        case Holds(ColumnRef(name)):
            return Compare(name, "=", True)
        case Missing(ColumnRef(name)):
            return IsNull(name)
        case Is(part, True):
            return part
        case Is(part, False):
            return Not(part)
        case Like(ColumnRef(name), pattern, False):
            return StartsWith(name, like_prefix(pattern))
    return None


def like_prefix(pattern: str) -> str:
    """The prefix that all texts matching a LIKE pattern have."""
    prefix, characters = "", iter(pattern)
    for character in characters:
        if character in "%_":
            break
        prefix += next(characters, "") if character == "\\" else character
    return prefix


def _compare(bounds: Bounds, name: str, op: str, value: object, count: int) -> pa.BooleanArray:
    if value is None:
        return constant(False, count)  # a comparison with null is never true
    op, scalar = beside_column(op, value, bounds.low.type, name)
    return _inside(bounds, op, _drop_nan(bounds.low), _drop_nan(bounds.high), scalar)


def _test(bounds: Bounds, name: str, op: str, value: Literal, count: int) -> pa.BooleanArray:
    """A comparison with a constant of another type: bounds and constant are converted to the common type."""
    if value.value is None:
        return _unknown_as_true(pc.greater(bounds.null_count, 0)) if op == SAME else constant(False, count)
    scalar = literal_scalar(value)
    if is_text(scalar.type) and not is_text(bounds.low.type):
        scalar = read_text(scalar, bounds.low.type, Test(ColumnRef(name), op, value))
    dtype = common_type(bounds.low.type, scalar.type)
    if dtype is None or not keeps_order(bounds.low.type, scalar.type):
        return constant(True, count)
    low, high = (to_common_type(_drop_nan(bound), dtype) for bound in (bounds.low, bounds.high))
    return _inside(bounds, "=" if op == SAME else op, low, high, to_common_type(scalar, dtype))


def _inside(bounds: Bounds, op: str, low: pa.Array, high: pa.Array, scalar: pa.Scalar) -> pa.BooleanArray:
    if has_nan(scalar.type) and math.isnan(scalar.as_py()):
        return _some_value(bounds)  # every number is less than NaN, and few bounds include it
    # A NaN that the writer left out of its bounds would be above the high one.
    bounded = bounds.without_nan or not has_nan(bounds.low.type)
    match op:
        case "=":
            inside = pc.and_(
                _unknown_as_true(pc.less_equal(low, scalar)), _unknown_as_true(pc.greater_equal(high, scalar))
            )
        case "<":
            inside = _unknown_as_true(pc.less(low, scalar))
        case "<=":
            inside = _unknown_as_true(pc.less_equal(low, scalar))
        case _ if not bounded:
            inside = constant(True, len(low))
        case "!=":
            inside = pc.invert(pc.fill_null(pc.and_(pc.equal(low, scalar), pc.equal(high, scalar)), False))
        case ">":
            inside = _unknown_as_true(pc.greater(high, scalar))
        case _:
            inside = _unknown_as_true(pc.greater_equal(high, scalar))
    return pc.and_(inside, _some_value(bounds))


def _some_start(bounds: Bounds, prefix: str) -> pa.BooleanArray:
    if not is_text(bounds.low.type):
        return constant(True, len(bounds.low))
    below = pc.or_(pc.less(bounds.low, prefix), pc.starts_with(bounds.low, pattern=prefix))
    inside = pc.and_(_unknown_as_true(below), _unknown_as_true(pc.greater_equal(bounds.high, prefix)))
    return pc.and_(inside, _some_value(bounds))


def _some_start_otherwise(bounds: Bounds, prefix: str) -> pa.BooleanArray:
    if not is_text(bounds.low.type):
        return constant(True, len(bounds.low))
    # Between two texts of one prefix there are only texts of that prefix.
    both = pc.and_(pc.starts_with(bounds.low, pattern=prefix), pc.starts_with(bounds.high, pattern=prefix))
    return pc.and_(pc.invert(pc.fill_null(both, False)), _some_value(bounds))


def _some_value(bounds: Bounds) -> pa.BooleanArray:
    """Whether some row is not null."""
    return pc.invert(pc.fill_null(pc.equal(bounds.null_count, bounds.row_count), False))


def _drop_nan(bound: pa.Array) -> pa.Array:
    """The bounds with null for NaN: some writers record NaN, and every comparison with it would be false."""
    if not pa.types.is_floating(bound.type):
        return bound
    return pc.if_else(pc.is_nan(bound), pa.scalar(None, bound.type), bound)


def _unknown_as_true(mask: pa.BooleanArray) -> pa.BooleanArray:
    return pc.fill_null(mask, True)


def _negate(part: Predicate) -> Predicate | None:
    """A predicate without an outer NOT that is true exactly where the part is false; None if there is none."""
    match part:
        case Compare(name, op, value):
            return Compare(name, _OPPOSITE[op], value)
        case Test(left, op, right) if op in _OPPOSITE:
            return Test(left, _OPPOSITE[op], right)
        case Holds(ColumnRef(name)):
            return Compare(name, "=", False)
        case Unknown():
            return part
        case In(name, options):
            return And(tuple(Compare(name, "!=", option) for option in options))
        case And(parts):
            return Or(tuple(Not(each) for each in parts))
        case Or(parts):
            return And(tuple(Not(each) for each in parts))
        case Not(inner):
            return inner
    return None
