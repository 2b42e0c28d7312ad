"""What writes, deletes and updates of append tables leave in storage, and what refusals do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidelake as tl
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.committer import Committer
from tidelake.spec.rows.bucket_function import BucketFunction, assign_buckets
from tidelake.spec.types.data_types import INT
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

COLUMNS = {"id": "INT NOT NULL", "dt": "STRING", "v": "STRING"}


def new_lake() -> Lake:
    return Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))))


def new_table(*, partitioned: bool = True, **options: str) -> Table:
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    lake = new_lake()
    return lake.create_table("d.t", COLUMNS, partition_by=["dt"] if partitioned else [], options=given)


def data(*ids: int, dt: str | None = None, v: str | None = None) -> list[dict[str, Any]]:
    return [{"id": i, "dt": dt or f"d{i % 2}", "v": v or str(i)} for i in ids]


def ids(table: Table, **how: Any) -> list[int]:
    return sorted(table.to_arrow(**how).column("id").to_pylist())


def stored(table: Table) -> set[str]:
    """The data files in storage, whoever knows of them."""
    io = table.store.env.io
    found = set()
    for folder in (f"dt={day}/bucket-{bucket}" for day in ("d0", "d1", "d9") for bucket in range(8)):
        found |= {f"{folder}/{each.name}" for each in io.list(folder)}
    return found


def live(table: Table) -> set[str]:
    rows = table.files().to_pylist()
    return {f"{table.paths.bucket(row['partition'], row['bucket'])}/{row['file_name']}" for row in rows}


def test_rows_go_to_the_bucket_that_their_key_hashes_to() -> None:
    table = new_table(bucket="5", bucket_key="id")
    numbers = list(range(-20, 20))
    table.write(data(*numbers))
    wanted = assign_buckets([pa.array(numbers, pa.int32())], [INT], function=BucketFunction.DEFAULT, count=5)
    expected = {(f"d{n % 2}", int(b)) for n, b in zip(numbers, wanted, strict=True)}
    files = table.files().to_pylist()
    assert {(table.paths.partition(f["partition"]).removeprefix("dt="), f["bucket"]) for f in files} == expected
    assert {f["total_buckets"] for f in files} == {5}
    for number in numbers:
        assert ids(table, where=tl.col("id") == number) == [number]


def test_rows_of_tables_without_buckets_lie_in_bucket_zero_with_sequences_from_zero() -> None:
    table = new_table()
    for _ in range(2):
        table.write(data(0, 2, 4))
    files = table.files().to_pylist()
    assert {(f["bucket"], f["total_buckets"], f["min_sequence"], f["max_sequence"]) for f in files} == {(0, -1, 0, 2)}


def test_sequence_numbers_continue_those_of_the_bucket() -> None:
    table = new_table(bucket="1", bucket_key="id")
    for count in (3, 2, 4):
        table.write(data(*range(count), dt="d1"))
    found = sorted((f["min_sequence"], f["max_sequence"]) for f in table.files().to_pylist())
    assert found == [(0, 2), (3, 4), (5, 8)]
    table.write(data(1, dt="d9"))
    assert table.files(where=tl.col("dt") == "d9").column("min_sequence").to_pylist() == [0]


def test_rows_of_a_bucket_are_read_in_the_order_they_were_written() -> None:
    table = new_table(bucket="1", bucket_key="id")
    for start in (30, 10, 20):
        table.write(data(*range(start, start + 3), dt="d1"))
    expected = [30, 31, 32, 10, 11, 12, 20, 21, 22]
    assert table.to_arrow().column("id").to_pylist() == expected
    table.compact(full=True)
    assert table.files().num_rows == 1
    assert table.to_arrow().column("id").to_pylist() == expected


def test_another_number_of_buckets_is_refused_until_the_partition_is_overwritten() -> None:
    table = new_table(bucket="3", bucket_key="id")
    table.write(data(*range(8)))
    table = table.set_options({"bucket": "2"})
    before = stored(table)
    with pytest.raises(tl.InvalidInputError) as caught:
        table.write(data(1))
    assert (caught.value.code, caught.value.facts["previous"], caught.value.facts["new"]) == ("bucket-count", "3", "2")
    assert stored(table) == before
    table.write(data(1, 3), mode="overwrite", partition={"dt": "d1"})
    table.write(data(5))
    assert ids(table) == [0, 1, 2, 3, 4, 5, 6]
    for number in ids(table):
        assert ids(table, where=tl.col("id") == number) == [number]


def test_a_writer_that_is_closed_leaves_no_file() -> None:
    table = new_table()
    writer = table.new_write()
    writer.write(data(*range(10)))
    writer.close()
    assert stored(table) == set()
    assert table.latest_snapshot() is None


def test_rows_that_are_refused_late_leave_no_file() -> None:
    table = new_table()

    def batches() -> Any:
        yield pa.RecordBatch.from_pylist(data(1, 2))
        yield pa.RecordBatch.from_pylist([{"id": None, "dt": "d1", "v": "x"}])

    with pytest.raises(tl.InvalidInputError, match="must not be null"):
        table.write(batches())
    assert stored(table) == set()
    assert table.latest_snapshot() is None


@pytest.mark.parametrize("error", [tl.CommitConflictError, tl.InvalidInputError, tl.FormatError, tl.UnsupportedError])
def test_a_commit_that_is_refused_leaves_no_file(monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    table = new_table()
    table.write(data(1, 2, 3))
    before = stored(table)

    def refused(*_: Any, **__: Any) -> Any:
        raise error("refused for the test")

    monkeypatch.setattr(Committer, "commit", refused)
    for act in (
        lambda: table.write(data(4)),
        lambda: table.delete("id = 1"),
        lambda: table.update({"v": "'x'"}, "id = 1"),
        lambda: table.update({"dt": "'d9'"}, "id = 1"),
    ):
        with pytest.raises(error):
            act()
        assert stored(table) == before


def test_a_commit_of_unknown_outcome_keeps_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table()

    def unknown(*_: Any, **__: Any) -> Any:
        raise tl.CommitUnknownError("nobody knows")

    monkeypatch.setattr(Committer, "commit", unknown)
    with pytest.raises(tl.CommitUnknownError):
        table.write(data(4))
    assert len(stored(table)) == 1


def test_an_update_whose_moved_rows_do_not_fit_leaves_no_file() -> None:
    table = new_table()
    table.write(data(1, 2, 3))
    before = stored(table)
    with pytest.raises(tl.InvalidInputError):
        table.update({"dt": "'d9'", "id": "cast(null as int)"}, "id = 1")
    assert stored(table) == before
    assert ids(table) == [1, 2, 3]


def test_a_compaction_that_fails_half_way_leaves_no_file() -> None:
    table = new_table()
    for _ in range(3):
        table.write(data(1, 2))
    victim = min(path for path in live(table) if "dt=d1" in path)
    table.store.env.io.delete(victim)
    before = stored(table)
    with pytest.raises(tl.FormatError, match="missing"):
        table.compact(full=True)
    assert stored(table) == before


def test_a_repeated_identifier_writes_nothing() -> None:
    table = new_table()
    first = table.write(data(1), commit_user="job", identifier=1)
    before = stored(table)
    again = table.write(data(1), commit_user="job", identifier=1)
    assert (first.repeated, again.repeated, again.snapshot_ids) == (False, True, ())
    assert stored(table) == before
    assert ids(table) == [1]
    assert table.write(data(2), commit_user="job", identifier=2).snapshot_ids == (2,)


def test_an_identifier_without_a_user_is_refused() -> None:
    with pytest.raises(tl.InvalidInputError, match="commit user"):
        new_table().write(data(1), identifier=1)


def test_deletes_count_rows_and_leave_files_without_a_match_alone() -> None:
    table = new_table()
    table.write(data(0, 2, 4))
    table.write(data(1, 3))
    untouched = {path for path in live(table) if "dt=d1" in path}
    result = table.delete("id in (2, 4, 77)")
    assert result.rows == 2
    assert ids(table) == [0, 1, 3]
    assert untouched <= live(table)
    assert table.delete("id = 77").snapshot_ids == ()
    assert table.delete("id = 0").rows == 1
    assert live(table) == untouched


@pytest.mark.parametrize(("text", "count"), [("1 = 0", 0), ("1 = 1", 5), ("cast(null as boolean)", 0)])
def test_a_condition_without_columns_holds_for_all_rows_or_for_none(text: str, count: int) -> None:
    table = new_table()
    table.write(data(*range(5)))
    assert table.count(text) == count
    assert table.to_arrow(where=text).num_rows == count
    assert table.delete(text).rows == count
    assert table.count() == 5 - count


def test_a_null_condition_deletes_nothing() -> None:
    table = new_table()
    table.write([{"id": 1, "dt": "d1", "v": None}, {"id": 2, "dt": "d1", "v": "a"}])
    assert table.delete("v = 'a'").rows == 1
    assert table.delete("v <> 'a'").rows == 0
    assert ids(table) == [1]


def test_updates_count_rows_and_keep_the_places_of_the_others() -> None:
    table = new_table(bucket="1", bucket_key="id")
    table.write(data(*range(6), dt="d1"))
    result = table.update({"v": "concat(v, '!')"}, "id % 2 = 1")
    assert result.rows == 3
    assert table.to_arrow().column("v").to_pylist() == ["0", "1!", "2", "3!", "4", "5!"]
    assert table.to_arrow().column("id").to_pylist() == list(range(6))


def test_an_update_moves_rows_to_their_new_partition_and_bucket() -> None:
    table = new_table(bucket="3", bucket_key="id")
    table.write(data(*range(12)))
    assert table.update({"dt": "'d9'", "id": "id + 100"}, "id < 6").rows == 6
    assert ids(table) == [*range(6, 12), *range(100, 106)]
    assert ids(table, where="dt = 'd9'") == list(range(100, 106))
    for number in ids(table):
        assert ids(table, where=tl.col("id") == number) == [number]
    report = table.check(deep=True)
    assert report.ok, str(report)


def test_an_update_sees_the_old_values_in_every_assignment() -> None:
    lake = new_lake()
    table = lake.create_table("d.t", {"a": "INT", "b": "INT"})
    table.write([{"a": 1, "b": 2}])
    table.update({"a": "b", "b": "a"}, "a = 1")
    assert table.to_arrow().to_pylist() == [{"a": 2, "b": 1}]


def test_an_update_to_a_value_that_does_not_fit_changes_nothing() -> None:
    table = new_table()
    table.write(data(1))
    before = stored(table)
    with pytest.raises(tl.InvalidInputError):
        table.update({"id": "cast(null as int)"}, "id = 1")
    with pytest.raises(tl.InvalidInputError):
        table.update({"nope": "1"}, "id = 1")
    assert stored(table) == before
    assert (table.latest_snapshot() or pytest.fail("no snapshot")).id == 1


def test_a_value_of_another_type_than_the_bucket_key_is_no_crash() -> None:
    table = new_table(bucket="3", bucket_key="id")
    table.write(data(1, 2))
    with pytest.raises(tl.InvalidInputError):
        table.count(tl.col("id") == "x")
    assert table.count("id = 99999999999") == 0


def test_large_writes_roll_into_files_whose_sequences_follow_each_other() -> None:
    table = new_table(bucket="1", bucket_key="id", target_file_row_num="1000")
    count = 4500
    table.write(pa.table({"id": np.arange(count, dtype=np.int32), "dt": ["d1"] * count}))
    found = sorted((f["min_sequence"], f["max_sequence"], f["row_count"]) for f in table.files().to_pylist())
    assert [low for low, _, _ in found] == [0, 1000, 2000, 3000, 4000]
    assert [rows for _, _, rows in found] == [1000, 1000, 1000, 1000, 500]
    assert table.to_arrow().column("id").to_pylist() == list(range(count))


def test_a_table_at_a_point_in_time_is_not_written() -> None:
    table = new_table()
    table.write(data(1))
    old = table.at(snapshot=1)
    for act in (
        lambda: old.write(data(2)),
        lambda: old.delete("id = 1"),
        lambda: old.compact(),
        old.truncate,
        old.new_write,
    ):
        with pytest.raises(tl.InvalidInputError, match="point in time"):
            act()
