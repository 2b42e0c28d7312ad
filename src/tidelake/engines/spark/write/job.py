"""Write a frame to a table: rows are sent to the task of their bucket, tasks write files, the driver commits once.

A task that Spark retries or runs twice writes files with other names. Only the report of one of its runs reaches the
driver, and the files of the others are orphans. Rows cross into Python once, after the shuffle.

Errors that follow from the schema and the options are raised before a job runs. A task that finds a value that does not
fit returns the error instead of raising it; the driver then removes the files of the other tasks, and raises the error.

How rows are sent to tasks depends on the bucket mode: see `buckets` for fixed buckets, `dynamic_buckets`,
`cross_partition` and `postponed_buckets`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ByteType, StructField, StructType

from tidelake.cleanup import undo_on_error
from tidelake.engines.spark.bridge.failures import log_warnings, unwrap_task_errors, wrap_task_errors
from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.bridge.output import DONE, TaskOutput, combine_outputs, report_output
from tidelake.engines.spark.bridge.packed_rows import task_count
from tidelake.engines.spark.bridge.tasks import parallelism
from tidelake.engines.spark.bridge.types import struct_of, to_spark_batch
from tidelake.engines.spark.write.batches import KIND, convert_rows, join_batches
from tidelake.engines.spark.write.buckets import (
    TASK,
    add_task_column,
    add_task_column_by_partition,
    cast_column_for_write,
)
from tidelake.engines.spark.write.cross_partition import CrossPartitionPlan
from tidelake.engines.spark.write.dynamic_buckets import PLACEMENT, AssignedBuckets, DynamicBucketPlan, owners_ran_once
from tidelake.engines.spark.write.evolve import check_columns, evolve_table
from tidelake.engines.spark.write.postponed_buckets import BucketCounts, SendStagedRows, StageRows
from tidelake.engines.spark.write.receive import ReceiveRows
from tidelake.errors import CommitConflictError, InvalidInputError, StorageError, TidelakeError
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitMessage, CommitResult
from tidelake.ops.commit.replan import replan
from tidelake.ops.context import TableContext
from tidelake.ops.hooks.committers import open_committer
from tidelake.ops.placement.dynamic_buckets import DynamicBucketOptions, DynamicBuckets
from tidelake.ops.scan.postponed import PostponeOptions
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.keyed_options import KeyedWriteOptions
from tidelake.ops.write.local_merge import LocalMerger, with_kinds
from tidelake.ops.write.opening import TableWriter, open_writer
from tidelake.ops.write.postpone import plan_rescales, remove_staged, staged_sizes, staged_split
from tidelake.ops.write.row_kind_filter import RowKindFilter
from tidelake.ops.write.verbs import begin_write, commit_write
from tidelake.options import TableOptions
from tidelake.spec.schemas.bucket_mode import BucketMode, BucketOptions
from tidelake.table import Table

Writer = TableWriter
ATTEMPTS_MAX: Final = 3
"""How often a job is run if Spark runs an owner of keys twice in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameWrite:
    """How the rows of a frame become one commit: the arguments of `Table.write`, and those of a micro-batch."""

    mode: str = "append"
    partition: Mapping[str, object] | None = None
    row_kind: str | None = None
    identifier: int | None = None
    turn: int | None = None
    """Which commit of the job it is, as far as tasks ask whether a full compaction is due."""
    watermark: int | None = None
    origin: str | None = None
    """A text that stands for what the rows were read from."""
    skips_nothing: bool = False
    """Whether a frame without rows makes no commit."""
    is_small: bool = False
    """Whether the rows are probably few, as those of a micro-batch are."""


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
        InvalidInputError: a column or a value does not fit; nothing was written.
        UnsupportedError: tables of this kind cannot be written yet.
        CommitConflictError: another commit changed the same files.
        CommitUnknownError: the storage did not answer whether the commit succeeded.
    """
    committer = open_committer(table.context_to_write(), commit_user)
    repeated = begin_write(table.context_to_write(), committer, mode=mode, partition=partition, identifier=identifier)
    if repeated is not None:
        return _finish(table, repeated)
    # Refuses tables that cannot be written, before a job runs.
    open_writer(table.context_to_write(), overwrite=mode != "append", numbered=identifier is not None)
    if frame.isStreaming:
        raise InvalidInputError("frame is a stream", hint="use tl.stream_to(frame, table, checkpoint=…)")
    fitting = evolve_table(table, frame, row_kind)
    if fitting is not table:
        table, committer = fitting, open_committer(fitting.context_to_write(), committer.user)
    how = FrameWrite(mode=mode, partition=partition, row_kind=row_kind, identifier=identifier, turn=identifier)
    return _finish(table, commit_frame(table, frame, committer, how))


def commit_frame(table: Table, frame: DataFrame, committer: Committer, how: FrameWrite) -> CommitResult:
    """Write a frame to a table that has all of its columns, as one commit that was not published before.

    Raises:
        InvalidInputError: a column or a value does not fit; nothing was written.
        CommitConflictError: another commit changed the same files.
        CommitUnknownError: the storage did not answer whether the commit succeeded.
    """
    check_columns(frame, table.schema, how.row_kind)
    overwrite, user, target = how.mode != "append", committer.user, table.context_to_write()

    def attempt() -> CommitResult:
        job = WriteJob.of(
            table,
            frame,
            overwrite=overwrite,
            row_kind=how.row_kind,
            identifier=how.turn,
            user=user,
            is_small=how.is_small,
        )
        messages = run_job(table, job, frame, committer)
        if how.skips_nothing and all(each.is_empty for each in messages):
            return CommitResult()
        return commit_write(
            target,
            committer,
            messages,
            mode=how.mode,
            partition=how.partition,
            identifier=how.identifier,
            watermark=how.watermark,
            origin=how.origin,
        )

    return replan(attempt)


def _finish(table: Table, done: CommitResult) -> CommitResult:
    """Log what failed after the commit."""
    log_warnings(table.name, done.warnings)
    return done


@dataclass(frozen=True, slots=True)
class WriteJob:
    """How the rows of a frame are sent to tasks, and what these do."""

    ref: TableRef
    options: TableOptions
    overwrite: bool
    row_kind: str | None
    identifier: int | None
    cores: int
    tasks: int
    """How many tasks write buckets."""
    dynamic: DynamicBucketPlan | None = None
    moving: CrossPartitionPlan | None = None
    staging: StageRows | None = None
    """Stages the rows, to be committed or until the number of buckets is decided."""
    counts: BucketCounts | None = None
    """How many buckets each partition has, where the table does not say it (`bucket` = -2)."""
    compacts: bool | None = None
    """Whether tasks compact the buckets that they write; None leaves that to the option `write-only`."""

    @property
    def sizes_buckets(self) -> bool:
        """Whether the size of the batch decides the number of buckets."""
        return self.staging is not None and not self.staging.committed

    @property
    def base_id(self) -> int | None:
        """The snapshot that all tasks start from, if they have to agree on the number of buckets."""
        return None if self.counts is None else self.counts.base_id

    @classmethod
    def of(
        cls,
        table: Table,
        frame: DataFrame,
        *,
        overwrite: bool,
        row_kind: str | None,
        identifier: int | None,
        user: str | None = None,
        unstaged: bool = False,
        compacts: bool | None = None,
        is_small: bool = False,
    ) -> WriteJob:
        """Plan the job.

        Args:
            table: The table, which has all columns of the frame.
            frame: The rows.
            overwrite: Whether the rows replace others.
            row_kind: The column with row kinds.
            identifier: The number of the commit.
            user: The commit user.
            unstaged: Whether rows of postponed buckets go to existing buckets right away.
            compacts: Whether tasks compact the buckets that they write; None leaves that to the table.
            is_small: Whether starting a task takes longer than the work that it would take from the others.
        """
        ref = TableRef.of(table.name, table.store, table.dynamic)
        cores = parallelism(frame.sparkSession)
        tasks = cores if is_small else task_count(cores)
        made = cls(ref, table.context.options, overwrite, row_kind, identifier, cores, tasks, compacts=compacts)
        target = table.context_to_write()
        if target.bucket_mode is BucketMode.CROSS_PARTITION:
            return replace(made, moving=CrossPartitionPlan.of(table, overwrite=overwrite, cores=cores))
        if target.bucket_mode is BucketMode.POSTPONED:
            postpone = table.context.options.of(PostponeOptions)
            committed = identifier is not None or not postpone.batch_fixed
            if not unstaged and (committed or postpone.needs_size):
                return replace(made, staging=StageRows(ref, row_kind, user, committed))
            return replace(made, counts=BucketCounts.of(table, {}, overwrite=overwrite))
        if target.bucket_mode is not BucketMode.DYNAMIC:
            return made
        base = None if overwrite else table.store.snapshots.latest()
        options = table.context.options.of(DynamicBucketOptions)
        DynamicBuckets(table.store, options)  # refuses unsupported options, before a job runs
        return replace(made, dynamic=DynamicBucketPlan.of(options, base, cores))

    def report_frame(self, frame: DataFrame) -> DataFrame:
        """The lazy frame of the reports of all tasks."""
        row_kind = self.row_kind
        if self.moving is not None:
            placed = self.moving.shuffle_rows(frame, self.ref, row_kind, self.tasks)
            receiving = ReceiveRows(
                self.ref, self.moving.base_id, self.overwrite, self.identifier, compacts=self.compacts
            )
            return placed.mapInArrow(receiving.run, DONE)
        if self.staging is not None:
            return frame.mapInArrow(self.staging.run, DONE)
        local = self.options.of(KeyedWriteOptions).local_merge_bytes if self.ref.schema.primary_keys else None
        if local is not None:
            merging = MergeLocally(self.ref, row_kind, local)
            fields = [*struct_of(self.ref.schema.fields).fields, StructField(KIND, ByteType(), nullable=False)]
            frame, row_kind = frame.mapInArrow(merging.run, StructType(fields)), KIND
        task = WriteRows(self.ref, self.overwrite, row_kind, self.identifier, self.dynamic, self.base_id, self.compacts)
        return self.shuffle_rows(frame).mapInArrow(task.run, DONE)

    def shuffle_rows(self, frame: DataFrame) -> DataFrame:
        """Send all rows of a bucket to one task."""
        schema = self.ref.schema
        buckets = self.options.of(BucketOptions)
        tasks = self.tasks
        if self.dynamic is not None:
            return self.dynamic.shuffle_rows(frame, self.ref, tasks)
        if self.counts is not None:
            same = self.counts.known.same
            if same is None:
                placed = add_task_column_by_partition(frame, schema, buckets, self.counts.known, tasks)
                return placed.repartitionById(tasks, f.col(TASK)).drop(TASK)
            buckets = replace(buckets, bucket=same)
        if buckets.bucket > 0:
            tasks = tasks if schema.partition_keys else min(buckets.bucket, tasks)
            return add_task_column(frame, schema, buckets, tasks).repartitionById(tasks, f.col(TASK)).drop(TASK)
        if self.options.get("partition.sink-strategy", "none").strip().lower() == "hash" and schema.partition_keys:
            return frame.repartition(
                *(cast_column_for_write(frame.columns, schema.field(name)) for name in schema.partition_keys)
            )
        return frame


@dataclass(frozen=True, slots=True)
class StagedWriteJob:
    """How staged rows are sent to their buckets once the number of buckets is decided."""

    sending: SendStagedRows
    receiving: ReceiveRows

    def report_frame(self, frame: DataFrame) -> DataFrame:
        """The lazy frame of the reports of all tasks."""
        return self.sending.shuffle_rows(frame.sparkSession).mapInArrow(self.receiving.run, DONE)


def run_job(table: Table, job: WriteJob, frame: DataFrame, committer: Committer) -> list[CommitMessage]:
    """Write the rows of a frame, and return the messages of all tasks.

    Raises:
        TidelakeError: the error of the first task that failed; the files of the others are removed.
    """
    return _write_staged(table, job, frame, committer) if job.sizes_buckets else run_tasks(job, frame, committer)


def _write_staged(table: Table, job: WriteJob, frame: DataFrame, committer: Committer) -> list[CommitMessage]:
    """Stage the rows, decide how many buckets they need, write them to these, and remove the staged files.

    Raises:
        TidelakeError: the error of the first task that failed; the files of the others are removed.
    """
    staged = run_tasks(job, frame, committer)
    if not staged:
        return []
    try:
        sizes = staged_sizes(staged)
        target = table.context_to_write()
        more = {} if job.overwrite else plan_rescales(table.store, table.context.options, sizes)
        if more and target.rescale is not None:
            target.rescale(more)
        chosen = table.context.options.of(PostponeOptions).batch_counts(sizes)
        counted = BucketCounts.of(table, chosen, overwrite=job.overwrite)
        splits = [staged_split(message, table.paths) for message in staged]
        sending = SendStagedRows.of(job.ref, splits, counted.known, cores=job.cores)
        receiving = ReceiveRows(job.ref, counted.base_id, job.overwrite, job.identifier, chosen, job.compacts)
        return run_tasks(StagedWriteJob(sending, receiving), frame, committer)
    finally:  # a driver that dies before this leaves the staged files as orphans
        remove_staged(table.store, table.paths, staged)


def run_tasks(job: WriteJob | StagedWriteJob, frame: DataFrame, committer: Committer) -> list[CommitMessage]:
    """Run the tasks of a job once, and return the messages of all of them.

    Raises:
        TidelakeError: the error of the first task that failed; the files of the others are removed.
    """
    return list(collect_single_runs(lambda: job.report_frame(frame), committer).messages)


def collect_single_runs(build: Callable[[], DataFrame], committer: Committer) -> TaskOutput:
    """Run the tasks of a frame of reports, again if Spark ran an owner of keys twice, and combine their outputs.

    Raises:
        TidelakeError: the error of the first task that failed; the files of the others are removed.
        CommitConflictError: an owner ran twice at every attempt.
    """
    for _ in range(ATTEMPTS_MAX):
        done = collect_outputs(build(), committer)
        if owners_ran_once(done.owner_runs):
            return done
        committer.discard_unoffered(done.messages)
    raise CommitConflictError(
        "Spark ran tasks that assign buckets twice",
        code="assigned-twice",
        attempts=ATTEMPTS_MAX,
        hint="executors were lost at every attempt: try again, or cache the frame first",
    )


def collect_outputs(frame: DataFrame, committer: Committer) -> TaskOutput:
    """Run the tasks of a frame of reports, and combine their outputs.

    Raises:
        TidelakeError: the error of the first task that failed; the files of the others are removed.
    """
    with unwrap_task_errors():
        found = [pickle.loads(row.done) for row in frame.collect()]
    done = combine_outputs(each for each in found if isinstance(each, TaskOutput))
    failed = next((each for each in found if isinstance(each, TidelakeError)), None)
    if failed is not None:
        committer.discard_unoffered(done.messages)
        raise failed
    return done


# ------------------------------------------------------------------------------------------------ tasks


@dataclass(frozen=True, slots=True)
class WriteRows:
    """Writes the rows of a task, and reports the files."""

    ref: TableRef
    overwrite: bool
    row_kind: str | None
    identifier: int | None
    dynamic: DynamicBucketPlan | None = None
    base_id: int | None = None
    """The snapshot that all tasks start from, if they have to agree on the number of buckets."""
    compacts: bool | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows, and report the files."""
        yield from report_output(batches, lambda: self._write(join_batches(batches)))

    def _write(self, batches: Iterator[pa.RecordBatch]) -> TaskOutput:
        first = next(batches, None)
        if first is None:
            return TaskOutput()
        table = self.ref.open()
        target = table.context
        assigned = self._open_buckets(target, first)
        writer: Writer
        if self.base_id is None:
            # A local merge, if any, ran before the rows were sent.
            writer = open_writer(
                target, overwrite=self.overwrite, assigned=assigned, merges_locally=False, compacts=self.compacts
            )
        else:
            writer = KeyedTableWriter(
                target, self.overwrite, base_id=self.base_id, merges_locally=False, compacts=self.compacts
            )
        with undo_on_error(writer.abort, ignore=(StorageError,)):
            self._write_batch(writer, assigned, table, first)
            for batch in batches:
                self._write_batch(writer, assigned, table, batch)
            messages = tuple(writer.prepare(self.identifier, wait=True))
        return TaskOutput(messages, tuple(assigned.owner_runs) if isinstance(assigned, AssignedBuckets) else ())

    def _open_buckets(self, target: TableContext, first: pa.RecordBatch) -> DynamicBuckets | None:
        plan = self.dynamic
        if plan is None:
            return None
        if plan.owner_writes:
            mine = plan.assigners[first.column(TASK)[0].as_py()]
            return DynamicBuckets(target.store, plan.options, (), (mine,))
        return AssignedBuckets(target.store, plan.options, plan.entries(target.store))

    def _write_batch(
        self, writer: Writer, assigned: DynamicBuckets | None, table: Table, batch: pa.RecordBatch
    ) -> None:
        placements = batch.column(PLACEMENT) if PLACEMENT in batch.schema.names else None
        for rows, kinds in convert_rows(batch, table, self.row_kind):
            if placements is not None and isinstance(assigned, AssignedBuckets):
                assigned.learn(table.schema, rows, placements)
            writer.write(rows, kinds)


@dataclass(frozen=True, slots=True)
class MergeLocally:
    """Merges rows with equal keys before they are sent (`local-merge-buffer-size`)."""

    ref: TableRef
    row_kind: str | None
    bytes: int

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The merged rows, with their kinds."""
        with wrap_task_errors():
            yield from self._merge_rows(join_batches(batches))

    def _merge_rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = self.ref.open()
        row_kind_filter = RowKindFilter(table.schema, table.context.options)
        merger = LocalMerger(table.schema, table.context.options, self.bytes)
        for batch in batches:
            for rows, kinds in convert_rows(batch, table, self.row_kind):
                counted = row_kind_filter.drop_ignored_rows(with_kinds(rows, kinds))
                kept = counted.drop_columns([counted.schema.names[-1]])
                for merged, its in merger.push(kept, counted.columns[-1]):
                    yield self._to_spark(merged, its)
        for merged, its in merger.flush():
            yield self._to_spark(merged, its)

    def _to_spark(self, rows: pa.RecordBatch, kinds: pa.Array) -> pa.RecordBatch:
        return to_spark_batch(rows, self.ref.schema.fields).append_column(KIND, kinds)
