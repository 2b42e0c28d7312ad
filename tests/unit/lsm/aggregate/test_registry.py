"""Which function a column gets, and which wishes are refused."""

from __future__ import annotations

import pytest

from tidelake.errors import InvalidInputError
from tidelake.lsm.aggregate import FUNCTION_NAMES, aggregate_for, column_functions
from tidelake.options import TableOptions
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import INT, Field
from tidelake.spec.types.type_codec import parse_type

TABLE = "ARRAY<ROW<k INT, s ARRAY<INT>, v STRING>>"


def schema(*names: str) -> Schema:
    fields = tuple(Field(number, name, INT) for number, name in enumerate(names))
    return Schema(id=0, fields=fields, highest_field_id=len(names), primary_keys=("k",))


def test_each_column_gets_its_function() -> None:
    options = {
        "sequence.field": "s",
        "fields.a.aggregate-function": "sum",
        "fields.default-aggregate-function": "max",
        "fields.b.ignore-retract": "true",
    }
    functions = column_functions(schema("k", "a", "b", "s"), TableOptions(options))
    assert [(name, each.name) for name, each in functions.items()] == [
        ("k", "primary-key"),
        ("a", "sum"),
        ("b", "max"),
        ("s", "last_value"),
    ]
    assert functions["b"].ignores_retract


def test_a_column_without_a_wish_keeps_its_last_value_that_is_not_null() -> None:
    assert column_functions(schema("k", "a"), TableOptions())["a"].name == "last_non_null_value"


@pytest.mark.parametrize(
    ("name", "dtype", "accepted"),
    [
        ("sum", "STRING", "DECIMAL, TINYINT"),
        ("product", "DATE", "DECIMAL, TINYINT"),
        ("max", "ARRAY<INT>", "numbers, texts"),
        ("min", "VARIANT", "numbers, texts"),
        ("bool_and", "INT", "BOOLEAN"),
        ("listagg", "VARCHAR(10)", "STRING"),
        ("listagg", "CHAR(3)", "STRING"),
        ("collect", "MULTISET<INT>", "ARRAY"),
        ("merge_map", "ARRAY<INT>", "MAP"),
        ("merge_map_with_keytime", "MAP<INT, ROW<a STRING>>", "at least two"),
        ("nested_update", "ARRAY<INT>", "ARRAY of ROW"),
        ("nested_partial_update", "MAP<INT, ROW<a INT>>", "ARRAY of ROW"),
        *((name, "BINARY(4)", "VARBINARY") for name in ("rbm32", "rbm64", "hll_sketch", "theta_sketch")),
    ],
)
def test_a_type_that_does_not_fit_is_refused_with_those_that_do(name: str, dtype: str, accepted: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        aggregate_for("price", parse_type(dtype), name, TableOptions())
    assert caught.value.facts["column"] == "price"
    assert caught.value.facts["function"] == name
    assert accepted in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "dtype", "settings", "message"),
    [
        ("nested_update", TABLE, {"nested-key": "z"}, "must name members"),
        ("nested_update", TABLE, {"nested-key": ""}, "must name members"),
        ("nested_update", TABLE, {"nested-key": "k,k"}, "must name members"),
        ("nested_update", TABLE, {"nested-sequence-field": "k"}, "needs a nested key"),
        ("nested_update", TABLE, {"nested-key-null-strategy": "ignore"}, "needs a nested key"),
        ("nested_update", TABLE, {"nested-key": "k", "nested-sequence-field": "s"}, "has no order"),
        ("nested_update", TABLE, {"nested-key": "k", "nested-key-null-strategy": "x"}, "unknown value"),
        ("nested_update", TABLE, {"count-limit": "many"}, "not an integer"),
        ("nested_partial_update", TABLE, {}, "needs a nested key"),
        ("merge_map_with_keytime", "MAP<INT, ROW<a INT, t STRING>>", {"ts-field": "z"}, "does not name a member"),
        ("merge_map_with_keytime", "MAP<INT, ROW<a STRING, t INT>>", {}, "not a text"),
        ("listagg", "STRING", {"distinct": "maybe"}, "not a boolean"),
        ("sum", "INT", {"ignore-retract": "perhaps"}, "not a boolean"),
    ],
)
def test_a_wrong_setting_is_refused(name: str, dtype: str, settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        aggregate_for(
            "c", parse_type(dtype), name, TableOptions({f"fields.c.{key}": value for key, value in settings.items()})
        )


def test_an_unknown_function_gets_a_guess() -> None:
    with pytest.raises(InvalidInputError, match="last_non_null_value"):
        aggregate_for("c", INT, "last_nonnull_value", TableOptions())
    with pytest.raises(InvalidInputError, match="sum"):
        aggregate_for("c", INT, "qqqqqqq", TableOptions())


def test_names_of_members_are_trimmed() -> None:
    made = aggregate_for("c", parse_type(TABLE), "nested_update", TableOptions({"fields.c.nested-key": " k , v "}))
    assert made.name == "nested_update"


def test_every_function_is_named_once() -> None:
    assert len(set(FUNCTION_NAMES)) == len(FUNCTION_NAMES) == 22
