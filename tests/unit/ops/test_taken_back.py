"""Rows that take something back where a function of the table cannot: refused, or the files are written anew."""

from __future__ import annotations

from typing import Any

import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import UnsupportedError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

GROUP = {
    "merge-engine": "partial-update",
    "fields.s.sequence-group": "m",
    "partial-update.remove-record-on-sequence-group": "s",
}
TYPES = {"m": "STRING", "s": "INT"}


def make(order: str, function: str, **options: str) -> Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))
    columns = {"k": "INT NOT NULL"} | {name: TYPES[name] for name in order.split(",")}
    options = {"bucket": "1", "fields.m.aggregate-function": function, **options}
    return lake.create_table("d.t", columns, primary_key=["k"], options=options)


def rows(*keys: int) -> list[dict[str, Any]]:
    return [{"k": key, "m": "a", "s": key} for key in keys]


def seen(table: Table) -> list[tuple[Any, ...]]:
    return [(row["k"], row["m"], row["s"]) for row in table.to_arrow().sort_by("k").to_pylist()]


@pytest.mark.parametrize("function", ["max", "listagg", "first_value", "first_non_null_value"])
def test_a_delete_leaves_no_row_that_a_function_before_the_sequence_column_cannot_take_back(function: str) -> None:
    table = make("m,s", function, **GROUP)
    table.write(rows(1, 2))
    assert table.delete("k = 1").rows == 1
    assert seen(table) == [(2, "a", 2)]
    assert set(table.files().column("delete_row_count").to_pylist()) <= {0, None}
    table.write(rows(1))
    assert seen(table) == [(1, "a", 1), (2, "a", 2)]


def test_a_delete_that_merges_rows_away_leaves_none_either() -> None:
    table = make("m,s", "max", **GROUP)
    table.write(rows(1, 2))
    table.merge(rows(1), on=["k"]).when_matched_delete().run()
    assert seen(table) == [(2, "a", 2)]
    assert set(table.files().column("delete_row_count").to_pylist()) <= {0, None}


@pytest.mark.parametrize("order", ["s,m", "m,s"])
def test_a_deletion_is_refused_only_where_a_function_is_asked_before_the_row_is_removed(order: str) -> None:
    table = make(order, "max", **GROUP)
    table.write(rows(1, 2))
    deletion = [{"rowkind": "-D", **rows(1)[0]}]
    if order == "s,m":
        table.write(deletion)
        assert seen(table) == [(2, "a", 2)]
        return
    with pytest.raises(UnsupportedError) as caught:
        table.write(deletion)
    assert (caught.value.facts["column"], caught.value.facts["function"]) == ("m", "max")
    assert "delete()" in str(caught.value.hint)
    # A group without a sequence value is left alone, so nothing is asked there.
    table.write([{"rowkind": "-D", "k": 1, "m": "a", "s": None}])
    assert seen(table) == [(1, "a", 1), (2, "a", 2)]


@pytest.mark.parametrize(
    ("order", "kind", "options"),
    [
        ("s,m", "-U", GROUP),
        ("s,m", "-D", {"merge-engine": "partial-update", "fields.s.sequence-group": "m"}),
        ("m,s", "-D", {"merge-engine": "aggregation"}),
        ("m,s", "-U", {"merge-engine": "aggregation"}),
        ("m,s", "-U", {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true"}),
        ("m,s", "-D", {"merge-engine": "aggregation", "bucket": "-2"}),
    ],
)
def test_a_row_after_which_its_key_could_not_be_read_is_refused(order: str, kind: str, options: dict[str, str]) -> None:
    table = make(order, "max", **options)
    table.write(rows(1, 2))
    before = table.latest_snapshot()
    with pytest.raises(UnsupportedError, match="cannot retract a row"):
        table.write([{"rowkind": "+I", **rows(3)[0]}, {"rowkind": kind, **rows(1)[0]}])
    assert table.latest_snapshot() == before
    assert [row["k"] for row in table.to_arrow().to_pylist()] == [1, 2]


@pytest.mark.parametrize(
    ("kind", "function", "options"),
    [
        ("-D", "max", {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true"}),
        ("-D", "max", {"merge-engine": "aggregation", "fields.m.ignore-retract": "true"}),
        ("-U", "last_value", {"merge-engine": "aggregation"}),
        ("-D", "max", {"merge-engine": "aggregation", "ignore-delete": "true"}),
        ("-D", "max", {**GROUP, "fields.m.ignore-retract": "true"}),
    ],
)
def test_other_rows_that_take_something_back_are_taken(kind: str, function: str, options: dict[str, str]) -> None:
    table = make("m,s", function, **options)
    table.write(rows(1, 2))
    table.write([{"rowkind": kind, **rows(1)[0]}])
    assert (2, "a", 2) in seen(table)


def test_a_deletion_removes_the_row_whatever_order_the_groups_have() -> None:
    groups = {"fields.s.sequence-group": "m", "fields.t.sequence-group": "n", "merge-engine": "partial-update"}
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))
    columns = {"k": "INT NOT NULL", "t": "INT", "n": "INT", "s": "INT", "m": "INT"}
    options = {"bucket": "1", "fields.m.aggregate-function": "max", **groups}
    options["partial-update.remove-record-on-sequence-group"] = "t"
    table = lake.create_table("d.t", columns, primary_key=["k"], options=options)
    row = {"k": 1, "t": 1, "n": 1, "s": 1, "m": 1}
    table.write([row])
    table.write([{"rowkind": "-D", **row}])
    assert table.to_arrow().num_rows == 0
