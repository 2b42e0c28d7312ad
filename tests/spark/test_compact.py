"""Compaction as Spark jobs: the same rows, the same files and the same manners as in process."""

from __future__ import annotations

import pickle
import threading  # noqa: TID251 - stops a job
from pathlib import Path
from typing import Any

import pytest

from tidelake.catalog.lake import Lake
from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.compact import runner as compact
from tidelake.engines.spark.compact.runner import SparkStepRunner, StepTask, shares_of
from tidelake.errors import CommitConflictError, FormatError, InvalidInputError, StorageError
from tidelake.ops.compact.table import CompactionPlan
from tidelake.table import Table

COLUMNS = {"p": "STRING", "id": "INT", "v": "STRING"}


@pytest.fixture(params=["one job", "a job for each step"])
def jobs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small steps share a job; let each have its own."""
    if request.param != "one job":
        monkeypatch.setattr(compact, "SHARE_BYTES", (0, 0))


def keyed(lake: Lake, *, times: int = 4, **options: str) -> Table:
    made = lake.create_table(
        "db.k",
        COLUMNS,
        primary_key=["p", "id"],
        partition_by=["p"],
        options={"bucket": "2", "write-only": "true", **options},
    )
    for turn in range(times):
        made.write([{"p": p, "id": number, "v": f"{turn}"} for p in "ab" for number in range(turn, 20)])
    return made


def append(lake: Lake, *, times: int = 4, **options: str) -> Table:
    made = lake.create_table("db.a", COLUMNS, partition_by=["p"], options=options)
    for turn in range(times):
        made.write([{"p": p, "id": turn, "v": f"{turn}"} for p in "ab"])
    return made


def content(table: Table) -> list[Any]:
    return sorted((row["p"], row["id"], row["v"]) for row in table.to_arrow().to_pylist())


def data_files(table: Table) -> set[str]:
    return {path.name for path in Path(table.location).rglob("data-*")}


def live_files(table: Table) -> set[str]:
    return set(table.files(columns=["file_name"]).column("file_name").to_pylist())


def runs(table: Table) -> int:
    return table.files(columns=["file_name"]).num_rows


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("make", [keyed, append])
def test_a_full_compaction_on_spark_leaves_the_same_rows_in_one_file_for_each_bucket(
    spark: Any, lake: Lake, make: Any
) -> None:
    table = make(lake)
    before, told = content(table), []
    plan = table.compact(full=True, plan_only=True, on=spark)
    done = table.compact(full=True, on=spark, progress=lambda *told_: told.append(told_))
    assert isinstance(plan, CompactionPlan)
    assert len(done.snapshot_ids) == 1
    assert table.latest_snapshot().commit_kind.value == "COMPACT"
    assert content(table) == before
    assert runs(table) == len(plan.rewrites) == (4 if make is keyed else 2)
    assert told[-1] == (len(plan.rewrites), len(plan.rewrites))
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert table.check(deep=True, rows=True).ok


@pytest.mark.parametrize("make", [keyed, append])
def test_the_files_are_those_that_a_compaction_in_process_makes(spark: Any, lake: Lake, make: Any) -> None:
    table = make(lake)
    table.create_branch("here", snapshot=table.latest_snapshot().id)
    table.compact(full=True, on=spark)
    table.branch("here").compact(full=True)

    def shape(each: Table) -> list[tuple[Any, ...]]:
        columns = ["partition", "bucket", "level", "row_count", "file_size", "min_sequence", "max_sequence"]
        files = each.files(columns=columns)
        return sorted(zip(*(files.column(name).to_pylist() for name in columns), strict=True))

    assert shape(table) == shape(table.branch("here"))


def test_the_choice_of_buckets_is_the_same_on_spark(spark: Any, lake: Lake) -> None:
    table = keyed(lake)
    table.compact(full=True, where="p = 'b'", buckets=[1], on=spark)
    assert runs(table) == 3 * 4 + 1


def test_where_nothing_is_due_nothing_is_committed(spark: Any, lake: Lake) -> None:
    table = keyed(lake, times=1)
    table.compact(full=True, on=spark)
    assert table.compact(full=True, on=spark).snapshot_ids == ()


def test_something_that_is_not_a_session_is_refused(lake: Lake) -> None:
    with pytest.raises(InvalidInputError, match="not a Spark session"):
        keyed(lake, times=1).compact(on="local")


def test_rows_written_while_it_runs_are_kept(spark: Any, lake: Lake) -> None:
    table = keyed(lake)
    wrote = []

    def write(done: int, of: int) -> None:
        if not wrote:
            wrote.append(table.write([{"p": "a", "id": 7, "v": "meanwhile"}]))

    table.compact(full=True, on=spark, progress=write)
    assert ("a", 7, "meanwhile") in content(table)
    assert len(content(table)) == 40


@pytest.mark.usefixtures("jobs")
def test_a_bucket_that_another_job_compacted_first_is_planned_again(spark: Any, lake: Lake) -> None:
    table = keyed(lake)
    before, overtook = content(table), []

    def overtake(done: int, of: int) -> None:
        if not overtook:
            overtook.append(table.compact(full=True, where="p = 'a'"))

    table.compact(full=True, on=spark, progress=overtake)
    assert content(table) == before
    assert runs(table) == 4
    assert table.check(deep=True, rows=True).ok
    assert not table.check(deep=True).orphans


def test_a_job_that_is_overtaken_every_time_says_so(spark: Any, lake: Lake) -> None:
    table = keyed(lake, times=2, bucket="1")

    def overtake(done: int, of: int) -> None:
        table.write([{"p": p, "id": 1, "v": "again"} for p in "ab"])
        table.compact(full=True)
        table.write([{"p": p, "id": 1, "v": "again"} for p in "ab"])

    with pytest.raises(CommitConflictError) as caught:
        table.compact(full=True, on=spark, progress=overtake)
    assert caught.value.code == "compaction-overtaken"
    assert not table.check(deep=True).orphans


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("make", [keyed, append])
def test_when_one_step_fails_the_error_is_its_own_and_nothing_is_left_behind(spark: Any, lake: Lake, make: Any) -> None:
    table = make(lake)
    broken = next(path for path in sorted(Path(table.location).rglob("data-*")) if "p=b" in str(path))
    whole, snapshot = broken.read_bytes(), table.latest_snapshot()
    broken.write_bytes(b"no file of any format" * 20)
    there = data_files(table)
    with pytest.raises(FormatError):
        table.compact(full=True, on=spark)
    assert data_files(table) == there
    assert table.latest_snapshot() == snapshot
    broken.write_bytes(whole)
    table.compact(full=True, on=spark)
    assert table.check(deep=True, rows=True).ok


def test_when_the_progress_raises_what_was_written_is_removed(spark: Any, lake: Lake) -> None:
    table = keyed(lake)
    there = data_files(table)

    def interrupted(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.compact(full=True, on=spark, progress=interrupted)
    assert data_files(table) == there
    assert not spark.getTags()


def test_an_error_of_spark_itself_is_a_storage_error_and_nothing_is_left_behind(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed(lake)
    there = data_files(table)
    monkeypatch.setattr(TableRef, "of", lambda *_: Unopenable())
    with pytest.raises(StorageError) as caught:
        table.compact(full=True, on=spark)
    assert caught.value.code == "spark-job"
    assert data_files(table) == there


class Unopenable:
    """Stands for a table that tasks cannot open."""

    def open(self) -> Table:
        raise OSError("no such place")

    def __reduce__(self) -> Any:
        return RuntimeError, ("a task failed",)


def test_steps_and_what_tasks_do_pickle_and_hold_no_store(lake: Lake) -> None:
    for table in (keyed(lake), append(lake)):
        steps = table.compact(full=True, plan_only=True).rewrites
        work = StepTask(TableRef.of(table.name, table.store, table.options), tuple(shares_of(steps, 2)))
        again = pickle.loads(pickle.dumps(work))
        assert again == work
        assert b"TableStore" not in pickle.dumps(steps)
        assert table.location.encode() not in pickle.dumps(steps)


def test_shares_hold_every_step_once_with_the_heaviest_first(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = keyed(lake, bucket="5").compact(full=True, plan_only=True).rewrites
    assert len(shares_of(steps, cores=100)) == 1
    monkeypatch.setattr(compact, "SHARE_BYTES", (0, 128 << 20))
    shares = shares_of(steps, cores=1)
    numbers = [number for share in shares for number, _ in share]
    sizes = [sum(file.file_size for file in steps[number].files) for number in numbers]
    assert sorted(numbers) == list(range(len(steps)))
    assert sizes == sorted(sizes, reverse=True)
    assert 1 < len(shares) < len(steps)
    assert all(len(share) == 1 for share in shares_of(steps, cores=100))


def test_a_dedicated_compaction_on_spark_follows_writers_and_stops_when_told(spark: Any, lake: Lake) -> None:
    table = keyed(lake, **{"num-sorted-run.compaction-trigger": "3"})
    stop, rounds = threading.Event(), []

    def told(done: Any) -> None:
        rounds.append(done)
        if len(rounds) == 1:
            for turn in range(3):
                table.write([{"p": "c", "id": number, "v": f"late {turn}"} for number in range(20)])
        elif done.is_idle:
            stop.set()

    tended = table.keep_compacted(on=spark, interval="10 ms", stop=stop, progress=told)
    assert tended.rounds == len(rounds)
    assert tended.compacted >= 6
    assert len(content(table)) == 60
    assert all(row[2] == "late 2" for row in content(table) if row[0] == "c")
    levels = table.files(columns=["partition", "level"])
    assert levels.num_rows == 6
    assert set(levels.column("level").to_pylist()) == {3}
    assert table.check(deep=True, rows=True).ok
    assert not table.check(deep=True).orphans


def test_the_step_runner_starts_nothing_without_steps(spark: Any, lake: Lake) -> None:
    table = keyed(lake, times=1)
    SparkStepRunner(spark).run(table.context, (), None)  # type: ignore[arg-type]
