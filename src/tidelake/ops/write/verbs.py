"""The write verbs of tables, whole: rows in, one commit out.

Rows are checked and written before anything is committed. If writing fails, or is interrupted, what was written is
removed. If the commit fails, its files are removed too, unless there is any doubt whether it happened. Once it is
published the verb succeeds, whatever happens afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitConflictError, CommitUnknownError, InvalidInputError, NotFoundError
from tidelake.expr.evaluate import evaluate_scalar
from tidelake.expr.node import Scalar
from tidelake.expr.tree import Predicate
from tidelake.files.options import FileOptions
from tidelake.ops.commit.committer import Committer, Guard
from tidelake.ops.commit.conflicts import KEYS_MOVED
from tidelake.ops.commit.messages import BATCH_IDENTIFIER, CommitMessage, CommitResult, Committable
from tidelake.ops.commit.outcome import compaction_warning, name_published, without_compaction_warning
from tidelake.ops.commit.overwrite import static_filter
from tidelake.ops.commit.rebase import Reassigner
from tidelake.ops.read.append import ReadRequest, read_splits
from tidelake.ops.scan.options import BucketOptions, SplitOptions
from tidelake.ops.scan.partitions import PartitionFilter, PartitionPredicate, PartitionSet
from tidelake.ops.scan.plan import EVERY_PARTITION, data_manifests, live_entries
from tidelake.ops.scan.planner import Plan, never, plan_append
from tidelake.ops.scan.split import Split
from tidelake.ops.write.append import AppendWriter
from tidelake.ops.write.frames import is_of
from tidelake.ops.write.kinds import batches_with_kinds
from tidelake.ops.write.rowlevel import ROWS_CHANGED, delete_rows, rewrite_matching
from tidelake.ops.write.rows import conform
from tidelake.ops.write.values import fit_column
from tidelake.spec.arrow_types import row_to_arrow, to_arrow
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.spec.option_rules import bool_option
from tidelake.spec.snapshot import Snapshot
from tidelake.spec.types import with_nullable
from tidelake.store.paths import DataPaths
from tidelake.store.snapshots import EXPIRED
from tidelake.store.table_store import TableStore
from tidelake.store.vectors import VectorOptions

if TYPE_CHECKING:  # append tables do without the tree
    from tidelake.ops.write.assign import DynamicBuckets
    from tidelake.ops.write.keyed import KeyedTableWriter
    from tidelake.ops.write.postpone import DecidingWriter, StagingWriter
    from tidelake.ops.write.rebase import InProcessRebaser

TableWriter: TypeAlias = "AppendWriter | KeyedTableWriter | StagingWriter | DecidingWriter"
"""Whatever writes rows of a table."""
MODES = ("append", "overwrite", "overwrite-dynamic")
_SOLVED_BY_A_FRESH_PLAN: Final = frozenset(
    {ROWS_CHANGED, KEYS_MOVED, EXPIRED, "file-deleted", "file-conflict", "key-range", "index-conflict"}
)
_ATTEMPTS: Final = 10
"""Plans of a row-level change."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """A table to write to."""

    name: str
    store: TableStore
    paths: DataPaths
    options: Mapping[str, str]
    rescale: Callable[[Mapping[bytes, int]], None] | None = None
    """Gives partitions other numbers of buckets, for writes that find far too few where that is left to them."""

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

    @property
    def postpones(self) -> bool:
        """Whether rows may wait for their bucket."""
        return self.is_keyed and self.buckets.bucket == POSTPONE_BUCKET

    @property
    def moves_keys(self) -> bool:
        """Whether keys of the table may move between partitions."""
        schema = self.store.schema
        keyed = self.is_keyed and not set(schema.partition_keys) <= set(schema.primary_keys)
        return keyed and self.buckets.bucket == -1

    def writer(
        self,
        *,
        overwrite: bool = False,
        assigned: DynamicBuckets | None = None,
        user: str | None = None,
        numbered: bool = False,
    ) -> TableWriter:
        """A writer of the table's rows; `assigned` knows their dynamic buckets where that is not left to the writer.

        `user` is the commit user of what it prepares, where it is known. Where buckets are postponed, rows of commits
        that are `numbered` are staged, and those of others go straight to buckets.

        Raises:
            UnsupportedError: the table is of a kind that is not written yet.
        """
        if self.postpones:
            from tidelake.ops.scan.postponed import PostponeOptions
            from tidelake.ops.write.postpone import DecidingWriter, StagingWriter

            if numbered or not PostponeOptions.parse(self.options).batch_fixed:
                return StagingWriter(self.store, self.paths, self.options, user)
            return DecidingWriter(
                self.store, self.paths, self.options, overwrite=overwrite, user=user, rescale=self.rescale
            )
        if self.is_keyed:
            from tidelake.ops.write.keyed import KeyedTableWriter

            return KeyedTableWriter(self.store, self.paths, self.options, overwrite, assigned=assigned, user=user)
        return AppendWriter(self.store, self.paths, self.files, self.buckets, overwrite=overwrite)

    def guard(self, user: str) -> Guard | None:
        """Who looks at an overwrite of some partitions before it is published; nobody where keys stay in theirs."""
        if not self.moves_keys:
            return None
        from tidelake.ops.write.cross_partition import KeysUnmoved

        return KeysUnmoved(self.store, self.paths, user)

    @property
    def thin(self) -> bool:
        """Whether data files leave out the key columns that the columns of the table repeat."""
        if not self.is_keyed:
            return False
        from tidelake.ops.write.keyed import KeyedWriteOptions

        return KeyedWriteOptions.parse(self.options).thin

    def rebaser(self) -> InProcessRebaser | None:
        """Who rewrites rows whose sequence numbers another commit overtook; nobody where there are none."""
        if not self.is_keyed:
            return None
        from tidelake.ops.write.rebase import InProcessRebaser

        return InProcessRebaser(self.store, self.paths, self.files, self.thin)

    def reassigner(self) -> Reassigner | None:
        """Who puts rows where another commit has placed their keys first; nobody where there are none."""
        if not self.is_keyed:
            return None
        if self.moves_keys:
            from tidelake.ops.write.reassign_keys import KeyReassigner

            return KeyReassigner(self.store, self.paths, self.options, self.files, self.thin)
        from tidelake.ops.write.reassign import BucketReassigner

        return BucketReassigner(self.store, self.paths, self.options, self.files, self.thin)


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
    repeated = begin_write(target, committer, mode=mode, partition=partition, identifier=identifier)
    if repeated is not None:
        return repeated
    attempts = _ATTEMPTS if _comes_again(data) else 1
    for attempt in range(1, attempts + 1):
        try:
            messages = _rows_written(target, committer, data, mode, identifier, row_kind)
            return commit_write(target, committer, messages, mode=mode, partition=partition, identifier=identifier)
        except (CommitConflictError, NotFoundError) as error:
            if attempt == attempts or error.code not in (KEYS_MOVED, EXPIRED):
                raise
    raise AssertionError("the last attempt returns or raises")


def _rows_written(
    target: Target, committer: Committer, data: Any, mode: str, identifier: int | None, row_kind: str | None
) -> list[CommitMessage]:
    """Write the rows; what was written is removed again if that fails."""
    writer = target.writer(overwrite=mode != "append", user=committer.user, numbered=identifier is not None)
    try:
        field = target.options.get("rowkind.field")
        for batch, kinds in batches_with_kinds(data, target.store.schema, column=row_kind, field=field):
            writer.write(batch, kinds)
        return writer.prepare(identifier, wait=True)
    except BaseException:
        writer.abort()
        raise


def _comes_again(data: Any) -> bool:
    """Whether rows can be read twice: streams and generators cannot."""
    if isinstance(data, (pa.Table, pa.RecordBatch, Mapping, Sequence)):
        return True
    return is_of("pandas", data) or is_of("polars", data)


def begin_write(
    target: Target,
    committer: Committer,
    *,
    mode: str,
    partition: Mapping[str, object] | None = None,
    identifier: int | None = None,
) -> CommitResult | None:
    """Look at the arguments of a write; the result of it if it was committed before, else None.

    Raises:
        InvalidInputError: the mode is not known, or does not take a partition.
    """
    check_mode(mode)
    if partition is not None and mode != "overwrite":
        raise InvalidInputError("a partition is only given to an overwrite", mode=mode, hint='set mode="overwrite"')
    if identifier is not None and not committer.filter_committed([identifier]):
        return made_visible(target, committer, CommitResult(repeated=True))
    return None


def commit_write(
    target: Target,
    committer: Committer,
    messages: Sequence[CommitMessage],
    *,
    mode: str,
    partition: Mapping[str, object] | None = None,
    identifier: int | None = None,
) -> CommitResult:
    """Commit what writers prepared for one write.

    Raises:
        CommitConflictError: others changed the same files; what was prepared is removed.
        CommitUnknownError: the storage did not tell whether the commit is there.
    """
    number = BATCH_IDENTIFIER if identifier is None else identifier
    if mode != "append" and target.moves_keys and (partition or mode == "overwrite-dynamic"):
        _refuse_keys_elsewhere(target, committer, messages, partition)
    committable = Committable(messages=tuple(messages), identifier=number, operation=None)
    return made_visible(target, committer, _commit(committer, committable, mode, partition))


def _refuse_keys_elsewhere(
    target: Target,
    committer: Committer,
    messages: Sequence[CommitMessage],
    partition: Mapping[str, object] | None,
) -> None:
    """An overwrite of some partitions must not bring keys that live in others."""
    from tidelake.ops.write.cross_partition import refuse_keys_elsewhere

    schema = target.store.schema
    touched = PartitionSet(frozenset(each.partition for each in messages), tuple(schema.partition_types))
    replaced = static_filter(schema, partition) if partition else touched
    with or_discard(committer, messages):
        refuse_keys_elsewhere(target.store, target.paths, target.options, messages, replaced)


def made_visible(target: Target, committer: Committer, result: CommitResult, *, waiting: bool = False) -> CommitResult:
    """Compact where rows of level 0 are not read and an earlier life, a lost race or (`waiting`) this job left them.

    The rows are committed: where they stay hidden the result says so.
    """
    if not target.is_keyed:
        return result
    from tidelake.lsm.engines.build import MergeOptions
    from tidelake.ops.compact.buckets import Job
    from tidelake.ops.compact.table import run_compaction
    from tidelake.ops.write.keyed import KeyedWriteOptions

    hidden = MergeOptions.parse(target.options).needs_lookup
    if not hidden or KeyedWriteOptions.parse(target.options).write_only:
        return result
    # A writer that knows an older schema leaves compactions to those that know all columns.
    left = bool(result.snapshot_ids) and committer.published_schema_id > target.store.schema.id
    if not (result.repeated or result.compaction_lost or waiting or left):
        return result
    seen = without_compaction_warning(result)
    try:
        target = _with_newest_schema(target)
        run_compaction(Job(target.name, target.store, target.paths, target.options, target.thin), committer)
    except Exception as error:  # noqa: BLE001 - the rows are committed, whatever it is
        return replace(seen, warnings=(*seen.warnings, compaction_warning(error, hides=True)))
    except BaseException as interrupt:
        name_published(interrupt, result.snapshot_ids)
        raise
    return seen


def _with_newest_schema(target: Target) -> Target:
    """The same table with the schema that it has by now, and the options that the caller gave for this use."""
    schema = target.store.schemas.latest()
    if schema is None or schema.id == target.store.schema.id:
        return target
    own = target.store.schema.options
    given = {key: value for key, value in target.options.items() if own.get(key) != value}
    return replace(target, store=replace(target.store, schema=schema), options={**schema.options, **given})


def check_mode(mode: str) -> None:
    """Look at the mode of a write before anything is done.

    Raises:
        InvalidInputError: it is not one of `MODES`.
    """
    if mode not in MODES:
        raise InvalidInputError(
            "write mode is not known",
            mode=mode,
            hint=f"use one of {', '.join(MODES)}; append is an upsert where there is a primary key",
        )


def _commit(
    committer: Committer,
    committable: Committable,
    mode: str,
    partition: Mapping[str, object] | None,
) -> CommitResult:
    with or_discard(committer, committable.messages):
        if mode == "append":
            return committer.commit(replace(committable, operation="WRITE"))
        dynamic = mode == "overwrite-dynamic"
        return committer.overwrite(replace(committable, operation="OVERWRITE"), partition, dynamic=dynamic)


@contextmanager
def or_discard(committer: Committer, messages: Sequence[CommitMessage]) -> Iterator[None]:
    """Do something with files that are written; if it fails or is interrupted they are removed, as far as is certain.

    The one handler of all verbs: what they wrote is known to them alone, and nobody offers it again.
    """
    try:
        yield
    except CommitUnknownError:
        raise  # nothing is removed, whoever it was that could not tell
    except BaseException as error:
        committer.note_interrupt(error)  # also where it came between two steps of the verb
        committer.discard(messages)
        raise


def run_delete(target: Target, committer: Committer, where: Predicate) -> CommitResult:
    """Delete the matching rows; `rows` of the result tells how many.

    A condition that looks at partition columns alone drops whole partitions and reads no row; of a primary-key table
    `rows` then counts the records that were dropped, versions of one key apart.

    Raises:
        CommitConflictError: another job changed one of the files, or of the rows, every time.
    """
    dropped = _drop_whole(target, committer, where)
    if dropped is not None:
        return dropped
    if target.is_keyed:
        from tidelake.ops.write.keyed_verbs import deletions_win, watched

        wins = deletions_win(target.store.schema, target.options)
        return _change_keyed(target, committer, where, "-D" if wins else None, watched(target.options, "-D"))

    def attempt() -> CommitResult:
        plan = plan_rewrite(target, where)
        if marks_rows(target, plan):
            return _change_marked(target, committer, where, plan)
        found = rewrite_matching(target.store, target.paths, plan.splits, where, delete_rows, target.files)
        return replace(commit_rows(target, committer, found.messages, "DELETE"), rows=found.rows)

    return planned_again(attempt)


def planned_again(attempt: Callable[[], T]) -> T:
    """Plan and commit a row-level change, again and again while others change the same rows or files first.

    Also while the snapshot that was planned on expires before its rows were read.

    Raises:
        CommitConflictError: they did every time, or the conflict is one that a fresh plan does not solve.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return attempt()
        except (CommitConflictError, NotFoundError) as error:
            if error.code not in _SOLVED_BY_A_FRESH_PLAN:
                raise
    return attempt()


