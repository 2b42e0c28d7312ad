"""Rows that waited for a bucket and get it: is the bucket still what their sequence numbers were put above?

A compaction that gives rows their buckets numbers them above all rows that it found there. Rows that others wrote to
the bucket since have numbers of their own from the same point on, and which of two versions is the newer one could not
be told any more. Compactions and overwrites of others are found by strict mode.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from tidelake.errors import CommitConflictError
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.ops.scan.plan import delta_manifests, read_changes
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.spec.snapshot import CommitKind, Snapshot
from tidelake.store.table_store import TableStore

__all__ = ["check_replays"]


def check_replays(store: TableStore, messages: Sequence[CommitMessage], latest: Snapshot | None) -> None:
    """Refuse to give rows their buckets if others wrote to these since that was planned.

    Raises:
        CommitConflictError: somebody did, or a snapshot that would tell has expired.
    """
    if latest is None or not any(each.bucket == POSTPONE_BUCKET and each.compact.before for each in messages):
        return
    bases = {
        (each.partition, each.bucket): each.base_snapshot_id
        for each in messages
        if each.bucket != POSTPONE_BUCKET and each.compact.after and each.base_snapshot_id is not None
    }
    partitions = PartitionSet(frozenset(row for row, _ in bases), tuple(store.schema.partition_types))
    for snapshot_id in range(min(bases.values(), default=latest.id) + 1, latest.id + 1):
        snapshot = store.snapshots.find(snapshot_id)
        if snapshot is not None and snapshot.commit_kind is not CommitKind.APPEND:
            continue
        touched: set[tuple[bytes, int]] = set(bases)
        if snapshot is not None:
            metas = delta_manifests(store.manifests, snapshot)
            entries = read_changes(store.manifests, metas, partitions=partitions, columns=("partition", "bucket"))
            entries = entries.filter(pc.greater_equal(entries.column("bucket"), 0))
            touched &= set(zip(*(entries.column(name).to_pylist() for name in entries.column_names), strict=True))
        if touched:
            raise CommitConflictError(
                "others wrote to a bucket while waiting rows were put into it",
                code="file-conflict",
                snapshot_id=snapshot_id,
                bucket=min(touched)[1],
                hint="compact again: no row is lost",
            )
