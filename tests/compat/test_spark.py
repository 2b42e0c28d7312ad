"""Tables that Spark, this process and the real Paimon write in turns: all read the same rows at every snapshot."""

from __future__ import annotations

from random import Random  # noqa: TID251 - drawn from fixed seeds
from typing import Any

import pyarrow as pa
import pytest

import tidelake as tl
from kit.changelogs import changelog, changelog_problems
from tidelake.table import Table

pytestmark = pytest.mark.oracle

COLUMNS = {
    "k": "INT NOT NULL",
    "dt": "STRING NOT NULL",
    "v": "STRING",
    "n": "BIGINT",
    "s": "DECIMAL(12, 2)",
    "d": "DOUBLE",
}
SUMS = {
    "merge-engine": "aggregation",
    "fields.v.aggregate-function": "last_value",
    "fields.n.aggregate-function": "sum",
    "fields.s.aggregate-function": "max",
    "fields.d.aggregate-function": "min",
}
KEYED = {"bucket": "3"}
VECTORS = {"deletion-vectors.enabled": "true"}
WIDE = {"deletion-vectors.bitmap64": "true"}
READ_BY_SPARK = ("they", "spark merges", "they compact")
"""Steps after which Spark reads the table too; each of its jobs takes longer than all other reads."""
KINDS: dict[str, tuple[list[str], list[str], dict[str, str]]] = {
    "append": ([], [], {}),
    "append, buckets": ([], [], {"bucket": "2", "bucket-key": "k,v"}),
    "deduplicate, partitions": (["dt", "k"], ["dt"], {"bucket": "2"}),
    "deduplicate, dynamic buckets, partitions": (["dt", "k"], ["dt"], {"bucket": "-1"}),
    "deduplicate by sequence, Avro": (["k"], [], {**KEYED, "sequence.field": "n", "file.format": "avro"}),
    "partial-update": (["k"], [], {**KEYED, "merge-engine": "partial-update"}),
    "aggregation": (["k"], [], {**KEYED, **SUMS}),
    "first-row": (["k"], [], {**KEYED, "merge-engine": "first-row"}),
    "write-only": (["dt", "k"], ["dt"], {"bucket": "1", "write-only": "true"}),
    "append, vectors": ([], ["dt"], VECTORS),
    "append, wide vectors": ([], [], {**VECTORS, **WIDE, "file.format": "orc"}),
    "wide vectors, lookup": (["k"], [], {**KEYED, **VECTORS, **WIDE, "changelog-producer": "lookup"}),
    "dynamic buckets, vectors": (["k"], [], {"bucket": "-1", "dynamic-bucket.target-row-num": "20", **VECTORS}),
    "input": (["k"], [], {**KEYED, "changelog-producer": "input"}),
    "lookup": (["dt", "k"], ["dt"], {"bucket": "1", "changelog-producer": "lookup"}),
    "aggregation, lookup": (["k"], [], {**KEYED, **SUMS, "changelog-producer": "lookup"}),
    "full-compaction": (["k"], [], {**KEYED, "changelog-producer": "full-compaction"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_three_read_the_same_rows_whoever_writes(kind: str, spark: Any, catalog: Any, tmp_path: Any) -> None:
    keys, partitions, options = KINDS[kind]
    table = tl.connect(tmp_path).create_table(
        "d.t", COLUMNS, primary_key=keys, partition_by=partitions, options=options
    )
    theirs = catalog.table("d.t")
    rng = Random(kind)
    for who in ("spark", "they", "spark merges", "we", "spark compacts", "spark", "they compact"):
        rows = _rows(rng)
        if who == "spark":
            data = pa.Table.from_pylist(rows, schema=table.schema.to_arrow())
            table.write(spark.createDataFrame(data))
        elif who == "we":
            table.write(rows)
        elif who == "they":
            theirs.write([tuple(row.values()) for row in rows])
        elif who == "spark merges":
            _merge(spark, table, keys, rows)
        elif who == "spark compacts":
            table.compact(full=True, on=spark)
        elif keys:
            theirs.compact(full=False)
        expected = _shown(theirs.read())
        if who in READ_BY_SPARK:
            assert _shown(row.asDict() for row in table.to_spark(spark=spark).collect()) == expected, who
        assert _shown(table.to_arrow().to_pylist()) == expected, who
    last = table.latest_snapshot().id
    for snapshot in range(1, last + 1):
        expected = _shown(theirs.read(snapshot=snapshot))
        at = table.at(snapshot=snapshot)
        assert _shown(at.to_arrow().to_pylist()) == expected, snapshot
        if snapshot % 3 == 1:
            assert _shown(row.asDict() for row in at.to_spark(spark=spark).collect()) == expected, snapshot
    assert changelog_problems(table) == []
    if "changelog-producer" in options:
        told = {number: rows for number in range(1, last + 1) if (rows := sorted(map(repr, changelog(table, number))))}
        stream = theirs.stream({"scan.mode": "from-snapshot", "scan.snapshot-id": 1})
        followed = {after - 1: [repr((kind, *row.values())) for kind, row in rows] for after, rows in stream.drain()}
        assert {number: sorted(rows) for number, rows in followed.items() if rows} == told
        changes = table.changes(since=0, until=last).to_spark(spark).collect()
        assert sorted(map(repr, map(tuple, changes))) == sorted(row for rows in told.values() for row in rows)
    report = table.check(deep=True, rows=True)
    assert report.ok, report


def _merge(spark: Any, table: Table, keys: list[str], rows: list[dict[str, Any]]) -> None:
    """Every kind of change at once, by a frame: each key once, some of them deleted."""
    found = list({tuple(row[name] for name in keys or ["k"]): row for row in rows}.values())
    data = pa.Table.from_pylist(found, schema=table.schema.to_arrow())
    done = (
        table.merge(spark.createDataFrame(data), on=keys or ["k"])
        .when_matched_delete("s.v = ''")
        .when_matched_update({"v": "concat(coalesce(t.v, ''), '+')", "d": "s.d"})
        .when_not_matched_insert()
        .when_not_matched_by_source_update({"v": "'alone'"}, condition="t.k > 25")
        .run()
    )
    assert done.rows > 0


def _rows(rng: Random) -> list[dict[str, Any]]:
    from decimal import Decimal

    return [
        {
            "k": rng.randint(-30, 30),
            "dt": rng.choice(["2026-11-15", "a b", "x=1"]),
            "v": rng.choice([None, "a", "bé", ""]),
            "n": rng.choice([None, 1, -(2**40), 7]),
            "s": rng.choice([None, Decimal("1.50"), Decimal("-2.25")]),
            "d": rng.choice([None, 0.5, -1.0, 1e300]),
        }
        for _ in range(rng.randint(1, 40))
    ]


def _shown(rows: Any) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in rows)
