"""Automatic tags as commits create them, and the verb that creates what is due."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import tidelake as tl
from kit.small_tables import new_table as partitioned_table
from kit.small_tables import with_foreign_options
from kit.tables_with_files import add, clock_of, commit, every_file, new_table
from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.ops.maintain.auto_tags import find_automatic_tags, tag_what_is_due, wants_snapshot
from tidelake.table import Table
from tidelake.testing import MemoryFileIO

UTC = {"sink__process_time_zone": "UTC"}
BEGIN = ["2023-11-13", "2023-11-14", "2023-11-15"]
"""The test clock begins on 2023-11-14 at 22:13."""


def hours(table: Table, number: float) -> None:
    clock_of(table).advance(number * 3600)


def test_each_commit_creates_the_tag_that_is_due() -> None:
    table = new_table(tag__automatic_creation="process-time", **UTC)
    for name in "abcd":
        add(table, name)
        hours(table, 12)
    assert table.tags() == dict(zip(BEGIN[:2], (1, 2), strict=True)) | {BEGIN[2]: 4}


def test_a_tag_is_created_before_its_snapshot_expires() -> None:
    limits = {"snapshot__num_retained__min": "1", "snapshot__num_retained__max": "1"}
    table = new_table(tag__automatic_creation="process-time", **UTC, **limits)
    for name in "ab":
        add(table, name)
        hours(table, 24)
    assert table.store.snapshots.ids() == [2]
    assert table.tags() == dict(zip(BEGIN[:2], (1, 2), strict=True))
    assert table.at(tag=BEGIN[0]).files().num_rows == 1


def test_a_write_only_table_is_tagged_by_the_verb_alone() -> None:
    table = new_table(tag__automatic_creation="process-time", write_only="true", **UTC)
    for name in "ab":
        add(table, name)
        hours(table, 24)
    assert table.tags() == {}
    plan = table.create_automatic_tags(plan_only=True)
    assert [(each.name, each.snapshot.id) for each in plan.created] == [(BEGIN[0], 1), (BEGIN[1], 2)]
    assert table.tags() == {}
    assert table.create_automatic_tags() == plan
    assert table.tags() == dict(zip(BEGIN[:2], (1, 2), strict=True))
    assert table.create_automatic_tags().is_empty


def test_the_verb_deletes_tags_past_their_time_unless_that_is_switched_off() -> None:
    table = new_table(write_only="true")
    add(table, "a")
    table.create_tag("short", time_retained="1 h")
    hours(table, 2)
    assert table.with_options({"tag.time-expire-enabled": "false"}).create_automatic_tags().is_empty
    assert table.create_automatic_tags(plan_only=True).deletes == ("short",)
    assert table.create_automatic_tags().expired == ("short",)
    assert table.tags() == {}


def test_new_tags_have_the_default_lifetime_and_a_success_file() -> None:
    given = {"tag__default_time_retained": "2 h", "tag__create_success_file": "true"}
    table = new_table(tag__automatic_creation="process-time", **given, **UTC)
    add(table, "a")
    assert table.inspect.tags().column("time_retained").to_pylist() == ["PT2H"]
    assert table.store.env.io.exists(f"tag/tag-success-file/{BEGIN[0]}_SUCCESS")
    hours(table, 3)
    add(table, "b")  # the next day
    assert table.tags() == {BEGIN[1]: 2}


def test_the_files_of_a_tag_beyond_the_limit_go_with_it() -> None:
    limits = {"snapshot__num_retained__min": "1", "snapshot__num_retained__max": "1", "tag__num_retained_max": "1"}
    table = new_table(tag__automatic_creation="process-time", **UTC, **limits)
    for name in "ab":
        add(table, name)
        hours(table, 24)
    plain = new_table(**{key: value for key, value in limits.items() if key.startswith("snapshot")})
    for name in "ab":
        add(plain, name)
    assert table.tags() == {BEGIN[1]: 2}
    assert len(every_file(table)) == len(every_file(plain)) + 1  # the tag
    assert table.check(deep=True).ok


def test_a_job_goes_on_where_it_looked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tag__automatic_creation="process-time", write_only="true", **UTC)
    for number in range(6):
        add(table, f"f{number}")
    table.create_tag("2023-11-13", 1)
    known = find_automatic_tags(table.context)
    assert known.seen is not None
    assert known.seen.id == 6
    add(table, "more")
    reads: list[str] = []
    read = MemoryFileIO.read
    monkeypatch.setattr(
        MemoryFileIO,
        "read",
        lambda self, path, **how: reads.append(path) or read(self, path, **how),  # type: ignore[func-returns-value]
    )
    again = tag_what_is_due(table.context, known=known)
    assert again.seen is not None
    assert again.seen.id == 7
    assert [path for path in reads if "/snapshot-" in path] == ["snapshot/snapshot-6", "snapshot/snapshot-7"]


def test_after_a_rollback_a_job_looks_at_the_new_snapshots() -> None:
    table = new_table(tag__automatic_creation="process-time", write_only="true", **UTC)
    for number in range(3):
        add(table, f"f{number}")
    table.create_tag("2023-11-13", 1)
    known = find_automatic_tags(table.context)
    table.rollback_to(snapshot=1)
    hours(table, 24)
    add(table, "new")
    for number in range(4):
        add(table, f"g{number}")
    assert tag_what_is_due(table.context, known=known).plan.created[0].snapshot.id == 2


def test_a_stream_without_rows_commits_when_a_tag_is_due() -> None:
    table = new_table(tag__automatic_creation="process-time", **UTC)
    assert wants_snapshot(table.context)
    add(table, "a")
    assert not wants_snapshot(table.context)
    hours(table, 24)
    assert wants_snapshot(table.context)
    for other in ({"write-only": "true"}, {"tag.automatic-creation": "watermark"}, {"tag.automatic-creation": "none"}):
        assert not wants_snapshot(table.with_options(other).context)


def test_a_committer_that_creates_tags_can_be_pickled(tmp_path: Path) -> None:
    table = tl.connect(tmp_path, storage={"durability": "none"}).create_table("d.t", {"id": "INT"})
    writer = table.new_write()
    writer.write([{"id": 1}])
    committer = table.with_options({"tag.automatic-creation": "process-time"}).new_commit("job")
    pickle.loads(pickle.dumps(committer)).commit(writer.prepare_commit(), identifier=1)
    assert list(table.tags().values()) == [1]


def test_what_fails_after_a_commit_is_a_warning() -> None:
    table = new_table(tag__automatic_creation="process-time", **UTC)
    add(table, "a")
    io = table.store.env.io
    io.overwrite(f"tag/tag-{BEGIN[0]}", b"not a tag")
    result = table.write([{"id": 1}])
    assert result.snapshot_ids == (2,)
    assert any("creating automatic tags" in each for each in result.warnings)


def test_tag_callbacks_stop_the_tags_and_not_the_commit() -> None:
    table = new_table(tag__automatic_creation="process-time", write_only="true", **UTC)
    add(table, "a")
    theirs = with_foreign_options(table, {"tag.callbacks": "a.B"})
    with pytest.raises(UnsupportedError, match=r"tag\.callbacks"):
        theirs.create_automatic_tags()
    assert theirs.tags() == {}


# ------------------------------------------------------------------------------------------------ batch jobs


VERBS: tuple[Callable[[Table], object], ...] = (
    lambda t: t.write([{"id": 3, "dt": "a", "v": "x"}]),
    lambda t: t.write([{"id": 4, "dt": "a", "v": "y"}], mode="overwrite"),
    lambda t: t.update({"v": "'z'"}, "id = 4"),
    lambda t: t.merge([{"id": 5, "dt": "a", "v": "y"}], on=["id", "dt"]).when_not_matched_insert().run(),
    lambda t: t.compact(full=True),
    lambda t: t.delete("id = 4"),
    lambda t: t.new_commit().compact_manifests(),
    lambda t: t.truncate(),
)


@pytest.mark.parametrize("write_only", ["false", "true"])
def test_every_batch_verb_tags_what_it_committed(write_only: str) -> None:
    table = partitioned_table(
        keyed=True, tag__automatic_creation="batch", tag__batch__customized_name="job", write_only=write_only
    )
    for act in VERBS:
        before = table.latest_snapshot()
        act(table)
        assert table.latest_snapshot() != before or before is None
        assert table.tags() == {"job": table.latest_snapshot().id}


def test_numbered_commits_are_not_those_of_a_batch_job() -> None:
    table = new_table(tag__automatic_creation="batch", tag__batch__customized_name="job")
    commit(table, user="stream", identifier=1)
    assert table.tags() == {}
    add(table, "a")
    commit(table, user="stream", identifier=2)
    assert table.tags() == {"job": 2}


def test_a_batch_job_that_commits_nothing_tags_the_newest_snapshot() -> None:
    table = new_table(tag__automatic_creation="batch", tag__batch__customized_name="job")
    table.write([])
    assert table.tags() == {}
    add(table, "a")
    table.delete_tag("job")
    table.new_commit().commit([])
    assert table.tags() == {"job": 1}


# ------------------------------------------------------------------------------------------------ names


def test_a_snapshot_carries_one_automatic_tag() -> None:
    table = new_table(tag__automatic_creation="watermark")
    for name in "ab":
        add(table, name)
    table.create_tag("2024-05-01", 1)
    with pytest.raises(InvalidInputError, match="automatic tag already") as caught:
        table.create_tag("2024-05-02", 1)
    assert caught.value.facts["automatic"] == "2024-05-01"
    table.create_tag("by hand", 1)
    table.create_tag("2024-05-02", 2)
    assert table.create_tag("2024-05-02", 1, ignore_if_exists=True) == "2024-05-02"
    with pytest.raises(InvalidInputError, match="automatic tag already"):
        table.replace_tag("2024-05-01", 2)
    assert table.replace_tag("2024-05-01", 1, time_retained="1 d").after.id == 1
    assert table.tags() == {"2024-05-01": 1, "2024-05-02": 2, "by hand": 1}
