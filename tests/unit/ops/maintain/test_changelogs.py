"""Changelogs that outlive their snapshots: what they hold, what lets go of it, and what must not."""

from __future__ import annotations

from typing import Any

import pytest

from kit.tables_with_files import add, clock_of, commit, data_names, every_file, new_file, new_table
from tidelake.errors import CommitConflictError, InvalidInputError
from tidelake.ops.maintain.changelogs import pick_changelog_end, plan_changelog_expiry, run_changelog_expiry
from tidelake.ops.maintain.expire import Retention
from tidelake.spec.data_file import FileSource
from tidelake.table import Table


def outliving(**options: str) -> Table:
    return new_table(write_only="true", changelog__time_retained="2 h", **options)


def compacted(table: Table, old: Any, name: str) -> int:
    return commit(table, before=(old,), after=(new_file(table, name, level=1, file_source=FileSource.COMPACT),))


def history() -> Table:
    """1 adds a, 2 adds b, 3 compacts a to c, 4 adds d."""
    table = outliving()
    old = new_file(table, "a")
    commit(table, new_files=(old,))
    add(table, "b")
    compacted(table, old, "c")
    add(table, "d")
    return table


def expire(table: Table, keep: int = 1) -> Any:
    return table.expire_snapshots(retain_max=keep, retain_min=keep)


def streamed(table: Table) -> list[str]:
    splits = [split for change in table.follow(start="earliest", timeout=0) for split in change.rows.splits()]
    return [file.file_name for split in splits for file in split.files]


def test_expired_snapshots_leave_their_documents_and_what_streams_read() -> None:
    table = history()
    documents = {each: table.snapshot(each) for each in (1, 2, 3)}
    result = expire(table)
    assert (result.snapshot_ids, result.left) == ((1, 2, 3), ())
    assert {each: table.store.changelogs.get(each) for each in table.store.changelogs.ids()} == documents
    assert (table.store.changelogs.earliest_id(), table.store.changelogs.latest_id()) == (1, 3)
    assert data_names(table) == {"a", "b", "c", "d"}  # a was compacted away, and is what snapshot 1 changed
    assert streamed(table) == ["a", "b", "d"]
    assert [file.file_name for split in table.changes(0).splits() for file in split.files] == ["a", "b", "d"]
    report = table.check(deep=True)
    assert (report.errors, report.orphans) == ((), ())


def test_a_file_goes_with_the_changelog_that_deletes_it() -> None:
    table = history()
    expire(table)

    def gone(keep: int) -> tuple[str, ...]:
        result = table.expire_changelogs(older_than=2**60, retain_max=keep, retain_min=keep)
        return result.files.data

    assert gone(3) == ()  # the changelog of 1, which added a
    assert "a" in data_names(table)
    add(table, "e")
    expire(table)
    assert gone(2) == ("bucket-0/a",)  # that of 3, which deleted it
    assert data_names(table) == {"b", "c", "d", "e"}
    report = table.check(deep=True)
    assert (report.errors, report.orphans) == ((), ())


def test_a_tag_holds_what_a_changelog_lets_go() -> None:
    table = history()
    table.create_tag("early", snapshot=1)
    expire(table)
    result = table.expire_changelogs(delete_all=True)
    assert (result.changelog_ids, result.files.data) == ((1, 2, 3), ())
    assert "a" in data_names(table)
    assert table.check(deep=True).errors == ()
    table.delete_tag("early")
    assert data_names(table) == {"b", "c", "d"}


def test_a_file_that_was_taken_back_is_held_by_the_state_that_has_it() -> None:
    table = outliving()
    old = new_file(table, "a")
    commit(table, new_files=(old,))
    compacted(table, old, "c")
    fresh = new_file(table, "d")
    commit(table, new_files=(fresh,))
    commit(table, new_files=(old,), deleted_files=(fresh,))  # an overwrite that goes back
    add(table, "e")
    expire(table)
    table.expire_changelogs(delete_all=True)
    assert {"a", "c", "e"} <= data_names(table)
    assert table.check(deep=True).errors == ()


def test_metadata_goes_with_the_last_that_names_it() -> None:
    table = history()
    expire(table)
    before = every_file(table)
    plan = table.expire_changelogs(delete_all=True, plan_only=True)
    assert set(plan.files.paths) <= before
    assert every_file(table) == before
    table.expire_changelogs(delete_all=True)
    assert not [path for path in every_file(table) if path.startswith("changelog/")]
    assert table.store.changelogs.latest_id() is None
    assert table.check(deep=True).ok


