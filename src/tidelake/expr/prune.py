"""Whether rows within given bounds may satisfy a predicate: never says no when a row could match."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.expr.coerce import common_type, has_nan, is_text, meet, monotone
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
    flattened,
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
    """Whether groups with bounds are known to have no NaN. Of most files that is not known: NaN is greater than every
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
            parts = (_may_match(part, bounds, count) for part in flattened(predicate))
            return reduce(pc.and_, parts, constant(True, count))
        case Or():
            parts = (_may_match(part, bounds, count) for part in flattened(predicate))
            return reduce(pc.or_, parts, constant(False, count))
        case Not(IsNull(name)) if name in bounds:
            return _known(pc.less(bounds[name].null_count, bounds[name].row_count))
        case Not(StartsWith(name, prefix)) if name in bounds:
            return _some_start_otherwise(bounds[name], prefix)
        case Not(part):
            negated = _negated(part)
            return constant(True, count) if negated is None else _may_match(negated, bounds, count)
        case In(name, options):
            return _may_match(Or(tuple(Compare(name, "=", option) for option in options)), bounds, count)
        case IsNull(name) if name in bounds:
            return _known(pc.greater(bounds[name].null_count, 0))
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
    """A predicate that holds wherever this one does, and that bounds say more about."""
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
    """What every text that fits a pattern of LIKE begins with."""
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
    return _inside(bounds, op, _ordered(bounds.low), _ordered(bounds.high), scalar)


def _test(bounds: Bounds, name: str, op: str, value: Literal, count: int) -> pa.BooleanArray:
    """A comparison with a constant of another type: the bounds go to the type in which both meet."""
    if value.value is None:
        return _known(pc.greater(bounds.null_count, 0)) if op == SAME else constant(False, count)
    scalar = literal_scalar(value)
    if is_text(scalar.type) and not is_text(bounds.low.type):
        scalar = read_text(scalar, bounds.low.type, Test(ColumnRef(name), op, value))
    dtype = common_type(bounds.low.type, scalar.type)
    if dtype is None or not monotone(bounds.low.type, scalar.type):
        return constant(True, count)
    low, high = (meet(_ordered(bound), dtype) for bound in (bounds.low, bounds.high))
    return _inside(bounds, "=" if op == SAME else op, low, high, meet(scalar, dtype))


def _inside(bounds: Bounds, op: str, low: pa.Array, high: pa.Array, scalar: pa.Scalar) -> pa.BooleanArray:
    if has_nan(scalar.type) and math.isnan(scalar.as_py()):
        return _some_value(bounds)  # every number is less, and NaN is in few bounds
    # NaN would be above the high bound.
    bounded = bounds.without_nan or not has_nan(bounds.low.type)
    match op:
        case "=":
            inside = pc.and_(_known(pc.less_equal(low, scalar)), _known(pc.greater_equal(high, scalar)))
        case "<":
            inside = _known(pc.less(low, scalar))
        case "<=":
            inside = _known(pc.less_equal(low, scalar))
        case _ if not bounded:
            inside = constant(True, len(low))
        case "!=":
            inside = pc.invert(pc.fill_null(pc.and_(pc.equal(low, scalar), pc.equal(high, scalar)), False))
        case ">":
            inside = _known(pc.greater(high, scalar))
        case _:
            inside = _known(pc.greater_equal(high, scalar))
    return pc.and_(inside, _some_value(bounds))


def _some_start(bounds: Bounds, prefix: str) -> pa.BooleanArray:
    if not is_text(bounds.low.type):
        return constant(True, len(bounds.low))
    below = pc.or_(pc.less(bounds.low, prefix), pc.starts_with(bounds.low, pattern=prefix))
    inside = pc.and_(_known(below), _known(pc.greater_equal(bounds.high, prefix)))
    return pc.and_(inside, _some_value(bounds))


def _some_start_otherwise(bounds: Bounds, prefix: str) -> pa.BooleanArray:
    if not is_text(bounds.low.type):
        return constant(True, len(bounds.low))
    # Between two texts of one prefix there are only texts of that prefix.
    both = pc.and_(pc.starts_with(bounds.low, pattern=prefix), pc.starts_with(bounds.high, pattern=prefix))
    return pc.and_(pc.invert(pc.fill_null(both, False)), _some_value(bounds))


def _some_value(bounds: Bounds) -> pa.BooleanArray:
    """Whether not all rows are null."""
    return pc.invert(pc.fill_null(pc.equal(bounds.null_count, bounds.row_count), False))


def _ordered(bound: pa.Array) -> pa.Array:
    """The bound where it bounds anything: some writers record NaN, which every comparison would call false."""
    if not pa.types.is_floating(bound.type):
        return bound
    return pc.if_else(pc.is_nan(bound), pa.scalar(None, bound.type), bound)


def _known(mask: pa.BooleanArray) -> pa.BooleanArray:
    return pc.fill_null(mask, True)


def _negated(part: Predicate) -> Predicate | None:
    """A predicate without an outer NOT that holds exactly where the part is false, if there is one."""
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
