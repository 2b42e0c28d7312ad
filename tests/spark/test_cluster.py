"""The pipeline, unchanged, on a cluster of several processes; tasks that run twice count once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import tidelake as tl
from kit.spark_cluster import Cluster
from kit.spark_jobs import are_of, expected
from tidelake.table import Table

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
COLUMNS = {"id": "BIGINT", "p": "BIGINT", "v": "STRING"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the lake of a test lies."""
    tl.connect(tmp_path / "lake").create_database("db")
    return tmp_path / "lake"


def made(place: Path, name: str, **options: str) -> Table:
    lake = tl.connect(place)
    if name == "db.keyed":
        return lake.create_table(name, COLUMNS, primary_key=["id"], options={"bucket": "3", **options})
    return lake.create_table(name, COLUMNS, options=options)


def test_tables_are_written_read_and_compacted_by_several_executors(cluster: Cluster, place: Path) -> None:
    keyed = made(place, "db.keyed", **{"write-only": "true"})
    plain = made(place, "db.plain")
    said = json.loads(cluster.run("pipeline", place)[-1])
    assert said["executors"] == 2
    assert said["db.keyed"] == [5_000, 100, 3, 0, 2_500]
    assert said["db.plain"] == [15_000, 300, 3, 0, 7_500]
    assert said["rounds"] == 2
    assert are_of(3, keyed.to_arrow(), 5_000)
    assert Counter(plain.to_arrow().column("v").to_pylist()) == Counter(
        text for turn in range(3) for text in expected(turn, 5_000).column("v").to_pylist()
    )
    for table in (keyed, plain):
        report = table.check(deep=True, rows=True)
        assert report.ok
        assert not report.orphans


@pytest.mark.parametrize("how", ["copy", "fail"])
def test_a_task_of_a_write_that_runs_twice_counts_once(cluster: Cluster, place: Path, tmp_path: Path, how: str) -> None:
    table = made(place, "db.plain")
    marks = tmp_path / "marks"
    marks.mkdir()
    said = json.loads(cluster.run("twice", place, "db.plain", how, str(marks))[-1])
    assert said == {"snapshots": [1]}
    assert {"0-0", "0-1"} <= {each.name for each in marks.iterdir()}
    assert are_of(0, table.to_arrow(), 20_000)
    assert table.check(deep=True, rows=True).ok


def test_a_task_of_a_compaction_that_runs_twice_counts_once(cluster: Cluster, place: Path) -> None:
    table = made(place, "db.keyed", **{"write-only": "true", "target-file-size": "64 kb"})
    for turn in range(3):
        table.write(expected(turn))
    said = json.loads(cluster.run("compact", place, "db.keyed", "copy")[-1])
    assert said == {"snapshots": [4]}
    assert are_of(2, table.to_arrow())
    assert table.check(deep=True, rows=True).ok
