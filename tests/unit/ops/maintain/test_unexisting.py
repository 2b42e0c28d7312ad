"""Missing files are dropped from the table, files that exist stay, and an error of the storage is not an absence."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tidelake as tl
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import StorageError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitMessage, DataIncrement
from tidelake.ops.vectors.vector_writer import index_files_of
from tidelake.spec.data_file import data_files
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO, TracingFileIO

COLUMNS = {"id": "INT NOT NULL", "dt": "STRING NOT NULL"}
VECTORS = {"deletion-vectors.enabled": "true"}
LAYOUTS: list[dict[str, str]] = [{}, {"bucket": "1", "bucket-key": "id"}]


def new_table(options: dict[str, str] | None = None, *, keyed: bool = False) -> Table:
    env = Env(TracingFileIO(MemoryFileIO()), FakeClock(1_000, tick_ms=1), SeededIds(1))
    keys = ["id", "dt"] if keyed else []
    made = Lake(FileSystemCatalog(env)).create_table(
        "d.t", COLUMNS, primary_key=keys, partition_by=["dt"], options=options or {}
    )
    for first in range(0, 60, 20):
        made.write([{"id": n, "dt": f"d{n % 2}"} for n in range(first, first + 4)])
    return made


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow().column("id").to_pylist())


def path_with(table: Table, wanted: int) -> str:
    """The path of the file that holds a row."""
    for split in table.scan().splits():
        for file in split.files:
            path = f"{split.bucket_path}/{file.file_name}"
            rows = pq.read_table(io.BytesIO(table.store.env.io.read(path)))
            if wanted in rows.column("id").to_pylist():
                return path
    raise AssertionError(wanted)


def settle(table: Table) -> None:
    """Let the snapshots expire that name missing files, and check what is left."""
    table.expire_snapshots(older_than=2**53, retain_max=1, retain_min=1)
    report = table.check(deep=True, rows=True)
    assert report.ok, str(report)


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "keyed"])
def test_only_files_that_do_not_exist_are_dropped(keyed: bool) -> None:
    table = new_table({"bucket": "1", "write-only": "true"} if keyed else {}, keyed=keyed)
    before = set(table.files().column("file_name").to_pylist())
    lost = path_with(table, 21)
    table.store.env.io.delete(lost)
    plan = table.remove_unexisting_files(plan_only=True)
    assert (plan.paths, plan.rows, plan.files, plan.result) == ((lost,), 2, 6, None)
    assert table.latest_snapshot().id == 3
    done = table.remove_unexisting_files()
    assert done.paths == (lost,)
    assert done.result is not None
    assert done.result.snapshot_ids == (4,)
    assert table.latest_snapshot().commit_kind.value == "OVERWRITE"
    assert before - set(table.files().column("file_name").to_pylist()) == {lost.rpartition("/")[2]}
    assert ids(table) == [0, 1, 2, 3, 20, 22, 40, 41, 42, 43]
    assert table.remove_unexisting_files().result is None
    settle(table)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_vectors_of_dropped_files_go_and_others_stay(layout: dict[str, str]) -> None:
    table = new_table(VECTORS | layout)
    table.delete("id in (1, 21)")
    lost = path_with(table, 23)
    table.store.env.io.delete(lost)
    table.remove_unexisting_files()
    left = index_files_of(table.store, table.latest_snapshot()).values()
    named = [each.data_file for files in left for file in files for each in file.deletion_vectors or ()]
    assert len(named) == 1
    assert lost.rpartition("/")[2] not in named
    assert ids(table) == [0, 2, 3, 20, 22, 40, 41, 42, 43]
    settle(table)


def test_a_folder_with_several_files_is_listed_once_and_only_doubtful_files_are_asked_for() -> None:
    table = new_table()
    lost = path_with(table, 21)
    table.store.env.io.delete(lost)
    storage: Any = table.store.env.io
    storage.ops.clear()
    table.remove_unexisting_files(plan_only=True)
    listed = [call for call in storage.ops if call.name == "list" and "bucket" in call.path]
    asked = [call.path for call in storage.ops if call.name == "exists" and "bucket" in call.path]
    assert len(listed) == 2
    assert [path.removeprefix("d.db/t/") for path in asked] == [lost]


def test_a_file_that_a_listing_leaves_out_but_that_exists_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table()
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileIO, "list", lambda self, path: [])
        snapshot = table.latest_snapshot()
        patch.setattr(type(table.store.snapshots), "on_newest", lambda self, act: act(snapshot))
        assert table.remove_unexisting_files(plan_only=True).paths == ()


def test_an_error_of_the_storage_ends_the_search_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table()
    table.store.env.io.delete(path_with(table, 21))

    def fail(self: MemoryFileIO, path: str, *, folder: bool = True) -> bool:
        if "bucket" in path:
            raise StorageError("no permission", path=path)
        return exists(self, path, folder=folder)

    exists = MemoryFileIO.exists
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileIO, "exists", fail)
        with pytest.raises(StorageError, match="no permission"):
            table.remove_unexisting_files()
    assert table.latest_snapshot().id == 3
    assert table.files().num_rows == 6


def test_what_another_job_replaces_first_is_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table()
    lost, other = path_with(table, 21), path_with(table, 20)
    table.store.env.io.delete(lost)
    rival, calls, commit = table.with_options({}), [], Committer.commit

    def late(self: Committer, *given: Any, **how: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            table.store.env.io.delete(other)
            rival.remove_unexisting_files()
        return commit(self, *given, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "commit", late)
        assert table.remove_unexisting_files().paths == ()
    assert ids(table) == [0, 1, 2, 3, 40, 41, 42, 43]


def test_a_file_outside_the_table_is_looked_for_where_it_is(tmp_path: Path) -> None:
    lake = tl.connect(tmp_path / "lake")
    table = lake.create_table("d.t", {"id": "INT"}, options={"data-file.external-paths": f"file://{tmp_path}/out"})
    table.write([{"id": 1}])
    (file,) = (tmp_path / "lake").rglob("data-*.parquet")
    (tmp_path / "out").mkdir()
    address = f"file://{tmp_path}/out/{file.name}"
    (meta,) = data_files(table.files())
    outside = replace(meta, file_name=file.name.replace("data-", "data-x"), external_path=address + "x")
    here = replace(meta, external_path=address, file_name=file.name.replace("data-", "data-y"))
    (tmp_path / "out" / file.name).write_bytes(file.read_bytes())
    change = DataIncrement(new_files=(outside, here))
    partition = table.files().column("partition")[0].as_py()
    table.new_commit().commit([CommitMessage(partition=partition, bucket=0, total_buckets=-1, data=change)])
    assert table.remove_unexisting_files().paths == (address + "x",)
    assert table.count() == 2


def test_an_empty_table_misses_nothing() -> None:
    env = Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))
    assert Lake(FileSystemCatalog(env)).create_table("d.t", COLUMNS).remove_unexisting_files().paths == ()
