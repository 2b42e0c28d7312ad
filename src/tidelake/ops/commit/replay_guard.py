"""The guard of compactions that move staged rows to their buckets: did others write to those buckets since the plan?

Such a compaction gives the rows sequence numbers above all rows that it found in the bucket. Rows that others wrote to
the bucket since then have numbers from the same range, so it would be undefined which of two versions is newer. Strict
mode finds compactions and overwrites of others.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from tidelake.errors import CommitConflictError
from tidelake.ops.commit.guards import Proposal
from tidelake.ops.commit.since import commits_since
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.spec.documents.snapshot import CommitKind
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.store.table_store import TableStore

__all__ = ["BucketsUnwritten"]


@dataclass(frozen=True, slots=True)
class BucketsUnwritten:
    """Refuses to move staged rows to buckets that others wrote to since the plan."""

    store: TableStore

    def check(self, proposal: Proposal) -> None:
        """Refuse a proposal if rows were appended to one of its buckets since the plan.

        Raises:
            CommitConflictError: that happened, or a commit has expired, so its change is unknown.
        """
        messages = proposal.messages
        if not any(each.bucket == POSTPONE_BUCKET and each.compact.before for each in messages):
            return
        bases = {
            (each.partition, each.bucket): each.base_snapshot_id
            for each in messages
            if each.bucket != POSTPONE_BUCKET and each.compact.after and each.base_snapshot_id is not None
        }
        partitions = PartitionSet(frozenset(row for row, _ in bases), tuple(self.store.schema.partition_types))
        newest_id = proposal.latest.id
        for later in commits_since(self.store, min(bases.values(), default=newest_id), newest_id):
            touched: set[tuple[bytes, int]] = set(bases)
            if later.snapshot is not None:
                if later.kind is not CommitKind.APPEND:
                    continue
                entries = later.read_entries(partitions=partitions, columns=("partition", "bucket"))
                entries = entries.filter(pc.greater_equal(entries.column("bucket"), 0))
                touched &= set(zip(*(entries.column(name).to_pylist() for name in entries.column_names), strict=True))
            if touched:
                raise CommitConflictError(
                    "others wrote to a bucket while staged rows were moved to it",
                    code="file-conflict",
                    snapshot_id=later.id,
                    bucket=min(touched)[1],
                    hint="compact again: no row is lost",
                )
