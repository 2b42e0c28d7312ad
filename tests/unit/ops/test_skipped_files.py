"""A compaction of new files skipped a file that another commit added in between: the order of the rows still holds.

The sequence numbers of the new files need not overlap those of the file in between. It is enough that the rows with the
first numbers were merged into later ones, or that one writer prepared both commits. A compaction that merged the new
files with older ones would then put the older rows above those in between.
"""

from __future__ import annotations

from typing import Any

import pytest

from kit.keyed_writers import Kit, level_counts, part, shown
from tidelake.errors import StorageError
from tidelake.ops.commit.committer import Committer
from tidelake.table import Table

ONE_PARTITION = b"\x00" * 12
EAGER = {"num-sorted-run.compaction-trigger": "2"}


@pytest.fixture
def kit() -> Kit:
    return Kit()


def kinds(*rows: tuple[int, int | None, str]) -> list[dict[str, Any]]:
    return [{"k": k, "n": n, "rowkind": kind} for k, n, kind in rows]


DELETES_KEY_1 = kinds((0, 7, "+I"), (0, 8, "+I"), (1, None, "-D"))
"""The first sequence number is not in the file, because the first two rows are merged."""


def beside(table: Table) -> Table:
    """Another job that only writes."""
    return table.with_options({"write-only": "true"})


def prepared(table: Table, rows: list[dict[str, Any]]) -> list[Any]:
    writer = table.new_write()
    writer.write(rows)
    return writer.prepare_commit()


def overtaken(table: Table) -> list[Any]:
    """Messages with a compaction of all rows, and another commit to the same bucket before them."""
    table.write(part(1, n=0))
    messages = prepared(table, DELETES_KEY_1)
    assert [len(each.compact.before) for each in messages] == [2]
    beside(table).write(part(1, n=3))
    return messages


def fail_after_the_written_part(
    table: Table, messages: list[Any], monkeypatch: pytest.MonkeyPatch, publishing: str
) -> None:
    """Publish the rows, but fail in the method that publishes the compaction."""

    def fail(*_: Any) -> None:
        raise StorageError("storage failed once")

    with monkeypatch.context() as patched:
        patched.setattr(Committer, publishing, fail)
        with pytest.raises(StorageError):
            table.new_commit("u").commit(messages, identifier=1)


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_a_column_that_an_overtaking_commit_updated_does_not_go_back_to_its_older_value(kit, kind):
    options = {"merge-engine": "partial-update", "file.format": kind, "bucket": "1", **EAGER}
    columns = {"k": "INT NOT NULL", "n": "INT", "v": "STRING"}
    table = kit.lake.create_table("d.t", columns, primary_key=["k"], options=options)
    table.write([{"k": 1, "n": 0, "v": "a"}])
    ours = [{"k": 0, "n": 1, "v": None}, {"k": 0, "n": 2, "v": None}, {"k": 1, "n": None, "v": "z"}]
    messages = prepared(table, ours)
    beside(table).write([{"k": 1, "n": 3, "v": "b"}])
    result = table.new_commit().commit(messages)
    expected = [{"k": 0, "n": 2, "v": None}, {"k": 1, "n": 3, "v": "z"}]
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["k"]) == expected
    assert result.compaction_lost
    table.compact(full=True)
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["k"]) == expected


def test_a_row_that_an_overtaking_commit_wrote_is_deleted_by_the_later_commit(kit):
    table = kit.table(**EAGER)
    messages = overtaken(table)
    result = table.new_commit().commit(messages)
    assert shown(table) == {0: 8}
    assert result.compaction_lost
    report = table.check(deep=True)
    assert report.ok
    assert not report.orphans
    table.compact(full=True)
    assert shown(table) == {0: 8}


def test_a_row_of_an_expired_commit_is_deleted_by_the_later_commit(kit):
    table = kit.table(**EAGER)
    messages = overtaken(table)
    assert Committer(table.context, "other").compact_manifests().snapshot_ids
    table.expire_snapshots(retain_max=1, retain_min=1)
    table.new_commit().commit(messages)
    assert shown(table) == {0: 8}


def test_a_deletion_that_is_prepared_before_the_row_is_committed_holds(kit):
    table = kit.table()
    table.write(part(0, n=0))
    writer = table.new_write()
    writer.write(part(1, n=1))
    first = writer.prepare_commit(1)
    writer.write(kinds((1, None, "-D")))
    writer.compact(ONE_PARTITION, 0, full=True)
    second = writer.prepare_commit(2)
    for number, messages in enumerate((first, second), start=1):
        table.new_commit("u").commit(messages, identifier=number)
    assert shown(table) == {0: 0}


def test_a_running_compaction_does_not_skip_a_row_that_is_committed_before_its_files(kit):
    table = kit.table(**EAGER)
    table.write(part(1, n=0))
    writer = table.new_write()
    writer.write(DELETES_KEY_1)
    first = writer.prepare_commit(1)
    assert [len(each.compact.before) for each in first] == [0], "the compaction is still running"
    beside(table).write(part(1, n=3))
    table.new_commit("u").commit(first, identifier=1)
    kit.beside.run()
    writer.write(part(2, n=2))
    table.new_commit("u").commit(writer.prepare_commit(2), identifier=2)
    assert shown(table) == {0: 8, 2: 2}
    writer.close()
    assert table.check(deep=True).ok


def test_a_repeated_commit_does_not_publish_a_compaction_that_its_first_attempt_left_out(kit, monkeypatch):
    table = kit.table(**EAGER)
    messages = overtaken(table)
    fail_after_the_written_part(table, messages, monkeypatch, "_after_rebase")
    assert shown(table) == {0: 8}
    again = table.new_commit("u").commit(messages, identifier=1)
    assert again.repeated
    assert again.compaction_lost
    assert shown(table) == {0: 8}


def test_a_repeated_commit_publishes_the_compaction_if_no_other_commit_came_in_between(kit, monkeypatch):
    table = kit.table(**EAGER)
    table.write(part(1, n=0))
    messages = prepared(table, DELETES_KEY_1)
    fail_after_the_written_part(table, messages, monkeypatch, "_compact_part")
    again = table.new_commit("u").commit(messages, identifier=1)
    assert len(again.snapshot_ids) == 1
    assert not again.compaction_lost
    assert shown(table) == {0: 8}


def test_compactions_of_other_buckets_stay(kit):
    table = kit.table(bucket="4", **EAGER)
    table.write(part(*range(40), n=0))
    messages = prepared(table, part(0, n=9) + part(*range(40), n=1))
    assert [len(each.compact.before) for each in messages] == [2, 2, 2, 2]
    beside(table).write(part(0, n=3))
    result = table.new_commit().commit(messages)
    assert result.compaction_lost
    assert level_counts(table)[0] == 3, "one bucket has the files of all three commits"
    assert shown(table) == dict.fromkeys(range(40), 1)
