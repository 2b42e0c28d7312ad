"""A scan as a lazy frame: planned now, read when Spark runs it.

Files that need no merge go through Spark's own Parquet reader, so that Catalyst prunes columns and pushes filters; what
it cannot read as we do, and everything that is merged, goes through Arrow in Python workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidelake.engines.spark.native import NativeReader
from tidelake.engines.spark.remote import TableRef
from tidelake.engines.spark.tasks import balanced, parallelism
from tidelake.engines.spark.types import struct_of, to_spark_batch
from tidelake.ops.read.append import ReadRequest
from tidelake.ops.read.rows import read_rows
from tidelake.ops.scan.split import Split
from tidelake.query import Scan

Batches = Iterator[pa.RecordBatch]


def frame_of(scan: Scan, spark: SparkSession) -> DataFrame:
    """The rows of a scan, pinned to the snapshot that is the newest now.

    Raises:
        UnsupportedError: Spark has no counterpart to the type of a column.
        InvalidInputError: no other process can reach the storage.
    """
    ref = TableRef.of(scan.name, scan.store, scan.options)
    splits = scan.splits()
    native = NativeReader(spark, scan)
    direct = [split for split in splits if native.takes(split)]
    taken = {id(split) for split in direct}
    rest = [split for split in splits if id(split) not in taken]
    frames = [*native.frames(direct), *_merged(spark, ref, scan, rest)]
    if not frames:
        return spark.createDataFrame([], struct_of([scan.schema.field(name) for name in scan.columns]))
    whole = frames[0]
    for each in frames[1:]:
        whole = whole.union(each)
    return whole


@dataclass(frozen=True, slots=True)
class _Bins:
    """The splits of all tasks; each task takes the one of its number."""

    ref: TableRef
    request: ReadRequest
    bins: tuple[tuple[Split, ...], ...]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        table = self.ref.open()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in read_rows(table.store, self.bins[number], self.request, table.options):
                    yield to_spark_batch(rows, self.request.fields)


def _merged(spark: SparkSession, ref: TableRef, scan: Scan, splits: Sequence[Split]) -> list[DataFrame]:
    if not splits:
        return []
    request = scan.request()
    reader = _Bins(ref, request, balanced(splits, lambda split: split.size, parallelism(spark)))
    numbers = spark.range(0, len(reader.bins), 1, len(reader.bins))
    return [numbers.mapInArrow(reader.run, struct_of(request.fields))]
