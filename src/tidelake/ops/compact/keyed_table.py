"""Compaction of a primary-key table: bucket by bucket, several at a time, one commit for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby

from tidelake.expr.tree import Predicate
from tidelake.files.options import FileOptions
from tidelake.io.clock import local_time_ms
from tidelake.lsm.levels import Levels, build_levels
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import Compaction, first_state
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.compact.keyed import Bucket, pick, run_compaction
from tidelake.ops.read.keyed import Merging
from tidelake.ops.scan.partitions import PartitionFilter, PartitionPredicate
from tidelake.ops.scan.plan import EVERY_PARTITION, data_manifests, live_entries
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import DataFile, data_files
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

Progress = Callable[[int, int], None]
"""Told how many of how many steps are done."""


@dataclass(frozen=True, slots=True)
class BucketCompaction:
    """What is due in one bucket."""

    bucket: Bucket
    levels: Levels
    compaction: Compaction

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files it takes in."""
        return tuple(file.meta for file in self.compaction.files)


def plan_buckets(
    store: TableStore, paths: DataPaths, options: Mapping[str, str], *, full: bool, where: Predicate | None, thin: bool
) -> tuple[BucketCompaction, ...]:
    """The compactions that are due in the newest snapshot; `where` chooses partitions.

    Raises:
        UnsupportedError: the table's compactions do more than merge.
    """
    snapshot = store.snapshots.latest()
    if snapshot is None:
        return ()
    schema = store.schema
    partitions: PartitionFilter = EVERY_PARTITION
    if where is not None:
        partitions = PartitionPredicate(where, tuple(schema.partition_keys), tuple(schema.partition_types))
    entries = live_entries(store.manifests, data_manifests(store.manifests, snapshot), partitions=partitions)
    ordered = entries.sort_by([("partition", "ascending"), ("bucket", "ascending")])
    places = zip(*(ordered.column(name).to_pylist() for name in ("partition", "bucket", "total_buckets")), strict=True)
    merging, tuned = Merging(schema, options), CompactionOptions.parse(options)
    now = local_time_ms(store.env.clock)
    found = []
    for (partition, number), group in groupby(zip(places, data_files(ordered), strict=True), key=lambda x: x[0][:2]):
        members = list(group)
        if number < 0:
            continue
        split = Split(
            snapshot_id=snapshot.id,
            partition=partition,
            bucket=number,
            bucket_path=paths.bucket(partition, number),
            total_buckets=members[0][0][2],
            files=(),
        )
        bucket = Bucket(store, split, merging, FileOptions.parse(options), tuned, thin)
        levels = build_levels(merging.files([file for _, file in members]), num_levels=tuned.num_levels)
        chosen, _ = pick(levels, bucket, first_state(levels), now_ms=now, full=full)
        if chosen is not None:
            found.append(BucketCompaction(bucket, levels, chosen))
    return tuple(found)


def compact_buckets(plan: tuple[BucketCompaction, ...], progress: Progress | None = None) -> list[CommitMessage]:
    """Carry compactions out, as many at a time as the lake has threads.

    Raises:
        FormatError: a file is missing or damaged.
        StorageError: the storage failed; what was written is left to orphan cleaning.
    """
    done = 0

    def act(each: BucketCompaction) -> CommitMessage:
        nonlocal done
        increment, _ = run_compaction(each.bucket, each.levels, each.compaction)
        split = each.bucket.split
        done += 1
        if progress:
            progress(done, len(plan))
        return CommitMessage(
            partition=split.partition, bucket=split.bucket, total_buckets=split.total_buckets, compact=increment
        )

    return plan[0].bucket.store.env.executor.map(act, plan) if plan else []
