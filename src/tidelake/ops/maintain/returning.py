"""Returning to an older snapshot without removing anything: its state is published again, on top of the newest one.

Invariant: what the older snapshot holds cannot expire while this runs nor afterwards. A tag is created first and stays,
as Apache Paimon does it: its expiry deletes what the changes of expired snapshots deleted, and asks only tags whether a
later snapshot has taken a file back. A crash leaves the tag at worst. Nothing expires after such a commit, so that it
can be undone in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow.compute as pc

from tidelake.cleanup import undo_on_error
from tidelake.errors import NotFoundError, StorageError
from tidelake.notebook import pluralize
from tidelake.ops.commit.changes import changes_between
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.rollback import Target, find_target
from tidelake.ops.maintain.tags import hold_snapshot, tag_store
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.manifest import ADD, IDENTITY_COLUMNS

__all__ = ["ReturnPlan", "plan_return", "run_return"]

_COLUMNS = ("kind", *IDENTITY_COLUMNS)


@dataclass(frozen=True, slots=True)
class ReturnPlan:
    """A return to an older snapshot, and once it is done, what was committed."""

    target: Snapshot
    newest: Snapshot
    """The newest snapshot when the plan was made."""
    files_added: int = 0
    files_deleted: int = 0
    tag: str | None = None
    """The tag that keeps the target; the plan has none if the return creates one."""
    result: CommitResult = field(default_factory=CommitResult)

    @property
    def is_empty(self) -> bool:
        """Whether the target is the newest snapshot, so that nothing is committed."""
        return self.target.is_same_commit(self.newest)

    @property
    def snapshot_id(self) -> int | None:
        """The new snapshot, or None if it is not committed."""
        return max(self.result.snapshot_ids, default=None)

    def __str__(self) -> str:
        if self.is_empty:
            return f"snapshot {self.target.id} is the newest already"
        return (
            f"back to the state of snapshot {self.target.id}, as a new snapshot after {self.newest.id}: "
            f"{pluralize(self.files_added, 'file')} come back, {pluralize(self.files_deleted, 'file')} go; "
            "all snapshots stay"
        )


def plan_return(context: TableContext, to: Target) -> ReturnPlan:
    """What a return to an older snapshot would change.

    Raises:
        NotFoundError: the table has no snapshot, the target does not exist, or a file of its metadata is gone.
    """
    store = context.store
    newest = store.snapshots.latest()
    if newest is None:
        raise NotFoundError("table has no snapshot to return from", code="snapshot-not-found", table=store.env.io.root)
    target = find_target(store, to, tag_store(store).all())
    if target.is_same_commit(newest):
        return ReturnPlan(target, newest, tag=to.tag)
    current, wanted = (
        live_entries(store.manifests, data_manifests(store.manifests, each), columns=_COLUMNS)
        for each in (newest, target)
    )
    delta = changes_between(current, wanted)
    added = int(pc.sum(pc.equal(delta.column("kind"), ADD)).as_py() or 0)
    return ReturnPlan(target, newest, added, delta.num_rows - added, tag=to.tag)


def run_return(context: TableContext, committer: Committer, plan: ReturnPlan) -> ReturnPlan:
    """Publish the state of the target on top of what is the newest snapshot by then.

    Other jobs may go on: a commit that deletes files which this one took away meets a conflict.

    Args:
        context: the table.
        committer: a committer without hooks that expire anything.
        plan: the plan; its target is what counts.

    Raises:
        NotFoundError: the target expired since the plan was made.
        CommitConflictError: every attempt lost its race.
        CommitUnknownError: it is unknown whether the tag or the snapshot was published; nothing was deleted.
        StorageError: the storage failed, and nothing was published.
    """
    if plan.is_empty:
        return plan
    # Also for a target that a tag names: that tag may be deleted, and who plans to delete its files looks for new tags
    # only, because other commits hold no file that the snapshot before them does not hold.
    store = context.store
    name = f"{_PREFIX}{plan.target.id}-{store.env.ids.uuid()}"

    def release() -> None:
        if committer.left_nothing:
            tag_store(store).delete(name)

    hold_snapshot(store, name, plan.target)
    # An error of the deletion would hide the one that matters; a tag that stays does no harm.
    with undo_on_error(release, ignore=(StorageError,)):
        done = committer.return_to(plan.target)
    return replace(plan, tag=name, result=done)


_PREFIX = "rollback-to-as-latest-"
"""How the names of these tags begin, in Apache Paimon too."""
