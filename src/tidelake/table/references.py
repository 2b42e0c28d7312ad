"""The verbs of a table's handle for what refers to its snapshots: tags, branches and consumers."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from datetime import timedelta
from typing import Literal, Self, overload

from tidelake.errors import InvalidInputError
from tidelake.ops.commit.replan import replan
from tidelake.ops.maintain.auto_tags import find_automatic_tags, tag_what_is_due
from tidelake.ops.maintain.branch_merge import MergePlan, plan_merge, run_merge
from tidelake.ops.maintain.branches import (
    ForwardPlan,
    branch_store,
    delete_branch,
    plan_fast_forward,
    rename_branch,
    run_fast_forward,
)
from tidelake.ops.maintain.consumers import consumer_store, plan_clearing, reset_consumer, run_clearing
from tidelake.ops.maintain.expire import ExpireOptions, unless_overtaken
from tidelake.ops.maintain.tag_schedule import AutomaticTags
from tidelake.ops.maintain.tags import (
    TagDeletion,
    TagOptions,
    TagReplacement,
    create_tag,
    plan_tag_deletion,
    plan_tag_expiry,
    plan_tag_replacement,
    rename_tag,
    run_tag_deletion,
    run_tag_expiry,
    run_tag_replacement,
    tag_store,
)
from tidelake.ops.maintain.times import Moment, Span, before_ms, moment_ms, span_ms
from tidelake.store.snapshots import plan_again
from tidelake.table.maintenance import Maintenance


class References(Maintenance):
    """Tags, branches and consumers. Methods that delete return a plan, and carry it out unless `plan_only` is set."""

    __slots__ = ()

    @abstractmethod
    def branch(self, name: str) -> Self:
        """The same table on a branch."""

    def create_tag(
        self,
        name: str | None = None,
        snapshot: int | None = None,
        time_retained: Span | None = None,
        *,
        timestamp: Moment | None = None,
        ignore_if_exists: bool = False,
    ) -> str:
        """Name a snapshot, by default the newest, so that it does not expire, and return the name.

        With `timestamp` it is the first snapshot that was committed at or after that time, also one that only a tag
        keeps.

        Raises:
            InvalidInputError: the name is taken or unusable, or both a snapshot and a time are given.
            NotFoundError: the snapshot does not exist.
        """
        if snapshot is not None and timestamp is not None:
            raise InvalidInputError(
                "give a snapshot or a time", snapshot=snapshot, timestamp=str(timestamp), hint="leave one of them out"
            )
        return create_tag(
            self.context,
            name,
            snapshot_id=snapshot,
            time_ms=None if timestamp is None else moment_ms(timestamp),
            time_retained_ms=None if time_retained is None else span_ms(time_retained),
            ignore_if_exists=ignore_if_exists,
        )

    def replace_tag(
        self,
        name: str,
        snapshot: int | None = None,
        time_retained: Span | None = None,
        *,
        plan_only: bool = False,
    ) -> TagReplacement:
        """Give a tag to another snapshot, by default the newest; without `time_retained` it stays until it is deleted.

        The option `tag.default-time-retained` does not apply here. Files that only the tag's former snapshot used
        become orphans.

        Raises:
            NotFoundError: the tag or the snapshot does not exist.
            InvalidInputError: the tag has the name of an automatic one, and the snapshot carries one of these already.
        """
        retained_ms = None if time_retained is None else span_ms(time_retained)

        def attempt() -> TagReplacement:
            plan = plan_tag_replacement(self.context, name, snapshot_id=snapshot)
            if not plan_only:
                run_tag_replacement(self.context, plan, time_retained_ms=retained_ms)
            return plan

        return plan_again(attempt) if snapshot is None else attempt()

    def create_automatic_tags(self, *, plan_only: bool = False) -> AutomaticTags:
        """Create the tags that are due as `tag.automatic-creation` says, and delete those past their time or number.

        Commits do so themselves, except those to write-only tables. With `none` or `batch` no tag is due.

        Raises:
            InvalidInputError: an option has a wrong value.
            CommitConflictError: snapshots or tags changed while it ran: try again.
        """
        context = self.context
        expires = context.options.of(TagOptions).expire
        if plan_only:
            plan = find_automatic_tags(context).plan
            return replace(plan, expired=plan_tag_expiry(context).tags) if expires else plan
        done = tag_what_is_due(context).plan
        return replace(done, expired=run_tag_expiry(context)) if expires else done

    def delete_tag(self, name: str, *, plan_only: bool = False) -> TagDeletion:
        """Delete a tag and the files that only it uses.

        Raises:
            NotFoundError: the tag does not exist.
            CommitConflictError: snapshots or tags changed while it ran; nothing was deleted: try again.
        """
        context = self.context

        def attempt() -> TagDeletion:
            plan = plan_tag_deletion(context, name)
            if not plan_only:
                run_tag_deletion(context, plan, clean_folders=context.options.of(ExpireOptions).clean_folders)
            return plan

        return unless_overtaken(attempt)

    def rename_tag(self, name: str, new: str) -> None:
        """Give a tag another name.

        Raises:
            NotFoundError: the tag does not exist.
            InvalidInputError: the new name is taken or unusable.
        """
        rename_tag(self.context, name, new)

    @overload
    def expire_tags(
        self, older_than: Moment | timedelta | None = None, *, plan_only: Literal[False] = False
    ) -> tuple[str, ...]: ...

    @overload
    def expire_tags(self, older_than: Moment | timedelta | None = None, *, plan_only: Literal[True]) -> TagDeletion: ...

    def expire_tags(
        self, older_than: Moment | timedelta | None = None, *, plan_only: bool = False
    ) -> tuple[str, ...] | TagDeletion:
        """Delete the tags whose time is over, and those created before `older_than`; return their names.

        `plan_only` returns which tags and files would be deleted.

        Raises:
            CommitConflictError: snapshots or tags changed while it ran; nothing was deleted: try again.
        """
        before = None if older_than is None else before_ms(older_than, self.store.env.clock.now_ms())
        if plan_only:
            return plan_tag_expiry(self.context, older_than_ms=before)
        return run_tag_expiry(self.context, older_than_ms=before)

    def tags(self) -> dict[str, int]:
        """The snapshot of each tag, by name."""
        return {name: tag.snapshot.id for name, tag in tag_store(self.store).all().items()}

    def delete_branch(self, name: str) -> None:
        """Remove a branch; files that only it used become orphans.

        Raises:
            NotFoundError: the branch does not exist.
        """
        delete_branch(self.context, name)

    def rename_branch(self, name: str, new: str) -> None:
        """Give a branch another name, with its tags and consumers. Stop jobs that work on it first.

        Raises:
            NotFoundError: the branch does not exist.
            InvalidInputError: it is the main branch, or the new name is taken or unusable.
            UnsupportedError: the storage cannot move a folder in one step, as object stores.
        """
        rename_branch(self.context, name, new)

    def merge_branch(self, source: str, target: str = "main", *, plan_only: bool = False) -> MergePlan:
        """Append the files that only the source branch has to the target branch; a repetition adds nothing twice.

        Only for append tables without compactions, overwrites or expired snapshots on both branches, and with equal
        columns. Nothing expires after it, so that it can be repeated.

        Raises:
            NotFoundError: a branch does not exist.
            InvalidInputError: the branches cannot be merged.
            CommitConflictError: other jobs committed to the target first, at every attempt.
            CommitUnknownError: the storage did not say whether the commit was published; repeat the call.
        """

        def attempt() -> MergePlan:
            into, branch = self.branch(target), self.branch(source)
            plan = plan_merge(into.context, branch.context)
            if plan_only:
                return plan
            return run_merge(into.context, branch.context, into._committer(None, expires=False), plan)

        return replan(attempt)

    def branches(self) -> list[str]:
        """The names of all branches except the main one."""
        return branch_store(self.store).names()

    def fast_forward(self, branch: str, *, plan_only: bool = False) -> ForwardPlan:
        """Replace the main branch's snapshots with those of a branch, from the branch's first on. Stop writers first.

        What was committed to the main branch since then is lost. The schema may change: `reload` the handle afterwards.

        Raises:
            NotFoundError: the branch does not exist.
            InvalidInputError: the branch has no snapshot.
        """
        context = self.context
        plan = plan_fast_forward(context, branch)
        if not plan_only:
            run_fast_forward(context, plan)
        return plan

    def consumers(self) -> dict[str, int]:
        """The next snapshot of each consumer, by the id of the consumer."""
        return {name: each.next_snapshot for name, each in consumer_store(self.store).all().items()}

    def clear_consumers(
        self, including: str | None = None, excluding: str | None = None, *, plan_only: bool = False
    ) -> tuple[str, ...]:
        """Forget all consumers, or those whose whole name a regular expression matches; return their names.

        Those that `excluding` matches stay. Snapshots that only forgotten consumers kept may expire.

        Raises:
            InvalidInputError: an expression is malformed.
        """
        context = self.context
        names = plan_clearing(context, including, excluding)
        if not plan_only:
            run_clearing(context, names)
        return names

    def reset_consumer(self, consumer: str, next_snapshot: int | None = None) -> None:
        """Set the snapshot that a consumer reads next, or forget the consumer.

        Raises:
            NotFoundError: the consumer to forget does not exist.
        """
        reset_consumer(self.context, consumer, next_snapshot)
