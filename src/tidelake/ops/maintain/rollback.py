"""Rolling back to an older snapshot: newer snapshots, tags and long-lived changelogs are deleted, files become orphans.

Snapshots go newest first, so that whatever a crash leaves is a table at some snapshot between the newest and the
target, and rolling back again finishes the work. A tag whose snapshot has expired becomes a snapshot again before
anything is deleted: at no moment is the table empty. Numbered commits that are rolled back may be committed again:
the progress of all users goes back too (`rewind`), noted before the first snapshot goes and settled after the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.notebook import pluralize
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.rewind import note_rewind, settle_rewind
from tidelake.ops.maintain.tags import settle_creation, tag_store
from tidelake.ops.scan.travel import at_time
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.documents.tag import Tag
from tidelake.spec.layout import EARLIEST
from tidelake.store.table_store import TableStore

_ROUNDS = 10
_NO_WATERMARK = -(2**63)


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """What a rollback deletes, newest first. `restored`: the target has expired and only a tag still keeps it."""

    target: Snapshot
    snapshot_ids: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    changelog_ids: tuple[int, ...] = ()
    restored: bool = False

    def __str__(self) -> str:
        return (
            f"back to snapshot {self.target.id}: {pluralize(len(self.snapshot_ids), 'snapshot')}, "
            f"{pluralize(len(self.tags), 'tag')} and {pluralize(len(self.changelog_ids), 'changelog')} go; "
            "their files stay until orphans are removed"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to roll back to: exactly one of these is given."""

    snapshot_id: int | None = None
    tag: str | None = None
    time_ms: int | None = None
    watermark: int | None = None

    def __post_init__(self) -> None:
        if [self.snapshot_id, self.tag, self.time_ms, self.watermark].count(None) != 3:
            raise InvalidInputError("give exactly one target", hint="pass snapshot=, tag=, timestamp= or watermark=")


def plan_rollback(context: TableContext, to: Target) -> RollbackPlan:
    """What a rollback would remove.

    Raises:
        NotFoundError: the snapshot or tag does not exist, or no snapshot is that old.
    """
    store = context.store
    tags = tag_store(store).all()
    target = find_target(store, to, tags)
    return RollbackPlan(
        target,
        snapshot_ids=_newer(store.snapshots.ids(), target),
        tags=tuple(sorted(name for name, each in tags.items() if each.snapshot.id > target.id)),
        changelog_ids=_newer(store.changelogs.ids(), target),
        restored=not store.snapshots.exists(target.id),
    )


def find_target(store: TableStore, to: Target, tags: Mapping[str, Tag]) -> Snapshot:
    """The snapshot to roll back to; a tag may keep one that has expired.

    Raises:
        NotFoundError: the snapshot or tag does not exist, or no snapshot is that old.
    """
    if to.tag is not None:
        return tag_store(store).get(to.tag).snapshot
    if to.time_ms is not None:
        return at_time(store, to.time_ms)
    if to.watermark is not None:
        return _below_watermark(store, to.watermark)
    snapshot_id = to.snapshot_id
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


def _below_watermark(store: TableStore, watermark: int) -> Snapshot:
    """The newest snapshot whose watermark has not passed a value."""
    for snapshot_id in reversed(store.snapshots.ids()):
        found = store.snapshots.find(snapshot_id)
        mark = None if found is None else found.watermark
        # Engines write the least number where they have no watermark.
        if found is not None and mark is not None and _NO_WATERMARK < mark <= watermark:
            return found
    raise NotFoundError(
        "no snapshot has a watermark that low",
        code="snapshot-not-found",
        watermark=watermark,
        table=store.env.io.root,
        hint="inspect.snapshots() shows the watermarks of the snapshots that are kept",
    )


def _newer(ids: Iterable[int], target: Snapshot) -> tuple[int, ...]:
    return tuple(sorted((each for each in ids if each > target.id), reverse=True))


def run_rollback(context: TableContext, plan: RollbackPlan) -> RollbackPlan:
    """Roll back, and return what was deleted, including snapshots that others committed since the plan.

    Stop writers first. A commit that is running may still publish on top of the target.

    Raises:
        NotFoundError: the target expired since the plan was made.
        FormatError: the commit progress of a user is damaged; no snapshot was deleted.
        CommitUnknownError: it is unknown whether the target was restored; nothing was deleted.
        StorageError: the storage failed; roll back again to continue.
    """
    store, target = context.store, plan.target
    restore_snapshot(store, target)
    removed: list[int] = []
    rewind = note_rewind(store, target)
    store.publisher.hint_latest(target.id)
    for _ in range(_ROUNDS):
        newer = _newer(store.snapshots.ids(), target)
        if not newer:
            break
        if removed:  # others commit while this runs
            rewind |= note_rewind(store, target)
        for snapshot_id in newer:
            store.publisher.delete(snapshot_id)
        removed += newer
    settle_rewind(store, rewind)
    store.publisher.hint_latest(target.id)
    if plan.restored:
        store.publisher.hint_earliest(min(store.snapshots.ids(), default=target.id))
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
        CommitUnknownError: it is unknown whether it was restored.
    """
    there = store.snapshots.find(target.id)
    if there is None and any(target.is_same_commit(each.snapshot) for each in tag_store(store).all().values()):
        whole = without_lost_changelog(store, target)
        settle_creation(
            store.publisher.publish(whole),
            lambda: whole.is_same_commit(store.snapshots.find(target.id)),
            what=f"snapshot {target.id}",
        )
        there = store.snapshots.find(target.id)
    if not target.is_same_commit(there):
        raise NotFoundError(
            "snapshot no longer exists", code="snapshot-not-found", snapshot_id=target.id, hint="plan again"
        )


def without_lost_changelog(store: TableStore, kept: Snapshot) -> Snapshot:
    """What a tag keeps, as a snapshot that refers to nothing that is gone: a tag does not hold its changelog."""
    name = kept.changelog_manifest_list
    if name is None or store.env.io.exists(store.layout.manifest_path(name), folder=False):
        return kept
    return replace(
        kept, changelog_manifest_list=None, changelog_manifest_list_size_bytes=None, changelog_record_count=None
    )


def remove_changelogs(store: TableStore, ids: Iterable[int]) -> None:
    """Delete long-lived changelogs that no longer belong to the history of the table; their files become orphans.

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
