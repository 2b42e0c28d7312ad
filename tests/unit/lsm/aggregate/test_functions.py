"""What each aggregate function makes of nulls, overflow, NaN, rows taken back and groups without rows."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.lsm.aggregate import Aggregate, aggregate_for
from tidelake.options import TableOptions
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.type_codec import parse_type

NAN, INF = math.nan, math.inf
TABLE = "ARRAY<ROW<k INT, s INT, v STRING>>"
TIMED = "MAP<STRING, ROW<v INT, t STRING>>"


def function(name: str, dtype: str, **settings: str) -> Aggregate:
    options = {f"fields.c.{key.replace('_', '-')}": value for key, value in settings.items()}
    return aggregate_for("c", parse_type(dtype), name, TableOptions(options))


def fold(name: str, dtype: str, versions: list[Any], **settings: str) -> Any:
    """Feed one key: a value is added, a tuple ("-", value) taken back, ("older", value) added out of order."""
    made, kind = function(name, dtype, **settings), to_arrow(parse_type(dtype))
    state: pa.Array | None = None
    for version in versions:
        how, value = version if isinstance(version, tuple) else ("+", version)
        array = pa.array([value], kind)
        if state is None:
            state = made.first(array, np.array([how == "-"]))
        elif how == "older":
            state = made.merge_reversed(state, array)
        else:
            state = made.retract(state, array) if how == "-" else made.merge(state, array)
    assert state is not None
    return state[0].as_py()


def row(k: int | None, s: int | None = None, v: str | None = None) -> dict[str, Any]:
    return {"k": k, "s": s, "v": v}


def at(v: int | None, t: str | None) -> dict[str, Any]:
    return {"v": v, "t": t}


@pytest.mark.parametrize(
    ("name", "dtype", "versions", "expected"),
    [
        ("sum", "INT", [None, 3, None, 4], 7),
        ("sum", "INT", [None, None], None),
        ("sum", "INT", [("-", 3)], -3),
        ("sum", "INT", [("-", None)], None),
        ("sum", "INT", [5, ("-", 7), ("-", None)], -2),
        ("sum", "FLOAT", [np.float32(0.1), np.float32(0.2)], float(np.float32(0.1) + np.float32(0.2))),
        ("sum", "FLOAT", [3e38, 3e38], INF),
        ("sum", "DECIMAL(5, 2)", [Decimal("1.10"), Decimal("2.20"), ("-", Decimal("0.30"))], Decimal("3.00")),
        ("sum", "DECIMAL(5, 2)", [Decimal("999.99"), Decimal("0.01")], None),
        ("sum", "DECIMAL(5, 2)", [Decimal("999.99"), Decimal("0.01"), Decimal("5.00")], Decimal("5.00")),
        ("sum", "DECIMAL(38, 0)", [Decimal("9" * 38), Decimal(1)], None),
        ("sum", "DECIMAL(38, 18)", [Decimal("1e-18"), ("-", Decimal("3e-18"))], Decimal("-2e-18")),
        ("product", "INT", [None, 3, -4], -12),
        ("product", "INT", [-7, ("-", 2)], -3),
        ("product", "INT", [("-", 0)], None),
        ("product", "INT", [8, ("-", None)], 8),
        ("product", "DOUBLE", [1.5, ("-", 0.0)], INF),
        ("product", "DECIMAL(5, 2)", [Decimal("-1.05"), Decimal("1.50")], Decimal("-1.58")),
        ("product", "DECIMAL(5, 2)", [Decimal("100.05"), Decimal("15.50"), Decimal("2.00")], Decimal("2.00")),
        ("product", "DECIMAL(5, 2)", [Decimal("1.00"), ("-", Decimal("8.00"))], Decimal("0.13")),
        ("max", "DOUBLE", [1.0, NAN, 2.0], NAN),
        ("min", "DOUBLE", [NAN, 1.0, None], 1.0),
        ("max", "STRING", ["\uffff", "\U00010000"], "\U00010000"),
        ("min", "BYTES", [b"\x80", b"\x7f\x00", b"\x7f"], b"\x7f"),
        ("max", "BOOLEAN", [False, None, True], True),
        ("min", "BOOLEAN", [True, False], False),
        ("max", "DECIMAL(20, 1)", [Decimal("-0.5"), Decimal("-1.5")], Decimal("-0.5")),
        ("last_value", "INT", [1, None], None),
        ("last_value", "INT", [1, ("-", 7)], None),
        ("last_value", "INT", [1, ("older", 2)], 1),
        ("last_non_null_value", "INT", [1, None], 1),
        ("last_non_null_value", "INT", [1, ("-", None)], 1),
        ("last_non_null_value", "INT", [1, ("-", 9)], None),
        ("first_value", "INT", [None, 1], None),
        ("first_value", "INT", [1, ("older", None)], None),
        ("first_non_null_value", "INT", [None, 1, 2], 1),
        ("first_not_null_value", "INT", [None, 1, 2], 1),
        ("first_non_null_value", "INT", [1, ("older", None)], None),
        ("bool_and", "BOOLEAN", [None, True, False, True], False),
        ("bool_or", "BOOLEAN", [None, False, True, None], True),
        ("listagg", "STRING", ["a", "", " \u3000", None, "b"], "a,b"),
        ("listagg", "STRING", ["\t", "b"], "b"),
        ("listagg", "STRING", ["\xa0", "b"], "\xa0,b"),
        ("listagg", "STRING", [" "], None),
        ("listagg", "STRING", ["a", ("older", "b")], "b,a"),
        ("collect", "ARRAY<INT>", [[1, None], None, [], [1]], [1, None, 1]),
        ("collect", "ARRAY<INT>", [None, None], None),
        ("collect", "ARRAY<INT>", [[1, 2], ("older", [3])], [1, 2, 3]),
        ("collect", "ARRAY<INT>", [[1, 2, 1, 3, 1], ("-", [1, 1, 9])], [2, 3, 1]),
        ("collect", "ARRAY<INT>", [("-", [1])], None),
        ("collect", "ARRAY<INT>", [[1], ("-", [1])], []),
        ("merge_map", "MAP<INT, INT>", [[(1, 1), (2, 2)], [(2, None), (3, 3)]], [(1, 1), (2, None), (3, 3)]),
        ("merge_map", "MAP<INT, INT>", [None, [], None], []),
        ("merge_map", "MAP<INT, INT>", [[(1, 1), (2, 2)], ("-", [(2, 9)]), ("-", None)], [(1, 1)]),
        ("merge_map", "MAP<INT, INT>", [("-", [(1, 1)])], None),
        ("merge_map_with_keytime", TIMED, [[("a", at(1, "9"))], [("a", at(2, "10"))]], [("a", at(1, "9"))]),
        ("merge_map_with_keytime", TIMED, [[("a", at(1, "5"))], [("a", at(2, "5"))]], [("a", at(1, "5"))]),
        ("merge_map_with_keytime", TIMED, [[("a", at(1, None))], [("a", at(2, ""))]], [("a", at(2, ""))]),
        ("merge_map_with_keytime", TIMED, [[("a", at(1, "5"))], [("a", None), ("b", at(1, None))]], []),
        ("merge_map_with_keytime", TIMED, [[("a", None)], []], [("a", None)]),
        ("nested_update", TABLE, [[row(1), None, row(1)], None, [row(2)]], [row(1), row(1), row(2)]),
        ("nested_update", TABLE, [[row(1), row(2), row(1)], ("-", [row(1), None])], [row(2)]),
        ("nested_update", TABLE, [[None]], []),
        ("nested_update", TABLE, [("-", [row(1)])], None),
        ("primary-key", "INT", [1, 2, ("-", 3)], 3),
    ],
)
def test_versions_become_one_value(name: str, dtype: str, versions: list[Any], expected: Any) -> None:
    result = fold(name, dtype, versions)
    assert result == expected or (result != result and expected != expected)


@pytest.mark.parametrize(
    ("name", "dtype", "versions", "settings", "expected"),
    [
        ("listagg", "STRING", ["a", "b"], {"list_agg_delimiter": "||"}, "a||b"),
        ("listagg", "STRING", ["a,b,a", "b,c,,c, ,d"], {"distinct": "true"}, "a,b,a,c,d"),
        ("listagg", "STRING", ["", "b,b"], {"distinct": "true"}, "b,b"),
        ("listagg", "STRING", ["a.b", "axb.b"], {"distinct": "true", "list_agg_delimiter": "."}, "a.b.axb"),
        ("listagg", "STRING", ["a;;;b", "c;;;b"], {"distinct": "true", "list_agg_delimiter": ";;"}, "a;;;b;;c"),
        ("listagg", "STRING", ["a b", "b c"], {"distinct": "true", "list_agg_delimiter": ""}, "a bc"),
        ("collect", "ARRAY<INT>", [[2, 2, None], [None, 1, 2]], {"distinct": "true"}, [2, None, 1]),
        ("collect", "ARRAY<BYTES>", [[b"a"], [b"b", b"a"]], {"distinct": "true"}, [b"a", b"b"]),
        ("collect", "ARRAY<ARRAY<INT>>", [[[1, None]], [[1], [1, None]]], {"distinct": "true"}, [[1, None], [1]]),
        (
            "nested_update",
            TABLE,
            [[row(1), row(2)], [None, row(3), row(4)]],
            {"count_limit": "3"},
            [row(1), row(2), row(3)],
        ),
        (
            "nested_update",
            TABLE,
            [[row(1, 1), row(2), row(1, 2)], [row(2, 0)]],
            {"nested_key": "k"},
            [row(1, 2), row(2, 0)],
        ),
        ("nested_update", TABLE, [[row(1), row(2)], ("-", [row(2, 9, "z")])], {"nested_key": "k"}, [row(1)]),
        # A late row is the older side as it was written, so it may have a key twice; null is a key like others.
        (
            "nested_update",
            TABLE,
            [[], ("older", [row(None, 0, "a"), row(None, None, "b")])],
            {"nested_key": "k", "nested_sequence_field": "s", "count_limit": "2"},
            [row(None, 0, "a")],
        ),
        (
            "nested_update",
            TABLE,
            [None, ("older", [row(None, 0, "a"), row(None, None, "b"), row(1)]), ("-", [])],
            {"nested_key": "k", "nested_sequence_field": "s"},
            [row(None, None, "b"), row(1)],
        ),
        (
            "nested_update",
            TABLE,
            [[row(1, 5, "a"), row(1, 3, "b")], [row(1, None, "n")], [row(1, 5, "c")]],
            {"nested_key": "k", "nested_sequence_field": "s"},
            [row(1, 5, "c")],
        ),
        (
            "nested_update",
            TABLE,
            [[row(1)], [row(2), row(1, 2), row(3), row(2, 7)]],
            {"nested_key": "k", "count_limit": "2"},
            [row(1, 2), row(2, 7)],
        ),
        (
            "nested_update",
            TABLE,
            [[row(None, 1), row(1)], [row(None, 2)]],
            {"nested_key": "k"},
            [row(None, 2), row(1)],
        ),
        (
            "nested_update",
            TABLE,
            [[row(None, 1), row(1)], [row(None, 2)]],
            {"nested_key": "k", "nested_key_null_strategy": "IGNORE"},
            [row(1)],
        ),
        (
            "nested_partial_update",
            TABLE,
            [[row(1, 1, "a"), None, row(1, None, "b")], None, [row(1, 2), row(3, 3)]],
            {"nested_key": "k"},
            [row(1, 2, "b"), row(3, 3)],
        ),
        ("max", "INT", [("-", 1), 1, ("-", 5)], {"ignore_retract": "true"}, 1),
        ("sum", "INT", [("-", 1), ("-", 5)], {"ignore_retract": "true"}, None),
    ],
)
def test_settings_change_what_a_function_does(
    name: str, dtype: str, versions: list[Any], settings: dict[str, str], expected: Any
) -> None:
    assert fold(name, dtype, versions, **settings) == expected


@pytest.mark.parametrize(
    ("name", "dtype", "versions"),
    [
        *(("sum", dtype, [2**bits - 1, 1]) for dtype, bits in (("TINYINT", 7), ("SMALLINT", 15), ("INT", 31))),
        ("sum", "BIGINT", [2**63 - 1, 1]),
        ("sum", "BIGINT", [-(2**63), ("-", 1)]),
        ("sum", "INT", [("-", -(2**31))]),
        ("product", "INT", [2**31 - 1, 2]),
        ("product", "TINYINT", [-128, ("-", -1)]),
        ("product", "INT", [7, ("-", 0)]),
        ("product", "DECIMAL(5, 2)", [Decimal("1.00"), ("-", Decimal("3.00"))]),
        ("product", "DECIMAL(5, 2)", [Decimal("1.00"), ("-", Decimal("0.00"))]),
    ],
)
def test_overflow_is_an_error_that_names_the_column(name: str, dtype: str, versions: list[Any]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        fold(name, dtype, versions)
    assert caught.value.facts["column"] == "c"
    assert caught.value.facts["function"] == name
    assert caught.value.hint


def test_an_overflow_shows_the_two_numbers() -> None:
    made = function("sum", "INT")
    with pytest.raises(InvalidInputError) as caught:
        made.merge(pa.array([1, 2**31 - 1], pa.int32()), pa.array([1, 5], pa.int32()))
    assert (caught.value.facts["left"], caught.value.facts["right"]) == ("2147483647", "5")
    assert caught.value.code == "aggregate-overflow"


@pytest.mark.parametrize(
    ("versions", "expected"),
    [([0.0, -0.0], 1.0), ([-0.0, 0.0], 1.0), ([-0.0, -0.0], -1.0)],
)
def test_negative_zero_is_smaller_than_zero(versions: list[float], expected: float) -> None:
    assert math.copysign(1.0, fold("max", "DOUBLE", versions)) == expected


def test_a_null_key_is_refused_where_so_configured() -> None:
    with pytest.raises(InvalidInputError, match="nested key has a null"):
        fold("nested_update", TABLE, [[row(None)]], nested_key="k", nested_key_null_strategy="error")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "INT") for name in ("max", "min", "first_value", "first_non_null_value")),
        *((name, "BOOLEAN") for name in ("bool_and", "bool_or")),
        *((name, "BYTES") for name in ("rbm32", "rbm64", "hll_sketch", "theta_sketch")),
        ("listagg", "STRING"),
        ("merge_map_with_keytime", TIMED),
    ],
)
def test_functions_that_take_nothing_back_say_what_to_do(name: str, dtype: str) -> None:
    made, nothing = function(name, dtype), pa.nulls(1, to_arrow(parse_type(dtype)))
    for attempt in (lambda: made.retract(nothing, nothing), lambda: made.first(nothing, np.array([True]))):
        with pytest.raises(UnsupportedError) as caught:
            attempt()
        assert caught.value.facts == {"column": "c", "function": name}
        assert "fields.c.ignore-retract" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "dtype", "value", "settings"),
    [
        ("sum", "INT", 1, {}),
        ("sum", "DOUBLE", 1.0, {}),
        ("sum", "DECIMAL(9, 2)", Decimal("1.00"), {}),
        ("product", "INT", 1, {}),
        ("max", "DATE", 1, {}),
        ("max", "DOUBLE", 1.0, {}),
        ("bool_or", "BOOLEAN", True, {}),
        ("last_value", "STRING", "a", {}),
        ("last_non_null_value", "STRING", "a", {}),
        ("first_value", "STRING", "a", {}),
        ("first_non_null_value", "STRING", "a", {}),
        ("listagg", "STRING", "a", {}),
        ("listagg", "STRING", "a", {"distinct": "true"}),
        ("collect", "ARRAY<INT>", [1], {}),
        ("collect", "ARRAY<INT>", [1], {"distinct": "true"}),
        ("merge_map", "MAP<INT, INT>", [(1, 1)], {}),
        ("nested_update", TABLE, [row(1)], {}),
        ("nested_partial_update", TABLE, [row(1)], {"nested_key": "k"}),
    ],
)
def test_a_group_without_rows_or_values_is_null(name: str, dtype: str, value: Any, settings: dict[str, str]) -> None:
    made = function(name, dtype, **settings)
    values = pa.array([None, value], to_arrow(parse_type(dtype)))
    result = made.reduce(values, np.array([0, 0, 1, 1, 2, 2]))
    assert result is not None
    assert result.is_valid().to_pylist() == [False, False, False, True, False]
    empty = made.reduce(values.slice(0, 0), np.array([0]))
    assert empty is not None
    assert len(empty) == 0


def test_a_long_group_of_floats_is_added_one_after_the_other() -> None:
    values = [0.1] * 1000
    expected = 0.0
    for value in values:
        expected += value
    result = function("sum", "DOUBLE").reduce(pa.array(values), np.array([0, 1000]))
    assert result is not None
    assert result.to_pylist() == [expected]
    assert expected != math.fsum(values)


def test_the_oldest_text_of_a_group_is_kept_whole_whatever_it_repeats() -> None:
    made = function("listagg", "STRING", distinct="true")
    result = made.reduce(pa.array(["", "a,a,,b", "b,c", "x,x"]), np.array([0, 3, 4]))
    assert result is not None
    assert result.to_pylist() == ["a,a,,b,c", "x,x"]


def test_every_nan_is_larger_than_infinity_whatever_its_bits() -> None:
    odd = pa.array(np.array([0xFFF8000000000001, 0x7FF8000000000002], np.uint64).view(np.float64))
    infinite = pa.array([INF, INF])
    assert all(math.isnan(each) for each in function("max", "DOUBLE").merge(infinite, odd).to_pylist())
    assert function("min", "DOUBLE").merge(odd, infinite).to_pylist() == [INF, INF]


def test_a_sum_that_overflows_on_the_way_has_no_shortcut() -> None:
    values = pa.array([2**31 - 1, 1, -5], pa.int32())
    assert function("sum", "INT").reduce(values, np.array([0, 3])) is None
    assert function("product", "INT").reduce(pa.array([2**20, 2**20, 0], pa.int32()), np.array([0, 3])) is None


def test_first_rows_are_added_and_taken_back_side_by_side() -> None:
    result = function("sum", "INT").first(pa.array([1, 2, None, 4], pa.int32()), np.array([True, False, True, True]))
    assert result.to_pylist() == [-1, 2, None, -4]


def test_a_column_that_ignores_retracts_says_so() -> None:
    assert function("sum", "INT", ignore_retract="true").ignores_retract
    assert not function("sum", "INT").ignores_retract
