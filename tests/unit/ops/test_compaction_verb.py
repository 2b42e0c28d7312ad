"""The compaction verb: what it chooses, what it says it would do, and what it leaves behind when it fails."""

from __future__ import annotations

import threading  # noqa: TID251 - other jobs
from dataclasses import replace

import pytest

from kit.small_tables import with_foreign_options
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitConflictError, FormatError, InvalidInputError, UnsupportedError
from tidelake.io.env import Env
from tidelake.io.executor import ThreadExecutor
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.compact.table import CompactionPlan
from tidelake.spec.documents.snapshot import CommitKind
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO, TracingFileIO

COLUMNS = {"k": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "STRING"}


def make(*, threads: int = 1, clock: FakeClock | None = None, **options: str) -> Table:
    """A write-only table with two partitions of two buckets."""
    env = Env(MemoryFileIO(), clock=clock or FakeClock(tick_ms=1))
    if threads > 1:
        env = replace(env, executor=ThreadExecutor(threads))
    given = {"bucket": "2", "write-only": "true", **{key.replace("_", "-"): each for key, each in options.items()}}
    return Lake(FileSystemCatalog(env)).create_table(
        "d.t", COLUMNS, primary_key=["k", "dt"], partition_by=["dt"], options=given
    )


def fill(table: Table, times: int = 6, *, partitions: tuple[str, ...] = ("a", "b"), keys: int = 40) -> None:
    for turn in range(times):
        table.write([{"k": key, "dt": dt, "v": str(turn)} for dt in partitions for key in range(keys)])


def content(table: Table) -> list[str]:
    return sorted(map(repr, table.to_arrow().to_pylist()))


def runs(table: Table) -> dict[tuple[str, int], int]:
    found = table.inspect.lsm().to_pylist()
    return {(row["partition"], row["bucket"]): row["sorted_runs"] for row in found}


def planned(table: Table, **how: object) -> list[str]:
    plan = table.compact(plan_only=True, **how)
    assert isinstance(plan, CompactionPlan)
    return [each.split.bucket_path for each in plan.rewrites]


def data_paths(table: Table) -> set[str]:
    io = table.store.env.io
    folders = [f"dt={dt}/bucket-{bucket}" for dt in ("a", "b") for bucket in (0, 1)]
    return {f"{folder}/{each.name}" for folder in folders if io.exists(folder) for each in io.list(folder)}


def live_paths(table: Table) -> set[str]:
    files = table.files()
    return {
        f"{table.paths.bucket(partition, bucket)}/{name}"
        for partition, bucket, name in zip(
            *(files[column].to_pylist() for column in ("partition", "bucket", "file_name")), strict=True
        )
    }


ALL = ["dt=a/bucket-0", "dt=a/bucket-1", "dt=b/bucket-0", "dt=b/bucket-1"]


# ------------------------------------------------------------------------------------------------ what is chosen


def test_without_a_choice_every_bucket_where_something_is_due_is_compacted():
    table = make()
    fill(table)
    before = content(table)
    assert planned(table) == ALL
    done = table.compact()
    assert isinstance(done, CommitResult)
    assert set(runs(table).values()) == {1}
    assert content(table) == before
    latest = table.latest_snapshot()
    assert latest is not None
    assert latest.commit_kind is CommitKind.COMPACT
    assert planned(table) == []
    assert table.compact() == CommitResult()


def test_a_minor_compaction_waits_for_enough_runs_and_a_full_one_does_not():
    table = make()
    fill(table, 2)
    assert planned(table) == []
    assert planned(table, full=True) == ALL


@pytest.mark.parametrize(
    "how",
    [{"where": "dt = 'b'"}, {"partitions": [{"dt": "b"}]}, {"partitions": [{"dt": "b"}, {"dt": "nowhere"}]}],
    ids=repr,
)
def test_partitions_are_chosen_by_a_condition_or_by_their_values(how):
    table = make()
    fill(table)
    assert planned(table, **how) == ALL[2:]
    table.compact(**how)
    assert runs(table) == {("dt=a", 0): 6, ("dt=a", 1): 6, ("dt=b", 0): 1, ("dt=b", 1): 1}


