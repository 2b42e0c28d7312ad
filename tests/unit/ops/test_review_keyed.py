"""Writers, rebases and row-level changes of primary-key tables when something else happens in between."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from kit.keyed_writers import Kit, level_counts, numbered, part, shown
from tidelake.errors import CommitConflictError, InvalidInputError, StorageError
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.loop import Loop
from tidelake.ops.write import keyed as keyed_module
from tidelake.table import Table


@pytest.fixture
def kit() -> Kit:
    return Kit()


def beside(table: Table) -> Table:
    """Another job that only writes."""
    return table.with_options({"write-only": "true"})


def fails_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Make a method fail the first time it is called."""
    real: Callable[..., Any] = getattr(owner, name)
    calls: list[int] = []

    def method(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise StorageError("storage failed once")
        return real(*given)

    monkeypatch.setattr(owner, name, method)


def files_of(kit: Kit, buckets: int) -> set[str]:
    return {each.path for bucket in range(buckets) for each in kit.io.list(f"d.db/t/bucket-{bucket}")}


def referenced(table: Table) -> set[str]:
    return set(table.files()["file_name"].to_pylist())


# ------------------------------------------------------------------------------------------------ rebases


def carried(kit: Kit) -> tuple[Table, list[Any]]:
    """A table, and messages with a row and with a compaction that read only rows of earlier commits."""
    table = kit.table(**{"num-sorted-run.compaction-trigger": "3"})
    writer = table.new_write()
    for number in range(1, 4):
        numbered(table, writer, number, part(number, n=number))
    kit.beside.run()
    writer.write(part(9, n=9))
    messages = writer.prepare_commit(4)
    assert [(len(each.data.new_files), len(each.compact.before)) for each in messages] == [(1, 3)]
    return table, messages


def test_files_of_a_compaction_that_goes_with_rebased_rows_are_there_when_it_is_published(kit):
    table, messages = carried(kit)
    beside(table).write(part(50, n=50))
    result = table.new_commit("u").commit(messages, identifier=4)
    assert len(result.snapshot_ids) == 2
    assert not result.compaction_lost
    assert shown(table) == {1: 1, 2: 2, 3: 3, 9: 9, 50: 50}


def test_a_compaction_of_rows_that_are_written_again_is_left_to_the_next_one_and_leaves_no_file(kit):
    table = kit.table(**{"num-sorted-run.compaction-trigger": "1"})
    before = kit.data_files()
    writer = table.new_write()
    writer.write(part(1, 2, n=1))
    writer.compact(b"\x00" * 12, 0, full=True)
    messages = writer.prepare_commit(1)
    assert messages[0].compact.before
    beside(table).write(part(1, n=0))
    result = table.new_commit("u").commit(messages, identifier=1)
    assert result.compaction_lost
    assert shown(table) == {1: 1, 2: 1}
    assert kit.data_files() - before == referenced(table)


def test_only_the_compactions_of_rebased_buckets_are_left_out(kit):
    table = kit.table(bucket="4", **{"num-sorted-run.compaction-trigger": "1"})
    writer = table.new_write()
    writer.write(part(*range(40), n=1))
    for bucket in range(4):
        writer.compact(b"\x00" * 12, bucket, full=True)
    messages = writer.prepare_commit(1)
    beside(table).write(part(0, n=0))
    result = table.new_commit("u").commit(messages, identifier=1)
    assert result.compaction_lost
    assert level_counts(table) == {0: 2, 1: 3}
    assert shown(table) == dict.fromkeys(range(40), 1)


def test_a_commit_that_failed_after_a_rebase_can_be_repeated(kit, monkeypatch):
    table = kit.table(**{"write-only": "true"})
    table.write(part(1, n=1))
    writer = table.new_write()
    writer.write(part(1, 2, n=2))
    messages = writer.prepare_commit(1)
    table.write(part(1, n=3))
    fails_once(monkeypatch, Loop, "_publish")
    with pytest.raises(StorageError):
        table.new_commit("u").commit(messages, identifier=1)
    assert {file.file_name for each in messages for file in each.data.new_files} <= kit.data_files()
    table.new_commit("u").commit(messages, identifier=1)
    assert shown(table) == {1: 2, 2: 2}
    assert kit.data_files() == referenced(table)


def test_a_rebase_that_fails_half_way_leaves_the_files_of_the_messages_alone(kit, monkeypatch):
    from tidelake.ops.write import sequence_rebaser

    table = kit.table(bucket="2", **{"write-only": "true"})
    writer = table.new_write()
    writer.write(part(*range(20), n=1))
    messages = writer.prepare_commit(1)
    table.write(part(*range(20), n=0))
    there = files_of(kit, 2)
    real, calls = sequence_rebaser._above, []

    def second_fails(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise StorageError("storage failed once")
        return real(*given)

    monkeypatch.setattr(sequence_rebaser, "_above", second_fails)
    with pytest.raises(StorageError):
        table.new_commit("u").commit(messages, identifier=1)
    assert files_of(kit, 2) == there
    table.new_commit("u").commit(messages, identifier=1)
    assert shown(table) == dict.fromkeys(range(20), 1)


def test_an_abort_removes_rows_that_the_same_job_compacted_already(kit):
    table = kit.table(**{"num-sorted-run.compaction-trigger": "1"})
    writer = table.new_write()
    writer.write(part(1, n=1))
    writer.compact(b"\x00" * 12, 0, full=True)
    messages = writer.prepare_commit()
    assert kit.data_files()
    table.new_commit("u").abort(messages)
    assert not kit.data_files()


# ------------------------------------------------------------------------------------------------ bucket counts


@pytest.mark.parametrize("count", [1, 4])
def test_rows_that_were_written_before_a_rescale_are_dealt_to_the_new_buckets(kit, count):
    table = kit.table(bucket="2")
    table.write(part(*range(10), n=1))
    writer = table.new_write()
    writer.write(part(*range(10), n=2))
    messages = writer.prepare_commit()
    table.rescale(count)
    table.new_commit().commit(messages)
    assert table.to_arrow().num_rows == 10
    assert shown(table) == dict.fromkeys(range(10), 2)
    assert table.check(deep=True).ok


def test_rows_of_another_partition_than_the_rescaled_one_are_taken(kit):
    table = kit.lake.create_table(
        "d.p",
        {"p": "INT NOT NULL", "k": "INT NOT NULL"},
        primary_key=["p", "k"],
        partition_by=["p"],
        options={"bucket": "2"},
    )
    table.write([{"p": p, "k": k} for p in range(2) for k in range(5)])
    writer = table.new_write()
    writer.write([{"p": 0, "k": k} for k in range(8)])
    messages = writer.prepare_commit()
    table.rescale(4, where="p = 1")
    table.new_commit().commit(messages)
    assert table.count() == 13


# ------------------------------------------------------------------------------------------------ dynamic buckets


@pytest.mark.parametrize("between", ["first round", "compaction"])
def test_a_key_keeps_its_dynamic_bucket_although_the_round_that_placed_it_is_not_committed(kit, between):
    table = kit.table(bucket="-1", **{"dynamic-bucket.target-row-num": "5"})
    writer, commit = table.new_write(), table.new_commit("u")
    writer.write(part(*range(7), n=1))
    first = writer.prepare_commit(1)
    if between == "compaction":
        commit.commit(first, identifier=1)
    writer.write(part(*range(7, 20), n=2))
    second = writer.prepare_commit(2)
    if between == "compaction":
        table.compact(full=True)
    else:
        commit.commit(first, identifier=1)
    writer.write(part(*range(19, 2, -1), n=3))
    third = writer.prepare_commit(3)
    commit.commit(second, identifier=2)
    commit.commit(third, identifier=3)
    assert table.to_arrow().num_rows == 20
    assert shown(table) == {k: 1 if k < 3 else 3 for k in range(20)}


def test_dynamic_buckets_that_another_job_changed_are_looked_up_again(kit):
    table = kit.table(bucket="-1", **{"dynamic-bucket.target-row-num": "2"})
    writer, commit = table.new_write(), table.new_commit("u")
    writer.write(part(1, 2, n=1))
    commit.commit(writer.prepare_commit(1), identifier=1)
    table.write(part(9, 8, 7, n=2))
    writer.write(part(7, 3, 8, 4, 9, n=3))
    commit.commit(writer.prepare_commit(2), identifier=2)
    assert table.to_arrow().num_rows == 7
    assert shown(table) == {1: 1, 2: 1, 3: 3, 4: 3, 7: 3, 8: 3, 9: 3}


# ------------------------------------------------------------------------------------------------ the writer


def test_rows_that_came_while_a_compaction_ran_show_once_they_are_committed(kit):
    table = kit.table(
        **{"merge-engine": "first-row", "write-buffer-size": "1", "write-buffer-spillable": "false"},
    )
    writer = table.new_write()
    for k in range(1, 4):
        writer.write(part(k, n=k))
    table.new_commit().commit(writer.prepare_commit())
    assert shown(table) == {1: 1, 2: 2, 3: 3}


def test_a_bucket_with_few_and_large_rows_does_not_fill_the_memory(kit):
    table = kit.lake.create_table(
        "d.s",
        {"k": "INT NOT NULL", "p": "INT NOT NULL", "s": "STRING"},
        primary_key=["k", "p"],
        partition_by=["p"],
        options={
            "bucket": "1",
            "write-buffer-size": "64 kb",
            "write-buffer-spillable": "false",
            "write-only": "true",
        },
    )
    writer = keyed_module.KeyedTableWriter(table.context)
    names = ["k", "p", "s"]
    fields = pa.schema([pa.field("k", pa.int32(), False), pa.field("p", pa.int32(), False), pa.field("s", pa.string())])
    most = 0
    for number in range(20):
        keys = [*range(number * 100, number * 100 + 100), number]
        rows = [keys, [0] * 100 + [1], [""] * 100 + ["x" * 20_000]]
        writer.write(pa.RecordBatch.from_pydict(dict(zip(names, rows, strict=True)), schema=fields))
        most = max(most, writer._buffer.bytes)
    assert most <= 64 << 10
    table.new_commit().commit(writer.prepare())
    assert table.count() == 2_020


def test_a_writer_that_lost_rows_by_an_error_prepares_nothing_until_it_is_closed(kit, monkeypatch):
    table = kit.table(
        **{"write-only": "true", "write-buffer-size": "512", "write-buffer-spillable": "false"},
    )
    fails_once(monkeypatch, keyed_module.KeyedTableWriter, "_write_files")
    writer = table.new_write()
    with pytest.raises(StorageError):
        writer.write(part(*range(100)))
    for again in (writer.prepare_commit, lambda: writer.write(part(1)), lambda: writer.compact(b"\x00" * 12, 0)):
        with pytest.raises(InvalidInputError) as caught:
            again()
        assert caught.value.code == "writer-failed"
    writer.close()
    assert not kit.data_files()
    writer.write(part(*range(100), n=1))
    table.new_commit().commit(writer.prepare_commit())
    assert shown(table) == dict.fromkeys(range(100), 1)


# ------------------------------------------------------------------------------------------------ row-level changes


@pytest.mark.parametrize("verb", ["delete", "update"])
def test_a_condition_that_names_no_column_reaches_rows_that_have_to_be_merged(kit, verb):
    table = kit.table(
        **{
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
            "delete.force-produce-changelog": "true",
            "write-only": "true",
        },
    )
    for _ in range(2):
        table.write(part(1, 2, n=1))
    result = table.delete("true") if verb == "delete" else table.update({"n": 7}, "true")
    assert result.rows == 2
    assert shown(table) == ({} if verb == "delete" else {1: 7, 2: 7})


# ------------------------------------------------------------------------------------------------ first row


def take_away(table: Table, how: str) -> None:
    if how == "delete":
        table.delete("k = 1")
    elif how == "truncate":
        table.truncate()
    else:
        table.write(part(2, n=5), mode="overwrite")


def large_first_row(kit: Kit) -> Table:
    """A table whose lowest level is too large to be taken in by the compaction of a few rows."""
    table = kit.table(**{"merge-engine": "first-row"})
    table.write(part(*range(20_000), n=1))
    table.compact(full=True)
    return table


@pytest.mark.parametrize("how", ["delete", "truncate", "overwrite"])
def test_a_first_row_is_not_lost_to_one_that_was_taken_away_before_it_was_committed(kit, how):
    table = large_first_row(kit)
    writer = table.new_write()
    writer.write(part(1, 30_000, n=2))
    messages = writer.prepare_commit()
    assert [(len(each.compact.before), len(each.compact.after)) for each in messages] == [(1, 1)]
    take_away(table, how)
    assert table.new_commit().commit(messages).compaction_lost
    table.compact()
    found = shown(table)
    assert (found[1], found[30_000]) == (2, 2)


# ------------------------------------------------------------------------------------------------ lost compactions


def lost_compaction(kit: Kit, **options: str) -> tuple[Table, list[Any]]:
    """A table, and messages whose compaction another one overtakes; all that is there belongs to the table."""
    table = kit.table(**{"num-sorted-run.compaction-trigger": "3", **options})
    for number in range(3):
        beside(table).write(part(*range(20), n=number))
    writer = table.new_write()
    writer.write(part(50, n=50))
    messages = writer.prepare_commit()
    assert all(each.compact.after for each in messages)
    return table, messages


@pytest.mark.parametrize(
    "options",
    [{}, {"changelog-producer": "lookup"}, {"deletion-vectors.enabled": "true"}, {"changelog-producer": "input"}],
    ids=str,
)
def test_a_compaction_that_lost_its_race_leaves_no_file(kit, options):
    table, messages = lost_compaction(kit, **options)
    table.compact(full=True)
    assert table.new_commit().commit(messages).compaction_lost
    assert shown(table.with_options({"deletion-vectors.merge-on-read": "true"})) == {
        **dict.fromkeys(range(20), 2),
        50: 50,
    }
    assert not table.check(deep=True).orphans


def test_files_of_messages_that_are_committed_twice_are_not_taken_from_the_first_commit(kit):
    """Nobody may do that, but rows must not go with it: the second time the compaction finds its inputs gone."""
    table, messages = lost_compaction(kit)
    assert not table.new_commit("one").commit(messages).compaction_lost
    with suppress(CommitConflictError, InvalidInputError):
        table.new_commit("two").commit(messages)
    assert shown(table) == {**dict.fromkeys(range(20), 2), 50: 50}
    assert table.check(deep=True).ok


def test_files_of_a_lost_compaction_stay_where_snapshots_that_would_tell_are_gone(kit):
    table, messages = lost_compaction(kit)
    table.compact(full=True)
    assert Committer(table.context, "other").compact_manifests().snapshot_ids
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert table.new_commit().commit(messages).compaction_lost
    assert len(table.check(deep=True).orphans) == sum(len(each.compact.after) for each in messages)


def test_files_of_a_lost_numbered_compaction_stay_because_a_twin_may_publish_them(kit):
    table, messages = carried(kit)
    table.compact(full=True)
    result = table.new_commit("u").commit(messages, identifier=4)
    assert result.compaction_lost
    assert len(table.check(deep=True).orphans) == 1
