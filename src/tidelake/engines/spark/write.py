"""A frame into a table: rows are sent to the task of their bucket, tasks write files, the driver commits once.

A task that is repeated or runs twice writes files of other names; only the messages of the one that Spark counts reach
the driver, and what the others wrote is an orphan. Rows cross into Python once, after the shuffle.

Everything that can be told from the schema and the options is refused before a job runs. A task that meets a value that
does not fit returns the error instead of raising it; the driver removes what the other tasks wrote, and raises it.

How rows find their task is told elsewhere: by fixed buckets (`buckets`), by owners of dynamic ones (`assign`), by
owners of keys that move between partitions (`moving`), or, where the number of buckets is postponed, once it is decided
(`staged`).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ByteType, StructField, StructType

from tidelake.engines.spark.assign import CODE, AssignedBuckets, Assigning, check_marks
from tidelake.engines.spark.batches import KIND, joined, rows_of
from tidelake.engines.spark.buckets import TASK, seen, with_counted_task, with_task
from tidelake.engines.spark.evolve import check_columns, evolved
from tidelake.engines.spark.failures import carrying, log_warnings, told_as_it_was
from tidelake.engines.spark.moving import Moving
from tidelake.engines.spark.parcels import tasks_for
from tidelake.engines.spark.receive import DONE, LOCAL_MERGE, Done, Receiving, told
from tidelake.engines.spark.remote import TableRef
from tidelake.engines.spark.staged import Counted, Sending, Staging
from tidelake.engines.spark.tasks import parallelism
from tidelake.engines.spark.types import struct_of, to_spark_batch
from tidelake.errors import CommitConflictError, InvalidInputError, NotFoundError, StorageError, TidelakeError
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.conflicts import KEYS_MOVED
from tidelake.ops.commit.messages import CommitMessage, CommitResult
from tidelake.ops.scan.options import BucketOptions
from tidelake.ops.scan.postponed import PostponeOptions
from tidelake.ops.write.admission import Admission
from tidelake.ops.write.assign import DynamicBucketOptions, DynamicBuckets
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.keyed_options import KeyedWriteOptions
from tidelake.ops.write.local_merge import LocalMerger, with_kinds
from tidelake.ops.write.postpone import plan_rescales, remove_staged, staged_sizes, staged_split
from tidelake.ops.write.verbs import TableWriter, Target, begin_write, commit_write
from tidelake.store.snapshots import EXPIRED
from tidelake.table import Table

Writer = TableWriter
_ATTEMPTS: Final = 3
"""Jobs of one write in which Spark ran an owner of dynamic buckets twice."""
_PLANS: Final = 10
"""Plans of a write whose keys other jobs moved first."""


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
        UnsupportedError: the table is of a kind that is not written yet.
        CommitConflictError: others changed the same files.
        CommitUnknownError: the storage did not tell whether the commit is there.
    """
    committer = table._committer(commit_user)
    repeated = begin_write(table._target(), committer, mode=mode, partition=partition, identifier=identifier)
    if repeated is not None:
        return _ended(table, repeated)
    # Refuses tables that are not written, before a job runs.
    table._target().writer(overwrite=mode != "append", numbered=identifier is not None)
    if frame.isStreaming:
        raise InvalidInputError("frame is a stream", hint="write each batch of it, in foreachBatch")
    fitting = evolved(table, frame, row_kind)
    check_columns(frame, fitting.schema, row_kind)
    if fitting is not table:
        table, committer = fitting, fitting._committer(committer.user)
    overwrite = mode != "append"
    for attempt in range(1, _PLANS + 1):
        user = committer.user
        try:
            job = _Job.of(table, frame, overwrite=overwrite, row_kind=row_kind, identifier=identifier, user=user)
            messages = run_job(table, job, frame, committer)
            target = table._target()
            done = commit_write(target, committer, messages, mode=mode, partition=partition, identifier=identifier)
        except (CommitConflictError, NotFoundError) as error:
            # Nothing is published, and what the tasks wrote is removed: the frame can be written from the beginning.
            if error.code not in (KEYS_MOVED, EXPIRED) or attempt == _PLANS:
                raise
        else:
            return _ended(table, done)
    raise AssertionError("the last attempt returns or raises")


def _ended(table: Table, done: CommitResult) -> CommitResult:
    """What follows a write."""
    done = table._afterwards(done)
    log_warnings(table.name, done.warnings)
    return done


