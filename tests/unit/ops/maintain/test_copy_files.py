"""A table copied by its files: the same rows under new names, and no snapshot unless all of it is there."""

from __future__ import annotations

from typing import Any

import pytest

import tidelake as tl
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.errors import CommitConflictError, InvalidInputError, NotFoundError, StorageError, UnsupportedError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.committer import Committer
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

COLUMNS = {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "STRING"}
KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "vectors": {"options": {"deletion-vectors.enabled": "true"}},
    "buckets": {"options": {"deletion-vectors.enabled": "true", "bucket": 2, "bucket-key": "id"}},
    "keyed": {"primary_key": ["dt", "id"], "options": {"bucket": 2}},
    "keyed vectors": {"primary_key": ["dt", "id"], "options": {"bucket": 1, "deletion-vectors.enabled": "true"}},
    "dynamic": {"primary_key": ["dt", "id"], "options": {"bucket": -1, "dynamic-bucket.target-row-num": 4}},
    "moving keys": {"primary_key": ["id"], "options": {"bucket": -1}},
    "postponed": {"primary_key": ["dt", "id"], "options": {"bucket": -2}},
    "indexed": {"options": {"file-index.bloom-filter.columns": "id"}},
}


@pytest.fixture
def lake() -> tl.Lake:
    return tl.Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))


def filled(lake: tl.Lake, kind: str = "append") -> Table:
    made = lake.create_table("d.source", COLUMNS, partition_by=["dt"], **KINDS[kind])
    for number in range(3):
        made.write([{"id": n, "dt": f"d{n % 2}", "v": str(number)} for n in range(number * 5, number * 5 + 10)])
    made = made.add_column("more", "INT")
    made.write([{"id": 100, "dt": "d0", "v": "x", "more": 7}])
    if "deletion-vectors.enabled" in made.options or made.primary_key:
        made.delete("id in (3, 4)")
    return made


def rows(table: Table) -> list[dict[str, Any]]:
    return sorted(table.to_arrow().to_pylist(), key=repr)


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_has_the_rows_schemas_and_options_and_lives_on_its_own(lake: tl.Lake, kind: str) -> None:
    source = filled(lake, kind)
    plan = lake.copy_table("d.source", "other.copy", plan_only=True)
    assert "other.copy" not in lake
    assert (plan.files, plan.snapshot_id) == (source.files().num_rows, source.latest_snapshot().id)
    seen: list[tuple[int, int]] = []
    done = lake.copy_table("d.source", "other.copy", progress=lambda *at: seen.append(at))
    copy = lake.table("other.copy")
    assert (done.snapshot_ids, done.files) == ((1,), plan.files)
    assert seen[-1][0] == seen[-1][1] >= plan.files
    assert rows(copy) == rows(source)
    assert copy.schema == source.schema
    assert copy.store.schemas.ids() == source.store.schemas.ids()
    names = [set(each.files().column("file_name").to_pylist()) for each in (source, copy)]
    assert not names[0] & names[1]
    sizes = [sorted(each.files().column("file_size").to_pylist()) for each in (source, copy)]
    assert sizes[0] == sizes[1]
    report = copy.check(deep=True, rows=True)
    assert report.ok, str(report)
    assert not report.orphans
    lake.drop_table("d.source")
    copy.write([{"id": 1, "dt": "d1", "v": "new", "more": 1}])
    if copy.primary_key:
        copy.compact(full=True)
        assert len(copy.to_arrow(where="id = 1")) == 1
    assert copy.to_arrow(where="id = 1 and v = 'new'").num_rows == 1
    assert copy.check(deep=True).ok


@pytest.mark.parametrize("kind", ["append", "buckets", "dynamic"])
def test_partitions_are_chosen_by_a_condition(lake: tl.Lake, kind: str) -> None:
    source = filled(lake, kind)
    lake.copy_table("d.source", "d.copy", where="dt = 'd1'")
    copy = lake.table("d.copy")
    assert rows(copy) == sorted(source.to_arrow(where="dt = 'd1'").to_pylist(), key=repr)
    report = copy.check(deep=True, rows=True)
    assert report.ok, str(report)
    with pytest.raises(InvalidInputError, match="not a partition column"):
        lake.copy_table("d.source", "d.third", where="id = 1")


