"""Whether rows within given bounds may satisfy a predicate: never says no when a row could match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.expr.evaluate import constant, typed_scalar
from tidelake.expr.tree import And, Compare, In, IsNull, Not, Or, Predicate

_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Per group of rows: the least and greatest value (null: not known), how many are null, how many there are."""

    low: pa.Array
    high: pa.Array
    null_count: pa.Array
    row_count: pa.Array


def may_match(predicate: Predicate, bounds: Mapping[str, Bounds], count: int) -> pa.BooleanArray:
    """For each of `count` groups of rows, whether one of them may satisfy the predicate.

    Raises:
        InvalidInputError: a value does not fit its column's type.
    """
    match predicate:
        case And(parts):
            return reduce(pc.and_, (may_match(part, bounds, count) for part in parts), constant(True, count))
        case Or(parts):
            return reduce(pc.or_, (may_match(part, bounds, count) for part in parts), constant(False, count))
        case Not(IsNull(name)) if name in bounds:
            return _known(pc.less(bounds[name].null_count, bounds[name].row_count))
        case Not(part):
            negated = _negated(part)
            return constant(True, count) if negated is None else may_match(negated, bounds, count)
        case In(name, options):
            return may_match(Or(tuple(Compare(name, "=", option) for option in options)), bounds, count)
        case IsNull(name) if name in bounds:
            return _known(pc.greater(bounds[name].null_count, 0))
        case Compare(name, op, value) if name in bounds:
            return _compare(bounds[name], name, op, value, count)
    return constant(True, count)


def _compare(bounds: Bounds, name: str, op: str, value: object, count: int) -> pa.BooleanArray:
    if value is None:
        return constant(False, count)  # a comparison with null is never true
    scalar = typed_scalar(value, bounds.low.type, name)
    low, high = bounds.low, bounds.high
    match op:
        case "=":
            inside = pc.and_(_known(pc.less_equal(low, scalar)), _known(pc.greater_equal(high, scalar)))
        case "!=":
            inside = pc.invert(pc.fill_null(pc.and_(pc.equal(low, scalar), pc.equal(high, scalar)), False))
        case "<":
            inside = _known(pc.less(low, scalar))
        case "<=":
            inside = _known(pc.less_equal(low, scalar))
        case ">":
            inside = _known(pc.greater(high, scalar))
        case _:
            inside = _known(pc.greater_equal(high, scalar))
    all_null = pc.fill_null(pc.equal(bounds.null_count, bounds.row_count), False)
    return pc.and_(inside, pc.invert(all_null))


def _known(mask: pa.BooleanArray) -> pa.BooleanArray:
    return pc.fill_null(mask, True)


def _negated(part: Predicate) -> Predicate | None:
    """A predicate without an outer NOT that holds exactly where the part is false, if there is one."""
    match part:
        case Compare(name, op, value):
            return Compare(name, _OPPOSITE[op], value)
        case In(name, options):
            return And(tuple(Compare(name, "!=", option) for option in options))
        case And(parts):
            return Or(tuple(Not(each) for each in parts))
        case Or(parts):
            return And(tuple(Not(each) for each in parts))
        case Not(inner):
            return inner
    return None
