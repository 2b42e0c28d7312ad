"""Tasks that fail, run twice or die, and drivers that do: every row once, or nothing."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tidelake.catalog.lake import Lake
from tidelake.engines.spark.bridge.failures import (
    CarriedError,
    missing_package_error,
    parse_carried_error,
    unwrap_task_errors,
)
from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.write import job as writing
from tidelake.engines.spark.write.dynamic_buckets import owners_ran_once
from tidelake.errors import CommitConflictError, InvalidInputError, StorageError
from tidelake.ops.commit.committer import Committer


def data_files(table: Any) -> set[str]:
    """The data files that lie in the table's folder."""
    return {str(path) for path in Path(table.location).rglob("data-*")}


def live_files(table: Any) -> int:
    """How many of them the newest snapshot names."""
    return int(table.files().num_rows)


def orphans(table: Any) -> set[str]:
    """The names of files of any kind that no snapshot names."""
    for path in Path(table.location).rglob("*"):
        os.utime(path, (0, 0))  # orphans are looked for a day later
    return {Path(path).name for path in table.remove_orphans(plan_only=True).paths}


def test_a_value_that_does_not_fit_is_told_as_in_process_and_leaves_nothing(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "INT NOT NULL", "v": "INT"}, primary_key=["id"], options={"bucket": "4"})
    frame = spark.range(100).selectExpr("cast(id as int) id", f"if(id = 57, {2**40}L, id) v")
    with pytest.raises(InvalidInputError, match="value does not fit its column") as told:
        table.write(frame)
    assert told.value.code == "value-type"
    assert told.value.facts["column"] == "v"
    assert told.value.__cause__ is None
    assert table.latest_snapshot() is None
    assert data_files(table) == set()


def test_a_null_where_none_may_be_is_told_as_in_process(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "STRING NOT NULL"}, options={"bucket": "2", "bucket-key": "id"})
    with pytest.raises(InvalidInputError, match="must not be null"):
        table.write(spark.createDataFrame([("a",), (None,)], "id string"))
    assert data_files(table) == set()


def test_an_error_before_the_shuffle_is_told_as_it_is(spark: Any, lake: Lake) -> None:
    options = {"bucket": "2", "local-merge-buffer-size": "1 mb"}
    table = lake.create_table("db.t", {"id": "INT", "v": "TINYINT"}, primary_key=["id"], options=options)
    with pytest.raises(InvalidInputError, match="value does not fit"):
        table.write(spark.createDataFrame([(1, 1000)], "id int, v int"))


def test_too_many_keys_for_the_dynamic_buckets_are_told_as_they_are(spark: Any, lake: Lake) -> None:
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "1"}
    table = lake.create_table("db.t", {"id": "BIGINT"}, primary_key=["id"], options=options)
    table.write([{"id": 1}])
    with pytest.raises(InvalidInputError, match="all dynamic buckets are full"):
        table.write(spark.range(40_000))
    assert [row["id"] for row in table.to_arrow().to_pylist()] == [1]


def test_an_error_travels_in_a_text_and_keeps_what_it_says() -> None:
    error = StorageError("disk is full", path="somewhere", hint="make room")
    told = parse_carried_error(f"a stack\n{CarriedError(error)}\nmore of it")
    assert type(told) is StorageError
    assert str(told) == str(error)
    assert parse_carried_error("nothing of ours") is None


def test_a_worker_without_the_package_is_told_as_that() -> None:
    def job() -> None:
        with unwrap_task_errors():
            raise PySparkException(
                "An exception was thrown from the Python worker:\nTraceback …\n"
                "ModuleNotFoundError: No module named 'tidelake.engines'"
            )

    with pytest.raises(InvalidInputError, match=r"spark\.pyspark\.python") as caught:
        job()
    assert caught.value.code == "worker-package"
    assert missing_package_error("ModuleNotFoundError: No module named 'somebody.elses'") is None


def test_what_crosses_to_tasks_pickles(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "BIGINT"}, primary_key=["id"], options={"bucket": "-1"})
    job = writing.WriteJob.of(table, spark.range(1), overwrite=False, row_kind=None, identifier=None)
    assert pickle.loads(pickle.dumps(job)) == job
    assert isinstance(job.ref, TableRef)


class Death(BaseException):
    """What ends a job that nobody expected to end."""


def die(*_: object, **__: object) -> None:
    raise Death


