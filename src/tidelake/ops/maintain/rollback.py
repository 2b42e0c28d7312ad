"""Rolling a table back to an older snapshot: newer snapshots, tags and long-lived changelogs go, files stay as orphans.

Snapshots go newest first, so that whatever a crash leaves is a table at some snapshot between the newest and the
target, and rolling back again finishes the work. A tag whose snapshot has expired becomes a snapshot again before
anything is deleted: at no moment is the table empty. Numbered commits that are rolled back may be committed again:
their users' progress goes back too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.notebook import counted
from tidelake.ops.commit.messages import BATCH_IDENTIFIER
from tidelake.ops.maintain.tags import created, tag_store
from tidelake.ops.scan.travel import at_time
from tidelake.spec.layout import EARLIEST
from tidelake.spec.progress import Progress
from tidelake.spec.snapshot import Snapshot
from tidelake.spec.tag import Tag
from tidelake.store.table_store import TableStore

_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """What a rollback removes, newest first. `restored` tells that the target is one that only a tag still keeps."""

    target: Snapshot
    snapshot_ids: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    changelog_ids: tuple[int, ...] = ()
    restored: bool = False

    def __str__(self) -> str:
        return (
            f"back to snapshot {self.target.id}: {counted(len(self.snapshot_ids), 'snapshot')}, "
            f"{counted(len(self.tags), 'tag')} and {counted(len(self.changelog_ids), 'changelog')} go; "
            "their files stay until orphans are removed"
        )


def plan_rollback(
    store: TableStore, *, snapshot_id: int | None = None, tag: str | None = None, time_ms: int | None = None
) -> RollbackPlan:
    """What a rollback would remove.

    Raises:
        InvalidInputError: not exactly one target is given.
        NotFoundError: there is no such snapshot or tag, or none that old.
    """
    if [snapshot_id, tag, time_ms].count(None) != 2:
        raise InvalidInputError("give exactly one target", hint="pass snapshot=, tag= or timestamp=")
    tags = tag_store(store).all()
    target = _target(store, tags, snapshot_id, tag, time_ms)
    return RollbackPlan(
        target,
        snapshot_ids=_newer(store.snapshots.ids(), target),
        tags=tuple(sorted(name for name, each in tags.items() if each.snapshot.id > target.id)),
        changelog_ids=_newer(store.changelogs.ids(), target),
        restored=not store.snapshots.exists(target.id),
    )


def _target(
    store: TableStore, tags: dict[str, Tag], snapshot_id: int | None, tag: str | None, time_ms: int | None
) -> Snapshot:
    if tag is not None:
        return tag_store(store).get(tag).snapshot
    if time_ms is not None:
        return at_time(store, time_ms)
    assert snapshot_id is not None
    found = store.snapshots.find(snapshot_id)
    kept = found or next((each.snapshot for each in tags.values() if each.snapshot.id == snapshot_id), None)
    if kept is None:
        raise NotFoundError(
            "snapshot does not exist",
            code="snapshot-not-found",
            snapshot_id=snapshot_id,
            table=store.env.io.root,
            hint="it may have expired; choose one of inspect.snapshots() or inspect.tags()",
        )
    return kept


def _newer(ids: Iterable[int], target: Snapshot) -> tuple[int, ...]:
    return tuple(sorted((each for each in ids if each > target.id), reverse=True))


def run_rollback(store: TableStore, plan: RollbackPlan) -> RollbackPlan:
    """Roll back, and tell what went: snapshots that others committed meanwhile go too.

    Stop writers first. A commit that is under way may still publish on top of what is rolled back.

    Raises:
        NotFoundError: the target expired since the plan was made.
        CommitUnknownError: the storage did not tell whether the target is there again; nothing was removed.
        StorageError: the storage failed; rolling back again goes on.
    """
    target = plan.target
    restore_snapshot(store, target)
    removed: list[int] = []
    store.snapshots.hint_latest(target.id)
    for _ in range(_ROUNDS):
        newer = _newer(store.snapshots.ids(), target)
        if not newer:
            break
        rewind_progress(store, [each for each in map(store.snapshots.find, newer) if each is not None])
        for snapshot_id in newer:
            store.snapshots.delete(snapshot_id)
        removed += newer
    store.snapshots.hint_latest(target.id)
    if plan.restored:
        store.snapshots.hint_earliest(min(store.snapshots.ids(), default=target.id))
    remove_changelogs(store, plan.changelog_ids)
    tags = tag_store(store)
    newer_tags = tuple(sorted(name for name, each in tags.all().items() if each.snapshot.id > target.id))
    for name in newer_tags:
        tags.delete(name)
    back = store.snapshots.get(target.id)
    return replace(plan, target=back, snapshot_ids=tuple(sorted(set(removed), reverse=True)), tags=newer_tags)


def restore_snapshot(store: TableStore, target: Snapshot) -> None:
    """Make sure that a snapshot which a tag may still keep is there.

    Raises:
        NotFoundError: another snapshot has its id, or it expired and no tag keeps it.
        CommitUnknownError: the storage did not tell whether it is there.
    """
    there = store.snapshots.find(target.id)
    if there is None and any(target.is_same_commit(each.snapshot) for each in tag_store(store).all().values()):
        whole = without_lost_changelog(store, target)
        created(
            store.snapshots.publish(whole),
            lambda: whole.is_same_commit(store.snapshots.find(target.id)),
            what=f"snapshot {target.id}",
        )
        there = store.snapshots.find(target.id)
    if not target.is_same_commit(there):
        raise NotFoundError(
            "snapshot is not there any more", code="snapshot-not-found", snapshot_id=target.id, hint="plan again"
        )


def without_lost_changelog(store: TableStore, kept: Snapshot) -> Snapshot:
    """What a tag keeps, as a snapshot that refers to nothing that is gone: a tag does not hold its changelog."""
    name = kept.changelog_manifest_list
    if name is None or store.env.io.exists(store.layout.manifest_path(name), folder=False):
        return kept
    return replace(
        kept, changelog_manifest_list=None, changelog_manifest_list_size_bytes=None, changelog_record_count=None
    )


def rewind_progress(store: TableStore, removed: Iterable[Snapshot]) -> None:
    """Forget the numbered commits of snapshots that are about to go, so that they may be committed again."""
    first: dict[str, int] = {}
    for snapshot in removed:
        if snapshot.commit_identifier != BATCH_IDENTIFIER:
            known = first.get(snapshot.commit_user, snapshot.commit_identifier)
            first[snapshot.commit_user] = min(known, snapshot.commit_identifier)
    for user, identifier in first.items():
        progress = store.progress.read(user)
        if progress.committed is not None and progress.committed >= identifier:
            # Identifiers of a user only grow: all before the first that goes were committed before it.
            store.progress.write(Progress(user=user, committed=identifier - 1))


def remove_changelogs(store: TableStore, ids: Iterable[int]) -> None:
    """Remove long-lived changelogs that are no longer part of the table's past; their files stay as orphans.

    Raises:
        StorageError: the storage failed.
    """
    files = store.changelogs
    for changelog_id in ids:
        files.delete(changelog_id)
    left = files.ids()
    if left:
        files.hint_latest(left[-1])
    elif store.env.io.exists(store.layout.changelog_hint_path(EARLIEST), folder=False):
        for hint in ("LATEST", EARLIEST):
            store.env.io.delete(store.layout.changelog_hint_path(hint))
