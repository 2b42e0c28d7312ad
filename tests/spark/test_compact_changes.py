"""What Spark tells and marks while it writes and compacts: changelogs and deletion vectors as in process.

Two branches of one table get the same rows; one is written or compacted by Spark, the other in process.
"""

from __future__ import annotations

import threading  # noqa: TID251 - stops a job
from typing import Any

import pyarrow as pa
import pytest

from kit.changelogs import changelog_problems, numbered_changelog
from tidelake.catalog.lake import Lake
from tidelake.ops.read.append import deleted_rows
from tidelake.ops.scan.deletion_vectors import snapshot_vectors
from tidelake.ops.scan.split import bucket_splits
from tidelake.table import Table

COLUMNS = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING", "n": "BIGINT"}
KEYED = {"bucket": "2", "num-sorted-run.compaction-trigger": "3"}
VECTORS = {"deletion-vectors.enabled": "true"}
SUM = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
KINDS: dict[str, dict[str, str]] = {
    "lookup, rows compared": {"changelog-producer": "lookup", "changelog-producer.row-deduplicate": "true"},
    "input": {"changelog-producer": "input"},
    "partial-update, lookup": {"changelog-producer": "lookup", "merge-engine": "partial-update"},
    "aggregation, full-compaction": {"changelog-producer": "full-compaction", **SUM},
    "first-row, lookup": {"changelog-producer": "lookup", "merge-engine": "first-row"},
    "vectors": VECTORS,
    "wide vectors, lookup": {**VECTORS, "deletion-vectors.bitmap64": "true", "changelog-producer": "lookup"},
    "dynamic buckets, lookup": {"bucket": "-1", "dynamic-bucket.target-row-num": "7", "changelog-producer": "lookup"},
}
TURNS = (
    [(p, k, "a", 1) for p in "xy" for k in range(20)],
    [("x", k, "b", 2) for k in range(0, 20, 3)] + [("y", 1, "b", 2)],
    [("x", 1, "a", 1), ("y", 2, None, 5)],
    [("y", k, "c", 3) for k in range(18, 24)] + [("z", 1, "new", 0)],
)


def create(lake: Lake, name: str, options: dict[str, str]) -> Table:
    return lake.create_table(
        f"db.{name}", COLUMNS, primary_key=["p", "k"], partition_by=["p"], options={**KEYED, **options}
    )


def arrow(table: Table, turn: list[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in turn], schema=table.schema.to_arrow())


def told(table: Table) -> dict[int, list[str]]:
    """The changes that each snapshot tells of, with their kinds; buckets come in no order of their own."""
    latest = table.latest_snapshot().id
    found = {
        n: sorted(repr((kind, row)) for _, kind, row in numbered_changelog(table, n)) for n in range(1, latest + 1)
    }
    return {number: rows for number, rows in found.items() if rows}


def marked(table: Table) -> list[tuple[Any, ...]]:
    """Every file by what it holds, with the positions that are marked in it."""
    snapshot = table.latest_snapshot()
    vectors = snapshot_vectors(table.store.manifests, snapshot)
    found = []
    for split in bucket_splits(table.files(), snapshot.id, table.paths, vectors):
        for file in split.files:
            gone = deleted_rows(table.store, split, file)
            rows = [] if gone is None else sorted(gone.tolist())
            found.append((split.partition, split.bucket, file.level, file.row_count, file.min_key, rows))
    return sorted(found)


def content(table: Table) -> list[str]:
    return sorted(map(repr, table.to_arrow().to_pylist()))


def assert_same(here: Table, there: Table, *, buckets: bool = True) -> None:
    assert content(there) == content(here)
    assert told(there) == told(here)
    if buckets:
        assert marked(there) == marked(here)
    assert changelog_problems(there) == []
    report = there.check(deep=True, rows=True)
    assert report.ok, report


@pytest.mark.parametrize("kind", KINDS)
def test_a_compaction_on_spark_tells_and_marks_what_one_in_process_does(spark: Any, lake: Lake, kind: str) -> None:
    here, there = (create(lake, name, {**KINDS[kind], "write-only": "true"}) for name in ("here", "there"))
    for number, turn in enumerate(TURNS):
        for table in (here, there):
            table.write(arrow(table, turn))
        if number == 1:
            here.compact()
            there.compact(on=spark)
            assert marked(there) == marked(here)
    here.compact(full=True)
    there.compact(full=True, on=spark)
    assert_same(here, there)
    assert bool(told(there)) == ("changelog-producer" in KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_upserts_by_spark_tell_and_mark_what_those_in_process_do(spark: Any, lake: Lake, kind: str) -> None:
    here, there = (create(lake, name, KINDS[kind]) for name in ("here", "there"))
    for turn in TURNS[:3]:
        here.write(arrow(here, turn))
        there.write(spark.createDataFrame(arrow(there, turn)))
    # Tasks may give new keys other buckets than one process does.
    assert_same(here, there, buckets="dynamic" not in kind)


@pytest.mark.parametrize("wide", ["false", "true"])
def test_marked_rows_of_append_tables_are_dropped_by_a_compaction_on_spark(spark: Any, lake: Lake, wide: str) -> None:
    partitions = ["p"] if wide == "true" else []
    options = {**VECTORS, "deletion-vectors.bitmap64": wide}
    tables = [lake.create_table(f"db.{name}", COLUMNS, partition_by=partitions, options=options) for name in "ab"]
    for table in tables:
        for turn in TURNS:
            table.write(arrow(table, turn))
        table.delete("k % 4 = 1")
        table.update({"v": "'changed'"}, "k = 6")
    here, there = tables
    assert marked(there) == marked(here)
    here.compact(full=True)
    there.compact(full=True, on=spark)
    assert_same(here, there)
    assert not any(rows for *_, rows in marked(there))


@pytest.mark.parametrize("kind", ["wide vectors, lookup", "aggregation, full-compaction"])
def test_a_dedicated_compaction_on_spark_tells_of_every_change_once(spark: Any, lake: Lake, kind: str) -> None:
    table = create(lake, "t", {**KINDS[kind], "write-only": "true"})
    table.write(arrow(table, TURNS[0]))
    stop, waiting = threading.Event(), list(TURNS[1:])

    def after(done: Any) -> None:
        if waiting:
            table.write(arrow(table, waiting.pop(0)))
        elif done.is_idle:
            stop.set()

    table.keep_compacted(on=spark, interval="10 ms", stop=stop, progress=after)
    table.compact(full=True, on=spark)
    assert changelog_problems(table) == []
    last = {(row["p"], row["k"]): row for rows in [table.to_arrow().to_pylist()] for row in rows}
    state: dict[Any, Any] = {}
    for number in range(1, table.latest_snapshot().id + 1):
        for _, change, row in numbered_changelog(table, number):
            if change in ("-U", "-D"):
                assert state.pop((row["p"], row["k"])) == row
            else:
                assert state.setdefault((row["p"], row["k"]), row) is row
    assert state == last
    assert table.check(deep=True, rows=True).ok
