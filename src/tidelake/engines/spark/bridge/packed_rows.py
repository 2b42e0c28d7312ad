"""Send rows from one Python task to another as Arrow bytes, through a shuffle of Spark.

All rows that one task has for another travel as one binary value in the types of the table: types that Spark does not
have survive, and Spark moves few large values instead of many rows. Each value has a rank, by which the receiving task
can ask for them in order, independent of the order in which Spark delivers them.

Invariant: rows keep their order inside a value, and every sender computes the same task for a bucket.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

Ints = np.ndarray[Any, Any]
SHUFFLE_COLUMNS: Final = "task int, rank bigint, run_id bigint, rows binary"
"""The columns of a frame of rows for other tasks."""
_SCHEMA: Final = pa.schema([("task", pa.int32()), ("rank", pa.int64()), ("run_id", pa.int64()), ("rows", pa.binary())])
_RANK_BITS: Final = 32
_TASKS_PER_CORE: Final = 4


@dataclass(frozen=True, slots=True)
class TaskInput:
    """Rows that another task sent to this one."""

    task: int
    rank: int
    run_id: int
    """Which run of the sender made them, if that matters; see `write.dynamic_buckets`."""
    rows: pa.RecordBatch


def pack_rows(rows: pa.RecordBatch, tasks: Ints, *, rank: int, run_id: int = 0) -> pa.RecordBatch:
    """Pack rows for the tasks that they go to, one value for each task."""
    order = np.argsort(tasks, kind="stable")
    numbers, starts = np.unique(tasks[order], return_index=True)
    if len(numbers) > 1:
        rows = rows.take(pa.array(order))
    bounds = [*starts.tolist(), rows.num_rows]
    sink, ends = pa.BufferOutputStream(), [0]
    for start, end in pairwise(bounds):
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_batch(rows.slice(start, end - start))
        ends.append(sink.tell())
    count = len(numbers)
    offsets = pa.py_buffer(np.array(ends, np.int32))
    data = pa.Array.from_buffers(pa.binary(), count, [None, offsets, sink.getvalue()])
    same = (pa.array(np.full(count, each, np.int64)) for each in (rank, run_id))
    return pa.RecordBatch.from_arrays([pa.array(numbers.astype(np.int32)), *same, data], schema=_SCHEMA)


def unpack_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[TaskInput]:
    """Unpack what Spark hands to a task, in the order of arrival."""
    for batch in batches:
        tasks, ranks, run_ids = (batch.column(name).to_pylist() for name in ("task", "rank", "run_id"))
        for task, rank, run_id, data in zip(tasks, ranks, run_ids, batch.column("rows"), strict=True):
            with pa.ipc.open_stream(pa.BufferReader(data.as_buffer())) as stream:
                for rows in stream:
                    yield TaskInput(task, rank, run_id, rows)


def shuffle(packed: DataFrame, tasks: int, *, ordered: bool) -> DataFrame:
    """Send packed rows to their tasks; with `ordered`, each task gets them sorted by rank."""
    sent = packed.repartitionById(tasks, f.col("task"))
    return sent.sortWithinPartitions("rank") if ordered else sent


def sender_ranks(first: int | None = None) -> Iterator[int]:
    """Generate the ranks of what one sender sends: all of them come before those of the next sender.

    Args:
        first: The number of the sender; that of this Spark task if None.
    """
    if first is None:
        context = TaskContext.get()
        first = 0 if context is None else context.partitionId()
    start = first << _RANK_BITS
    yield from range(start, start + (1 << _RANK_BITS))


def task_count(cores: int) -> int:
    """How many tasks write buckets: several per core, so that the other cores stay busy beside a heavy task."""
    return cores * _TASKS_PER_CORE


def assign_tasks(partitions: Ints, names: Sequence[bytes], buckets: Ints, tasks: int) -> Ints:
    """Compute the task of each row from its partition, a number in `names`, and its bucket."""
    used, numbers = np.unique(partitions, return_inverse=True)
    starts = np.array([zlib.crc32(names[number]) for number in used.tolist()], np.int64)
    return (starts[numbers] + buckets) % tasks
