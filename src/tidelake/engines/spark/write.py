"""A frame into a table: rows are sent to the task of their bucket, tasks write files, the driver commits once.

A task that is repeated or runs twice writes files of other names; only the messages of the one that Spark counts reach
the driver, and what the others wrote is an orphan. Rows cross into Python once, after the shuffle.

Everything that can be told from the schema and the options is refused before a job runs. A task that meets a value that
does not fit returns the error instead of raising it; the driver removes what the other tasks wrote, and raises it.
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
from tidelake.engines.spark.buckets import TASK, from_spark_time, seen, with_task
from tidelake.engines.spark.evolve import check_columns, evolved
from tidelake.engines.spark.failures import CarriedError, outcome, told_as_it_was
from tidelake.engines.spark.remote import TableRef
from tidelake.engines.spark.tasks import parallelism
from tidelake.engines.spark.types import struct_of, to_spark_batch
from tidelake.errors import CommitConflictError, InvalidInputError, StorageError, TidelakeError, UnsupportedError
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import BATCH_IDENTIFIER, CommitMessage, CommitResult
from tidelake.ops.scan.options import BucketOptions
from tidelake.ops.write.assign import DynamicBucketOptions, DynamicBuckets
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.keyed_options import KeyedWriteOptions
from tidelake.ops.write.kinds import batches_with_kinds
from tidelake.ops.write.local_merge import LocalMerger, with_kinds
from tidelake.ops.write.verbs import TableWriter, Target, begin_write, commit_write, discard
from tidelake.spec.types import Root
from tidelake.table import Table

Writer = TableWriter
DONE: Final = "done binary"
KIND: Final = "__tidelake_kind"
_LOCAL_MERGE: Final = "local-merge-buffer-size"
_TASKS_PER_CORE: Final = 4
_ATTEMPTS: Final = 3
"""Jobs of one write in which Spark ran an owner of dynamic buckets twice."""
_JOINED_ROWS: Final = 1 << 17
_JOINED_BYTES: Final = 64 << 20


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
        return table._afterwards(repeated)
    target = table._target()
    if target.moves_keys or target.postpones:
        raise UnsupportedError(
            "tables with postponed buckets, or with keys that move between partitions, are not written by Spark yet",
            option="bucket",
            value=target.buckets.bucket,
            hint="write the rows in process: table.write(frame.toArrow())",
        )
    target.writer(overwrite=mode != "append")  # refuses tables that are not written, before a job runs
    if frame.isStreaming:
        raise InvalidInputError("frame is a stream", hint="write each batch of it, in foreachBatch")
    fitting = evolved(table, frame, row_kind)
    check_columns(frame, fitting.schema, row_kind)
    if fitting is not table:
        table, committer = fitting, fitting._committer(committer.user)
    job = _Job.of(table, frame, overwrite=mode != "append", row_kind=row_kind, identifier=identifier)
    messages = _written(job, frame, committer)
    guard = None if job.dynamic is None or mode != "append" else job.dynamic.guard(table.store)
    done = commit_write(
        table._target(), committer, messages, mode=mode, partition=partition, identifier=identifier, guard=guard
    )
    return table._afterwards(done)


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

    @classmethod
    def of(
        cls, table: Table, frame: DataFrame, *, overwrite: bool, row_kind: str | None, identifier: int | None
    ) -> _Job:
        ref = TableRef.of(table.name, table.store, table.dynamic)
        cores = parallelism(frame.sparkSession)
        made = cls(ref, table.options, overwrite, row_kind, identifier, cores)
        if not table.primary_key or table._target().buckets.bucket != -1:
            return made
        base = None if overwrite else table.store.snapshots.latest()
        options = DynamicBucketOptions.parse(table.options)
        DynamicBuckets(table.store, options)  # refuses options that are not honoured, before a job runs
        return replace(made, dynamic=Assigning.of(options, base, cores))

    def planned(self, frame: DataFrame) -> DataFrame:
        """A frame with what every task did."""
        row_kind = self.row_kind
        local = KeyedWriteOptions.parse(self.options).local_merge_bytes if self.ref.schema.primary_keys else None
        if local is not None:
            merging = _LocalMerge(self.ref, row_kind, local)
            fields = [*struct_of(self.ref.schema.fields).fields, StructField(KIND, ByteType(), nullable=False)]
            frame, row_kind = frame.mapInArrow(merging.run, StructType(fields)), KIND
        task = _Write(self.ref, self.overwrite, row_kind, self.identifier, self.dynamic)
        return self.distributed(frame).mapInArrow(task.run, DONE)

    def distributed(self, frame: DataFrame) -> DataFrame:
        """The rows, those of one bucket in one task."""
        schema = self.ref.schema
        buckets = BucketOptions.parse(self.options)
        tasks = self.cores * _TASKS_PER_CORE
        if self.dynamic is not None:
            return self.dynamic.distributed(frame, self.ref, tasks)
        if buckets.bucket > 0:
            tasks = tasks if schema.partition_keys else min(buckets.bucket, tasks)
            return with_task(frame, schema, buckets, tasks).repartitionById(tasks, f.col(TASK)).drop(TASK)
        if self.options.get("partition.sink-strategy", "none").strip().lower() == "hash" and schema.partition_keys:
            return frame.repartition(*(seen(frame.columns, schema.field(name)) for name in schema.partition_keys))
        return frame


def _written(job: _Job, frame: DataFrame, committer: Committer) -> list[CommitMessage]:
    """Run the job; the messages of all tasks.

    Raises:
        TidelakeError: what the first task that failed tells; what the others wrote is removed.
    """
    number = BATCH_IDENTIFIER if job.identifier is None else job.identifier
    for attempt in range(1, _ATTEMPTS + 1):
        with told_as_it_was():
            rows = job.planned(frame).collect()
        done: list[_Done | TidelakeError] = [pickle.loads(row.done) for row in rows]
        messages = [message for each in done if isinstance(each, _Done) for message in each.messages]
        failed = next((each for each in done if isinstance(each, TidelakeError)), None)
        if failed is not None:
            discard(committer, messages, number)
            raise failed
        if check_marks([mark for each in done if isinstance(each, _Done) for mark in each.marks]):
            return messages
        discard(committer, messages, number)
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
class _Done:
    """What a task did."""

    messages: tuple[CommitMessage, ...] = ()
    marks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Write:
    """Writes the rows that reach a task and describes the files."""

    ref: TableRef
    overwrite: bool
    row_kind: str | None
    identifier: int | None
    dynamic: Assigning | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        done = outcome(lambda: self._done(joined(batches)))
        # The rest of the rows has to be taken, or Spark waits for ever to hand it over.
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"done": pa.array([pickle.dumps(done)], pa.binary())})

    def _done(self, batches: Iterator[pa.RecordBatch]) -> _Done:
        first = next(batches, None)
        if first is None:
            return _Done()
        table = self.ref.open()
        # Rows were merged before they were sent.
        options = {key: value for key, value in table.options.items() if key != _LOCAL_MERGE}
        target = Target(table.name, table.store, table.paths, options)
        assigned = self._assigned(target, first)
        writer = target.writer(overwrite=self.overwrite, assigned=assigned)
        try:
            self._write(writer, assigned, table, first)
            for batch in batches:
                self._write(writer, assigned, table, batch)
            messages = tuple(writer.prepare(self.identifier, wait=True))
        except BaseException:
            with suppress(StorageError):
                writer.abort()
            raise
        return _Done(messages, tuple(assigned.marks) if isinstance(assigned, AssignedBuckets) else ())

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
        try:
            yield from self._merged(joined(batches))
        except TidelakeError as error:
            raise CarriedError(error) from error

    def _merged(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = self.ref.open()
        writer = table._target().writer()
        assert isinstance(writer, KeyedTableWriter)
        merger = LocalMerger(table.schema, table.options, self.bytes)
        for batch in batches:
            for rows, kinds in rows_of(batch, table, self.row_kind):
                counted = writer.counted(with_kinds(rows, kinds))
                kept = counted.drop_columns([counted.schema.names[-1]])
                for merged, its in merger.push(kept, counted.columns[-1]):
                    yield self._sent(merged, its)
        for merged, its in merger.flush():
            yield self._sent(merged, its)

    def _sent(self, rows: pa.RecordBatch, kinds: pa.Array) -> pa.RecordBatch:
        return to_spark_batch(rows, self.ref.schema.fields).append_column(KIND, kinds)


def rows_of(
    batch: pa.RecordBatch, table: Table, row_kind: str | None
) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
    """Rows as Spark hands them over, in the columns and types of the table, with their kinds.

    Raises:
        InvalidInputError: a value does not fit.
    """
    ours = [name for name in (TASK, CODE) if name in batch.schema.names]
    if ours:
        batch = batch.drop_columns(ours)
    for field in table.schema.fields:
        if field.type.root is Root.TIME and field.name in batch.schema.names:
            place = batch.schema.get_field_index(field.name)
            batch = batch.set_column(place, field.name, from_spark_time(batch.column(place), field))
    yield from batches_with_kinds(batch, table.schema, column=row_kind, field=table.options.get("rowkind.field"))


def joined(
    batches: Iterable[pa.RecordBatch], rows: int = _JOINED_ROWS, size: int = _JOINED_BYTES
) -> Iterator[pa.RecordBatch]:
    """The rows in batches worth the work that each one makes; those of Spark are small."""
    waiting: list[pa.RecordBatch] = []
    count = held = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        count, held = count + batch.num_rows, held + batch.nbytes
        if count >= rows or held >= size:
            yield pa.concat_batches(waiting)
            waiting, count, held = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)
