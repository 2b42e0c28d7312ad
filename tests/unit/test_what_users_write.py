"""Columns, types, orders, positions and rows as people write them: what is meant is understood, the rest is told."""

from __future__ import annotations

import collections
import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tidelake as tl


@pytest.fixture
def lake() -> tl.Lake:
    return tl.connect("memory://")


@pytest.fixture
def table(lake: tl.Lake) -> tl.Table:
    made = lake.create_table("d.t", {"id": "BIGINT", "v": "STRING"})
    made.write([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    return made


# ------------------------------------------------------------------------------------------------ conditions


def test_files_takes_a_condition_as_text(lake: tl.Lake) -> None:
    made = lake.create_table("d.p", {"id": "BIGINT", "dt": "STRING"}, partition_by=["dt"])
    made.write([{"id": 1, "dt": "a"}, {"id": 2, "dt": "b"}])
    assert made.files().num_rows == 2
    assert made.files(where="dt = 'a'").equals(made.files(where=tl.col("dt") == "a"))
    assert made.files(where="dt = 'a'").num_rows == 1
    for wrong in ("id = 1", tl.col("id") == 1, "nothing = 1", 7):
        with pytest.raises(tl.InvalidInputError):
            made.files(where=wrong)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ types


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("int64", "BIGINT"),
        ("int32 not null", "INT NOT NULL"),
        ("float64", "DOUBLE"),
        ("float32", "FLOAT"),
        ("float", "FLOAT"),
        ("bool", "BOOLEAN"),
        ("text", "STRING"),
        ("str", "STRING"),
        ("datetime", "TIMESTAMP(6)"),
        ("list<struct<a int64>>", "ARRAY<ROW<`a` BIGINT>>"),
        (int, "BIGINT"),
        (float, "DOUBLE"),
        (bool, "BOOLEAN"),
        (str, "STRING"),
        (bytes, "BYTES"),
        (dt.date, "DATE"),
        (dt.datetime, "TIMESTAMP(6)"),
        (pa.int16(), "SMALLINT"),
        (pl.Int64, "BIGINT"),
        (pl.Decimal(10, 2), "DECIMAL(10, 2)"),
        (pl.List(pl.Categorical), "ARRAY<STRING>"),
        (np.int32, "INT"),
        (np.dtype("float32"), "FLOAT"),
        (pd.StringDtype(), "STRING"),
        (pd.CategoricalDtype(["a"]), "STRING"),
        (pd.DatetimeTZDtype("us", "UTC"), "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    ],
)
def test_common_names_of_types_are_understood(lake: tl.Lake, given: Any, expected: str) -> None:
    table = lake.create_table("d.t", {"a": given})
    assert str(table.schema.field("a").type) == expected
    nullable = given.replace(" not null", "") if isinstance(given, str) else given
    assert str(table.add_column("b", nullable).schema.field("b").type) == expected.replace(" NOT NULL", "")


@pytest.mark.parametrize("given", [object, Decimal, np.dtype("O"), pl.List, 7, None, "uint64", "jsonn", pd.Series([1])])
def test_a_type_that_says_nothing_is_refused_by_the_name_of_its_column(lake: tl.Lake, given: Any) -> None:
    with pytest.raises(tl.InvalidInputError) as caught:
        lake.create_table("d.t", {"the column": given})
    assert caught.value.facts["column"] == "the column"


@pytest.mark.parametrize(
    "given",
    [
        pl.Schema({"id": pl.Int64, "v": pl.String}),
        pl.DataFrame({"id": [1], "v": ["a"]}).schema,
        pd.DataFrame({"id": [1], "v": ["a"]}).dtypes,
        pd.DataFrame({"id": [1], "v": pd.Categorical(["a"])}).dtypes,
        pl.LazyFrame({"id": [1], "v": ["a"]}),
    ],
)
def test_the_schema_of_another_library_makes_a_table(lake: tl.Lake, given: Any) -> None:
    assert [str(field) for field in lake.create_table("d.t", given).schema.fields] == ["`id` BIGINT", "`v` STRING"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]).dtypes, "a column twice"),
        (pd.DataFrame({"a": pd.Series([1, "x"], dtype=object)}).dtypes, "column=`a`"),
        ({7: "INT"}, "is not text"),
        (7, "has an unknown form"),
        ("id BIGINT", "has an unknown form"),
    ],
)
def test_a_schema_that_is_none_is_refused_with_our_errors(lake: tl.Lake, given: Any, message: str) -> None:
    with pytest.raises(tl.InvalidInputError, match=message):
        lake.create_table("d.t", given)