def test_an_empty_table_that_fits_can_be_copied_to(lake: tl.Lake) -> None:
    source = filled(lake)
    other = lake.create_table("d.copy", COLUMNS, partition_by=["dt"], options={"file.format": "orc"})
    with pytest.raises(InvalidInputError, match="lacks a schema") as caught:
        lake.copy_table("d.source", "d.copy")
    assert caught.value.facts["schema_id"] == "1"
    other.add_column("more", "INT").write([{"id": 1, "dt": "d0", "v": "", "more": 0}])
    with pytest.raises(InvalidInputError, match="has rows"):
        lake.copy_table("d.source", "d.copy", plan_only=True)
    lake.table("d.copy").truncate()
    lake.copy_table("d.source", "d.copy")
    assert rows(lake.table("d.copy")) == rows(source)
    assert lake.table("d.copy").options == {"file.format": "orc"}
    assert lake.table("d.copy").check(deep=True).ok


@pytest.mark.parametrize(
    ("how", "difference"),
    [
        ({"partition_by": []}, "partition columns"),
        ({"primary_key": ["id", "dt"], "options": {"bucket": 2}}, "primary key"),
        ({"options": {"bucket": 3, "bucket-key": "id"}}, "bucket"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(lake: tl.Lake, how: dict[str, Any], difference: str) -> None:
    filled(lake)
    lake.create_table("d.copy", COLUMNS, **{"partition_by": ["dt"], **how})
    with pytest.raises(InvalidInputError, match="do not agree") as caught:
        lake.copy_table("d.source", "d.copy")
    assert caught.value.facts["difference"] == difference


def test_a_copy_that_fails_leaves_no_snapshot_and_can_be_repeated(
    lake: tl.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = filled(lake, "vectors")
    opened, count = MemoryFileIO.open_output, []

    def fail(self: MemoryFileIO, path: str, **how: Any) -> Any:
        count.append(path)
        if len(count) == 5:
            raise StorageError("disk is full", path=path)
        return opened(self, path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileIO, "open_output", fail)
        with pytest.raises(StorageError, match="disk is full"):
            lake.copy_table("d.source", "d.copy")
    copy = lake.table("d.copy")
    assert copy.latest_snapshot() is None
    assert not [
        each.path
        for each in copy.store.env.io.list("")
        if each.name.startswith("dt=")
        for each in copy.store.env.io.list(f"{each.path}/bucket-0")
    ]
    lake.copy_table("d.source", "d.copy")
    assert rows(lake.table("d.copy")) == rows(source)


def test_a_target_that_another_job_writes_to_first_keeps_its_rows(
    lake: tl.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(lake)
    commit, calls = Committer.commit, []

    def late(self: Committer, *given: Any, **how: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            lake.table("d.copy").write([{"id": 1, "dt": "d0", "v": "theirs", "more": 1}])
        return commit(self, *given, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "commit", late)
        with pytest.raises(CommitConflictError, match="another job wrote to the table"):
            lake.copy_table("d.source", "d.copy")
    copy = lake.table("d.copy")
    assert copy.to_arrow().column("v").to_pylist() == ["theirs"]
    assert not copy.check(deep=True).orphans


def test_views_branches_and_missing_tables(lake: tl.Lake) -> None:
    source = filled(lake)
    source.create_branch("b", snapshot=1)
    lake.copy_table("d.source$branch_b", "d.copy")
    assert lake.table("d.copy").count() == 10
    for name in ("d.source$ro", "d.source$audit_log"):
        with pytest.raises(UnsupportedError):
            lake.copy_table(name, "d.third")
    with pytest.raises(InvalidInputError):
        lake.copy_table("d.source", "d.third$branch_b")
    with pytest.raises(NotFoundError):
        lake.copy_table("d.gone", "d.third")
    lake.create_table("d.empty", COLUMNS)
    assert lake.copy_table("d.empty", "d.fourth").snapshot_ids == ()
    assert lake.table("d.fourth").count() == 0


def test_staged_files_keep_the_form_of_name_that_compactions_of_paimon_parse(lake: tl.Lake) -> None:
    source = lake.create_table("d.source", COLUMNS, partition_by=["dt"], **KINDS["postponed"])
    for number in range(3):
        source.write([{"id": number, "dt": "a", "v": "x"}], commit_user="job", identifier=number)
    lake.copy_table("d.source", "d.target")
    found = [
        sorted(name.rpartition("-w-") for name in table.files(columns=["file_name"]).column("file_name").to_pylist())
        for table in (source, lake.table("d.target"))
    ]
    assert all(mark for _, mark, _ in found[1])
    assert [writer for writer, _, _ in found[1]] == [writer for writer, _, _ in found[0]]
    numbers = [[own.rpartition("-")[2] for _, _, own in names] for names in found]
    assert sorted(numbers[0]) == sorted(numbers[1])
    assert not {own for *_, own in found[0]} & {own for *_, own in found[1]}
