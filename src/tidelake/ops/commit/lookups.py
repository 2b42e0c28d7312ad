"""Compactions that looked keys up below: is what they found there still the truth?

Such a compaction depends on files that it does not take in. A row of level 0 is merged with the version that lies
deeper, is left out where the first row wins, or marks that version as deleted; and what changed is told by comparing
the two. No conflict over files tells that another job has meanwhile lifted rows of the same keys past those, or has
deleted or replaced what was looked at. Rows would come twice, come back, or be told of twice.

Invariant: a compaction is published only if the sorted levels of its bucket are those that it was planned on. New files
of level 0 do no harm: they are younger than all that it read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitConflictError
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.ops.scan.plan import delta_manifests, read_changes
from tidelake.spec.manifest import DELETE
from tidelake.spec.option_rules import bool_option
from tidelake.spec.snapshot import CommitKind, Snapshot
from tidelake.store.table_store import TableStore

__all__ = ["check_lookups", "looks_up"]

_COLUMNS = ("kind", "partition", "bucket", "level")


def looks_up(options: Mapping[str, str]) -> bool:
    """Whether compactions of a primary-key table with these options look up what lies below."""
    told = {
        key: options.get(key, "").strip().lower().replace("_", "-") for key in ("merge-engine", "changelog-producer")
    }
    if told["merge-engine"] == "first-row" or told["changelog-producer"] == "lookup":
        return True
    return any(bool_option(options, key) for key in ("deletion-vectors.enabled", "force-lookup"))


def check_lookups(store: TableStore, messages: Sequence[CommitMessage], latest: Snapshot | None) -> None:
    """Refuse compactions of buckets whose sorted levels others changed since they were planned.

    Raises:
        CommitConflictError: a bucket's were, or a snapshot that would tell has expired.
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
        if snapshot.commit_kind not in (CommitKind.COMPACT, CommitKind.OVERWRITE):
            continue
        metas = delta_manifests(store.manifests, snapshot)
        entries = read_changes(store.manifests, metas, partitions=partitions, columns=_COLUMNS)
        for place in _moved(entries):
            if bases.get(place, snapshot_id) < snapshot_id:
                raise _conflict(snapshot_id, place[1])


def _moved(entries: pa.Table) -> set[tuple[bytes, int]]:
    """The buckets that lost a file, or got one on a sorted level."""
    moved = pc.or_(pc.equal(entries.column("kind"), DELETE), pc.greater(entries.column("level"), 0))
    touched = entries.filter(moved)
    return set(zip(*(touched.column(name).to_pylist() for name in ("partition", "bucket")), strict=True))


def _conflict(snapshot_id: int, bucket: int | None) -> CommitConflictError:
    return CommitConflictError(
        "files in which a compaction found older rows were replaced meanwhile",
        code="file-deleted",
        snapshot_id=snapshot_id,
        bucket=bucket,
        hint="compact again: no row is lost",
    )
