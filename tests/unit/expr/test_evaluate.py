"""Exact evaluation on Arrow columns."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import operator
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidelake.errors import InvalidInputError
from tidelake.expr import ALWAYS, And, ColumnRef, Compare, In, Not, Or, Predicate, Test, call, col
from tidelake.expr.evaluate import evaluate_scalar, matches, truth, typed_scalar
from tidelake.expr.simplify import simplify

COLUMNS = {
    "i": pa.array([1, 2, None, 4], pa.int32()),
    "s": pa.array(["a", None, "b", ""], pa.string()),
    "f": pa.array([1.0, math.nan, None, -0.0]),
    "d": pa.array([dt.date(2026, 1, 1), None, dt.date(2026, 1, 2), dt.date(1, 1, 1)]),
}


def kept(predicate: Predicate) -> list[int]:
    return [i for i, yes in enumerate(matches(predicate, COLUMNS, 4).to_pylist()) if yes]


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        (ALWAYS, [0, 1, 2, 3]),
        (Or(), []),
        (col("i") == 2, [1]),
        (col("i") != 2, [0, 3]),
        (~(col("i") == 2), [0, 3]),
        (col("i") >= 2, [1, 3]),
        (col("i").is_null(), [2]),
        (col("i").is_not_null(), [0, 1, 3]),
        (col("i") == None, []),  # noqa: E711 - a comparison with null builds a tree
        (~(col("i") == None), []),  # noqa: E711
        (col("i").is_in([1, None]), [0]),
        (Not(In("i", (1, None))), []),
        (col("i").is_in([]), []),
        (~col("i").is_in([]), [0, 1, 2, 3]),
        ((col("i") == 1) | col("s").is_null(), [0, 1]),
        ((col("i") == 4) & (col("s") == ""), [3]),
        (Not(And((col("i") > 0, col("s") == "a"))), [2, 3]),
        (col("f") == math.nan, [1]),
        (col("f") != 1.0, [1, 3]),
        (col("f") == 0.0, [3]),
        (col("d") == "2026-01-01", [0]),
        (col("d") > dt.date(2026, 1, 1), [2]),
        (col("s") >= "a", [0, 2]),
    ],
)
def test_three_truth_values_as_in_sql(predicate, rows):
    assert kept(predicate) == rows


ORDERED = [-math.inf, -1.5, 0.0, 1.5, math.inf, math.nan]
"""Numbers as Spark and Paimon order them."""
COMPARED = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@pytest.mark.parametrize("dtype", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("op", COMPARED)
def test_nan_is_greater_than_every_number_and_equal_to_itself(op, dtype):
    pairs = list(itertools.product(range(len(ORDERED)), repeat=2))
    expected = [*(COMPARED[op](left, right) for left, right in pairs), None]
    columns = {
        name: pa.array([*(ORDERED[pair[side]] for pair in pairs), None], dtype) for side, name in enumerate("ab")
    }
    count = len(expected)
    assert truth(Test(ColumnRef("a"), op, ColumnRef("b")), columns, count).to_pylist() == expected
    assert truth(Not(Test(ColumnRef("a"), op, ColumnRef("b"))), columns, count).to_pylist() == [
        None if each is None else not each for each in expected
    ]
    for place, number in enumerate(ORDERED):
        beside = [*(COMPARED[op](left, place) for left, _ in pairs), None]
        for predicate in (Compare("a", op, number), simplify(Not(Not(Compare("a", op, number))))):
            assert truth(predicate, columns, count).to_pylist() == beside
        assert truth(simplify(Not(Compare("a", op, number))), columns, count).to_pylist() == [
            None if each is None else not each for each in beside
        ]


def test_nan_is_one_of_the_values_of_a_list_and_the_zeros_are_one():
    column = {"x": pa.array([math.nan, -0.0, 0.0, 1.0, None])}
    assert matches(col("x").is_in([math.nan, 0.0]), column, 5).to_pylist() == [True, True, True, False, False]
    assert matches(~col("x").is_in([math.nan, -0.0]), column, 5).to_pylist() == [False, False, False, True, False]
    assert matches(col("x").same_as(math.nan), column, 5).to_pylist() == [True, False, False, False, False]
    assert matches(col("x").between(0.0, math.inf), column, 5).to_pylist() == [False, True, True, True, False]
    assert matches(col("x").between(0.5, math.nan), column, 5).to_pylist() == [True, False, False, True, False]
    for function, expected in (("greatest", [True, False]), ("least", [False, False])):
        found = evaluate_scalar(call(function, col("x"), 0.5).scalar, {"x": pa.array([math.nan, -1.0])}, 2)
        assert pc.is_nan(found).to_pylist() == expected


def test_a_column_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(InvalidInputError) as caught:
        matches(col("nope") == 1, COLUMNS, 4)
    assert caught.value.facts["column"] == "nope"
    assert "i, s, f, d" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ("x", pa.int32()),
        (2**40, pa.int32()),
        (2**70, pa.int64()),
        (1.5, pa.int32()),
        (b"x", pa.int32()),
        ([1], pa.string()),
        ({}, pa.string()),
        ("\ud800", pa.string()),
        ("\ud800", pa.int32()),
        ("never", pa.date32()),
        (object(), pa.int32()),
        (Decimal("1.234"), pa.decimal128(3, 1)),
        ("x" * 10_000, pa.bool_()),
    ],
)
def test_a_value_that_does_not_fit_the_column_is_a_wrong_argument(value, dtype):
    with pytest.raises(InvalidInputError, match="does not fit the column") as caught:
        typed_scalar(value, dtype, "c")
    assert caught.value.facts["column"] == "c"
    str(caught.value).encode()


@pytest.mark.parametrize(
    ("value", "dtype", "wanted"),
    [
        ("7", pa.int32(), 7),
        ("2026-01-01", pa.date32(), dt.date(2026, 1, 1)),
        ("a", pa.large_string(), "a"),
        (None, pa.int32(), None),
        ("true", pa.bool_(), True),
    ],
)
def test_a_text_is_read_as_the_type_of_the_column(value, dtype, wanted):
    assert typed_scalar(value, dtype, "c").as_py() == wanted


def test_a_tree_of_another_kind_is_refused():
    class Strange(Predicate):
        pass

    with pytest.raises(InvalidInputError, match="unknown kind"):
        matches(Strange(), COLUMNS, 4)
