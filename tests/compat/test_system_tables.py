"""System tables by name say what the real Paimon's say: names, types and nullability of columns, and rows."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import oracle
import tidelake as tl
from tidelake.ops.inspect.catalogue import SYSTEM_TABLES
from tidelake.table import Table
from tidelake.table.views import VIEWS

pytestmark = pytest.mark.oracle

NEWER = {"snapshots": ["writer_version"]}
"""Columns that release 2.0.0 does not have."""
THEIRS = tuple(name for name in SYSTEM_TABLES if name not in ("file_indexes", "row_tracking"))


# --------------------------------------------------------------------------------------------------------- compared


def plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.replace(microsecond=value.microsecond // 1000 * 1000)
    return {key: plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def as_rows(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """Rows in a fixed order; JSON, and lists that Java prints in the order of a hash map, by their content."""
    shown = []
    for row in rows:
        row = {key: plain(value) for key, value in row.items() if key not in NEWER.get(name, ())}
        if name == "schemas":
            row |= {key: json.loads(row[key]) for key in ("fields", "partition_keys", "primary_keys")}
            row["options"] = sorted(json.loads(row["options"]).items())
        if name == "aggregation_fields":
            row |= {key: sorted(row[key].strip("[]").split(", ")) for key in ("function", "function_options")}
        shown.append(repr(row))
    return sorted(shown)


def same_columns(ours: Table, theirs: oracle.Table, name: str) -> None:
    newer = NEWER.get(name, [])
    fields = {field.name: str(field.type) for field in ours.schema.fields}
    wanted = {key: text.replace("`", "") for key, text in theirs.fields().items()}
    assert list(fields) == [*wanted, *newer], name
    assert {key: text.replace("`", "") for key, text in fields.items() if key not in newer} == wanted, name
    arrow = ours.to_arrow().schema
    assert arrow.names == list(fields)
    assert [field.nullable for field in arrow] == [not text.endswith("NOT NULL") for text in fields.values()], name


def same_rows(ours: Table, theirs: list[dict[str, Any]], name: str) -> None:
    assert as_rows(name, ours.to_arrow().to_pylist()) == as_rows(name, theirs), name


def compare(lake: tl.Lake, catalog: oracle.Catalog, table: str, **travel: Any) -> None:
    """Each system table of a table, or of one of its branches, at a point in time."""
    for name in THEIRS:
        ours, theirs = lake.table(f"{table}${name}"), catalog.table(f"{table}${name}")
        same_columns(ours, theirs, name)
        if travel and name != "buckets":  # Java's shows the newest snapshot whatever it is asked for
            options = {"scan.snapshot-id": "1"} if "snapshot" in travel else {"scan.tag-name": travel["tag"]}
            same_rows(ours.at(**travel), theirs.read(options=options), name)
        elif not travel:
            same_rows(ours, theirs.read(), name)


# ----------------------------------------------------------------------------------------------------------- tables


KEYED: dict[str, Any] = {
    "fields": {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "STRING", "n": "BIGINT", "m": "TIMESTAMP(3)"},
    "primary_key": ["dt", "id"],
    "partition_by": ["dt"],
    "options": {
        "bucket": "2",
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.n.ignore-retract": "true",
        "fields.v.aggregate-function": "listagg",
        "fields.v.list-agg-delimiter": ";",
    },
}
APPEND: dict[str, Any] = {
    "fields": {"id": "INT", "v": "STRING"},
    "primary_key": [],
    "partition_by": [],
    "options": {"bucket": "-1", "deletion-vectors.enabled": "true"},
}
ROWS: dict[str, list[list[tuple[Any, ...]]]] = {
    "k": [
        [(1, "x", "a", 1, dt.datetime(2024, 1, 2, 3, 4)), (2, "y/z", None, 2, None)],
        [(1, "x", "b", 3, dt.datetime(1969, 1, 2, 3, 4, 5, 6000))],
    ],
    "a": [[(1, "b"), (2, None)], [(3, "c")]],
}


def their_tables(catalog: oracle.Catalog, lake: tl.Lake) -> None:
    del lake
    for name, made in (("k", KEYED), ("a", APPEND)):
        table = catalog.create_table(
            f"d.{name}", made["fields"], made["primary_key"], made["partition_by"], made["options"]
        )
        for rows in ROWS[name]:
            table.write(rows)
        table.create_tag("one", 1)
        table.create_branch("b", "one")
        table.set_consumer("me", 2)
    table = catalog.table("d.a")
    table.delete_positions(table.files()[0]["file"], [0])


def our_tables(catalog: oracle.Catalog, lake: tl.Lake) -> None:
    del catalog
    for name, made in (("k", KEYED), ("a", APPEND)):
        keys = {"primary_key": made["primary_key"], "partition_by": made["partition_by"]}
        table = lake.create_table(f"d.{name}", made["fields"], **keys, options=made["options"])
        for rows in ROWS[name]:
            table.write([dict(zip(made["fields"], row, strict=True)) for row in rows])
        table.create_tag("one", 1, time_retained="3 d")
        table.create_branch("b", tag="one")
        table.reset_consumer("me", 2)
    lake.table("d.a").delete("id = 1")


@pytest.mark.parametrize("write", [their_tables, our_tables])
def test_every_system_table_is_the_one_of_java(
    catalog: oracle.Catalog, tmp_path: Path, write: Callable[[oracle.Catalog, tl.Lake], None]
) -> None:
    lake = tl.connect(tmp_path, storage={"durability": "none"})
    write(catalog, lake)
    for table in ("d.k", "d.a"):
        compare(lake, catalog, table)
        compare(lake, catalog, f"{table}$branch_b")
        compare(lake, catalog, table, snapshot=1)
        compare(lake, catalog, table, tag="one")
    assert lake.table("d.a$table_indexes").to_arrow()["dv_ranges"].to_pylist()[0][0]["_CARDINALITY"] == 1


def test_an_empty_table_has_the_same_columns_and_no_rows(catalog: oracle.Catalog, tmp_path: Path) -> None:
    lake = tl.connect(tmp_path, storage={"durability": "none"})
    lake.create_table("d.k", {"id": "INT NOT NULL"}, primary_key=["id"], options={"bucket": "1"})
    lake.create_table("d.a", {"id": "INT"})
    for table in ("d.k", "d.a"):
        compare(lake, catalog, table)
        for view in VIEWS:
            assert lake.table(f"{table}${view.upper()}").to_arrow().num_rows == 0


def test_statistics_are_shown_where_the_snapshot_has_them(catalog: oracle.Catalog, tmp_path: Path) -> None:
    from jpype import java

    table = catalog.create_table("d.t", {"id": "INT", "v": "STRING"}, options={"bucket": "-1"})
    table.write([(1, "a"), (2, 'b"')])
    numbers, text = java.lang.Long, oracle.java("data.BinaryString").fromString
    column = oracle.java("stats.ColStats").newColStats
    columns = java.util.LinkedHashMap()
    columns.put("id", column(0, numbers(2), java.lang.Integer(1), java.lang.Integer(2), numbers(0), numbers(4), None))
    columns.put("v", column(1, None, text("a"), text('b"'), None, None, numbers(2)))
    table.analyze(oracle.java("stats.Statistics")(1, 0, numbers(2), numbers(100), columns))
    lake = tl.connect(tmp_path)
    compare(lake, catalog, "d.t")
    compare(lake, catalog, "d.t", snapshot=1)
    assert lake.table("d.t$statistics").count() == 1
    assert lake.table("d.t$statistics").at(snapshot=1).count() == 0
    table.analyze(oracle.java("stats.Statistics")(1, 0, numbers(2), numbers(100)))
    compare(lake, catalog, "d.t")


def test_rows_with_their_ids_are_those_of_java(catalog: oracle.Catalog, tmp_path: Path) -> None:
    options = {"bucket": "-1", "row-tracking.enabled": "true"}
    theirs = catalog.create_table("d.t", {"id": "INT", "p": "INT", "v": "STRING"}, [], ["p"], options)
    theirs.write([(1, 1, "a"), (2, 2, "b")])
    theirs.write([(3, 1, "c"), (4, 2, None), (5, 2, "e")])
    catalog.create_table("d.other", {"id": "INT"}, options={"bucket": "-1"})
    lake = tl.connect(tmp_path)
    ours = lake.table("d.t$row_tracking")
    same_columns(ours, theirs.system("row_tracking"), "row_tracking")
    same_rows(ours, theirs.system("row_tracking").read(), "row_tracking")
    same_rows(
        ours.at(snapshot=1), theirs.system("row_tracking").read(options={"scan.snapshot-id": "1"}), "row_tracking"
    )
    assert ours.count("_ROW_ID >= 2 and p = 2") == 2
    theirs.rewrite(lambda row: row["id"] != 4)
    same_rows(ours, theirs.system("row_tracking").read(), "row_tracking")
    with pytest.raises(Exception, match="does not support row tracking"):
        catalog.table("d.other$row_tracking").fields()
    with pytest.raises(tl.InvalidInputError, match="does not track rows"):
        lake.table("d.other$row_tracking")


def test_file_indexes_are_those_that_java_wrote(catalog: oracle.Catalog, tmp_path: Path) -> None:
    """Release 2.0.0 writes them and does not have this table: compared with what it was asked to write."""
    index = {"file-index.bitmap.columns": "v", "file-index.bloom-filter.columns": "id"}
    small = catalog.create_table(
        "d.inside", {"id": "INT", "v": "STRING"}, options={**index, "file-index.bloom-filter.id.items": "10"}
    )
    large = catalog.create_table("d.beside", {"id": "INT", "p": "INT", "v": "STRING"}, [], ["p"], index)
    small.write([(1, "a"), (2, "b")])
    large.write([(1, 1, "a"), (2, 2, "b")])
    lake = tl.connect(tmp_path)
    rows = lake.table("d.inside$file_indexes").to_arrow().to_pylist()
    assert sorted((row["column_name"], row["index_type"]) for row in rows) == [("id", "bloom-filter"), ("v", "bitmap")]
    assert {(row["storage_type"], row["index_file_path"], row["is_empty"]) for row in rows} == {
        ("EMBEDDED", None, False)
    }
    rows = lake.table("d.beside$file_indexes").to_arrow().to_pylist()
    assert len(rows) == 4
    for row in rows:
        path = Path(row["index_file_path"].removeprefix("file:"))
        assert path.stat().st_size == row["index_container_size_in_bytes"] > row["index_size_in_bytes"] > 0
        assert row["storage_type"] == "FILE"
        assert Path(row["file_path"].removeprefix("file:")).name + ".index" == path.name


def test_the_system_tables_of_a_lake_are_those_of_the_catalog(tmp_path: Path, jvm: None) -> None:
    catalog = oracle.Catalog(tmp_path, **{"catalog-options-table.enabled": True})
    lake = tl.connect(tmp_path, storage={"durability": "none", "catalog-options-table.enabled": True})
    our_tables(catalog, lake)
    lake.create_table("e.x", {"id": "INT", "p": "STRING", "q": "DATE"}, partition_by=["p", "q"])
    lake.table("e.x").write([{"id": 1, "p": "a/b c", "q": dt.date(2024, 1, 2)}, {"id": 1, "p": None, "q": None}])
    for name in lake.tables("sys"):
        ours, theirs = lake.table(f"sys.{name}"), catalog.table(f"sys.{name}")
        same_columns(ours, theirs, name)
        if name != "catalog_options":
            same_rows(ours, theirs.read(), name)
    java = catalog.java
    assert list(java.listTables("sys")) == lake.tables("sys")
    assert list(java.listDatabases()) == lake.databases() == ["d", "e"]
    assert {row["key"] for row in lake.table("sys.catalog_options").to_arrow().to_pylist()} >= {
        "warehouse",
        "catalog-options-table.enabled",
    }
    plain_catalog, plain_lake = oracle.Catalog(tmp_path), tl.connect(tmp_path)
    assert list(plain_catalog.java.listTables("sys")) == plain_lake.tables("sys")
