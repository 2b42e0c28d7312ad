"""Compaction of the buckets of a primary-key table: which are due, and several of them at a time.

Memory is bounded by the number of threads: each merges one bucket, window by window. If one bucket fails, what the
others wrote is removed, whether it was finished by then or is finished later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tidelake.files.options import FileOptions
from tidelake.io.clock import local_time_ms
from tidelake.io.executor import mutex
from tidelake.lsm.levels import Levels, build_levels
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import Compaction, PickState, first_state
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.compact.buckets import Job
from tidelake.ops.compact.keyed import Bucket, pick, run_compaction
from tidelake.ops.compact.publish import remove_files
from tidelake.ops.read.keyed import Merging
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import DataFile

Progress = Callable[[int, int], None]
"""Told how many of how many steps are done."""


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
        found = None if chosen is None else BucketCompaction(self.bucket, self.levels, chosen)
        return found, replace(self, state=state)


@dataclass(frozen=True, slots=True)
class BucketCompaction:
    """What is due in one bucket."""

    bucket: Bucket
    levels: Levels
    compaction: Compaction

    @property
    def split(self) -> Split:
        """The bucket it concerns."""
        return self.bucket.split

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files it takes in."""
        return tuple(file.meta for file in self.compaction.files)

    @property
    def output_level(self) -> int:
        """The level of what it makes."""
        return self.compaction.output_level


@dataclass(frozen=True, slots=True)
class Compacted:
    """A bucket that was compacted: the message that says so, and the levels once it is committed."""

    message: CommitMessage
    levels: Levels


def open_trees(job: Job, buckets: Sequence[Split]) -> list[Tree]:
    """Buckets of a primary-key table, given with all their files, as trees."""
    merging = Merging(job.store.schema, job.options)
    tuned, files = CompactionOptions.parse(job.options), FileOptions.parse(job.options)
    trees = []
    for split in buckets:
        levels = build_levels(merging.files(split.files), num_levels=tuned.num_levels)
        bucket = Bucket(job.store, replace(split, files=()), merging, files, tuned, job.thin)
        trees.append(Tree(bucket, levels, first_state(levels)))
    return trees


def plan_buckets(job: Job, buckets: Sequence[Split], *, full: bool) -> tuple[BucketCompaction, ...]:
    """The compactions that are due in these buckets, given with all their files.

    Raises:
        UnsupportedError: the table's compactions do more than merge.
    """
    now = local_time_ms(job.store.env.clock)
    found = (tree.due(now_ms=now, full=full)[0] for tree in open_trees(job, buckets))
    return tuple(each for each in found if each is not None)


def compact_buckets(
    job: Job, plan: Sequence[BucketCompaction], progress: Progress | None = None
) -> tuple[Compacted, ...]:
    """Carry compactions out, as many at a time as the lake has threads; the answers are in the order of the plan.

    Raises:
        FormatError: a file is missing or damaged; nothing is left behind.
        StorageError: the storage failed; nothing is left behind that it lets us remove.
    """
    gathered = _Gathered(job, len(plan), progress)

    def act(number: int) -> None:
        if gathered.stopped:
            return
        each = plan[number]
        increment, levels = run_compaction(each.bucket, each.levels, each.compaction)
        split = each.split
        message = CommitMessage(
            partition=split.partition, bucket=split.bucket, total_buckets=split.total_buckets, compact=increment
        )
        gathered.take(number, Compacted(message, levels))

    try:
        job.store.env.executor.map(act, range(len(plan)))
    except BaseException:
        gathered.stop()
        raise
    return tuple(gathered.made[number] for number in range(len(plan)))


class _Gathered:
    """What threads have finished; once stopped, nothing stays that nobody would commit."""

    def __init__(self, job: Job, count: int, progress: Progress | None) -> None:
        self._job, self._count, self._progress = job, count, progress
        self._lock = mutex()
        self.made: dict[int, Compacted] = {}
        self.stopped = False

    def take(self, number: int, compacted: Compacted) -> None:
        with self._lock:
            late = self.stopped
            if not late:
                self.made[number] = compacted
                if self._progress:
                    self._progress(len(self.made), self._count)
        if late:  # another bucket failed meanwhile
            remove_files(self._job, [compacted.message])

    def stop(self) -> None:
        with self._lock:
            self.stopped = True
        remove_files(self._job, [each.message for each in self.made.values()])
