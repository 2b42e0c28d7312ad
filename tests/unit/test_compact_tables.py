"""Tables chosen by patterns are compacted one after another, and one that fails does not stop the others."""

from __future__ import annotations

import pytest

import tidelake as tl
from tidelake.errors import FormatError, InvalidInputError


@pytest.fixture
def lake() -> tl.Lake:
    made = tl.connect("memory://")
    for name in ("shop.orders", "shop.orders_old", "shop.users", "web.orders"):
        table = made.create_table(name, {"id": "INT"})
        for number in range(3):
            table.write([{"id": number}])
    return made


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, ["shop.orders", "shop.orders_old", "shop.users", "web.orders"]),
        ({"databases": "shop|mart"}, ["shop.orders", "shop.orders_old", "shop.users"]),
        ({"tables": ".*[.]orders"}, ["shop.orders", "web.orders"]),
        ({"tables": "orders"}, []),
        ({"excluding": ".*_old|web[.].*"}, ["shop.orders", "shop.users"]),
    ],
)
def test_patterns_have_to_match_whole_names(lake: tl.Lake, given: dict[str, str], chosen: list[str]) -> None:
    assert [each.table for each in lake.compact(**given, plan_only=True).tables] == chosen


def test_chosen_tables_are_compacted_with_the_options_of_the_call(lake: tl.Lake) -> None:
    seen: list[tuple[str, int, int]] = []
    done = lake.compact("shop", excluding=".*users", full=True, progress=lambda *at: seen.append(at))
    assert seen == [("shop.orders", 1, 2), ("shop.orders_old", 2, 2)]
    assert not done.failures
    assert str(done) == "2 tables"
    assert [lake.table(name).files().num_rows for name in ("shop.orders", "shop.users")] == [1, 3]
    lake.compact(tables="shop.users")
    assert lake.table("shop.users").files().num_rows == 3
    lake.compact(tables="shop.users", options={"compaction.min.file-num": 2})
    assert lake.table("shop.users").files().num_rows == 1


def test_a_table_that_fails_does_not_stop_the_others(lake: tl.Lake) -> None:
    table = lake.table("shop.orders")
    name = table.files().column("file_name")[0].as_py()
    table.store.env.io.delete(f"bucket-0/{name}")
    done = lake.compact(full=True)
    assert [each.table for each in done.failures] == ["shop.orders"]
    assert isinstance(done.failures[0].error, FormatError)
    assert str(done) == "4 tables, 1 failed"
    assert lake.table("web.orders").files().num_rows == 1


def test_a_wrong_pattern_is_refused_before_anything_is_done(lake: tl.Lake) -> None:
    with pytest.raises(InvalidInputError, match="not a regular expression"):
        lake.compact(tables="(")
    assert lake.table("shop.orders").files().num_rows == 3
