"""The writing half of the data source: tasks write files, one process commits them.

Spark does not shuffle rows for a data source, so several tasks write to one bucket. All of them start from one
snapshot. Above the bucket's maximum sequence number on it each task has a stripe of numbers of its own, so that the
order of the tasks is the order of the rows. These tasks do not compact. Invariant: the new files of a bucket have
disjoint ranges of sequence numbers. Where buckets are postponed, tasks stage their rows, and a later compaction assigns
buckets and numbers.

Spark calls `abort` in yet another process, and also after a commit with an unknown outcome. So `abort` removes files
only if a task failed, because in that case no commit was tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelake.cleanup import undo_on_error
from tidelake.engines.spark.bridge.failures import log_warnings
from tidelake.engines.spark.bridge.grants import Grant, TableRef
from tidelake.engines.spark.bridge.types import from_spark
from tidelake.engines.spark.read.source_rows import arrow_schema
from tidelake.errors import CommitConflictError, InvalidInputError, UnsupportedError
from tidelake.io.env import Env
from tidelake.ops.commit.messages import CommitMessage, Committable, DataIncrement
from tidelake.ops.commit.safety import require_exclusive_create
from tidelake.ops.define.schemas import run_create
from tidelake.ops.hooks.committers import open_committer
from tidelake.ops.write.kinds import ROWKIND, batches_with_kinds
from tidelake.ops.write.opening import TableWriter as RowWriter
from tidelake.ops.write.opening import open_writer
from tidelake.ops.write.rows import conform
from tidelake.ops.write.verbs import discard_on_error
from tidelake.spec.data_file import DataFile
from tidelake.spec.layout import TableLayout
from tidelake.spec.schemas.bucket_mode import BucketMode, BucketOptions
from tidelake.spec.schemas.schema import new_schema
from tidelake.store.schemas import SchemaStore
from tidelake.table import Table, open_table

STRIPE: Final = 1 << 32
"""How many sequence numbers a task has in one bucket."""
_MODE: Final = "spark.sql.sources.partitionOverwriteMode"
_INSTEAD: Final = "use table.write(df), which sends the rows of a bucket to one task"


@dataclass(frozen=True, slots=True)
class TaskFiles(WriterCommitMessage):
    """What one task wrote, and whether its session overwrites partitions dynamically."""

    task: int
    messages: tuple[CommitMessage, ...]
    dynamic: bool


@dataclass(frozen=True, slots=True)
class TableWriter(DataSourceArrowWriter):
    """Writes the rows of a Spark job to a table, as one commit."""

    ref: TableRef
    fresh: bool
    """Whether the commit creates the table."""
    overwrite: bool
    dynamic: bool | None
    """Whether an overwrite keeps partitions without new rows; None leaves it to the session."""
    base_id: int
    """The snapshot that all tasks start from, 0 for none."""
    user: str

    @classmethod
    def of(cls, table: Table, struct: StructType, *, fresh: bool, overwrite: bool, dynamic: bool | None) -> TableWriter:
        """A writer of rows with these columns.

        Raises:
            InvalidInputError: the columns do not fit the table.
            UnsupportedError: only `table.write` can write to such a table.
        """
        check_writable(table)
        check_columns(table, struct)
        ref = TableRef.of(table.name, table.store, table.dynamic)
        base_id = 0 if fresh else table.store.snapshots.latest_id() or 0
        return cls(ref, fresh, overwrite, dynamic, base_id, table.store.env.ids.uuid())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskFiles:
        """Write the rows of one task.

        Raises:
            InvalidInputError: a value does not fit its column.
            StorageError: the storage failed.
        """
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        table = self.ref.open()
        writer = open_task_writer(table, task, overwrite=self.overwrite, base_id=self.base_id, user=self.user)
        return TaskFiles(task, write_rows(table, writer, iterator), _session_is_dynamic(context))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what all tasks wrote.

        Raises:
            CommitConflictError: another commit changed the same files.
            CommitUnknownError: the storage did not answer whether the commit succeeded.
            InvalidInputError: another job created the table in between, with other columns.
        """
        parts = _parts(messages)
        table = self.ref.open()
        joined = by_bucket(parts, renumber=is_renumbered(table))
        committer, committable = open_committer(table.context_to_write(), self.user), Committable(messages=joined)
        with discard_on_error(committer, joined):
            if self.fresh:
                self._make(table)
            if self.overwrite:
                dynamic = any(part.dynamic for part in parts) if self.dynamic is None else self.dynamic
                done = committer.overwrite(committable, dynamic=dynamic)
            else:
                done = committer.commit(committable)
        log_warnings(table.name, done.warnings)

    def _make(self, table: Table) -> None:
        env, schema = table.store.env, table.schema
        require_exclusive_create(env, table.context.options)
        if run_create(env, table.store.schemas, schema):
            return
        there = table.store.schemas.get(schema.id)
        if replace(there, time_ms=schema.time_ms) != schema:
            raise InvalidInputError(
                "another job created the table in between",
                code="table-exists",
                location=table.location,
                hint="write to it again",
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the files of the tasks if one of them failed; keep them if a commit was tried.

        Raises:
            StorageError: the storage failed; some files are left behind.
        """
        if None not in messages:
            return
        written = [each for part in _parts(messages) for each in part.messages]
        if written:
            self.ref.open().new_commit(self.user).abort(written)


def open_task_writer(table: Table, task: int, *, overwrite: bool, base_id: int, user: str) -> RowWriter:
    """Open the writer of one of several tasks that may write to the same buckets, from one snapshot, 0 for none."""
    target = table.context_to_write()
    if not table.primary_key:
        return open_writer(target, overwrite=overwrite)
    if target.bucket_mode is BucketMode.POSTPONED:  # without a shuffle rows cannot go to their buckets directly
        return open_writer(target, user=user, numbered=True)
    from tidelake.ops.write.keyed import KeyedTableWriter  # deferred: tasks for append tables do not load it

    # If the base snapshot has expired, this task starts from a newer one than the others. The commit handles that:
    # it rebases each bucket onto what was committed since the oldest of these.
    return KeyedTableWriter(
        target, overwrite, base_id=base_id, base_may_expire=True, skip=task * STRIPE, compacts=False
    )


def write_rows(table: Table, writer: RowWriter, batches: Iterable[pa.RecordBatch]) -> tuple[CommitMessage, ...]:
    """Write the rows of a task, and describe its files.

    Raises:
        InvalidInputError: a value does not fit its column.
        StorageError: the storage failed.
    """
    with undo_on_error(writer.abort):
        field = table.options.get("rowkind.field")
        for batch in batches:
            for rows, kinds in batches_with_kinds(batch, table.schema, field=field):
                writer.write(rows, kinds)
        return tuple(writer.prepare(None, wait=True))


def is_renumbered(table: Table) -> bool:
    """Whether sequence numbers of the table are only in the metadata of files, so that the commit can change them."""
    return not table.primary_key and table.context.options.of(BucketOptions).bucket > 0


def by_bucket(parts: Sequence[TaskFiles], *, renumber: bool) -> tuple[CommitMessage, ...]:
    """Join the messages of all tasks into one for each bucket, with files in the order of the tasks.

    Args:
        parts: What the tasks wrote.
        renumber: Whether sequence numbers are only in the metadata of files, so that they can be changed here.

    Raises:
        UnsupportedError: a task wrote more rows to a bucket than it has sequence numbers.
        CommitConflictError: tasks of a bucket started from different snapshots, and their rows would not be in order.
    """
    grouped: dict[tuple[bytes, int], list[CommitMessage]] = {}
    for part in sorted(parts, key=lambda each: each.task):
        for message in part.messages:
            grouped.setdefault((message.partition, message.bucket), []).append(message)
    found = []
    for messages in grouped.values():
        files = tuple(file for message in messages for file in message.data.new_files)
        changelog = tuple(file for message in messages for file in message.data.changelog_files)
        if renumber:
            files = _renumber(files)
        elif messages[0].base_snapshot_id is not None:
            _check_stripes(messages)
        bases = [each.base_snapshot_id for each in messages if each.base_snapshot_id is not None]
        data = DataIncrement(new_files=files, changelog_files=changelog)
        found.append(replace(messages[0], data=data, base_snapshot_id=min(bases, default=None)))
    return tuple(found)


def _renumber(files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    start = max((file.min_sequence for file in files[:1]), default=0)
    found = []
    for file in files:
        length = file.max_sequence - file.min_sequence
        found.append(replace(file, min_sequence=start, max_sequence=start + length))
        start += length + 1
    return tuple(found)


def _check_stripes(messages: Sequence[CommitMessage]) -> None:
    ranges = [
        (min(f.min_sequence for f in each.data.new_files), max(f.max_sequence for f in each.data.new_files))
        for each in messages
        if each.data.new_files
    ]
    if any(before[1] >= after[0] for before, after in pairwise(ranges)):
        if len({each.base_snapshot_id for each in messages}) > 1:
            raise CommitConflictError(
                "another job committed to the bucket between two tasks of a batch",
                code="base-moved",
                bucket=messages[0].bucket,
                hint="start the query again, which repeats the batch, or use tl.stream_to, whose tasks agree on a base",
            )
        raise UnsupportedError(
            "a task wrote more rows to a bucket than it has sequence numbers",
            bucket=messages[0].bucket,
            limit=STRIPE,
            hint="repartition the data into more tasks, or use table.write(df)",
        )


def check_writable(table: Table, instead: str = _INSTEAD) -> None:
    """Refuse tables for which one task has to write all rows of a bucket; `instead` says what can write them.

    Raises:
        UnsupportedError: the table is one of these.
    """
    if not table.primary_key:
        return
    from tidelake.lsm.engines.build import MergeOptions

    if table.context_to_write().bucket_mode is BucketMode.POSTPONED:
        return  # rows are staged as they come
    bucket = table.context.options.of(BucketOptions).bucket
    if bucket <= 0:
        raise UnsupportedError(
            "data source can write primary-key tables only with fixed or postponed buckets",
            option="bucket",
            value=bucket,
            hint=instead,
        )
    if table.context.options.of(MergeOptions).needs_lookup:
        raise UnsupportedError(
            "readers of the table see rows only after a compaction, and the data source does not compact",
            table=table.name,
            hint=instead,
        )


def check_columns(table: Table, struct: StructType) -> None:
    """Check the columns before any task runs; errors that depend on values are left to the tasks.

    Raises:
        InvalidInputError: they do not fit the table.
    """
    arrow = arrow_schema(struct)
    present = [name for name in arrow.names if name != ROWKIND or name in table.schema.names]
    nothing = [pa.array([], arrow.field(name).type) for name in present]
    conform(pa.RecordBatch.from_arrays(nothing, names=present), table.schema)
    for field in table.schema.fields:
        if field.name not in present and not field.type.nullable and field.default is None:
            raise InvalidInputError(
                "column must not be null",
                code="null-value",
                column=field.name,
                hint="the data does not have the column: add it",
            )


def plan_table(
    location: str, name: str, storage: Mapping[str, str], struct: StructType, options: Mapping[str, str]
) -> Table:
    """Describe a table that does not exist yet, with the columns of the data, without creating it.

    Raises:
        InvalidInputError: a column or an option is wrong.
    """
    given: dict[str, Any] = dict(storage)
    unsafe = str(given.pop("unsafe.commit", "false")).strip().lower() == "true"
    env = Env(Grant(location, given).open(), unsafe_commit=unsafe)
    columns = {field.name: from_spark(field.dataType, field.nullable) for field in struct.fields}
    schema = new_schema(columns, options=options, time_ms=env.clock.now_ms())
    return open_table(env, name, schema, SchemaStore(env.io, TableLayout()))


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[TaskFiles]:
    return [each for each in messages if isinstance(each, TaskFiles)]


def _session_is_dynamic(context: TaskContext | None) -> bool:
    """The overwrite mode of the session: only tasks can see this setting, no Python process on the driver can."""
    mode = None if context is None else context.getLocalProperty(_MODE)
    return (mode or "").strip().lower() == "dynamic"
