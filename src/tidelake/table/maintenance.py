"""The verbs of a table's handle that keep it small and take it back: compaction beside writers, expiry, rollback.

Partitions are marked done here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from tidelake.errors import InvalidInputError
from tidelake.expr.tree import Predicate
from tidelake.ops.commit.guards import Guard
from tidelake.ops.commit.messages import BATCH_IDENTIFIER, CommitResult
from tidelake.ops.compact.buckets import Choice, choose_partitions
from tidelake.ops.hooks.committers import make_user
from tidelake.ops.maintain.analyze import AnalyzeResult, choose_columns, read_statistics, run_analyze
from tidelake.ops.maintain.changelogs import ChangelogPlan, plan_changelog_expiry, run_changelog_expiry
from tidelake.ops.maintain.earliest import repair_earliest_snapshot
from tidelake.ops.maintain.expire import (
    ExpirePlan,
    ExpireResult,
    plan_expire,
    run_expire,
    unless_overtaken,
)
from tidelake.ops.maintain.orphans import OrphanPlan, plan_orphans, run_orphans
from tidelake.ops.maintain.partition_expiry import (
    PartitionExpiryPlan,
    PartitionExpiryResult,
    plan_partition_expiry,
    run_partition_expiry,
)
from tidelake.ops.maintain.partition_marks import MarkDonePlan, plan_mark_done, run_partition_marks
from tidelake.ops.maintain.returning import ReturnPlan, plan_return, run_return
from tidelake.ops.maintain.rollback import RollbackPlan, Target, plan_rollback, run_rollback
from tidelake.ops.maintain.schema_rollback import SchemaRollbackPlan, plan_schema_rollback, run_schema_rollback
from tidelake.ops.maintain.times import Moment, Span, before_ms, moment_ms, span_ms
from tidelake.ops.scan.partition_times import PartitionExpiryOptions
from tidelake.ops.scan.partitions import PartitionFilter
from tidelake.ops.scan.travel import TravelOptions, at_point
from tidelake.options import DurationMs
from tidelake.spec.documents.statistics import Statistics
from tidelake.spec.schemas.bucket_mode import BucketMode
from tidelake.table.upkeep import Upkeep
from tidelake.table.writing import step_runner_of

if TYPE_CHECKING:  # append tables do without the tree
    from tidelake.ops.compact.dedicated import CompactionSummary, Round, Stop
    from tidelake.ops.inspect.diagnosis import Finding, Thresholds


class Maintenance(Upkeep):
    """Compaction beside writers, expiry, rollback, orphans, statistics, and marks of partitions.

    Methods that delete return a plan, and carry it out unless `plan_only` is set.
    """

    __slots__ = ()

    def keep_compacted(
        self,
        where: Predicate | str | None = None,
        *,
        interval: Span = "10 s",
        until: Moment | None = None,
        max_rounds: int | None = None,
        stop: Stop | None = None,
        on: Any | None = None,
        progress: Callable[[Round], None] | None = None,
    ) -> CompactionSummary:
        """Compact a primary-key table while other jobs write to it; they should set `write-only`.

        Each round looks at what was committed, compacts the buckets where something is due, and commits that under a
        user of its own. It ends at the time `until`, after `max_rounds` rounds, or when `stop` (a `threading.Event`) is
        set; without any of them, never. After a round that found nothing to do it waits for the `interval`. `where`
        chooses partitions: run one such job per partition, because two would lose races to each other. `on`, a Spark
        session, runs the compactions as its tasks. `progress` is called with every round.

        Raises:
            UnsupportedError: the table has no primary key, or its compactions do more than merge.
            InvalidInputError: `where` uses a column that is not a partition column, or a number is out of range.
            CommitUnknownError: the storage did not say whether a commit was published.
        """
        from tidelake.ops.compact.dedicated import DedicatedCompaction, End, TableToCompact, run_dedicated

        runner = None if on is None else step_runner_of(on)
        user = make_user(self.context)

        def open_table() -> TableToCompact:
            table = self._newest()
            postpones = table.context_to_write().bucket_mode is BucketMode.POSTPONED
            replay = partial(table._place_staged_rows, runner=runner) if postpones else None
            return TableToCompact(table.context, table._committer(user, expires=True), replay)

        if max_rounds is not None and max_rounds < 1:
            raise InvalidInputError("number of rounds must be positive", max_rounds=max_rounds)
        wait_ms = span_ms(interval)
        if wait_ms < 1:
            raise InvalidInputError("interval must be positive", interval=interval, hint='write "10 s"')
        chosen = choose_partitions(self.schema, self._predicate(where), None)
        return run_dedicated(
            DedicatedCompaction(open_table, Choice(partitions=chosen), runner),
            End(rounds=max_rounds, time_ms=None if until is None else moment_ms(until), stop=stop),
            self.store.env.clock,
            interval_s=wait_ms / 1_000,
            report=progress,
        )

    def expire_snapshots(
        self,
        older_than: Moment | timedelta | None = None,
        retain_max: int | None = None,
        retain_min: int | None = None,
        max_deletes: int | None = None,
        *,
        plan_only: bool = False,
    ) -> ExpirePlan | ExpireResult:
        """Expire old snapshots, and delete the files that only they use. The table's options are the default limits.

        `older_than` is a time or an age (`"7 d"`, a timedelta). What tags, branches and consumers need is kept.
        `plan_only` returns what would be deleted.

        Raises:
            InvalidInputError: the numbers contradict each other.
            CommitConflictError: snapshots or tags changed while it ran; nothing was deleted: try again.
        """
        context = self.context
        older_than_ms = None if older_than is None else before_ms(older_than, self.store.env.clock.now_ms())

        def attempt() -> ExpirePlan | ExpireResult:
            plan = plan_expire(
                context,
                older_than_ms=older_than_ms,
                retain_max=retain_max,
                retain_min=retain_min,
                max_deletes=max_deletes,
            )
            return plan if plan_only else run_expire(context, plan)

        return unless_overtaken(attempt)

    def expire_changelogs(
        self,
        older_than: Moment | timedelta | None = None,
        retain_max: int | None = None,
        retain_min: int | None = None,
        max_deletes: int | None = None,
        *,
        delete_all: bool = False,
        plan_only: bool = False,
    ) -> ChangelogPlan | ExpireResult:
        """Expire changelogs that outlived their snapshots, and delete the files that only they use.

        The options `changelog.num-retained.*` and `changelog.time-retained` are the default limits. `older_than` is a
        time or an age. What consumers have not read yet is kept; `delete_all` expires everything else. `plan_only`
        returns what would be deleted.

        Raises:
            InvalidInputError: the numbers contradict each other.
            CommitConflictError: snapshots or tags changed while it ran; nothing was deleted: try again.
        """
        context = self.context
        older_than_ms = None if older_than is None else before_ms(older_than, self.store.env.clock.now_ms())

        def attempt() -> ChangelogPlan | ExpireResult:
            plan = plan_changelog_expiry(
                context,
                older_than_ms=older_than_ms,
                retain_max=retain_max,
                retain_min=retain_min,
                max_deletes=max_deletes,
                delete_all=delete_all,
            )
            return plan if plan_only else run_changelog_expiry(context, plan)

        return unless_overtaken(attempt)

    def expire_partitions(
        self,
        expiration_time: Span | None = None,
        *,
        timestamp_formatter: str | None = None,
        timestamp_pattern: str | None = None,
        strategy: str | None = None,
        max_expires: int | None = None,
        plan_only: bool = False,
    ) -> PartitionExpiryPlan | PartitionExpiryResult:
        """Drop the partitions that are older than `expiration_time`, such as "30 d".

        The age is that of the time in their values or, with the strategy `update-time`, of their newest file. What is
        not given follows the options `partition.expiration-*` and `partition.timestamp-*`. The dropped rows stay in
        older snapshots until these expire. `plan_only` returns what would be dropped.

        Raises:
            InvalidInputError: the table has no partitions, no time is given, or the formatter is wrong.
            UnsupportedError: the strategy, or a letter of the formatter, is not supported.
            CommitConflictError: other jobs came first, at every attempt.
        """
        table = self._newest()
        context = table.context_to_write()
        found = context.options.of(PartitionExpiryOptions)
        options = replace(
            found,
            time_ms=found.time_ms if expiration_time is None else DurationMs(span_ms(expiration_time)),
            formatter=timestamp_formatter or found.formatter,
            pattern=timestamp_pattern or found.pattern,
            strategy_name=strategy or found.strategy_name,
            max_count=found.max_count if max_expires is None else max_expires,
        )
        if options.max_count < 0:
            raise InvalidInputError("number of partitions must not be negative", max_expires=max_expires)
        plan = plan_partition_expiry(context, options)
        if plan_only:
            return plan
        committer = table._committer(None, expires=False)

        def drop(partitions: PartitionFilter, guards: Sequence[Guard]) -> CommitResult:
            return committer.drop_after(partitions, identifier=BATCH_IDENTIFIER, guards=guards)

        return run_partition_expiry(context, options, plan, drop)

    def mark_partition_done(
        self, partitions: Mapping[str, object] | Sequence[Mapping[str, object]], *, plan_only: bool = False
    ) -> MarkDonePlan:
        """Mark partitions as complete, in the way of the option `partition.mark-done-action`.

        Each partition is named by all of its values, such as `{"dt": "2026-11-15"}`. Marking one again keeps the time
        of the first mark. `plan_only` returns the folders that would be marked.

        Raises:
            InvalidInputError: a partition column is missing or unknown, or an option is wrong.
            NotFoundError: a partition has no files.
            UnsupportedError: an action of the options is not supported.
            StorageError: the storage failed, or a report was not accepted; partitions before that one are marked.
        """
        context = self._newest().context_to_write()
        plan = plan_mark_done(context, [partitions] if isinstance(partitions, Mapping) else list(partitions))
        return plan if plan_only else run_partition_marks(context, plan)

    def remove_orphans(
        self, older_than: Moment | timedelta = timedelta(days=1), *, plan_only: bool = True
    ) -> OrphanPlan:
        """Find files that nothing refers to, and with `plan_only=False` delete them.

        `older_than` is a time or an age (`"7 d"`, a timedelta), at least a day: the files of running jobs are not
        committed yet.

        Raises:
            InvalidInputError: the time is less than a day ago.
            CommitConflictError: the table changed while it ran, or refers to no file at all; nothing was deleted.
            NotFoundError: a file that a snapshot needs is missing; nothing was deleted.
        """
        context, older_than_ms = self.context, before_ms(older_than, self.store.env.clock.now_ms())

        def attempt() -> OrphanPlan:
            plan = plan_orphans(context, older_than_ms=older_than_ms)
            return plan if plan_only else replace(plan, left=run_orphans(context, plan))

        return unless_overtaken(attempt)

    @overload
    def rollback_to(
        self,
        *,
        snapshot: int | None = ...,
        tag: str | None = ...,
        timestamp: Moment | None = ...,
        watermark: int | None = ...,
        as_latest: Literal[False] = ...,
        plan_only: bool = ...,
    ) -> RollbackPlan: ...

    @overload
    def rollback_to(
        self,
        *,
        snapshot: int | None = ...,
        tag: str | None = ...,
        timestamp: Moment | None = ...,
        watermark: int | None = ...,
        as_latest: bool,
        plan_only: bool = ...,
    ) -> RollbackPlan | ReturnPlan: ...

    def rollback_to(
        self,
        *,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp: Moment | None = None,
        watermark: int | None = None,
        as_latest: bool = False,
        plan_only: bool = False,
    ) -> RollbackPlan | ReturnPlan:
        """Go back to a snapshot: newer snapshots and tags are removed, their files become orphans. Stop writers first.

        `timestamp` and `watermark` choose the newest snapshot that is not later. With `as_latest` nothing is removed:
        the state of the snapshot is committed again as a new one, on which other jobs go on. A tag then keeps the
        older snapshot (the plan names it); delete it once the snapshots in between have expired. The schema stays as
        it is in both cases: columns that were added since are null.

        Raises:
            InvalidInputError: not exactly one target is given.
            NotFoundError: the snapshot or the tag does not exist, or none is that old.
            CommitConflictError: `as_latest` lost every race with other commits.
            CommitUnknownError: with `as_latest`, the storage did not say whether the commit was published.
        """
        time_ms = None if timestamp is None else moment_ms(timestamp)
        to = Target(snapshot_id=snapshot, tag=tag, time_ms=time_ms, watermark=watermark)
        if as_latest:
            table = self._newest()
            back = plan_return(table.context, to)
            return back if plan_only else run_return(table.context, table._committer(None, expires=False), back)
        context = self.context
        plan = plan_rollback(context, to)
        return plan if plan_only else run_rollback(context, plan)

    def rollback_schema(self, schema_id: int, *, plan_only: bool = False) -> SchemaRollbackPlan:
        """Make an older schema the newest by deleting those after it. Stop writers first; `reload` handles afterwards.

        Raises:
            NotFoundError: the schema does not exist.
            InvalidInputError: a snapshot, tag, changelog or branch uses a newer schema.
            CommitConflictError: a commit used a newer schema while this ran; the schemas are back.
        """
        context = self.context
        plan = plan_schema_rollback(context, schema_id)
        if not plan_only:
            run_schema_rollback(context, plan)
        return plan

    def repair_earliest_snapshot(self, snapshot: int) -> int:
        """Note that a snapshot right after a gap is the oldest that counts; return which one was before.

        For tables that lost snapshot files, or whose expiry died: Apache Paimon stops at the gap. Nothing is deleted.

        Raises:
            NotFoundError: this snapshot or a later one is missing.
            InvalidInputError: it does not follow a gap.
        """
        return repair_earliest_snapshot(self.context, snapshot)

    def analyze(self, columns: Sequence[str] | Literal["all"] | None = None) -> AnalyzeResult:
        """Compute statistics of the newest snapshot for query planners, and publish them as a snapshot of their own.

        Without columns only rows and size are counted, mostly from metadata. With a list of columns, or `"all"` that
        can be analyzed, their rows are read once: distinct and null values, minimum and maximum (not of texts and
        bytes), average and greatest length. Later commits keep the statistics until the schema changes.

        Raises:
            InvalidInputError: a column does not exist or cannot be analyzed, or the table is read at a point in time.
            CommitConflictError: other jobs committed first at every attempt; nothing was published.
            CommitUnknownError: the storage did not say whether the snapshot was published.
        """
        table = self._newest()
        table._refuse_unreadable()
        return run_analyze(table.context, table._committer(None), choose_columns(table.schema, columns))

    def statistics(self) -> Statistics | None:
        """The statistics that the newest snapshot carries, or that of the point in time; None without any.

        Raises:
            FormatError: the document is missing or damaged.
        """
        store = self.store
        return at_point(store, self.context.options.of(TravelOptions), lambda found: read_statistics(store, found))

    def diagnose(self, thresholds: Thresholds | None = None) -> tuple[Finding, ...]:
        """What an operator should look at, each with the command that helps; from metadata, and nothing is changed.

        It finds small files, skewed buckets, compaction debt, manifests that slow plans down, snapshots past their
        retention, stale consumers and tags that are never deleted. `thresholds` replaces what counts as too much. What
        is broken, rather than slow or large, is what `check` reports.

        Raises:
            FormatError: a document of the table is damaged.
        """
        from tidelake.ops.inspect.diagnosis import THRESHOLDS, diagnose
        from tidelake.table.health import gather_facts  # other methods need no figures of the tree

        return diagnose(gather_facts(self.context), THRESHOLDS if thresholds is None else thresholds)
