"""The options of a read: each is honoured, or refused by its name with what to do instead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake as tl
from kit.small_tables import file, message, new_table
from tidelake.errors import FormatError, InvalidInputError, NotFoundError, UnsupportedError
from tidelake.ops.scan.modes import ScanMode, Start, names_a_place, plan_start
from tidelake.options import TableOptions
from tidelake.query import with_request
from tidelake.spec.data_file import DataFile
from tidelake.table import Table
from tidelake.testing import FakeClock


def ids(table: Table, **how: Any) -> list[int]:
    return sorted(table.to_arrow(["id"], **how).column("id").to_pylist())


def row(number: int, dt: str | None = "d1") -> dict[str, Any]:
    return {"id": number, "dt": dt}


@pytest.fixture
def table() -> Table:
    """Snapshots: 1-3 append, 4 compacts, 5 overwrites d2, 6 appends; 1000 ms apart."""
    table = new_table()
    clock = table.store.env.clock
    assert isinstance(clock, FakeClock)

    def wait() -> None:
        clock.sleep(1)

    table.write([row(1), row(2, "d2")])
    for number in (3, 4):
        wait()
        table.write([row(number)])
    wait()
    table.compact(full=True)
    wait()
    table.write([row(5, "d2")], mode="overwrite", partition={"dt": "d2"})
    wait()
    table.write([row(6, "d3")])
    kinds = [table.snapshot(number).commit_kind.value for number in range(1, 7)]
    assert kinds == ["APPEND", "APPEND", "APPEND", "COMPACT", "OVERWRITE", "APPEND"]
    return table


def time_of(table: Table, number: int) -> int:
    return table.snapshot(number).time_ms


# ------------------------------------------------------------------------------------------------ modes


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Start(ScanMode.LATEST_FULL)),
        ({"scan.mode": "full"}, Start(ScanMode.LATEST_FULL)),
        ({"scan.mode": "LATEST_FULL"}, Start(ScanMode.LATEST_FULL)),
        ({"scan.mode": "default", "scan.tag-name": "x"}, Start(ScanMode.FROM_SNAPSHOT, "scan.tag-name")),
        ({"scan.version": "x"}, Start(ScanMode.FROM_SNAPSHOT, "scan.version")),
        ({"scan.watermark": "1"}, Start(ScanMode.FROM_SNAPSHOT, "scan.watermark")),
        ({"scan.timestamp": "2020-01-01"}, Start(ScanMode.FROM_TIMESTAMP, "scan.timestamp")),
        ({"log.scan.timestamp-millis": "1"}, Start(ScanMode.FROM_TIMESTAMP, "scan.timestamp-millis")),
        ({"log.scan": "latest"}, Start(ScanMode.LATEST)),
        ({"incremental-between": "1,2"}, Start(ScanMode.INCREMENTAL, "incremental-between")),
        (
            {"scan.mode": "from-snapshot-full", "scan.snapshot-id": "1"},
            Start(ScanMode.FROM_SNAPSHOT_FULL, "scan.snapshot-id"),
        ),
    ],
)
def test_the_mode_follows_from_the_option_that_says_where(options: dict[str, str], expected: Start) -> None:
    assert plan_start(TableOptions(options)) == expected
    assert names_a_place(TableOptions(options)) is bool(options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scan.snapshot-id": "1", "scan.tag-name": "x"}, "more than one point"),
        ({"scan.snapshot-id": "1", "scan.creation-time-millis": "1"}, "more than one point"),
        ({"scan.watermark": "1", "incremental-between": "1,2"}, "more than one point"),
        ({"scan.mode": "latest", "scan.snapshot-id": "1"}, "does not go with"),
        ({"scan.mode": "from-snapshot-full", "scan.tag-name": "x"}, "does not go with"),
        ({"scan.mode": "from-timestamp"}, "needs an option"),
        ({"scan.mode": "incremental"}, "needs an option"),
    ],
)
def test_options_that_contradict_each_other_are_refused_at_once(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        new_table().with_options(options)
    assert caught.value.code == "option-conflict"
    assert caught.value.hint


def test_each_mode_reads_its_part(table: Table) -> None:
    everything = [1, 3, 4, 5, 6]
    assert ids(table) == everything
    for mode in ("default", "latest-full", "full", "latest"):
        assert ids(table.with_options({"scan.mode": mode})) == everything
    assert ids(table.with_options({"scan.mode": "compacted-full"})) == [1, 2, 3, 4]
    assert ids(table.with_options({"scan.mode": "latest-delta"})) == [6]
    assert ids(table.with_options({"scan.mode": "from-snapshot", "scan.snapshot-id": 2})) == [1, 2, 3]
    assert ids(table.with_options({"scan.timestamp-millis": time_of(table, 3)})) == [1, 2, 3, 4]


def test_the_newest_delta_is_nothing_unless_rows_were_appended() -> None:
    table = new_table()
    latest = {"scan.mode": "latest-delta"}
    assert ids(table.with_options(latest)) == []
    table.write([row(1)])
    assert ids(table.with_options(latest)) == [1]
    table.write([row(2)], mode="overwrite")
    assert ids(table.with_options(latest)) == []


def test_without_a_compaction_the_newest_state_is_read() -> None:
    table = new_table()
    assert ids(table.with_options({"scan.mode": "compacted-full"})) == []
    table.write([row(1)])
    assert ids(table.with_options({"scan.mode": "compacted-full"})) == [1]


def test_by_creation_time_a_snapshot_of_the_history_is_read_or_files_made_since(table: Table) -> None:
    second = time_of(table, 2)
    assert ids(table.with_options({"scan.creation-time-millis": second})) == [1, 2, 3]
    assert ids(table.with_options({"scan.creation-time-millis": second - 1})) == [1, 2, 3]
    assert ids(table.with_options({"scan.creation-time-millis": second + 1})) == [1, 2, 3, 4]
    assert ids(table.with_options({"scan.creation-time-millis": time_of(table, 6) + 1})) == []
    assert ids(table.with_options({"scan.creation-time-millis": 0})) == [1, 3, 4, 5, 6]
    assert ids(table.with_options({"scan.file-creation-time-millis": time_of(table, 6) - 500})) == [6]
    assert ids(table.with_options({"scan.file-creation-time-millis": 2**62})) == []


# ------------------------------------------------------------------------------------------------ changes


def test_changes_are_what_appends_added(table: Table) -> None:
    assert ids(table.with_options({"incremental-between": "1,6"})) == [3, 4, 6]
    assert ids(table.with_options({"incremental-between": "0,1"})) == [1, 2]
    assert ids(table.with_options({"incremental-between": "3,5"})) == []
    assert ids(table.with_options({"incremental-between": "2,2"})) == []
    changelog = {"incremental-between": "0,6", "incremental-between-scan-mode": "changelog"}
    assert ids(table.with_options(changelog)) == []


def test_a_difference_is_what_one_state_has_more_file_by_file(table: Table) -> None:
    diff = {"incremental-between-scan-mode": "diff"}
    assert ids(table.with_options({"incremental-between": "1,3", **diff})) == [3, 4]
    assert ids(table.with_options({"incremental-between": "4,6", **diff})) == [5, 6]
    assert ids(table.with_options({"incremental-between": "3,4", **diff})) == [1, 3, 4]  # written anew
    assert ids(table.with_options({"incremental-between": "0,2", **diff})) == [1, 2, 3]
    assert ids(table.with_options({"incremental-between": "4,6", **diff}), where="id > 5") == [6]


def test_changes_by_time_begin_with_the_empty_table(table: Table) -> None:
    times = f"{time_of(table, 1) - 1},{time_of(table, 3)}"
    assert ids(table.with_options({"incremental-between-timestamp": times})) == [1, 2, 3, 4]
    diff = {"incremental-between-timestamp": times, "incremental-between-scan-mode": "diff"}
    assert ids(table.with_options(diff)) == [1, 2, 3, 4]
    later = f"{time_of(table, 2)},{time_of(table, 6)}"
    assert ids(table.with_options({"incremental-between-timestamp": later})) == [4, 6]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("1", InvalidInputError),
        ("1,2,3", InvalidInputError),
        ("3,1", InvalidInputError),
        ("a,b", InvalidInputError),
        ("0,99", NotFoundError),
        (",1", InvalidInputError),
    ],
)
def test_a_range_that_is_none_is_refused(table: Table, value: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        table.with_options({"incremental-between": value}).count()


@pytest.mark.parametrize("layout", [{}, {"bucket": "1", "bucket-key": "id"}])
def test_changes_are_rows_as_they_were_added_and_a_state_leaves_deleted_rows_out(layout: dict[str, str]) -> None:
    table = new_table(**{"deletion-vectors.enabled": "true", **layout})
    for first in (0, 10, 20):
        table.write([{"id": first + each, "dt": "d", "v": "x"} for each in range(5)])
    table.delete("id % 10 = 2")
    assert sorted(table.changes(since=1).to_arrow().column("id").to_pylist()) == [*range(10, 15), *range(20, 25)]
    between = {"incremental-between": "1,4", "incremental-between-scan-mode": "diff"}
    assert ids(table.with_options(between)) == [10, 11, 13, 14, 20, 21, 23, 24]
    assert ids(table) == [0, 1, 3, 4, 10, 11, 13, 14, 20, 21, 23, 24]


def test_changes_in_files_of_some_columns_are_refused() -> None:
    table = new_table()
    partial: DataFile = replace(file("a"), write_cols=("id",))
    table.new_commit("u").commit([message(partial)])
    with pytest.raises(UnsupportedError) as caught:
        table.changes(since=0).splits()
    assert caught.value.code == "data-evolution"


# ------------------------------------------------------------------------------------------------ how it is planned


def test_manifests_are_read_by_as_many_threads_as_are_asked_for(table: Table) -> None:
    for count in (1, 3):
        assert ids(table.with_options({"scan.manifest.parallelism": count})) == [1, 3, 4, 5, 6]
    with pytest.raises(InvalidInputError, match="wrong form"):
        table.with_options({"scan.manifest.parallelism": 0})


def test_splits_come_in_the_order_of_their_partitions() -> None:
    lake = tl.connect("memory://sorted-partitions")
    lake.create_database("d")
    table = lake.create_table("d.t", {"id": "INT", "n": "INT"}, partition_by=["n"])
    for number in (300, -5, None, 2, 70000):
        table.write([{"id": 1, "n": number}])
    scan = table.with_options({"scan.plan-sort-partition": True}).scan(["n"])
    assert scan.to_arrow().column("n").to_pylist() == [None, -5, 2, 300, 70000]
    lake.drop_database("d", cascade=True)


def test_small_splits_hold_one_file_each(table: Table) -> None:
    small = {"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b"}
    splits = table.with_options(small).scan().splits()
    assert [len(split.files) for split in splits] == [1] * len(splits)
    assert len(splits) > 2


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Table, Path, Path]:
    """Three files, of which one is gone and one is garbage from its middle on."""
    table = tl.connect(tmp_path).create_table("d.t", {"id": "INT", "v": "STRING"})
    for number in range(3):
        table.write([{"id": number, "v": "x" * 100}])
    lost, corrupt, _ = sorted((tmp_path / "d.db/t/bucket-0").iterdir(), key=lambda each: each.stat().st_mtime_ns)
    lost.unlink()
    data = corrupt.read_bytes()
    corrupt.write_bytes(data[:-40] + bytes(40))
    return table, lost, corrupt


def test_files_that_are_gone_or_damaged_are_left_out_only_on_request(
    damaged: tuple[Table, Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    table, lost, corrupt = damaged
    with pytest.raises(FormatError):
        ids(table)
    with pytest.raises(FormatError) as caught:
        ids(table.with_options({"scan.ignore-lost-files": True}))
    assert caught.value.code != "file-missing"
    with pytest.raises(FormatError) as still:
        ids(table.with_options({"scan.ignore-corrupt-files": True}))
    assert still.value.code == "file-missing"
    both = table.with_options({"scan.ignore-lost-files": True, "scan.ignore-corrupt-files": True})
    assert ids(both) == [2]
    assert both.count() == 1
    assert ids(both, limit=1) == [2]
    assert lost.name in caplog.text
    assert corrupt.name in caplog.text


def test_a_rewrite_never_leaves_out_a_file(damaged: tuple[Table, Path, Path]) -> None:
    table, _, _ = damaged
    both = table.with_options({"scan.ignore-lost-files": True, "scan.ignore-corrupt-files": True})
    with pytest.raises(FormatError):
        both.delete("v is not null")
    with pytest.raises(FormatError):
        both.compact(full=True)
    assert table.latest_snapshot().id == 3


@pytest.mark.parametrize(
    "options",
    [
        {"scan.bucket": "0"},
        {"scan.plan-auto-tag-for-read.time-retained": "1 h"},
        {"scan.fallback-snapshot-branch": "b"},
        {"batch-scan-mode": "compact"},
    ],
)
def test_options_that_reads_do_not_honour_are_refused_by_name(table: Table, options: dict[str, str]) -> None:
    with pytest.raises(UnsupportedError) as caught:
        table.with_options(options).count()
    assert caught.value.facts["option"] in options
    assert caught.value.hint


# ------------------------------------------------------------------------------------------------ the handle


def test_a_table_that_is_read_elsewhere_is_not_written(table: Table) -> None:
    for options in ({"scan.mode": "compacted-full"}, {"incremental-between": "1,2"}, {"scan.snapshot-id": 1}):
        with pytest.raises(InvalidInputError, match="cannot be written"):
            table.with_options(options).write([row(9)])
    assert table.latest_snapshot().id == 6


def test_none_takes_an_option_back(table: Table) -> None:
    old = table.at(snapshot=1)
    assert ids(old) == [1, 2]
    again = old.with_options({"scan.snapshot-id": None, "scan.mode": "latest"})
    assert ids(again) == [1, 3, 4, 5, 6]
    with pytest.raises(InvalidInputError, match="more than one point"):
        old.with_options({"scan.timestamp-millis": 5})


def test_options_stored_in_the_table_are_honoured(table: Table) -> None:
    stored = table.alter(set_options={"scan.mode": "compacted-full"})
    assert ids(stored) == [1, 2, 3, 4]
    assert ids(stored.with_options({"scan.mode": "latest"})) == [1, 3, 4, 5, 6]
    stored.write([row(9)])
    with pytest.raises(InvalidInputError, match="needs an option"):
        table.alter(set_options={"scan.mode": "from-snapshot"})


def test_a_condition_of_a_compaction_looks_at_partitions(table: Table) -> None:
    with pytest.raises(InvalidInputError) as caught:
        table.compact(where="id > 3")
    assert caught.value.facts["column"] == "id"
    assert "dt" in (caught.value.hint or "")
    assert table.compact(where="dt = 'd1'", plan_only=True).files == 0


def test_a_moment_with_a_zone_does_not_lose_it(table: Table) -> None:
    import datetime as dt

    lake = tl.connect("memory://zones")
    zoned = lake.create_table("d.t", {"x": "TIMESTAMP(6)", "l": "TIMESTAMP_LTZ(6)", "r": "ROW<a TIMESTAMP(6)>"})
    here = dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC)
    zoned.write([{"x": here.replace(tzinfo=None), "l": here}])
    instants = pa.table({"x": pa.array([here], pa.timestamp("us", "Europe/Berlin"))})
    nested = pa.table({"r": pa.array([{"a": here}], pa.struct([("a", pa.timestamp("us", "UTC"))]))})
    for bad in ([{"x": here}], [{"r": {"a": here}}], instants, nested):
        with pytest.raises(InvalidInputError, match="time zone") as caught:
            zoned.write(bad)
        assert caught.value.code == "value-type"
    assert zoned.to_arrow(["x"]).to_pylist() == [{"x": dt.datetime(2026, 7, 1, 12)}]
    lake.drop_database("d", cascade=True)


def test_a_scan_stays_on_the_snapshot_of_its_first_look(tmp_path: Path) -> None:
    table = tl.connect(tmp_path).create_table("db.t", {"id": "INT"})
    table.write([{"id": 1}])
    scan = table.scan()
    assert scan.count() == 1
    table.write([{"id": 2}])
    assert scan.to_arrow().num_rows == scan.count() == 1
    assert [batch.num_rows for batch in scan.batches()] == [1]
    assert scan.snapshot() == table.snapshot(1)
    assert "at snapshot 1" in scan.explain()
    assert scan.to_polars(lazy=True).collect().height == 1
    for narrower in (with_request(scan, columns=("id",), limit=5), scan.read_optimized()):
        assert narrower.to_arrow().num_rows == narrower.count() == 1
        assert narrower.snapshot() == table.snapshot(1)
    assert table.scan().count() == 2


def test_a_scan_that_was_not_looked_at_sees_what_is_newest(tmp_path: Path) -> None:
    table = tl.connect(tmp_path).create_table("db.t", {"id": "INT"})
    scan = table.scan()
    table.write([{"id": 1}])
    assert scan.count() == 1


def test_a_scan_of_an_empty_table_stays_empty(tmp_path: Path) -> None:
    table = tl.connect(tmp_path).create_table("db.t", {"id": "INT"})
    scan = table.scan()
    assert scan.count() == 0
    table.write([{"id": 1}])
    assert scan.to_arrow().num_rows == 0


@pytest.mark.parametrize(("key", "value"), [("partition.default-name", "none"), ("partition.legacy-name", "false")])
def test_folders_of_partitions_keep_their_names_for_every_use(tmp_path: Path, key: str, value: str) -> None:
    lake = tl.connect(tmp_path)
    table = lake.create_table("db.t", {"id": "INT", "p": "DATE"}, partition_by=["p"])
    with pytest.raises(InvalidInputError) as caught:
        table.with_options({key: value})
    assert caught.value.code == "option-immutable"
    table = table.alter(set_options={key: value})  # no file has a place yet
    table.with_options({"partition.end-input-to-done": True}).write([{"id": 1, "p": None}])
    folder = "p=none" if key == "partition.default-name" else "p=__DEFAULT_PARTITION__"
    assert (tmp_path / "db.db/t" / folder / "_SUCCESS").exists()
    assert (tmp_path / "db.db/t" / folder / "bucket-0").is_dir()
    for change in ({"set_options": {key: "true"}}, {"unset_options": [key]}):
        with pytest.raises(InvalidInputError, match="cannot change once the table has a snapshot"):
            table.alter(**change)
    assert table.to_arrow().num_rows == 1
