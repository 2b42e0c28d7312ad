"""Jobs that write the same keys at the same time: whatever the buckets and the engine, a key is there once.

What they prepare lies side by side before any of it is committed. Whoever commits later puts its rows where the keys
are by then, so that every commit succeeds, and the table shows what the jobs would have left one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import InvalidInputError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.commit import loop
from tidelake.ops.commit.changes import IndexChange
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitMessage, Committable
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.opening import make_rebaser
from tidelake.spec.manifests.index_manifest import IndexEntry
from tidelake.table import Table, load_table
from tidelake.testing import FakeClock, MemoryFileIO

COLUMNS = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "INT", "w": "INT"}
MODES: dict[str, dict[str, str]] = {
    "fixed": {"bucket": "2"},
    "hash-dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "2"},
    "key-dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "2"},
    "postponed": {"bucket": "-2", "postpone.target-row-num-per-bucket": "2"},
}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {},
    "aggregation": {"fields.v.aggregate-function": "sum", "fields.w.aggregate-function": "last_non_null_value"},
    "first-row": {},
}
Row = tuple[str, int, int | None, int | None]
Job = Sequence[Row]

# Orders, sizes and partitions differ, so that jobs choose different buckets for the keys that they share.
JOBS: tuple[Job, ...] = (
    tuple(("a", k, 10 + k, None) for k in (1, 2, 3, 4, 5)),
    tuple(("b" if k in (3, 9) else "a", k, None if k == 4 else 20 + k, k) for k in (9, 8, 7, 6, 5, 4, 3)),
    (("b", 5, 35, None), ("a", 1, 31, 1), ("b", 9, 39, 9), ("a", 11, 41, None), ("a", 4, 34, 4)),
)
BEFORE: Job = (("a", 3, 3, 3), ("b", 9, 9, 9), ("b", 1, 1, 1))


def create(mode: str, engine: str, **options: str) -> Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))
    given = {**MODES[mode], **ENGINES[engine], "merge-engine": engine}
    given |= {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    keys = ["k"] if mode == "key-dynamic" else ["p", "k"]
    return lake.create_table("d.t", COLUMNS, primary_key=keys, partition_by=["p"], options=given)


def another_job(table: Table, seed: int) -> Table:
    """The same table as another job sees it."""
    return load_table(replace(table.store.env, ids=SeededIds(seed)), table.name)


def rows(job: Job) -> list[dict[str, Any]]:
    return [dict(zip(COLUMNS, row, strict=True)) for row in job]


def one_after_the_other(mode: str, engine: str, jobs: Sequence[Job]) -> list[Row]:
    """What jobs leave: slow and obviously right."""
    found: dict[Any, Row] = {}
    for p, k, v, w in (row for job in jobs for row in job):
        key = k if mode == "key-dynamic" else (p, k)
        old = found.get(key)
        if old is None or engine == "deduplicate":
            found[key] = (p, k, v, w)
        elif engine != "first-row":
            both = v is not None and old[2] is not None
            added = old[2] + v if engine == "aggregation" and both else old[2] if v is None else v
            found[key] = (old[0], k, added, old[3] if w is None else w)
    return sorted(found.values())


def shown(table: Table) -> list[Row]:
    found = (tuple(row[name] for name in COLUMNS) for row in table.to_arrow().to_pylist())
    return sorted(found)  # type: ignore[arg-type]


def verify(table: Table, mode: str, engine: str, jobs: Sequence[Job]) -> None:
    """The rows are right as they lie there, and after they were compacted; no check finds anything."""
    wanted = one_after_the_other(mode, engine, jobs)
    for step in ("as it is", "compacted"):
        if step == "compacted":
            table.compact(full=True)
        if engine != "first-row" or step == "compacted":  # of which rows on level 0 are not shown
            assert shown(table) == wanted, step
        report = table.check(deep=True, rows=True)
        assert not [each for each in report.findings if each.severity.value != "remark"], report
        assert not report.orphans, report


def prepared(table: Table, job: Job) -> list[CommitMessage]:
    writer = table.new_write()
    writer.write(rows(job))
    return writer.prepare_commit()


LATE = pytest.mark.long
COUNTED = [
    pytest.param(3, BEFORE, id="three jobs, filled"),
    pytest.param(2, (), id="two jobs, empty", marks=LATE),
    pytest.param(2, BEFORE, id="two jobs, filled", marks=LATE),
    pytest.param(3, (), id="three jobs, empty", marks=LATE),
]


@pytest.mark.parametrize(("count", "before"), COUNTED)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", MODES)
def test_jobs_that_prepared_the_same_keys_all_commit_and_no_key_comes_twice(
    mode: str, engine: str, count: int, before: Job
) -> None:
    table = create(mode, engine)
    if before:
        table.write(rows(before))
    jobs = [another_job(table, 50 + number) for number in range(count)]
    messages = [prepared(job, JOBS[number]) for number, job in enumerate(jobs)]
    for job, own in zip(jobs, messages, strict=True):
        job.new_commit().commit(own)
    verify(table, mode, engine, [before, *JOBS[:count]])


@pytest.mark.parametrize(
    "engine", [pytest.param(each, marks=() if each == "aggregation" else LATE) for each in ENGINES]
)
@pytest.mark.parametrize("mode", MODES)
def test_a_write_that_others_overtake_while_it_writes_comes_after_them(
    mode: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job begins before the one before it has committed."""
    table = create(mode, engine)
    jobs = [another_job(table, 50 + number) for number in range(len(JOBS))]
    original, begun = KeyedTableWriter.prepare, []

    def late(self: KeyedTableWriter, *given: Any, **named: Any) -> Any:
        messages = original(self, *given, **named)
        begun.append(1)
        if len(begun) < len(JOBS):
            jobs[len(begun)].write(rows(JOBS[len(begun)]))
        return messages

    monkeypatch.setattr(KeyedTableWriter, "prepare", late)
    jobs[0].write(rows(JOBS[0]))
    monkeypatch.undo()
    verify(table, mode, engine, JOBS[::-1])


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_overwrite_with_rows_that_a_plain_writer_prepared_knows_their_keys_afterwards(dynamic: bool) -> None:
    table = create("hash-dynamic", "deduplicate")
    table.write(rows(JOBS[0]))
    table.new_commit().overwrite(prepared(table, JOBS[0][::-1]), dynamic=dynamic)
    table.write(rows(JOBS[2]))
    verify(table, "hash-dynamic", "deduplicate", [JOBS[0], JOBS[2]])


