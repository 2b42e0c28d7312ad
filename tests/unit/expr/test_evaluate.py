"""Exact evaluation on Arrow columns."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from tidelake.errors import InvalidInputError
from tidelake.expr import ALWAYS, And, In, Not, Or, Predicate, col
from tidelake.expr.evaluate import matches, typed_scalar

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
        (col("f") == math.nan, []),
        (col("f") != 1.0, [1, 3]),
        (col("f") == 0.0, [3]),
        (col("d") == "2026-01-01", [0]),
        (col("d") > dt.date(2026, 1, 1), [2]),
        (col("s") >= "a", [0, 2]),
    ],
)
def test_three_truth_values_as_in_sql(predicate, rows):
    assert kept(predicate) == rows


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
