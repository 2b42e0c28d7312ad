"""Compactions that looked keys up below: are the files in which they found them still the truth?

Where the first row of a key wins, a compaction leaves out rows whose key lies in a file that it does not take in. If a
writer compacts rows before they are committed, no conflict over files tells that such a file was deleted or overwritten
meanwhile, and the rows left out would be gone for good. Rows that are committed are taken away with the file that they
share keys with, which is a conflict; and compactions of others only move rows, and do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from tidelake.errors import CommitConflictError
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.ops.scan.plan import delta_manifests, read_changes
from tidelake.spec.manifest import DELETE
from tidelake.spec.snapshot import CommitKind, Snapshot
from tidelake.store.table_store import TableStore

__all__ = ["check_lookups"]

_COLUMNS = ("kind", "partition", "bucket")


def check_lookups(store: TableStore, messages: Sequence[CommitMessage], latest: Snapshot | None) -> None:
    """Refuse compactions of buckets that lost files other than to compactions since they were planned.

    Raises:
        CommitConflictError: a bucket did, or a snapshot that would tell has expired.
    """
    bases = {
        (message.partition, message.bucket): message.base_snapshot_id
        for message in messages
        if message.compact.before and message.base_snapshot_id is not None
    }
    if latest is None or not bases:
        return
    partitions = PartitionSet(frozenset(row for row, _ in bases), tuple(store.schema.partition_types))
    for snapshot_id in range(min(bases.values()) + 1, latest.id + 1):
        snapshot = store.snapshots.find(snapshot_id)
        if snapshot is None:
            raise _conflict(snapshot_id, None)
        if snapshot.commit_kind is not CommitKind.OVERWRITE:
            continue
        metas = delta_manifests(store.manifests, snapshot)
        entries = read_changes(store.manifests, metas, partitions=partitions, columns=_COLUMNS)
        gone = entries.filter(pc.equal(entries.column("kind"), DELETE))
        for place in set(zip(*(gone.column(name).to_pylist() for name in _COLUMNS[1:]), strict=True)):
            if bases.get(place, snapshot_id) < snapshot_id:
                raise _conflict(snapshot_id, place[1])


def _conflict(snapshot_id: int, bucket: int | None) -> CommitConflictError:
    return CommitConflictError(
        "files in which a compaction found older rows were replaced meanwhile",
        code="file-deleted",
        snapshot_id=snapshot_id,
        bucket=bucket,
        hint="compact again: no row is lost",
    )