# ------------------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize("limit", [-1, "3", 2.5, True])
def test_a_limit_that_is_no_number_of_rows_is_refused(table: tl.Table, limit: Any) -> None:
    with pytest.raises(tl.InvalidInputError, match="limit"):
        table.scan(limit=limit)


def test_an_order_may_be_given_in_pairs(table: tl.Table) -> None:
    for order in ([("id", "desc")], [("id", "DESC"), "v"], ["id desc"], "id desc", (("id", "desc"), ("v", "asc"))):
        assert table.to_arrow(order_by=order, limit=np.int64(1)).to_pylist() == [{"id": 2, "v": "b"}]


@pytest.mark.parametrize("order", [[("id", "down")], [("id",)], [7], 7, [("id", True)]])
def test_an_order_that_is_none_is_refused(table: tl.Table, order: Any) -> None:
    with pytest.raises(tl.InvalidInputError, match=r"order_by|order is not understood"):
        table.scan(order_by=order)


# ------------------------------------------------------------------------------------------------ writing


Point = collections.namedtuple("Point", ["v", "id"])  # noqa: PYI024 - as a user makes one


def test_rows_may_be_tuples_in_the_order_of_the_columns_or_with_names(table: tl.Table) -> None:
    table.write([(3, "c"), (4, None), Point("d", 5), {"id": 6}])
    assert table.to_arrow(where="id > 2", order_by="id").to_pylist() == [
        {"id": 3, "v": "c"},
        {"id": 4, "v": None},
        {"id": 5, "v": "d"},
        {"id": 6, "v": None},
    ]
    with pytest.raises(tl.InvalidInputError, match="number of values"):
        table.write([(3,)])
    with pytest.raises(tl.InvalidInputError, match="no names"):
        tl.write_table("memory://fresh/t", [(3, "c")])


@pytest.mark.parametrize(
    "value", [1.1, "1.1", "1.10", Decimal("1.1"), np.float64(1.1)], ids=["float", "text", "digits", "decimal", "numpy"]
)
def test_a_number_of_a_dict_fits_a_decimal_as_one_of_a_frame_does(lake: tl.Lake, value: Any) -> None:
    nested = "ROW<a ARRAY<DECIMAL(4, 2)>, m MAP<STRING, DECIMAL(4, 2)>>"
    table = lake.create_table("d.t", {"d": "DECIMAL(4, 2)", "r": nested})
    row = {"d": value, "r": {"a": [value, None], "m": {"k": value}}}
    table.write([row])
    table.write({"d": [value], "r": [None]})
    table.write(pl.DataFrame({"d": [value]}))
    exact = Decimal("1.10")
    assert table.to_arrow().column("d").to_pylist() == [exact] * 3
    assert {"a": [exact, None], "m": [("k", exact)]} in table.to_arrow().column("r").to_pylist()


@pytest.mark.parametrize("value", [1.111, "1.111", "x", "", "NaN", float("nan"), float("inf"), 1e9, "1e9"])
def test_a_number_that_a_decimal_cannot_hold_is_refused_from_dicts_and_frames(lake: tl.Lake, value: Any) -> None:
    table = lake.create_table("d.t", {"d": "DECIMAL(4, 2)"})
    for data in ([{"d": value}], pl.DataFrame({"d": [value]}), {"d": np.array([value])}):
        with pytest.raises(tl.InvalidInputError) as caught:
            table.write(data)
        assert caught.value.facts["column"] == "d"


def test_a_merge_on_a_name_means_the_column_of_both_sides(table: tl.Table) -> None:
    for source in ([{"id": 2, "v": "z"}], pl.LazyFrame({"id": [2], "v": ["z"]}), [(2, "z")]):
        assert table.merge(source, on="id").when_matched_update().run().updated == 1
    assert table.merge([{"id": 2, "v": "z"}], on=("id", "v")).when_matched_delete().run().deleted == 1
    with pytest.raises(tl.InvalidInputError, match="column is not one of the source"):
        table.merge([{"v": "z"}], on="id").when_matched_delete().run()