def _drop_whole(target: Target, committer: Committer, where: Predicate) -> CommitResult | None:
    """Delete by the metadata alone; None where the condition has to look at rows."""
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
    target: Target,
    committer: Committer,
    where: Predicate,
    kind: str | None,
    watch: Sequence[str],
    change: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    *,
    moved: bool = False,
) -> CommitResult:
    """Change rows of a primary-key table: written again with a kind, or copied on write where that would not win.

    `moved` tells that the change gives rows other partitions. Planned again when another commit reached the same rows
    or files first.
    """
    from tidelake.ops.write.keyed_verbs import CopyOnWrite, MatchingRows, Unchanged, write_again

    store, paths, options = target.store, target.paths, target.options
    operation = "DELETE" if change is None else "UPDATE"
    if target.postpones:
        from tidelake.ops.write.postpone import refuse_waiting

        refuse_waiting(store, where)

    def attempt() -> CommitResult:
        found = None
        if kind is not None:
            found = write_again(store, paths, options, where, kind, change, watch, moved=moved)
        if found is None:
            found = CopyOnWrite(store, paths, options, MatchingRows(where, change), target.thin).prepare()
        guard = Unchanged(store, paths, options, found.snapshot_id)
        return replace(commit_rows(target, committer, found.messages, operation, guard), rows=found.rows)

    return planned_again(attempt)


