"""Compaction of the buckets of a primary-key table: which are due, and the step that compacts each of them.

A step knows its files but holds no store, so that any process can run it. It merges its bucket window by window:
memory does not grow with the bucket.
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
from tidelake.ops.compact.keyed import Bucket, bucket_vectors, pick, run_compaction, with_vectors
from tidelake.ops.context import TableContext
from tidelake.ops.read.keyed import Merging
from tidelake.ops.scan.split import Split
from tidelake.ops.vectors.vector_writer import index_files_of
from tidelake.spec.data_file import DataFile
from tidelake.spec.manifests.index_manifest import IndexFile


@dataclass(frozen=True, slots=True)
class Tree:
    """A bucket with its levels and the state of the picker."""

    bucket: Bucket
    levels: Levels
    state: PickState

    def due(self, *, now_ms: int, full: bool = False) -> tuple[BucketCompaction | None, Tree]:
        """The compaction that is due, if any, and the tree to use for the next call.

        Raises:
            UnsupportedError: the table's compactions do more than merge.
        """
        chosen, state = pick(self.levels, self.bucket, self.state, now_ms=now_ms, full=full)
        indexes = () if self.bucket.vectors is None else self.bucket.vectors.indexes
        found = None if chosen is None else BucketCompaction(self.bucket.split, self.levels, chosen, indexes)
        return found, replace(self, state=state)

    def seen_at(self, snapshot_id: int) -> Tree:
        """The same tree, now known to be unchanged up to a snapshot."""
        known = max(self.bucket.split.snapshot_id, snapshot_id)
        return replace(self, bucket=replace(self.bucket, split=replace(self.bucket.split, snapshot_id=known)))

    def after(self, message: CommitMessage) -> Tree:
        """The tree once a compaction of it is committed.

        Raises:
            InvalidInputError: the compaction took files that the tree does not have.
        """
        before, after = (self.bucket.merging.files(files) for files in (message.compact.before, message.compact.after))
        return replace(self, bucket=self.bucket.after(message.compact), levels=self.levels.apply(before, after))


@dataclass(frozen=True, slots=True)
class BucketCompaction:
    """What is due in one bucket. It pickles and carries no credential."""

    split: Split
    """The bucket, without files."""
    levels: Levels
    compaction: Compaction
    indexes: tuple[IndexFile, ...] = ()
    """The index files with the deletion vectors of the bucket."""

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files that it rewrites or upgrades."""
        return tuple(file.meta for file in self.compaction.files)

    @property
    def output_level(self) -> int:
        """The level of the new files."""
        return self.compaction.output_level


def open_trees(context: TableContext, buckets: Sequence[Split]) -> list[Tree]:
    """Buckets of a primary-key table, given with all their files, as trees."""
    if not buckets:
        return []
    known, snapshots = _bucket(context, buckets[0]), context.store.snapshots
    with snapshots.held_to(buckets[0].snapshot_id):
        indexes = index_files_of(context.store, snapshots.get(buckets[0].snapshot_id))
    trees = []
    for split in buckets:
        levels = build_levels(known.merging.files(split.files), num_levels=known.options.num_levels)
        vectors = bucket_vectors(context.paths, context.options, indexes.get((split.partition, split.bucket), ()))
        bucket = with_vectors(replace(known, split=replace(split, files=()), vectors=vectors))
        trees.append(Tree(bucket, levels, first_state(levels)))
    return trees


def _bucket(context: TableContext, split: Split) -> Bucket:
    merging = Merging(context.store.schema, context.options)
    files, tuned = context.options.of(FileOptions), context.options.of(CompactionOptions)
    return Bucket(context.store, split, merging, files, tuned)


def plan_buckets(context: TableContext, buckets: Sequence[Split], *, full: bool) -> tuple[BucketCompaction, ...]:
    """The compactions that are due in these buckets, given with all their files.

    Raises:
        UnsupportedError: the table's compactions do more than merge.
    """
    now = local_time_ms(context.store.env.clock)
    found = (tree.due(now_ms=now, full=full)[0] for tree in open_trees(context, buckets))
    return tuple(each for each in found if each is not None)


def compact_bucket(context: TableContext, step: BucketCompaction) -> CommitMessage:
    """Compact one bucket; if it fails, the files it wrote are removed.

    Raises:
        FormatError: a file is missing or damaged.
        StorageError: the storage failed.
        InvalidInputError: a merge gives a null where the table has none, or rows expire by a column without a time.
    """
    split = step.split
    bucket = replace(_bucket(context, split), vectors=bucket_vectors(context.paths, context.options, step.indexes))
    increment, _ = run_compaction(bucket, step.levels, step.compaction)
    return CommitMessage(
        partition=split.partition,
        bucket=split.bucket,
        total_buckets=split.total_buckets,
        compact=increment,
        base_snapshot_id=split.snapshot_id,
    )
