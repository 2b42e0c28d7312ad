"""Compaction of the buckets of a primary-key table: which are due, and the step that each of them is.

A step knows its files and not the store they lie in, so that it can be carried out anywhere. It merges its bucket
window by window: memory does not grow with the bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelake.files.options import FileOptions
from tidelake.io.clock import local_time_ms
from tidelake.lsm.levels import Levels, build_levels
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import Compaction, PickState, first_state
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.compact.buckets import Job
from tidelake.ops.compact.keyed import Bucket, bucket_vectors, pick, run_compaction, with_vectors
from tidelake.ops.compact.vectors import index_files_of
from tidelake.ops.read.keyed import Merging
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import DataFile
from tidelake.spec.index_manifest import IndexFile


@dataclass(frozen=True, slots=True)
class Tree:
    """A bucket with its levels, and what the picker remembers of it."""

    bucket: Bucket
    levels: Levels
    state: PickState

    def due(self, *, now_ms: int, full: bool = False) -> tuple[BucketCompaction | None, Tree]:
        """The compaction that is due, if any, and the tree to ask next time.

        Raises:
            UnsupportedError: the table's compactions do more than merge.
        """
        chosen, state = pick(self.levels, self.bucket, self.state, now_ms=now_ms, full=full)
        indexes = () if self.bucket.vectors is None else self.bucket.vectors.indexes
        found = None if chosen is None else BucketCompaction(self.bucket.split, self.levels, chosen, indexes)
        return found, replace(self, state=state)

    def seen_at(self, snapshot_id: int) -> Tree:
        """The tree, known to be as it was at a snapshot."""
        known = max(self.bucket.split.snapshot_id, snapshot_id)
        return replace(self, bucket=replace(self.bucket, split=replace(self.bucket.split, snapshot_id=known)))

    def after(self, message: CommitMessage) -> Tree:
        """The tree once a compaction of it is committed.

        Raises:
            InvalidInputError: it took files that are not there.
        """
        before, after = (self.bucket.merging.files(files) for files in (message.compact.before, message.compact.after))
        return replace(self, bucket=self.bucket.after(message.compact), levels=self.levels.apply(before, after))


@dataclass(frozen=True, slots=True)
class BucketCompaction:
    """What is due in one bucket. It pickles and carries no credential."""

    split: Split
    """The bucket it concerns, without files."""
    levels: Levels
    compaction: Compaction
    indexes: tuple[IndexFile, ...] = ()
    """The index files with the deletion vectors of the bucket."""

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files it takes in."""
        return tuple(file.meta for file in self.compaction.files)

    @property
    def output_level(self) -> int:
        """The level of what it makes."""
        return self.compaction.output_level


def open_trees(job: Job, buckets: Sequence[Split]) -> list[Tree]:
    """Buckets of a primary-key table, given with all their files, as trees."""
    if not buckets:
        return []
    known, snapshots = _bucket(job, buckets[0]), job.store.snapshots
    with snapshots.held_to(buckets[0].snapshot_id):
        indexes = index_files_of(job.store, snapshots.get(buckets[0].snapshot_id))
    trees = []
    for split in buckets:
        levels = build_levels(known.merging.files(split.files), num_levels=known.options.num_levels)
        vectors = bucket_vectors(job.paths, job.options, indexes.get((split.partition, split.bucket), ()))
        bucket = with_vectors(replace(known, split=replace(split, files=()), vectors=vectors))
        trees.append(Tree(bucket, levels, first_state(levels)))
    return trees


def _bucket(job: Job, split: Split) -> Bucket:
    merging = Merging(job.store.schema, job.options)
    files, tuned = FileOptions.parse(job.options), CompactionOptions.parse(job.options)
    return Bucket(job.store, split, merging, files, tuned, job.thin)


def plan_buckets(job: Job, buckets: Sequence[Split], *, full: bool) -> tuple[BucketCompaction, ...]:
    """The compactions that are due in these buckets, given with all their files.

    Raises:
        UnsupportedError: the table's compactions do more than merge.
    """
    now = local_time_ms(job.store.env.clock)
    found = (tree.due(now_ms=now, full=full)[0] for tree in open_trees(job, buckets))
    return tuple(each for each in found if each is not None)


def compact_bucket(job: Job, step: BucketCompaction) -> CommitMessage:
    """Carry out what is due in one bucket; what it wrote is removed again if it fails.

    Raises:
        FormatError: a file is missing or damaged.
        StorageError: the storage failed.
        InvalidInputError: a merge gives a null where the table has none, or rows expire by a column without a time.
    """
    split = step.split
    bucket = replace(_bucket(job, split), vectors=bucket_vectors(job.paths, job.options, step.indexes))
    increment, _ = run_compaction(bucket, step.levels, step.compaction)
    return CommitMessage(
        partition=split.partition,
        bucket=split.bucket,
        total_buckets=split.total_buckets,
        compact=increment,
        base_snapshot_id=split.snapshot_id,
    )
