"""Write the micro-batches of one query to a table, each exactly once.

The commit user is made from the id of the query, and the identifier of a commit is the number of its batch. Spark runs
a batch again if the driver died before it noted the end of the batch in the checkpoint; the committer finds such a
commit by user and identifier, and nothing is written twice.

Invariant: a batch is left out only if its rows are in the table. If the checkpoint was set back to an older copy, Spark
may put other rows into a batch of the same number. The committer keeps a digest of what each batch read, and such a
batch is an error instead of a loss. A batch that is left out is computed all the same: Spark ends a query with state
whose batch was not.

What can be kept from batch to batch is kept: the table with its documents, and the committer with the newest manifests.
Both are opened again if the schema changes.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from tidelake.engines.spark.bridge.failures import log_warnings
from tidelake.engines.spark.bridge.grants import is_newest_schema
from tidelake.engines.spark.stream.checkpoint import QUERY_ID, Checkpoint
from tidelake.engines.spark.stream.requests import SinkRequest
from tidelake.engines.spark.write.evolve import evolve_table
from tidelake.engines.spark.write.job import FrameWrite, commit_frame
from tidelake.errors import InvalidInputError
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.commit.options import CommitOptions
from tidelake.ops.hooks.committers import open_committer
from tidelake.ops.maintain.auto_tags import wants_snapshot
from tidelake.ops.write.opening import open_writer
from tidelake.ops.write.verbs import begin_write
from tidelake.table import Table

_LOG = logging.getLogger("tidelake.stream")
_APPEND: Final = "append"
_OVERWRITE: Final = "overwrite"


class BatchSink:
    """Writes the micro-batches of one query; Spark calls it for one batch after the other."""

    def __init__(self, session: SparkSession, table: Table, request: SinkRequest) -> None:
        self._session = session
        self._table = table
        self._request = request
        self._checkpoint = Checkpoint(request.checkpoint, session)
        self._committer: Committer | None = None
        self._query_id: str | None = None

    @property
    def mode(self) -> str:
        """How a batch is written: in complete mode it is the whole result, so it replaces the table."""
        return _OVERWRITE if self._request.output_mode == "complete" else _APPEND

    def write_batch(self, frame: DataFrame, batch_id: int) -> None:
        """Write a micro-batch, unless it is in the table.

        Raises:
            InvalidInputError: the columns do not fit the table, or the checkpoint is older than the table's commits.
            CommitConflictError: another commit changed the same files.
            CommitUnknownError: the storage did not answer whether the commit succeeded.
        """
        started = time.perf_counter()
        result = self._write(frame, batch_id)
        committer = self._committer
        warning = None if committer is None or result.repeated else committer.schema_warning()
        log_warnings(self._table.name, (*result.warnings, *((warning,) if warning else ())))
        log_batch(self._table.name, batch_id, result, time.perf_counter() - started)

    def _write(self, frame: DataFrame, batch_id: int) -> CommitResult:
        committer = self._open(frame)
        target = self._table.context_to_write()
        origin = self._checkpoint.read_origin(batch_id)
        repeated = begin_write(target, committer, mode=self.mode, identifier=batch_id)
        if repeated is not None:
            if committer.doubts_origin(batch_id, origin) and not frame.isEmpty():
                raise set_back_error(self._table.name, committer.user, batch_id)
            # Spark notes the state of aggregations and joins only if the batch is computed.
            frame.write.format("noop").mode("overwrite").save()
            return repeated
        fitting = evolve_table(self._table, frame, self._request.row_kind)
        if fitting is not self._table:
            self._table = fitting
            committer = self._committer = open_committer(fitting.context_to_write(), committer.user)
        how = FrameWrite(
            mode=self.mode,
            row_kind=self._request.row_kind,
            identifier=batch_id,
            turn=batch_id + 1,  # the first batch has the number 0, and a full compaction is due after every n batches
            watermark=self._read_watermark(),
            origin=origin,
            skips_nothing=self._skips_nothing(),
            is_small=True,
        )
        return commit_frame(self._table, frame, committer, how)

    def _open(self, frame: DataFrame) -> Committer:
        """The committer of the query for the newest schema of the table."""
        if not is_newest_schema(self._table):
            self._table = replace(self._table.reload(), dynamic=self._table.dynamic)
            self._committer = None
        if self._committer is None:
            target = self._table.context_to_write()
            self._query_id = self._query_id or self._find_query_id(frame)
            self._committer = open_committer(target, find_stream_user(self._table, self._query_id))
            # Refuses tables that cannot be written, before a job runs.
            open_writer(target, overwrite=self.mode != _APPEND, numbered=True)
        return self._committer

    def _find_query_id(self, frame: DataFrame) -> str:
        found = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID) or self._checkpoint.read_query_id()
        if not found:
            raise missing_query_id(self._request.checkpoint)
        return str(found)

    def _read_watermark(self) -> int | None:
        """The watermark in the newest progress report of the query."""
        query = next((each for each in self._session.streams.active if each.id == self._query_id), None)
        return watermark_ms(None if query is None else query.lastProgress)

    def _skips_nothing(self) -> bool:
        """Whether a batch without rows makes no commit: it changes nothing, and no option asks for a snapshot."""
        if self._table.context.options.of(CommitOptions).asks_for_empty or wants_snapshot(self._table.context):
            return False
        if self.mode == _APPEND:
            return True
        latest = self._table.latest_snapshot()
        return latest is None or not latest.total_record_count


def find_stream_user(table: Table, query_id: str) -> str:
    """The commit user of a query: its id, after the prefix of the option `commit.user-prefix`.

    A query that has committed keeps its user when the prefix changes: as another user it would repeat batches.
    """
    prefix = table.context.options.get("commit.user-prefix")
    wanted = f"{prefix}_{query_id}" if prefix else query_id
    if table.store.progress.has(wanted):  # from the second batch on, so that the documents of other users are not read
        return wanted
    known = [user for user in table.store.progress.users() if user == query_id or user.endswith(f"_{query_id}")]
    return min(known, default=wanted)


def watermark_ms(progress: Any) -> int | None:
    """The watermark of a progress report of Spark in milliseconds; None if the query has none yet."""
    times = getattr(progress, "eventTime", None) or (progress.get("eventTime") if isinstance(progress, dict) else None)
    text = (times or {}).get("watermark")
    if not text:
        return None
    moment = dt.datetime.fromisoformat(text)
    found = round(moment.timestamp() * 1_000)
    return found if found > 0 else None


def log_batch(table: str, batch_id: int, result: CommitResult, seconds: float) -> None:
    """Log one line about a batch."""
    if result.repeated:
        _LOG.info("%s: batch %d was committed before, nothing was written (%.3f s)", table, batch_id, seconds)
        return
    if not result.snapshot_ids:
        _LOG.info("%s: batch %d has no rows, nothing was committed (%.3f s)", table, batch_id, seconds)
        return
    _LOG.info(
        "%s: batch %d, %d rows, snapshots %s, %d attempts, %d lost races, %.3f s",
        table,
        batch_id,
        result.rows,
        ", ".join(map(str, result.snapshot_ids)),
        result.attempts,
        max(0, result.attempts - len(result.snapshot_ids)),
        seconds,
    )


def missing_query_id(checkpoint: str) -> InvalidInputError:
    """The error if a batch cannot find out which query it belongs to."""
    return InvalidInputError(
        "id of the streaming query cannot be read",
        code="query-id-missing",
        checkpoint=checkpoint,
        hint="check that the file metadata is in the checkpoint",
    )


def set_back_error(table: str, user: str, batch_id: int) -> InvalidInputError:
    """The error if a batch has other rows than those that were committed under its number."""
    return InvalidInputError(
        "checkpoint is older than the commits of its query, and a batch has other rows than before under its number",
        code="checkpoint-set-back",
        table=table,
        commit_user=user,
        batch=batch_id,
        hint="go on with the newest copy of the checkpoint, begin a new one behind the rows that the table has, or roll"
        " the table back to the snapshot that belongs to this checkpoint",
    )
