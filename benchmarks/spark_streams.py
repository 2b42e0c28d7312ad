"""Streams on Spark against plain Parquet on the same session: micro-batches written, a changelog read back, and what
one tiny micro-batch costs beyond a sink that does nothing.

Each run starts a query with a new checkpoint and takes one file for each micro-batch. Contenders take turns.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

import tidelake as tl
from benchmarks.timing import Result, interleaved
from tidelake.table import Table

BATCHES = 20
ROWS = 10_000
TINY = 10
DDL = "id bigint, n int, amount double, name string"
COLUMNS = {"id": "BIGINT NOT NULL", "n": "INT", "amount": "DOUBLE", "name": "STRING"}


class IdleWriter(DataSourceStreamArrowWriter):
    """Reads its rows and does nothing."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        pass


class IdleSource(DataSource):
    """The floor of what a Python sink costs."""

    @classmethod
    def name(cls) -> str:
        return "idle"

    def streamWriter(self, schema: Any, overwrite: bool) -> IdleWriter:  # noqa: N802, ARG002 - PySpark's names
        return IdleWriter()


def lines(folder: Path, spark: Any, repeat: int) -> list[Result]:
    """The lines of the table."""
    spark.dataSource.register(IdleSource)
    lake, numbers = tl.connect(folder / "lake"), itertools.count()
    big, tiny = folder / "big", folder / "tiny"
    _write_files(big, ROWS)
    _write_files(tiny, TINY)

    def checkpoint() -> str:
        return str(folder / f"checkpoint-{next(numbers)}")

    def keyed(name: str) -> Table:
        return lake.create_table(f"b.{name}", COLUMNS, primary_key=["id"], options={"bucket": "4"})

    def stream(source: Path) -> Any:
        return spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(source))

    def write_table() -> float:
        table = keyed(f"t{next(numbers)}")
        return _timed(tl.stream_to(stream(big), table, checkpoint=checkpoint(), trigger={"availableNow": True}))

    def write_parquet() -> float:
        writer = stream(big).writeStream.format("parquet").option("checkpointLocation", checkpoint())
        return _timed(writer.trigger(availableNow=True).start(str(folder / f"plain-{next(numbers)}")))

    writes = interleaved({"tidelake": write_table, "parquet": write_parquet}, repeat)
    read_back = keyed("read_back")
    _timed(tl.stream_to(stream(big), read_back, checkpoint=checkpoint(), trigger={"availableNow": True}))

    def read_changes() -> float:
        frame = lake.stream("b.read_back", **{"read.changelog": "true", "scan.snapshot-id": "1"})
        return _drain(frame, checkpoint())

    def read_parquet() -> float:
        return _drain(spark.readStream.schema(DDL).parquet(str(big)), checkpoint())

    reads = interleaved({"tidelake": read_changes, "parquet": read_parquet}, repeat)
    table = keyed("tiny")

    def tiny_table() -> float:
        query = tl.stream_to(stream(tiny), table, checkpoint=checkpoint(), trigger={"availableNow": True})
        return _steady(query)

    def tiny_idle() -> float:
        writer = stream(tiny).writeStream.format("idle").option("checkpointLocation", checkpoint())
        return _steady(writer.trigger(availableNow=True).start())

    batches = interleaved({"tidelake": tiny_table, "idle": tiny_idle}, repeat)
    return [
        _line(f"{BATCHES} micro-batches of {ROWS:,} rows into a keyed table", writes, "parquet", 1.45, 0.0),
        _line("the changelog of that table streamed back", reads, "parquet", 1.5, 0.5),
        _overhead("one tiny micro-batch into a keyed table", batches, 0.150),
    ]


def _write_files(folder: Path, rows: int) -> None:
    folder.mkdir()
    random = np.random.default_rng(7)
    for number in range(BATCHES):
        ids = random.integers(0, ROWS * BATCHES // 2, rows)
        data = {
            "id": ids,
            "n": (ids % 1_000).astype(np.int32),
            "amount": random.random(rows),
            "name": [f"name {each % 5_000}" for each in ids.tolist()],
        }
        pq.write_table(pa.table(data), folder / f"{number:03}.parquet")


def _timed(query: Any) -> float:
    """The seconds of a started query until it has ended."""
    started = time.perf_counter()
    query.awaitTermination()
    return time.perf_counter() - started


def _drain(frame: Any, checkpoint: str) -> float:
    """The seconds of a stream whose rows go nowhere."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    return _timed(writer.trigger(availableNow=True).start())


def _steady(query: Any) -> float:
    """The median seconds of a micro-batch, without the first ones, which start workers."""
    query.awaitTermination()
    times = [each["durationMs"]["triggerExecution"] / 1000 for each in query.recentProgress if each["numInputRows"]]
    return statistics.median(times[5:])


def _line(work: str, times: dict[str, list[float]], against: str, bar: float, slack: float) -> Result:
    """Medians, and the median of the ratios of each round."""
    ours, other = statistics.median(times["tidelake"]), statistics.median(times[against])
    ratio = statistics.median(a / b for a, b in zip(times["tidelake"], times[against], strict=True))
    text = f"<= {bar:g} x" + (f" + {slack:g} s" if slack else "")
    return Result(work, ours, against, other, ratio, text, ours <= bar * other + slack)


def _overhead(work: str, times: dict[str, list[float]], bar: float) -> Result:
    ours, other = statistics.median(times["tidelake"]), statistics.median(times["idle"])
    more = statistics.median(a - b for a, b in zip(times["tidelake"], times["idle"], strict=True))
    note = f"{more * 1000:.0f} ms more"
    return Result(
        work, ours, "a sink that does nothing", other, ours / other, f"< {bar * 1000:g} ms more", more < bar, note
    )