# ------------------------------------------------------------------------------------------------ dynamic buckets


def prepared_apart(**options: str) -> tuple[Table, list[CommitMessage], list[CommitMessage]]:
    """A table with the first job prepared, and the second one; the jobs put keys that they share into other buckets."""
    table = create("hash-dynamic", "deduplicate", **options)
    return table, prepared(another_job(table, 50), JOBS[0]), prepared(another_job(table, 51), JOBS[1])


def test_a_stream_of_numbered_commits_goes_on_after_another_job_gave_its_keys_buckets() -> None:
    table = create("hash-dynamic", "aggregation")
    job = another_job(table, 50)
    writer, commit = job.new_write("job"), job.new_commit("job")
    rounds = []
    for number, each in enumerate(JOBS, 1):
        writer.write(rows(each))
        rounds.append(writer.prepare_commit(number))
    table.write(rows(JOBS[1]))
    for number, messages in enumerate(rounds, 1):
        commit.commit(messages, identifier=number)
    writer.write(rows(JOBS[2]))
    commit.commit(writer.prepare_commit(4), identifier=4)
    verify(table, "hash-dynamic", "aggregation", [JOBS[1], *JOBS, JOBS[2]])


def test_messages_of_two_writers_in_one_commit_extend_one_index() -> None:
    table, first, second = prepared_apart()
    table.new_commit().commit([*first, *second])
    assert {(row[0], row[1]) for row in shown(table)} == {row[:2] for row in (*JOBS[0], *JOBS[1])}
    assert len(shown(table)) == len({(row[0], row[1]) for row in shown(table)})
    assert table.check(deep=True).ok


@pytest.mark.parametrize("before", [(), BEFORE], ids=["empty", "filled"])
@pytest.mark.parametrize("engine", ENGINES)
def test_messages_of_two_writers_in_one_commit_do_not_put_a_key_into_two_buckets(engine: str, before: Job) -> None:
    table = create("hash-dynamic", engine)
    if before:
        table.write(rows(before))
    first = prepared(another_job(table, 50), JOBS[0])
    other = another_job(table, 51).with_options({"dynamic-bucket.assigner-parallelism": "2"})
    second = prepared(other, JOBS[1])
    table.new_commit().commit([*first, *second])
    table.compact(full=True)
    keys = [row[:2] for row in shown(table)]
    assert keys == sorted({row[:2] for row in (*before, *JOBS[0], *JOBS[1])})
    assert table.check(deep=True, rows=True).ok


@pytest.mark.parametrize("engine", ENGINES)
def test_messages_of_two_writers_in_one_commit_do_not_put_a_key_into_two_partitions(engine: str) -> None:
    table = create("key-dynamic", engine)
    first, second = (prepared(another_job(table, 50 + number), JOBS[number]) for number in (0, 1))
    with pytest.raises(InvalidInputError, match="several writers") as caught:
        table.new_commit().commit([*first, *second])
    assert caught.value.code == "several-writers"
    assert table.store.snapshots.latest() is None
    for messages in (first, second):
        table.new_commit().commit(messages)
    verify(table, "key-dynamic", engine, [JOBS[0], JOBS[1]])


