"""Messages prepared earlier: committed again, behind an overwrite, and after others changed what they read."""

from __future__ import annotations

from typing import Any

import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitConflictError, InvalidInputError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.loop import Loop
from tidelake.spec.documents.snapshot import CommitKind
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

COLUMNS = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "INT"}
SUMS = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
HIDING = {
    "first-row": {"merge-engine": "first-row"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "vectors, sums": {**SUMS, "deletion-vectors.enabled": "true"},
}
LOOKING_UP = {
    **HIDING,
    "lookup": {**SUMS, "changelog-producer": "lookup"},
    "lookup, partial-update": {"merge-engine": "partial-update", "changelog-producer": "lookup"},
}
BUCKETS = {"fixed": "1", "dynamic": "-1", "moving": "-1", "postponed": "-2"}


def make(buckets: str = "fixed", **options: str) -> Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), clock=FakeClock(), ids=SeededIds(7))))
    keys = ["k"] if buckets == "moving" else ["p", "k"]
    kept = {"snapshot.num-retained.min": "100", "snapshot.num-retained.max": "100", "bucket": BUCKETS[buckets]}
    return lake.create_table("d.t", COLUMNS, primary_key=keys, partition_by=["p"], options={**kept, **options})


def row(key: int, value: int, part: str = "a", kind: str = "+I") -> dict[str, Any]:
    return {"p": part, "k": key, "v": value, "rowkind": kind}


def prepare(table: Table, *rows: dict[str, Any], user: str | None = None, identifier: int | None = None) -> Any:
    writer = table.new_write(user)
    writer.write(list(rows))
    return writer.prepare_commit(identifier)


def shown(table: Table) -> list[tuple[str, int, int]]:
    return sorted(tuple(each.values()) for each in table.to_arrow().to_pylist())


def is_whole(table: Table) -> bool:
    report = table.check(deep=True, rows=True)
    assert report.ok, report
    assert not report.orphans, report.orphans
    return True


# ------------------------------------------------------------------------------------------------ again


@pytest.mark.parametrize("noted", [True, False], ids=["", "without its note"])
@pytest.mark.parametrize("verb", ["commit", "overwrite"])
@pytest.mark.parametrize(
    "options",
    [{**SUMS, "full-compaction.delta-commits": "1"}, {"changelog-producer": "lookup"}, HIDING["vectors, sums"]],
    ids=["full compaction", "lookup", "vectors"],
)
def test_a_repeated_commit_whose_append_expired_and_whose_compaction_did_not_is_not_published_again(
    options: dict[str, str], verb: str, noted: bool
) -> None:
    """It was published again: files that were gone came into the table, and an overwrite wiped what others wrote."""
    table = make(**options)
    messages = prepare(table, row(1, 10), user="job", identifier=1)
    first = getattr(table.new_commit("job"), verb)(messages, identifier=1)
    assert len(first.snapshot_ids) == 2
    table.expire_snapshots(retain_max=1, retain_min=1)
    table.with_options({"write-only": "true"}).write([row(2, 20)])
    if not noted:  # a crash came before the note was written: only the snapshot of the compaction tells
        table.store.env.io.delete(table.store.progress.path("job"))
    again = getattr(table.new_commit("job"), verb)(messages, identifier=1)
    assert (again.snapshot_ids, again.repeated) == ((), True)
    table.compact()
    assert shown(table) == [("a", 1, 10), ("a", 2, 20)]
    assert is_whole(table)


@pytest.mark.parametrize("expired", [False, True])
def test_messages_that_were_rebased_when_they_were_committed_are_not_committed_twice(expired: bool) -> None:
    """The committer knew the files by their new names only, and a sum was doubled."""
    table = make(**SUMS)
    table.write([row(1, 1)])
    messages = prepare(table, row(1, 10))
    table.write([row(1, 100)])
    if expired:
        table.write([row(1, 0)])
        table.expire_snapshots(retain_max=1, retain_min=1)
    commit = table.new_commit()
    commit.commit(messages)
    with pytest.raises(InvalidInputError) as caught:
        commit.commit(messages)
    assert caught.value.code == "committed-before"
    assert shown(table) == [("a", 1, 111)]


# ------------------------------------------------------------------------------------------------ overwrites


