"""Renaming tables: one complete table at every moment, under one of the two names."""

from __future__ import annotations

import contextlib

import pytest

import tidelake as tl
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import InvalidInputError, NotFoundError, StorageError, UnsupportedError
from tidelake.io.env import Env
from tidelake.io.fileio import FileIO
from tidelake.io.ids import SeededIds
from tidelake.io.object_store import ObjectStoreFileIO
from tidelake.testing import Crash, FakeClock, FaultyFileIO, MemoryFileIO

ROWS = [{"id": 1, "v": "a"}, {"id": 2, "v": None}]


def lake_on(io: FileIO) -> Lake:
    return Lake(FileSystemCatalog(Env(io, FakeClock(1_000), SeededIds(1))))


@pytest.fixture(params=["folder", "memory"])
def lake(request: pytest.FixtureRequest, tmp_path) -> Lake:
    return tl.connect(tmp_path) if request.param == "folder" else lake_on(MemoryFileIO())


@pytest.fixture
def filled(lake: Lake) -> Lake:
    lake.create_database("a")
    lake.create_database("b")
    table = lake.create_table("a.t", {"id": "INT", "v": "STRING"}, comment="kept")
    table.write(ROWS)
    table.write([{"id": 3}])
    return lake


def test_a_table_gets_another_name_and_keeps_everything(filled: Lake) -> None:
    for new in ("a.u", "b.t"):
        old = filled.tables("a")[0]
        renamed = filled.rename_table(f"a.{old}", new)
        assert (renamed.name, renamed.comment, renamed.count()) == (new, "kept", 3)
        assert f"a.{old}" not in filled
        assert new in filled
    assert filled.tables("a") == []
    assert filled.table("b.t").at(snapshot=1).to_arrow().to_pylist() == ROWS


def test_the_renamed_table_goes_on(filled: Lake) -> None:
    table = filled.rename_table("a.t", "b.u")
    table.write([{"id": 4}])
    table.delete("id = 1")
    assert table.alter(add={"w": "INT"}).count() == 3
    assert table.check().ok
    again = filled.create_table("a.t", {"x": "INT"})
    assert (again.count(), filled.table("b.u").count()) == (0, 3)


@pytest.mark.parametrize(
    ("old", "new", "error", "code"),
    [
        ("a.nope", "a.u", NotFoundError, "table-not-found"),
        ("a.t", "c.t", NotFoundError, "database-not-found"),
        ("a.t", "a.t", InvalidInputError, "invalid-input"),
        ("a.t", "b.taken", InvalidInputError, "table-exists"),
        ("a.t", "b.folder", InvalidInputError, "table-exists"),
        ("a.t", "a.u$branch_x", InvalidInputError, "system-name"),
        ("a.t$snapshots", "a.u", InvalidInputError, "system-name"),
        ("a.t", "u", InvalidInputError, "invalid-input"),
        ("a.t", "a..hidden", InvalidInputError, "invalid-input"),
        ("a.t", "a.x/y", InvalidInputError, "invalid-input"),
    ],
)
def test_what_cannot_be_renamed_is_refused_and_stays(filled: Lake, old, new, error, code) -> None:
    filled.create_table("b.taken", {"x": "INT"}).write([{"x": 7}])
    filled.env.io.write("b.db/folder/file", b"not a table")
    with pytest.raises(error) as caught:
        filled.rename_table(old, new)
    assert caught.value.code == code
    assert filled.table("a.t").count() == 3
    assert filled.table("b.taken").to_arrow().to_pylist() == [{"x": 7}]


def test_an_object_store_refuses_by_name_and_touches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    io = MemoryFileIO()
    lake = lake_on(io)
    lake.create_database("a")
    lake.create_table("a.t", {"id": "INT"}).write([{"id": 1}])
    store = ObjectStoreFileIO("s3", "bucket", storage={"access_key_id": "k", "secret_access_key": "s"})
    monkeypatch.setattr(io, "rename_dir", store.rename_dir)
    with pytest.raises(UnsupportedError) as caught:
        lake.rename_table("a.t", "a.u")
    assert caught.value.code == "rename-not-atomic"
    assert "write the rows into a new table" in (caught.value.hint or "")
    assert (lake.tables("a"), lake.table("a.t").count()) == (["t"], 1)


def scenario(io: FileIO) -> Lake:
    lake = lake_on(io)
    lake.create_database("a")
    lake.create_database("b")
    lake.create_table("a.t", {"id": "INT"}).write([{"id": 1}])
    return lake


@pytest.mark.parametrize("fault", ["before", "after", "crash", "crash_after"])
def test_whatever_fails_one_complete_table_is_there(fault: str) -> None:
    scenario(FaultyFileIO(MemoryFileIO()))  # a storage is probed once in a process, which would shift the numbers
    clean = FaultyFileIO(MemoryFileIO())
    lake = scenario(clean)
    first = len(clean.ops)
    lake.rename_table("a.t", "b.u")
    places = set()
    for number in range(first + 1, len(clean.ops) + 1):
        faulty = FaultyFileIO(MemoryFileIO(), {number: fault})
        lake = scenario(faulty)
        done = False
        with contextlib.suppress(StorageError, Crash):
            done = lake.rename_table("a.t", "b.u").count() == 1
        left = lake_on(faulty.inner)
        found = [name for name in ("a.t", "b.u") if name in left]
        assert len(found) == 1
        assert left.table(found[0]).to_arrow().to_pylist() == [{"id": 1}]
        assert found == ["b.u"] or not done
        places |= set(found)
    assert places == {"a.t", "b.u"}


def test_a_lost_answer_to_a_rename_that_happened_is_a_success() -> None:
    scenario(FaultyFileIO(MemoryFileIO()))
    clean = FaultyFileIO(MemoryFileIO())
    scenario(clean).rename_table("a.t", "b.u")
    number = next(op.number for op in clean.ops if op.name == "rename_dir")
    faulty = FaultyFileIO(MemoryFileIO(), {number: "after"})
    assert scenario(faulty).rename_table("a.t", "b.u").count() == 1
    assert [op.name for op in faulty.ops if op.number > number].count("sync") == 1


def test_names_with_a_dollar_sign_are_no_tables(lake: Lake) -> None:
    with pytest.raises(InvalidInputError) as caught:
        lake.create_table("a.t$x", {"x": "INT"})
    assert caught.value.code == "system-name"
    lake.create_table("a.t", {"x": "INT"}).create_branch("b")
    for name in ("a.t$snapshot", "a.t$branch_b$file", "a.t$files$x"):
        with pytest.raises(InvalidInputError, match="system table does not exist"):
            lake.table(name)
