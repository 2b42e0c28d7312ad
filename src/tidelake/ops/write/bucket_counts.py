"""How many buckets each partition has: the table's number, or where that is postponed a number for each partition.

Invariant: a partition that has buckets keeps their number; one that has none gets what was decided for it before its
first row is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from tidelake.ops.scan.options import BucketOptions
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.ops.scan.postponed import PostponeOptions, bucket_counts
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.spec.snapshot import Snapshot
from tidelake.store.table_store import TableStore

__all__ = ["COUNT_COLUMNS", "BucketCounts", "KnownBuckets", "PartitionBuckets", "count_entries"]

COUNT_COLUMNS = ("partition", "bucket", "total_buckets", "row_count", "file_size")


class BucketCounts(Protocol):
    """Who knows how many buckets partitions have."""

    def of(self, partition: bytes) -> int:
        """The number of buckets of a partition; -1 where they are dynamic."""


@dataclass(frozen=True, slots=True)
class KnownBuckets:
    """The number of buckets of partitions at one state of the table. It pickles, so that tasks can share it."""

    counts: Mapping[bytes, int]
    others: int
    """That of partitions that have none."""

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
    options: Mapping[str, str]
    chosen: Mapping[bytes, int] = field(default_factory=dict)
    """What was decided for partitions that have none."""
    afresh: bool = False
    """Whether what is there is replaced, so that its number of buckets does not matter."""
    _snapshot: Snapshot | None = None
    _known: KnownBuckets | None = None
    _fixed: int = field(init=False)

    def __post_init__(self) -> None:
        self._fixed = BucketOptions.parse(self.options).bucket

    def start(self, snapshot: Snapshot | None) -> None:
        """Look at this state of the table from now on."""
        if snapshot != self._snapshot:
            self._snapshot, self._known = snapshot, None

    def of(self, partition: bytes) -> int:
        """The number of buckets of a partition; -1 where they are dynamic.

        Raises:
            FormatError: the metadata of the table is damaged.
        """
        if self._fixed != POSTPONE_BUCKET:
            return self._fixed
        return self.known().of(partition)

    def known(self) -> KnownBuckets:
        """The numbers of all partitions of a table that leaves them open.

        Raises:
            FormatError: the metadata of the table is damaged.
        """
        if self._known is None:
            others = PostponeOptions.parse(self.options).batch_buckets_for(rows=0, size=0)
            self._known = KnownBuckets(self._there(), others)
        return self._known

    def _there(self) -> dict[bytes, int]:
        if self._snapshot is None or self.afresh:
            return dict(self.chosen)
        entries = count_entries(self.store, self._snapshot)
        return bucket_counts(entries, PostponeOptions.parse(self.options), self.chosen)


def count_entries(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """What `bucket_counts` has to know of the live files of a snapshot.

    Raises:
        FormatError: the metadata of the table is damaged.
    """
    return live_entries(store.manifests, data_manifests(store.manifests, snapshot), columns=COUNT_COLUMNS)
