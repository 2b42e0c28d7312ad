"""Rows of users become batches of the table's columns, or are refused with the column and the reason."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import tidelake as tl
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.write.kinds import batches_with_kinds
from tidelake.spec.schemas.schema import Schema
from tidelake.testing import FakeClock, MemoryFileIO

COLUMNS = {
    "id": "INT NOT NULL", "s": "VARCHAR(3)", "b": "VARBINARY(2)", "d": "DECIMAL(5, 2)", "day": "DATE",
    "ts": "TIMESTAMP(3)", "f": "DOUBLE", "l": "ARRAY<VARCHAR(2) NOT NULL>", "m": "MAP<STRING, INT NOT NULL>",
    "r": "ROW<x INT, y ARRAY<SMALLINT>>",
}  # fmt: skip


def new_lake() -> Lake:
    return Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))))


def schema(columns: dict[str, str] | None = None) -> Schema:
    return new_lake().create_table("d.t", columns or COLUMNS).schema


def to_batches(data: Any, wanted: Schema) -> list[pa.RecordBatch]:
    return [batch for batch, _ in batches_with_kinds(data, wanted)]


def rows(data: Any, columns: dict[str, str] | None = None) -> list[dict[str, Any]]:
    return [row for batch in to_batches(data, schema(columns)) for row in batch.to_pylist()]


FULL = {
    "id": 1, "s": "日本語", "b": b"\x00\xff", "d": Decimal("-999.99"), "day": dt.date(1, 1, 1),
    "ts": dt.datetime(1969, 12, 31, 23, 59, 59, 999000), "f": -0.0, "l": ["ab", ""], "m": [("k", 1)],
    "r": {"x": None, "y": [1, None]},
}  # fmt: skip


@pytest.mark.parametrize(
    "wrap",
    [
        lambda row: [row],
        lambda row: iter([row]),
        lambda row: {name: [value] for name, value in row.items()},
        lambda row: pa.Table.from_batches(list(to_batches([row], schema()))),
        lambda row: list(to_batches([row], schema())),
        lambda row: pa.Table.from_batches(list(to_batches([row], schema()))).to_reader(),
    ],
)
def test_every_kind_of_data_gives_the_same_rows(wrap: Any) -> None:
    assert rows(wrap(FULL)) == [FULL]


def test_frames_of_polars_are_taken() -> None:
    frame = pl.DataFrame({"id": [1, 2], "s": ["a", None], "f": [1.5, None]})
    assert [(row["id"], row["s"], row["f"], row["l"]) for row in rows(frame)] == [
        (1, "a", 1.5, None),
        (2, None, None, None),
    ]


def test_columns_may_come_in_any_order_and_nullable_ones_may_be_missing() -> None:
    found = rows(pa.table({"s": ["a"], "id": pa.array([7], pa.int64())}))
    assert found[0]["id"] == 7
    assert found[0]["s"] == "a"
    assert list(found[0]) == list(COLUMNS)


def test_dictionary_encoded_columns_are_decoded() -> None:
    assert rows(pa.table({"id": [1], "s": pa.array(["a"]).dictionary_encode()}))[0]["s"] == "a"


def test_a_row_that_says_nothing_is_a_row_of_nulls() -> None:
    assert rows([{}, {}], {"a": "INT", "b": "STRING"}) == [{"a": None, "b": None}] * 2


def test_no_rows_give_no_batches() -> None:
    assert rows([]) == []
    assert rows(pa.table({"id": pa.array([], pa.int32())})) == []


@pytest.mark.parametrize(
    ("data", "code", "column"),
    [
        ([{"id": None}], "null-value", "id"),
        ([{"s": "a"}], "null-value", "id"),
        ([{}], "null-value", "id"),
        ([{"id": 1, "l": ["a", None]}], "null-value", "l.element"),
        ([{"id": 1, "m": {"k": None}}], "null-value", "m.value"),
        ([{"id": 1, "nope": 1}], "column-unknown", "nope"),
        ([{"ID": 1}], "column-unknown", "ID"),
        (pa.table([[1], [2]], names=["id", "id"]), "column-duplicate", "id"),
        ({"id": [1, 2], "s": ["a"]}, "column-length", None),
        ([{"id": 2**31}], "value-type", "id"),
        (pa.table({"id": [2**31]}), "value-type", "id"),
        ([{"id": 1.5}], "value-type", "id"),
        (pa.table({"id": [1.5]}), "value-type", "id"),
        ([{"id": True}], "value-type", "id"),
        ([{"id": "1"}], "value-type", "id"),
        (pa.table({"id": ["x"]}), "value-type", "id"),
        ([{"id": 1, "s": 5}], "value-type", "s"),
        ([{"id": 1, "s": "abcd"}], "value-too-long", "s"),
        ([{"id": 1, "b": b"abc"}], "value-too-long", "b"),
        ([{"id": 1, "l": ["abc"]}], "value-too-long", "l.element"),
        ([{"id": 1, "d": Decimal("1.555")}], "value-type", "d"),
        ([{"id": 1, "d": Decimal("1000.00")}], "value-type", "d"),
        ([{"id": 1, "d": 1.555}], "value-type", "d"),
        ([{"id": 1, "ts": dt.datetime(2024, 1, 1, 0, 0, 0, 1)}], "value-type", "ts"),
        ([{"id": 1, "ts": "yesterday"}], "value-type", "ts"),
        ([{"id": 1, "r": {"x": 1, "z": 2}}], "value-type", "r"),
        ([{"id": 1, "r": {"x": 1.5}}], "value-type", "r"),
        ([{"id": 1, "r": {"y": [2**15]}}], "value-type", "r"),
        ([{"id": 1, "m": {"k": 2.5}}], "value-type", "m"),
        ([{"id": 1, "l": "ab"}], "value-type", "l"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_column(data: Any, code: str, column: str | None) -> None:
    with pytest.raises(tl.InvalidInputError) as caught:
        rows(data)
    assert caught.value.code == code
    assert caught.value.facts.get("column") == column


@pytest.mark.parametrize("data", [5, None, "rows", b"rows", [1], [["id", 1]], [{1: 2}], {1: [2]}])
def test_what_holds_no_rows_is_refused(data: Any) -> None:
    with pytest.raises(tl.InvalidInputError):
        rows(data)


def test_a_name_of_another_case_is_told_apart_with_the_right_name() -> None:
    with pytest.raises(tl.InvalidInputError, match="rename it to id"):
        rows([{"Id": 1}])


def test_nulls_inside_a_null_row_are_no_nulls_of_its_members() -> None:
    columns = {"id": "INT", "r": "ROW<x INT NOT NULL>", "l": "ARRAY<ROW<x INT NOT NULL>>"}
    assert rows([{"id": 1, "r": None, "l": [None]}], columns) == [{"id": 1, "r": None, "l": [None]}]
    for row in ({"id": 1, "r": {"x": None}}, {"id": 1, "l": [{"x": None}]}):
        with pytest.raises(tl.InvalidInputError, match="must not be null"):
            rows([row], columns)


def test_slices_of_nested_data_are_checked_where_they_begin() -> None:
    columns = {"id": "INT", "l": "ARRAY<VARCHAR(2) NOT NULL>", "m": "MAP<STRING, INT NOT NULL>"}
    types = {"l": pa.list_(pa.string()), "m": pa.map_(pa.string(), pa.int32())}
    table = pa.table(
        {
            "id": [1, 2],
            "l": pa.array([["long text", None], ["ab"]], types["l"]),
            "m": pa.array([[("a", None)], [("b", 1)]], types["m"]),
        }
    )
    assert rows(table.slice(1), columns) == [{"id": 2, "l": ["ab"], "m": [("b", 1)]}]
    with pytest.raises(tl.InvalidInputError):
        rows(table.slice(0, 1), columns)


def test_defaults_stand_in_for_what_is_missing() -> None:
    lake = new_lake()
    table = lake.create_table("d.t", {"id": "INT NOT NULL", "s": "STRING", "n": "BIGINT"})
    table = table.alter(defaults={"s": "none", "n": "7"})
    table.write([{"id": 1}, {"id": 2, "s": "x", "n": None}])
    assert table.to_arrow().to_pylist() == [{"id": 1, "s": "none", "n": 7}, {"id": 2, "s": "x", "n": 7}]
