"""What changes a table tells of, producer by producer: which rows, in which snapshot, exactly once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kit.changelogs import changelog, changelog_files, changelogs, numbered_changelog
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import StorageError
from tidelake.files.write.keyed import KeyedWriter
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import Committable, CompactIncrement
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

Row = tuple[Any, ...]
COLUMNS = {"k": "INT NOT NULL", "v": "INT", "w": "STRING"}
FEW_RUNS = {"num-sorted-run.compaction-trigger": "100", "num-levels": "6"}


@pytest.fixture
def make() -> Callable[..., Table]:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))

    def table(producer: str, columns: dict[str, str] | None = None, **options: str) -> Table:
        given = {key.replace("__", "."): value for key, value in options.items()}
        return lake.create_table(
            "d.t",
            columns or COLUMNS,
            primary_key=["k"],
            options={"bucket": "1", "changelog-producer": producer, **given},
        )

    return table


def put(table: Table, *rows: Row, **how: Any) -> None:
    """Write rows that begin with their kind."""
    names = table.schema.names
    table.write([dict(zip(("rowkind", *names), row, strict=False)) for row in rows], **how)


def latest(table: Table) -> int:
    return table.store.snapshots.latest_id() or 0


def told(table: Table, since: int = 0) -> list[Row]:
    return [row for number in range(since + 1, latest(table) + 1) for row in changelog(table, number)]


# ------------------------------------------------------------------------------------------------ the worked example

COMMITS = ([("+I", 1, 1)], [("+U", 1, 2), ("+U", 1, 3)], [("-D", 1, 3)], [("-D", 1, 3)])
EXAMPLE = {
    ("none", ""): ([], [], [], []),
    ("input", ""): COMMITS,
    ("lookup", ""): ([("+I", 1, 1)], [("-U", 1, 1), ("+U", 1, 3)], [("-D", 1, 3)], []),
    ("full-compaction", "2"): ([], [("+I", 1, 3)], [], [("-D", 1, 3)]),
    ("full-compaction", ""): ([("+I", 1, 1)], [("-U", 1, 1), ("+U", 1, 3)], [("-D", 1, 3)], []),
}


@pytest.mark.parametrize(("producer", "every"), EXAMPLE)
def test_the_worked_example(make, producer, every):
    more = {"full-compaction.delta-commits": every} if every else {}
    table = make(producer, {"k": "INT NOT NULL", "v": "INT"}, **more)
    for number, (rows, expected) in enumerate(zip(COMMITS, EXAMPLE[producer, every], strict=True), start=1):
        before = latest(table)
        put(table, *rows, commit_user="u", identifier=number)
        assert told(table, before) == list(expected), number
        kinds = {table.snapshot(n).commit_kind.value for n in changelogs(table) if n > before}
        assert kinds <= ({"APPEND"} if producer == "input" else {"COMPACT"})
    assert table.check().ok


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_an_update_to_the_same_values_is_told_unless_rows_are_deduplicated(make, producer):
    table = make(producer)
    for _ in range(2):
        put(table, ("+I", 1, 1, "a"))
    assert told(table) == [("+I", 1, 1, "a"), ("-U", 1, 1, "a"), ("+U", 1, 1, "a")]
    table = table.alter(set_options={"changelog-producer.row-deduplicate": "true"})
    before = latest(table)
    put(table, ("+I", 1, 1, "a"))
    assert told(table, before) == []
    put(table, ("+I", 1, None, "a"))
    put(table, ("+I", 1, None, "a"))
    assert told(table, before) == [("-U", 1, 1, "a"), ("+U", 1, None, "a")]


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_columns_that_do_not_count_are_not_compared(make, producer):
    how = {"changelog-producer.row-deduplicate": "true", "changelog-producer.row-deduplicate-ignore-fields": "w"}
    table = make(producer, **how)
    put(table, ("+I", 1, 1, "a"))
    put(table, ("+I", 1, 1, "b"))
    put(table, ("+I", 1, 2, "c"))
    assert told(table) == [("+I", 1, 1, "a"), ("-U", 1, 1, "b"), ("+U", 1, 2, "c")]


def test_nested_values_are_compared_by_what_they_hold(make):
    columns = {"k": "INT NOT NULL", "a": "ARRAY<INT>", "m": "MAP<STRING, INT>", "r": "ROW<x INT, y STRING>"}
    table = make("lookup", columns, **{"changelog-producer.row-deduplicate": "true"})
    same = ("+I", 1, [1, None], {"a": 1}, {"x": 1, "y": None})
    put(table, same)
    put(table, same)
    assert [row[0] for row in told(table)] == ["+I"]
    put(table, ("+I", 1, [1, 2], {"a": 1}, {"x": 1, "y": None}))
    assert [row[0] for row in told(table)] == ["+I", "-U", "+U"]


# ------------------------------------------------------------------------------------------------ where old rows lie


def test_the_old_row_is_found_wherever_it_lies(make):
    """In the same rewrite, in a file two levels deeper, and nowhere."""
    table = make("lookup", **FEW_RUNS)
    put(table, *[("+I", k, k, "a" * 500) for k in range(2000)])
    put(table, ("+I", 1, -1, "b"))
    assert sorted(table.files().column("level").to_pylist()) == [4, 5]
    before = latest(table)
    put(table, ("+U", 1, -2, "c"), ("+U", 7, -7, "d"), ("+I", 5000, 1, "e"))
    assert told(table, before) == [
        ("-U", 1, -1, "b"),
        ("+U", 1, -2, "c"),
        ("-U", 7, 7, "a" * 500),
        ("+U", 7, -7, "d"),
        ("+I", 5000, 1, "e"),
    ]


def test_changes_of_a_partial_update_are_whole_rows(make):
    table = make("lookup", **{"merge-engine": "partial-update"}, **FEW_RUNS)
    put(table, *[("+I", k, k, "a" * 500) for k in range(2000)])
    put(table, ("+I", 3, None, "new"))
    put(table, ("+I", 3, 33, None))
    assert told(table, 2) == [
        ("-U", 3, 3, "a" * 500),
        ("+U", 3, 3, "new"),
        ("-U", 3, 3, "new"),
        ("+U", 3, 33, "new"),
    ]
    assert {"k": 3, "v": 33, "w": "new"} in table.to_arrow().to_pylist()


def test_changes_keep_the_sequence_numbers_of_their_rows(make):
    table = make("lookup")
    put(table, ("+I", 1, 1, "a"), ("+I", 2, 2, "b"))
    put(table, ("+I", 2, 3, "c"))
    assert [(number, kind) for number, kind, _ in numbered_changelog(table, 4)] == [(1, "-U"), (2, "+U")]


def test_first_rows_are_told_once_and_nothing_else(make):
    table = make("lookup", **{"merge-engine": "first-row"})
    put(table, ("+I", 1, 1, "a"), ("+I", 1, 2, "b"))
    put(table, ("+I", 1, 3, "c"), ("+I", 2, 4, "d"))
    table.compact(full=True)
    assert told(table) == [("+I", 1, 1, "a"), ("+I", 2, 4, "d")]


# ------------------------------------------------------------------------------------------------ full compactions


def test_a_large_file_that_is_only_moved_is_told_of_nevertheless(make):
    table = make("full-compaction", **{"target-file-size": "1 kb", "compaction.small-file-ratio": "0.1"})
    rows = [("+I", k, k, "x" * 50) for k in range(200)]
    put(table, *rows)
    names = [set(table.files(snapshot=each).column("file_name").to_pylist()) for each in (1, 2)]
    assert names[0] == names[1], "nothing was moved"
    assert told(table) == rows


def test_compactions_to_middle_levels_tell_nothing(make):
    table = make("full-compaction", **{"full-compaction.delta-commits": "1000"}, **FEW_RUNS)
    put(table, *[("+I", k, k, "a" * 500) for k in range(2000)], commit_user="u", identifier=1000)
    first = latest(table)
    put(table, ("+I", 1, 5, "b"), commit_user="u", identifier=1001)
    table.with_options({"compaction.force-up-level-0": "true"}).compact()
    assert sorted(table.files().column("level").to_pylist()) == [4, 5]
    assert told(table, first) == []
    table.compact(full=True)
    assert told(table, first) == [("-U", 1, 1, "a" * 500), ("+U", 1, 5, "b")]


# ------------------------------------------------------------------------------------------------ the input


def test_the_input_is_told_row_by_row_in_the_order_of_the_buffer(make):
    table = make("input", **{"sequence.field": "v"})
    put(table, ("+I", 2, 5, "a"), ("+I", 1, 9, "b"), ("-U", 1, 3, "c"), ("+U", 2, None, "d"), ("+U", 1, 3, "e"))
    assert told(table) == [
        ("-U", 1, 3, "c"),
        ("+U", 1, 3, "e"),
        ("+I", 1, 9, "b"),
        ("+U", 2, None, "d"),
        ("+I", 2, 5, "a"),
    ]
    assert [number for number, _, _ in numbered_changelog(table, 1)] == [2, 4, 1, 3, 0]


def test_rows_that_waited_on_disk_are_told_as_well(make):
    table = make("input", **{"write-buffer-size": "20 kb"})
    rows = [("+U", k % 300, k, "x" * 40) for k in range(3000)]
    put(table, *rows)
    found = told(table)
    assert sorted(found, key=lambda row: row[2]) == rows
    assert [row[1] for row in found] == sorted(row[1] for row in found)
    assert table.to_arrow().num_rows == 300


def test_local_merge_comes_before_the_input_is_told(make):
    table = make("input", **{"local-merge-buffer-size": "1 mb"})
    put(table, ("+I", 1, 1, "a"), ("+U", 1, 2, "b"))
    assert told(table) == [("+U", 1, 2, "b")]


def test_ignored_deletions_are_not_told(make):
    table = make("input", **{"ignore-delete": "true"})
    put(table, ("+I", 1, 1, "a"), ("-D", 1, 1, "a"))
    assert told(table) == [("+I", 1, 1, "a")]


def test_changelog_files_have_their_own_name_format_and_codec(make):
    how = {"changelog-file.prefix": "log-", "changelog-file.format": "avro", "changelog-file.compression": "null"}
    table = make("input", **how)
    put(table, ("+I", 1, 1, "a"))
    (file,) = changelog_files(table, 1)
    assert file.file_name.startswith("log-")
    assert file.file_name.endswith(".avro")
    assert table.files().column("file_name").to_pylist()[0].endswith(".parquet")


# ------------------------------------------------------------------------------------------------ who tells, and when


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_an_overwrite_tells_nothing_and_leaves_no_changelog_file(make, producer):
    table = make(producer)
    put(table, ("+I", 1, 1, "a"))
    before, there = latest(table), _changelog_paths(table)
    put(table, ("+I", 2, 2, "b"), mode="overwrite")
    assert told(table, before) == []
    assert _changelog_paths(table) == there
    assert table.to_arrow().to_pylist() == [{"k": 2, "v": 2, "w": "b"}]


def _changelog_paths(table: Table) -> set[str]:
    names = {file.path.rpartition("/")[2] for file in table.store.env.io.list("bucket-0")}
    return {name for name in names if name.startswith("changelog-")}


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_writers_that_only_write_leave_the_changes_to_a_compaction(make, producer):
    table = make(producer, **{"write-only": "true"})
    put(table, ("+I", 1, 1, "a"))
    put(table, ("+I", 1, 2, "b"), ("+I", 2, 2, "b"))
    assert told(table) == []
    table.compact(full=True)
    assert told(table) == [("+I", 1, 2, "b"), ("+I", 2, 2, "b")]


def test_the_dedicated_job_tells_of_what_others_wrote(make):
    table = make("lookup", **{"write-only": "true"})
    put(table, ("+I", 1, 1, "a"))
    table.keep_compacted(max_rounds=2)
    put(table, ("+U", 1, 2, "b"))
    table.keep_compacted(max_rounds=2)
    assert told(table) == [("+I", 1, 1, "a"), ("-U", 1, 1, "a"), ("+U", 1, 2, "b")]


def test_commits_that_do_not_wait_tell_later(make):
    table = make("lookup", **{"lookup-wait": "false", "lookup-compact": "gentle", "lookup-compact.max-interval": "3"})
    writer, commit = table.new_write("u"), table.new_commit("u")
    for number in range(1, 8):
        writer.write(_batch(table, [(1, number, "a")]))
        commit.commit(writer.prepare_commit(number), identifier=number)
    writer.close()
    kinds = [kind for kind, *_ in told(table)]
    assert kinds
    assert len(kinds) < 13
    assert kinds[0] == "+I"
    put(table, ("+U", 1, 99, "z"))
    table.compact(full=True)
    found = told(table)
    assert found[-1] == ("+U", 1, 99, "z")
    assert all(one[1:] == two[1:] for one, two in zip(found[0::2], found[1::2], strict=False) if one[0] != "+I")


def _batch(table: Table, rows: list[Row]) -> pa.RecordBatch:
    given = [dict(zip(table.schema.names, row, strict=True)) for row in rows]
    return pa.RecordBatch.from_pylist(given, schema=table.schema.to_arrow())


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "first-row"])
def test_a_crash_between_the_two_snapshots_tells_of_the_changes_once(make, engine, repeated):
    """Whether the commit is repeated, or the next writer finds the rows on level 0."""
    table = make("lookup", **{"merge-engine": engine})
    put(table, ("+I", 1, 1, "a"))
    writer = table.new_write("u")
    writer.write(_batch(table, [(1, 2, "b"), (2, 2, "c")]))
    messages = writer.prepare_commit(7)
    half = [replace(message, compact=CompactIncrement()) for message in messages]
    Committer(table.context, "u").commit(Committable(messages=tuple(half), identifier=7))
    assert told(table) == [("+I", 1, 1, "a")]
    if repeated:
        again = Committer(table.context, "u").commit(Committable(messages=tuple(messages), identifier=7))
        assert len(again.snapshot_ids) == 1
        assert Committer(table.context, "u").commit(Committable(messages=tuple(messages), identifier=7)).repeated
    put(table, ("+I", 3, 3, "d"))
    changed = [] if engine == "first-row" else [("-U", 1, 1, "a"), ("+U", 1, 2, "b")]
    assert told(table) == [("+I", 1, 1, "a"), *changed, ("+I", 2, 2, "c"), ("+I", 3, 3, "d")]


def test_a_compaction_that_lost_its_race_tells_nothing_and_the_next_one_everything(make):
    table = make("lookup")
    put(table, ("+I", 1, 1, "a"))
    slow, fast = table.new_write("slow"), table.new_write("fast")
    slow.write(_batch(table, [(1, 2, "slow"), (5, 5, "slow")]))
    fast.write(_batch(table, [(1, 3, "fast")]))
    waiting = slow.prepare_commit(1)
    table.new_commit("fast").commit(fast.prepare_commit(1), identifier=1)
    result = table.new_commit("slow").commit(waiting, identifier=1)
    assert result.compaction_lost
    assert told(table) == [("+I", 1, 1, "a"), ("-U", 1, 1, "a"), ("+U", 1, 3, "fast")]
    put(table, ("+I", 9, 9, "z"))
    assert told(table)[3:] == [
        ("-U", 1, 3, "fast"),
        ("+U", 1, 2, "slow"),
        ("+I", 5, 5, "slow"),
        ("+I", 9, 9, "z"),
    ]


def test_aborted_writers_leave_no_changelog_files(make):
    table = make("input")
    writer = table.new_write("u")
    writer.write(_batch(table, [(1, 2, "b")]))
    table.new_commit("u").abort(writer.prepare_commit(1))
    assert _changelog_paths(table) == set()


def test_a_compaction_that_fails_leaves_no_changelog_files(make, monkeypatch):
    table = make("lookup", **{"write-only": "true"})
    put(table, *[("+I", k, k, "a") for k in range(10)])
    close = KeyedWriter.close

    def fail(self):
        close(self)
        raise StorageError("no more space")

    monkeypatch.setattr(KeyedWriter, "close", fail)
    with pytest.raises(StorageError):
        table.compact(full=True)
    monkeypatch.undo()
    assert _changelog_paths(table) == set()
    table.compact(full=True)
    assert len(told(table)) == 10


def test_numbers_of_overtaken_rows_move_in_the_changelog_too(make):
    table = make("input")
    slow, fast = table.new_write("slow"), table.new_write("fast")
    slow.write(_batch(table, [(1, 2, "slow")]))
    fast.write(_batch(table, [(1, 3, "fast"), (1, 4, "fast")]))
    waiting = slow.prepare_commit(1)
    table.new_commit("fast").commit(fast.prepare_commit(1), identifier=1)
    table.new_commit("slow").commit(waiting, identifier=1)
    assert table.to_arrow().to_pylist() == [{"k": 1, "v": 2, "w": "slow"}]
    assert [number for number, _, _ in numbered_changelog(table, 2)] == [2]
