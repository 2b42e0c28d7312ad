"""What a driver of the cluster tests does.

python spark_jobs.py MASTER WHAT LAKE [ARGUMENTS]
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidelake as tl

ROWS = 200_000
SQL = ("id", "id % 2 p", "concat(repeat(cast(id as string), 4), '-', {turn}) v")
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": 2,
    "spark.python.worker.faulthandler.enabled": "false",
}


def rows(spark: Any, turn: int = 0, count: int = ROWS) -> Any:
    """A frame whose rows follow from the turn."""
    return spark.range(0, count, 1, 4).selectExpr(*(each.format(turn=turn) for each in SQL))


def expected(turn: int, count: int = ROWS) -> pa.Table:
    """The rows of a turn, by their ids."""
    ids = range(count)
    texts = [f"{str(number) * 4}-{turn}" for number in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "p": pa.array([number % 2 for number in ids]), "v": texts})


def are_of(turn: int, table: pa.Table, count: int = ROWS) -> bool:
    """Whether the rows are those of one turn, each once."""
    return bool(table.sort_by("id").equals(expected(turn, count).cast(table.schema)))


def where_tasks_run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The process above each Python worker's, as rows."""
    time.sleep(0.5)  # noqa: TID251 - so that both executors get a task
    for _ in batches:
        yield pa.record_batch({"pid": pa.array([os.getppid()], pa.int64())})


class Slow:
    """Passes rows on, slowly: there is time to be killed in."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, in small pieces."""
        for batch in batches:
            for start in range(0, batch.num_rows, 2_000):
                time.sleep(0.02)  # noqa: TID251 - see above
                yield batch.slice(start, 2_000)


class Once:
    """Passes rows on; the first task dawdles, or fails, where it runs for the first time."""

    def __init__(self, marks: str, how: str) -> None:
        self.marks, self.how = marks, how

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, all of them by any attempt."""
        from pyspark import TaskContext

        context = TaskContext.get()
        first = context.partitionId() == 0 and context.attemptNumber() == 0
        Path(self.marks, f"{context.partitionId()}-{context.attemptNumber()}").touch()
        yield from batches
        if first and self.how == "fail":
            raise RuntimeError("this attempt fails")
        if first:
            time.sleep(60)  # noqa: TID251 - a copy of the task is faster


def pipeline(spark: Any, lake: tl.Lake) -> None:
    """Write, upsert, read and compact tables of two kinds."""
    pids = {row.pid for row in spark.range(0, 8, 1, 8).mapInArrow(where_tasks_run, "pid long").collect()}
    said: dict[str, Any] = {"executors": len(pids)}
    for name in ("db.keyed", "db.plain"):
        table = lake.table(name)
        for turn in range(3):
            table.write(rows(spark, turn, 5_000))
        frame = table.to_spark(spark=spark)
        said[name] = [frame.count(), frame.where("id < 100").count(), len(spark.table(name).columns)]
        told: list[int] = []
        table.compact(full=True, on=spark, progress=lambda done, of, told=told: told.append(of - done))
        said[name] += [told[-1], lake.spark_table(name, ["v"], "p = 1").count()]
    lake.table("db.keyed").write(rows(spark, 3, 5_000))
    tended = lake.table("db.keyed").keep_compacted(on=spark, max_rounds=2, interval="10 ms")
    said["rounds"] = tended.rounds
    print(json.dumps(said))


def write(spark: Any, lake: tl.Lake, name: str, turn: str) -> None:
    """Write one turn under its number, slowly where rows are not shuffled."""
    table = lake.table(name)
    frame = rows(spark, int(turn))
    if not table.primary_key:
        frame = frame.mapInArrow(Slow().run, frame.schema)
    done = table.write(frame, commit_user="job", identifier=int(turn))
    print(json.dumps({"repeated": done.repeated, "snapshots": done.snapshot_ids}))


def compact(spark: Any, lake: tl.Lake, name: str, how: str = "") -> None:
    """Compact a table; Spark may copy tasks if that is how."""
    done: Any = lake.table(name).compact(full=True, on=spark)
    print(json.dumps({"snapshots": done.snapshot_ids}))


def twice(spark: Any, lake: tl.Lake, name: str, how: str, marks: str) -> None:
    """Write a turn of which one task runs twice."""
    frame = rows(spark, 0, 20_000)
    done = lake.table(name).write(frame.mapInArrow(Once(marks, how).run, frame.schema))
    print(json.dumps({"snapshots": done.snapshot_ids}))


def main(master: str, what: str, location: str, *arguments: str) -> None:
    """Start a session on the cluster and do one thing."""
    lake = tl.connect(location)
    conf: dict[str, object] = {**_SETTINGS}
    if "copy" in arguments:
        conf |= {
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.minTaskRuntime": "100ms",
            "spark.speculation.task.duration.threshold": "300ms",
        }
    spark = tl.spark(lake, master=master, conf=conf)
    spark.sparkContext.setLogLevel("ERROR")
    {"pipeline": pipeline, "write": write, "compact": compact, "twice": twice}[what](spark, lake, *arguments)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
