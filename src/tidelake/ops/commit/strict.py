"""Strict mode: fail instead of overwriting what others committed since a snapshot known to be safe."""

from __future__ import annotations

import pyarrow.compute as pc

from tidelake.errors import CommitConflictError
from tidelake.ops.commit.changes import Changes
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.ops.scan.plan import delta_manifests, read_changes
from tidelake.spec.snapshot import CommitKind, Snapshot
from tidelake.store.table_store import TableStore


def check_strict(
    store: TableStore, changes: Changes, kind: CommitKind, *, user: str, last_safe: int, latest: Snapshot
) -> None:
    """Look at every snapshot of others after the safe one.

    Raises:
        CommitConflictError: one of them changed a partition that this commit changes.
        NotFoundError: one of them has expired, so that nobody can tell.
    """
    partitions = PartitionSet(changes.partitions(), tuple(store.schema.partition_types))
    for snapshot_id in range(last_safe + 1, latest.id + 1):
        snapshot = store.snapshots.get(snapshot_id)
        if snapshot.commit_user == user:
            continue
        if _touches(store, snapshot, kind, partitions):
            raise CommitConflictError(
                "strict mode: another job changed the same partitions",
                code="strict-mode",
                snapshot_id=snapshot.id,
                commit_kind=snapshot.commit_kind.value,
                base_user=snapshot.commit_user,
                commit_user=user,
                hint="read the table again from that snapshot and redo the work",
            )


def _touches(store: TableStore, snapshot: Snapshot, kind: CommitKind, partitions: PartitionSet) -> bool:
    replaced = snapshot.commit_kind in (CommitKind.COMPACT, CommitKind.OVERWRITE)
    appended = snapshot.commit_kind is CommitKind.APPEND and kind is CommitKind.OVERWRITE
    if not replaced and not appended:
        return False
    entries = read_changes(
        store.manifests,
        delta_manifests(store.manifests, snapshot),
        partitions=partitions,
        columns=("kind", "partition", "bucket"),
    )
    if appended:
        return bool(pc.any(pc.greater_equal(entries.column("bucket"), 0)).as_py())
    return entries.num_rows > 0 or _index_touched(store, snapshot, partitions)


def _index_touched(store: TableStore, snapshot: Snapshot, partitions: PartitionSet) -> bool:
    before = store.snapshots.find(snapshot.id - 1) if snapshot.id > 1 else None
    if snapshot.index_manifest is None or (before and before.index_manifest == snapshot.index_manifest):
        return False
    return any(entry.partition in partitions.rows for entry in store.manifests.read_index(snapshot.index_manifest))
