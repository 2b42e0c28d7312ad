"""The write verbs of tables, whole: rows in, one commit out.

Rows are checked and written before anything is committed. If writing fails, what was written is removed. If the commit
is refused, its files are removed too, unless there is any doubt whether it happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import (
    CommitConflictError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from tidelake.expr.evaluate import evaluate_scalar
from tidelake.expr.node import Scalar
from tidelake.expr.tree import Predicate
from tidelake.files.options import FileOptions
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import BATCH_IDENTIFIER, CommitMessage, CommitResult, Committable
from tidelake.ops.compact.append import AppendCompactionOptions, Rewrite, plan_rewrites, run_rewrite
from tidelake.ops.read.append import ReadRequest, read_splits
from tidelake.ops.scan.options import BucketOptions, SplitOptions
from tidelake.ops.scan.planner import plan_append
from tidelake.ops.scan.split import Split
from tidelake.ops.write.append import AppendWriter
from tidelake.ops.write.kinds import batches_with_kinds
from tidelake.ops.write.rowlevel import delete_rows, rewrite_matching
from tidelake.ops.write.rows import conform
from tidelake.options import Bytes
from tidelake.spec.arrow_types import row_to_arrow
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

if TYPE_CHECKING:  # append tables do without the tree
    from tidelake.ops.compact.keyed_table import BucketCompaction
    from tidelake.ops.write.keyed import KeyedTableWriter
    from tidelake.ops.write.rebase import InProcessRebaser

MODES = ("append", "overwrite", "overwrite-dynamic")
_REFUSALS = (CommitConflictError, FormatError, InvalidInputError, NotFoundError, UnsupportedError)
"""Errors of a commit after which it is certain that nothing was published."""
Progress = Callable[[int, int], None]
"""Told how many of how many steps are done."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table to write to."""

    name: str
    store: TableStore
    paths: DataPaths
    options: Mapping[str, str]

    @property
    def files(self) -> FileOptions:
        """How its data files are written."""
        return FileOptions.parse(self.options)

    @property
    def buckets(self) -> BucketOptions:
        """How its rows find their bucket."""
        return BucketOptions.parse(self.options)

    @property
    def target_bytes(self) -> int:
        """Size at which a data file is full."""
        return self.files.target_bytes(primary_key=False)

    @property
    def is_keyed(self) -> bool:
        """Whether the table has a primary key."""
        return bool(self.store.schema.primary_keys)

    def writer(self, *, overwrite: bool = False) -> AppendWriter | KeyedTableWriter:
        """A writer of the table's rows.

        Raises:
            UnsupportedError: the table is of a kind that is not written yet.
        """
        if self.is_keyed:
            from tidelake.ops.write.keyed import KeyedTableWriter

            return KeyedTableWriter(self.store, self.paths, self.options, overwrite)
        return AppendWriter(self.store, self.paths, self.files, self.buckets, overwrite=overwrite)

    def rebaser(self) -> InProcessRebaser | None:
        """Who rewrites rows whose sequence numbers another commit overtook; nobody where there are none."""
        if not self.is_keyed:
            return None
        from tidelake.ops.write.keyed import KeyedWriteOptions
        from tidelake.ops.write.rebase import InProcessRebaser

        return InProcessRebaser(self.store, self.paths, self.files, KeyedWriteOptions.parse(self.options).thin)


def run_write(
    target: Target,
    committer: Committer,
    data: Any,
    *,
    mode: str = "append",
    partition: Mapping[str, object] | None = None,
    identifier: int | None = None,
    row_kind: str | None = None,
) -> CommitResult:
    """Write rows and commit them; `row_kind` names the column with their kinds.

    Raises:
        InvalidInputError: the mode, a column or a value is wrong; nothing was written.
        CommitConflictError: others changed the same files.
        CommitUnknownError: the storage did not tell whether the commit is there.
    """
    check_mode(mode)
    if partition is not None and mode != "overwrite":
        raise InvalidInputError("a partition is only given to an overwrite", mode=mode, hint='set mode="overwrite"')
    if identifier is not None and not committer.filter_committed([identifier]):
        return CommitResult(repeated=True)
    writer = target.writer(overwrite=mode != "append")
    try:
        field = target.options.get("rowkind.field")
        for batch, kinds in batches_with_kinds(data, target.store.schema, column=row_kind, field=field):
            writer.write(batch, kinds)
        messages = writer.prepare()
    except BaseException:
        writer.abort()
        raise
    committable = Committable(
        messages=tuple(messages), identifier=BATCH_IDENTIFIER if identifier is None else identifier, operation=None
    )
    return _commit(committer, committable, mode, partition)


