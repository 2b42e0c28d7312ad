"""The writing half of the data source: tasks write files, one process commits them.

Spark sends rows wherever they are, so that several tasks write to one bucket. Each numbers its rows in a stripe of its
own above the bucket's maximum on the snapshot that all of them start from; the order of the tasks is the order of the
rows. Such tasks compact nothing. Invariant: the new files of a bucket have disjoint ranges of sequence numbers. Where
buckets are postponed, tasks stage their rows, and a compaction gives them buckets and numbers.

Spark calls `abort` in yet another process, also after a commit whose outcome nobody knows: files are removed only
where a task failed, because then no commit was tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelake.engines.spark.failures import log_warnings
from tidelake.engines.spark.remote import Grant, TableRef
from tidelake.engines.spark.source_read import arrow_schema
from tidelake.engines.spark.types import from_spark
from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.io.env import Env
from tidelake.ops.commit.messages import CommitMessage, Committable, DataIncrement
from tidelake.ops.commit.safety import require_exclusive_create
from tidelake.ops.define.schemas import run_create
from tidelake.ops.scan.options import BucketOptions
from tidelake.ops.write.kinds import ROWKIND, batches_with_kinds
from tidelake.ops.write.rows import conform
from tidelake.ops.write.verbs import TableWriter as RowWriter
from tidelake.ops.write.verbs import or_discard
from tidelake.spec.data_file import DataFile
from tidelake.spec.layout import TableLayout
from tidelake.spec.schema import new_schema
from tidelake.store.schemas import SchemaStore
from tidelake.table import Table, open_table

STRIPE: Final = 1 << 32
"""Sequence numbers of one task in one bucket."""
_MODE: Final = "spark.sql.sources.partitionOverwriteMode"
_INSTEAD: Final = "use table.write(df), which sends the rows of a bucket to one task"


@dataclass(frozen=True, slots=True)
class TaskFiles(WriterCommitMessage):
    """What one task wrote, and how its session overwrites partitions."""

    task: int
    messages: tuple[CommitMessage, ...]
    dynamic: bool


@dataclass(frozen=True, slots=True)
class TableWriter(DataSourceArrowWriter):
    """Writes rows of Spark to a table, as one commit."""

    ref: TableRef
    fresh: bool
    """Whether the table is made by the commit."""
    overwrite: bool
    dynamic: bool | None
    """Whether partitions without new rows stay; None leaves it to the session."""
    base_id: int
    """The snapshot that every task starts from, 0 for none."""
    user: str

    @classmethod
    def of(cls, table: Table, struct: StructType, *, fresh: bool, overwrite: bool, dynamic: bool | None) -> TableWriter:
        """A writer of rows with these columns.

        Raises:
            InvalidInputError: the columns do not fit the table.
            UnsupportedError: only `table.write` can write to such a table.
        """
        check_writable(table)
        _check_columns(table, struct)
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
        writer = self._writer(table, task)
        try:
            field = table.options.get("rowkind.field")
            for batch in iterator:
                for rows, kinds in batches_with_kinds(batch, table.schema, field=field):
                    writer.write(rows, kinds)
            messages = writer.prepare(None, wait=True)
        except BaseException:
            writer.abort()
            raise
        return TaskFiles(task, tuple(messages), _session_is_dynamic(context))

    def _writer(self, table: Table, task: int) -> RowWriter:
        target = table._target()
        if not table.primary_key:
            return target.writer(overwrite=self.overwrite)
        if target.postpones:  # who wants buckets at once has to send rows to them
            return target.writer(user=self.user, numbered=True)
        from tidelake.ops.write.keyed import KeyedTableWriter  # append tables do without the tree

        options = {**table.options, "write-only": "true"}
        # A task may start from another snapshot than the others: the commit moves the sequence numbers of each message
        # behind what was committed since the message's own base.
        return KeyedTableWriter(
            table.store,
            table.paths,
            options,
            self.overwrite,
            base_id=self.base_id,
            base_may_expire=True,
            skip=task * STRIPE,
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what all tasks wrote.

        Raises:
            CommitConflictError: others changed the same files.
            CommitUnknownError: the storage did not tell whether the commit is there.
            InvalidInputError: the table was made meanwhile, with other columns.
        """
        parts = _parts(messages)
        table = self.ref.open()
        joined = by_bucket(parts, renumber=not table.primary_key and BucketOptions.parse(table.options).bucket > 0)
        committer, committable = table._committer(self.user), Committable(messages=joined)
        with or_discard(committer, joined):
            if self.fresh:
                self._make(table)
            if self.overwrite:
                dynamic = any(part.dynamic for part in parts) if self.dynamic is None else self.dynamic
                done = committer.overwrite(committable, dynamic=dynamic)
            else:
                done = committer.commit(committable)
        log_warnings(table.name, table._afterwards(done).warnings)

    def _make(self, table: Table) -> None:
        env, schema = table.store.env, table.schema
        require_exclusive_create(env, schema.options)
        if run_create(env, table.store.schemas, schema):
            return
        there = table.store.schemas.get(schema.id)
        if replace(there, time_ms=schema.time_ms) != schema:
            raise InvalidInputError(
                "table was made by another job meanwhile",
                code="table-exists",
                location=table.location,
                hint="write to it again",
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what tasks wrote if one of them failed; after a commit was tried everything stays.

        Raises:
            StorageError: the storage failed; some files are left.
        """
        if None not in messages:
            return
        written = [each for part in _parts(messages) for each in part.messages]
        if written:
            self.ref.open().new_commit(self.user).abort(written)


def by_bucket(parts: Sequence[TaskFiles], *, renumber: bool) -> tuple[CommitMessage, ...]:
    """One message for each bucket, with the files of all tasks in the order of the tasks.

    Args:
        parts: What the tasks wrote.
        renumber: Whether files are numbered by their metadata alone, so that they can be numbered anew here.

    Raises:
        UnsupportedError: a task brought more rows to a bucket than it has numbers.
    """
    grouped: dict[tuple[bytes, int], list[CommitMessage]] = {}
    for part in sorted(parts, key=lambda each: each.task):
        for message in part.messages:
            grouped.setdefault((message.partition, message.bucket), []).append(message)
    found = []
    for messages in grouped.values():
        files = tuple(file for message in messages for file in message.data.new_files)
        if renumber:
            files = _one_after_the_other(files)
        elif messages[0].base_snapshot_id is not None:
            _check_stripes(messages)
        found.append(replace(messages[0], data=DataIncrement(new_files=files)))
    return tuple(found)


def _one_after_the_other(files: Sequence[DataFile]) -> tuple[DataFile, ...]:
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
        raise UnsupportedError(
            "a task brought more rows to a bucket than it has sequence numbers",
            bucket=messages[0].bucket,
            limit=STRIPE,
            hint="repartition the data into more tasks, or use table.write(df)",
        )


def check_writable(table: Table) -> None:
    """Refuse tables whose rows have to be sent to one task each bucket.

    Raises:
        UnsupportedError: the table is one of those.
    """
    if not table.primary_key:
        return
    from tidelake.lsm.engines.build import MergeOptions

    if table._target().postpones:
        return  # rows are staged as they come
    bucket = BucketOptions.parse(table.options).bucket
    if bucket <= 0:
        raise UnsupportedError(
            "data source writes to primary-key tables with fixed or postponed buckets only",
            option="bucket",
            value=bucket,
            hint=_INSTEAD,
        )
    if MergeOptions.parse(table.options).needs_lookup:
        raise UnsupportedError(
            "rows of the table are seen once they are compacted, and the data source compacts nothing",
            table=table.name,
            hint=_INSTEAD,
        )


def _check_columns(table: Table, struct: StructType) -> None:
    """Refuse columns that no row could bring into the table, before any task runs."""
    arrow = arrow_schema(struct)
    present = [name for name in arrow.names if name != ROWKIND or name in table.schema.names]
    nothing = [pa.array([], arrow.field(name).type) for name in present]
    conform(pa.RecordBatch.from_arrays(nothing, names=present), table.schema)
    for field in table.schema.fields:
        if field.name not in present and not field.type.nullable and field.default is None:
            raise InvalidInputError(
                "data lacks a column that must not be null", code="null-value", column=field.name, hint="add it"
            )


def planned_table(
    location: str, name: str, storage: Mapping[str, str], struct: StructType, options: Mapping[str, str]
) -> Table:
    """A table that is not there yet, with the columns of the data; nothing is made.

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
    """What the session says of overwrites: Spark tells it to tasks, and to no process of the driver's side."""
    told = None if context is None else context.getLocalProperty(_MODE)
    return (told or "").strip().lower() == "dynamic"