@dataclass(frozen=True, slots=True)
class _Job:
    """How a frame is spread over tasks, and what they do."""

    ref: TableRef
    options: Mapping[str, str]
    overwrite: bool
    row_kind: str | None
    identifier: int | None
    cores: int
    dynamic: Assigning | None = None
    moving: Moving | None = None
    staging: Staging | None = None
    """Stages the rows, for good or until it is decided how many buckets there are."""
    counts: Counted | None = None
    """The buckets of a table that leaves their number open."""

    @property
    def decides(self) -> bool:
        """Whether the number of buckets depends on the rows."""
        return self.staging is not None and not self.staging.for_good

    @property
    def base_id(self) -> int | None:
        """The snapshot that every task starts from, where they have to agree on the number of buckets."""
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
        straight: bool = False,
    ) -> _Job:
        """The job for a table; `straight` rows go to the buckets that there are, and do not wait for any."""
        ref = TableRef.of(table.name, table.store, table.dynamic)
        cores = parallelism(frame.sparkSession)
        made = cls(ref, table.options, overwrite, row_kind, identifier, cores)
        target = table._target()
        if target.moves_keys:
            return replace(made, moving=Moving.of(table, overwrite=overwrite, cores=cores))
        if target.postpones:
            postpone = PostponeOptions.parse(table.options)
            for_good = identifier is not None or not postpone.batch_fixed
            if not straight and (for_good or postpone.needs_size):
                return replace(made, staging=Staging(ref, row_kind, user, for_good))
            return replace(made, counts=Counted.of(table, {}, overwrite=overwrite))
        if not table.primary_key or target.buckets.bucket != -1:
            return made
        base = None if overwrite else table.store.snapshots.latest()
        options = DynamicBucketOptions.parse(table.options)
        DynamicBuckets(table.store, options)  # refuses options that are not honoured, before a job runs
        return replace(made, dynamic=Assigning.of(options, base, cores))

    def planned(self, frame: DataFrame) -> DataFrame:
        """A frame with what every task did."""
        row_kind = self.row_kind
        if self.moving is not None:
            settled = self.moving.distributed(frame, self.ref, row_kind, tasks_for(self.cores))
            receiving = Receiving(self.ref, self.moving.base_id, self.overwrite, self.identifier)
            return settled.mapInArrow(receiving.run, DONE)
        if self.staging is not None:
            return frame.mapInArrow(self.staging.run, DONE)
        local = KeyedWriteOptions.parse(self.options).local_merge_bytes if self.ref.schema.primary_keys else None
        if local is not None:
            merging = _LocalMerge(self.ref, row_kind, local)
            fields = [*struct_of(self.ref.schema.fields).fields, StructField(KIND, ByteType(), nullable=False)]
            frame, row_kind = frame.mapInArrow(merging.run, StructType(fields)), KIND
        task = _Write(self.ref, self.overwrite, row_kind, self.identifier, self.dynamic, self.base_id)
        return self.distributed(frame).mapInArrow(task.run, DONE)

    def distributed(self, frame: DataFrame) -> DataFrame:
        """The rows, those of one bucket in one task."""
        schema = self.ref.schema
        buckets = BucketOptions.parse(self.options)
        tasks = tasks_for(self.cores)
        if self.dynamic is not None:
            return self.dynamic.distributed(frame, self.ref, tasks)
        if self.counts is not None:
            same = self.counts.known.same
            if same is None:
                placed = with_counted_task(frame, schema, buckets, self.counts.known, tasks)
                return placed.repartitionById(tasks, f.col(TASK)).drop(TASK)
            buckets = replace(buckets, bucket=same)
        if buckets.bucket > 0:
            tasks = tasks if schema.partition_keys else min(buckets.bucket, tasks)
            return with_task(frame, schema, buckets, tasks).repartitionById(tasks, f.col(TASK)).drop(TASK)
        if self.options.get("partition.sink-strategy", "none").strip().lower() == "hash" and schema.partition_keys:
            return frame.repartition(*(seen(frame.columns, schema.field(name)) for name in schema.partition_keys))
        return frame


@dataclass(frozen=True, slots=True)
class _SentJob:
    """How staged rows are sent to the buckets that were decided for them."""

    sending: Sending
    receiving: Receiving

    @property
    def identifier(self) -> int | None:
        return self.receiving.identifier

    def planned(self, frame: DataFrame) -> DataFrame:
        """A frame with what every task did."""
        return self.sending.sent(frame.sparkSession).mapInArrow(self.receiving.run, DONE)


def run_job(table: Table, job: _Job, frame: DataFrame, committer: Committer) -> list[CommitMessage]:
    """Write the rows of a frame; the messages of all tasks.

    Raises:
        TidelakeError: what the first task that failed tells; what the others wrote is removed.
    """
    return _decided(table, job, frame, committer) if job.decides else _written(job, frame, committer)