@pytest.mark.parametrize("buckets", ["fixed", "dynamic"])
@pytest.mark.parametrize("options", LOOKING_UP.values(), ids=LOOKING_UP)
def test_an_overwrite_does_not_publish_a_compaction_that_looked_at_what_it_replaced(
    options: dict[str, str], buckets: str
) -> None:
    """Of first-row tables a row was lost, because its key was there before; sums had the old value in them."""
    table = make(buckets, **options)
    table.write([row(1, 10), row(2, 20)])
    messages = prepare(table, row(1, 100), row(3, 300))
    result = table.new_commit().overwrite(messages, dynamic=False)
    assert result.warnings == ()  # what was hidden is shown by a compaction of its own
    assert shown(table) == [("a", 1, 100), ("a", 3, 300)]
    table.compact(full=True)
    assert shown(table) == [("a", 1, 100), ("a", 3, 300)]
    assert is_whole(table)


@pytest.mark.parametrize("options", [{"merge-engine": "partial-update"}, SUMS, {}], ids=["partial", "sums", "moves"])
def test_rows_that_followed_their_keys_are_written_again_where_an_overwrite_removed_the_keys(
    options: dict[str, str],
) -> None:
    """They were committed to the partition in which their key had lived before the overwrite."""
    table = make("moving", **options)
    table.write([row(1, 5, "b")])
    messages = prepare(table, row(1, 2, "a"))
    table.write([row(9, 9, "c")], mode="overwrite")
    if options:
        with pytest.raises(CommitConflictError) as caught:
            table.new_commit().commit(messages)
        assert caught.value.code == "keys-moved"
        table.write([row(1, 2, "a")])
    else:
        table.new_commit().commit(messages)
    assert shown(table) == [("a", 1, 2), ("c", 9, 9)]


@pytest.mark.parametrize("expired", [False, True])
def test_a_key_that_was_deleted_does_not_draw_rows_to_where_it_lived(expired: bool) -> None:
    """Rows followed it to its old partition, unless snapshots had expired in between."""
    table = make("moving", **{"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"})
    messages = prepare(table, row(6, 100, "b"))
    table.write([row(6, 1, "a")])
    table.write([row(6, 1, "a", "-D")])
    if expired:
        table.expire_snapshots(retain_max=1, retain_min=1)
    table.new_commit().commit(messages)
    assert shown(table) == [("b", 6, 100)]
    assert is_whole(table)


# ------------------------------------------------------------------------------------------------ hidden rows


@pytest.mark.parametrize("buckets", BUCKETS)
@pytest.mark.parametrize("options", HIDING.values(), ids=HIDING)
def test_rows_of_the_second_of_two_prepared_commits_are_shown(options: dict[str, str], buckets: str) -> None:
    """They stayed hidden, because the compaction that would show them had to go, and nothing said so."""
    table = make(buckets, **options)
    prepared = [prepare(table, row(1, number), row(number * 2, number)) for number in (1, 2)]
    for messages in prepared:
        assert table.new_commit().commit(messages).warnings == ()
    assert [key for _, key, _ in shown(table)] == [1, 2, 4]
    assert is_whole(table)


@pytest.mark.parametrize("options", HIDING.values(), ids=HIDING)
def test_a_numbered_commit_whose_rows_stay_hidden_says_so_and_the_next_shows_them(options: dict[str, str]) -> None:
    table = make(**options)
    prepared = [prepare(table, row(number * 2, number), user=f"u{number}", identifier=1) for number in (1, 2)]
    table.new_commit("u1").commit(prepared[0], identifier=1)
    second = table.new_commit("u2").commit(prepared[1], identifier=1)
    assert len(second.warnings) == 1
    assert "shown by the next write" in second.warnings[0]
    table.write([row(9, 9)])
    assert [key for _, key, _ in shown(table)] == [2, 4, 9]


# ------------------------------------------------------------------------------------------------ afterwards


def test_whatever_fails_while_a_lost_compaction_is_cleared_away_is_not_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call raised although its rows were in the table, so that a retry doubled them."""
    table = make(**SUMS, **{"full-compaction.delta-commits": "1"})
    table.write([row(1, 1)])
    run = Loop.run

    def fail_to_compact(self: Loop, request: Any, outcome: Any) -> Any:
        if request.kind is CommitKind.COMPACT:
            monkeypatch.setattr(MemoryFileIO, "delete", fail_to_delete)
            raise OSError("disk is full")
        return run(self, request, outcome)

    def fail_to_delete(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Loop, "run", fail_to_compact)
    result = table.write([row(1, 10)])
    assert "disk is full" in result.warnings[0]
    monkeypatch.undo()
    assert shown(table) == [("a", 1, 11)]