def check_assignments(target: Target, assignments: Mapping[str, Scalar]) -> None:
    """Refuse what an update could do to no row, without a look at one.

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
        from tidelake.ops.write.keyed_verbs import check_update

        check_update(schema, assignments, target.options)


def run_update(
    target: Target, committer: Committer, assignments: Mapping[str, Scalar], where: Predicate
) -> CommitResult:
    """Change columns of the matching rows; `rows` of the result tells how many.

    Raises:
        InvalidInputError: a column does not exist, or a new value does not fit it.
        CommitConflictError: another job changed one of the files, or of the rows, every time.
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
        from tidelake.ops.write.keyed_verbs import check_update, versions_win, watched

        check_update(schema, assignments, target.options)
        kind = "+U" if versions_win(target.options, assignments) else None
        watch = watched(target.options, "+U", assignments)
        moved = not set(schema.partition_keys).isdisjoint(assignments)
        return _change_keyed(target, committer, where, kind, watch, updated, moved=moved)

    def attempt() -> CommitResult:
        plan = plan_rewrite(target, where)
        if marks_rows(target, plan):
            return _change_marked(target, committer, where, plan, updated)
        change = delete_rows if moving else in_place
        found = rewrite_matching(target.store, target.paths, plan.splits, where, change, target.files)
        messages = found.messages
        if moving and messages:
            with or_discard(committer, messages):
                messages += _moved_rows(target, plan.splits, where, updated)
        return replace(commit_rows(target, committer, messages, "UPDATE"), rows=found.rows)

    return planned_again(attempt)


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


