"""`analyze`: what it counts, how little it holds, and what is left when it fails."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidelake as tl
from kit.command_line import answer, run
from kit.small_tables import new_table
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io import FileIO
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.maintain.column_sketch import ColumnSketch
from tidelake.spec.types.data_types import Field
from tidelake.spec.types.type_codec import parse_type
from tidelake.table import Table
from tidelake.testing import Crash, FakeClock, Fault, FaultyFileIO, MemoryFileIO


def documents(table: Table) -> list[str]:
    io = table.store.env.io
    return sorted(each.name for each in io.list("statistics")) if io.exists("statistics") else []


def sketch(text: str, values: Any, **how: Any) -> Any:
    field = Field(7, "c", parse_type(text))
    halves = [ColumnSketch(field, **how) for _ in range(2)]
    array = values if isinstance(values, pa.Array) else pa.array(values)
    for number, half in enumerate(halves):
        half.add(array.slice(number * (len(array) // 2), None if number else len(array) // 2))
    halves[0].merge(halves[1])
    return halves[0].result()


def test_columns_are_counted_in_parts() -> None:
    found = sketch("DOUBLE", [1.5, None, float("nan"), 0.0, -0.0, float("nan")])
    assert (found.column_id, found.distinct_count, found.null_count) == (7, 3, 1)
    assert (found.min, found.max, found.average_length, found.max_length) == ("0.0", "NaN", 8, 8)


def test_texts_have_lengths_and_no_bounds() -> None:
    found = sketch("STRING", ["", "éé", None, "abc", "éé"])
    assert (found.distinct_count, found.min, found.max) == (3, None, None)
    assert (found.average_length, found.max_length) == (2, 3)
    assert sketch("BYTES", pa.array([None, None], pa.binary())).max_length == 100


def test_many_distinct_values_are_estimated_within_a_few_percent_by_few_hashes() -> None:
    numbers = np.arange(200_000) * 3
    exact = sketch("BIGINT", pa.array(numbers[:1_000].repeat(3)), hashes_max=1 << 12)
    assert exact.distinct_count == 1_000
    estimate = sketch("BIGINT", pa.array(numbers), hashes_max=1 << 12)
    assert 0.95 < estimate.distinct_count / 200_000 < 1.05
    texts = sketch("STRING", pa.array(numbers).cast(pa.string()), hashes_max=1 << 12)
    assert 0.95 < texts.distinct_count / 200_000 < 1.05


def test_merged_rows_are_counted_and_later_commits_keep_the_statistics() -> None:
    table = new_table(keyed=True)
    for value in ("x", "y"):
        table.write([{"id": 1, "dt": "a", "v": value}, {"id": 2, "dt": "a", "v": None}])
    done = table.analyze(["id", "v"])
    assert done.statistics is not None
    assert (done.statistics.merged_record_count, done.statistics.snapshot_id) == (2, 2)
    assert done.to_arrow().select(["column", "distinct_count", "null_count"]).to_pylist() == [
        {"column": "id", "distinct_count": 2, "null_count": 0},
        {"column": "v", "distinct_count": 1, "null_count": 1},
    ]
    latest = table.latest_snapshot()
    assert latest is not None
    assert (latest.commit_kind.value, done.commit.snapshot_ids) == ("ANALYZE", (3,))
    table.write([{"id": 3, "dt": "a", "v": "z"}])
    assert table.statistics() == done.statistics
    assert table.at(snapshot=2).statistics() is None
    assert table.check(deep=True).ok


def test_without_columns_no_data_file_is_opened_that_needs_no_merge() -> None:
    table = new_table()
    table.write([{"id": 1, "dt": "a", "v": "x"}])
    for path in table.files().column("file_name").to_pylist():
        table.store.env.io.delete(f"dt=a/bucket-0/{path}")
    done = table.analyze()
    assert done.statistics is not None
    assert (done.statistics.merged_record_count, done.statistics.columns) == (1, {})


def test_an_empty_table_gets_no_snapshot() -> None:
    table = new_table()
    assert table.analyze("all").statistics is None
    assert table.latest_snapshot() is None
    assert documents(table) == []


def test_all_leaves_out_columns_without_an_order_and_a_list_refuses_them() -> None:
    table = tl.connect("memory://nested").create_table("d.t", {"id": "INT", "a": "ARRAY<INT>"})
    table.write([{"id": 1, "a": [1]}])
    found = table.analyze("all").statistics
    assert found is not None
    assert list(found.columns or {}) == ["id"]
    with pytest.raises(tl.InvalidInputError, match="cannot be analyzed"):
        table.analyze(["a"])
    with pytest.raises(tl.InvalidInputError, match="list of names"):
        table.analyze("id")  # type: ignore[arg-type]
    with pytest.raises(tl.InvalidInputError, match="twice"):
        table.analyze(["id", "id"])


def test_the_command_prints_what_it_published(tmp_path: Any) -> None:
    table = tl.connect(str(tmp_path)).create_table("d.t", {"id": "INT", "v": "STRING"})
    assert "nothing to analyze" in run("-w", str(tmp_path), "analyze", "d.t").output
    table.write([{"id": 1, "v": "x"}, {"id": 2, "v": None}])
    found = answer("-w", str(tmp_path), "analyze", "d.t", "--columns", "v", "--json")
    assert (found["rows"], found["analyzed_snapshot_id"], found["snapshot_ids"]) == (2, 1, [2])
    assert found["columns"][0]["null_count"] == 1
    assert "snapshot 2 has 2 rows" in run("-w", str(tmp_path), "analyze", "d.t", "--all-columns").output


FAULTS = (Fault.AFTER, Fault.LOST, Fault.CRASH_AFTER)


def open_lake(io: FileIO, seed: int) -> Lake:
    return Lake(FileSystemCatalog(Env(io, FakeClock(1_000), SeededIds(seed))))


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_fails_a_snapshot_has_its_document_and_no_other_document_is_left(fault: Fault) -> None:
    for number in itertools.count(1):
        inner = MemoryFileIO()
        open_lake(inner, 1).create_table("d.t", {"id": "INT"}).write([{"id": 1}])
        counted = itertools.count(1)
        io = FaultyFileIO(inner, lambda op: fault if op.name and next(counted) == number else None)  # noqa: B023
        raised: BaseException | None = None
        try:
            open_lake(io, 2).table("d.t").analyze("all")
        except (tl.TidelakeError, KeyboardInterrupt, Crash) as error:
            raised = error
        after = open_lake(inner, 3).table("d.t")
        newest = after.latest_snapshot()
        assert newest is not None
        named = [] if newest.statistics is None else [newest.statistics]
        assert set(named) <= set(documents(after))
        assert after.statistics() is None or named
        if raised is None:
            assert named
        if not io.has_crashed and not isinstance(raised, tl.CommitUnknownError):
            assert documents(after) == named, (number, io.injected_faults)
        if not io.injected_faults:
            return
