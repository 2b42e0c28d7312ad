"""Executors that die and tasks that are repeated, on a cluster of several processes.

Run as a program this file is the job: it writes a table while its tasks misbehave as they are told.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelake as tl

ROWS = 400
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "buckets": ([], {"bucket": "4"}),
    "keys that move": (["v"], {"bucket": "-1"}),
    "postponed": ([], {"bucket": "-2", "postpone.target-row-num-per-bucket": "100"}),
}


class Misbehaving:
    """A task that does its work and then, the first time in each stage and part of the rows, does not say so."""

    def __init__(self, task: Any, how: str, marks: str) -> None:
        self.task, self.how, self.marks = task, how, marks

    def run(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        done = list(self.task.run(batches))
        context = TaskContext.get()
        assert context is not None
        mark = Path(self.marks) / f"{context.stageId()}-{context.partitionId()}"
        first = not mark.exists()
        mark.touch()
        if first and self.how == "fails":
            raise OSError("the first attempt fails")
        if first and self.how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        yield from done


def job(how: str, lake: str, marks: str) -> None:
    """Write `ROWS` rows."""
    found = tl.connect(lake)
    spark = tl.spark(found, master="local-cluster[2,1,512]", conf={"spark.executor.memory": "512m"})
    frame = spark.range(0, ROWS, 1, 2).selectExpr("id", "concat('v', id % 4) v")
    kind = type(frame)
    known = kind.mapInArrow

    def misbehaving(self: Any, run: Any, *more: Any, **named: Any) -> Any:
        return known(self, Misbehaving(run.__self__, how, marks).run, *more, **named)

    kind.mapInArrow = misbehaving  # type: ignore[method-assign]
    done = found.table("db.t").write(frame)
    assert done.rows == ROWS
    spark.stop()


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("buckets", "fails"),
        ("buckets", "dies"),
        ("keys that move", "dies"),
        ("postponed", "dies"),
    ],
)
def test_rows_count_once_however_often_their_task_ran(tmp_path: Path, kind: str, how: str) -> None:
    lake = tl.connect(tmp_path / "lake", storage={"durability": "none"})
    lake.create_database("db")
    partitions, options = KINDS[kind]
    columns = {"id": "BIGINT", "v": "STRING"}
    table = lake.create_table("db.t", columns, primary_key=["id"], partition_by=partitions, options=options)
    marks = tmp_path / "marks"
    marks.mkdir()
    program = [sys.executable, __file__, how, str(tmp_path / "lake"), str(marks)]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    rows = table.to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": number, "v": f"v{number % 4}"} for number in range(ROWS)]
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    assert snapshot.id == 1
    assert table.check(deep=True, rows=True).ok
    there = {path.name for path in Path(table.location).rglob("data-*")}
    live = set(table.files(columns=["file_name"]).column("file_name").to_pylist())
    assert live < there, "a task ran twice"
    for path in Path(table.location).rglob("*"):
        os.utime(path, (0, 0))
    assert {Path(path).name for path in table.remove_orphans().paths} == there - live


if __name__ == "__main__":
    job(*sys.argv[1:])
