"""The hooks of every commit to a table.

Unless it is write-only, they create automatic tags and expire tags, partitions, consumers, snapshots and changelogs, in
this order of Paimon's.

Tags come first, so that a snapshot that is due to be tagged does not expire before. Snapshots expire after tags and
consumers, because these hold snapshots; long-lived changelogs come after the snapshots that leave them. The tag of a
batch job is created for write-only tables too: it belongs to the job and not to the care for the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from tidelake.ops.commit.hook import Hook
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.commit.options import TableShape
from tidelake.ops.context import TableContext
from tidelake.ops.hooks.partition_expiry import PartitionExpiryHook
from tidelake.ops.maintain.auto_tags import DueTags, tag_batch, tag_what_is_due
from tidelake.ops.maintain.changelogs import plan_changelog_expiry, run_changelog_expiry
from tidelake.ops.maintain.consumers import run_consumer_expiry
from tidelake.ops.maintain.expire import ExpireOptions, plan_expire, run_expire
from tidelake.ops.maintain.tag_schedule import TagCreation, TagScheduleOptions, make_schedule
from tidelake.ops.maintain.tags import TagOptions, run_tag_expiry
from tidelake.options.capabilities import commit_warnings

__all__ = ["hooks_after_commit"]


def hooks_after_commit(context: TableContext, user: str, *, expires: bool | None = None) -> tuple[Hook, ...]:
    """The hooks after the commits of one user to a table, in the order in which they run.

    `expires` is what `write-only` says unless it is given: a job that compacts for writers also expires for them.

    Raises:
        InvalidInputError: an option has a wrong value.
    """
    if expires is None:
        expires = not context.options.of(TableShape).write_only
    # Functions of the module and not closures: a handle that holds a committer can be pickled.
    expiry = (
        *_hooks_for_tags(context),
        Hook("expiring tags", partial(_expire_tags, context)),
        Hook("expiring partitions", PartitionExpiryHook(context, user)),
        Hook("expiring consumers", partial(_expire_consumers, context)),
        Hook("expiring snapshots", partial(_expire_snapshots, context)),
        Hook("expiring changelogs", partial(_expire_changelogs, context)),
    )
    warn = Hook("checking the table options", partial(_warn_of_options, context))
    batch = _hooks_for_batch_tags(context)
    return (*batch, *expiry, warn) if expires else (*batch, warn)


def _hooks_for_tags(context: TableContext) -> tuple[Hook, ...]:
    if make_schedule(context.options) is None:
        return ()
    return (Hook("creating automatic tags", _TagCreation(context)),)


class _TagCreation:
    """Creates the tags that are due after each commit of one committer, and remembers how far it looked."""

    __slots__ = ("_context", "_known")

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._known: DueTags | None = None

    def __call__(self, _: CommitResult) -> Iterable[str]:
        self._known = tag_what_is_due(self._context, known=self._known)
        return ()


def _hooks_for_batch_tags(context: TableContext) -> tuple[Hook, ...]:
    options = context.options.of(TagScheduleOptions)
    if options.creation is not TagCreation.BATCH:
        return ()
    options.find_process_zone()  # a wrong zone is an error before the commit, not a warning after it
    return (Hook("creating the tag of the batch job", partial(_tag_batch, context), always=True, batch_only=True),)


def _tag_batch(context: TableContext, _: CommitResult) -> Iterable[str]:
    tag_batch(context)
    return ()


def _expire_tags(context: TableContext, _: CommitResult) -> Iterable[str]:
    if context.options.of(TagOptions).expire:
        run_tag_expiry(context, clean_folders=context.options.of(ExpireOptions).clean_folders)
    return ()


def _expire_consumers(context: TableContext, _: CommitResult) -> Iterable[str]:
    run_consumer_expiry(context)
    return ()


def _expire_snapshots(context: TableContext, _: CommitResult) -> Iterable[str]:
    done = run_expire(context, plan_expire(context))
    return [f"committed, but {len(done.left)} expired files were left: {done.reason}"] if done.left else []


def _expire_changelogs(context: TableContext, _: CommitResult) -> Iterable[str]:
    if context.options.of(ExpireOptions).keeps_changelogs_longer:
        run_changelog_expiry(context, plan_changelog_expiry(context))
    return ()


def _warn_of_options(context: TableContext, _: CommitResult) -> Iterable[str]:
    return commit_warnings(context.options)
