"""A table on a branch: its own schemas and snapshots, the data files of all in one place."""

from __future__ import annotations

import pytest

import tidelake as tl
from kit.small_tables import new_table
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.table import Table


def branched(table: Table, name: str) -> Table:
    """An empty branch, as the format makes one: the schemas are copied."""
    io = table.store.env.io
    for each in io.list("schema"):
        io.write(f"branch/branch-{name}/schema/{each.name}", io.read(each.path))
    return table.branch(name)


def rows(table: Table, **how) -> list[int]:
    return sorted(table.to_arrow(["id"], **how).column("id").to_pylist())


def row(number: int, dt: str | None = "d1") -> dict:
    return {"id": number, "dt": dt}


def test_a_branch_and_main_do_not_see_each_other():
    main = new_table()
    dev = branched(main, "dev")
    assert (dev.name, dev.count()) == ("db.t$branch_dev", 0)
    main.write([row(1)])
    dev.write([row(2)])
    dev.write([row(3, "d2")])
    assert (rows(main), rows(dev)) == ([1], [2, 3])
    assert rows(dev.branch("main")) == [1]
    assert rows(dev.branch("dev")) == [2, 3]
    assert dev.branch("main").name == "db.t"
    dev.delete("id = 2")
    dev.compact(full=True)
    assert (rows(main), rows(dev)) == ([1], [3])
    assert rows(dev.at(snapshot=1)) == [2]
    assert main.check().ok
    assert dev.check().ok


def test_a_branch_has_a_schema_of_its_own():
    main = new_table()
    dev = branched(main, "dev").alter(add={"w": "INT"})
    dev.write([{**row(1), "w": 7}])
    assert "w" in dev.schema.names
    assert "w" not in main.reload().schema.names
    assert main.branch("dev").to_arrow(["w"]).to_pylist() == [{"w": 7}]


def test_a_branch_that_is_not_there_is_named():
    main = new_table()
    with pytest.raises(NotFoundError) as caught:
        main.branch("nope")
    assert caught.value.code == "branch-not-found"
    for name in ("..", "", "7"):
        with pytest.raises(InvalidInputError):
            main.branch(name)


def test_dynamic_options_go_along():
    main = new_table()
    branched(main, "dev").write([row(1)])
    table = main.with_options({"source.split.target-size": "1 b"}).branch("dev")
    assert table.options["source.split.target-size"] == "1 b"
    assert rows(table) == [1]


# ------------------------------------------------------------------------------------------------ filling in


@pytest.fixture
def both() -> Table:
    main = new_table()
    old = branched(main, "old")
    old.write([row(1, "d1"), row(2, "d2"), row(3, None)])
    main.write([row(20, "d2"), row(40, "d4")])
    return main


def test_a_fallback_branch_fills_in_whole_partitions(both: Table):
    table = both.with_options({"scan.fallback-branch": "old"})
    assert rows(table) == [1, 3, 20, 40]
    assert table.count() == 4
    assert table.count("dt = 'd2'") == 1


def test_a_partition_counts_as_there_although_no_row_of_it_matches(both: Table):
    table = both.with_options({"scan.fallback-branch": "old"})
    assert rows(table, where="id = 2") == []
    assert rows(table, where="id < 20") == [1, 3]


def test_a_primary_branch_comes_first(both: Table):
    assert rows(both.with_options({"scan.primary-branch": "old"})) == [1, 2, 3, 40]


def test_limits_and_orders_look_at_both_branches(both: Table):
    table = both.with_options({"scan.fallback-branch": "old"})
    for limit in range(6):
        assert table.to_arrow(limit=limit).num_rows == min(limit, 4)
        assert table.to_arrow(order_by="id", limit=limit).column("id").to_pylist() == [1, 3, 20, 40][:limit]


def test_rows_of_the_fallback_are_read_with_its_own_schemas(both: Table):
    old = both.branch("old").alter(rename={"v": "w"}).alter(rename={"w": "v"}).alter(add={"x": "INT"})
    old.write([{**row(5, "d5"), "v": "five", "x": 1}])
    main = both.alter(add={"x": "INT"})
    table = main.with_options({"scan.fallback-branch": "old"})
    found = table.to_arrow(where="dt = 'd5'").to_pylist()
    assert found == [{"id": 5, "dt": "d5", "v": "five", "x": 1}]


def test_branches_of_other_columns_are_not_mixed(both: Table):
    both.branch("old").alter(add={"x": "INT"})
    with pytest.raises(InvalidInputError, match="same columns"):
        both.with_options({"scan.fallback-branch": "old"}).count()


def test_two_branches_or_another_time_are_refused(both: Table):
    with pytest.raises(InvalidInputError) as caught:
        both.with_options({"scan.fallback-branch": "old", "scan.primary-branch": "old"})
    assert caught.value.code == "option-conflict"
    with pytest.raises(InvalidInputError, match="newest state"):
        both.with_options({"scan.fallback-branch": "old"}).at(snapshot=1)
    with pytest.raises(NotFoundError) as missing:
        both.with_options({"scan.fallback-branch": "nope"}).count()
    assert missing.value.code == "branch-not-found"


def test_a_lake_opens_a_branch_by_its_name(tmp_path):
    lake = tl.connect(tmp_path)
    main = lake.create_table("d.t", {"id": "INT", "dt": "STRING"})
    branched(main, "dev").write([row(1)])
    assert rows(lake.table("d.t$branch_dev")) == [1]
    with pytest.raises(NotFoundError) as caught:
        lake.table("d.t$branch_nope")
    assert caught.value.code == "branch-not-found"