def plan_rewrite(target: Target, where: Predicate | None) -> Plan:
    """The files of an append table that may hold rows to change, on the newest snapshot.

    Raises:
        CommitConflictError: the table has rows of a newer schema than this job knows.
    """
    plan = target.store.snapshots.on_newest(
        lambda newest: plan_append(
            target.store,
            newest,
            schema=target.store.schema,
            paths=target.paths,
            where=where,
            options=SplitOptions.parse(target.options),
            buckets=target.buckets,
        )
    )
    _refuse_newer(target, plan.splits)
    return plan


def marks_rows(target: Target, plan: Plan) -> bool:
    """Whether rows of an append table are deleted by marking them: if the options say so, or some already are."""
    return VectorOptions.parse(target.options).enabled or any(split.vectors for split in plan.splits)


def _change_marked(
    target: Target,
    committer: Committer,
    where: Predicate,
    plan: Plan,
    change: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
) -> CommitResult:
    """Mark rows of an append table deleted, and write their new versions."""
    from tidelake.ops.write.marking import find_matching, mark_rows  # tables without vectors do without

    if plan.snapshot is None:
        return CommitResult()
    writer = None if change is None else target.writer()
    messages: tuple[CommitMessage, ...] = ()
    try:
        take = None if change is None or writer is None else _written(writer, change)
        marks = find_matching(target.store, plan.splits, where, take)
        messages = mark_rows(target.store, target.paths, plan.snapshot, marks, target.options)
        messages += () if writer is None else tuple(writer.prepare())
    except BaseException:
        if writer is not None:
            writer.abort()
        committer.discard(messages)
        raise
    result = commit_rows(target, committer, messages, "DELETE" if change is None else "UPDATE")
    return replace(result, rows=marks.rows)


def _written(
    writer: TableWriter, change: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> Callable[[pa.RecordBatch], None]:
    return lambda rows: writer.write(change(rows))


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


def commit_rows(
    target: Target,
    committer: Committer,
    messages: tuple[CommitMessage, ...],
    operation: str,
    guard: Guard | None = None,
    *,
    waiting: bool = False,
) -> CommitResult:
    """Commit a row-level change; nothing is published without messages. `waiting` rows are to be compacted then.

    Raises:
        CommitConflictError: others changed the same rows or files first; what was written is removed.
        CommitUnknownError: the storage did not tell whether the commit is there.
    """
    if not messages:
        return CommitResult()
    with or_discard(committer, messages):
        done = committer.commit(Committable(messages=messages, operation=operation), guard=guard)
    return made_visible(target, committer, done, waiting=waiting)
