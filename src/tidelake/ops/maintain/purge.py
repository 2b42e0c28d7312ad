"""Purge a table: remove its branches, tags, consumers, rows and old snapshots, and keep the schema.

What is left is one snapshot without files. Every step is a verb that is safe alone, and they run in the order in which
each frees what the next one removes; so after a crash in between the table is whole, and the purge can be repeated.
Files that only a branch had become orphans, as when the branch is deleted by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.notebook import pluralize
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.branches import branch_store, delete_branch
from tidelake.ops.maintain.changelogs import plan_changelog_expiry, run_changelog_expiry
from tidelake.ops.maintain.consumers import consumer_store, reset_consumer
from tidelake.ops.maintain.expire import ExpirePlan, plan_expire, run_expire, unless_overtaken
from tidelake.ops.maintain.tags import plan_tag_deletion, run_tag_deletion, tag_store
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.names import MAIN_BRANCH

__all__ = ["PurgePlan", "plan_purge", "run_purge"]

_EVERYTHING: Final = 2**53
"""A moment before which everything was committed, and a number of snapshots that no table has."""


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """What a purge removes."""

    files: int = 0
    rows: int = 0
    snapshot_ids: tuple[int, ...] = ()
    changelog_ids: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """Files that the storage did not delete."""
    result: CommitResult | None = None
    """The commit that removed the rows; None for a plan that was not carried out."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        more = self.changelog_ids or self.tags or self.branches or self.consumers
        return not (self.files or len(self.snapshot_ids) > 1 or more)

    def __str__(self) -> str:
        counts = [
            pluralize(self.rows, "row"),
            f"all {pluralize(len(self.snapshot_ids), 'snapshot')}",
            *(pluralize(len(each), name) for each, name in self._list_references() if each),
        ]
        return f"{', '.join(counts[:-1])} and {counts[-1]}"

    def _list_references(self) -> tuple[tuple[tuple[object, ...], str], ...]:
        return (
            (self.changelog_ids, "changelog"),
            (self.tags, "tag"),
            (self.branches, "branch"),
            (self.consumers, "consumer"),
        )


def plan_purge(context: TableContext) -> PurgePlan:
    """Plan a purge.

    Raises:
        InvalidInputError: the handle works on a branch.
    """
    store = context.store
    if store.layout.branch != MAIN_BRANCH:
        raise InvalidInputError(
            "a branch cannot be purged", branch=store.layout.branch, hint="delete the branch, or purge the table"
        )

    def plan(snapshot: Snapshot | None) -> PurgePlan:
        metas = data_manifests(store.manifests, snapshot) if snapshot else ()
        files = live_entries(store.manifests, metas, columns=("row_count",))
        return PurgePlan(
            files=files.num_rows,
            rows=int(pc.sum(files.column("row_count")).as_py() or 0),
            snapshot_ids=tuple(store.snapshots.ids()),
            changelog_ids=tuple(store.changelogs.ids()),
            tags=tuple(sorted(tag_store(store).all())),
            branches=tuple(sorted(branch_store(store).names())),
            consumers=tuple(sorted(consumer_store(store).files())),
        )

    return store.snapshots.on_newest(plan)


def run_purge(context: TableContext, committer: Committer, plan: PurgePlan) -> PurgePlan:
    """Remove what was planned, and every row and snapshot that came since; returns what was done.

    Raises:
        CommitConflictError: the table kept changing while it ran: repeat the purge.
        CommitUnknownError: the storage did not say whether the rows are removed: repeat the purge.
        NotFoundError: another job removed a branch, tag or consumer first: repeat the purge.
        StorageError: the storage failed: repeat the purge.
    """
    for name in plan.branches:
        delete_branch(context, name)
    for name in plan.consumers:
        reset_consumer(context, name, None)
    result = committer.truncate()
    left: list[str] = []
    # After the commit, which may create a tag of the batch job.
    for name in sorted(tag_store(context.store).all()):
        left += run_tag_deletion(context, plan_tag_deletion(context, name))
    gone = unless_overtaken(lambda: run_changelog_expiry(context, plan_changelog_expiry(context, delete_all=True)))
    done = unless_overtaken(lambda: run_expire(context, _plan_last_expiry(context)))
    return replace(plan, left=(*left, *gone.left, *done.left), result=result)


def _plan_last_expiry(context: TableContext) -> ExpirePlan:
    """Plan to expire all snapshots but the newest, whatever the options say; they leave no changelogs."""
    return plan_expire(
        context,
        older_than_ms=_EVERYTHING,
        retain_max=1,
        retain_min=1,
        max_deletes=_EVERYTHING,
        leaves_changelogs=False,
    )
