"""Streams of tables through Spark itself: `spark.readStream` and `lake.stream`, checkpoints and restarts.

`test_stream_batches` has every case without Spark. What is here is what only Spark decides: how it stores offsets, when
it commits them, how it ends a query, and how errors reach the user.
"""

from __future__ import annotations

from glob import glob
from pathlib import Path
from typing import Any

import pytest

from kit.stream_queries import all_rows, fold
from tidelake.catalog.lake import Lake
from tidelake.table import Table

Rows = list[dict[str, Any]]


def run(frame: Any, checkpoint: Path, *, fail_at: int | None = None) -> list[Rows]:
    """The rows of each batch of a query until it ends; with `fail_at` that batch fails after its rows were read."""
    found: list[Rows] = []

    def keep(batch: Any, number: int) -> None:
        rows = [row.asDict() for row in batch.collect()]
        if number == fail_at:
            raise RuntimeError("the sink fails")
        found.append(rows)

    write = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query = write.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return found


def keyed_table(lake: Lake) -> Table:
    options = {"bucket": "2", "changelog-producer": "lookup"}
    return lake.create_table("db.kv", {"id": "INT NOT NULL", "v": "STRING"}, primary_key=["id"], options=options)


def load(spark: Any, table: Table, **options: object) -> Any:
    return spark.readStream.format("tidelake").options(**options).load(table.location)


def test_a_changelog_that_is_read_in_parts_through_a_failure_folds_to_the_table(
    spark: Any, lake: Lake, tmp_path: Path
) -> None:
    table, checkpoint = keyed_table(lake), tmp_path / "checkpoint"
    table.write([{"id": number, "v": "a"} for number in range(8)])
    options = {"read.changelog": "true", "maxFilesPerTrigger": 1, "consumer-id": "c"}
    with pytest.raises(Exception, match="the sink fails"):
        run(load(spark, table, **options), checkpoint, fail_at=1)  # batch 0 has one bucket, batch 1 the other
    table.write([{"id": 1, "v": "b"}, {"id": 9, "v": "b"}])
    table.delete("id = 2")
    seen = run(load(spark, table, **options), checkpoint)
    first = [row for row in table.at(snapshot=2).to_arrow().to_pylist() if row["id"] not in {r["id"] for r in seen[0]}]
    whole = [{"rowkind": "+I", **row} for row in first] + all_rows(seen)
    assert fold(whole, "id") == sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert len(whole) == 8 + 2 + 1 + 1  # the state, an update with both its rows, an insertion, a deletion
    newest = table.latest_snapshot()
    assert newest is not None
    assert table.consumers() == {"c": newest.id + 1}


def test_a_stream_of_the_lake_begins_once_even_if_its_first_batch_is_repeated(
    spark: Any, lake: Lake, tmp_path: Path
) -> None:
    table = lake.create_table("db.log", {"id": "INT", "raw": "ARRAY<STRING>"})
    table.write([{"id": 1, "raw": ["a"]}])
    checkpoint = tmp_path / "checkpoint"
    frame = lake.stream("db.log", spark, **{"scan.mode": "latest"})
    assert frame.isStreaming
    assert frame.columns == ["id", "raw"]
    assert all_rows(run(frame, checkpoint)) == []
    table.write([{"id": 2, "raw": None}])
    for path in [*glob(f"{checkpoint}/commits/*"), *glob(f"{checkpoint}/commits/.*.crc")]:
        Path(path).unlink()
    assert all_rows(run(frame, checkpoint)) == [{"id": 2, "raw": None}]


def test_an_expired_snapshot_ends_a_query_with_our_error(spark: Any, lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("db.log", {"id": "INT"})
    for number in range(4):
        table.write([{"id": number}])
    table.expire_snapshots(retain_max=1, retain_min=1)
    frame = load(spark, table, **{"consumer-id": "late"})
    table.reset_consumer("late", 1)
    with pytest.raises(Exception, match=r"expired before it was read(.|\n)*new checkpoint"):
        run(frame, tmp_path / "checkpoint")


def test_a_batch_read_with_the_option_for_changes_is_the_audit_log(spark: Any, lake: Lake) -> None:
    table = keyed_table(lake)
    table.write([{"id": 1, "v": "a"}])
    frame = spark.read.format("tidelake").option("read.changelog", "true").load(table.location)
    assert [row.asDict() for row in frame.collect()] == [{"rowkind": "+I", "id": 1, "v": "a"}]
    assert [row.asDict() for row in frame.select("id").collect()] == [{"id": 1}]
