"""What scalar expressions and the predicates on them mean, value by value."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from tidelake.errors import InvalidInputError
from tidelake.expr import (
    ALWAYS,
    NEVER,
    Arithmetic,
    Call,
    ColumnRef,
    Compare,
    Literal,
    Predicate,
    StartsWith,
    Term,
    Test,
    call,
    case,
    coalesce,
    col,
    lit,
)
from tidelake.expr.evaluate import evaluate_scalar, matches, truth
from tidelake.expr.functions import FUNCTIONS
from tidelake.expr.render import to_sql
from tidelake.spec.types.data_types import DecimalType

UTC = dt.UTC


def column(values, dtype=None):
    return pa.array(values, dtype)


def run(term: Term, **columns: pa.Array) -> pa.Array:
    count = len(next(iter(columns.values()))) if columns else 1
    return evaluate_scalar(term.scalar, columns, count)


def one(term: Term, **values):
    columns = {name: value if isinstance(value, pa.Array) else pa.array([value]) for name, value in values.items()}
    return run(term, **columns)[0].as_py()


def holds(predicate: Predicate, **columns: pa.Array):
    return truth(predicate, columns, len(next(iter(columns.values())))).to_pylist()


# --------------------------------------------------------------------------------------------------------- building


def test_a_column_beside_a_plain_value_stays_a_comparison_that_can_prune():
    assert (col("a") > 3) == Compare("a", ">", 3)
    assert (3 < col("a")) == Compare("a", ">", 3)  # noqa: SIM300  the constant first is the point


def test_arithmetic_on_columns_builds_a_test_of_two_scalars():
    built = col("a") + 1 > col("b") * 2
    assert built == Test(Arithmetic("+", ColumnRef("a"), Literal(1)), ">", Arithmetic("*", ColumnRef("b"), Literal(2)))
    assert built.columns() == {"a", "b"}


def test_plus_beside_a_plain_text_joins_text():
    assert (col("s") + "x").scalar == Call("concat", (ColumnRef("s"), Literal("x")))
    assert one("<" + col("s") + ">", s="a") == "<a>"


def test_a_term_has_no_truth_value():
    with pytest.raises(InvalidInputError, match="no truth value"):
        bool(col("a") + 1)


def test_a_value_no_type_holds_is_refused_where_the_expression_is_built():
    with pytest.raises(InvalidInputError, match="cannot be a constant"):
        lit(object())


def test_an_unknown_operator_is_refused():
    with pytest.raises(InvalidInputError, match="operator is not known"):
        Arithmetic("^", Literal(1), Literal(2))
    with pytest.raises(InvalidInputError, match="operator is not known"):
        Test(Literal(1), "==", Literal(2))


# ------------------------------------------------------------------------------------------------------- arithmetic


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (pa.int8(), pa.int8(), pa.int8()),
        (pa.int8(), pa.int64(), pa.int64()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.float32(), pa.float32(), pa.float32()),
        (pa.decimal128(5, 2), pa.float32(), pa.float64()),
        (pa.decimal128(5, 2), pa.int32(), pa.decimal128(13, 2)),
        (pa.decimal128(5, 2), pa.decimal128(4, 3), pa.decimal128(7, 3)),
    ],
)
def test_a_sum_has_the_type_that_spark_gives_it(left, right, expected):
    for a, b in ((left, right), (right, left)):
        result = run(col("a") + col("b"), a=pa.nulls(1, a), b=pa.nulls(1, b))
        assert result.type == expected
        assert result.to_pylist() == [None]


def test_a_whole_number_beside_a_decimal_counts_only_its_own_digits():
    assert run(col("n") * 2, n=column([Decimal("1.25")], pa.decimal128(5, 2))).type == pa.decimal128(7, 2)


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (lit(7) / 2, 3.5),
        (lit(-7) % 3, -1),
        (lit(7) % -3, 1),
        (lit(-7.5) % 2, -1.5),
        (lit(Decimal("-7.5")) % 2, Decimal("-1.5")),
        (lit(Decimal("1.00")) / 3, Decimal("0.333333")),
        (lit(Decimal("1.50")) * Decimal("1.5"), Decimal("2.250")),
        (-lit(Decimal("1.50")), Decimal("-1.50")),
        (lit(None) + 1, None),
        (Term(Arithmetic("div", Literal(-7), Literal(2))), -3),
        (Term(Arithmetic("div", Literal(Decimal("7.9")), Literal(2))), 3),
        (lit(-(2**63)) % -1, 0),
    ],
)
def test_arithmetic_is_exact_and_cuts_toward_zero(term, expected):
    assert one(term) == expected


@pytest.mark.parametrize(
    ("term", "columns"),
    [
        (col("a") + 1, {"a": column([1, 2**31 - 1], pa.int32())}),
        (col("a") * col("a"), {"a": column([2**40])}),
        (col("a") + col("a"), {"a": column([127], pa.int8())}),
        (-col("a"), {"a": column([-(2**63)])}),
        (call("abs", col("a")), {"a": column([-(2**31)], pa.int32())}),
        (col("a") * col("a"), {"a": column([Decimal(10**37)], pa.decimal128(38, 0))}),
    ],
)
def test_an_overflow_is_an_error_that_names_the_expression(term, columns):
    with pytest.raises(InvalidInputError, match="cannot be computed") as caught:
        run(term, **columns)
    assert caught.value.facts["expression"] == to_sql(term.scalar)


@pytest.mark.parametrize("op", ["/", "%", "div"])
@pytest.mark.parametrize("zero", [0, 0.0, Decimal("0.00")])
def test_a_division_by_zero_is_an_error(op, zero):
    divided = Term(Arithmetic(op, ColumnRef("a"), Literal(zero)))
    with pytest.raises(InvalidInputError) as caught:
        run(divided, a=column([1, None]))
    assert caught.value.facts["reason"] == "division by zero"
    assert run(divided, a=column([None], pa.int64())).to_pylist() == [None]


def test_arithmetic_on_text_says_how_to_join_it():
    with pytest.raises(InvalidInputError, match="not a number") as caught:
        run(col("a") - 1, a=column(["x"]))
    assert "concat" in caught.value.hint


# ------------------------------------------------------------------------------------------------------- conditions


def test_a_guard_keeps_a_division_from_rows_it_excludes_whatever_the_order():
    columns = {"a": column([10, 10, None]), "b": column([0, 2, 5])}
    for guarded in ((col("b") != 0) & (col("a") / col("b") > 1), (col("a") / col("b") > 1) & (col("b") != 0)):
        assert holds(guarded, **columns) == [False, True, None]
    assert holds((col("b") == 0) | (col("a") / col("b") > 1), **columns) == [True, True, None]


def test_case_evaluates_only_the_branch_it_takes():
    safe = case((col("b") != 0, col("a") / col("b")), default=0)
    assert run(safe, a=column([10, 10]), b=column([0, 4])).to_pylist() == [0.0, 2.5]
    with pytest.raises(InvalidInputError):
        run(case((col("b") == 0, col("a") / col("b"))), a=column([10]), b=column([0]))


def test_case_gives_null_without_a_default_and_finds_a_type_for_all_branches():
    chosen = case((col("a") == 1, 1), (col("a") == 2, Decimal("2.5")))
    found = run(chosen, a=column([1, 2, 3, None]))
    assert found.to_pylist() == [Decimal("1.0"), Decimal("2.5"), None, None]
    assert found.type == pa.decimal128(11, 1)


def test_branches_without_a_common_type_are_refused():
    with pytest.raises(InvalidInputError, match="no common type"):
        run(case((col("a") == 1, "x"), default=1), a=column([1]))


def test_coalesce_asks_later_parts_only_where_it_must():
    found = run(coalesce(col("a"), lit(1) / col("b"), 7.0), a=column([1.0, None, None]), b=column([0, 2, None]))
    assert found.to_pylist() == [1.0, 0.5, 7.0]


def test_same_as_calls_two_nulls_equal_and_is_never_unknown():
    columns = {"a": column([1, 1, None, None]), "b": column([1, None, 1, None])}
    assert holds(col("a").same_as(col("b")), **columns) == [True, False, False, True]


@pytest.mark.parametrize(
    ("pattern", "fits", "misses"),
    [
        ("a%", ["a", "abc", "a\n"], ["ba", "A", ""]),
        ("%b_", ["abc", "bb", "b\U0001f40b"], ["b", "bcd"]),
        (r"100\%", ["100%"], ["1000"]),
        (r"a\\b", ["a\\b"], ["ab"]),
        ("", [""], ["a"]),
        ("a.c", ["a.c"], ["abc"]),
    ],
)
def test_like_matches_the_whole_text(pattern, fits, misses):
    values = column([*fits, *misses, None])
    expected = [True] * len(fits) + [False] * len(misses) + [None]
    assert holds(col("s").like(pattern), s=values) == expected


def test_like_with_a_plain_prefix_becomes_what_pruning_understands():
    assert col("s").like("ab%") == StartsWith("s", "ab")
    assert col("s").like("a!%b%", escape="!") == StartsWith("s", "a%b")
    assert holds(col("s").like("AB%", ignore_case=True), s=column(["abc"])) == [True]


@pytest.mark.parametrize(("pattern", "escape"), [("a!b", "!"), ("a!", "!"), ("a", "%"), ("a", "")])
def test_a_wrong_escape_of_like_is_refused(pattern, escape):
    with pytest.raises(InvalidInputError, match="escape"):
        col("s").like(pattern, escape=escape)


def test_a_regular_expression_matches_anywhere_and_a_bad_one_is_refused():
    assert holds(col("s").matches("b+"), s=column(["abbc", "ac", None])) == [True, False, None]
    with pytest.raises(InvalidInputError, match="cannot be computed"):
        holds(col("s").matches("(?=a)"), s=column(["a"]))


def test_text_conditions_refuse_other_types():
    for predicate in (col("a").like("x_"), col("a").starts_with("x"), col("a").matches("x")):
        with pytest.raises(InvalidInputError, match="not text"):
            holds(predicate, a=column([1]))


def test_a_boolean_column_is_a_condition_and_another_one_is_not():
    assert holds(col("b").is_true(), b=column([True, False, None])) == [True, False, None]
    with pytest.raises(InvalidInputError, match="not a condition"):
        holds(col("a").is_true(), a=column([1]))


@pytest.mark.parametrize(
    ("left", "op", "right", "expected"),
    [
        (column([1, 2], pa.int32()), "<", column([Decimal("1.5")] * 2), [True, False]),
        (column([Decimal(10**37)], pa.decimal128(38, 0)), ">", column([Decimal("0.1")], pa.decimal128(38, 38)), [True]),
        (column([dt.date(2024, 1, 1)]), "<", column([dt.datetime(2024, 1, 1, 0, 0, 1)]), [True]),
        (column([dt.datetime(2024, 1, 1)]), "=", column([dt.datetime(2024, 1, 1, tzinfo=UTC)]), [True]),
        (column(["10", "9"]), ">", column([9, 9]), [True, False]),
        (column(["2024-01-02"]), ">", column([dt.date(2024, 1, 1)]), [True]),
        (column([0.1], pa.float32()), "=", column([0.1]), [False]),
        (column([math.nan]), "=", column([math.nan]), [True]),
        (column(["a"], pa.large_string()), "=", column(["a"]), [True]),
        (column(["a", "b"]).dictionary_encode(), "=", column(["a", "a"]), [True, False]),
    ],
)
def test_values_of_two_types_meet_in_one_that_holds_both(left, op, right, expected):
    assert holds(Test(ColumnRef("l"), op, ColumnRef("r")), l=left, r=right) == expected


def test_values_that_never_meet_are_refused():
    with pytest.raises(InvalidInputError, match="cannot be compared"):
        holds(Test(ColumnRef("a"), "=", Literal(True)), a=column([1]))
    with pytest.raises(InvalidInputError, match="cannot be computed"):
        holds(Test(ColumnRef("a"), "=", Literal(5)), a=column(["five"]))


def test_a_moment_finer_than_the_column_is_not_cut_down_to_it():
    stamps = column([dt.datetime(2024, 1, 1)], pa.timestamp("ms"))
    fine = dt.datetime(2024, 1, 1, 0, 0, 0, 500)
    assert holds(col("t") == fine, t=stamps) == [False]
    assert holds(col("t").is_in([fine]), t=stamps) == [False]
    assert holds(col("t") < fine, t=stamps) == [True]
    assert holds(col("d") == dt.datetime(2024, 1, 1, 5), d=column([dt.date(2024, 1, 1)])) == [False]


def test_in_is_unknown_where_only_a_null_could_match():
    values = column([1, 3, None])
    assert holds(col("a").is_in([1, None]), a=values) == [True, None, None]
    assert holds(col("a").is_in([1, 2]), a=values) == [True, False, None]
    assert holds(col("a").is_in([]), a=values) == [False, False, False]


def test_members_of_a_row_are_null_where_the_row_is():
    rows = column([{"x": 1}, None, {"x": None}])
    assert run(col("r").member("x"), r=rows).to_pylist() == [1, None, None]
    with pytest.raises(InvalidInputError, match="no such member"):
        run(col("r").member("y"), r=rows)


def test_ten_thousand_conditions_joined_one_by_one_are_no_problem():
    predicate = col("a") == 0
    for value in range(1, 10_000):
        predicate = predicate | (col("a") == value)
    assert predicate.columns() == {"a"}
    assert matches(predicate, {"a": column([9_999, -1])}, 2).to_pylist() == [True, False]


def test_a_tree_too_deep_to_evaluate_is_a_typed_error():
    predicate, term = col("a") == 0, col("a") + 0
    for _ in range(5_000):
        predicate, term = ~predicate, term + 0
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        matches(predicate, {"a": column([1])}, 1)
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        run(term, a=column([1]))


# ------------------------------------------------------------------------------------------------------------ casts


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (" 42 ", "INT", 42),
        ("+5", "BIGINT", 5),
        (3.99, "INT", 3),
        (-3.99, "INT", -3),
        (Decimal("-3.99"), "INT", -3),
        (True, "INT", 1),
        (0, "BOOLEAN", False),
        (" Yes ", "BOOLEAN", True),
        (1.5, "STRING", "1.5"),
        (1.0, "STRING", "1.0"),
        (1e10, "STRING", "1.0E10"),
        (1e-5, "STRING", "1.0E-5"),
        (math.nan, "STRING", "NaN"),
        (-math.inf, "STRING", "-Infinity"),
        (Decimal("0.00000001"), "STRING", "0.00000001"),
        (True, "STRING", "true"),
        (dt.date(2024, 1, 2), "STRING", "2024-01-02"),
        (dt.datetime(2024, 1, 2, 3, 4, 5), "STRING", "2024-01-02 03:04:05"),
        (dt.datetime(2024, 1, 2, 3, 4, 5, 120_000), "STRING", "2024-01-02 03:04:05.12"),
        ("1.255", "DECIMAL(5, 2)", Decimal("1.26")),
        (Decimal("-1.255"), "DECIMAL(5, 2)", Decimal("-1.26")),
        (2.675, "DECIMAL(5, 2)", Decimal("2.68")),
        ("2024-01-02", "DATE", dt.date(2024, 1, 2)),
        (dt.datetime(1969, 12, 31, 23), "DATE", dt.date(1969, 12, 31)),
        ("2024-01-02 03:04:05", "TIMESTAMP(3)", dt.datetime(2024, 1, 2, 3, 4, 5)),
        (
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
            "TIMESTAMP(3)",
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_000),
        ),
        (dt.date(2024, 1, 2), "TIMESTAMP(6)", dt.datetime(2024, 1, 2)),
        (5, "TIMESTAMP(6)", dt.datetime(1970, 1, 1, 0, 0, 5)),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 500_000), "BIGINT", -1),
        ("abc", "VARCHAR(2)", "ab"),
        ("a", "CHAR(3)", "a  "),
        ("ab", "BYTES", b"ab"),
        (b"ab", "STRING", "ab"),
    ],
)
def test_a_cast_gives_the_value_that_spark_gives(value, dtype, expected):
    found = one(lit(value).cast(dtype))
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ("x", "INT"),
        ("0x10", "INT"),
        ("1.5", "INT"),
        (300, "TINYINT"),
        (1e20, "BIGINT"),
        (math.nan, "INT"),
        (math.inf, "DECIMAL(10, 2)"),
        (Decimal("1234.5"), "DECIMAL(3, 1)"),
        ("maybe", "BOOLEAN"),
        ("2024-13-01", "DATE"),
        (b"\xff", "STRING"),
        (dt.date(2024, 1, 1), "INT"),
        ("x", "ARRAY<INT>"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_and_never_another_value(value, dtype):
    with pytest.raises(InvalidInputError):
        one(lit(value).cast(dtype))


def test_a_cast_of_null_is_null_of_the_new_type():
    found = run(lit(None).cast(DecimalType(precision=4, scale=1)), a=column([1, 2]))
    assert found.type == pa.decimal128(4, 1)
    assert found.null_count == 2


# -------------------------------------------------------------------------------------------------------- functions

SAMPLES = {
    "upper": (("aé",), "AÉ"),
    "lower": (("AÉ",), "aé"),
    "reverse": (("a\U0001f40bb",), "b\U0001f40ba"),
    "trim": (("  a\t ",), "a\t"),
    "ltrim": (("xxax", "x"), "ax"),
    "rtrim": (("xxax", "x"), "xxa"),
    "length": (("é\U0001f40b",), 2),
    "substring": (("abcdef", 2, 3), "bcd"),
    "left": (("abc", 2), "ab"),
    "right": (("abc", 2), "bc"),
    "concat": (("a", 1, True, dt.date(2024, 1, 1)), "a1true2024-01-01"),
    "concat_ws": (("-", "a", None, "b"), "a-b"),
    "replace": (("abab", "b", "x"), "axax"),
    "repeat": (("ab", 2), "abab"),
    "lpad": (("7", 3, "0"), "007"),
    "rpad": (("abcd", 3), "abc"),
    "abs": ((-5,), 5),
    "sign": ((-2.5,), -1.0),
    "round": ((2.675, 2), 2.68),
    "floor": ((-1.5,), -2),
    "ceil": ((Decimal("1.01"),), Decimal(2)),
    "sqrt": ((9,), 3.0),
    "exp": ((0,), 1.0),
    "ln": ((-1.0,), None),
    "power": ((2, 10), 1024.0),
    "greatest": ((1, None, Decimal("2.5")), Decimal("2.5")),
    "least": ((3, None, 2), 2),
    "isnan": ((math.nan,), True),
    "year": ((dt.date(2024, 2, 29),), 2024),
    "quarter": ((dt.date(2024, 5, 1),), 2),
    "month": ((dt.datetime(2024, 2, 29),), 2),
    "day": ((dt.date(2024, 2, 29),), 29),
    "dayofyear": ((dt.date(2024, 12, 31),), 366),
    "dayofweek": ((dt.date(2024, 1, 7),), 1),
    "hour": ((dt.datetime(2024, 1, 1, 23, 5, 6, tzinfo=UTC),), 23),
    "minute": ((dt.datetime(2024, 1, 1, 23, 5, 6),), 5),
    "second": ((dt.date(2024, 1, 1),), 0),
    "date_add": ((dt.date(2024, 2, 28), 2), dt.date(2024, 3, 1)),
    "date_sub": ((dt.datetime(2024, 3, 1, 5), 1), dt.date(2024, 2, 29)),
    "datediff": ((dt.date(2024, 3, 1), dt.date(2024, 2, 1)), 29),
}


def test_every_function_has_a_sample():
    assert set(SAMPLES) == set(FUNCTIONS)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_function_gives_its_sample(name):
    arguments, expected = SAMPLES[name]
    found = one(call(name, *arguments))
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"concat_ws", "isnan", "greatest", "least"}))
def test_a_function_of_null_is_null(name):
    arguments, _ = SAMPLES[name]
    assert one(call(name, None, *arguments[1:])) is None


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (1, 2, "ab"),
        (0, 2, "ab"),
        (-2, 1, "e"),
        (-2, None, "ef"),
        (-9, 4, "a"),
        (-9, None, "abcdef"),
        (9, 1, ""),
        (2, -1, ""),
    ],
)
def test_substring_counts_from_one_or_from_the_end(start, length, expected):
    arguments = (start,) if length is None else (start, length)
    assert one(call("substring", "abcdef", *arguments)) == expected


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (0.5, 0, 1.0),
        (-0.5, 0, -1.0),
        (1.005, 2, 1.01),
        (-2.675, 2, -2.68),
        (1.4999999999999998, 0, 1.0),
        (1e300, 2, 1e300),
        (1250.0, -2, 1300.0),
        (0.1, 400, 0.1),
        (1e-320, 2, 0.0),
        (math.inf, 2, math.inf),
        (25, -1, 30),
        (-25, -1, -30),
        (Decimal("1.25"), 1, Decimal("1.3")),
        (Decimal("155.25"), -1, Decimal(160)),
        (Decimal("1.25"), 9, Decimal("1.25")),
    ],
)
def test_round_goes_by_the_digits_one_sees(value, digits, expected):
    assert one(call("round", value, digits)) == expected


def test_replacing_an_empty_text_changes_nothing():
    assert one(call("replace", "abc", "", "x")) == "abc"


def test_a_function_says_what_it_needs():
    with pytest.raises(InvalidInputError, match="wrong number of arguments"):
        one(call("upper", "a", "b"))
    with pytest.raises(InvalidInputError, match="wrong type"):
        one(call("upper", 5))
    with pytest.raises(InvalidInputError, match="wrong type"):
        one(call("year", "2024"))
    with pytest.raises(InvalidInputError, match="not a constant"):
        one(call("replace", "a", col("s"), "x"), s="b")
    with pytest.raises(InvalidInputError, match="not known"):
        one(call("frobnicate", 1))


def test_constant_conditions_have_their_truth_value():
    columns = {"a": column([1, 2])}
    assert holds(ALWAYS, **columns) == [True, True]
    assert holds(NEVER, **columns) == [False, False]


_ORDERED = {
    "BOOLEAN": (pa.bool_(), [False, True]),
    "TINYINT": (pa.int8(), [-1, 1]),
    "BIGINT": (pa.int64(), [-1, 1]),
    "DOUBLE": (pa.float64(), [-0.5, 0.5]),
    "DECIMAL": (pa.decimal128(5, 2), [Decimal("-1.00"), Decimal("1.50")]),
    "STRING": (pa.string(), ["a", "b"]),
    "BYTES": (pa.binary(), [b"a", b"\x80"]),
    "DATE": (pa.date32(), [dt.date(1969, 1, 1), dt.date(2024, 1, 1)]),
    "TIME": (pa.time32("ms"), [dt.time(1), dt.time(2)]),
    "TIMESTAMP": (pa.timestamp("us"), [dt.datetime(1969, 1, 1), dt.datetime(2024, 1, 1)]),
    "TIMESTAMP_LTZ": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1969, 1, 1, tzinfo=UTC), dt.datetime(2024, 1, 1, tzinfo=UTC)],
    ),
}


@pytest.mark.parametrize("name", _ORDERED)
def test_greatest_and_least_know_every_type_that_has_an_order(name):
    dtype, (low, high) = _ORDERED[name]
    left, right = pa.array([low, None, high, None], dtype), pa.array([high, low, None, None], dtype)
    for function, expected in (("greatest", [high, low, high, None]), ("least", [low, low, high, None])):
        found = run(call(function, col("a"), col("b")), a=left, b=right)
        assert found.type == dtype
        assert found.to_pylist() == expected
