"""Pruning by bounds: never no where a row could match, and no where none can."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from tidelake.errors import InvalidInputError
from tidelake.expr import IsNull, Not, Or, Predicate, col
from tidelake.expr.prune import Bounds, may_match

# Groups: 1..5 without nulls; 7..9 with a null; nothing but nulls; nothing known.
BOUNDS = {
    "a": Bounds(
        pa.array([1, 7, None, None], pa.int32()),
        pa.array([5, 9, None, None], pa.int32()),
        pa.array([0, 1, 3, None], pa.int64()),
        pa.array([3, 3, 3, 3], pa.int64()),
    )
}


def kept(predicate: Predicate) -> list[int]:
    return [i for i, yes in enumerate(may_match(predicate, BOUNDS, 4).to_pylist()) if yes]


@pytest.mark.parametrize(
    ("predicate", "groups"),
    [
        (col("a") == 3, [0, 3]),
        (col("a") == 6, [3]),
        (col("a") < 7, [0, 3]),
        (col("a") <= 7, [0, 1, 3]),
        (col("a") > 5, [1, 3]),
        (col("a") >= 5, [0, 1, 3]),
        (col("a") != 3, [0, 1, 3]),
        (col("a").is_null(), [1, 2, 3]),
        (col("a").is_not_null(), [0, 1, 3]),
        (col("a").is_in([2, 8]), [0, 1, 3]),
        (col("a").is_in([]), []),
        (~(col("a") > 5), [0, 3]),
        (~(col("a") == 3), [0, 1, 3]),
        (~(~(col("a") == 3)), [0, 3]),
        (~col("a").is_in([3]), [0, 1, 3]),
        (Not(Not(IsNull("a"))), [1, 2, 3]),
        (Not((col("a") > 5) | (col("a") < 3)), [0, 3]),
        (Not((col("a") > 5) & (col("a") < 8)), [0, 1, 3]),
        ((col("a") == 3) | (col("a") == 8), [0, 1, 3]),
        ((col("a") > 4) & (col("a") < 3), [0, 3]),
        (col("a") == None, []),  # noqa: E711
        (~(col("a") == None), []),  # noqa: E711
        (col("unknown") == 3, [0, 1, 2, 3]),
        (col("unknown").is_null(), [0, 1, 2, 3]),
        (Or(), []),
    ],
)
def test_groups_that_cannot_match_are_left_out(predicate, groups):
    assert kept(predicate) == groups


def one(low: object, high: object, dtype: pa.DataType) -> dict[str, Bounds]:
    counts = pa.array([0], pa.int64()), pa.array([2], pa.int64())
    return {"a": Bounds(pa.array([low], dtype), pa.array([high], dtype), *counts)}


def test_a_group_of_one_value_is_left_out_by_its_negation():
    assert may_match(col("a") != 4, one(4, 4, pa.int32()), 1).to_pylist() == [False]


@pytest.mark.parametrize("predicate", [col("a") > 7, col("a") == 10, col("a") < 3, ~(col("a") < 7), col("a") != 1])
def test_a_bound_that_is_nan_bounds_nothing(predicate):
    """Writers that order NaN above infinity record it as the maximum; 10.0 may lie below it."""
    assert may_match(predicate, one(1.0, math.nan, pa.float64()), 1).to_pylist() == [True]


def test_zero_has_one_value_and_two_signs():
    bounds = one(-0.0, 0.0, pa.float64())
    assert may_match(col("a") == 0.0, bounds, 1).to_pylist() == [True]
    assert may_match(col("a") < 0.0, bounds, 1).to_pylist() == [False]


def test_a_value_of_another_type_is_a_wrong_argument():
    with pytest.raises(InvalidInputError):
        may_match(col("a") == "x", BOUNDS, 4)
