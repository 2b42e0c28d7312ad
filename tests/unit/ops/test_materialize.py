"""Materialized deletion vectors: none is left, no row changes, and other jobs lose no deletion."""

from __future__ import annotations

from typing import Any

import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import InvalidInputError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.committer import Committer
from tidelake.ops.vectors.vector_writer import index_files_of
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

VECTORS = {"deletion-vectors.enabled": "true"}
LAYOUTS: list[dict[str, str]] = [{}, {"bucket": "1", "bucket-key": "id"}]
COLUMNS = {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "STRING"}


def new_table(options: dict[str, str], *, keyed: bool = False) -> Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))
    keys = ["id", "dt"] if keyed else []
    return lake.create_table("d.t", COLUMNS, primary_key=keys, partition_by=["dt"], options=VECTORS | options)


def data(*ids: int, v: str = "x") -> list[dict[str, Any]]:
    return [{"id": each, "dt": f"d{each % 2}", "v": v} for each in ids]


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow().column("id").to_pylist())


def has_vectors(table: Table) -> bool:
    return bool(index_files_of(table.store, table.latest_snapshot()))


def sound(table: Table) -> None:
    report = table.check(deep=True, rows=True)
    assert report.ok, str(report)
    assert not report.orphans


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_with_vectors_are_rewritten_and_others_left_alone(layout: dict[str, str]) -> None:
    table = new_table(layout)
    table.write(data(*range(10)))
    table.write(data(*range(20, 30)))
    table.delete("id in (2, 4)")
    left = set(table.files(where="dt = 'd1'").column("file_name").to_pylist())
    plan = table.materialize_deletion_vectors(plan_only=True)
    assert plan.files == 1
    assert table.latest_snapshot().id == 3
    done = table.materialize_deletion_vectors()
    assert (done.snapshot_ids, done.files) == ((4,), 1)
    assert table.latest_snapshot().commit_kind.value == "COMPACT"
    assert not has_vectors(table)
    assert ids(table) == [*(n for n in range(10) if n not in (2, 4)), *range(20, 30)]
    assert left <= set(table.files().column("file_name").to_pylist())
    assert table.materialize_deletion_vectors().snapshot_ids == ()
    sound(table)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_partitions_are_chosen_once_and_others_keep_their_vectors(layout: dict[str, str]) -> None:
    table = new_table(layout)
    table.write(data(*range(10)))
    table.delete("id in (2, 3)")
    table.materialize_deletion_vectors(where="dt = 'd0'")
    assert table.materialize_deletion_vectors([{"dt": "d0"}], plan_only=True).files == 0
    assert table.materialize_deletion_vectors([{"dt": "d1"}], plan_only=True).files == 1
    with pytest.raises(InvalidInputError, match="chosen twice"):
        table.materialize_deletion_vectors([{"dt": "d1"}], "dt = 'd1'")
    with pytest.raises(InvalidInputError, match="not a partition column"):
        table.materialize_deletion_vectors(where="id = 1")
    assert ids(table) == [0, 1, 4, 5, 6, 7, 8, 9]
    sound(table)


def test_rows_of_a_bucket_keep_their_order() -> None:
    table = new_table(LAYOUTS[1] | {"target-file-size": "1 b"})
    for first in (0, 10, 20):
        table.write(data(*range(first, first + 10, 2)))
    table.delete("id in (10, 12)")
    table.materialize_deletion_vectors()
    assert table.to_arrow().column("id").to_pylist() == [0, 2, 4, 6, 8, 14, 16, 18, 20, 22, 24, 26, 28]
    sound(table)


TREE = {"num-sorted-run.compaction-trigger": "100", "num-levels": "6", "bucket": "1"}


def test_buckets_of_a_keyed_table_are_compacted_if_they_have_a_vector() -> None:
    table = new_table(TREE, keyed=True)
    table.write([*data(*range(0, 2000, 2), v="a" * 200), *data(1, 3)])
    table.write(data(4, 6, 3000, v="new"))
    rows = table.to_arrow(order_by=["id"])
    untouched = set(table.files(where="dt = 'd1'").column("file_name").to_pylist())
    assert has_vectors(table)
    assert table.materialize_deletion_vectors(plan_only=True).files > 0
    table.materialize_deletion_vectors()
    assert not has_vectors(table)
    assert table.to_arrow(order_by=["id"]).equals(rows)
    assert untouched <= set(table.files().column("file_name").to_pylist())
    assert table.materialize_deletion_vectors().snapshot_ids == ()
    sound(table)


def test_a_file_that_a_full_compaction_moves_with_its_vector_is_rewritten_too() -> None:
    table = new_table(TREE | {"target-file-size": "1 b"}, keyed=True)
    table.write(data(*range(0, 2000, 2), v="a" * 200))
    table.write(data(*range(5000, 5200, 2), v="b" * 200))
    table.write([{**each, "rowkind": "-D"} for each in data(5002, v="b" * 200)])
    assert sorted(table.files().column("level").to_pylist()) == [4, 5]
    rows = table.to_arrow(order_by=["id"])
    table.materialize_deletion_vectors()
    assert not has_vectors(table)
    assert table.to_arrow(order_by=["id"]).equals(rows)
    sound(table)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_that_another_job_deletes_while_it_runs_stay_deleted(
    layout: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(layout)
    table.write(data(*range(10)))
    table.delete("id = 2")
    rival, calls, commit = table.with_options({}), [], Committer.commit

    def late(self: Committer, *given: Any, **how: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            rival.delete("id = 4")
        return commit(self, *given, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "commit", late)
        table.materialize_deletion_vectors()
    assert len(calls) > 2
    assert ids(table) == [0, 1, 3, 5, 6, 7, 8, 9]
    assert not has_vectors(table)
    sound(table)


def test_a_table_without_vectors_or_rows_is_left_as_it_is() -> None:
    for keyed in (False, True):
        table = new_table({"bucket": "1"} if keyed else {}, keyed=keyed)
        assert table.materialize_deletion_vectors().snapshot_ids == ()
        table.write(data(1, 2))
        assert table.materialize_deletion_vectors().snapshot_ids == ()
