"""Changes, the audit log and the binlog as frames: what Spark reads is what is read in process."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kit.changelogs import UPDATES, cut_in_two, cut_updates, last_told
from kit.spark_rows import expected_rows, shown, spark_rows
from tidelake.catalog.lake import Lake
from tidelake.engines.spark.read.frames import whole_buckets
from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.ops.scan.split import SplitMode
from tidelake.query import Scan, with_request
from tidelake.table import Table

COLUMNS = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING", "n": "BIGINT"}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"partial-update.remove-record-on-delete": "true"},
    "aggregation": {"fields.n.aggregate-function": "sum"},
    "first-row": {"ignore-delete": "true"},
}
PAIRS = (
    ("deduplicate", "none"),
    ("deduplicate", "lookup"),
    ("partial-update", "input"),
    ("aggregation", "full-compaction"),
    ("first-row", "lookup"),
)
KINDS: dict[str, dict[str, str]] = {
    **{
        f"{engine}, {producer}": {"merge-engine": engine, "changelog-producer": producer, **ENGINES[engine]}
        for engine, producer in PAIRS
    },
    "vectors": {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
}


def written(lake: Lake, options: dict[str, str]) -> Table:
    table = lake.create_table(
        "db.t", COLUMNS, primary_key=["p", "k"], partition_by=["p"], options={"bucket": "2", **options}
    )
    turns = (
        [(p, k, "a", 1) for p in "xy" for k in range(12)],
        [("x", k, "b", 2) for k in range(0, 12, 2)],
        [("y", k, None, None) for k in range(3)] + [("z", 1, "new", 1)],
    )
    for turn in turns:
        table.write([dict(zip(COLUMNS, row, strict=True)) for row in turn])
    table.create_tag("middle", snapshot=table.latest_snapshot().id)
    gone = [{**dict(zip(COLUMNS, ("x", k, "b", 2), strict=True)), "rowkind": "-D"} for k in (0, 1, 2)]
    table.write(gone)
    table.compact(full=True)
    table.write([dict(zip(COLUMNS, ("y", 5, "late", 9), strict=True))])
    table.create_tag("end", snapshot=table.latest_snapshot().id)
    return table


def assert_same(spark: Any, scan: Scan) -> int:
    frame = scan.to_spark(spark)
    assert frame.columns == scan.arrow_schema.names
    found = spark_rows(frame)
    assert found == shown(scan.to_arrow()), scan
    return len(found)


@pytest.mark.parametrize("kind", KINDS)
def test_changes_are_the_same_on_spark_in_every_mode(spark: Any, lake: Lake, kind: str) -> None:
    table = written(lake, KINDS[kind])
    audit, binlog = lake.table("db.t$audit_log"), lake.table("db.t$binlog")
    latest = table.latest_snapshot().id
    assert_same(spark, audit.scan())
    found = {}
    for mode in ("delta", "changelog", "diff"):
        options = {"incremental-between": f"0,{latest}", "incremental-between-scan-mode": mode}
        found[mode] = assert_same(spark, table.with_options(options).changes())
    assert found["delta"] > 0
    assert found["diff"] > 0
    assert bool(found["changelog"]) == (KINDS[kind]["changelog-producer"] != "none")
    assert_same(spark, binlog.with_options({"incremental-between": "middle,end"}).scan())


def test_updates_are_packed_into_one_row_whatever_the_splits(spark: Any, lake: Lake) -> None:
    written(lake, KINDS["deduplicate, lookup"])
    numbered = {"table-read.sequence-number.enabled": "true", "source.split.target-size": "1 b"}
    binlog = lake.table("db.t$binlog").with_options({**numbered, "source.split.open-file-cost": "1 b"})
    scan = binlog.changes(since=0)
    splits = scan.splits()
    assert len(splits) > len(whole_buckets(splits)) > 1
    assert all(split.mode is SplitMode.CHANGES for split in splits)
    assert assert_same(spark, scan) == 24 + 6 + 3 + 1 + 3 + 1
    packed = scan.to_spark(spark).filter("rowkind = '+U'").toArrow()
    assert all(len(each) == 2 for each in packed["v"].to_pylist())
    assert scan.to_spark(spark).schema["k"].dataType.simpleString() == "array<int>"
    assert replace_limit(scan, 5).to_spark(spark).count() == 5
    narrow = scan.to_spark(spark, columns=["v"])
    assert narrow.columns == ["rowkind", "_SEQUENCE_NUMBER", "v"]


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_an_update_in_two_files_is_one_row(spark: Any, lake: Lake, producer: str) -> None:
    table = cut_updates(lake, "db.t", producer)
    latest = last_told(table)
    assert cut_in_two(table, latest) == len(UPDATES)
    apart = {"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b"}
    binlog, audit = (lake.table(f"db.t${view}").with_options(apart) for view in ("binlog", "audit_log"))
    scan = binlog.changes(latest - 1, latest)
    assert len(scan.splits()) == 2 * len(UPDATES)
    assert sorted(tuple(row) for row in scan.to_spark(spark).collect()) == UPDATES
    assert assert_same(spark, audit.changes(latest - 1, latest)) == 2 * len(UPDATES)
    assert assert_same(spark, table.with_options(apart).changes(latest - 1, latest)) == 2 * len(UPDATES)
    for where, count in (("v = 'new4'", 2), ("v = 'old'", 8), ("v = 'new4' and p = 'x'", 1), ("k = 4", 2)):
        assert assert_same(spark, binlog.changes(latest - 1, latest, where=where)) == count
        narrow = binlog.changes(latest - 1, latest, columns=["n"], where=where).to_spark(spark)
        assert all(len(row.n) == 2 for row in narrow.collect())
    limited = replace_limit(scan, 3).to_spark(spark).collect()
    assert len(limited) == 3
    assert all(tuple(row.v) == ("old", f"new{row.k[0]}") for row in limited)


def replace_limit(scan: Scan, limit: int) -> Scan:
    return with_request(scan, limit=limit)


def test_columns_conditions_and_options_of_changes(spark: Any, lake: Lake) -> None:
    table = written(lake, KINDS["deduplicate, lookup"])
    assert assert_same(spark, table.changes(since=0, columns=["v"], where="k = 5")) == 4
    assert assert_same(spark, lake.table("db.t$audit_log").changes(since=0, where="p = 'x'")) > 0
    between = table.with_options({"incremental-between": "0,2"})
    assert spark_rows(between.to_spark(spark=spark)) == expected_rows(between.scan())
    with_kinds = lake.spark_table("db.t$audit_log")
    assert with_kinds.columns[0] == "rowkind"
    assert spark_rows(with_kinds) == shown(lake.table("db.t$audit_log").to_arrow())
    with pytest.raises(UnsupportedError, match="hidden"):
        table.changes(since=0).to_spark(spark, columns=["k", "__paimon_bucket"])
    with pytest.raises(InvalidInputError, match="cannot be sorted"):
        lake.table("db.t$binlog").scan(order_by="k").to_spark(spark)


def test_changes_of_an_append_table_are_insertions(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.a", {"k": "INT", "v": "STRING"}, options={"deletion-vectors.enabled": "true"})
    for turn in range(3):
        table.write([{"k": turn * 10 + each, "v": "x"} for each in range(5)])
    table.delete("k = 11")
    for scan in (
        table.changes(since=1),
        table.changes(since=0, until=4, where="k > 10"),
        table.with_options({"incremental-between": "1,4", "incremental-between-scan-mode": "diff"}).changes(),
        lake.table("db.a$audit_log").scan(),
        lake.table("db.a$binlog").scan(columns=["v", "k"]),
        lake.table("db.a$binlog").changes(since=1),
    ):
        assert assert_same(spark, scan) > 0
    assert pa.types.is_list(lake.table("db.a$binlog").scan().to_spark(spark).toArrow().schema.field("k").type)
