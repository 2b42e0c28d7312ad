"""Commands that let go of snapshots or name them: first the plan, then a yes; what cannot be undone is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tidelake as tl
from kit.command_line import answer, main_code, run


@pytest.fixture
def where(users: tl.Table, tmp_path: Path) -> tuple[str, str]:
    return "-w", str(tmp_path / "small")


def test_expire_shows_its_plan_and_asks(users: tl.Table, where: tuple[str, str]) -> None:
    arguments = (*where, "expire", "shop.users")
    assert "nothing to expire; the newest 10 are kept" in run(*arguments).stdout
    arguments = (*arguments, "--retain-min", "1", "--older-than", "0 s")
    refused = run(*arguments, typed="n\n")
    assert "expires 2 snapshots (1 to 2)" in refused.stderr
    assert "cannot be undone" in refused.stderr
    plan = answer(*arguments)
    assert (plan["snapshot_ids"], plan["done"]) == ([1, 2], False)
    assert users.store.snapshots.ids() == [1, 2, 3]
    done = answer(*arguments, "--yes")
    assert (done["snapshot_ids"], done["left"], done["done"]) == ([1, 2], [], True)
    assert users.store.snapshots.ids() == [3]
    assert users.count() == 10


def test_expire_leaves_what_tags_hold(users: tl.Table, where: tuple[str, str]) -> None:
    run(*where, "tag", "create", "shop.users", "first", "--at", "1")
    done = run(*where, "expire", "shop.users", "--retain-min", "1", "--older-than", "0 s", "--yes")
    assert "2 snapshots expired" in done.stdout
    assert users.at(tag="first").count() == 10


def test_orphans_are_listed_and_deleted_after_a_yes(users: tl.Table, where: tuple[str, str]) -> None:
    arguments = (*where, "orphans", "shop.users")
    assert run(*arguments).stdout == "no orphan is older than 1 d\n"
    lost = Path(users.location) / "dt=mon" / "bucket-0" / "data-lost-0.parquet"
    lost.write_bytes(b"lost")
    os.utime(lost, (1, 1))
    refused = run(*arguments, typed="n\n")
    assert "data-lost-0.parquet" in refused.stderr
    assert "deletes 1 file of 4 bytes" in refused.stderr
    assert answer(*arguments)["done"] is False
    assert lost.exists()
    assert answer(*arguments, "--yes")["files"] == 1
    assert not lost.exists()
    assert users.check().ok


def test_rollback_says_what_goes_and_how_to_keep_it(users: tl.Table, where: tuple[str, str]) -> None:
    arguments = (*where, "rollback", "shop.users", "--to", "1")
    refused = run(*arguments, typed="n\n")
    assert "back to snapshot 1: 2 snapshots" in refused.stderr
    keep = next(line for line in refused.stderr.splitlines() if "tidelake branch create" in line).partition("tidelake ")
    assert answer(*arguments, "--plan")["removed_snapshots"] == [3, 2]
    assert users.store.snapshots.latest_id() == 3
    assert run(*where, *keep[2].split()).exit_code == 0
    assert "newest snapshot is 1 now" in run(*arguments, "--yes").stdout
    assert users.to_arrow().column("name").unique().to_pylist() == ["ann"]
    assert users.branch("before-rollback").to_arrow().column("name").unique().to_pylist() == ["cy"]
    assert "nothing to do" in run(*arguments).stdout


def test_a_rollback_as_latest_removes_nothing_and_says_how_to_undo_it(users: tl.Table, where: tuple[str, str]) -> None:
    arguments = (*where, "rollback", "shop.users", "--to", "1", "--as-latest")
    refused = run(*arguments, typed="n\n")
    assert "back to the state of snapshot 1, as a new snapshot after 3: 0 files come back, 4 files go" in refused.stderr
    undo = next(line for line in refused.stderr.splitlines() if "to undo it" in line).partition("tidelake ")[2]
    plan = answer(*arguments, "--plan")
    assert (plan["new_snapshot_id"], plan["files_deleted"], plan["tag"], plan["done"]) == (None, 4, None, False)
    done = answer(*arguments, "--yes")
    assert (done["new_snapshot_id"], done["done"]) == (4, True)
    assert done["tag"] in users.tags()
    assert users.to_arrow().column("name").unique().to_pylist() == ["ann"]
    assert "snapshot 5 has the state of 3 now; tag rollback-" in run(*where, *undo.split(), "--yes").stdout
    assert users.to_arrow().column("name").unique().to_pylist() == ["cy"]
    assert users.store.snapshots.ids() == [1, 2, 3, 4, 5]
    assert "nothing to do" in run(*where, "rollback", "shop.users", "--to", "5", "--as-latest").stdout
    assert "watermark that low" in str(run(*where, "rollback", "shop.users", "--watermark", "5"))


def test_a_schema_is_rolled_back_unless_it_is_in_use(users: tl.Table, where: tuple[str, str]) -> None:
    users.add_column("v", "INT")
    arguments = (*where, "rollback-schema", "shop.users", "--to", "0")
    assert "back to schema 0: 1 schema (1) go" in run(*arguments, typed="n\n").stderr
    assert answer(*arguments, "--plan")["removed_schemas"] == [1]
    assert users.store.schemas.ids() == [0, 1]
    assert run(*arguments, "--yes").stdout == "the newest schema is 0 now\n"
    assert users.store.schemas.ids() == [0]
    assert "newest already" in run(*arguments).stdout
    users.reload().add_column("v", "INT").write([{"id": 1, "name": "x", "dt": "mon", "v": 1}])
    assert "a newer schema is in use" in str(run(*arguments, "--yes"))


def test_branches_are_renamed_and_merged(users: tl.Table, where: tuple[str, str]) -> None:
    users.create_branch("old")
    assert run(*where, "branch", "rename", "shop.users", "old", "new").stdout == "branch old is called new now\n"
    assert answer(*where, "branch", "rename", "shop.users", "new", "old")["branch"] == "old"
    assert "without snapshots" in str(run(*where, "branch", "merge", "shop.users", "old"))
    table = tl.connect(where[1]).create_table("shop.events", {"id": "INT"})
    table.write([{"id": 1}])
    table.create_branch("trial").write([{"id": 2}])
    arguments = (*where, "branch", "merge", "shop.events", "trial")
    assert "main gets 1 file with 1 row of trial" in run(*arguments, typed="n\n").stderr
    assert answer(*arguments, "--plan")["files"] == 1
    assert table.count() == 1
    assert answer(*arguments, "--yes")["snapshot_ids"] == [2]
    assert table.count() == 2
    assert "has every file of trial already" in run(*arguments).stdout
    assert run(*where, "branch", "merge", "shop.events", "main", "--into", "trial", "--yes").stdout == (
        "trial got 1 file of branch main\n"
    )


def test_consumers_are_cleared_by_their_names(users: tl.Table, where: tuple[str, str]) -> None:
    for name in ("a1", "a2", "b"):
        users.reset_consumer(name, 1)
    arguments = (*where, "clear-consumers", "shop.users", "--including", "a.*", "--excluding", ".*2")
    assert "forgets 1 consumer: a1" in run(*arguments, typed="n\n").stderr
    assert answer(*arguments)["consumers"] == ["a1"]
    assert len(users.consumers()) == 3
    assert run(*arguments, "--yes").stdout == "1 consumer forgotten\n"
    assert run(*arguments).stdout == "no consumer to forget\n"
    assert sorted(users.consumers()) == ["a2", "b"]


def test_a_deletion_can_be_taken_back_as_its_plan_says(users: tl.Table, where: tuple[str, str]) -> None:
    asked = run(*where, "delete", "shop.users", "--where", "true", typed="y\n")
    command = asked.stderr.partition("`tidelake ")[2].partition("`")[0].split()
    assert users.count() == 0
    assert run(*where, *command, "--yes").exit_code == 0
    assert users.count() == 10


def test_tags_are_made_listed_renamed_and_deleted(users: tl.Table, where: tuple[str, str]) -> None:
    made = answer(*where, "tag", "create", "shop.users", "first", "--at", "1", "--keep", "90 d")
    assert made == {"table": "shop.users", "tag": "first", "snapshot_id": 1}
    assert [row["time_retained"] for row in answer(*where, "tag", "list", "shop.users")] == ["PT2160H"]
    assert run(*where, "tag", "rename", "shop.users", "first", "one").stdout == "tag first is called one now\n"
    assert [row["name"] for row in answer(*where, "head", "shop.users", "--tag", "one", "-n", "1")] == ["ann"]
    plan = run(*where, "tag", "delete", "shop.users", "one", "--plan")
    assert "deletes tag one of snapshot 1 with 0 data" in plan.stdout
    assert users.tags() == {"one": 1}
    assert run(*where, "tag", "delete", "shop.users", "one", typed="y\n").exit_code == 0
    assert users.tags() == {}


def test_deleting_the_last_holder_of_a_snapshot_says_that_it_is_final(users: tl.Table, where: tuple[str, str]) -> None:
    users.create_tag("first", 1)
    users.compact(full=True)
    users.expire_snapshots(older_than="0 s", retain_min=1)
    asked = run(*where, "tag", "delete", "shop.users", "first", typed="n\n")
    assert "cannot be undone: nothing else keeps snapshot 1" in asked.stderr
    assert users.tags() == {"first": 1}


def test_branches_are_made_written_moved_to_and_deleted(
    users: tl.Table, where: tuple[str, str], tmp_path: Path
) -> None:
    assert run(*where, "branch", "create", "shop.users", "trial", "--at", "3").stdout == (
        "branch trial is table shop.users$branch_trial\n"
    )
    (tmp_path / "rows.csv").write_text("id,name,dt\n9,new,mon\n")
    answer(*where, "write", "shop.users$branch_trial", str(tmp_path / "rows.csv"))
    assert [row["branch_name"] for row in answer(*where, "branch", "list", "shop.users")] == ["trial"]
    assert users.count() == 10
    plan = answer(*where, "branch", "fast-forward", "shop.users", "trial")
    assert (plan["added_snapshots"], plan["done"]) == ([4], False)
    assert run(*where, "branch", "fast-forward", "shop.users", "trial", "--yes").exit_code == 0
    assert users.count() == 11
    refused = run(*where, "branch", "delete", "shop.users", "trial", typed="n\n")
    assert "deletes branch trial with 2 snapshots" in refused.stderr
    assert answer(*where, "branch", "delete", "shop.users", "trial", "--yes")["done"] is True
    assert users.branches() == []


def test_consumers_are_listed_moved_and_forgotten(users: tl.Table, where: tuple[str, str]) -> None:
    assert answer(*where, "consumers", "shop.users") == []
    moved = answer(*where, "consumers", "shop.users", "--set", "nightly=2")
    assert [(each["consumer_id"], each["next_snapshot_id"], each["snapshots_behind"]) for each in moved] == [
        ("nightly", 2, 2)
    ]
    kept = answer(*where, "expire", "shop.users", "--retain-min", "1", "--older-than", "0 s")
    assert kept["snapshot_ids"] == [1]
    assert answer(*where, "consumers", "shop.users", "--forget", "nightly") == []


def test_options_are_set_and_unset(users: tl.Table, where: tuple[str, str]) -> None:
    rows = answer(*where, "options", "shop.users", "--set", "num-sorted-run.compaction-trigger=8")
    assert {"key": "num-sorted-run.compaction-trigger", "value": "8"} in rows
    rows = answer(*where, "options", "shop.users", "--unset", "num-sorted-run.compaction-trigger")
    assert [row["key"] for row in rows] == ["bucket"]


def test_an_option_that_nobody_knows_is_a_warning_in_plain_words(tmp_path: Path, users: tl.Table) -> None:
    from kit.command_line import shell

    done = shell("-w", "small", "options", "shop.users", "--set", "bucketts=3", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == "warning: option `bucketts` is not known; did you mean `bucket`?\n"


def test_refs_of_a_table_given_by_its_path(users: tl.Table) -> None:
    place = ("--table-path", users.location)
    assert answer(*place, "tag", "create", "now")["snapshot_id"] == 3
    assert answer(*place, "branch", "create", "side", "--tag", "now")["branch"] == "side"
    assert run("tag", *place, "rename", "now", "then").exit_code == 0
    assert users.tags() == {"then": 3}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("expire", "shop.users", "--retain-min", "0"), "at least one snapshot"),
        (("expire", "shop.users", "--retain-max", "1"), "--retain-max"),
        (("expire", "shop.users", "--older-than", "soon"), "`7 d`"),
        (("expire", "shop.users", "--retain-min", "x"), "not a valid integer"),
        (("orphans", "shop.users", "--older-than", "1 h"), "at least a day old"),
        (("rollback", "shop.users"), "--to SNAPSHOT"),
        (("rollback", "shop.users", "--to", "1", "--tag", "x"), "one target"),
        (("rollback", "shop.users", "--to", "99"), "snapshot does not exist"),
        (("rollback", "shop.users", "--tag", "zz"), "the table has no tag"),
        (("tag", "create", "shop.users"), "tag create takes TABLE NAME"),
        (("tag", "create", "shop.users", "a/b"), "path separator"),
        (("tag", "create", "shop.users", "a", "--at", "99"), "snapshot does not exist"),
        (("tag", "create", "shop.users", "a", "--keep", "soon"), "`1 d`"),
        (("tag", "delete", "shop.users", "zz"), "tag does not exist"),
        (("tag", "rename", "shop.users", "zz", "a"), "tag does not exist"),
        (("tag", "nothing"), "No such command"),
        (("branch", "create", "shop.users", "main"), "reserved"),
        (("branch", "create", "shop.users", "a", "--tag", "zz"), "tag does not exist"),
        (("branch", "delete", "shop.users", "zz"), "branch does not exist"),
        (("branch", "fast-forward", "shop.users", "zz"), "branches are main"),
        (("head", "shop.users$branch_zz"), "branch does not exist"),
        (("consumers", "shop.users", "--forget", "zz"), "the table has no consumer"),
        (("consumers", "shop.users", "--set", "a=x"), "NAME=SNAPSHOT"),
        (("options", "shop.users", "--set", "bucket"), "KEY=VALUE"),
        (("options", "shop.users", "--set", "merge-engine=first-row"), "cannot change"),
        (("options", "shop.users", "--unset", "zz"), "option is not set"),
    ],
)
def test_mistakes_exit_with_1_and_name_the_fix(
    users: tl.Table,
    where: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    told: str,
) -> None:
    code, out, err = main_code(capsys, *where, *arguments)
    assert (code, out) == (1, "")
    assert told in err
    assert "Traceback" not in err
    assert users.store.snapshots.ids() == [1, 2, 3]
    assert (users.tags(), users.branches(), users.consumers()) == ({}, [], {})


def test_tags_are_replaced_after_a_yes(users: tl.Table, where: tuple[str, str]) -> None:
    users.create_tag("monthly", 1)
    arguments = (*where, "tag", "replace", "shop.users", "monthly")
    refused = run(*arguments, typed="n\n")
    assert "moves tag monthly from snapshot 1 to snapshot 3" in refused.stderr
    assert "takes it back as long as the snapshot exists" in refused.stderr
    plan = answer(*arguments, "--plan")
    assert plan == {"table": "shop.users", "tag": "monthly", "was": 1, "snapshot_id": 3, "done": False}
    assert users.tags() == {"monthly": 1}
    assert answer(*arguments, "--at", "2", "--keep", "1 d", "--yes")["done"] is True
    assert users.tags() == {"monthly": 2}
    assert run(*arguments, "--yes").stdout == "tag monthly is snapshot 3 now\n"


def test_a_tag_of_a_time_names_the_first_snapshot_since(users: tl.Table, where: tuple[str, str]) -> None:
    made = answer(*where, "tag", "create", "shop.users", "then", "--timestamp", "2001-01-01")
    assert (made["tag"], made["snapshot_id"]) == ("then", 1)
    failed = run(*where, "tag", "create", "shop.users", "late", "--timestamp", "2999-01-01")
    assert "no snapshot was committed at or after that time" in str(failed.exception)


def test_tags_past_their_time_are_deleted_after_a_yes(users: tl.Table, where: tuple[str, str]) -> None:
    arguments = (*where, "tag", "expire", "shop.users")
    assert run(*arguments).stdout == "no tag is past its time\n"
    users.create_tag("old", 1)
    arguments = (*arguments, "--older-than", "0 s")
    assert "deletes 1 tag (old)" in run(*arguments, typed="n\n").stderr
    plan = answer(*arguments)
    assert plan == {"table": "shop.users", "tags": ["old"], "data_files": 0, "metadata_files": 0, "done": False}
    assert run(*arguments, "--yes").stdout == "1 tag deleted: old\n"
    assert users.tags() == {}


def test_automatic_tags_are_created_after_a_yes(users: tl.Table, where: tuple[str, str]) -> None:
    arguments = (*where, "tag", "automatic", "shop.users")
    assert run(*arguments).stdout == "no automatic tag is due\n"
    users.alter(set_options={"tag.automatic-creation": "process-time", "tag.creation-period-duration": "3650 d"})
    assert "1 tag to create (" in run(*arguments, typed="n\n").stderr
    plan = answer(*arguments)
    assert (list(plan["created"].values()), plan["deleted"], plan["done"]) == ([1], [], False)
    assert users.tags() == {}
    assert run(*arguments, "--yes").stdout == "1 tag created, 0 deleted\n"
    assert users.tags() == plan["created"]
