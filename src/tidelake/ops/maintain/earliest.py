"""Repairing the oldest snapshot: set the hint to it where snapshots before it are missing.

Expiry and readers of Apache Paimon walk from the oldest snapshot upwards and stop where one is missing. After files
were lost, or an expiry died halfway, the hint can be set to the first snapshot after the gap. Nothing is deleted.
"""

from __future__ import annotations

from tidelake.errors import InvalidInputError, NotFoundError, StorageError
from tidelake.ops.context import TableContext

__all__ = ["repair_earliest_snapshot"]


def repair_earliest_snapshot(context: TableContext, snapshot_id: int) -> int:
    """Note that a snapshot is the oldest that counts, and return which one was before.

    Raises:
        NotFoundError: the table has no snapshot, or one from this id on is missing.
        InvalidInputError: the id is outside those of the table, or the snapshot before it exists.
        StorageError: the hint was not written.
    """
    store = context.store
    ids = store.snapshots.ids()
    earliest, latest = store.snapshots.earliest_id(), max(ids, default=None)
    if earliest is None or latest is None:
        raise NotFoundError("table has no snapshot", code="snapshot-not-found", table=store.env.io.root)
    if not earliest <= snapshot_id <= latest:
        raise InvalidInputError(
            "snapshot is not between the oldest and the newest",
            snapshot_id=snapshot_id,
            oldest=earliest,
            newest=latest,
            hint="give the first snapshot after the gap",
        )
    there = [each for each in ids if each >= snapshot_id]
    if len(there) != latest - snapshot_id + 1:
        missing = next(each for each in range(snapshot_id, latest + 1) if each not in there)
        raise NotFoundError(
            "snapshot does not exist",
            code="snapshot-not-found",
            snapshot_id=missing,
            table=store.env.io.root,
            hint="give the first snapshot after the last gap",
        )
    if snapshot_id != earliest and store.snapshots.exists(snapshot_id - 1):
        raise InvalidInputError(
            "the snapshot before it exists, so it does not follow a gap",
            snapshot_id=snapshot_id,
            hint="give the first snapshot after the gap; expire_snapshots removes old snapshots",
        )
    store.publisher.hint_earliest(snapshot_id)
    if store.snapshots.earliest_id() != snapshot_id:
        raise StorageError(
            "hint of the oldest snapshot could not be written", snapshot_id=snapshot_id, hint="try again"
        )
    return earliest