def check_mode(mode: str) -> None:
    """Look at the mode of a write before anything is done.

    Raises:
        InvalidInputError: it is not one of `MODES`.
    """
    if mode not in MODES:
        raise InvalidInputError("write mode is not known", mode=mode, hint=f"use one of {', '.join(MODES)}")


def _commit(
    committer: Committer, committable: Committable, mode: str, partition: Mapping[str, object] | None
) -> CommitResult:
    try:
        if mode == "append":
            return committer.commit(replace(committable, operation="WRITE"))
        dynamic = mode == "overwrite-dynamic"
        return committer.overwrite(replace(committable, operation="OVERWRITE"), partition, dynamic=dynamic)
    except _REFUSALS:
        _discard(committer, committable.messages, committable.identifier)
        raise


def _discard(committer: Committer, messages: Sequence[CommitMessage], identifier: int = BATCH_IDENTIFIER) -> None:
    """Remove files that nobody will commit, as far as the storage lets us; the error on its way matters more."""
    with suppress(StorageError):
        committer.abort(messages, identifier=identifier)


def run_delete(target: Target, committer: Committer, where: Predicate) -> CommitResult:
    """Delete the matching rows; `rows` of the result tells how many.

    Raises:
        CommitConflictError: another job changed one of the files meanwhile.
    """
    if target.is_keyed:
        from tidelake.ops.write.keyed_verbs import check_delete

        check_delete(target.options)
        return _write_again(target, committer, where, "-D", "DELETE")
    splits = _planned(target, where)
    found = rewrite_matching(target.store, target.paths, splits, where, delete_rows, target.files)
    result = _row_level(committer, found.messages, "DELETE")
    return replace(result, rows=found.rows)


def _write_again(
    target: Target,
    committer: Committer,
    where: Predicate,
    kind: str,
    operation: str,
    change: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch,
) -> CommitResult:
    from tidelake.ops.write.keyed import KeyedTableWriter
    from tidelake.ops.write.keyed_verbs import matching_rows, write_again

    writer = target.writer()
    assert isinstance(writer, KeyedTableWriter)
    try:
        rows = matching_rows(target.store, target.paths, target.options, where)
        count = write_again(writer, rows, kind, change)
        messages = tuple(writer.prepare())
    except BaseException:
        writer.abort()
        raise
    return replace(_row_level(committer, messages, operation), rows=count)


