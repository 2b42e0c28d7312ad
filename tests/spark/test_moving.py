"""Keys that move between partitions, written by Spark: one row per key, as if this process had written them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelake.catalog.lake import Lake
from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.bridge.packed_rows import assign_tasks, pack_rows, shuffle, unpack_rows
from tidelake.engines.spark.write import job as writing
from tidelake.engines.spark.write.cross_partition import (
    CrossPartitionPlan,
    PlaceRows,
    SendKeysToOwners,
    SendRowsToOwners,
)
from tidelake.engines.spark.write.dynamic_buckets import owners_ran_once
from tidelake.engines.spark.write.receive import ReceiveRows
from tidelake.errors import CommitConflictError, InvalidInputError
from tidelake.ops.write.reassign_keys import KeyReassigner

COLUMNS = {"dt": "STRING NOT NULL", "id": "INT NOT NULL", "v": "INT", "w": "STRING"}
FRAME = "dt string, id int, v int, w string"
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {},
    "aggregation": {"fields.v.aggregate-function": "sum", "fields.w.aggregate-function": "last_non_null_value"},
    "first-row": {},
}


def create(lake: Lake, name: str, engine: str = "deduplicate", **options: str) -> Any:
    given = {"bucket": "-1", "dynamic-bucket.target-row-num": "4", "merge-engine": engine, **ENGINES[engine]}
    return lake.create_table(
        f"db.{name}", COLUMNS, primary_key=["id"], partition_by=["dt"], options={**given, **options}
    )


def shown(table: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


def data_files(table: Any) -> set[str]:
    return {path.name for path in Path(table.location).rglob("data-*")}


def drawn(lot: np.random.Generator, count: int) -> list[tuple[Any, ...]]:
    """Rows of keys, each once, so that the order between tasks does not matter."""
    keys = lot.permutation(40)[:count].tolist()
    return [("xyz"[lot.integers(0, 3)], key, int(lot.integers(0, 100)), f"w{key}") for key in keys]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_moves_keys_as_in_process(spark: Any, lake: Lake, engine: str) -> None:
    by_spark, twin = create(lake, "s", engine), create(lake, "p", engine)
    lot = np.random.default_rng(7)
    for turn in range(2):
        rows = drawn(lot, 25)
        by_spark.write(spark.createDataFrame(rows, FRAME))
        twin.write([dict(zip(COLUMNS, row, strict=True)) for row in rows])
        if turn == 0 and engine == "aggregation":
            by_spark.compact(full=True, on=spark)
        assert shown(by_spark) == shown(twin)
    assert len({row[1] for row in shown(by_spark)}) == len(shown(by_spark))
    report = by_spark.check(deep=True, rows=True)
    assert report.ok, report
    by_spark.write([{"dt": "new", "id": 1, "v": 1, "w": "in process"}])  # finds no key twice
    assert len({row[1] for row in shown(by_spark)}) == len(shown(by_spark))


def test_rows_of_one_key_keep_their_order_and_deletions_count(spark: Any, lake: Lake) -> None:
    table = create(lake, "t")
    table.write([{"dt": "x", "id": n, "v": 0, "w": "old"} for n in range(6)])
    steps = [
        ("+I", "y", 0, 1, "a"),
        ("+I", "x", 0, 2, "b"),
        ("+I", "y", 1, 1, "a"),
        ("-D", "y", 1, 1, "a"),
        ("+I", "z", 2, 1, "a"),
        ("+I", "z", 2, 2, "b"),
        ("-D", "x", 3, 0, "old"),
        ("+I", "y", 3, 5, "again"),
    ]
    table.write(spark.createDataFrame(steps, f"kind string, {FRAME}").coalesce(1), row_kind="kind")
    assert shown(table) == [
        ("x", 0, 2, "b"),
        ("x", 4, 0, "old"),
        ("x", 5, 0, "old"),
        ("y", 3, 5, "again"),
        ("z", 2, 2, "b"),
    ]
    assert table.check(deep=True, rows=True).ok


def test_overwrites_replace_the_table_or_partitions_and_double_no_key(spark: Any, lake: Lake) -> None:
    table = create(lake, "t")
    table.write(spark.createDataFrame([(dt, n, 0, "old") for n, dt in enumerate("xxyyz")], FRAME))
    table.write(spark.createDataFrame([("y", 2, 1, "new"), ("y", 9, 1, "new")], FRAME), mode="overwrite-dynamic")
    assert [row[1] for row in shown(table)] == [0, 1, 2, 9, 4]
    before = data_files(table)
    for how in ({"mode": "overwrite-dynamic"}, {"mode": "overwrite", "partition": {"dt": "y"}}):
        with pytest.raises(InvalidInputError) as told:
            table.write(spark.createDataFrame([("y", 0, 1, "new")], FRAME), **how)
        assert told.value.code == "key-elsewhere"
    assert data_files(table) == before
    table.write(spark.createDataFrame([("y", 7, 1, "new")], FRAME), mode="overwrite", partition={"dt": "y"})
    assert [row[1] for row in shown(table)] == [0, 1, 7, 4]
    table.write(spark.createDataFrame([("y", 0, 1, "all")], FRAME), mode="overwrite")
    assert shown(table) == [("y", 0, 1, "all")]
    assert table.check(deep=True, rows=True).ok


def test_values_that_do_not_fit_are_told_as_in_process_and_leave_nothing(spark: Any, lake: Lake) -> None:
    table, first = create(lake, "t"), create(lake, "f", "first-row")
    with pytest.raises(InvalidInputError, match="must not be null"):
        table.write(spark.createDataFrame([("x", 1, 1, ""), ("x", None, 1, "")], FRAME))
    with pytest.raises(InvalidInputError, match="does not accept -U and -D rows"):
        first.write(spark.createDataFrame([("-D", "x", 1, 1, "")], f"kind string, {FRAME}"), row_kind="kind")
    assert data_files(table) | data_files(first) == set()


def test_keys_that_another_job_moved_first_are_settled_again(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(lake, "t")
    table.write([{"dt": "x", "id": 1, "v": 0, "w": ""}])
    written, reassign, jobs, late = writing.run_tasks, KeyReassigner.reassign, [], []

    def overtaken(*args: Any) -> Any:
        jobs.append(written(*args))
        table.write([{"dt": "y", "id": 1, "v": 1, "w": "other"}])
        late.append("z")
        return jobs[-1]

    def overtaken_again(*args: Any, **more: Any) -> Any:
        found = reassign(*args, **more)
        while late:
            table.write([{"dt": late.pop(), "id": 1, "v": 1, "w": "other"}])
        return found

    monkeypatch.setattr(writing, "run_tasks", overtaken)
    monkeypatch.setattr(KeyReassigner, "reassign", overtaken_again)
    done = table.write(spark.createDataFrame([("w", 1, 2, "spark"), ("w", 2, 2, "spark")], FRAME))
    assert done.attempts == 2  # the committer settles the keys before each of them, and the rows are not read again
    assert len(jobs) == 1
    assert table.count() == 2
    assert shown(table) == [("w", 1, 2, "spark"), ("w", 2, 2, "spark")]
    assert table.check(deep=True, rows=True).ok
    named = {name for each in range(1, 5) for name in table.files(snapshot=each)["file_name"].to_pylist()}
    assert data_files(table) == named


def test_an_overwrite_of_a_partition_is_done_again_if_another_job_wrote_its_keys_first(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(lake, "t")
    table.write([{"dt": dt, "id": n, "v": 0, "w": ""} for n, dt in enumerate("xw")])
    known, jobs = writing.run_tasks, []

    def overtaken(*args: Any) -> Any:
        jobs.append(known(*args))
        if len(jobs) == 1:
            table.write([{"dt": "w", "id": 1, "v": 1, "w": "other"}])
        return jobs[-1]

    monkeypatch.setattr(writing, "run_tasks", overtaken)
    table.write(spark.createDataFrame([("w", 1, 2, "a"), ("w", 2, 2, "a")], FRAME), mode="overwrite-dynamic")
    assert len(jobs) == 2
    assert shown(table) == [("w", 1, 2, "a"), ("w", 2, 2, "a"), ("x", 0, 0, "")]
    assert table.check(deep=True, rows=True).ok
    named = {name for each in range(1, 4) for name in table.files(snapshot=each)["file_name"].to_pylist()}
    assert data_files(table) == named  # what the first job wrote is gone


def test_a_write_whose_owners_ran_twice_is_run_again(spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(lake, "t")
    frame = spark.createDataFrame([("x", n, n, "") for n in range(12)], FRAME)
    answers = iter([False, True])
    monkeypatch.setattr(writing, "owners_ran_once", lambda runs: owners_ran_once(runs) and next(answers))
    table.write(frame)
    assert [row[1] for row in shown(table)] == list(range(12))
    assert len(data_files(table)) == table.files().num_rows
    monkeypatch.setattr(writing, "owners_ran_once", lambda _: False)
    with pytest.raises(CommitConflictError, match="ran tasks that assign buckets twice"):
        table.write(frame)


# ------------------------------------------------------------------------------------------------ tasks on their own


def plan_of(table: Any, owners: int = 3) -> tuple[TableRef, CrossPartitionPlan]:
    return TableRef.of(table.name, table.store, {}), CrossPartitionPlan.of(table, overwrite=False, cores=owners)


def packed_for_owners(ref: TableRef, plan: CrossPartitionPlan, rows: list[dict[str, Any]]) -> list[pa.RecordBatch]:
    batch = pa.RecordBatch.from_pylist(rows)
    return list(SendRowsToOwners(ref, None, plan.assigners[0]).run(iter([batch])))


def test_every_key_is_sent_to_one_owner_and_no_owner_gets_all(lake: Lake) -> None:
    table = create(lake, "t")
    table.write([{"dt": "xy"[n % 2], "id": n, "v": n, "w": ""} for n in range(30)])
    ref, plan = plan_of(table)
    numbers = pa.RecordBatch.from_pydict({"id": list(range(len(plan.known)))})
    keys = list(unpack_rows(SendKeysToOwners(ref, plan.known, plan.assigners[0]).run(iter([numbers]))))
    rows = list(unpack_rows(packed_for_owners(ref, plan, [{"dt": "z", "id": n, "v": 1, "w": ""} for n in range(30)])))
    owner_of = {key: each.task for each in keys for key in each.rows.column("id").to_pylist()}
    assert sorted(owner_of) == list(range(30))
    assert set(owner_of.values()) == {0, 1, 2}
    assert owner_of == {key: each.task for each in rows for key in each.rows.column("id").to_pylist()}
    assert all(key.rank < row.rank for key in keys for row in rows)


def test_an_owner_that_runs_again_gives_the_same_rows_with_another_run_id(lake: Lake) -> None:
    table = create(lake, "t")
    ref, plan = plan_of(table, owners=1)
    rows = packed_for_owners(ref, plan, [{"dt": "xyx"[n % 3], "id": n % 7, "v": n, "w": ""} for n in range(20)])
    runs = [list(unpack_rows(PlaceRows(ref, plan.assigners, 4).run(iter(rows)))) for _ in range(2)]
    first, second = ([(each.task, each.rows) for each in run] for run in runs)
    assert first == second
    owner_runs = [{each.run_id for each in run} for run in runs]
    assert [len(each) for each in owner_runs] == [1, 1]
    assert not owners_ran_once([*owner_runs[0], *owner_runs[1]])
    done = [pickle.loads(batch.column("done")[0].as_py()) for batch in ReceiveRows(ref, 0).run(_boxed(runs[0]))]
    again = [pickle.loads(batch.column("done")[0].as_py()) for batch in ReceiveRows(ref, 0).run(_boxed(runs[0]))]
    table.new_commit().commit(done[0].messages)  # what the other run left belongs to nobody
    assert len(data_files(table)) == 2 * table.files().num_rows
    assert sum(len(each.messages) for each in again) == len(done[0].messages)
    assert {row[1]: row[2] for row in shown(table)} == {0: 14, 1: 15, 2: 16, 3: 17, 4: 18, 5: 19, 6: 13}


def _boxed(inputs: list[Any]) -> Any:
    """Parcels of all tasks as one task would get them."""
    for each in inputs:
        yield pack_rows(each.rows, np.zeros(each.rows.num_rows, np.int64), rank=each.rank, run_id=each.run_id)


def test_parcels_hold_rows_in_their_order_and_types(spark: Any) -> None:
    rows = pa.RecordBatch.from_pydict(
        {"n": pa.array(range(7)), "t": pa.array([None, *range(1, 7)], pa.timestamp("ns"))}
    )
    tasks = np.array([2, 0, 2, 2, 0, 0, 2])
    inputs = {each.task: each.rows for each in unpack_rows([pack_rows(rows, tasks, rank=5)])}
    assert inputs[0] == rows.take(pa.array([1, 4, 5]))
    assert inputs[2] == rows.take(pa.array([0, 2, 3, 6]))
    frame = spark.createDataFrame(
        [(n % 2, 9 - n, 0, b"") for n in range(9)], "task int, rank bigint, run_id bigint, rows binary"
    )
    found = shuffle(frame, 2, ordered=True).rdd.glom().collect()
    assert [[row.rank for row in task] for task in found] == [[1, 3, 5, 7, 9], [2, 4, 6, 8]]


def test_every_sender_computes_the_same_task_for_a_bucket() -> None:
    one = assign_tasks(np.array([0, 1, 1]), [b"x", b"y"], np.array([0, 0, 1]), 8)
    other = assign_tasks(np.array([2, 0]), [b"y", b"z", b"x"], np.array([0, 1]), 8)
    assert (one[0], one[2]) == (other[0], other[1])


def test_what_crosses_to_tasks_pickles(spark: Any, lake: Lake) -> None:
    table = create(lake, "t")
    table.write([{"dt": "x", "id": 1, "v": 1, "w": ""}])
    job = writing.WriteJob.of(table, spark.range(1), overwrite=False, row_kind=None, identifier=None)
    assert job.moving is not None
    assert pickle.loads(pickle.dumps(job)) == job
