"""Which snapshots expire, which files go with them, and what holds them back."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest

from kit.tables_with_files import (
    add,
    clock_of,
    commit,
    data_names,
    every_file,
    new_file,
    new_table,
    raised,
    replaced,
)
from tidelake.errors import CommitConflictError, InvalidInputError
from tidelake.ops.maintain.expire import Retention, pick_end, plan_expire, run_expire
from tidelake.ops.maintain.reachable import dead_files
from tidelake.spec.data_file import DataFile
from tidelake.spec.documents.snapshot import CommitKind
from tidelake.spec.manifests.index_manifest import HASH, IndexFile
from tidelake.spec.manifests.manifest import ADD, DELETE, entries_table
from tidelake.table import load_table
from tidelake.testing import FaultyFileIO

MINUTE = 60_000


def ids(table) -> list[int]:
    return table.store.snapshots.ids()


# ------------------------------------------------------------------------------------------------ pick_end


def each_of(known):
    return lambda first, last: [(number, known.get(number)) for number in range(first, last + 1)]


def picked(times, now, *, earliest=1, keep=(1, 2**31 - 1), limit=50, consumed=None, age=60 * MINUTE) -> int:
    """The end for snapshots with these commit times, numbered from the earliest."""
    known = dict(enumerate(times, start=earliest))
    retention = Retention(retain_min=keep[0], retain_max=keep[1], older_than_ms=now - age, limit=limit)
    return pick_end(earliest, max(known), retention, each_of(known), consumed=consumed)


def test_a_snapshot_goes_when_its_successor_is_old_enough():
    # Committed at 10:00, 10:20, 10:40 and 11:00, kept for an hour, at least two of them.
    times = [0, 20 * MINUTE, 40 * MINUTE, 60 * MINUTE]
    assert picked(times, 70 * MINUTE, keep=(2, 5)) == 1
    assert picked(times, 80 * MINUTE, keep=(2, 5)) == 1
    assert picked(times, 80 * MINUTE + 1, keep=(2, 5)) == 2
    assert picked(times, 10**9, keep=(2, 5)) == 3


def test_too_many_snapshots_go_however_young_they_are():
    times = [0] * 10
    assert picked(times, 0, keep=(2, 4)) == 7
    assert picked(times, 0, keep=(2, 10)) == 1
    assert picked(times, 0, keep=(2, 4), limit=3) == 4


def test_consumers_and_the_limit_hold_back_more_than_the_count_wants():
    times = [0] * 10
    assert picked(times, 10**9, keep=(1, 1), consumed=4) == 4
    assert picked(times, 10**9, keep=(1, 1), consumed=1) == 1
    assert picked(times, 10**9, keep=(1, 1), consumed=99) == 10
    assert picked(times, 10**9, keep=(1, 1), earliest=5, consumed=2) == 5
    assert picked(times, 10**9, keep=(1, 1), limit=0) == 1


def test_a_missing_snapshot_does_not_stop_the_search():
    known = {1: 0, 2: 0, 4: 0, 5: 10**9}
    retention = Retention(retain_min=1, retain_max=99, older_than_ms=10, limit=50)
    assert pick_end(1, 5, retention, each_of(known), consumed=None) == 4
    known[5], known[4] = 10**9, 10**9
    assert pick_end(1, 5, retention, each_of(known), consumed=None) == 2


@pytest.mark.parametrize("wrong", [{"retain_min": 0}, {"retain_min": 3, "retain_max": 2}, {"limit": -1}])
def test_numbers_that_contradict_each_other_are_refused(wrong):
    with pytest.raises(InvalidInputError):
        Retention(**{"retain_min": 1, "retain_max": 5, "older_than_ms": 0, "limit": 1, **wrong})


# ------------------------------------------------------------------------------------------------ dead files


def entries(*rows: tuple[int, DataFile]) -> pa.Table:
    return entries_table([(kind, bytes(12), 0, -1, file) for kind, file in rows])


def dead(*deltas: pa.Table) -> set[str]:
    found, _ = dead_files(deltas, new_table().paths)
    return {path.removeprefix("bucket-0/") for path in found.column("path").to_pylist()}


FILE = DataFile(file_name="f", file_size=1, row_count=1, extra_files=("f.index",))
UP = replace(FILE, level=5)


def test_a_deleted_file_is_dead_with_its_extra_files():
    assert dead(entries((DELETE, FILE))) == {"f", "f.index"}
    assert dead(entries((ADD, FILE))) == set()
    assert dead() == set()


def test_a_file_that_only_changed_its_level_is_alive_in_whatever_order_that_is_written():
    assert dead(entries((DELETE, FILE), (ADD, UP))) == set()
    assert dead(entries((ADD, UP), (DELETE, FILE))) == set()


def test_an_extra_file_that_a_rewrite_drops_is_dead_though_its_data_file_is_not():
    assert dead(entries((DELETE, FILE), (ADD, replace(FILE, extra_files=("f.new",))))) == {"f.index"}


def test_the_last_change_of_a_file_decides():
    assert dead(entries((DELETE, FILE)), entries((ADD, FILE))) == set()
    assert dead(entries((ADD, FILE)), entries((DELETE, FILE))) == {"f", "f.index"}
    assert dead(entries((DELETE, FILE), (ADD, UP)), entries((DELETE, UP))) == {"f", "f.index"}


def test_files_outside_the_table_are_counted_and_never_deleted():
    outside = replace(FILE, external_path="file:/elsewhere/f")
    found, external = dead_files([entries((DELETE, outside))], new_table().paths)
    assert (found.num_rows, external) == (0, 1)


# ------------------------------------------------------------------------------------------------ on a table


def test_files_go_exactly_when_the_last_snapshot_that_needs_them_goes():
    table = new_table()
    old = new_file(table, "a", extra=("a.index",))
    commit(table, new_files=(old,))
    replaced(table, old, "b")
    add(table, "c")
    assert table.expire_snapshots(retain_max=3, retain_min=3).snapshot_ids == ()
    plan = table.expire_snapshots(retain_max=2, retain_min=2, plan_only=True)
    assert plan.snapshot_ids == (1,)
    assert plan.files.data == ("bucket-0/a", "bucket-0/a.index")
    assert "1 snapshot (1 to 1): 2 data" in str(plan)
    assert data_names(table) == {"a", "a.index", "b", "c"}
    done = table.expire_snapshots(retain_max=2, retain_min=2)
    assert (done.snapshot_ids, done.files, done.left) == ((1,), plan.files, ())
    assert data_names(table) == {"b", "c"}
    assert table.check(deep=True).orphans == ()
    assert table.store.snapshots.earliest_id() == 2


def test_a_file_that_moved_to_another_level_survives():
    table = new_table()
    file = new_file(table, "a")
    commit(table, new_files=(file,))
    raised(table, raised(table, file))
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert (ids(table), data_names(table)) == ([3], {"a"})


def test_changelog_files_go_with_their_snapshot():
    table = new_table()
    commit(table, new_files=(new_file(table, "a"),), changelog_files=(new_file(table, "a.changelog"),))
    commit(table, new_files=(new_file(table, "b"),), changelog_files=(new_file(table, "b.changelog"),))
    done = table.expire_snapshots(retain_max=1, retain_min=1)
    assert done.files.changelog == ("bucket-0/a.changelog",)
    assert table.check(deep=True).orphans == ()


def test_a_file_that_a_kept_overwrite_takes_back_stays():
    table = new_table()
    old = new_file(table, "a")
    commit(table, new_files=(old,))
    replaced(table, old, "b")
    add(table, "c")
    live = table.files(columns=["file_name"]).num_rows
    commit(table, new_files=(old,), deleted_files=(DataFile(file_name="b", file_size=1, row_count=1, level=1),))
    assert live == 2
    table.expire_snapshots(retain_max=2, retain_min=2)
    assert ids(table) == [3, 4]
    assert table.check(deep=True).ok
    assert "a" in data_names(table)


@pytest.mark.parametrize("held_by", ["snapshot", "tag"])
def test_an_index_that_a_later_snapshot_takes_back_stays(held_by):
    """A rollback that is a commit refers to the index manifest and the statistics of the snapshot it goes back to."""
    table = new_table(write_only="true")
    io = table.store.env.io
    for number in (1, 2):
        io.write(f"index/index-{number}", b"i")
        io.write(f"statistics/stat-{number}", b"{}")
        index = IndexFile(index_type=HASH, file_name=f"index-{number}", file_size=1, row_count=1)
        replaced = () if number == 1 else (replace(index, file_name="index-1"),)
        commit(
            table,
            new_files=(new_file(table, f"f{number}"),),
            new_index_files=(index,),
            deleted_index_files=replaced,
        )
        table._committer(None).analyze(f"stat-{number}")
    second, latest = table.snapshot(2), table.snapshot(4)
    assert second.index_manifest != latest.index_manifest
    add(table, "g")
    newest = table.snapshot(5)
    back = replace(
        newest,
        id=6,
        uuid="back",
        commit_kind=CommitKind.OVERWRITE,
        index_manifest=second.index_manifest,
        statistics=second.statistics,
    )
    table.store.publisher.publish(back)
    keep = 2
    if held_by == "tag":
        # Held by the tag alone: newer snapshots go on with the newer index.
        table.create_tag("back", snapshot=6)
        table.store.publisher.publish(replace(newest, id=7, uuid="on"))
        keep = 1
    done = table.expire_snapshots(retain_max=keep, retain_min=keep)
    assert done.files.paths
    assert io.exists("index/index-1")
    assert io.exists("statistics/stat-1")
    assert {f"manifest/{second.index_manifest}", "index/index-1"} <= every_file(table)


def test_a_tag_holds_its_files_until_it_goes():
    table = new_table()
    old = new_file(table, "a")
    commit(table, new_files=(old,))
    table.create_tag("first")
    table.create_tag("second")
    replaced(table, old, "b")
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert data_names(table) == {"a", "b"}
    assert table.delete_tag("first").files.paths == ()
    plan = table.delete_tag("second", plan_only=True)
    assert plan.files.data == ("bucket-0/a",)
    assert table.tags() == {"second": 1}
    table.delete_tag("second")
    assert data_names(table) == {"b"}
    assert table.check(deep=True).orphans == ()


def test_a_branch_holds_its_files():
    table = new_table()
    old = new_file(table, "a")
    commit(table, new_files=(old,))
    table.create_branch("side", snapshot=1)
    replaced(table, old, "b")
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert data_names(table) == {"a", "b"}
    assert table.check(deep=True).ok
    assert table.branch("side").files(columns=["file_name"]).column("file_name").to_pylist() == ["a"]
    # And the other way round: the branch lets go of what the main branch still has.
    add(table.branch("side"), "c")
    table.branch("side").expire_snapshots(retain_max=1, retain_min=1)
    assert data_names(table) == {"a", "b", "c"}
    assert table.check(deep=True).ok


def test_a_consumer_holds_its_next_snapshot():
    table = new_table()
    for name in "abcd":
        add(table, name)
    table.reset_consumer("me", 3)
    assert table.expire_snapshots(retain_max=1, retain_min=1).snapshot_ids == (1, 2)
    table.reset_consumer("me")
    assert table.expire_snapshots(retain_max=1, retain_min=1).snapshot_ids == (3,)


def test_older_than_and_max_deletes_are_heeded():
    table = new_table()
    for name in "abcd":
        add(table, name)
    third = table.snapshot(3).time_ms
    assert table.expire_snapshots(older_than=third, retain_min=1).snapshot_ids == (1,)
    assert table.expire_snapshots(older_than=2**60, retain_min=1, max_deletes=1).snapshot_ids == (2,)


def test_options_of_the_table_are_the_defaults():
    table = new_table(snapshot__num_retained__min="2", snapshot__time_retained="1 ms", write_only="true")
    for name in "abcd":
        add(table, name)
    assert table.expire_snapshots().snapshot_ids == (1, 2)
    assert table.expire_snapshots().snapshot_ids == ()


def test_an_expiry_that_was_overtaken_by_a_tag_deletes_nothing():
    table = new_table()
    old = new_file(table, "a")
    commit(table, new_files=(old,))
    replaced(table, old, "b")
    plan = plan_expire(table.context, retain_max=1, retain_min=1)
    table.create_tag("late", snapshot=1)
    before = every_file(table)
    with pytest.raises(CommitConflictError, match="tags"):
        run_expire(table.context, plan)
    assert every_file(table) == before


def test_an_expiry_that_was_overtaken_by_a_consumer_deletes_nothing():
    table = new_table()
    add(table, "a")
    add(table, "b")
    plan = plan_expire(table.context, retain_max=1, retain_min=1)
    table.reset_consumer("me", 1)
    with pytest.raises(CommitConflictError, match="consumers"):
        run_expire(table.context, plan)
    assert ids(table) == [1, 2]


def test_a_commit_on_top_does_not_disturb_an_expiry():
    table = new_table()
    old = new_file(table, "a")
    commit(table, new_files=(old,))
    replaced(table, old, "b")
    plan = plan_expire(table.context, retain_max=1, retain_min=1)
    add(table, "c")
    assert run_expire(table.context, plan).snapshot_ids == (1,)
    assert data_names(table) == {"b", "c"}


def test_snapshots_that_another_expiry_left_half_deleted_can_go():
    table = new_table()
    old = new_file(table, "a")
    commit(table, new_files=(old,))
    replaced(table, old, "b")
    add(table, "c")
    first = table.snapshot(1)
    for name in (first.base_manifest_list, first.delta_manifest_list):
        table.store.env.io.delete(f"manifest/{name}")
    assert table.expire_snapshots(retain_max=1, retain_min=1).snapshot_ids == (1, 2)
    assert data_names(table) == {"b", "c"}


def test_empty_folders_go_only_when_asked():
    for clean, left in (("false", True), ("true", False)):
        table = new_table(snapshot__clean_empty_directories=clean)
        table.store.env.io.make_dir("bucket-0")
        add(table, "a")
        table.truncate()
        table.expire_snapshots(retain_max=1, retain_min=1)
        assert data_names(table) == set()
        assert table.store.env.io.exists("bucket-0") is left


# ------------------------------------------------------------------------------------------------ after a commit


def test_a_commit_expires_what_is_due():
    table = new_table(snapshot__num_retained__min="1", snapshot__num_retained__max="2")
    for name in "abc":
        add(table, name)
    assert ids(table) == [2, 3]
    assert table.check(deep=True).orphans == ()


def test_a_write_only_table_expires_nothing_by_itself():
    table = new_table(snapshot__num_retained__min="1", snapshot__num_retained__max="1", write_only="true")
    for name in "abc":
        add(table, name)
    assert ids(table) == [1, 2, 3]


def test_tags_and_consumers_past_their_time_go_after_a_commit():
    table = new_table(consumer__expiration_time="1 h")
    add(table, "a")
    table.create_tag("short", time_retained="10 min")
    table.create_tag("long", time_retained="10 d")
    table.create_tag("ever")
    table.reset_consumer("idle", 1)
    add(table, "b")
    assert set(table.tags()) == {"short", "long", "ever"}
    clock_of(table).advance(7_200)
    table.reset_consumer("busy", 1)
    add(table, "c")
    assert set(table.tags()) == {"long", "ever"}
    assert table.consumers() == {"busy": 1}


def test_a_failing_expiry_does_not_fail_the_commit_but_is_told():
    table = new_table(snapshot__num_retained__min="1", snapshot__num_retained__max="1")
    add(table, "a")
    table.store.env.io.overwrite("tag/tag-broken", b"{")
    clock_of(table).advance(60)
    result = table.new_commit().truncate()
    assert result.snapshot_ids == (2,)
    assert any("expiring snapshots failed" in each for each in result.warnings)
    assert ids(table) == [1, 2]


def test_two_jobs_that_expire_at_once_do_not_disturb_each_other():
    """At every operation of one expiry another one runs as a whole."""
    for number in range(1, 80, 3):
        table = new_table(write_only="true")
        old = new_file(table, "a")
        commit(table, new_files=(old,))
        replaced(table, old, "b")
        add(table, "c")
        store = table.store

        def plan(op, at=number, other=table):
            if op.number == at:
                other.expire_snapshots(retain_max=1, retain_min=1)

        slow = load_table(replace(store.env, io=FaultyFileIO(store.env.io, plan)), "d.t")
        with suppress(CommitConflictError):
            slow.expire_snapshots(retain_max=1, retain_min=1)
        table.expire_snapshots(retain_max=1, retain_min=1)
        assert ids(table) == [3]
        assert table.check(deep=True).ok
        assert data_names(table) == {"b", "c"}
