"""Merging a branch: its files come once, and only where that is certain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import tidelake as tl
from kit.small_tables import with_foreign_options
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.errors import CommitConflictError, InvalidInputError, NotFoundError, TidelakeError, UnsupportedError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.hooks.committers import open_committer
from tidelake.ops.maintain.branch_merge import plan_merge, run_merge
from tidelake.testing import FakeClock, Fault, FaultyFileIO, MemoryFileIO


@pytest.fixture
def table() -> tl.Table:
    """Rows 1 and 2 in the main branch, 11 and 12 in the branch `side`."""
    clock = FakeClock(1_000)
    lake = tl.Lake(FileSystemCatalog(Env(MemoryFileIO(clock=clock), clock, SeededIds(1))))
    made = lake.create_table("d.t", {"id": "INT", "dt": "STRING"}, partition_by=["dt"])
    put(made, 1, 2)
    put(made.create_branch("side"), 11, 12)
    return made


def put(table: tl.Table, *numbers: int, **how: Any) -> None:
    for number in numbers:
        table.write([{"id": number, "dt": f"d{number % 2}"}], **how)


def ids(table: tl.Table) -> list[int]:
    return sorted(row["id"] for row in table.to_arrow().to_pylist())


def test_files_of_the_branch_are_appended_in_one_snapshot(table: tl.Table) -> None:
    plan = table.merge_branch("side", plan_only=True)
    assert (plan.files, plan.rows, plan.result.snapshot_ids) == (2, 2, ())
    assert str(plan) == "main gets 2 files with 2 rows of side"
    assert ids(table) == [1, 2]
    done = table.merge_branch("side")
    assert (done.files, done.result.snapshot_ids, done.result.rows) == (2, (3,), 2)
    newest = table.latest_snapshot()
    assert newest is not None
    assert (newest.commit_kind.value, newest.total_record_count, newest.delta_record_count) == ("APPEND", 4, 2)
    assert ids(table) == [1, 2, 11, 12]
    assert ids(table.branch("side")) == [11, 12]
    assert table.branch("side").tags() == {}
    assert table.check(deep=True, rows=True).findings == ()


def test_a_repetition_adds_only_what_came_since(table: tl.Table) -> None:
    table.merge_branch("side")
    again = table.merge_branch("side")
    assert (again.files, again.result.snapshot_ids) == (0, ())
    assert "has every file" in str(again)
    put(table.branch("side"), 13)
    put(table, 3)
    assert table.merge_branch("side").files == 1
    assert ids(table) == [1, 2, 3, 11, 12, 13]


def test_a_branch_can_be_the_target_and_a_handle_on_it_can_merge(table: tl.Table) -> None:
    side = table.branch("side")
    assert side.merge_branch("main", "side").files == 2
    assert ids(side) == ids(table.branch("side")) == [1, 2, 11, 12]
    assert table.merge_branch("side").files == 2
    assert table.merge_branch("side").files == 0
    assert ids(table) == [1, 2, 11, 12]


def test_the_files_stay_when_the_branch_is_deleted(table: tl.Table) -> None:
    table.merge_branch("side")
    table.delete_branch("side")
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=2**53)
    table.store.env.clock.advance(10 * 86_400)  # type: ignore[attr-defined]
    table.remove_orphans(plan_only=False)
    assert ids(table) == [1, 2, 11, 12]
    assert table.check(deep=True, rows=True).ok


def test_nothing_expires_with_a_merge(table: tl.Table) -> None:
    table = table.set_options({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    table.branch("side").set_options({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    table.merge_branch("side")
    assert table.store.snapshots.ids() == [1, 2, 3]


def compact(table: tl.Table, branch: str) -> None:
    put(table.branch(branch), 20, 22, 24, 26, 28)
    assert table.branch(branch).compact(full=True).snapshot_ids


def expire(table: tl.Table, branch: str) -> None:
    table.branch(branch).expire_snapshots(retain_max=1, retain_min=1, older_than=2**53)


def overwrite(table: tl.Table, branch: str) -> None:
    put(table.branch(branch), 5, mode="overwrite")


def other_columns(table: tl.Table, branch: str) -> None:
    table.branch(branch).add_column("v", "INT")


def other_history(table: tl.Table, branch: str) -> None:
    del branch
    put(table.branch("side").add_column("v", "INT"), 7)
    table.store.env.clock.advance(9)  # type: ignore[attr-defined]
    table.add_column("v", "INT")


def unknown_schema(table: tl.Table, branch: str) -> None:
    del branch
    side = table.branch("side").add_column("v", "INT")
    put(side, 7)
    side.drop_column("v")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (partial(compact, branch="side"), "not an append"),
        (partial(compact, branch="main"), "not an append"),
        (partial(overwrite, branch="side"), "not an append"),
        (partial(overwrite, branch="main"), "not an append"),
        (partial(expire, branch="side"), "snapshot of the branch is missing"),
        (partial(expire, branch="main"), "snapshot of the branch is missing"),
        (partial(other_columns, branch="side"), "columns of the branches differ"),
        (partial(other_history, branch=""), "different schemas with one number"),
        (partial(unknown_schema, branch=""), "does not have a schema"),
    ],
)
def test_branches_that_could_lose_or_double_rows_are_refused(
    table: tl.Table, change: Callable[[tl.Table], None], why: str
) -> None:
    change(table)
    before = table.reload().latest_snapshot()
    with pytest.raises(InvalidInputError, match=why) as caught:
        table.reload().merge_branch("side")
    assert caught.value.code == "branches-not-mergeable"
    assert table.reload().latest_snapshot() == before


def test_only_existing_branches_with_rows_are_merged(table: tl.Table) -> None:
    with pytest.raises(NotFoundError):
        table.merge_branch("other")
    with pytest.raises(InvalidInputError, match="into itself"):
        table.merge_branch("main")
    table.create_branch("empty")
    for source, target in (("empty", "main"), ("main", "empty")):
        with pytest.raises(InvalidInputError, match="without snapshots"):
            table.merge_branch(source, target)


def test_tables_with_keys_or_row_ids_are_refused(table: tl.Table) -> None:
    with_foreign_options(table.branch("side"), {"data-evolution.enabled": "true", "row-tracking.enabled": "true"})
    with pytest.raises(UnsupportedError):
        table.merge_branch("side")
    lake = tl.Lake(FileSystemCatalog(table.store.env))
    keyed = lake.create_table("d.k", {"id": "INT"}, primary_key=["id"], options={"bucket": "1"})
    keyed.write([{"id": 1}])
    keyed.create_branch("side").write([{"id": 1}])
    with pytest.raises(InvalidInputError, match="only append tables"):
        keyed.merge_branch("side")


def both(table: tl.Table) -> tuple[Any, Any]:
    return table.context, table.branch("side").context


def test_two_merges_at_once_add_the_files_once(table: tl.Table) -> None:
    target, source = both(table)
    plan = plan_merge(target, source)
    table.merge_branch("side")
    with pytest.raises(CommitConflictError) as caught:
        run_merge(target, source, open_committer(target, expires=False), plan)
    assert caught.value.replannable
    assert ids(table) == [1, 2, 11, 12]
    assert table.branch("side").tags() == {}


@pytest.mark.parametrize("change", [compact, overwrite])
def test_files_that_came_and_went_in_between_are_not_added_again(
    table: tl.Table, change: Callable[[tl.Table, str], None]
) -> None:
    target, source = both(table)
    plan = plan_merge(target, source)
    table.merge_branch("side")
    change(table, "main")
    before = ids(table)
    with pytest.raises(TidelakeError, match="something else than an append") as caught:
        run_merge(target, source, open_committer(target, expires=False), plan)
    assert caught.value.replannable
    assert ids(table) == before


def test_appends_in_between_do_no_harm(table: tl.Table) -> None:
    target, source = both(table)
    plan = plan_merge(target, source)
    put(table, 3, 4)
    done = run_merge(target, source, open_committer(target, expires=False), plan)
    assert done.result.snapshot_ids == (5,)
    assert ids(table) == [1, 2, 3, 4, 11, 12]


def test_a_tag_that_cannot_be_deleted_is_a_warning(table: tl.Table) -> None:
    target, source = both(table)
    watched = FaultyFileIO(
        table.store.env.io, lambda op: Fault.BEFORE if op.name == "delete" and "merge-branch-" in op.path else None
    )
    source = replace(source, store=replace(source.store, env=replace(source.store.env, io=watched)))
    plan = plan_merge(target, source)
    done = run_merge(target, source, open_committer(target, expires=False), plan)
    (left,) = table.branch("side").tags()
    (warning,) = done.result.warnings
    assert f"tag {left} of branch side could not be deleted" in warning
    assert ids(table) == [1, 2, 11, 12]