@pytest.mark.parametrize("buckets", [[1], (1,), "1", " 1 - 1 ", "1,3-9"], ids=repr)
def test_fixed_buckets_are_chosen_by_number(buckets):
    table = make()
    fill(table)
    assert planned(table, buckets=buckets) == ["dt=a/bucket-1", "dt=b/bucket-1"]


@pytest.mark.parametrize("buckets", ["", "x", "1-", "-1", "0-99999999999", [-1], [True], ["1"], []], ids=repr)
def test_what_is_no_bucket_number_is_refused(buckets):
    with pytest.raises(InvalidInputError, match="bucket numbers cannot be parsed"):
        make().compact(buckets=buckets)


def test_dynamic_buckets_are_not_chosen_by_number():
    with pytest.raises(InvalidInputError, match="only in tables with fixed buckets"):
        make(bucket="-1").compact(buckets=[0])


def test_an_empty_list_of_partitions_chooses_none():
    table = make()
    fill(table)
    assert planned(table, partitions=[]) == []


def test_a_choice_by_condition_and_by_values_at_once_is_refused():
    with pytest.raises(InvalidInputError, match="chosen twice"):
        make().compact(where="dt = 'a'", partitions=[{"dt": "a"}])


@pytest.mark.parametrize("how", [{"where": "v = 'x'"}, {"partitions": [{"v": "x"}]}], ids=repr)
def test_a_choice_by_another_column_names_the_column(how):
    with pytest.raises(InvalidInputError, match="not a partition column") as caught:
        make().compact(**how)
    assert caught.value.facts["column"] == "v"
    assert "dt" in (caught.value.hint or "")


def test_a_partition_that_was_written_to_lately_is_left_alone_when_idle_ones_are_wanted():
    clock = FakeClock(tick_ms=1)
    table = make(clock=clock)
    fill(table, partitions=("a",))
    clock.advance(7_200)
    fill(table, partitions=("b",))
    assert planned(table, partition_idle_time="1 h") == ALL[:2]
    assert planned(table, partition_idle_time="3 h") == []
    clock.advance(7_200)
    assert planned(table, partition_idle_time="1 h") == ALL


def test_leaving_expired_partitions_alone_is_refused_rather_than_passed_over():
    table = make(**{"compaction.skip-expired-partitions": "true"})
    table = with_foreign_options(table, {"partition.expiration-time": "1 d"})
    fill(table)
    with pytest.raises(UnsupportedError, match="cannot skip expired partitions"):
        table.compact()


def test_an_append_table_takes_the_same_choice():
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), clock=FakeClock(tick_ms=1))))
    table = lake.create_table("d.a", COLUMNS, partition_by=["dt"])
    fill(table, keys=3)
    assert planned(table, partitions=[{"dt": "a"}]) == ["dt=a/bucket-0"]
    table.compact(partitions=[{"dt": "a"}])
    assert sorted(table.inspect.partitions()["file_count"].to_pylist()) == [1, 6]


# ------------------------------------------------------------------------------------------------ what is told


def test_a_plan_tells_files_bytes_and_output_level_of_each_bucket():
    table = make()
    fill(table)
    plan = table.compact(plan_only=True, where="dt = 'a'")
    assert isinstance(plan, CompactionPlan)
    lines = repr(plan).splitlines()
    size = sum(file.file_size for file in plan.rewrites[0].files)
    assert lines[0] == f"CompactionPlan(2 rewrites of 12 files, {plan.size:,} bytes)"
    assert lines[1] == f"  dt=a/bucket-0: 6 files, {size:,} bytes -> level 5"
    assert len(lines) == 3
    assert "<td>dt=a/bucket-1</td><td>6</td>" in plan._repr_html_()


def test_a_plan_of_many_buckets_shows_the_first_ones():
    table = make(bucket="30")
    fill(table, 6, partitions=("a",), keys=300)
    assert repr(table.compact(plan_only=True)).splitlines()[-1] == "  and 10 more"


