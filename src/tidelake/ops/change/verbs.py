"""DELETE and UPDATE as verbs of a table: rows found, changed in the way of the table's kind, one commit.

Rows of a primary-key table get new versions or their sections are rewritten (`keyed`); files of an append table are
rewritten (`copy_on_write`), or positions are added to their deletion vectors (`merge_on_write`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.cleanup import undo_on_error
from tidelake.errors import CommitConflictError
from tidelake.expr.evaluate import evaluate_scalar
from tidelake.expr.node import Scalar
from tidelake.expr.tree import Predicate
from tidelake.files.options import FileOptions
from tidelake.ops.change.copy_on_write import delete_rows, rewrite_matching
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.guards import Guard
from tidelake.ops.commit.messages import CommitMessage, CommitResult, Committable
from tidelake.ops.commit.replan import replan
from tidelake.ops.context import TableContext
from tidelake.ops.read.append import ReadRequest, read_splits
from tidelake.ops.scan.modes import State
from tidelake.ops.scan.partitions import PartitionFilter, PartitionPredicate
from tidelake.ops.scan.plan import EVERY_PARTITION, data_manifests, live_entries
from tidelake.ops.scan.planner import Plan, never, plan_append
from tidelake.ops.scan.split import Split
from tidelake.ops.write.opening import TableWriter, open_writer
from tidelake.ops.write.rows import conform
from tidelake.ops.write.values import fit_column
from tidelake.ops.write.verbs import compact_hidden_rows, discard_on_error
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.schemas.bucket_mode import BucketMode
from tidelake.spec.schemas.option_rules import bool_option
from tidelake.spec.types.arrow_types import row_to_arrow, to_arrow
from tidelake.spec.types.data_types import with_nullable
from tidelake.store.deletion_vectors import VectorOptions


def run_delete(target: TableContext, committer: Committer, where: Predicate) -> CommitResult:
    """Delete the rows that match a condition; `rows` of the result is their number.

    A condition on partition columns only drops whole partitions and reads no row; in a primary-key table `rows` is then
    the number of dropped records, in which every version of a key counts.

    Raises:
        CommitConflictError: another job changed one of the files or rows first at every attempt.
    """
    dropped = _drop_whole(target, committer, where)
    if dropped is not None:
        return dropped
    if target.is_keyed:
        from tidelake.ops.change.keyed import deletions_win, find_null_sensitive_columns

        wins = deletions_win(target.store.schema, target.options)
        return _change_keyed(
            target, committer, where, "-D" if wins else None, find_null_sensitive_columns(target.options, "-D")
        )

    def attempt() -> CommitResult:
        plan = plan_rewrite(target, where)
        if marks_rows(target, plan):
            return _change_marked(target, committer, where, plan)
        found = rewrite_matching(
            target.store, target.paths, plan.splits, where, delete_rows, target.options.of(FileOptions)
        )
        return replace(commit_rows(target, committer, found.messages, "DELETE"), rows=found.rows)

    return replan(attempt)


def _drop_whole(target: TableContext, committer: Committer, where: Predicate) -> CommitResult | None:
    """Delete by metadata alone; None if the condition needs rows."""
    store, keys = target.store, tuple(target.store.schema.partition_keys)
    looks_at_rows = bool(where.columns() - set(keys))
    if looks_at_rows or bool_option(target.options, "delete.force-produce-changelog"):
        return None
    partitions: PartitionFilter = EVERY_PARTITION
    if where.columns():
        partitions = PartitionPredicate(where, keys, tuple(store.schema.partition_types))

    def count_files(snapshot: Snapshot | None) -> int | None:
        if snapshot is None:
            return None
        metas = data_manifests(store.manifests, snapshot)
        return len(live_entries(store.manifests, metas, partitions=partitions, columns=("bucket",)))

    files = store.snapshots.on_newest(count_files)
    if files is None:
        return None
    if never(where) or not files:
        return CommitResult()
    return committer.drop_partitions(partitions) if where.columns() else committer.truncate()


def _change_keyed(
    target: TableContext,
    committer: Committer,
    where: Predicate,
    kind: str | None,
    watch: Sequence[str],
    change: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    *,
    moved: bool = False,
) -> CommitResult:
    """Change rows of a primary-key table: write new versions, or copy on write if new versions would not win.

    `moved` says that the change moves rows to other partitions. The change is planned again if another commit changed
    the same rows or files first.
    """
    from tidelake.ops.change.keyed import CopyOnWrite, MatchingRows, Unchanged, write_again

    store, paths, options = target.store, target.paths, target.options
    operation = "DELETE" if change is None else "UPDATE"
    if target.bucket_mode is BucketMode.POSTPONED:
        from tidelake.ops.write.postpone import refuse_waiting

        refuse_waiting(store, where)

    def attempt() -> CommitResult:
        found = None
        if kind is not None:
            found = write_again(target, where, kind, change, watch, moved=moved)
        if found is None:
            found = CopyOnWrite(store, paths, options, MatchingRows(where, change)).prepare()
        guard = Unchanged(store, paths, options, found.snapshot_id)
        return replace(commit_rows(target, committer, found.messages, operation, (guard,)), rows=found.rows)

    return replan(attempt)


def check_assignments(target: TableContext, assignments: Mapping[str, Scalar]) -> None:
    """Refuse assignments that would fail for every row, without reading one.

    Raises:
        InvalidInputError: a column does not exist or may not change, or the type of a value does not fit it.
    """
    schema = target.store.schema
    for name, value in assignments.items():
        column = schema.field(name)
        nothing = {each: pa.nulls(0, to_arrow(schema.field(each).type)) for each in value.columns()}
        nullable = replace(column, type=with_nullable(column.type, True), default=None)
        fit_column(evaluate_scalar(value, nothing, 0), nullable, to_arrow(column.type), 0)
    if target.is_keyed:
        from tidelake.ops.change.keyed import check_update

        check_update(schema, assignments, target.options)


def run_update(
    target: TableContext, committer: Committer, assignments: Mapping[str, Scalar], where: Predicate
) -> CommitResult:
    """Change columns of the rows that match a condition; `rows` of the result is their number.

    Raises:
        InvalidInputError: a column does not exist, or a new value does not fit it.
        CommitConflictError: another job changed one of the files or rows first at every attempt.
    """
    schema = target.store.schema
    for name in assignments:
        schema.field(name)
    hashed = schema.bucket_keys if target.bucket_mode is BucketMode.FIXED else ()
    moving = {*schema.partition_keys, *hashed} & set(assignments)
    arrow = row_to_arrow(schema.fields)

    def update_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        new = {name: evaluate_scalar(value, columns, batch.num_rows) for name, value in assignments.items()}
        return conform(pa.RecordBatch.from_pydict({**columns, **new}), schema, arrow)

    def in_place(batch: pa.RecordBatch, hit: pa.BooleanArray) -> pa.RecordBatch:
        if not pc.any(hit).as_py():
            return batch
        changed = update_rows(batch.filter(hit))
        # Rows keep their positions; the rank of a matching row is the index of its changed row.
        places = pc.if_else(hit, pc.add(_ranks(hit), batch.num_rows), pa.array(range(batch.num_rows), pa.int64()))
        both = pa.Table.from_batches([batch, changed]).combine_chunks()
        return both.take(places).combine_chunks().to_batches()[0]

    if target.is_keyed:
        from tidelake.ops.change.keyed import check_update, find_null_sensitive_columns, versions_win

        check_update(schema, assignments, target.options)
        kind = "+U" if versions_win(target.options, assignments) else None
        watch = find_null_sensitive_columns(target.options, "+U", assignments)
        moved = not set(schema.partition_keys).isdisjoint(assignments)
        return _change_keyed(target, committer, where, kind, watch, update_rows, moved=moved)

    def attempt() -> CommitResult:
        plan = plan_rewrite(target, where)
        if marks_rows(target, plan):
            return _change_marked(target, committer, where, plan, update_rows)
        change = delete_rows if moving else in_place
        found = rewrite_matching(target.store, target.paths, plan.splits, where, change, target.options.of(FileOptions))
        messages = found.messages
        if moving and messages:
            with discard_on_error(committer, messages):
                messages += _moved_rows(target, plan.splits, where, update_rows)
        return replace(commit_rows(target, committer, messages, "UPDATE"), rows=found.rows)

    return replan(attempt)


def _moved_rows(
    target: TableContext,
    splits: tuple[Split, ...],
    where: Predicate,
    update_rows: Callable[[pa.RecordBatch], pa.RecordBatch],
) -> tuple[CommitMessage, ...]:
    """Write rows whose partition or bucket changes to their new partition and bucket."""
    schema = target.store.schema
    request = ReadRequest(schema=schema, columns=tuple(each.name for each in schema.fields), where=where)
    writer = open_writer(target)
    with undo_on_error(writer.abort):
        for batch in read_splits(target.store, splits, request):
            writer.write(update_rows(batch))
        return tuple(writer.prepare())


def _ranks(hit: pa.BooleanArray) -> pa.Array:
    return pc.subtract(pc.cumulative_sum(hit.cast(pa.int64())), 1)


def plan_rewrite(target: TableContext, where: Predicate | None) -> Plan:
    """Plan a read of the files that may hold rows to change, in the newest snapshot of an append table.

    Raises:
        CommitConflictError: the table has rows of a newer schema than this job knows.
    """
    plan = target.store.snapshots.on_newest(
        lambda newest: plan_append(target, State(newest), ReadRequest(schema=target.schema, where=where))
    )
    _refuse_newer(target, plan.splits)
    return plan


def marks_rows(target: TableContext, plan: Plan) -> bool:
    """Whether rows of an append table are deleted with deletion vectors, by its options or as some already are."""
    return target.options.of(VectorOptions).enabled or any(split.vectors for split in plan.splits)


def _change_marked(
    target: TableContext,
    committer: Committer,
    where: Predicate,
    plan: Plan,
    change: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
) -> CommitResult:
    """Add rows of an append table to deletion vectors, and write their new versions."""
    from tidelake.ops.change.merge_on_write import find_matching, mark_rows  # tables without vectors do without

    if plan.snapshot is None:
        return CommitResult()
    writer = None if change is None else open_writer(target)
    messages: tuple[CommitMessage, ...] = ()
    aborts = () if writer is None else (writer.abort,)
    with undo_on_error(*aborts, lambda: committer.discard(messages)):
        take = None if change is None or writer is None else _write_changed(writer, change)
        to_delete = find_matching(target.store, plan.splits, where, take)
        messages = mark_rows(target.store, target.paths, plan.snapshot, to_delete, target.options)
        messages += () if writer is None else tuple(writer.prepare())
    result = commit_rows(target, committer, messages, "DELETE" if change is None else "UPDATE")
    return replace(result, rows=to_delete.rows)


def _write_changed(
    writer: TableWriter, change: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> Callable[[pa.RecordBatch], None]:
    return lambda rows: writer.write(change(rows))


def _refuse_newer(target: TableContext, splits: Sequence[Split]) -> None:
    """Refuse a rewrite with an older schema: it would drop the columns added since."""
    newest = max((file.schema_id for split in splits for file in split.files), default=0)
    if newest > target.store.schema.id:
        raise CommitConflictError(
            "table has rows of a newer schema than this job knows",
            code="schema-changed",
            table=target.name,
            known=target.store.schema.id,
            found=newest,
            hint="open the table again and retry",
        )


def commit_rows(
    target: TableContext,
    committer: Committer,
    messages: tuple[CommitMessage, ...],
    operation: str,
    guards: Sequence[Guard] = (),
    *,
    waiting: bool = False,
) -> CommitResult:
    """Commit a row-level change; without messages nothing is published. With `waiting` its new rows are compacted.

    Raises:
        CommitConflictError: another job changed the same rows or files first; the new files are removed.
        CommitUnknownError: the storage did not answer whether the commit is there.
    """
    if not messages:
        return CommitResult()
    with discard_on_error(committer, messages):
        done = committer.commit(Committable(messages=messages, operation=operation), guards=guards)
    return compact_hidden_rows(target, committer, done, waiting=waiting)
