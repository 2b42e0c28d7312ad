"""The commits since a base snapshot, for every check whether a plan still holds.

The changes of a commit that has expired are unknown. It is a `LaterCommit` without a snapshot, so that no caller
mistakes it for a harmless one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidelake.ops.scan.partitions import PartitionFilter
from tidelake.ops.scan.plan import EVERY_PARTITION, delta_manifests, read_changes
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.store.table_store import TableStore

__all__ = ["LaterCommit", "commits_since"]


@dataclass(frozen=True, slots=True)
class LaterCommit:
    """A commit after the base; it stands for several if they have expired."""

    store: TableStore
    id: int
    snapshot: Snapshot | None
    """None if the commit has expired, so its changes are unknown."""

    @property
    def kind(self) -> CommitKind | None:
        """The kind of the commit; None if it has expired."""
        return None if self.snapshot is None else self.snapshot.commit_kind

    def is_by(self, user: str | None) -> bool:
        """Whether the commit is known to be one of this user."""
        return self.snapshot is not None and self.snapshot.commit_user == user

    def require(self) -> Snapshot:
        """The snapshot of the commit.

        Raises:
            NotFoundError: it has expired.
        """
        return self.store.snapshots.get(self.id) if self.snapshot is None else self.snapshot

    def read_entries(
        self, *, partitions: PartitionFilter = EVERY_PARTITION, columns: Iterable[str] | None = None
    ) -> pa.Table:
        """The manifest entries of the commit's own change, additions and deletions.

        Raises:
            NotFoundError: the commit has expired.
            FormatError: a manifest is damaged.
        """
        metas = delta_manifests(self.store.manifests, self.require())
        return read_changes(self.store.manifests, metas, partitions=partitions, columns=columns)


def commits_since(store: TableStore, base_id: int, last_id: int) -> Iterator[LaterCommit]:
    """The commits after a base up to a snapshot, oldest first; of consecutive expired ones only the first.

    Raises:
        FormatError: a snapshot is damaged.
        StorageError: the storage failed.
    """
    for snapshot_id, snapshot in store.snapshots.walk(base_id + 1, last_id):
        yield LaterCommit(store, snapshot_id, snapshot)
