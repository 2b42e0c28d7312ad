"""Tags, branches, rollback and consumers: what names a snapshot, and what happens to files when a name goes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from kit.small_tables import with_foreign_options
from kit.tables_with_files import add, clock_of, commit, data_names, every_file, new_file, new_table, replaced
from tidelake.errors import (
    CommitConflictError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from tidelake.ops.maintain.holders import find_change, look
from tidelake.ops.maintain.tags import (
    plan_tag_deletion,
    plan_tag_replacement,
    run_tag_deletion,
    run_tag_replacement,
)
from tidelake.spec.documents.snapshot import snapshot_to_json
from tidelake.testing import Fault, FaultyFileIO, MemoryFileIO
from tidelake.testing.scenario import restore_image, take_image


def ids(table) -> list[int]:
    return table.store.snapshots.ids()


# ------------------------------------------------------------------------------------------------ tags


def test_a_plain_tag_is_the_snapshot_byte_for_byte():
    table = new_table()
    add(table, "a")
    assert table.create_tag("release 1") == "release 1"
    io = table.store.env.io
    assert io.read("tag/tag-release 1") == io.read("snapshot/snapshot-1") == snapshot_to_json(table.snapshot(1))
    assert table.at(tag="release 1").latest_snapshot().id == 1


def test_a_tag_without_a_name_is_called_after_its_snapshot():
    table = new_table()
    add(table, "a")
    add(table, "b")
    assert [table.create_tag(), table.create_tag(snapshot=1)] == ["snapshot-2", "snapshot-1"]
    assert table.tags() == {"snapshot-1": 1, "snapshot-2": 2}


def test_a_name_that_is_taken_is_refused_unless_that_is_fine():
    table = new_table()
    add(table, "a")
    add(table, "b")
    table.create_tag("t", snapshot=1)
    with pytest.raises(InvalidInputError, match="exists already"):
        table.create_tag("t")
    assert table.create_tag("t", ignore_if_exists=True) == "t"
    assert table.tags() == {"t": 1}


@pytest.mark.parametrize("name", ["", " ", "../up", "a/b", ".hidden", "x" * 300])
def test_a_name_that_is_no_file_name_is_refused(name):
    table = new_table()
    add(table, "a")
    with pytest.raises(InvalidInputError):
        table.create_tag(name)
    assert table.tags() == {}


def test_what_is_not_there_cannot_be_tagged():
    table = new_table()
    with pytest.raises(NotFoundError):
        table.create_tag("t")
    add(table, "a")
    with pytest.raises(NotFoundError):
        table.create_tag("t", snapshot=9)


def test_a_lifetime_is_noted_given_or_by_default():
    table = new_table(tag__default_time_retained="2 h", tag__create_success_file="true")
    add(table, "a")
    table.create_tag("default")
    table.create_tag("given", time_retained=timedelta(minutes=90))
    table.create_tag("text", time_retained="1 d")
    found = {row["tag_name"]: row["time_retained"] for row in table.inspect.tags().to_pylist()}
    assert found == {"default": "PT2H", "given": "PT1H30M", "text": "PT24H"}
    assert table.store.env.io.exists("tag/tag-success-file/given_SUCCESS")
    table.delete_tag("given")
    assert not table.store.env.io.exists("tag/tag-success-file/given_SUCCESS")
    for wrong in ("soon", 0, timedelta(-1)):
        with pytest.raises(InvalidInputError):
            table.create_tag("wrong", time_retained=wrong)


def test_tags_expire_by_their_lifetime_or_by_their_age():
    table = new_table(write_only="true")
    add(table, "a")
    table.create_tag("short", time_retained="10 min")
    table.create_tag("ever")
    clock_of(table).advance(601)
    assert table.expire_tags() == ("short",)
    table.create_tag("young")
    assert table.expire_tags(older_than=clock_of(table).now_ms() - 1_000) == ("ever",)
    assert table.tags() == {"young": 1}


def test_tag_callbacks_are_refused():
    theirs = with_foreign_options(new_table(), {"tag.callbacks": "com.example.Callback"})
    add(theirs, "a")
    for act in (lambda: theirs.create_tag("t"), lambda: new_table(tag__callbacks="com.example.Callback")):
        with pytest.raises(UnsupportedError, match=r"tag\.callbacks"):
            act()


def test_a_renamed_tag_keeps_what_it_holds():
    table = new_table()
    add(table, "a")
    table.create_tag("old", time_retained="1 d")
    before = table.store.env.io.read("tag/tag-old")
    table.rename_tag("old", "new")
    assert table.store.env.io.read("tag/tag-new") == before
    assert table.tags() == {"new": 1}
    table.create_tag("other")
    with pytest.raises(InvalidInputError):
        table.rename_tag("new", "other")
    with pytest.raises(NotFoundError, match="new, other"):
        table.rename_tag("old", "x")


def test_of_three_tags_the_middle_one_takes_only_its_own_files():
    table = new_table()
    files = {}
    for name in "abc":
        files[name] = new_file(table, name)
        commit(table, new_files=(files[name],))
        table.create_tag(f"with-{name}")
        short = new_file(table, f"{name}-short")
        commit(table, new_files=(short,))
        table.create_tag(f"and-{name}")
        replaced(table, short, f"{name}-next")
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert table.check(deep=True).orphans == ()
    plan = table.delete_tag("and-b")
    assert plan.files.data == ("bucket-0/b-short",)
    for name in ("with-a", "with-c", "and-a", "with-b", "and-c"):
        table.delete_tag(name)
        assert table.check(deep=True).orphans == ()
        assert table.check(deep=True).ok
    assert "a-short" not in data_names(table)


def test_deleting_a_tag_that_was_overtaken_deletes_nothing():
    table = new_table()
    old = new_file(table, "a")
    commit(table, new_files=(old,))
    table.create_tag("t")
    replaced(table, old, "b")
    table.expire_snapshots(retain_max=1, retain_min=1)
    plan = plan_tag_deletion(table.context, "t")
    table.create_branch("side", tag="t")
    with pytest.raises(CommitConflictError, match="branches"):
        run_tag_deletion(table.context, plan)
    assert table.tags() == {"t": 1}
    table.delete_tag("t")
    assert "a" in data_names(table)


def test_a_damaged_tag_stops_what_would_delete_files():
    table = new_table()
    add(table, "a")
    add(table, "b")
    table.create_tag("t")
    table.store.env.io.overwrite("tag/tag-broken", b"{}")
    before = every_file(table)
    with pytest.raises(FormatError):
        table.expire_snapshots(retain_max=1, retain_min=1)
    assert every_file(table) == before


# ------------------------------------------------------------------------------------------------ rollback


def test_a_rollback_removes_what_is_newer_and_leaves_files_as_orphans():
    table = new_table()
    for name in "abc":
        add(table, name)
        table.create_tag(f"t-{name}")
    plan = table.rollback_to(snapshot=2, plan_only=True)
    assert (plan.snapshot_ids, plan.tags, plan.restored) == ((3,), ("t-c",), False)
    assert ids(table) == [1, 2, 3]
    assert table.rollback_to(snapshot=2) == plan
    assert (ids(table), table.tags()) == ([1, 2], {"t-a": 1, "t-b": 2})
    assert table.check(deep=True).ok
    assert "bucket-0/c" in table.check(deep=True).orphans
    add(table, "d")
    assert ids(table) == [1, 2, 3]
    assert table.check(deep=True).ok


def test_a_rollback_goes_to_a_tag_whose_snapshot_has_expired():
    table = new_table()
    old = new_file(table, "a")
    commit(table, new_files=(old,), changelog_files=(new_file(table, "a.changelog"),))
    table.create_tag("first")
    replaced(table, old, "b")
    add(table, "c")
    table.expire_snapshots(retain_max=1, retain_min=1)
    for how in ({"tag": "first"}, {"snapshot": 1}):
        assert table.rollback_to(**how, plan_only=True).restored
    table.rollback_to(tag="first")
    assert ids(table) == [1]
    assert table.files(columns=["file_name"]).column("file_name").to_pylist() == ["a"]
    # Its changelog is gone, so the snapshot that came back does not speak of it.
    assert table.latest_snapshot().changelog_manifest_list is None
    assert table.check(deep=True).ok
    add(table, "d")
    assert ids(table) == [1, 2]


@pytest.mark.parametrize("expired", [False, True])
def test_a_rollback_goes_to_a_tag_that_paimon_made_of_our_snapshot(expired):
    """It was refused as gone: Paimon 2.0 drops `writerVersion`, which it does not know, from the tag it makes."""
    table = new_table()
    add(table, "a")
    table.create_tag("theirs")
    path, io = table.store.layout.tag_path("theirs"), table.store.env.io
    document = json.loads(io.read(path))
    assert document.pop("writerVersion")
    io.overwrite(path, json.dumps(document).encode())
    add(table, "b")
    if expired:
        table.expire_snapshots(retain_max=1, retain_min=1)
    table.create_tag("again", snapshot=2)
    table.rollback_to(tag="theirs")
    assert (ids(table), table.tags()) == ([1], {"theirs": 1})
    assert table.files(columns=["file_name"]).column("file_name").to_pylist() == ["a"]
    assert table.check(deep=True).ok


def test_a_rollback_by_time_takes_the_newest_snapshot_that_is_not_later():
    table = new_table()
    for name in "abc":
        add(table, name)
    time_ms = table.snapshot(2).time_ms
    with pytest.raises(NotFoundError):
        table.rollback_to(timestamp=table.snapshot(1).time_ms - 1)
    assert table.rollback_to(timestamp=time_ms + 1).target.id == 2
    for wrong in ({}, {"snapshot": 1, "tag": "x"}):
        with pytest.raises(InvalidInputError, match="exactly one"):
            table.rollback_to(**wrong)
    with pytest.raises(NotFoundError):
        table.rollback_to(snapshot=77)


def test_numbered_commits_that_were_rolled_back_can_be_committed_again():
    table = new_table()
    for identifier in (1, 2, 3):
        commit(table, user="job", identifier=identifier, new_files=(new_file(table, f"f{identifier}"),))
    commit(table, user="other", identifier=9, new_files=(new_file(table, "g"),))
    table.rollback_to(snapshot=1)
    again = table.new_commit("job")
    assert again.filter_committed([1, 2, 3]) == [2, 3]
    assert table.new_commit("other").filter_committed([8, 9]) == [8, 9]
    commit(table, user="job", identifier=2, new_files=(new_file(table, "f2-again"),))
    assert ids(table) == [1, 2]
    assert sorted(table.files(columns=["file_name"]).column("file_name").to_pylist()) == ["f1", "f2-again"]


# ------------------------------------------------------------------------------------------------ branches


def test_a_branch_lives_its_own_life_over_the_same_files():
    table = new_table()
    add(table, "a")
    table.create_tag("t")
    add(table, "b")
    empty, side, late = (
        table.create_branch("empty"),
        table.create_branch("side", tag="t"),
        table.create_branch("late", snapshot=2),
    )
    assert table.branches() == ["empty", "late", "side"]
    assert (empty.latest_snapshot(), side.latest_snapshot().id, late.latest_snapshot().id) == (None, 1, 2)
    assert (side.tags(), late.tags()) == ({"t": 1}, {})
    add(side, "c")
    assert (ids(side), ids(table)) == ([1, 2], [1, 2])
    assert sorted(side.files(columns=["file_name"]).column("file_name").to_pylist()) == ["a", "c"]
    assert table.check(deep=True).ok


def test_a_branch_needs_a_free_and_usable_name():
    table = new_table()
    add(table, "a")
    table.create_branch("side")
    for wrong in ("side", "main", "12", "", "a/b"):
        with pytest.raises(InvalidInputError):
            table.create_branch(wrong)
    with pytest.raises(NotFoundError):
        table.create_branch("x", tag="nothing")
    with pytest.raises(NotFoundError):
        table.create_branch("x", snapshot=9)
    with pytest.raises(InvalidInputError):
        table.create_branch("x", tag="t", snapshot=1)
    assert table.branches() == ["side"]


def test_a_deleted_branch_leaves_its_own_files_as_orphans():
    table = new_table()
    add(table, "a")
    side = table.create_branch("side", snapshot=1)
    add(side, "b")
    with pytest.raises(InvalidInputError):
        side.delete_branch("side")
    with pytest.raises(NotFoundError):
        table.delete_branch("other")
    with pytest.raises(InvalidInputError):
        table.delete_branch("main")
    table.delete_branch("side")
    assert table.branches() == []
    assert "bucket-0/b" in table.check().orphans
    assert table.check().ok


def test_the_main_branch_becomes_the_branch_from_its_first_snapshot_on():
    table = new_table()
    add(table, "a")
    add(table, "b")
    table.create_tag("fork")
    side = table.create_branch("side", tag="fork")
    add(table, "lost")
    table.create_tag("lost")
    add(side, "c")
    add(side, "d")
    side.create_tag("on-side")
    side.add_column("w", "INT")
    plan = table.fast_forward("side", plan_only=True)
    assert (plan.removed_snapshots, plan.added_snapshots) == ((3,), (3, 4))
    assert (plan.removed_tags, plan.written_tags, plan.written_schemas) == (("lost",), ("on-side",), (1,))
    assert ids(table) == [1, 2, 3]
    table.fast_forward("side")
    table = table.reload()
    assert ids(table) == [1, 2, 3, 4]
    assert table.latest_snapshot() == table.branch("side").latest_snapshot()
    assert table.tags() == {"fork": 2, "on-side": 4}
    assert [each.name for each in table.schema.fields] == ["id", "w"]
    assert table.check(deep=True).ok
    assert table.fast_forward("side") == replace(plan, removed_snapshots=(), added_snapshots=(), removed_tags=(),
                                                 written_tags=(), written_schemas=())  # fmt: skip


def test_the_main_branch_moves_forward_although_its_common_past_has_expired():
    table = new_table()
    add(table, "a")
    side = table.create_branch("side", snapshot=1)
    add(side, "b")
    for name in "cde":
        add(table, name)
    table.expire_snapshots(retain_max=1, retain_min=1)
    table.fast_forward("side")
    assert ids(table) == [1, 2]
    assert table.check(deep=True).ok


def test_only_a_branch_with_snapshots_can_be_moved_to():
    table = new_table()
    add(table, "a")
    table.create_branch("empty")
    with pytest.raises(InvalidInputError, match="no snapshot"):
        table.fast_forward("empty")
    with pytest.raises(NotFoundError):
        table.fast_forward("nothing")
    with pytest.raises(InvalidInputError):
        table.fast_forward("main")
    with pytest.raises(InvalidInputError, match="only the main branch"):
        table.branch("empty").fast_forward("empty")


# ------------------------------------------------------------------------------------------------ consumers


def test_consumers_are_set_back_and_forgotten():
    table = new_table()
    table.reset_consumer("me", 3)
    table.reset_consumer("me", 2)
    assert table.consumers() == {"me": 2}
    assert table.inspect.consumers().to_pylist() == [{"consumer_id": "me", "next_snapshot_id": 2}]
    table.reset_consumer("me")
    assert table.consumers() == {}
    with pytest.raises(NotFoundError):
        table.reset_consumer("me")
    with pytest.raises(InvalidInputError):
        table.reset_consumer("me", 0)


# ------------------------------------------------------------------------------------------------ two looks


def test_two_looks_tell_what_moved():
    table = new_table()
    add(table, "a")
    add(table, "b")
    before = look(table.store)
    add(table, "c")
    assert find_change(before, look(table.store)) is None
    table.rollback_to(snapshot=1)
    assert find_change(before, look(table.store)) == "snapshots"
    clock_of(table).advance(1)
    add(table, "d")
    assert find_change(before, look(table.store)) == "snapshots"
    before = look(table.store)
    table.create_tag("t")
    assert find_change(before, look(table.store)) == "tags"
    before = look(table.store)
    table.delete_tag("t")
    assert find_change(before, look(table.store), untagged=["t"]) is None
    before = look(table.store)
    table.create_branch("side", snapshot=1)
    assert find_change(before, look(table.store)) == "branches"


# ------------------------------------------------------------------------------------------------ names of branches


def test_a_branch_gets_another_name_with_all_that_is_in_it():
    table = new_table()
    add(table, "a")
    table.create_tag("t")
    table.create_branch("old", tag="t").reset_consumer("c", 1)
    before = every_file(table)
    table.rename_branch("old", "new")
    assert table.branches() == ["new"]
    assert every_file(table) == {path.replace("branch-old", "branch-new") for path in before}
    new = table.branch("new")
    assert (new.tags(), new.consumers(), new.latest_snapshot()) == ({"t": 1}, {"c": 1}, table.latest_snapshot())
    add(new, "b")
    assert new.check(deep=True).ok


def test_a_name_that_a_branch_cannot_get_is_refused():
    table = new_table()
    add(table, "a")
    table.create_branch("one")
    table.create_branch("two")
    for name, new in (("one", "two"), ("one", "main"), ("one", "12"), ("one", "a/b"), ("main", "three"), ("one", "")):
        with pytest.raises(InvalidInputError):
            table.rename_branch(name, new)
    with pytest.raises(NotFoundError):
        table.rename_branch("three", "four")
    with pytest.raises(InvalidInputError, match="in use"):
        table.branch("one").rename_branch("one", "three")
    assert table.branches() == ["one", "two"]


@pytest.mark.parametrize(("fault", "named"), [(Fault.BEFORE, "old"), (Fault.AFTER, "new")])
def test_a_rename_that_fails_leaves_a_whole_branch(fault, named):
    table = new_table()
    add(table, "a")
    table.create_branch("old", snapshot=1)
    image = take_image(table.store.env.io)

    def rename(*faults):
        io = MemoryFileIO()
        restore_image(io, image)
        watched = FaultyFileIO(io, dict(faults))
        store = replace(table.store, env=replace(table.store.env, io=watched))
        failed = None
        try:
            replace(table, store=store).rename_branch("old", "new")
        except StorageError as error:
            failed = error
        return watched.ops, failed, [each.name for each in io.list("branch")]

    ops, _, _ = rename()
    at = next(op.number for op in ops if op.name == "rename_dir")
    _, failed, names = rename((at, fault))
    assert (failed is not None, names) == (named == "old", [f"branch-{named}"])


# ------------------------------------------------------------------------------------------------ many consumers


def test_consumers_are_forgotten_by_their_names():
    table = new_table()
    add(table, "a")
    for name in ("nightly-1", "nightly-2", "hourly", "x.y"):
        table.reset_consumer(name, 1)
    assert table.clear_consumers("night", plan_only=True) == ()  # the whole name has to match
    assert table.clear_consumers(excluding=".*ly.*", plan_only=True) == ("x.y",)
    assert len(table.consumers()) == 4
    assert table.clear_consumers("nightly-.*", ".*2") == ("nightly-1",)
    assert sorted(table.consumers()) == ["hourly", "nightly-2", "x.y"]
    with pytest.raises(InvalidInputError, match="malformed"):
        table.clear_consumers("(")
    assert table.clear_consumers() == ("hourly", "nightly-2", "x.y")
    assert table.consumers() == {}


# ------------------------------------------------------------------------------------------------ the oldest snapshot


def test_the_oldest_snapshot_is_noted_after_a_gap():
    table = new_table()
    for name in "abcdef":
        add(table, name)
    for lost in (2, 4):
        table.store.publisher.delete(lost)
    for wrong, error in ((3, NotFoundError), (6, InvalidInputError), (9, InvalidInputError), (2, NotFoundError)):
        with pytest.raises(error):
            table.repair_earliest_snapshot(wrong)
    assert table.store.env.io.read("snapshot/EARLIEST") == b"1"
    assert table.repair_earliest_snapshot(5) == 1
    assert table.store.env.io.read("snapshot/EARLIEST") == b"5"
    assert table.store.snapshots.earliest_id() == 5
    assert table.repair_earliest_snapshot(5) == 5
    assert ids(table) == [1, 3, 5, 6]
    with pytest.raises(InvalidInputError, match="between the oldest"):
        table.repair_earliest_snapshot(3)


# ------------------------------------------------------------------------------------------------ replacing tags


def test_a_replaced_tag_names_the_newest_snapshot_or_a_given_one():
    table = new_table(tag__default_time_retained="2 h")
    for name in "abc":
        add(table, name)
    table.create_tag("t", 1)
    plan = table.replace_tag("t", plan_only=True)
    assert (plan.before.id, plan.after.id, plan.is_lost, table.tags()) == (1, 3, False, {"t": 1})
    assert str(plan) == "tag t from snapshot 1 to snapshot 3"
    assert table.replace_tag("t") == plan
    assert table.tags() == {"t": 3}
    assert table.inspect.tags().column("time_retained").to_pylist() == [None]
    table.replace_tag("t", 2, "1 d")
    assert table.inspect.tags().to_pylist()[0]["time_retained"] == "PT24H"
    assert table.tags() == {"t": 2}


def test_what_is_not_there_cannot_be_replaced():
    table = new_table()
    add(table, "a")
    with pytest.raises(NotFoundError, match="tag does not exist"):
        table.replace_tag("t")
    table.create_tag("t")
    with pytest.raises(NotFoundError, match="snapshot does not exist"):
        table.replace_tag("t", 9)
    with pytest.raises(InvalidInputError):
        table.replace_tag("t", time_retained="0 s")
    assert table.tags() == {"t": 1}


def test_a_replacement_that_loses_a_snapshot_says_so_and_leaves_orphans():
    table = new_table(write_only="true")
    old = new_file(table, "a")
    commit(table, new_files=(old,))
    table.create_tag("t")
    replaced(table, old, "b")
    add(table, "c")
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert "neither a snapshot nor another tag keeps snapshot 1" in str(table.replace_tag("t", plan_only=True))
    assert "a" in data_names(table)
    assert table.replace_tag("t").is_lost
    assert "a" in data_names(table)


def test_an_expiry_sees_that_a_tag_was_replaced_however_short_after_it_was_made():
    table = new_table(write_only="true")
    for name in "abc":
        add(table, name)
    table.create_tag("t", 1)
    before = look(table.store)
    table.replace_tag("t", 2)
    assert find_change(before, look(table.store)) == "tags"


def test_a_replacement_by_a_snapshot_that_has_expired_since_the_plan_leaves_the_tag_as_it_was():
    table = new_table(write_only="true")
    for name in "abc":
        add(table, name)
    table.create_tag("t", 3)
    plan = plan_tag_replacement(table.context, "t", snapshot_id=1)
    table.expire_snapshots(retain_max=1, retain_min=1)
    with pytest.raises(NotFoundError) as caught:
        run_tag_replacement(table.context, plan)
    assert caught.value.code == "snapshot-expired"
    assert table.tags() == {"t": 3}
    assert table.check(deep=True).ok


# ------------------------------------------------------------------------------------------------ tags of a time


def test_a_tag_of_a_time_names_the_first_snapshot_since():
    table = new_table(write_only="true")
    for name in "abcd":
        add(table, name)
    times = [table.snapshot(number).time_ms for number in range(1, 5)]
    for number, (moment, found) in enumerate([(0, 1), (times[1], 2), (times[1] + 1, 3), (times[3], 4)]):
        name = table.create_tag(f"t{number}", timestamp=moment)
        assert table.tags()[name] == found
    with pytest.raises(NotFoundError, match="at or after"):
        table.create_tag("late", timestamp=times[3] + 1)
    with pytest.raises(InvalidInputError, match="snapshot or a time"):
        table.create_tag("both", 1, timestamp=times[1])


def test_a_tag_of_a_time_before_all_snapshots_names_what_another_tag_keeps():
    table = new_table(write_only="true")
    with pytest.raises(NotFoundError):
        table.create_tag("empty", timestamp=0)
    for name in "abcd":
        add(table, name)
    time = table.snapshot(2).time_ms
    table.create_tag("kept", 2)
    table.expire_snapshots(retain_max=1, retain_min=1)
    table.create_tag("since", timestamp=time)
    table.create_tag("after", timestamp=time + 1)
    assert table.tags() == {"kept": 2, "since": 2, "after": 4}


# ------------------------------------------------------------------------------------------------ expiring tags


def test_the_plan_of_an_expiry_of_tags_is_what_it_deletes():
    table = new_table(write_only="true")
    first = new_file(table, "a")
    commit(table, new_files=(first,))
    table.create_tag("one", time_retained="1 h")
    table.create_tag("again", time_retained="1 h")
    second = new_file(table, "b")
    commit(table, before=(first,), after=(second,))
    table.create_tag("two", time_retained="1 h")
    replaced(table, second, "c")
    table.create_tag("kept")
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert not table.expire_tags(plan_only=True).tags
    assert table.expire_tags() == ()
    clock_of(table).advance(4_000)
    plan = table.expire_tags(plan_only=True)
    assert plan.tags == ("again", "one", "two")
    assert {path.rpartition("/")[2] for path in plan.files.data} == {"a", "b"}
    assert data_names(table) == {"a", "b", "c"}
    before = every_file(table)
    assert table.expire_tags() == plan.tags
    assert before - every_file(table) == {*plan.files.paths, "tag/tag-again", "tag/tag-one", "tag/tag-two"}
    assert table.check(deep=True).ok
