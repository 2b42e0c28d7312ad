"""The memory of a Python worker is bounded by options: it is the same for ten times the rows."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from tidelake.catalog.lake import Lake
from tidelake.table import Table

pytestmark = pytest.mark.cluster
ROWS = 300_000
"""More than a merge has in hand of a run, so that what is in hand does not grow any more."""
OPTIONS = {
    "bucket": "1",
    "write-only": "true",
    "write-buffer-size": "2 mb",
    "write-buffer-spillable": "true",
    "target-file-size": "4 mb",
    "file.block-size": "1 mb",
}
SLACK_MB = 48


def peak(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The most memory that this worker ever had, in megabytes."""
    for _ in batches:
        yield pa.record_batch({"mb": [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10]})


def peak_mb(spark: Any) -> int:
    """That of the greediest worker; they are used again and again."""
    return max(row.mb for row in spark.range(0, 8, 1, 8).mapInArrow(peak, "mb long").collect())


def peaks(spark: Any, lake: Lake, count: int) -> tuple[Table, list[int]]:
    """A table that was written twice, read while it has to be merged, and compacted; the peaks after each."""
    table = lake.create_table(f"db.t{count}", {"id": "BIGINT", "n": "BIGINT"}, primary_key=["id"], options=OPTIONS)
    found = []
    for turn in range(2):
        table.write(spark.range(0, count, 1, 2).selectExpr(f"(id * 7919) % {count} id", f"xxhash64(id, {turn}) n"))
    found.append(peak_mb(spark))
    assert table.to_spark(spark=spark).selectExpr("count(distinct id) c").collect()[0].c == count
    found.append(peak_mb(spark))
    table.compact(full=True, on=spark)
    found.append(peak_mb(spark))
    return table, found


@pytest.mark.slow
def test_ten_times_the_rows_take_no_more_memory_of_a_worker(spark: Any, lake: Lake) -> None:
    _, little = peaks(spark, lake, ROWS)
    table, much = peaks(spark, lake, 10 * ROWS)
    print(f"peaks after write, merge, compaction: {little}, with ten times the rows {much}")
    assert max(much) < max(little) + SLACK_MB
    assert table.count() == 10 * ROWS