def test_a_driver_that_dies_before_the_commit_leaves_orphans_and_the_repeat_is_exact(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("db.t", {"id": "BIGINT", "v": "INT"}, primary_key=["id"], options={"bucket": "2"})
    frame = spark.range(50).selectExpr("id", "1 v")
    with monkeypatch.context() as dying:
        dying.setattr(Committer, "commit", die)
        dying.setattr(Committer, "discard", lambda *_: None)  # a process that is gone removes nothing
        with pytest.raises(Death):
            table.write(frame, commit_user="job", identifier=1)
    assert table.latest_snapshot() is None
    left = data_files(table)
    assert len(left) == 2
    assert table.write(frame, commit_user="job", identifier=1).rows == 50
    assert table.to_arrow().num_rows == 50
    assert live_files(table) == len(data_files(table)) - len(left)
    assert orphans(table) == {Path(path).name for path in left}


def test_a_driver_that_is_interrupted_before_the_commit_leaves_nothing(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("db.t", {"id": "BIGINT"}, primary_key=["id"], options={"bucket": "2"})
    known, written = writing.run_tasks, []

    def seen(*args: Any) -> Any:
        messages = known(*args)
        written.append(len(data_files(table)))
        return messages

    monkeypatch.setattr(writing, "run_tasks", seen)
    monkeypatch.setattr(Committer, "commit", die)
    with pytest.raises(Death):
        table.write(spark.range(50))
    assert written == [2]
    assert table.latest_snapshot() is None
    assert data_files(table) == set()


def test_the_commit_of_a_write_runs_once(spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create_table("db.t", {"id": "BIGINT"}, options={"bucket": "2", "bucket-key": "id"})
    known, calls = Committer.commit, []

    def counted(self: Committer, *args: Any, **more: Any) -> Any:
        calls.append(args)
        return known(self, *args, **more)

    monkeypatch.setattr(Committer, "commit", counted)
    table.write(spark.range(10))
    assert len(calls) == 1


def test_a_commit_by_others_while_the_job_runs_comes_before_it(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("db.t", {"id": "BIGINT", "v": "STRING"}, primary_key=["id"], options={"bucket": "2"})
    table.write([{"id": 0, "v": "first"}])
    known = writing.run_tasks

    def overtaken(*args: Any) -> Any:
        messages = known(*args)
        for number in range(3):
            table.write([{"id": n, "v": f"other {number}"} for n in range(20)])
        return messages

    monkeypatch.setattr(writing, "run_tasks", overtaken)
    table.write(spark.range(10).selectExpr("id", "'spark' v"))
    found = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert found == {n: "spark" if n < 10 else "other 2" for n in range(20)}
    assert table.check(deep=True, rows=True).ok


def test_two_jobs_that_assign_dynamic_buckets_at_once_both_commit_and_no_key_is_there_twice(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "3"}
    table = lake.create_table("db.t", {"id": "BIGINT", "v": "STRING"}, primary_key=["id"], options=options)
    known, jobs = writing.run_tasks, []

    def overtaken(*args: Any) -> Any:
        messages = known(*args)
        jobs.append(messages)
        # Backwards, so that it puts the keys into other buckets.
        table.write([{"id": n, "v": "other"} for n in range(14, 4, -1)])
        return messages

    monkeypatch.setattr(writing, "run_tasks", overtaken)
    table.write(spark.range(10).selectExpr("id", "'spark' v"))
    assert len(jobs) == 1  # no row is read again
    found = sorted((row["id"], row["v"]) for row in table.to_arrow().to_pylist())
    assert found == [(n, "spark" if n < 10 else "other") for n in range(15)]
    assert table.check(deep=True, rows=True).ok
    brought = {file.file_name for message in jobs[0] for file in message.data.new_files}
    assert not brought <= set(table.files()["file_name"].to_pylist())  # some rows had to move
    assert live_files(table) == len(data_files(table))
    assert orphans(table) == set()


def test_a_write_whose_owners_ran_twice_is_run_again(spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "10"}
    table = lake.create_table("db.t", {"id": "BIGINT"}, primary_key=["id"], options=options)
    table.write([{"id": 0}])
    answers = iter([False, True])
    monkeypatch.setattr(writing, "owners_ran_once", lambda runs: owners_ran_once(runs) and next(answers))
    table.write(spark.range(30))
    assert sorted(row["id"] for row in table.to_arrow().to_pylist()) == list(range(30))
    assert live_files(table) == len(data_files(table))
    monkeypatch.setattr(writing, "owners_ran_once", lambda _: False)
    with pytest.raises(CommitConflictError, match="ran tasks that assign buckets twice"):
        table.write(spark.range(40))


def test_two_runs_of_one_owner_are_noticed() -> None:
    assert owners_ran_once([])
    assert owners_ran_once([(7 << 15) + 1, (7 << 15) + 1, (9 << 15) + 2])
    assert not owners_ran_once([(7 << 15) + 1, (8 << 15) + 1])
