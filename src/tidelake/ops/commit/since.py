"""The commits since a base snapshot, for every check whether a plan still holds.

The changes of a commit that has expired are unknown. It is a `LaterCommit` without a snapshot, so that no caller
mistakes it for a harmless one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ops.scan.partitions import PartitionFilter
from tidelake.ops.scan.plan import EVERY_PARTITION, delta_manifests, read_changes
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.manifests.index_manifest import DELETION_VECTORS
from tidelake.spec.manifests.manifest import DELETE
from tidelake.store.table_store import TableStore

__all__ = ["LaterCommit", "RestoredFile", "commits_since"]

RestoredFile = tuple[bytes, int, str]
"""The partition, bucket and name of a data file that has deleted rows again."""


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

    def find_restored_files(self) -> frozenset[RestoredFile] | None:
        """The data files of which this commit brought deleted rows back; None if the snapshot before has expired.

        A return to an older state drops positions from deletion vectors, which no manifest entry shows. Only an
        overwrite does that; no other commit is looked at.

        Raises:
            NotFoundError: this commit has expired, or an index manifest is gone.
            FormatError: an index manifest is damaged.
        """
        if self.kind is not CommitKind.OVERWRITE:
            return frozenset()
        after = self.require()
        before = self.store.snapshots.find(self.id - 1) if self.id > 1 else None
        if before is None:
            return None if self.id > 1 else frozenset()
        if before.index_manifest is None or before.index_manifest == after.index_manifest:
            return frozenset()
        deleted, still = self._count_deleted(before), self._count_deleted(after)
        fewer = {file for file, rows in deleted.items() if file not in still or still[file] < rows}
        if not fewer:
            return frozenset()
        entries = self.read_entries(columns=("kind", "partition", "bucket", "file_name"))
        gone = entries.filter(pc.equal(entries.column("kind"), DELETE)).to_pylist()
        return frozenset(fewer - {(each["partition"], each["bucket"], each["file_name"]) for each in gone})

    def _count_deleted(self, snapshot: Snapshot) -> dict[RestoredFile, int]:
        """How many rows of each data file are deleted; older writers do not say, and leave bytes to compare."""
        if snapshot.index_manifest is None:
            return {}
        return {
            (entry.partition, entry.bucket, each.data_file): each.cardinality or each.length
            for entry in self.store.manifests.read_index(snapshot.index_manifest)
            if entry.file.index_type == DELETION_VECTORS
            for each in entry.file.deletion_vectors or ()
        }


def commits_since(store: TableStore, base_id: int, last_id: int) -> Iterator[LaterCommit]:
    """The commits after a base up to a snapshot, oldest first; of consecutive expired ones only the first.

    Raises:
        FormatError: a snapshot is damaged.
        StorageError: the storage failed.
    """
    for snapshot_id, snapshot in store.snapshots.walk(base_id + 1, last_id):
        yield LaterCommit(store, snapshot_id, snapshot)
