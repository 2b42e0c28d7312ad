"""Changing a table through its handle: values of any kind, names of members, texts that become numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import tidelake as tl
from tidelake.errors import InvalidInputError
from tidelake.table import Table


@pytest.fixture
def lake() -> tl.Lake:
    return tl.connect("memory://")


def new(lake: tl.Lake, **columns: str) -> Table:
    return lake.create_table("db.t", columns or {"id": "INT", "v": "INT", "r": "ROW<x INT, y STRING>"})


def test_a_default_of_a_number_means_its_text(lake: tl.Lake) -> None:
    table = new(lake).alter(defaults={"v": 5})
    assert lake.table("db.t").schema.field("v").default == "5"
    table.write([{"id": 1}])
    assert table.to_arrow(columns=["v"]).to_pylist() == [{"v": 5}]


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.alter(comments={"id": 5}),
        lambda table: table.set_comment(5),
        lambda table: table.alter(defaults={"v": "five"}),
        lambda table: table.alter(defaults={"v": [5]}),
        lambda table: table.alter(defaults={"r.x": 5}),
        lambda table: table.add_column("w", "INT", comment=3),
        lambda table: table.alter(rename={"v": 5}),
        lambda table: table.alter(nullable={"v": "yes"}),
    ],
)
def test_no_call_leaves_a_schema_that_nothing_can_open(lake: tl.Lake, call: Callable[[Table], Any]) -> None:
    table = new(lake)
    with pytest.raises(InvalidInputError):
        call(table)
    assert table.store.schemas.ids() == [0]
    assert lake.table("db.t").schema == table.schema


def test_a_table_is_not_made_with_a_comment_that_is_not_a_text(lake: tl.Lake) -> None:
    with pytest.raises(InvalidInputError, match="comment of the table is not a string"):
        lake.create_table("db.t", {"id": "INT"}, comment=5)  # type: ignore[arg-type]
    assert "db.t" not in lake


@pytest.mark.parametrize("name", ["yy", "r.yy"])
def test_a_member_of_a_row_is_renamed_by_either_natural_spelling(lake: tl.Lake, name: str) -> None:
    table = new(lake)
    table.write([{"id": 1, "v": 1, "r": {"x": 1, "y": "a"}}])
    table = table.rename_column("r.y", name)
    assert table.to_arrow(columns=["r"]).to_pylist() == [{"r": {"x": 1, "yy": "a"}}]
    table = table.add_column("r.z", "INT").drop_column("r.yy").alter(comments={"r.z": "new"})
    assert table.to_arrow(columns=["r"]).to_pylist() == [{"r": {"x": 1, "z": None}}]
    with pytest.raises(InvalidInputError, match="a new column name contains a dot"):
        table.rename_column("r.z", "s.z")


def test_texts_that_become_numbers_are_warned_of_and_name_where_they_stand(lake: tl.Lake) -> None:
    table = new(lake, id="INT", v="STRING", r="ROW<a STRING>", w="ARRAY<STRING>")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = table.alter(types={"r.a": "VARCHAR(9)"})
    table.write([{"id": 1, "v": "7", "r": {"a": "x"}, "w": ["1"]}, {"id": 2, "v": "seven"}])
    with pytest.warns(UserWarning, match="reads of existing rows fail") as told:
        table = table.alter(types={"v": "INT", "r.a": "INT", "w.element": "INT"})
    assert [str(each.message).split("`")[1] for each in told] == ["v", "r.a", "w.element"]
    (file,) = table.files().column("file_name").to_pylist()
    for column, value in (("v", "'seven'"), ("r", "'x'")):
        with pytest.raises(InvalidInputError) as caught:
            table.to_arrow(columns=[column])
        facts = caught.value.facts
        assert (caught.value.code, facts["column"], facts["value"]) == ("cast-value", column, value)
        assert facts["path"].endswith(file)
    assert table.to_arrow(columns=["w"]).to_pylist() == [{"w": [1]}, {"w": None}]
    assert table.alter(types={"v": "STRING"}).to_arrow(columns=["v"]).to_pylist() == [{"v": "7"}, {"v": "seven"}]


def test_a_type_that_holds_every_value_brings_no_warning(lake: tl.Lake) -> None:
    table = new(lake, id="INT", v="STRING", w="INT")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.alter(types={"v": "INT"}).alter(types={"v": "STRING"})  # there are no rows yet
        table.write([{"id": 1, "v": "x", "w": 1}])
        table.alter(types={"v": "BYTES", "w": "STRING"})
