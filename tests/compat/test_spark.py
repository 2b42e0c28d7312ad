"""Tables that Spark, this process and the real Paimon write in turns: all read the same rows at every snapshot."""

from __future__ import annotations

from random import Random  # noqa: TID251 - drawn from fixed seeds
from typing import Any

import pyarrow as pa
import pytest

import tidelake as tl
from spark_session import spark

__all__ = ["spark"]

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
KINDS: dict[str, tuple[list[str], list[str], dict[str, str]]] = {
    "append": ([], [], {}),
    "append, partitions, ORC": ([], ["dt"], {"file.format": "orc"}),
    "append, buckets": ([], [], {"bucket": "2", "bucket-key": "k,v"}),
    "deduplicate": (["k"], [], KEYED),
    "deduplicate, partitions": (["dt", "k"], ["dt"], {"bucket": "2"}),
    "deduplicate, dynamic buckets": (["k"], [], {"bucket": "-1", "dynamic-bucket.target-row-num": "20"}),
    "deduplicate, dynamic buckets, partitions": (["dt", "k"], ["dt"], {"bucket": "-1"}),
    "deduplicate by sequence, Avro": (["k"], [], {**KEYED, "sequence.field": "n", "file.format": "avro"}),
    "partial-update": (["k"], [], {**KEYED, "merge-engine": "partial-update"}),
    "aggregation": (["k"], [], {**KEYED, **SUMS}),
    "first-row": (["k"], [], {**KEYED, "merge-engine": "first-row"}),
    "write-only": (["dt", "k"], ["dt"], {"bucket": "1", "write-only": "true"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_three_read_the_same_rows_whoever_writes(kind: str, spark: Any, catalog: Any, tmp_path: Any) -> None:
    keys, partitions, options = KINDS[kind]
    table = tl.connect(tmp_path).create_table(
        "d.t", COLUMNS, primary_key=keys, partition_by=partitions, options=options
    )
    theirs = catalog.table("d.t")
    rng = Random(kind)
    for who in ("spark", "they", "spark", "we", "compact", "spark", "they compact"):
        rows = _rows(rng)
        if who == "spark":
            data = pa.Table.from_pylist(rows, schema=table.schema.to_arrow())
            table.write(spark.createDataFrame(data))
        elif who == "we":
            table.write(rows)
        elif who == "they":
            theirs.write([tuple(row.values()) for row in rows])
        elif who == "compact":
            table.compact(full=True)
        elif keys:
            theirs.compact(full=False)
        expected = _shown(theirs.read())
        assert _shown(row.asDict() for row in table.to_spark(spark=spark).collect()) == expected, who
        assert _shown(table.to_arrow().to_pylist()) == expected, who
    for snapshot in range(1, table.latest_snapshot().id + 1):
        expected = _shown(theirs.read(snapshot=snapshot))
        at = table.at(snapshot=snapshot)
        assert _shown(row.asDict() for row in at.to_spark(spark=spark).collect()) == expected, snapshot
    report = table.check(deep=True, rows=True)
    assert report.ok, report


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