# ------------------------------------------------------------------------------------------------ positions


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("first", "cab"),
        ("FIRST", "cab"),
        ("last", "abc"),
        ("after a", "acb"),
        ("before `b`", "acb"),
        (tl.First(), "cab"),
        (tl.First, "cab"),
        (tl.Last(), "abc"),
        (tl.After("a"), "acb"),
        (tl.Before("a"), "cab"),
    ],
)
def test_a_column_is_moved_to_a_place_in_words(lake: tl.Lake, place: Any, expected: str) -> None:
    table = lake.create_table("d.t", {"a": "INT", "b": "INT", "c": "INT"})
    assert "".join(table.alter(move={"c": place}).schema.names) == expected


@pytest.mark.parametrize("place", ["behind a", "after", 7, None, "a"])
def test_a_place_that_is_none_is_refused_with_the_words_that_are(table: tl.Table, place: Any) -> None:
    with pytest.raises(tl.InvalidInputError, match="after id"):
        table.alter(move={"v": place})


# ------------------------------------------------------------------------------------------------ a second look


@pytest.mark.parametrize("order", [{"id": "desc"}, ("id", "desc"), [("id", "desc")], "id desc", ["id desc"]], ids=repr)
def test_a_direction_is_never_passed_over(table: tl.Table, order: Any) -> None:
    """A dict lost its directions, and a lone pair was taken for two columns."""
    assert table.to_arrow(order_by=order).column("id").to_pylist() == [2, 1]


def test_an_order_without_an_order_is_refused(table: tl.Table) -> None:
    with pytest.raises(tl.InvalidInputError, match="order is not understood"):
        table.to_arrow(order_by={"id", "v"})


def test_a_merge_by_a_floating_key_finds_zero_whatever_its_sign(lake: tl.Lake) -> None:
    """An upsert without a read wrote a second row, although the two keys are equal."""
    made = lake.create_table("d.z", {"x": "DOUBLE NOT NULL", "v": "INT"}, primary_key=["x"], options={"bucket": 1})
    made.write([{"x": -0.0, "v": 1}])
    merged = made.merge([{"x": 0.0, "v": 9}], on="x").when_matched_update({"v": "s.v"}).when_not_matched_insert().run()
    assert made.to_arrow().to_pylist() == [{"x": -0.0, "v": 9}]
    assert (merged.updated, merged.inserted, merged.commit.rows) == (1, 0, 1)


@pytest.mark.parametrize("options", [{}, {"deletion-vectors.enabled": "true"}], ids=["copied", "marked"])
def test_the_commit_of_a_merge_counts_the_rows_that_it_changed(lake: tl.Lake, options: dict[str, str]) -> None:
    """Rows that were only copied counted, and rows that were only marked did not."""
    made = lake.create_table("d.m", {"id": "BIGINT", "v": "STRING"}, options=options)
    made.write([{"id": number, "v": "a"} for number in range(100)])
    merged = made.merge([{"id": 1, "v": "b"}], on="id").when_matched_update({"v": "s.v"}).run()
    assert (merged.rows, merged.commit.rows) == (1, 1)
    merged = made.merge([{"id": 1, "v": "b"}], on="id").when_matched_delete().run()
    assert (merged.rows, merged.commit.rows) == (1, 1)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_row_type_without_members_is_refused_before_the_table_is_made(lake: tl.Lake, file_format: str) -> None:
    with pytest.raises(tl.TidelakeError, match="ROW"):
        lake.create_table("d.r", {"i": "INT", "a": "ROW<>"}, options={"file.format": file_format})
    assert lake.databases() == []


def test_a_table_that_no_name_would_open_is_not_made_by_its_path(tmp_path: Any) -> None:
    with pytest.raises(tl.InvalidInputError, match="branch or a system table"):
        tl.write_table(tmp_path / "x.db" / "q$ro", [{"z": 1}])
    assert not (tmp_path / "x.db").exists()


def test_a_stream_of_an_empty_table_until_the_latest_snapshot_ends(lake: tl.Lake) -> None:
    """It waited for ever for the snapshot before the first."""
    made = lake.create_table("d.e", {"id": "BIGINT"})
    assert list(made.follow(until="latest")) == []