def run_update(
    target: Target, committer: Committer, assignments: Mapping[str, Scalar], where: Predicate
) -> CommitResult:
    """Change columns of the matching rows; `rows` of the result tells how many.

    Raises:
        InvalidInputError: a column does not exist, or a new value does not fit it.
        CommitConflictError: another job changed one of the files meanwhile.
    """
    schema = target.store.schema
    for name in assignments:
        schema.field(name)
    moving = {*schema.partition_keys, *(schema.bucket_keys if target.buckets.bucket > 0 else ())} & set(assignments)
    arrow = row_to_arrow(schema.fields)

    def updated(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        new = {name: evaluate_scalar(value, columns, batch.num_rows) for name, value in assignments.items()}
        return conform(pa.RecordBatch.from_pydict({**columns, **new}), schema, arrow)

    def in_place(batch: pa.RecordBatch, hit: pa.BooleanArray) -> pa.RecordBatch:
        if not pc.any(hit).as_py():
            return batch
        changed = updated(batch.filter(hit))
        # Rows keep their places: positions among the matching rows lead to the changed ones.
        places = pc.if_else(hit, pc.add(_ranks(hit), batch.num_rows), pa.array(range(batch.num_rows), pa.int64()))
        both = pa.Table.from_batches([batch, changed]).combine_chunks()
        return both.take(places).combine_chunks().to_batches()[0]

    if target.is_keyed:
        from tidelake.ops.write.keyed_verbs import check_update

        check_update(schema, target.options, assignments)
        return _write_again(target, committer, where, "+U", "UPDATE", updated)
    splits = _planned(target, where)
    change = delete_rows if moving else in_place
    found = rewrite_matching(target.store, target.paths, splits, where, change, target.files)
    messages = found.messages
    if moving and messages:
        try:
            messages += _moved_rows(target, splits, where, updated)
        except BaseException:
            _discard(committer, messages)
            raise
    result = _row_level(committer, messages, "UPDATE")
    return replace(result, rows=found.rows)


def _moved_rows(
    target: Target, splits: tuple[Split, ...], where: Predicate, updated: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> tuple[CommitMessage, ...]:
    """Rows whose partition or bucket changes are written where they now belong."""
    schema = target.store.schema
    request = ReadRequest(schema=schema, columns=tuple(each.name for each in schema.fields), where=where)
    writer = target.writer()
    try:
        for batch in read_splits(target.store, splits, request):
            writer.write(updated(batch))
        return tuple(writer.prepare())
    except BaseException:
        writer.abort()
        raise


def _ranks(hit: pa.BooleanArray) -> pa.Array:
    return pc.subtract(pc.cumulative_sum(hit.cast(pa.int64())), 1)


def _planned(target: Target, where: Predicate) -> tuple[Split, ...]:
    splits = plan_append(
        target.store,
        target.store.snapshots.latest(),
        schema=target.store.schema,
        paths=target.paths,
        where=where,
        options=SplitOptions.parse(target.options),
        buckets=target.buckets,
    ).splits
    _refuse_newer(target, splits)
    return splits


def _refuse_newer(target: Target, splits: Sequence[Split]) -> None:
    """A rewrite with an older schema would drop the columns that rows got since."""
    newest = max((file.schema_id for split in splits for file in split.files), default=0)
    if newest > target.store.schema.id:
        raise CommitConflictError(
            "table has rows of a newer schema than this job knows",
            code="schema-changed",
            table=target.name,
            known=target.store.schema.id,
            found=newest,
            hint="open the table anew and try again",
        )


def _row_level(committer: Committer, messages: tuple[CommitMessage, ...], operation: str) -> CommitResult:
    if not messages:
        return CommitResult()
    try:
        return committer.commit(Committable(messages=messages, operation=operation))
    except _REFUSALS:
        _discard(committer, messages)
        raise


# ------------------------------------------------------------------------------------------------ compaction


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a compaction would rewrite."""

    rewrites: tuple[Rewrite | BucketCompaction, ...]

    @property
    def files(self) -> int:
        """Files that would be read and replaced."""
        return sum(len(rewrite.files) for rewrite in self.rewrites)

    @property
    def size(self) -> int:
        """Their bytes."""
        return sum(file.file_size for rewrite in self.rewrites for file in rewrite.files)

    def __str__(self) -> str:
        return f"{len(self.rewrites)} rewrites of {self.files} files, {self.size:,} bytes"


def plan_compaction(target: Target, *, full: bool = False, where: Predicate | None = None) -> CompactionPlan:
    """Which files a compaction would rewrite now; `where` chooses partitions.

    Raises:
        CommitConflictError: the table has rows of a newer schema than the target's.
        InvalidInputError: `where` looks at a column that is no partition column.
    """
    other = (where.columns() if where is not None else frozenset()) - set(target.store.schema.partition_keys)
    if other:
        raise InvalidInputError(
            "compaction chooses whole partitions, and the condition looks at another column",
            column=min(other),
            table=target.name,
            hint=f"use {', '.join(target.store.schema.partition_keys) or 'no condition: the table has no partitions'}",
        )
    if target.is_keyed:
        from tidelake.ops.compact.keyed_table import plan_buckets
        from tidelake.ops.write.keyed import KeyedWriteOptions

        thin = KeyedWriteOptions.parse(target.options).thin
        due = plan_buckets(target.store, target.paths, target.options, full=full, where=where, thin=thin)
        return CompactionPlan(due)
    plan = plan_append(
        target.store,
        target.store.snapshots.latest(),
        schema=target.store.schema,
        paths=target.paths,
        where=where,
        options=SplitOptions(target_bytes=Bytes(2**62)),
        buckets=BucketOptions(bucket=-1),
    )
    _refuse_newer(target, plan.splits)
    options = AppendCompactionOptions.parse(target.options)
    ordered = target.buckets.bucket > 0
    cost = SplitOptions.parse(target.options).open_file_cost
    rewrites = plan_rewrites(
        plan.splits, options, target_bytes=target.target_bytes, open_file_cost=cost, ordered=ordered, full=full
    )
    return CompactionPlan(tuple(rewrites))


def run_compaction(
    target: Target, committer: Committer, plan: CompactionPlan, progress: Progress | None = None
) -> CommitResult:
    """Rewrite what was planned and commit it as one COMPACT snapshot.

    Raises:
        CommitConflictError: another job removed one of the files meanwhile; the new files are removed again.
    """
    messages: list[CommitMessage] = []
    try:
        rewrites = [each for each in plan.rewrites if isinstance(each, Rewrite)]
        keyed = tuple(each for each in plan.rewrites if not isinstance(each, Rewrite))
        if keyed:
            from tidelake.ops.compact.keyed_table import compact_buckets

            messages += compact_buckets(keyed, progress)
        for number, rewrite in enumerate(rewrites, start=1):
            messages.append(run_rewrite(target.store, target.paths, rewrite, target.files))
            if progress:
                progress(number, len(rewrites))
    except BaseException:
        _discard(committer, messages)
        raise
    if not messages:
        return CommitResult()
    try:
        return committer.commit(Committable(messages=tuple(messages)))
    except _REFUSALS:
        _discard(committer, messages)
        raise
