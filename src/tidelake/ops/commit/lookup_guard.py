"""The guard of compactions with lookup: are the older versions that they found still the current ones?

Such a compaction depends on files that it does not rewrite. A level-0 row is merged with its older version below level
0, is dropped (first-row), or marks that version as deleted; the changelog is the difference of the two. The check for
file conflicts does not notice that another job compacted rows of the same keys into those levels, or deleted or
replaced the files that were looked up. Rows would then be duplicated, reappear, or be in the changelog twice.

Invariant: a compaction is published only if the sorted levels of its bucket are those that it was planned on. New
level-0 files do no harm: they are newer than everything it read.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitConflictError
from tidelake.ops.commit.guards import Proposal
from tidelake.ops.commit.since import commits_since
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.options import TableOptions
from tidelake.spec.documents.snapshot import CommitKind
from tidelake.spec.manifests.manifest import DELETE
from tidelake.spec.schemas.option_rules import bool_option
from tidelake.store.table_store import TableStore

__all__ = ["LevelsUnchanged", "looks_up"]

_COLUMNS = ("kind", "partition", "bucket", "level")


def looks_up(options: TableOptions) -> bool:
    """Whether compactions of a primary-key table with these options look up older versions below level 0."""
    chosen = {
        key: options.get(key, "").strip().lower().replace("_", "-") for key in ("merge-engine", "changelog-producer")
    }
    if chosen["merge-engine"] == "first-row" or chosen["changelog-producer"] == "lookup":
        return True
    return any(bool_option(options, key) for key in ("deletion-vectors.enabled", "force-lookup"))


@dataclass(frozen=True, slots=True)
class LevelsUnchanged:
    """Refuses compactions of buckets whose sorted levels others changed since they were planned."""

    store: TableStore

    def check(self, proposal: Proposal) -> None:
        """Refuse a proposal if a compaction or overwrite since its plan changed sorted levels, or rows came back.

        Raises:
            CommitConflictError: one of them changed such a bucket, or has expired, so its change is unknown.
        """
        bases = {
            (message.partition, message.bucket): message.base_snapshot_id
            for message in proposal.messages
            if message.compact.before and message.base_snapshot_id is not None
        }
        if not bases:
            return
        partitions = PartitionSet(frozenset(row for row, _ in bases), tuple(self.store.schema.partition_types))
        for later in commits_since(self.store, min(bases.values()), proposal.latest.id):
            if later.snapshot is None:
                raise _conflict(later.id, None)
            if later.kind not in (CommitKind.COMPACT, CommitKind.OVERWRITE):
                continue
            restored = later.find_restored_files()
            if restored is None:
                raise _conflict(later.id, None)
            changed = _find_changed_buckets(later.read_entries(partitions=partitions, columns=_COLUMNS))
            for place in changed | {(partition, bucket) for partition, bucket, _ in restored}:
                if bases.get(place, later.id) < later.id:
                    raise _conflict(later.id, place[1])


def _find_changed_buckets(entries: pa.Table) -> set[tuple[bytes, int]]:
    """The buckets that lost a file, or got one on a sorted level."""
    moved = pc.or_(pc.equal(entries.column("kind"), DELETE), pc.greater(entries.column("level"), 0))
    touched = entries.filter(moved)
    return set(zip(*(touched.column(name).to_pylist() for name in ("partition", "bucket")), strict=True))


def _conflict(snapshot_id: int, bucket: int | None) -> CommitConflictError:
    return CommitConflictError(
        "another job replaced files in which a compaction looked up older rows",
        code="file-deleted",
        snapshot_id=snapshot_id,
        bucket=bucket,
        hint="compact again: no row is lost",
    )
