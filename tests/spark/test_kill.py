"""Executors and drivers are killed in the middle of their work: one clean commit or none, and then exact rows."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import tidelake as tl
from kit.spark_cluster import Cluster, kill_group, until
from kit.spark_jobs import are_of, expected
from tidelake.spec.documents.snapshot import CommitKind
from tidelake.table import Table

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
COLUMNS = {"id": "BIGINT", "p": "BIGINT", "v": "STRING"}
MANY_FILES = {"target-file-size": "64 kb", "write-buffer-size": "256 kb", "write-buffer-spillable": "false"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the lake of a test lies."""
    tl.connect(tmp_path / "lake").create_database("db")
    return tmp_path / "lake"


def made(place: Path, name: str) -> Table:
    lake = tl.connect(place)
    if name == "db.keyed":
        options = {"bucket": "2", "write-only": "true", **MANY_FILES}
        return lake.create_table(name, COLUMNS, primary_key=["id"], options=options)
    return lake.create_table(name, COLUMNS, options=MANY_FILES)


def data_files(table: Table) -> set[str]:
    return {path.name for path in Path(table.location).rglob("data-*")}


def kinds(table: Table) -> list[CommitKind]:
    latest = table.latest_snapshot()
    return [] if latest is None else [table.snapshot(number).commit_kind for number in range(1, latest.id + 1)]


def is_clean(table: Table) -> bool:
    """Whether nothing is wrong, and whatever is no part of the table is listed as an orphan."""
    report = table.check(deep=True, rows=True)
    reached = {name for number in range(1, len(kinds(table)) + 1) for name in names(table, number)}
    return report.ok and {Path(path).name for path in report.orphans} == data_files(table) - reached


def names(table: Table, snapshot: int) -> list[str]:
    found: list[str] = table.files(snapshot=snapshot, columns=["file_name"]).column("file_name").to_pylist()
    return found


def has(table: Table, turn: int) -> bool:
    """Whether the rows are those of one turn, each once."""
    return are_of(turn, table.to_arrow())


@pytest.mark.parametrize("name", ["db.keyed", "db.plain"])
def test_a_write_survives_the_loss_of_an_executor(cluster: Cluster, place: Path, name: str) -> None:
    table = made(place, name)
    with cluster.driver("write", place, name, "0") as driver:
        until(lambda: len(data_files(table)) > 1 or driver.poll() is not None, "files are written")
        assert driver.poll() is None
        os.kill(cluster.executors()[0], signal.SIGKILL)
        said, _ = driver.communicate()
        assert driver.returncode == 0
    assert json.loads(said) == {"repeated": False, "snapshots": [1]}
    assert has(table, 0)
    assert is_clean(table)


def test_a_compaction_survives_the_loss_of_all_executors(cluster: Cluster, place: Path) -> None:
    table = made(place, "db.keyed")
    for turn in range(3):
        table.write(expected(turn))
    there = data_files(table)
    with cluster.driver("compact", place, "db.keyed") as driver:
        until(lambda: data_files(table) > there or driver.poll() is not None, "files are written")
        assert driver.poll() is None
        victims = cluster.executors()
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        said, _ = driver.communicate()
        assert driver.returncode == 0
    assert len(victims) == 2
    assert json.loads(said) == {"snapshots": [4]}
    assert kinds(table)[3:] == [CommitKind.COMPACT]
    assert has(table, 2)
    assert is_clean(table)
    assert table.check(deep=True).orphans  # the dead tasks had begun


@pytest.mark.parametrize("name", ["db.keyed", "db.plain"])
def test_a_write_whose_driver_is_killed_did_nothing_and_can_be_repeated(
    cluster: Cluster, place: Path, name: str
) -> None:
    table = made(place, name)
    with cluster.driver("write", place, name, "0") as driver:
        until(lambda: len(data_files(table)) > 1 or driver.poll() is not None, "files are written")
        assert driver.poll() is None
        kill_group(driver)
    assert kinds(table) == []
    assert is_clean(table)
    assert json.loads(cluster.run("write", place, name, "0")[-1]) == {"repeated": False, "snapshots": [1]}
    assert has(table, 0)
    assert is_clean(table)
    assert table.check(deep=True).orphans
    assert table.write(expected(0), commit_user="job", identifier=0).repeated


def test_a_compaction_whose_driver_is_killed_did_nothing_and_can_be_repeated(cluster: Cluster, place: Path) -> None:
    table = made(place, "db.keyed")
    for turn in range(3):
        table.write(expected(turn))
    there = data_files(table)
    with cluster.driver("compact", place, "db.keyed") as driver:
        until(lambda: data_files(table) > there or driver.poll() is not None, "files are written")
        assert driver.poll() is None
        kill_group(driver)
    assert kinds(table) == [CommitKind.APPEND] * 3
    assert has(table, 2)
    assert is_clean(table)
    assert json.loads(cluster.run("compact", place, "db.keyed")[-1]) == {"snapshots": [4]}
    assert has(table, 2)
    assert is_clean(table)
