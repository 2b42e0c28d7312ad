"""A frame into a table: rows are sent to the task of their bucket, tasks write files, the driver commits once.

A task that is repeated or runs twice writes files of other names; only the messages of the one that Spark counts reach
the driver, and what the others wrote is an orphan. Rows cross into Python once, after the shuffle.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tidelake.engines.spark.buckets import TASK, with_task
from tidelake.engines.spark.remote import TableRef
from tidelake.engines.spark.tasks import parallelism
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.scan.options import BucketOptions
from tidelake.ops.write.kinds import batches_with_kinds
from tidelake.ops.write.verbs import check_mode
from tidelake.table import Table

MESSAGES: Final = "messages binary"
_TASKS_PER_CORE: Final = 4


@dataclass(frozen=True, slots=True)
class _Write:
    """What a task does: write the rows that reach it and describe the files."""

    ref: TableRef
    overwrite: bool
    row_kind: str | None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = self.ref.open()
        writer = table._target().writer(overwrite=self.overwrite)
        try:
            field = table.options.get("rowkind.field")
            for batch in batches:
                for rows, kinds in batches_with_kinds(batch, table.schema, column=self.row_kind, field=field):
                    writer.write(rows, kinds)
            messages = writer.prepare(None, wait=True)
        except BaseException:
            writer.abort()
            raise
        yield pa.RecordBatch.from_pydict({"messages": pa.array([pickle.dumps(each) for each in messages], pa.binary())})


def write_frame(
    table: Table,
    frame: DataFrame,
    *,
    mode: str = "append",
    partition: Mapping[str, object] | None = None,
    row_kind: str | None = None,
    commit_user: str | None = None,
    identifier: int | None = None,
) -> CommitResult:
    """Write a frame as one commit; the arguments are those of `Table.write`.

    Raises:
        InvalidInputError: a column or a value does not fit.
        CommitConflictError: others changed the same files.
        CommitUnknownError: the storage did not tell whether the commit is there.
    """
    check_mode(mode)
    commit = table.new_commit(commit_user)
    if identifier is not None and not commit.filter_committed([identifier]):
        return CommitResult(repeated=True)
    task = _Write(TableRef.of(table.name, table.store, table.dynamic), mode != "append", row_kind)
    shuffled = distributed(table, frame)
    rows = shuffled.mapInArrow(task.run, MESSAGES).collect()
    messages = [pickle.loads(row.messages) for row in rows]
    if mode == "append":
        return commit.commit(messages, identifier=identifier)
    return commit.overwrite(messages, partition, dynamic=mode == "overwrite-dynamic", identifier=identifier)


def distributed(table: Table, frame: DataFrame) -> DataFrame:
    """The rows, those of one bucket in one task."""
    buckets = BucketOptions.parse(table.options)
    if buckets.bucket <= 0:
        return frame
    tasks = parallelism(frame.sparkSession) * _TASKS_PER_CORE
    if not table.partition_by:
        tasks = min(buckets.bucket, tasks)
    return with_task(frame, table.schema, buckets, tasks).repartitionById(tasks, f.col(TASK)).drop(TASK)
