"""Predicates made smaller, taken apart, and asked about single columns."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

from tidelake.errors import InvalidInputError
from tidelake.expr import (
    ALWAYS,
    NEVER,
    UNKNOWN,
    And,
    Arithmetic,
    ColumnRef,
    Compare,
    Holds,
    In,
    Is,
    IsNull,
    Like,
    Literal,
    Missing,
    Not,
    Or,
    StartsWith,
    Test,
    Truth,
    col,
    lit,
)
from tidelake.expr.prune import Bounds, like_prefix, may_match
from tidelake.expr.simplify import conjuncts, literals, restrict, simplify, substitute
from tidelake.spec.types.data_types import DATE, DOUBLE, INT, STRING, Root, TimeType

DAY = dt.date(2024, 1, 1)
A, B, C = col("a") == 1, col("b") == 2, col("c") == 3


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (And((A, And((B, And((C,)))))), And((A, B, C))),
        (Or((A, Or((B, A)))), Or((A, B))),
        (And((A, ALWAYS)), A),
        (And((A, NEVER)), NEVER),
        (Or((A, ALWAYS)), ALWAYS),
        (And((A, UNKNOWN)), And((A, UNKNOWN))),
        (Not(And((A, B))), Or((col("a") != 1, col("b") != 2))),
        (Not(Not(A)), A),
        (Not(UNKNOWN), UNKNOWN),
        (Not(col("d") < DAY), col("d") >= DAY),
        (Not(col("g") < "1.5"), col("g") >= "1.5"),
        (Not(col("g") < 1.5), col("g") >= 1.5),
        (Not(IsNull("a")), Not(IsNull("a"))),
        (col("a") == None, UNKNOWN),  # noqa: E711  SQL's a = NULL
        (In("a", ()), NEVER),
        (In("a", (None, None)), UNKNOWN),
        (In("a", (1,)), A),
        (lit(1) + 1 == 2, ALWAYS),
        (lit("x") == None, UNKNOWN),  # noqa: E711
        (col("a") + (lit(1) + 1) > 3, col("a") + 2 > 3),
        (Holds(Truth(A)), A),
        (Holds(Literal(False)), NEVER),
        (Missing(ColumnRef("a")), IsNull("a")),
        (Is(UNKNOWN, None), ALWAYS),
        (Is(IsNull("a"), False), Not(IsNull("a"))),
        (Is(IsNull("a"), None), NEVER),
        (Is(A, True), Is(A, True)),
    ],
)
def test_a_predicate_is_simplified(predicate, expected):
    assert simplify(predicate) == expected


def test_a_constant_that_is_an_error_stays_for_whoever_evaluates_it():
    wrong = lit(1) / 0 == 1
    assert simplify(wrong) == wrong


def test_simplifying_keeps_the_type_of_a_constant():
    narrow = Test(Arithmetic("+", Literal(1), Literal(2**40)), "<", ColumnRef("a"))
    assert simplify(narrow) == Test(Literal(2**40 + 1), "<", ColumnRef("a"))


def test_a_predicate_too_deep_to_simplify_is_a_typed_error_but_long_chains_are_fine():
    chain, deep = A, A
    for _ in range(5_000):
        chain, deep = chain & A, Not(And((deep, B)))
    assert simplify(chain) == A
    for run in (simplify, lambda predicate: substitute(predicate, {"a": 1})):
        with pytest.raises(InvalidInputError, match="nested too deeply"):
            run(deep)


def test_conjuncts_are_what_all_must_hold():
    assert conjuncts(And((A, And((B, Or((A, C))))))) == (A, B, Or((A, C)))
    assert conjuncts(A) == (A,)
    assert conjuncts(ALWAYS) == ()


@pytest.mark.parametrize(
    ("predicate", "names", "expected"),
    [
        (And((A, B, C)), {"a", "c"}, And((A, C))),
        (And((A, B)), {"a"}, A),
        (A, {"b"}, ALWAYS),
        (Or((A, B)), {"a"}, ALWAYS),
        (Or((And((A, B)), And((col("a") == 5, C)))), {"a"}, Or((A, col("a") == 5))),
        (Not(Or((A, B))), {"a"}, ALWAYS),
        (And((NEVER, B)), {"a"}, NEVER),
        (col("a") > col("b"), {"a", "b"}, col("a") > col("b")),
    ],
)
def test_restricting_keeps_what_is_said_about_the_columns_alone(predicate, names, expected):
    assert restrict(predicate, names) == expected


@pytest.mark.parametrize(
    ("predicate", "values", "expected"),
    [
        (Or((And((col("dt") == "x", A)), And((col("dt") == "y", B)))), {"dt": "x"}, A),
        (And((col("dt") == "x", A)), {"dt": "y"}, NEVER),
        (And((IsNull("dt"), A)), {"dt": None}, A),
        (And((col("dt") == "x", A)), {"dt": None}, And((UNKNOWN, A))),
        (col("d") == "2024-01-01", {"d": dt.date(2024, 1, 1)}, ALWAYS),
        (col("d").is_in(["2024-01-01"]), {"d": dt.date(2024, 1, 2)}, NEVER),
        (In("a", ()), {"a": None}, NEVER),
        (StartsWith("s", "ab"), {"s": "abc"}, ALWAYS),
        (col("a") + 1 == col("b"), {"a": 1}, lit(2) == col("b")),
        (col("n") == Decimal("1.234"), {"n": pa.scalar(Decimal("1.23"), pa.decimal128(9, 3))}, NEVER),
        (A, {}, A),
    ],
)
def test_values_are_put_in_the_place_of_columns(predicate, values, expected):
    assert substitute(predicate, values) == expected


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (A, (1,)),
        (In("a", (1, 2, None)), (1, 2)),
        (Or((A, In("a", (2, 3)))), (1, 2, 3)),
        (And((In("a", (1, 2, 3)), In("a", (3, 2)), B)), (2, 3)),
        (And((A, col("a") == 2)), None),
        (Or((A, B)), None),
        (And((Or((A, B)), In("a", (4, 5)))), (4, 5)),
        (col("a") > 1, None),
        (Not(A), None),
        (col("a") == None, None),  # noqa: E711
        (ALWAYS, None),
    ],
)
def test_the_values_of_a_bucket_key_are_found_where_the_predicate_names_them(predicate, expected):
    assert literals(predicate, "a") == expected


def test_values_of_a_bucket_key_are_brought_to_its_type_before_they_are_compared():
    day = dt.date(2024, 1, 1)
    both = And((In("d", ("2024-01-01", dt.date(2024, 1, 2))), Compare("d", "=", day)))
    assert literals(both, "d", DATE) == (day,)
    assert literals(And((In("a", ("1", 2)), In("a", (1, 2)))), "a", INT) == (1, 2)
    assert literals(col("s") == "x", "s", STRING) == ("x",)
    with pytest.raises(InvalidInputError, match="does not fit"):
        literals(col("a") == "x", "a", INT)


def test_zero_and_nan_are_no_values_to_pick_a_bucket_by():
    assert literals(col("g") == 0.0, "g", DOUBLE) is None
    assert literals(col("g").is_in([1.5, float("nan")]), "g", DOUBLE) is None
    both = col("g").is_in([1.5, math.nan]) & col("g").is_in([float("nan"), 1.5])
    assert literals(both, "g", DOUBLE) is None
    assert literals(col("t") == "2024-01-01 00:00:00", "t", TimeType(Root.TIMESTAMP, precision=9)) is None


# ------------------------------------------------------------------------------------------------- pruning by bounds


def bounds(low, high, nulls=0, rows=10, dtype=None):
    return Bounds(pa.array([low], dtype), pa.array([high], dtype), pa.array([nulls]), pa.array([rows]))


@pytest.mark.parametrize(
    ("predicate", "given", "expected"),
    [
        (StartsWith("s", "b"), bounds("a", "ax"), False),
        (StartsWith("s", "b"), bounds("c", "d"), False),
        (StartsWith("s", "b"), bounds("a", "c"), True),
        (StartsWith("s", "b"), bounds("bx", "c"), True),
        (StartsWith("s", "bcd"), bounds("bce", "z"), False),
        (StartsWith("s", "b"), bounds(None, None, dtype=pa.string()), True),
        (StartsWith("s", "b"), bounds(None, None, nulls=10, dtype=pa.string()), False),
        (Not(StartsWith("s", "b")), bounds("ba", "bz"), False),
        (Not(StartsWith("s", "b")), bounds("ba", "c"), True),
        (Like(ColumnRef("s"), "b_x%"), bounds("c", "d"), False),
        (Like(ColumnRef("s"), "%x"), bounds("c", "d"), True),
        (Like(ColumnRef("s"), "B%", True), bounds("b", "b"), True),
        (Test(ColumnRef("s"), "<", Literal(Decimal("1.5"))), bounds(2, 3), False),
        (Test(ColumnRef("s"), "<", Literal(Decimal("1.5"))), bounds(1, 3), True),
        (Test(Literal(Decimal("1.5")), ">", ColumnRef("s")), bounds(2, 3), False),
        (Not(Test(ColumnRef("s"), "<", Literal(Decimal("3.5")))), bounds(2, 3), False),
        (Test(ColumnRef("s"), "=", Literal(300)), bounds(1, 100, dtype=pa.int8()), False),
        (Test(ColumnRef("s"), "=", Literal(5)), bounds("1", "10"), True),
        (Test(ColumnRef("s"), "=", Literal("300")), bounds(1, 100, dtype=pa.int8()), False),
        (Test(ColumnRef("s"), "<=>", Literal(None)), bounds(1, 2), False),
        (Test(ColumnRef("s"), "<=>", Literal(None)), bounds(1, 2, nulls=1), True),
        (Test(ColumnRef("s"), "<=>", Literal(5)), bounds(1, 2), False),
        (Test(ColumnRef("s"), "=", Literal(None)), bounds(1, 2), False),
        (Test(ColumnRef("s"), "=", ColumnRef("s")), bounds(1, 2), True),
        (Holds(ColumnRef("s")), bounds(False, False), False),
        (Not(Holds(ColumnRef("s"))), bounds(True, True), False),
        (Is(Compare("s", ">", 5), True), bounds(1, 2), False),
        (Is(Compare("s", ">", 5), False), bounds(7, 9), False),
        (Is(Compare("s", ">", 5), None), bounds(1, 2), True),
        (Missing(ColumnRef("s")), bounds(1, 2), False),
        (Not(Compare("s", "<", 5.0)), bounds(1.0, 2.0), True),
        (Not(Compare("s", "<", float("nan"))), bounds(1.0, 2.0), True),
        (Not(Compare("s", "<", 5.0)), bounds(None, None, nulls=10, dtype=pa.float64()), False),
        (Not(Compare("s", "<", None)), bounds(1.0, 2.0), False),
        (Not(Test(ColumnRef("s"), "<", Literal(float("nan")))), bounds(1, 2), True),
        (Not(Test(Literal(9.5), ">", ColumnRef("s"))), bounds(1.0, 2.0), True),
        (Compare("s", "!=", 1.0), bounds(1.0, 1.0), True),
        (Compare("s", ">", 5.0), bounds(1.0, 2.0), True),
        (Compare("s", ">=", 5.0), bounds(1.0, 2.0, dtype=pa.float32()), True),
        (Compare("s", "=", math.nan), bounds(1.0, 2.0), True),
        (Compare("s", "<", math.nan), bounds(1.0, 2.0), True),
        (In("s", (7.0, math.nan)), bounds(1.0, 2.0), True),
        (Test(ColumnRef("s"), ">", Literal(5)), bounds(1.0, 2.0), True),
        (Test(ColumnRef("s"), ">", Literal(5.5)), bounds(1, 2), False),
        (Test(ColumnRef("s"), "<", Literal(math.nan)), bounds(1, 2), True),
        (Compare("s", "<", 0.5), bounds(1.0, 2.0), False),
        (Compare("s", "=", 5.0), bounds(1.0, 2.0), False),
        (Not(Compare("s", ">", 0.5)), bounds(1.0, 2.0), False),
        (Compare("s", ">", 5.0), bounds(None, None, nulls=10, dtype=pa.float64()), False),
        (Compare("s", ">", 5.0), replace(bounds(1.0, 2.0), without_nan=True), False),
        (Compare("s", "=", math.nan), replace(bounds(1.0, 2.0), without_nan=True), True),
        (UNKNOWN, bounds(1, 2), False),
        (Not(UNKNOWN), bounds(1, 2), False),
    ],
)
def test_bounds_rule_out_what_they_can(predicate, given, expected):
    assert may_match(predicate, {"s": given}, 1).to_pylist() == [expected]


def test_the_prefix_of_a_pattern_ends_at_its_first_wildcard():
    assert like_prefix(r"a\%b%c") == "a%b"
    assert like_prefix("_x") == ""
    assert like_prefix("abc") == "abc"


def test_a_predicate_too_deep_to_prune_by_is_a_typed_error():
    deep = A
    for _ in range(5_000):
        deep = Not(And((deep, B)))
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        may_match(deep, {}, 1)