def test_a_table_that_was_emptied_meanwhile_knows_all_keys_of_the_job() -> None:
    table = create("hash-dynamic", "deduplicate")
    table.write(rows(JOBS[0]))
    late = prepared(another_job(table, 50), JOBS[0])  # no hash of it is new
    table.truncate()
    another_job(table, 51).new_commit().commit(late)
    verify(table, "hash-dynamic", "deduplicate", [JOBS[0]])


@pytest.mark.parametrize("engine", ["deduplicate", "aggregation"])
def test_what_was_told_of_moves_with_the_rows(engine: str) -> None:
    table = create("hash-dynamic", engine, changelog_producer="input")
    messages = [prepared(another_job(table, 50 + number), job) for number, job in enumerate(JOBS)]
    for own in messages:
        table.new_commit().commit(own)
    told = table.changes(1).to_arrow()
    assert told.num_rows == sum(map(len, JOBS[1:]))
    verify(table, "hash-dynamic", engine, JOBS)


def test_files_of_an_older_schema_move_as_they_are() -> None:
    table, first, second = prepared_apart()
    table.new_commit().commit(first)
    table.alter(add={"x": "INT"})
    another_job(table, 52).new_commit().commit(second)
    found = another_job(table, 53)
    assert shown(found) == one_after_the_other("hash-dynamic", "deduplicate", JOBS[:2])
    assert found.check(deep=True).ok


# ------------------------------------------------------------------------------------------------ what checks find


def commit_carelessly(table: Table, messages: Sequence[CommitMessage]) -> None:
    """Commit without a look at where the keys are."""
    rebaser = make_rebaser(table.context)
    committer = Committer(table.context, "careless", rebaser=rebaser)
    committer.commit(Committable(messages=tuple(messages)))


def in_another_bucket(table: Table, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
    """The messages, with all files in another bucket than theirs."""
    io, moved = table.store.env.io, []
    for each in messages:
        moved.append(replace(each, bucket=each.bucket ^ 1))
        for file in each.data.new_files:
            old, new = (table.paths.bucket(each.partition, bucket) for bucket in (each.bucket, each.bucket ^ 1))
            io.write(f"{new}/{file.file_name}", io.read(f"{old}/{file.file_name}", limit=1 << 20))
    return moved


def test_a_check_finds_keys_that_are_in_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    def replacing(previous: Sequence[IndexEntry], changes: Sequence[IndexChange], **_: bool) -> tuple[IndexEntry, ...]:
        places = {(each.partition, each.bucket): each for each in (*previous, *(made.entry for made in changes))}
        return tuple(places.values())

    monkeypatch.setattr(loop, "combine_index", replacing)
    table, first, second = prepared_apart()
    commit_carelessly(table, first)
    assert table.check(deep=True).ok
    commit_carelessly(table, second)
    assert any("not in the hash index of bucket" in each.message for each in table.check(deep=True).errors)


def test_a_check_finds_keys_that_are_in_two_buckets() -> None:
    table = create("hash-dynamic", "deduplicate", dynamic_bucket__target_row_num="9")
    first, second = (prepared(another_job(table, 50 + number), JOBS[0]) for number in range(2))
    commit_carelessly(table, first)
    commit_carelessly(table, in_another_bucket(table, second))
    found = table.check().errors  # without a look at any key
    assert [each.invariant for each in found] == ["I6"]
    assert "5 key hashes are in bucket 0 and in bucket 1" in found[0].message


def test_a_check_finds_a_bucket_without_an_index() -> None:
    table = create("hash-dynamic", "deduplicate")
    bare = [replace(each, data=replace(each.data, new_index_files=())) for each in prepared(table, JOBS[0])]
    commit_carelessly(table, bare)
    assert any("no hash index" in each.message for each in table.check().errors)


def test_a_check_finds_a_key_that_is_in_two_partitions() -> None:
    table = create("key-dynamic", "deduplicate")
    for messages in [prepared(another_job(table, 50 + number), job) for number, job in enumerate(JOBS)]:
        commit_carelessly(table, messages)
    assert table.check().ok
    assert any("in two buckets" in each.message for each in table.check(deep=True).errors)


def test_a_check_finds_rows_in_a_bucket_that_is_not_theirs() -> None:
    table = create("fixed", "deduplicate")
    commit_carelessly(table, in_another_bucket(table, prepared(table, JOBS[0])))
    assert any("another bucket" in each.message for each in table.check(deep=True).errors)
