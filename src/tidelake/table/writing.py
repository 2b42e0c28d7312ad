"""The writing side of a table's handle: rows, row-level changes, compaction, and writers for engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from tidelake.engine import engine, is_engine_frame
from tidelake.errors import CommitConflictError, InvalidInputError
from tidelake.expr.node import Scalar
from tidelake.expr.tree import Predicate, lit
from tidelake.ops.change.merge_rules import ALL, resolve_merge
from tidelake.ops.change.merge_source import typed_source
from tidelake.ops.change.verbs import check_assignments, run_delete, run_update
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.compact.append import Rewrite
from tidelake.ops.compact.buckets import Choice, choose_buckets, choose_partitions
from tidelake.ops.compact.table import CompactionPlan, plan_compaction, run_compaction
from tidelake.ops.context import TableContext
from tidelake.ops.define.merge_schema import MergeSchemaOptions, typed_rows
from tidelake.ops.define.merge_schema import plan_merge as plan_schema
from tidelake.ops.define.schemas import run_alter
from tidelake.ops.hooks.committers import open_committer
from tidelake.ops.maintain.times import Span, span_ms
from tidelake.ops.scan.modes import names_a_place
from tidelake.ops.scan.partitions import PartitionPredicate, PartitionSet
from tidelake.ops.write.opening import open_writer
from tidelake.ops.write.rescale import (
    RescalePlan,
    new_bucket_count,
    plan_rescale,
    replan_rescale,
    run_rescale,
)
from tidelake.ops.write.verbs import begin_write, compact_hidden_rows, run_write
from tidelake.options import TableOptions
from tidelake.spec.schemas.bucket_mode import BucketMode
from tidelake.spec.types.data_types import Field
from tidelake.table.base import Handle
from tidelake.table.jobs import TableCommit, TableWrite
from tidelake.table.merge_builder import Merge

if TYPE_CHECKING:  # append tables do not need the LSM tree
    from tidelake.ops.write.replay import ReplayRunner
    from tidelake.table.engine_port import CompactionRunner, TableEngine

_ASSIGN_HINT = 'write {"column": "expression"}'


class Writing(Handle, ABC):
    """Writes to a table. Every method plans on the newest snapshot, commits, and then runs the expiry that is due."""

    __slots__ = ()

    def write(
        self,
        data: Any,
        mode: str = "append",
        *,
        partition: Mapping[str, object] | None = None,
        row_kind: str | None = None,
        commit_user: str | None = None,
        identifier: int | None = None,
    ) -> CommitResult:
        """Write rows: Arrow, Polars or pandas data, a list of dicts, an iterable of batches, or a frame of Spark.

        A frame of Spark is written by Spark, task by task, as one commit.

        A primary-key table keeps one row per key. Row kinds (`+I -U +U -D`) are in a column `rowkind` that the table
        does not have, or in the column that `row_kind` names.

        `mode="overwrite"` replaces the table or the partitions that `partition` names, `mode="overwrite-dynamic"` the
        partitions present in the data. With a commit user and an identifier a repeated call is a no-op.

        Raises:
            InvalidInputError: a column or a value does not fit; nothing was written.
            CommitConflictError: another job changed the same files.
            CommitUnknownError: the storage did not say whether the commit was published.
        """
        if identifier is not None and commit_user is None:
            raise InvalidInputError("an identifier needs a commit user", hint="pass commit_user= too")
        how: dict[str, Any] = {"mode": mode, "partition": partition, "identifier": identifier, "row_kind": row_kind}
        may_grow = self.context.options.of(MergeSchemaOptions).merge
        if is_engine_frame(data):
            table = self._newest() if may_grow else self
            port: TableEngine[Any] = engine()
            return port.write(
                table,
                data,
                {
                    "mode": mode,
                    "partition": partition,
                    "row_kind": row_kind,
                    "commit_user": commit_user,
                    "identifier": identifier,
                },
            )
        if may_grow:
            return self._write_merging(data, commit_user, how)
        return run_write(self.context_to_write(), self._committer(commit_user), data, **how)

    def _write_merging(self, data: Any, commit_user: str | None, how: Mapping[str, Any]) -> CommitResult:
        """Write rows after adding their new columns to the table, if the options allow that."""
        table = self._newest()
        committer = table._committer(commit_user)
        mode, partition, identifier = how["mode"], how["partition"], how["identifier"]
        done = begin_write(table.context_to_write(), committer, mode=mode, partition=partition, identifier=identifier)
        if done is None:
            data, given = typed_rows(data, table.schema, how["row_kind"])
            widened = table._with_columns_of(given)
            if widened is not table:
                table, committer = widened, widened._committer(committer.user)
            done = run_write(table.context_to_write(), committer, data, **how)
        return done

    def delete(self, where: Predicate | str) -> CommitResult:
        """Delete the rows that match a condition.

        Raises:
            CommitConflictError: other jobs changed the same files first, at every attempt.
        """
        table = self._newest()
        predicate = table._condition(where)
        return run_delete(table.context_to_write(), table._committer(None), predicate)

    def update(self, assignments: Mapping[str, object], where: Predicate | str) -> CommitResult:
        """Change columns of the rows that match a condition; values are SQL texts or expressions.

        Raises:
            InvalidInputError: a column does not exist, or a value does not fit it.
            CommitConflictError: other jobs changed the same files first, at every attempt.
        """
        table = self._newest()
        predicate = table._condition(where)
        scalars = table._parse_assignments(assignments)
        return run_update(table.context_to_write(), table._committer(None), scalars, predicate)

    def check_update(self, assignments: Mapping[str, object]) -> None:
        """Check new values for `update` without reading any row.

        Raises:
            InvalidInputError: a column does not exist or may not change, or a value does not fit it.
        """
        table = self._newest()
        check_assignments(table.context_to_write(), table._parse_assignments(assignments))

    def _parse_assignments(self, assignments: Mapping[str, object]) -> dict[str, Scalar]:
        if not isinstance(assignments, Mapping):
            raise InvalidInputError("new values are not a mapping", got=type(assignments).__name__, hint=_ASSIGN_HINT)
        if not assignments:
            raise InvalidInputError("nothing to update", hint=_ASSIGN_HINT)
        return {name: self._scalar(value) for name, value in assignments.items()}

    def merge(self, source: Any, on: Predicate | str | Sequence[str]) -> Merge:
        """Merge rows of a source into the table: add clauses to the result, and call `run()` last.

        `source` is anything that `write` takes, or a table or scan; it is read into memory, the table is not. A Spark
        frame is merged by Spark and stays there. `on` says when two rows match: a column that both have, a list of
        them, or a condition such as `"t.id = s.id"`.

        Raises:
            InvalidInputError: the table is read at a point in time.
        """
        self._require_latest()
        return Merge(self._run_merge, source, on)

    def _run_merge(self, merge: Merge, plan_only: bool) -> Any:
        from tidelake.ops.change.merge import plan_merge, run_merge  # other methods need no joins

        table = self._newest()
        if is_engine_frame(merge.source):
            port: TableEngine[Any] = engine()
            return port.merge(table, merge, plan_only)
        rows, fields = typed_source(merge.source, table.schema)
        lenient = table.context.options.of(MergeSchemaOptions).merge
        if lenient and not plan_only and any(clause.values == ALL for clause in merge.clauses if clause.sets):
            table = table._with_columns_of(fields)
        resolved = resolve_merge(table.schema, fields, merge.on, merge.clauses, lenient=lenient)
        if plan_only:
            return plan_merge(table.context_to_write(), rows, resolved)
        return run_merge(table.context_to_write(), table._committer(None), rows, resolved)

    def _with_columns_of(self, fields: Sequence[Field]) -> Self:
        """The table after adding those of these columns that it lacks, if the options allow that."""
        changes = plan_schema(self.schema, fields, self.context.options)
        if not changes:
            return self
        run_alter(self.store.env, self.store.schemas, self.store.snapshots, changes)
        return self._newest()

    def _scalar(self, value: object) -> Scalar:
        if not isinstance(value, str):
            return lit(value).scalar
        from tidelake.expr.parse import parse_scalar

        return parse_scalar(value, self.schema.fields)

    def compact(
        self,
        full: bool = False,
        where: Predicate | str | None = None,
        *,
        partitions: Sequence[Mapping[str, object]] | None = None,
        buckets: Iterable[int] | str | None = None,
        partition_idle_time: Span | None = None,
        plan_only: bool = False,
        on: Any | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> CompactionPlan | CommitResult:
        """Merge the files of a primary-key table that are due, or join small files; `full` takes all files.

        By default the whole table is compacted. `where` is a condition on partition columns, `partitions` lists
        partitions as `{"dt": "2026-11-15"}`, `buckets` lists numbers of fixed buckets (`[0, 2]`, `"0,2-5"`), and with
        `partition_idle_time` (`"1 h"`) only partitions without a write for so long are compacted. A table with
        `write-only` is compacted too, and what is due to expire expires. `plan_only` returns what would be done.

        `on`, a Spark session, runs the work as its tasks; this process plans and commits. `progress` is called with the
        number of buckets or file groups that are done, and their total.

        Raises:
            InvalidInputError: the condition uses another column, buckets are given although they are not fixed, or no
                task could reach the storage.
            CommitConflictError: another job compacted the same buckets first, at every attempt.
            UnsupportedError: the table's compactions do more than merge.
            StorageError: the storage failed, or tasks failed repeatedly; nothing was committed.
        """
        runner = None if on is None else step_runner_of(on)
        table = self._newest()
        choice = Choice(
            partitions=choose_partitions(table.schema, table._predicate(where), partitions),
            buckets=choose_buckets(buckets, table.context.options),
            idle_ms=None if partition_idle_time is None else span_ms(partition_idle_time),
        )
        if plan_only:
            return table._plan_compaction(choice, full)
        if table.context_to_write().bucket_mode is BucketMode.POSTPONED:
            done = table._place_staged_rows(choice, full, progress, runner)
            if done is not None:
                return done
        job, committer = table.context, table._committer(None, expires=True)
        return run_compaction(job, committer, choice, full=full, runner=runner, progress=progress)

    def _plan_compaction(self, choice: Choice, full: bool) -> CompactionPlan:
        """What a compaction would rewrite, staged rows first."""
        plan = plan_compaction(self.context, choice, full=full)
        if self.context_to_write().bucket_mode is not BucketMode.POSTPONED:
            return plan
        from tidelake.ops.write.replay import plan_replay

        replay = plan_replay(self.context, choice, full=full)
        staged = () if replay is None else tuple(Rewrite(split, split.files) for split in replay.staged)
        return CompactionPlan((*staged, *plan.rewrites))

    def _place_staged_rows(
        self,
        choice: Choice,
        full: bool = False,
        progress: Callable[[int, int], None] | None = None,
        runner: ReplayRunner | None = None,
    ) -> CommitResult | None:
        """Put staged rows into their buckets; None if there are none."""
        from tidelake.ops.write.replay import run_replay

        def committer_after(snapshot_id: int) -> Committer:
            return self._committer(None, expires=True, last_safe=snapshot_id)

        return run_replay(self.context, committer_after, choice, full=full, runner=runner, progress=progress)

    def rescale(
        self,
        bucket_num: int | None = None,
        where: Predicate | str | None = None,
        *,
        partitions: Sequence[Mapping[str, object]] | None = None,
        plan_only: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> RescalePlan | CommitResult:
        """Distribute rows of partitions over another number of fixed buckets, by default that of the option `bucket`.

        `where` is a condition on partition columns and `partitions` lists partitions as `{"dt": "2026-11-15"}`; all
        are chosen by default, and those that have the number already are skipped. The option `bucket` of the table is
        not changed: set it too, so that writers use the new number. `plan_only` returns what would be done.

        Raises:
            InvalidInputError: the table's buckets are not fixed, or the number or the choice does not fit.
            CommitConflictError: other jobs changed the partitions while it ran; nothing was changed: try again.
        """
        table = self._newest()
        count = new_bucket_count(table.context.options, bucket_num)
        chosen = choose_partitions(table.schema, table._predicate(where), partitions)
        if plan_only:
            return plan_rescale(table.context, chosen, count)
        return replan_rescale(lambda: table._run_rescale(plan_rescale(table.context, chosen, count), progress))

    def _run_rescale(self, plan: RescalePlan, progress: Callable[[int, int], None] | None = None) -> CommitResult:
        return run_rescale(self.context, self._committer(None, last_safe=plan.snapshot_id), plan, progress)

    def truncate(self) -> CommitResult:
        """Delete every row."""
        return self.new_commit().truncate()

    def drop_partitions(self, where: Predicate | str) -> CommitResult:
        """Delete every row of the partitions that match a condition on partition columns; no data file is read.

        Raises:
            InvalidInputError: the condition uses another column.
            CommitConflictError: another job changed the same files.
        """
        table = self._newest()
        chosen = PartitionPredicate(table._condition(where), table.partition_by, tuple(table.schema.partition_types))
        return table._committer(None).drop_partitions(chosen)

    def new_write(self, commit_user: str | None = None) -> TableWrite:
        """A writer for engines, whose commit messages `new_commit` publishes."""
        self._require_latest()
        return TableWrite(
            open_writer(self.context_to_write(), user=commit_user, numbered=commit_user is not None),
            self.schema,
            commit_user,
        )

    def new_commit(self, commit_user: str | None = None) -> TableCommit:
        """A committer for one commit user; without a user it gets a new one, for a single batch job.

        Raises:
            StorageError: the storage cannot create a file exclusively, so that commits would not be safe.
            UnsupportedError: the table has an option that commits do not honour.
        """
        self._require_latest()
        committer = self._committer(commit_user)
        return TableCommit(committer, partial(compact_hidden_rows, self.context_to_write(), committer))

    @abstractmethod
    def _newest(self) -> Self:
        """The table with its current schema: rewritten rows keep the columns that were added since."""

    def _require_latest(self) -> None:
        if names_a_place(TableOptions(self.dynamic)):
            raise InvalidInputError(
                "table was opened at a point in time and cannot be written there", hint="write to the table itself"
            )

    def context_to_write(self) -> TableContext:
        """The context of an operation that changes the table.

        Raises:
            InvalidInputError: the table is read at a point in time.
        """
        self._require_latest()
        return replace(self.context, rescale=self._give_buckets)

    def _give_buckets(self, counts: Mapping[bytes, int]) -> None:
        """Rescale partitions to other numbers of buckets; one that another job changes first keeps its number."""
        table = self._newest()
        types = tuple(table.schema.partition_types)
        for count in sorted(set(counts.values())):
            chosen = frozenset(partition for partition, wanted in counts.items() if wanted == count)
            plan = partial(plan_rescale, table.context, PartitionSet(chosen, types), count)
            with suppress(CommitConflictError):
                replan_rescale(partial(_plan_and_run, plan, table._run_rescale))

    def _committer(self, user: str | None, *, expires: bool | None = None, last_safe: int | None = None) -> Committer:
        return open_committer(self.context_to_write(), user, expires=expires, last_safe=last_safe)


def step_runner_of(session: Any) -> CompactionRunner:
    """Return what runs the steps of a compaction as tasks of an engine's session."""
    port: TableEngine[object] = engine()
    return port.step_runner(session)


def _plan_and_run(plan: Callable[[], RescalePlan], run: Callable[[RescalePlan], CommitResult]) -> CommitResult:
    return run(plan())
