"""Strict mode: refuse to replace what others committed since a snapshot that the user names as safe."""

from __future__ import annotations

import pyarrow.compute as pc

from tidelake.errors import CommitConflictError
from tidelake.ops.commit.changes import Changes
from tidelake.ops.commit.since import LaterCommit, commits_since
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.store.table_store import TableStore


def check_strict(
    store: TableStore, changes: Changes, kind: CommitKind, *, user: str, last_safe: int, latest: Snapshot
) -> None:
    """Check every snapshot of other users after the safe one.

    Raises:
        CommitConflictError: one of them changed a partition that this commit changes.
        NotFoundError: one of them has expired, so its changes are unknown.
    """
    partitions = PartitionSet(changes.partitions(), tuple(store.schema.partition_types))
    for later in commits_since(store, last_safe, latest.id):
        snapshot = later.require()
        if later.is_by(user):
            continue
        if _touches(later, snapshot, kind, partitions):
            raise CommitConflictError(
                "strict mode: another job changed the same partitions",
                code="strict-mode",
                snapshot_id=snapshot.id,
                commit_kind=snapshot.commit_kind.value,
                base_user=snapshot.commit_user,
                commit_user=user,
                hint="read the table again at that snapshot and redo the work",
            )


def _touches(later: LaterCommit, snapshot: Snapshot, kind: CommitKind, partitions: PartitionSet) -> bool:
    replaced = snapshot.commit_kind in (CommitKind.COMPACT, CommitKind.OVERWRITE)
    appended = snapshot.commit_kind is CommitKind.APPEND and kind is CommitKind.OVERWRITE
    if not replaced and not appended:
        return False
    entries = later.read_entries(partitions=partitions, columns=("kind", "partition", "bucket"))
    if appended:
        return bool(pc.any(pc.greater_equal(entries.column("bucket"), 0)).as_py())
    return entries.num_rows > 0 or _index_touched(later.store, snapshot, partitions)


def _index_touched(store: TableStore, snapshot: Snapshot, partitions: PartitionSet) -> bool:
    before = store.snapshots.find(snapshot.id - 1) if snapshot.id > 1 else None
    if snapshot.index_manifest is None or (before and before.index_manifest == snapshot.index_manifest):
        return False
    return any(entry.partition in partitions.rows for entry in store.manifests.read_index(snapshot.index_manifest))
