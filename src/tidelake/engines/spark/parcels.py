"""Rows on their way from one Python task to another, as bytes of Arrow.

A parcel holds rows that one task has for another, in the types of the table: nothing gets lost on the way for which
Spark has no type, and Spark moves few and large values. Each parcel has a rank; a task that asks for them in order gets
them by rank, whoever sent them.

Invariant: rows keep their order in a parcel, and the task of a bucket is the same whoever asks.
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
PARCELS: Final = "task int, rank bigint, mark bigint, rows binary"
"""The columns of a frame of parcels."""
_SCHEMA: Final = pa.schema([("task", pa.int32()), ("rank", pa.int64()), ("mark", pa.int64()), ("rows", pa.binary())])
_RANK_BITS: Final = 32
_TASKS_PER_CORE: Final = 4


@dataclass(frozen=True, slots=True)
class Parcel:
    """Rows that reached a task."""

    task: int
    rank: int
    mark: int
    rows: pa.RecordBatch


def packed(rows: pa.RecordBatch, tasks: Ints, *, rank: int, mark: int = 0) -> pa.RecordBatch:
    """Rows as parcels, one for each of the tasks that they go to."""
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
    same = (pa.array(np.full(count, each, np.int64)) for each in (rank, mark))
    return pa.RecordBatch.from_arrays([pa.array(numbers.astype(np.int32)), *same, data], schema=_SCHEMA)


def opened(batches: Iterable[pa.RecordBatch]) -> Iterator[Parcel]:
    """The parcels that Spark hands to a task, as they come."""
    for batch in batches:
        tasks, places, marks = (batch.column(name).to_pylist() for name in ("task", "rank", "mark"))
        for task, rank, mark, data in zip(tasks, places, marks, batch.column("rows"), strict=True):
            with pa.ipc.open_stream(pa.BufferReader(data.as_buffer())) as stream:
                for rows in stream:
                    yield Parcel(task, rank, mark, rows)


def delivered(parcels: DataFrame, tasks: int, *, ordered: bool) -> DataFrame:
    """Parcels, each in its task; with `ordered`, those of a task by their rank."""
    there = parcels.repartitionById(tasks, f.col("task"))
    return there.sortWithinPartitions("rank") if ordered else there


def ranks(first: int | None = None) -> Iterator[int]:
    """Ranks for the parcels of a sender with this number: those of later senders come after them.

    The number is that of this task of Spark if none is given.
    """
    if first is None:
        context = TaskContext.get()
        first = 0 if context is None else context.partitionId()
    start = first << _RANK_BITS
    yield from range(start, start + (1 << _RANK_BITS))


def tasks_for(cores: int) -> int:
    """How many tasks take the rows of buckets: some more than run at a time, so that a heavy one is not waited for."""
    return cores * _TASKS_PER_CORE


def tasks_of(partitions: Ints, names: Sequence[bytes], buckets: Ints, tasks: int) -> Ints:
    """The task of each row, by the number of its partition among `names` and its bucket."""
    used, numbers = np.unique(partitions, return_inverse=True)
    starts = np.array([zlib.crc32(names[number]) for number in used.tolist()], np.int64)
    return (starts[numbers] + buckets) % tasks
