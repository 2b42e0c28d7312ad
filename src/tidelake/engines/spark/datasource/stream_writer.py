"""The streaming sink of the data source: tasks write the files of a micro-batch, one process commits them.

It takes the tables that `writer` takes, which need no shuffle. Spark passes the id of the query to tasks only, so each
of them reports it with its files. The commit user and identifier are those of `tl.stream_to`, and so is what they
promise: a batch that Spark runs again is committed once.

Each task of a batch starts from the newest snapshot, and the commit takes the oldest of these as the base of a bucket.

Spark calls `abort` also after a commit with an unknown outcome. So `abort` removes files only if a task failed, because
in that case no commit was tried, and only if no snapshot of the batch exists.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelake.engines.spark.bridge.failures import log_warnings
from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.datasource.writer import (
    TaskFiles,
    by_bucket,
    check_columns,
    check_writable,
    is_renumbered,
    open_task_writer,
    write_rows,
)
from tidelake.engines.spark.stream.batches import find_stream_user, log_batch, missing_query_id, set_back_error
from tidelake.engines.spark.stream.checkpoint import QUERY_ID, Checkpoint
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitMessage, CommitResult, Committable
from tidelake.ops.commit.options import CommitOptions
from tidelake.ops.hooks.committers import open_committer
from tidelake.ops.maintain.auto_tags import wants_snapshot
from tidelake.ops.write.verbs import discard_on_error
from tidelake.table import Table

CHECKPOINT: Final = "checkpointlocation"
"""The option with the checkpoint of a query, as Spark spells it here."""
_INSTEAD: Final = "use tl.stream_to(df, table, checkpoint=…), which sends the rows of a bucket to one task"


@dataclass(frozen=True, slots=True)
class BatchFiles(WriterCommitMessage):
    """What one task wrote of a micro-batch, and the id of its query."""

    files: TaskFiles
    query_id: str | None


@dataclass(frozen=True, slots=True)
class StreamTableWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query to a table, each as one commit."""

    ref: TableRef
    overwrite: bool
    """Whether each batch replaces the table, as in complete mode."""
    checkpoint: str | None

    @classmethod
    def of(cls, table: Table, struct: StructType, *, overwrite: bool, checkpoint: str | None) -> StreamTableWriter:
        """A writer of rows with these columns.

        Raises:
            InvalidInputError: the columns do not fit the table.
            UnsupportedError: only `tl.stream_to` can write to such a table.
        """
        check_writable(table, _INSTEAD)
        check_columns(table, struct)
        return cls(TableRef.of(table.name, table.store, table.dynamic), overwrite, checkpoint)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchFiles:
        """Write the rows of one task.

        Raises:
            InvalidInputError: a value does not fit its column.
            StorageError: the storage failed.
        """
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        query_id = None if context is None else context.getLocalProperty(QUERY_ID)
        table = self.ref.open_newest()
        base_id = table.store.snapshots.latest_id() or 0
        writer = open_task_writer(table, task, overwrite=self.overwrite, base_id=base_id, user=query_id or "")
        return BatchFiles(TaskFiles(task, write_rows(table, writer, iterator), dynamic=False), query_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        """Publish what all tasks wrote of a batch, unless the batch was published before.

        Raises:
            InvalidInputError: the checkpoint is older than the commits of the query.
            CommitConflictError: another commit changed the same files.
            CommitUnknownError: the storage did not answer whether the commit succeeded.
        """
        started = time.perf_counter()
        parts = [each for each in messages if isinstance(each, BatchFiles)]
        table = self.ref.open_newest()
        joined = by_bucket([each.files for each in parts], renumber=is_renumbered(table))
        committer = open_committer(table.context_to_write(), self._find_user(table, parts))
        with discard_on_error(committer, joined):
            result = self._publish(table, committer, joined, batchId)
        log_warnings(table.name, result.warnings)
        log_batch(table.name, batchId, result, time.perf_counter() - started)

    def _publish(
        self, table: Table, committer: Committer, messages: tuple[CommitMessage, ...], batch_id: int
    ) -> CommitResult:
        origin = None if self.checkpoint is None else Checkpoint(self.checkpoint).read_origin(batch_id)
        if not committer.filter_committed([batch_id]):
            if messages and committer.doubts_origin(batch_id, origin):
                raise set_back_error(table.name, committer.user, batch_id)
            return CommitResult(repeated=True)
        if not messages and self._skips_nothing(table):
            return CommitResult()
        operation = "OVERWRITE" if self.overwrite else "WRITE"
        committable = Committable(messages=messages, identifier=batch_id, origin=origin, operation=operation)
        if self.overwrite:
            return committer.overwrite(committable, dynamic=False)
        return committer.commit(committable)

    def _skips_nothing(self, table: Table) -> bool:
        """Whether a batch without rows makes no commit: it changes nothing, and no option asks for a snapshot."""
        if table.context.options.of(CommitOptions).asks_for_empty or wants_snapshot(table.context):
            return False
        latest = table.latest_snapshot() if self.overwrite else None
        return latest is None or not latest.total_record_count

    def _find_user(self, table: Table, parts: list[BatchFiles]) -> str:
        found = next((each.query_id for each in parts if each.query_id), None)
        if found is None and self.checkpoint is not None:
            found = Checkpoint(self.checkpoint).read_query_id()
        if found is None:
            raise missing_query_id(self.checkpoint or "")
        return find_stream_user(table, found)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        """Remove the files of the tasks if one of them failed; keep them if a commit was tried.

        Raises:
            StorageError: the storage failed; some files are left behind.
        """
        parts = [each for each in messages if isinstance(each, BatchFiles)]
        written = [message for each in parts for message in each.files.messages]
        if None not in messages or not written:
            return
        table = self.ref.open_newest()
        table.new_commit(self._find_user(table, parts)).abort(written, identifier=batchId)
