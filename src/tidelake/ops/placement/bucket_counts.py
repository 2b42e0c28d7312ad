"""How many buckets each partition has: the table's number, or with postponed buckets a number per partition.

Invariant: a partition that has buckets keeps their number; the number for a partition without buckets is decided before
its first row is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.ops.scan.postponed import PostponeOptions, bucket_counts
from tidelake.options import TableOptions
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.spec.schemas.bucket_mode import BucketOptions
from tidelake.store.table_store import TableStore

__all__ = ["COUNT_COLUMNS", "BucketCounts", "KnownBuckets", "PartitionBuckets", "count_entries"]

COUNT_COLUMNS = ("partition", "bucket", "total_buckets", "row_count", "file_size")


class BucketCounts(Protocol):
    """Knows how many buckets partitions have."""

    def of(self, partition: bytes) -> int:
        """The number of buckets of a partition; -1 where they are dynamic."""


@dataclass(frozen=True, slots=True)
class KnownBuckets:
    """The bucket counts of partitions at one snapshot. It pickles, so that tasks can share it."""

    counts: Mapping[bytes, int]
    others: int
    """The number for partitions that have no buckets yet."""

    def of(self, partition: bytes) -> int:
        """The number of buckets of a partition."""
        return self.counts.get(partition, self.others)

    @property
    def same(self) -> int | None:
        """The number of buckets of every partition; None if they differ."""
        return self.others if all(count == self.others for count in self.counts.values()) else None


@dataclass(slots=True)
class PartitionBuckets:
    """The number of buckets of partitions, as a writer uses them. Not shared between threads."""

    store: TableStore
    options: TableOptions
    chosen: Mapping[bytes, int] = field(default_factory=dict)
    """The numbers that the caller decided for some partitions, whatever the table says."""
    afresh: bool = False
    """Whether existing partitions are replaced, so that their bucket counts do not matter."""
    _snapshot: Snapshot | None = None
    _known: KnownBuckets | None = None
    _fixed: int = field(init=False)

    def __post_init__(self) -> None:
        self._fixed = self.options.of(BucketOptions).bucket

    def start(self, snapshot: Snapshot | None) -> None:
        """Use this snapshot from now on."""
        if snapshot != self._snapshot:
            self._snapshot, self._known = snapshot, None

    def of(self, partition: bytes) -> int:
        """The number of buckets of a partition; -1 where they are dynamic.

        Raises:
            FormatError: the metadata of the table is damaged.
        """
        if self._fixed != POSTPONE_BUCKET:
            return self.chosen.get(partition, self._fixed)
        return self.load_counts().of(partition)

    def load_counts(self) -> KnownBuckets:
        """Load the bucket counts of all partitions of a table with postponed buckets, once per snapshot.

        Raises:
            FormatError: the metadata of the table is damaged.
        """
        if self._known is None:
            others = self.options.of(PostponeOptions).batch_buckets_for(rows=0, size=0)
            self._known = KnownBuckets(self._there(), others)
        return self._known

    def _there(self) -> dict[bytes, int]:
        if self._snapshot is None or self.afresh:
            return dict(self.chosen)
        entries = count_entries(self.store, self._snapshot)
        return bucket_counts(entries, self.options.of(PostponeOptions), self.chosen)


def count_entries(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """The columns of the live files of a snapshot that `bucket_counts` needs.

    Raises:
        FormatError: the metadata of the table is damaged.
    """
    return live_entries(store.manifests, data_manifests(store.manifests, snapshot), columns=COUNT_COLUMNS)
