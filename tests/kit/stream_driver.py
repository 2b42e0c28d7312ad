"""The driver of tests that kill one: runs queries with checkpoints, which another driver may have begun.

python stream_driver.py FOLDER QUERY...

FOLDER holds the lake, a folder of files for each query that reads some, and the checkpoints.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidelake as tl

CHANGES = "rowkind string, k int, v bigint"
NUMBERED = "kind string, k int, v bigint, batch bigint, part int, place bigint"
SUMS = "id bigint, v bigint, s string"
_CONF = {
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.sql.streaming.pollingDelay": "5ms",
}


def number_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with the number of their batch, of their task and their place in it."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    batch, place = int(context.getLocalProperty("streaming.sql.batchId")), 0
    for each in batches:
        count = each.num_rows
        yield pa.record_batch(
            {
                "kind": each["rowkind"],
                "k": each["k"],
                "v": each["v"],
                "batch": pa.array([batch] * count, pa.int64()),
                "part": pa.array([context.partitionId()] * count, pa.int32()),
                "place": pa.array(range(place, place + count), pa.int64()),
            }
        )
        place += count


class Queries:
    """The queries that can be run, each with a checkpoint of its name."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self._folder, self._spark = folder, spark
        self._lake = tl.connect(folder / "lake")

    def start(self, name: str) -> Any:
        """Start a query."""
        return {"sums": self._sums, "more": self._sums, "a": self._changes, "b": self._follow, "log": self._log}[name](
            name
        )

    def _files(self, name: str, schema: str) -> Any:
        reader = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self._folder / "feeds" / name))

    def _checkpoint(self, name: str) -> str:
        return str(self._folder / "checkpoints" / name)

    def _sums(self, name: str) -> Any:
        """Files into a table that adds them up, by `tl.stream_to`."""
        return tl.stream_to(
            self._files(name, SUMS),
            self._lake.table("db.sums"),
            checkpoint=self._checkpoint(name),
            trigger="availableNow",
        )

    def _log(self, name: str) -> Any:
        """Files into an append table, by the data source."""
        return self._to_source(self._files(name, SUMS), name).trigger(availableNow=True).start(self._location(name))

    def _changes(self, name: str) -> Any:
        """Files with changes into a primary-key table, by `tl.stream_to`."""
        return tl.stream_to(
            self._files(name, CHANGES),
            self._lake.table("db.a"),
            checkpoint=self._checkpoint(name),
            trigger="availableNow",
        )

    def _follow(self, name: str) -> Any:
        """The changelog of that table into an append table, by the data source, one split in each batch."""
        options = {
            "read.changelog": "true",
            "scan.snapshot-id": 1,
            "consumer-id": "b",
            "read.stream.maxFilesPerTrigger": 1,
        }
        changes = self._lake.stream("db.a", self._spark, **options)
        numbered = changes.mapInArrow(number_rows, NUMBERED).repartition(2)
        return self._to_source(numbered, name).start(self._location(name))

    def _to_source(self, frame: Any, name: str) -> Any:
        writer = frame.writeStream.format("tidelake").outputMode("append")
        return writer.option("checkpointLocation", self._checkpoint(name))

    def _location(self, name: str) -> str:
        return str(self._lake.table(f"db.{name}").location)


def main(folder: str, *names: str) -> None:
    """Run queries until they have read all that is there, and print the error of each, or null."""
    place = Path(folder)
    spark = tl.spark(tl.connect(place / "lake"), master="local[2]", conf=_CONF)
    spark.sparkContext.setLogLevel("OFF")
    queries = Queries(place, spark)
    running = {name: queries.start(name) for name in names}
    errors: dict[str, str | None] = {}
    for name, query in running.items():
        try:
            if name == "b":
                query.processAllAvailable()
                query.stop()
            else:
                query.awaitTermination()
            errors[name] = None
        except Exception as error:  # noqa: BLE001 - shown by the test
            errors[name] = str(error)
    print(json.dumps(errors))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