def _decided(table: Table, job: _Job, frame: DataFrame, committer: Committer) -> list[CommitMessage]:
    """Stage the rows, decide how many buckets they need, and write them there; the staged files are removed.

    Raises:
        TidelakeError: what the first task that failed tells; what the others wrote is removed.
    """
    staged = _written(job, frame, committer)
    if not staged:
        return []
    try:
        sizes = staged_sizes(staged)
        more = {} if job.overwrite else plan_rescales(table.store, table.options, sizes)
        if more:
            table._give_buckets(more)
        chosen = PostponeOptions.parse(table.options).batch_counts(sizes)
        counted = Counted.of(table, chosen, overwrite=job.overwrite)
        splits = [staged_split(message, table.paths) for message in staged]
        sending = Sending.of(job.ref, splits, counted.known, cores=job.cores)
        receiving = Receiving(job.ref, counted.base_id, job.overwrite, job.identifier, chosen)
        return _written(_SentJob(sending, receiving), frame, committer)
    finally:  # whoever dies before this leaves orphans
        remove_staged(table.store, table.paths, staged)


def _written(job: _Job | _SentJob, frame: DataFrame, committer: Committer) -> list[CommitMessage]:
    """Run the job; the messages of all tasks.

    Raises:
        TidelakeError: what the first task that failed tells; what the others wrote is removed.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        with told_as_it_was():
            rows = job.planned(frame).collect()
        done: list[Done | TidelakeError] = [pickle.loads(row.done) for row in rows]
        messages = [message for each in done if isinstance(each, Done) for message in each.messages]
        failed = next((each for each in done if isinstance(each, TidelakeError)), None)
        if failed is not None:
            committer.discard(messages)
            raise failed
        if check_marks([mark for each in done if isinstance(each, Done) for mark in each.marks]):
            return messages
        committer.discard(messages)
        if attempt == _ATTEMPTS:
            raise CommitConflictError(
                "tasks that assign dynamic buckets ran twice",
                code="assigned-twice",
                attempts=attempt,
                hint="executors were lost every time: write again, or cache the frame first",
            )
    raise AssertionError("the last attempt returns or raises")


# ------------------------------------------------------------------------------------------------ tasks


@dataclass(frozen=True, slots=True)
class _Write:
    """Writes the rows that reach a task and describes the files."""

    ref: TableRef
    overwrite: bool
    row_kind: str | None
    identifier: int | None
    dynamic: Assigning | None = None
    base_id: int | None = None
    """The snapshot that every task starts from, where they have to agree on the number of buckets."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from told(batches, lambda: self._done(joined(batches)))

    def _done(self, batches: Iterator[pa.RecordBatch]) -> Done:
        first = next(batches, None)
        if first is None:
            return Done()
        table = self.ref.open()
        # Rows were merged before they were sent.
        options = {key: value for key, value in table.options.items() if key != LOCAL_MERGE}
        target = Target(table.name, table.store, table.paths, options)
        assigned = self._assigned(target, first)
        writer: Writer
        if self.base_id is None:
            writer = target.writer(overwrite=self.overwrite, assigned=assigned)
        else:
            writer = KeyedTableWriter(target.store, target.paths, options, self.overwrite, base_id=self.base_id)
        try:
            self._write(writer, assigned, table, first)
            for batch in batches:
                self._write(writer, assigned, table, batch)
            messages = tuple(writer.prepare(self.identifier, wait=True))
        except BaseException:
            with suppress(StorageError):
                writer.abort()
            raise
        return Done(messages, tuple(assigned.marks) if isinstance(assigned, AssignedBuckets) else ())

    def _assigned(self, target: Target, first: pa.RecordBatch) -> DynamicBuckets | None:
        plan = self.dynamic
        if plan is None:
            return None
        if plan.at_once:
            mine = plan.assigners[first.column(TASK)[0].as_py()]
            return DynamicBuckets(target.store, plan.options, (), (mine,))
        return AssignedBuckets(target.store, plan.options, plan.entries(target.store))

    def _write(self, writer: Writer, assigned: DynamicBuckets | None, table: Table, batch: pa.RecordBatch) -> None:
        codes = batch.column(CODE) if CODE in batch.schema.names else None
        for rows, kinds in rows_of(batch, table, self.row_kind):
            if codes is not None and isinstance(assigned, AssignedBuckets):
                assigned.learn(table.schema, rows, codes)
            writer.write(rows, kinds)


@dataclass(frozen=True, slots=True)
class _LocalMerge:
    """Merges rows of equal keys before they are sent."""

    ref: TableRef
    row_kind: str | None
    bytes: int

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying():
            yield from self._merged(joined(batches))

    def _merged(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = self.ref.open()
        admission = Admission(table.schema, table.options)
        merger = LocalMerger(table.schema, table.options, self.bytes)
        for batch in batches:
            for rows, kinds in rows_of(batch, table, self.row_kind):
                counted = admission.counted(with_kinds(rows, kinds))
                kept = counted.drop_columns([counted.schema.names[-1]])
                for merged, its in merger.push(kept, counted.columns[-1]):
                    yield self._sent(merged, its)
        for merged, its in merger.flush():
            yield self._sent(merged, its)

    def _sent(self, rows: pa.RecordBatch, kinds: pa.Array) -> pa.RecordBatch:
        return to_spark_batch(rows, self.ref.schema.fields).append_column(KIND, kinds)
