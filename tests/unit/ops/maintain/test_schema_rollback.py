"""Older schemas can be the newest again as long as nothing refers to those after them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kit.tables_with_files import add, new_table
from tidelake.errors import CommitConflictError, InvalidInputError, NotFoundError
from tidelake.ops.maintain import schema_rollback
from tidelake.table import Table


def with_schemas(count: int = 3) -> Table:
    """A table with one snapshot of schema 0 and more schemas after it."""
    table = new_table()
    add(table, "a")
    for number in range(1, count):
        table = table.add_column(f"c{number}", "INT")
    return table


def test_newer_schemas_go_the_newest_first() -> None:
    table = with_schemas(4)
    plan = table.rollback_schema(1, plan_only=True)
    assert (plan.schema_id, plan.removed, table.store.schemas.ids()) == (1, (3, 2), [0, 1, 2, 3])
    assert str(plan) == "back to schema 1: 2 schemas (3, 2) go"
    assert table.rollback_schema(1) == plan
    table = table.reload()
    assert (table.schema.id, [each.name for each in table.schema.fields]) == (1, ["id", "c1"])
    again = table.add_column("other", "STRING")
    assert again.schema.id == 2
    assert table.check(deep=True).ok


def test_the_newest_schema_stays_as_it_is() -> None:
    table = with_schemas()
    plan = table.rollback_schema(2)
    assert (plan.removed, str(plan), table.store.schemas.ids()) == ((), "schema 2 is the newest already", [0, 1, 2])


def test_a_schema_that_does_not_exist_is_refused() -> None:
    with pytest.raises(NotFoundError, match="schema does not exist"):
        with_schemas().rollback_schema(7)


def by_snapshot(table: Table) -> None:
    add(table, "b")


def by_tag(table: Table) -> None:
    add(table, "b")
    table.create_tag("kept")
    table.rollback_to(snapshot=1, as_latest=True)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=2**53)


def by_changelog(table: Table) -> None:
    add(table, "b")
    add(table, "c")
    longer = table.with_options(
        {f"{what}.num-retained.{end}": n for what, n in (("snapshot", 1), ("changelog", 9)) for end in ("min", "max")}
    )
    longer.expire_snapshots(retain_max=1, retain_min=1, older_than=2**53)
    assert table.store.changelogs.ids() == [1, 2]
    table.store.publisher.delete(3)


def by_branch(table: Table) -> None:
    add(table, "b")
    table.create_branch("trial", snapshot=2)
    table.rollback_to(snapshot=1)


@pytest.mark.parametrize("use", [by_snapshot, by_tag, by_changelog, by_branch])
def test_a_schema_in_use_is_kept(use: Callable[[Table], None]) -> None:
    table = with_schemas()
    use(table)
    with pytest.raises(InvalidInputError, match="a newer schema is in use") as caught:
        table.rollback_schema(1)
    assert use.__name__.removeprefix("by_") in caught.value.facts["used_by"]
    assert table.store.schemas.ids() == [0, 1, 2]
    assert table.rollback_schema(2).removed == ()


def test_after_a_return_to_an_older_state_the_newer_schema_may_go_with_its_snapshots() -> None:
    table = new_table()
    table.write([{"id": 1}])
    wider = table.add_column("v", "INT")
    wider.write([{"id": 2, "v": 2}])
    table = wider.reload()
    tag = table.rollback_to(snapshot=1, as_latest=True).tag
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=2**53)
    assert table.rollback_schema(0).removed == (1,)
    table.delete_tag(tag)
    table = table.reload()
    assert table.to_arrow().to_pylist() == [{"id": 1}]
    table.write([{"id": 3}])
    assert table.check(deep=True, rows=True).ok
    assert sorted(row["id"] for row in table.to_arrow().to_pylist()) == [1, 3]


def test_a_commit_in_between_brings_the_schemas_back() -> None:
    table = with_schemas()
    plan = schema_rollback.plan_schema_rollback(table.context, 0)
    add(table, "b")
    with pytest.raises(CommitConflictError, match="all schemas are back"):
        schema_rollback.run_schema_rollback(table.context, plan)
    assert table.store.schemas.ids() == [0, 1, 2]
    assert table.check(deep=True).ok
