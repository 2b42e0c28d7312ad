"""System tables are opened by name and read like tables: columns, conditions, orders, points in time, branches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidelake as tl
from kit.small_tables import file, message, new_table
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import InvalidInputError, NotFoundError, UnsupportedError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.inspect.catalogue import SYSTEM_TABLES
from tidelake.table.system import SystemScan, SystemTable
from tidelake.table.views import VIEWS
from tidelake.testing import FakeClock, MemoryFileIO

SHOWN = tuple(name for name in SYSTEM_TABLES if name != "row_tracking")
NAMES = {
    *("snapshots", "schemas", "options", "audit_log", "binlog", "ro", "files", "file_key_ranges", "file_indexes"),
    *("table_indexes", "manifests", "partitions", "buckets", "tags", "branches", "consumers", "aggregation_fields"),
    *("statistics", "row_tracking"),
}


@pytest.fixture
def lake() -> Lake:
    """A table of two snapshots with a tag and a branch, and an empty one."""
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))))
    columns = {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "STRING"}
    table = lake.create_table(
        "d.t", columns, primary_key=["dt", "id"], partition_by=["dt"], options={"bucket": "1", "write-only": "true"}
    )
    table.write([{"id": 1, "dt": "a", "v": "x"}, {"id": 2, "dt": "b", "v": None}])
    table.create_tag("first")
    table.create_branch("b", tag="first")
    table.write([{"id": 3, "dt": "a", "v": "y"}])
    lake.create_table("d.empty", {"id": "INT"})
    return lake


def test_all_names_of_the_format_are_there() -> None:
    assert {*SYSTEM_TABLES, *VIEWS} == NAMES
    assert len(NAMES) == 19


@pytest.mark.parametrize("name", SHOWN)
def test_a_system_table_has_its_columns_with_and_without_rows(lake: Lake, name: str) -> None:
    opened, empty = lake.table(f"d.t${name}"), lake.table(f"d.empty${name}")
    assert opened.to_arrow().schema.equals(opened.scan().arrow_schema, check_metadata=True)
    assert empty.to_arrow().schema.equals(opened.scan().arrow_schema)
    assert getattr(lake.table("d.t").inspect, name)().equals(opened.to_arrow())
    assert opened.count() == opened.to_arrow().num_rows
    assert repr(opened).startswith(f"SystemTable(d.t${name}: ")


def test_rows_are_chosen_sorted_and_counted_like_those_of_a_table(lake: Lake) -> None:
    files = lake.table("d.t$files")
    assert files.count() == 3
    assert files.count("partition = '{a}'") == files.count(tl.col("partition") == "{a}") == 2
    assert files.to_arrow(
        ["record_count", "partition"], "level = 0", order_by="partition desc", limit=2
    ).to_pylist() == [
        {"record_count": 1, "partition": "{b}"},
        {"record_count": 1, "partition": "{a}"},
    ]
    assert files.to_arrow(["min_key"], "min_value_stats like '%v=y%'").to_pylist() == [{"min_key": "[3]"}]
    assert files.scan(["partition"], "partition < '{b}'", 1).to_arrow().num_rows == 1
    assert files.scan(limit=0).to_arrow().num_rows == files.scan(limit=0).count() == 0
    lazy = files.to_polars(lazy=True)
    assert lazy.filter(lazy.collect()["partition"] == "{b}").select("bucket").collect().shape == (1, 1)
    assert pa.table(files)["bucket"].to_pylist() == [0, 0, 0]
    assert sum(batch.num_rows for batch in files.to_batches(["level"])) == 3
    assert list(files.to_pandas(["level"])["level"]) == [0, 0, 0]


def test_mistakes_are_found_also_where_no_row_is(lake: Lake) -> None:
    empty = lake.table("d.empty$files")
    for wrong in ({"columns": ["size"]}, {"where": "size > 1"}, {"where": tl.col("size") > 1}, {"order_by": "size"}):
        with pytest.raises(InvalidInputError, match="column"):
            empty.to_arrow(**wrong)  # type: ignore[arg-type]


def test_system_tables_of_files_follow_time_travel_and_the_others_show_what_is_now(lake: Lake) -> None:
    for past in ({"snapshot": 1}, {"tag": "first"}):
        counts = {name: lake.table(f"d.t${name}").at(**past).count() for name in SHOWN}  # type: ignore[arg-type]
        assert {name: counts[name] for name in ("files", "file_key_ranges", "manifests", "partitions", "buckets")} == {
            "files": 2, "file_key_ranges": 2, "manifests": 1, "partitions": 2, "buckets": 2,
        }  # fmt: skip
        assert (counts["snapshots"], counts["tags"], counts["branches"], counts["options"]) == (2, 1, 1, 2)
    assert lake.table("d.t$files").with_options({"scan.snapshot-id": "1"}).count() == 2
    table = lake.table("d.t").alter(set_options={"snapshot.num-retained.max": "20"})
    assert table.at(snapshot=1).inspect.options().num_rows == 3, "the options are those of now"
    with pytest.raises(NotFoundError):
        lake.table("d.t$files").at(snapshot=9)


def test_a_branch_has_system_tables_of_its_own(lake: Lake) -> None:
    for opened in (lake.table("d.t$branch_b$files"), lake.table("d.t$files").branch("b")):
        assert isinstance(opened, SystemTable)
        assert (opened.name, opened.count()) == ("d.t$branch_b$files", 2)
    assert lake.table("d.t$branch_b$snapshots").count() == 1
    with pytest.raises(NotFoundError):
        lake.table("d.t$branch_c$files")


def test_names_are_read_in_any_case_and_unknown_ones_refused(lake: Lake) -> None:
    assert lake.table("d.t$FILES").name == "d.t$files"
    assert lake.table("d.t$Audit_Log").count() == 3
    for name in ("d.t$file", "d.t$files$x", "d.t$", "d.t$lsm"):
        with pytest.raises(InvalidInputError, match="system table does not exist") as caught:
            lake.table(name)
        assert "file_key_ranges" in (caught.value.hint or "")
    with pytest.raises(NotFoundError):
        lake.table("d.nope$files")


def test_a_system_table_is_only_read(lake: Lake) -> None:
    files = lake.table("d.t$files")
    for verb in ("write", "delete", "compact", "truncate", "alter", "create_tag"):
        with pytest.raises(InvalidInputError, match="cannot be changed") as caught:
            getattr(files, verb)()
        assert caught.value.hint == "write to d.t"
    for verb in (files.changes, files.follow):
        with pytest.raises(InvalidInputError, match="has no changes"):
            verb()
    assert files.latest_snapshot() == lake.table("d.t").latest_snapshot()
    assert files.tags() == {"first": 1}
    with pytest.raises(UnsupportedError, match="not streamed"):
        lake.stream("d.t$files")


def test_a_scan_of_a_system_table_has_no_plan_and_says_what_it_reads(lake: Lake) -> None:
    scan = lake.table("d.t$files").scan(["level"], "level = 0", 3, "level")
    assert isinstance(scan, SystemScan)
    assert scan.explain().splitlines()[0] == "read d.t$files from metadata"
    assert "where" in scan.explain()
    for look in (scan.plan, scan.splits):
        with pytest.raises(UnsupportedError, match="not planned"):
            look()
    found = scan.snapshot()
    assert found is not None
    assert found.id == 2
    assert "<pre>" in scan._repr_html_()


def test_statistics_are_computed_only_where_they_are_asked_for(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelake.ops.inspect import file_tables

    def fail(*_: Any) -> Any:
        raise AssertionError("statistics were computed")

    monkeypatch.setattr(file_tables, "bounds_by_schema", fail)
    files = lake.table("d.t$files")
    assert files.count("record_count = 1") == 3
    assert files.to_arrow(["file_path", "min_key"], "level = 0").num_rows == 3
    with pytest.raises(AssertionError):
        files.to_arrow(["file_path"], "min_value_stats <> ''")


def test_columns_name_their_options_for_aggregation(lake: Lake) -> None:
    options = {"merge-engine": "aggregation", "bucket": "1", "fields.v.aggregate-function": "listagg"}
    options |= {"fields.v.list-agg-delimiter": ";", "fields.default-aggregate-function": "last_value"}
    lake.create_table("d.agg", {"id": "INT NOT NULL", "v": "STRING"}, primary_key=["id"], options=options)
    assert lake.table("d.agg$aggregation_fields").to_arrow().to_pylist() == [
        {"field_name": "id", "field_type": "INT NOT NULL", "function": "[]", "function_options": "[]", "comment": None},
        {
            "field_name": "v", "field_type": "STRING", "function": "[listagg, ;]", "comment": None,
            "function_options": "[fields.v.aggregate-function, fields.v.list-agg-delimiter]",
        },
    ]  # fmt: skip


def test_rows_without_ids_are_refused_by_name(lake: Lake) -> None:
    for opening in (lambda: lake.table("d.t$row_tracking"), lake.table("d.t").inspect.row_tracking):
        with pytest.raises(InvalidInputError, match="does not track rows") as caught:
            opening()
        assert caught.value.facts["option"] == "row-tracking.enabled"


def test_a_partition_counts_the_rows_that_its_deletion_vectors_mark(tmp_path: Any) -> None:
    table = tl.connect(tmp_path, storage={"durability": "none"}).create_table(
        "d.t", {"id": "INT", "p": "INT"}, partition_by=["p"], options={"deletion-vectors.enabled": "true"}
    )
    table.write([{"id": number, "p": number % 2} for number in range(10)])
    table.delete("id in (1, 3, 4)")
    rows = table.inspect.partitions().sort_by("partition").to_pylist()
    assert [(row["partition"], row["record_count"], row["deleted_record_count"]) for row in rows] == [
        ("p=0", 5, 1),
        ("p=1", 5, 2),
    ]


def test_a_file_outside_the_table_keeps_its_address() -> None:
    table = new_table()
    table.new_commit("u").commit([message(file("a.parquet", external_path="s3://other/place/a.parquet"))])
    assert table.inspect.file_key_ranges()["file_path"].to_pylist() == ["s3://other/place/a.parquet"]
