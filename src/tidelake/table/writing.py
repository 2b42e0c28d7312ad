"""The writing side of a table's handle: rows, row-level changes, compaction, and the two halves of a job."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from tidelake.engine import engine, is_engine_frame
from tidelake.errors import CommitConflictError, InvalidInputError
from tidelake.expr.node import Scalar
from tidelake.expr.tree import Predicate, lit
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.commit.outcome import name_published
from tidelake.ops.commit.safety import require_exclusive_create
from tidelake.ops.compact.append import Rewrite
from tidelake.ops.compact.buckets import Choice, Job, choose_buckets, choose_partitions
from tidelake.ops.compact.table import CompactionPlan, plan_compaction, run_compaction
from tidelake.ops.define.merge_schema import MergeSchemaOptions, typed_rows
from tidelake.ops.define.merge_schema import plan_merge as plan_schema
from tidelake.ops.define.schemas import run_alter
from tidelake.ops.maintain.afterwards import run_afterwards
from tidelake.ops.maintain.times import Span, span_ms
from tidelake.ops.scan.partitions import PartitionPredicate, PartitionSet
from tidelake.ops.write.merge_rules import ALL, resolve_merge
from tidelake.ops.write.merge_source import typed_source
from tidelake.ops.write.rescale import (
    RescalePlan,
    new_bucket_count,
    plan_rescale,
    rescale_options,
    rescaled_anew,
    run_rescale,
)
from tidelake.ops.write.verbs import (
    Target,
    begin_write,
    check_assignments,
    made_visible,
    run_delete,
    run_update,
    run_write,
)
from tidelake.spec.types import Field
from tidelake.table.base import Handle
from tidelake.table.jobs import TableCommit, TableWrite
from tidelake.table.merging import Merge

if TYPE_CHECKING:  # append tables do without the tree
    from tidelake.ops.write.unpostpone import ReplayHands

_ASSIGN_HINT = 'say what: {"column": "expression"}'


class Writing(Handle):
    """Every verb is planned on the newest state, committed, and followed by the expiry that is due."""

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

        A primary-key table keeps one row per key. Kinds of rows (`+I -U +U -D`) come in a column `rowkind` that the
        table does not have, or in the one that `row_kind` names.

        `mode="overwrite"` replaces the table or the partitions that `partition` names, `mode="overwrite-dynamic"` the
        partitions present in the data. With a commit user and an identifier a repeated call is a no-op.

        Raises:
            InvalidInputError: a column or a value does not fit; nothing was written.
            CommitConflictError: others changed the same files.
            CommitUnknownError: the storage did not tell whether the commit is there.
        """
        if identifier is not None and commit_user is None:
            raise InvalidInputError("an identifier needs a commit user", hint="pass commit_user= too")
        how: dict[str, Any] = {"mode": mode, "partition": partition, "identifier": identifier, "row_kind": row_kind}
        if is_engine_frame(data):
            done: CommitResult = engine().write(self, data, {**how, "commit_user": commit_user})
            return done
        if MergeSchemaOptions.parse(self.options).merge:
            return self._write_merging(data, commit_user, how)
        return self._afterwards(run_write(self._target(), self._committer(commit_user), data, **how))

    def _write_merging(self, data: Any, commit_user: str | None, how: Mapping[str, Any]) -> CommitResult:
        """Write rows after the table got the columns that it lacks, where it may."""
        table = self._newest()
        committer = table._committer(commit_user)
        mode, partition, identifier = how["mode"], how["partition"], how["identifier"]
        done = begin_write(table._target(), committer, mode=mode, partition=partition, identifier=identifier)
        if done is None:
            data, given = typed_rows(data, table.schema, how["row_kind"])
            widened = table._with_columns_of(given)
            if widened is not table:
                table, committer = widened, widened._committer(committer.user)
            done = run_write(table._target(), committer, data, **how)
        return table._afterwards(done)

    def delete(self, where: Predicate | str) -> CommitResult:
        """Delete the rows that a condition keeps.

        Raises:
            CommitConflictError: another job changed one of the files meanwhile.
        """
        table = self._newest()
        predicate = table._condition(where)
        return table._afterwards(run_delete(table._target(), table._committer(None), predicate))

    def update(self, assignments: Mapping[str, object], where: Predicate | str) -> CommitResult:
        """Change columns of the rows that a condition keeps; values are SQL texts or expressions.

        Raises:
            InvalidInputError: a column does not exist, or a value does not fit it.
            CommitConflictError: another job changed one of the files meanwhile.
        """
        table = self._newest()
        predicate = table._condition(where)
        scalars = table._assigned(assignments)
        return table._afterwards(run_update(table._target(), table._committer(None), scalars, predicate))

    def check_update(self, assignments: Mapping[str, object]) -> None:
        """Look whether `update` could be given these new values; no row is read.

        Raises:
            InvalidInputError: a column does not exist or may not change, or a value does not fit it.
        """
        table = self._newest()
        check_assignments(table._target(), table._assigned(assignments))

    def _assigned(self, assignments: Mapping[str, object]) -> dict[str, Scalar]:
        if not isinstance(assignments, Mapping):
            raise InvalidInputError("new values are no mapping", got=type(assignments).__name__, hint=_ASSIGN_HINT)
        if not assignments:
            raise InvalidInputError("nothing to update", hint=_ASSIGN_HINT)
        return {name: self._scalar(value) for name, value in assignments.items()}

    def merge(self, source: Any, on: Predicate | str | Sequence[str]) -> Merge:
        """Merge rows of a source into the table: add clauses to what comes back, and end with `run()`.

        `source` is anything that `write` takes, or a table or scan; it is read into memory, the table is not. A frame
        of Spark is merged by Spark and stays there. `on` says when rows belong together: a column that both have, a
        list of such, or a condition such as `"t.id = s.id"`.

        Raises:
            InvalidInputError: the table is read at a point in time.
        """
        self._refuse_travelled()
        return Merge(self._merged, source, on)

    def _merged(self, merge: Merge, plan_only: bool) -> Any:
        from tidelake.ops.write.merge import plan_merge, run_merge  # other verbs do without joins

        if is_engine_frame(merge.source):
            return engine().merge(self, merge, plan_only)
        table = self._newest()
        rows, fields = typed_source(merge.source, table.schema)
        lenient = MergeSchemaOptions.parse(table.options).merge
        if lenient and not plan_only and any(clause.values == ALL for clause in merge.clauses if clause.sets):
            table = table._with_columns_of(fields)
        resolved = resolve_merge(table.schema, fields, merge.on, merge.clauses, lenient=lenient)
        if plan_only:
            return plan_merge(table._target(), rows, resolved)
        done = run_merge(table._target(), table._committer(None), rows, resolved)
        return replace(done, commit=table._afterwards(done.commit))

    def _with_columns_of(self, fields: Sequence[Field]) -> Self:
        """The table after it got the columns that it lacks, where it may."""
        changes = plan_schema(self.schema, fields, self.options)
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
        """Merge the files of a primary-key table that are due, or join small files; `full` takes all of them.

        Everything is chosen by default. `where` is a condition on partition columns, `partitions` lists partitions as
        `{"dt": "2026-11-15"}`, `buckets` lists numbers of fixed buckets (`[0, 2]`, `"0,2-5"`), and with
        `partition_idle_time` (`"1 h"`) only partitions that nobody wrote to for so long are looked at. A table with
        `write-only` is compacted too, and expires afterwards what is due. `plan_only` tells what would be done.

        `on`, a Spark session, spreads the work over its tasks; planned and committed is here. `progress` is told how
        many of how many buckets or groups of files are done.

        Raises:
            InvalidInputError: the choice looks at another column, or numbers buckets that are not fixed; or no task
                could reach the storage.
            CommitConflictError: another job compacted the same buckets first, every time.
            UnsupportedError: the table's compactions do more than merge.
            StorageError: the storage failed, or tasks did again and again; nothing was committed.
        """
        hands = None if on is None else engine().hands(on)
        table = self._compacting()
        choice = Choice(
            partitions=choose_partitions(table.schema, table._predicate(where), partitions),
            buckets=choose_buckets(buckets, table.options),
            idle_ms=None if partition_idle_time is None else span_ms(partition_idle_time),
        )
        if plan_only:
            return table._planned(choice, full)
        if table._target().postpones:
            done = table._replayed(choice, full, progress, hands)
            if done is not None:
                return table._afterwards(done)
        job, committer = table._job(), table._committer(None)
        return table._afterwards(run_compaction(job, committer, choice, full=full, hands=hands, progress=progress))

    def _planned(self, choice: Choice, full: bool) -> CompactionPlan:
        """What a compaction would rewrite, rows that wait for a bucket first."""
        plan = plan_compaction(self._job(), choice, full=full)
        if not self._target().postpones:
            return plan
        from tidelake.ops.write.unpostpone import plan_replay

        waiting = plan_replay(self._job(), choice, full=full)
        staged = () if waiting is None else tuple(Rewrite(split, split.files) for split in waiting.staged)
        return CompactionPlan((*staged, *plan.rewrites))

    def _replayed(
        self,
        choice: Choice,
        full: bool = False,
        progress: Callable[[int, int], None] | None = None,
        hands: ReplayHands | None = None,
    ) -> CommitResult | None:
        """Give rows that wait for a bucket theirs; None if none does."""
        from tidelake.ops.write.unpostpone import ReplayPlan, replay_options, run_replay

        def committer(plan: ReplayPlan) -> Committer:
            return self._with_dynamic(replay_options(self.dynamic, plan))._committer(None)

        return run_replay(self._job(), committer, choice, full=full, hands=hands, progress=progress)

    def rescale(
        self,
        bucket_num: int | None = None,
        where: Predicate | str | None = None,
        *,
        partitions: Sequence[Mapping[str, object]] | None = None,
        plan_only: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> RescalePlan | CommitResult:
        """Deal the rows of partitions to another number of fixed buckets; by default as many as the option says.

        `where` is a condition on partition columns and `partitions` lists partitions as `{"dt": "2026-11-15"}`; all
        are chosen by default, and those that have the number already are left alone. The option `bucket` of the table
        stays as it is: set it too, so that writers use the new number. `plan_only` tells what would be done.

        Raises:
            InvalidInputError: the table's buckets are not fixed, or the number or the choice does not fit.
            CommitConflictError: others changed the partitions meanwhile; nothing was changed: try again.
        """
        table = self._newest()
        count = new_bucket_count(table.options, bucket_num)
        chosen = choose_partitions(table.schema, table._predicate(where), partitions)
        if plan_only:
            return plan_rescale(table._job(), chosen, count)
        return rescaled_anew(lambda: table._rescaled(plan_rescale(table._job(), chosen, count), progress))

    def _rescaled(self, plan: RescalePlan, progress: Callable[[int, int], None] | None = None) -> CommitResult:
        writing = self._with_dynamic(rescale_options(self.dynamic, plan))
        return self._afterwards(run_rescale(writing._job(), writing._committer(None), plan, progress))

    def truncate(self) -> CommitResult:
        """Delete every row."""
        return self.new_commit().truncate()

    def drop_partitions(self, where: Predicate | str) -> CommitResult:
        """Delete every row of the partitions that a condition on partition columns keeps; no data file is read.

        Raises:
            InvalidInputError: the condition looks at another column.
            CommitConflictError: others changed the same files.
        """
        table = self._newest()
        chosen = PartitionPredicate(table._condition(where), table.partition_by, tuple(table.schema.partition_types))
        return table._afterwards(table._committer(None).drop_partitions(chosen))

    def new_write(self, commit_user: str | None = None) -> TableWrite:
        """A writer whose messages are committed apart, for engines."""
        self._refuse_travelled()
        return TableWrite(
            self._target().writer(user=commit_user, numbered=commit_user is not None), self.schema, commit_user
        )

    def new_commit(self, commit_user: str | None = None) -> TableCommit:
        """A committer for one user; without a user a fresh one, for a single batch job.

        Raises:
            StorageError: the storage cannot create a file exclusively, so that commits would not be safe.
            UnsupportedError: the table has an option that commits do not honour.
        """
        self._refuse_travelled()
        committer = self._committer(commit_user)
        return TableCommit(committer, self._afterwards, partial(made_visible, self._target(), committer))

    @abstractmethod
    def _newest(self) -> Self:
        """The table with its current schema: rows that are written anew keep every column they have by now."""

    @abstractmethod
    def _with_dynamic(self, options: Mapping[str, str]) -> Self:
        """The same handle with these options of one use."""

    def _compacting(self) -> Self:
        """The newest table as a compaction sees it: what its writers leave to others is done here."""
        table = self._newest()
        return table._with_dynamic({**table.dynamic, "write-only": "false"})

    def _job(self) -> Job:
        thin = False
        if self.primary_key:
            from tidelake.ops.write.keyed_options import KeyedWriteOptions  # append tables do without it

            thin = KeyedWriteOptions.parse(self.options).thin
        return Job(self.name, self.store, self.paths, self.options, thin)

    def _target(self) -> Target:
        self._refuse_travelled()
        return Target(self.name, self.store, self.paths, self.options, self._give_buckets)

    def _give_buckets(self, counts: Mapping[bytes, int]) -> None:
        """Deal partitions to other numbers of buckets; one that others change meanwhile keeps those it has."""
        table = self._newest()
        types = tuple(table.schema.partition_types)
        for count in sorted(set(counts.values())):
            chosen = frozenset(partition for partition, wanted in counts.items() if wanted == count)
            plan = partial(plan_rescale, table._job(), PartitionSet(chosen, types), count)
            with suppress(CommitConflictError):
                rescaled_anew(partial(_planned_and_done, plan, table._rescaled))

    def _committer(self, user: str | None) -> Committer:
        require_exclusive_create(self.store.env, self.options)
        target, user = self._target(), user or self._fresh_user()
        return Committer(
            self.store,
            user,
            options=self.options,
            rebaser=target.rebaser(),
            reassigner=target.reassigner(),
            guard=target.guard(user),
        )

    def _afterwards(self, result: CommitResult) -> CommitResult:
        try:
            return run_afterwards(self.store, self.paths, self.options, result)
        except BaseException as interrupt:  # between two of its steps
            name_published(interrupt, result.snapshot_ids)
            raise

    def _fresh_user(self) -> str:
        prefix = self.options.get("commit.user-prefix")
        fresh = self.store.env.ids.uuid()
        return f"{prefix}_{fresh}" if prefix else fresh


def _planned_and_done(plan: Callable[[], RescalePlan], run: Callable[[RescalePlan], CommitResult]) -> CommitResult:
    return run(plan())