def test_moving_the_main_branch_drops_changelogs_of_the_past_it_replaces() -> None:
    table = history()
    table.create_tag("two", snapshot=2)
    table.create_branch("side", tag="two")
    add(table.branch("side"), "x")
    expire(table)
    assert table.store.changelogs.ids() == [1, 2, 3]
    plan = table.fast_forward("side")
    assert plan.removed_changelogs == (3, 2)
    assert table.store.changelogs.ids() == [1]
    assert table.store.snapshots.ids() == [2, 3]
    assert streamed(table) == ["a", "b", "x"]


def test_rolling_back_drops_changelogs_that_are_newer() -> None:
    table = history()
    table.create_tag("two", snapshot=2)
    expire(table)
    table.rollback_to(tag="two")
    assert max(table.store.changelogs.ids()) <= 2
    assert table.store.changelogs.latest_id() == max(table.store.changelogs.ids())
    assert table.check(deep=True).errors == ()


def test_a_changelog_beside_its_snapshot_takes_no_file_along() -> None:
    """What a crash between the two leaves: the snapshot still needs everything."""
    table = history()
    table.store.changelogs.write(table.snapshot(3))
    before = data_names(table)
    table.expire_changelogs(delete_all=True)
    assert data_names(table) == before
    assert table.check(deep=True).errors == ()


def test_consumers_hold_changelogs_and_on_demand_nothing_else() -> None:
    for only, snapshots in (("false", [2, 3, 4]), ("true", [4])):
        table = history().alter(set_options={"consumer.changelog-only": only})
        table.reset_consumer("c", 2)
        expire(table)
        assert table.store.snapshots.ids() == snapshots
        assert table.expire_changelogs(delete_all=True).changelog_ids == (1,)
        assert [change.snapshot_id for change in table.follow(consumer="c", timeout=0)] == [2, 4]


def test_a_consumer_that_was_set_back_meanwhile_stops_the_expiry() -> None:
    table = history()
    expire(table)
    plan = plan_changelog_expiry(table.context, delete_all=True)
    table.reset_consumer("late", 1)
    with pytest.raises(CommitConflictError):
        run_changelog_expiry(table.context, plan)
    assert table.store.changelogs.ids() == [1, 2, 3]


def test_commits_expire_changelogs_whose_time_is_over() -> None:
    table = new_table(changelog__time_retained="2 h", snapshot__num_retained__min="1", snapshot__time_retained="1 h")
    table = table.alter(set_options={"changelog.num-retained.min": "1"})
    for name in "abc":
        add(table, name)
    clock_of(table).advance(3_700)
    add(table, "d")
    assert table.store.changelogs.ids() == [1, 2]
    clock_of(table).advance(7_300)
    add(table, "e")
    assert table.store.changelogs.ids() == [3]  # the newest one stays beside the oldest snapshot


@pytest.mark.parametrize(
    ("retain_min", "retain_max", "limit", "older_than", "consumed", "end"),
    [
        (1, 100, 50, 99, None, 6),  # all are old: the newest stays
        (1, 100, 50, 3, None, 3),  # by their own age
        (7, 100, 50, 99, None, 4),  # the least that stay, counted from the newest snapshot
        (1, 3, 50, 0, None, 6),  # beyond the most age does not count
        (1, 100, 2, 99, None, 3),
        (1, 100, 50, 99, 4, 4),
        (1, 100, 50, 99, 1, 1),
        (50, 100, 50, 99, None, 1),
    ],
)
def test_which_changelogs_go(
    retain_min: int, retain_max: int, limit: int, older_than: int, consumed: int | None, end: int
) -> None:
    """Changelogs 1 to 6, committed at the time of their number, below snapshots up to 10."""
    retention = Retention(retain_min=retain_min, retain_max=retain_max, older_than_ms=older_than, limit=limit)
    times = lambda first, last: [(number, number) for number in range(first, last + 1)]  # noqa: E731
    assert pick_changelog_end(1, 6, 10, retention, times, consumed=consumed) == end


def test_numbers_that_contradict_each_other_are_refused() -> None:
    table = history()
    expire(table)
    with pytest.raises(InvalidInputError):
        table.expire_changelogs(retain_max=1, retain_min=3)
