"""The maintenance verbs of a table's handle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelake.engine import engine
from tidelake.errors import InvalidInputError
from tidelake.expr.tree import Predicate
from tidelake.ops.compact.buckets import Choice, choose_partitions
from tidelake.ops.maintain.branches import (
    ForwardPlan,
    branch_store,
    delete_branch,
    plan_fast_forward,
    run_fast_forward,
)
from tidelake.ops.maintain.changelogs import ChangelogPlan, plan_changelog_expiry, run_changelog_expiry
from tidelake.ops.maintain.consumers import consumer_store, reset_consumer
from tidelake.ops.maintain.expire import (
    ExpireOptions,
    ExpirePlan,
    ExpireResult,
    plan_expire,
    run_expire,
    unless_overtaken,
)
from tidelake.ops.maintain.orphans import OrphanPlan, plan_orphans, run_orphans
from tidelake.ops.maintain.rollback import RollbackPlan, plan_rollback, run_rollback
from tidelake.ops.maintain.tags import (
    TagDeletion,
    TagOptions,
    create_tag,
    plan_tag_deletion,
    rename_tag,
    run_tag_deletion,
    run_tag_expiry,
    tag_store,
)
from tidelake.ops.maintain.times import Moment, Span, before_ms, moment_ms, span_ms
from tidelake.table.writing import Writing

if TYPE_CHECKING:  # append tables do without the tree
    from tidelake.ops.compact.dedicated import Round, Stop, Tended


class Maintenance(Writing):
    """Compaction beside writers, expiry, tags, branches, consumers, rollback and orphans.

    What deletes is a plan, and unless `plan_only` the act.
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
    ) -> Tended:
        """Compact a primary-key table while others write to it, until told to end; let them set `write-only`.

        Follows what is committed, compacts the buckets where something is due, and commits that under a user of its
        own. It ends at the moment `until`, after `max_rounds` looks at the table, or when `stop` (a
        `threading.Event`) is set; without any of them, never. After a look that found nothing to do it waits for the
        `interval`. `where` chooses partitions: one such job per partition is enough, and two only get in each other's
        way. `on`, a Spark session, spreads the compactions over its tasks. `progress` is told of every round.

        Raises:
            UnsupportedError: the table has no primary key, or its compactions do more than merge.
            InvalidInputError: `where` looks at a column that is no partition column, or a number does not fit.
            CommitUnknownError: the storage did not tell whether a commit is there.
        """
        self._refuse_view()
        from tidelake.ops.compact.dedicated import DedicatedCompaction, Desk, End, run_dedicated

        hands = None if on is None else engine().hands(on)
        user = self._fresh_user()

        def open_desk() -> Desk:
            table = self._compacting()
            replay = partial(table._replayed, hands=hands) if table._target().postpones else None
            return Desk(table._job(), table._committer(user), table._afterwards, replay)

        if max_rounds is not None and max_rounds < 1:
            raise InvalidInputError("number of rounds must be positive", max_rounds=max_rounds)
        wait_ms = span_ms(interval)
        if wait_ms < 1:
            raise InvalidInputError("interval must be positive", interval=interval, hint='write "10 s"')
        chosen = choose_partitions(self.schema, self._predicate(where), None)
        return run_dedicated(
            DedicatedCompaction(open_desk, Choice(partitions=chosen), hands),
            End(rounds=max_rounds, time_ms=None if until is None else moment_ms(until), stop=stop),
            self.store.env.clock,
            interval_s=wait_ms / 1_000,
            told=progress,
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
        """Expire old snapshots with the files that only they hold; what is not given is as the table's options say.

        `older_than` is a moment, or how long ago it was (`"7 d"`, a timedelta). Tags, branches and consumers hold back
        what they need. `plan_only` tells what would go.

        Raises:
            InvalidInputError: the numbers contradict each other.
            CommitConflictError: what holds files moved meanwhile, and nothing was deleted: try again.
        """
        self._refuse_view()
        options = ExpireOptions.parse(self.options)
        older_than_ms = None if older_than is None else before_ms(older_than, self.store.env.clock.now_ms())

        def attempt() -> ExpirePlan | ExpireResult:
            plan = plan_expire(
                self.store,
                self.paths,
                options,
                older_than_ms=older_than_ms,
                retain_max=retain_max,
                retain_min=retain_min,
                max_deletes=max_deletes,
            )
            return plan if plan_only else run_expire(self.store, plan, options)

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
        """Expire changelogs that outlived their snapshots, with the files that only they hold.

        What is not given is as the table's options say (`changelog.num-retained.*`, `changelog.time-retained`).
        `older_than` is a moment, or how long ago it was. Consumers hold back what they have still to read;
        `delete_all` takes everything else. `plan_only` tells what would go.

        Raises:
            InvalidInputError: the numbers contradict each other.
            CommitConflictError: what holds files moved meanwhile, and nothing was deleted: try again.
        """
        self._refuse_view()
        older_than_ms = None if older_than is None else before_ms(older_than, self.store.env.clock.now_ms())

        def attempt() -> ChangelogPlan | ExpireResult:
            plan = plan_changelog_expiry(
                self.store,
                self.paths,
                self.options,
                older_than_ms=older_than_ms,
                retain_max=retain_max,
                retain_min=retain_min,
                max_deletes=max_deletes,
                delete_all=delete_all,
            )
            return plan if plan_only else run_changelog_expiry(self.store, plan, ExpireOptions.parse(self.options))

        return unless_overtaken(attempt)

    def remove_orphans(
        self, older_than: Moment | timedelta = timedelta(days=1), *, plan_only: bool = True
    ) -> OrphanPlan:
        """Find files that nothing refers to, and with `plan_only=False` delete them.

        `older_than` is a moment, or how long ago it was (`"7 d"`, a timedelta), at least a day: running jobs have not
        committed their files yet.

        Raises:
            InvalidInputError: the moment is less than a day ago.
            CommitConflictError: the table moved meanwhile, or refers to no file at all; nothing was deleted.
            NotFoundError: a file that a snapshot needs is missing; nothing was deleted.
        """
        self._refuse_view()
        older_than_ms = before_ms(older_than, self.store.env.clock.now_ms())

        def attempt() -> OrphanPlan:
            plan = plan_orphans(self.store, self.paths, older_than_ms=older_than_ms)
            return plan if plan_only else replace(plan, left=run_orphans(self.store, plan))

        return unless_overtaken(attempt)

    def rollback_to(
        self,
        *,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp: Moment | None = None,
        plan_only: bool = False,
    ) -> RollbackPlan:
        """Go back to a snapshot: newer snapshots and tags are removed, their files stay as orphans. Stop writers first.

        Raises:
            InvalidInputError: not exactly one target is given.
            NotFoundError: there is no such snapshot or tag, or none that old.
        """
        self._refuse_view()
        time_ms = None if timestamp is None else moment_ms(timestamp)
        plan = plan_rollback(self.store, snapshot_id=snapshot, tag=tag, time_ms=time_ms)
        return plan if plan_only else run_rollback(self.store, plan)

    def create_tag(
        self,
        name: str | None = None,
        snapshot: int | None = None,
        time_retained: Span | None = None,
        *,
        ignore_if_exists: bool = False,
    ) -> str:
        """Name a snapshot (the newest one), so that it outlives its expiry, and return the name.

        Raises:
            InvalidInputError: the name is taken or unusable.
            NotFoundError: there is no such snapshot.
        """
        self._refuse_view()
        return create_tag(
            self.store,
            TagOptions.parse(self.options),
            name,
            snapshot_id=snapshot,
            time_retained_ms=None if time_retained is None else span_ms(time_retained),
            ignore_if_exists=ignore_if_exists,
        )

    def delete_tag(self, name: str, *, plan_only: bool = False) -> TagDeletion:
        """Delete a tag and the files that only it holds.

        Raises:
            NotFoundError: there is no such tag.
            CommitConflictError: what holds files moved meanwhile, and nothing was deleted: try again.
        """
        self._refuse_view()

        def attempt() -> TagDeletion:
            plan = plan_tag_deletion(self.store, self.paths, name)
            if not plan_only:
                run_tag_deletion(self.store, plan, clean_folders=ExpireOptions.parse(self.options).clean_folders)
            return plan

        return unless_overtaken(attempt)

    def rename_tag(self, name: str, new: str) -> None:
        """Give a tag another name.

        Raises:
            NotFoundError: there is no such tag.
            InvalidInputError: the new name is taken or unusable.
        """
        self._refuse_view()
        rename_tag(self.store, name, new)

    def expire_tags(self, older_than: Moment | timedelta | None = None) -> tuple[str, ...]:
        """Delete the tags past their time, and those made before a moment; returns their names.

        Raises:
            CommitConflictError: what holds files moved meanwhile: try again.
        """
        self._refuse_view()
        before = None if older_than is None else before_ms(older_than, self.store.env.clock.now_ms())
        return run_tag_expiry(self.store, self.paths, older_than_ms=before)

    def tags(self) -> dict[str, int]:
        """The snapshot of each tag, by name."""
        return {name: tag.snapshot.id for name, tag in tag_store(self.store).all().items()}

    def delete_branch(self, name: str) -> None:
        """Remove a branch; files that only it held become orphans.

        Raises:
            NotFoundError: there is no such branch.
        """
        self._refuse_view()
        delete_branch(self.store, name)

    def branches(self) -> list[str]:
        """The names of all branches but the main one."""
        return branch_store(self.store).names()

    def fast_forward(self, branch: str, *, plan_only: bool = False) -> ForwardPlan:
        """Make the main branch equal to a branch from the branch's first snapshot on. Stop writers first.

        What the main branch committed since is lost. The schema may change: `reload` the handle afterwards.

        Raises:
            NotFoundError: there is no such branch.
            InvalidInputError: the branch has no snapshot.
        """
        self._refuse_view()
        plan = plan_fast_forward(self.store, branch)
        if not plan_only:
            run_fast_forward(self.store, plan)
        return plan

    def consumers(self) -> dict[str, int]:
        """The first snapshot that each consumer has still to read, by its id."""
        return {name: each.next_snapshot for name, each in consumer_store(self.store).all().items()}

    def reset_consumer(self, consumer: str, next_snapshot: int | None = None) -> None:
        """Say which snapshot a consumer reads next, or forget the consumer.

        Raises:
            NotFoundError: there is no such consumer to forget.
        """
        self._refuse_view()
        reset_consumer(self.store, consumer, next_snapshot)