def test_progress_is_told_of_every_bucket():
    table = make(threads=3)
    fill(table)
    told: list[tuple[int, int]] = []
    table.compact(progress=lambda done, of: told.append((done, of)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_planning_reads_metadata_only():
    io = TracingFileIO(MemoryFileIO())
    lake = Lake(FileSystemCatalog(Env(io, clock=FakeClock(tick_ms=1))))
    options = {"bucket": "2", "write-only": "true"}
    table = lake.create_table("d.t", COLUMNS, primary_key=["k", "dt"], partition_by=["dt"], options=options)
    fill(table)
    start = len(io.ops)
    table.compact(plan_only=True, full=True)
    table.inspect.lsm()
    assert not [op.path for op in io.ops[start:] if "bucket-" in op.path]


# ------------------------------------------------------------------------------------------------ write-only


def test_compacting_a_write_only_table_also_expires_what_is_due():
    table = make(**{"snapshot.num-retained.max": "3", "snapshot.num-retained.min": "1"})
    fill(table)
    assert table.store.snapshots.earliest_id() == 1
    table.compact()
    assert table.store.snapshots.earliest_id() == 5
    assert table.options["write-only"] == "true"


# ------------------------------------------------------------------------------------------------ when it goes wrong


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("broken", ALL)
def test_when_one_bucket_fails_the_files_of_the_others_are_removed(threads, broken):
    table = make(threads=threads)
    fill(table)
    victim = min(path for path in live_paths(table) if path.startswith(broken))
    table.store.env.io.delete(victim)
    with pytest.raises(FormatError, match="data file is missing"):
        table.compact()
    live = live_paths(table)
    table.store.env.executor.close()  # whoever was still at work has ended
    assert data_paths(table) == live - {victim}
    assert table.store.snapshots.latest_id() == 6


def test_a_compaction_that_is_interrupted_leaves_nothing_behind():
    table = make()
    fill(table)

    def interrupted(done: int, of: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.compact(progress=interrupted)
    assert data_paths(table) == live_paths(table)


def overtaking(table: Table, **choice: object):
    """Another job that compacts while the first one is about to commit, as often as it is told to."""
    left = [1]

    def overtake(done: int, of: int) -> None:
        if done == of and left[0]:
            left[0] -= 1
            table.compact(full=True, **choice)

    return overtake, left


def test_a_bucket_that_another_job_compacted_first_is_planned_again_and_the_rest_is_committed():
    table = make()
    fill(table)
    before = content(table)
    overtake, _ = overtaking(table, partitions=[{"dt": "a"}], buckets=[0])
    done = table.compact(full=True, progress=overtake)
    assert isinstance(done, CommitResult)
    assert done.files == 3  # the fourth was done by the other
    assert set(runs(table).values()) == {1}
    assert content(table) == before
    assert not table.check(deep=True, rows=True).findings


def test_when_every_bucket_was_compacted_first_there_is_nothing_left_to_do():
    table = make()
    fill(table)
    before = content(table)
    overtake, _ = overtaking(table)
    assert table.compact(full=True, progress=overtake) == CommitResult()
    assert content(table) == before


def test_rows_written_while_a_compaction_runs_are_kept():
    table = make()
    fill(table)

    def write(done: int, of: int) -> None:
        table.write([{"k": done, "dt": "a", "v": "late"}])

    table.compact(full=True, progress=write)
    late = [row["k"] for row in table.to_arrow(where="v = 'late'").to_pylist()]
    assert sorted(late) == [1, 2, 3, 4]
    assert table.count() == 80


def test_an_overwrite_in_between_wins_and_no_row_of_before_comes_back():
    table = make()
    fill(table)

    def overwrite(done: int, of: int) -> None:
        if done == of:
            table.write([{"k": 1, "dt": "a", "v": "new"}], mode="overwrite", partition={"dt": "a"})

    table.compact(progress=overwrite)
    assert [row["v"] for row in table.to_arrow(where="dt = 'a'").to_pylist()] == ["new"]
    assert runs(table)["dt=b", 0] == 1
    assert live_paths(table) <= data_paths(table)


def test_a_job_that_is_overtaken_every_time_says_so_and_loses_nothing():
    table = make()
    fill(table)
    before = content(table)

    def overtake(done: int, of: int) -> None:
        if done == of:
            table.compact(full=True)
            fill(table, 1)

    with pytest.raises(CommitConflictError, match="first in every round") as caught:
        table.compact(full=True, progress=overtake)
    assert caught.value.code == "compaction-overtaken"
    assert "write-only" in (caught.value.hint or "")
    assert len(content(table)) == len(before)
    assert set(runs(table).values()) == {2}


def test_files_of_an_overtaken_compaction_are_removed():
    table = make()
    fill(table)
    overtake, _ = overtaking(table)
    table.compact(full=True, progress=overtake)
    everything = {path for snapshot in range(1, 8) for path in live_paths(table.at(snapshot=snapshot))}
    assert data_paths(table) == everything


def test_two_jobs_in_threads_leave_one_run_in_every_bucket_and_every_row():
    table = make(threads=2)
    fill(table)
    before = content(table)
    errors: list[BaseException] = []

    def job() -> None:
        try:
            table.compact(full=True)
        except BaseException as error:  # noqa: BLE001 - told to the test
            errors.append(error)

    jobs = [threading.Thread(target=job) for _ in range(3)]
    for each in jobs:
        each.start()
    for each in jobs:
        each.join()
    assert not errors
    assert set(runs(table).values()) == {1}
    assert content(table) == before


def test_a_column_that_was_added_meanwhile_survives_a_compaction_from_an_old_handle():
    table = make()
    fill(table)
    newer = table.alter(add={"w": "INT"})
    newer.write([{"k": 1, "dt": "a", "v": "x", "w": 7}])
    table.compact(full=True)
    assert newer.to_arrow(where="k = 1 and dt = 'a'").to_pylist() == [{"k": 1, "dt": "a", "v": "x", "w": 7}]


# ------------------------------------------------------------------------------------------------ levels in numbers


def test_levels_are_told_for_every_bucket_of_every_partition():
    table = make()
    fill(table, 3)
    found = table.inspect.lsm().to_pylist()
    assert [(row["partition"], row["bucket"]) for row in found] == [
        (dt, bucket) for dt in ("dt=a", "dt=b") for bucket in (0, 1)
    ]
    first = found[0]
    size = sum(file.file_size for file in table.compact(full=True, plan_only=True).rewrites[0].files)
    assert (first["level"], first["files"], first["runs"], first["overlap"], first["sorted_runs"]) == (0, 3, 3, 3, 3)
    assert (first["bytes"], first["full_compaction_bytes"], first["compaction_debt_bytes"]) == (size, size, 0)
    assert first["read_amplification"] == 3.0
    assert first["write_amplification"] == 1.0
    assert 2.9 < first["space_amplification"] < 3.1
    fill(table, 3)
    assert table.inspect.lsm()["compaction_debt_bytes"][0].as_py() > size


def test_write_amplification_counts_what_compactions_wrote_and_not_what_they_moved():
    table = make(bucket="1")
    fill(table, 1, partitions=("a",))
    table.compact(full=True)  # a single file without deletions is only moved
    (moved,) = table.inspect.lsm().to_pylist()
    assert (moved["level"], moved["write_amplification"]) == (5, 1.0)
    fill(table, 1, partitions=("a",))
    written = sum(file["file_size"] for each in (1, 3) for file in added(table, each))
    table.compact(full=True)
    rewritten = sum(file["file_size"] for file in added(table, 4))
    (row,) = table.inspect.lsm().to_pylist()
    assert row["write_amplification"] == pytest.approx((written + rewritten) / written)
    (then,) = table.at(snapshot=2).inspect.lsm().to_pylist()
    assert then == moved


def added(table: Table, snapshot: int) -> list[dict[str, object]]:
    after, before = table.files(snapshot=snapshot).to_pylist(), []
    if snapshot > 1:
        before = [row["file_name"] for row in table.files(snapshot=snapshot - 1).to_pylist()]
    return [row for row in after if row["file_name"] not in before]


def test_write_amplification_is_unknown_where_no_write_is_kept():
    table = make(bucket="1")
    fill(table, 2, partitions=("a",))
    table.compact(full=True)
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert table.inspect.lsm()["write_amplification"].to_pylist() == [None]


def test_dynamic_buckets_have_levels_like_others():
    table = make(**{"bucket": "-1", "dynamic-bucket.target-row-num": "10"})
    fill(table, 3, partitions=("a",), keys=25)
    found = table.inspect.lsm().to_pylist()
    assert [(row["bucket"], row["rows"], row["sorted_runs"]) for row in found] == [(0, 30, 3), (1, 30, 3), (2, 15, 3)]
