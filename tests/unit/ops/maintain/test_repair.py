"""Hints are written again where they are wrong, on every branch, and nothing else changes."""

from __future__ import annotations

import pytest

import tidelake as tl
from kit.small_tables import new_table
from tidelake.errors import NotFoundError
from tidelake.ops.maintain.repair import plan_repair, run_repair
from tidelake.testing.scenario import take_image


def test_wrong_missing_and_broken_hints_are_written_again() -> None:
    table = new_table()
    for number in range(4):
        table.write([{"id": number, "dt": "d", "v": "x"}])
    table.create_branch("b", snapshot=2)
    run_repair(table.context, plan_repair(table.context))
    io = table.store.env.io
    right = take_image(io)
    io.overwrite("snapshot/LATEST", b"2")
    io.overwrite("snapshot/EARLIEST", b"nonsense")
    io.delete("branch/branch-b/snapshot/LATEST")
    plan = plan_repair(table.context)
    assert {each.path: (each.before, each.after) for each in plan.hints} == {
        "snapshot/LATEST": (2, 4),
        "snapshot/EARLIEST": (None, 1),
        "branch/branch-b/snapshot/LATEST": (None, 2),
    }
    assert (plan.earliest, plan.latest) == (1, 4)
    assert "snapshot/LATEST 2 -> 4" in str(plan)
    run_repair(table.context, plan)
    assert take_image(io) == right
    assert plan_repair(table.context).is_empty


def test_a_lake_repairs_all_tables_or_those_that_are_named() -> None:
    lake = tl.connect("memory://")
    for name in ("a.one", "a.two", "b.three"):
        lake.create_table(name, {"id": "INT"}).write([{"id": 1}])
    lake.create_table("b.empty", {"id": "INT"})
    lake.repair()
    for name in ("a.one", "a.two", "b.three"):
        lake.table(name).store.env.io.overwrite("snapshot/LATEST", b"7")
    assert [each.table for each in lake.repair(plan_only=True) if each.hints] == ["a.one", "a.two", "b.three"]
    assert [each.table for each in lake.repair("b, a.two")] == ["b.empty", "b.three", "a.two"]
    assert [each.table for each in lake.repair() if each.hints] == ["a.one"]
    assert all(each.is_empty for each in lake.repair())
    with pytest.raises(NotFoundError):
        lake.repair("gone")


def test_the_oldest_snapshot_that_was_noted_after_a_gap_stays_noted() -> None:
    table = tl.connect("memory://").create_table("a.gap", {"id": "INT"})
    for number in range(4):
        table.write([{"id": number}])
    table.store.publisher.delete(2)
    table.repair_earliest_snapshot(3)
    assert plan_repair(table.context).is_empty
    table.store.env.io.overwrite("snapshot/EARLIEST", b"4")
    assert [each.after for each in plan_repair(table.context).hints] == [1]
