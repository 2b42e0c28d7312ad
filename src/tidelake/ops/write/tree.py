"""The LSM tree of one bucket while a writer adds to it: new level-0 files, and a compaction in the background.

At most one compaction of a bucket runs at a time; a trigger while it runs is remembered for `settle`. Its result is
applied when it is collected, to the tree as it is then: files that came while it ran are newer and stay where they are.

Invariant: `levels` is what the table will have when the messages so far are committed. No snapshot ever refers to the
files of a compaction that is not collected; `discard` removes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tidelake.errors import StorageError
from tidelake.io.clock import local_time_ms
from tidelake.io.executor import Task
from tidelake.lsm.levels import Levels
from tidelake.lsm.pick import PickState
from tidelake.ops.commit.messages import CommitMessage, CompactIncrement, DataIncrement
from tidelake.ops.compact.keyed import Bucket, pick, run_compaction
from tidelake.ops.write.increments import find_temporary_files, find_temporary_indexes, join_increments, made_by
from tidelake.spec.data_file import DataFile
from tidelake.spec.manifests.index_manifest import IndexFile
from tidelake.store.deletion_vectors import remove_index_files


@dataclass(frozen=True, slots=True)
class Running:
    """A running compaction, with its bucket and input files."""

    task: Task[CompactIncrement]
    bucket: Bucket
    inputs: frozenset[tuple[str, int]]
    known: frozenset[tuple[str, int]]
    """All files of the bucket when it was planned."""
    newest: int
    """The greatest sequence number in its input files."""
    base_snapshot_id: int

    def fits(self, levels: Levels) -> bool:
        """Whether all files that it reads are still on their levels, and all files that came since are newer."""
        there = {(file.name, file.level): file.meta.min_sequence for file in levels.files}
        came = there.keys() - self.known
        return self.inputs <= there.keys() and all(there[each] > self.newest for each in came)

    def discard(self) -> None:
        """Wait for it and remove its new files; errors of the compaction do not matter any more."""
        with suppress(Exception):
            increment = self.task.result()
            remove_files(self.bucket, made_by([increment]))
            remove_indexes(self.bucket, increment.new_index_files)


@dataclass(slots=True)
class Tree:
    """A bucket that is being written to. Not shared between threads."""

    bucket: Bucket
    levels: Levels
    state: PickState
    next_sequence: int
    base_snapshot_id: int
    running: Running | None = None
    held: bool = False
    """Whether a compaction of an earlier round is still running, so that no other may start."""
    planned_on: int = field(init=False)
    """The oldest snapshot that the changes were planned on; a compaction may come from an earlier round."""
    missed: bool = False
    """Whether a compaction was triggered while another one ran, so that one may be due."""
    written: list[DataFile] = field(default_factory=list)
    changelog: list[DataFile] = field(default_factory=list)
    """The changelog files of the written rows."""
    compacted: list[CompactIncrement] = field(default_factory=list)
    waited_s: float = 0.0
    """How long this writer waited for compactions of the bucket."""

    def __post_init__(self) -> None:
        self.planned_on = self.base_snapshot_id

    @property
    def runs(self) -> int:
        """The current number of sorted runs."""
        return self.levels.number_of_sorted_runs

    def numbers(self, count: int) -> int:
        """Reserve sequence numbers, and return the first."""
        first = self.next_sequence
        self.next_sequence += count
        return first

    def add(self, files: Sequence[DataFile], changelog: Sequence[DataFile] = ()) -> None:
        """Add new level-0 files, and the changelog files of their rows."""
        self.written += files
        self.changelog += changelog
        self.levels = self.levels.apply((), self.bucket.merging.files(files))

    def trigger(self, *, full: bool = False) -> None:
        """Start the compaction that is due, unless one runs.

        Raises:
            UnsupportedError: the table's compactions do more than merge.
        """
        self.missed = self.running is not None
        if self.missed or self.held or self._holds_newer_schema():
            return
        store = self.bucket.store
        now = local_time_ms(store.env.clock)
        chosen, self.state = pick(self.levels, self.bucket, self.state, now_ms=now, full=full)
        if chosen is None:
            return
        bucket, levels, compaction = self.bucket, self.levels, chosen
        task = store.env.executor.start(lambda: run_compaction(bucket, levels, compaction)[0])
        inputs = frozenset((file.name, file.level) for file in compaction.files)
        known = frozenset((file.name, file.level) for file in levels.files)
        newest = max(file.meta.max_sequence for file in compaction.files)
        self.running = Running(task, bucket, inputs, known, newest, self.base_snapshot_id)

    def _holds_newer_schema(self) -> bool:
        """Whether a file has a newer schema: a compaction by this writer would drop the columns that it does not know.

        Compactions of the bucket are then left to writers that know the newer schema.
        """
        known = self.bucket.store.schema.id
        return any(file.meta.schema_id > known for file in self.levels.files)

    def collect(self, *, wait: bool) -> None:
        """Apply the result of the running compaction, if it is done or `wait` is set.

        Raises:
            TidelakeError: the compaction failed.
        """
        if self.running is None or not (wait or self.running.task.done()):
            return
        running, clock = self.running, self.bucket.store.env.clock
        started = clock.monotonic()
        try:
            increment = running.task.result()
        except Exception:
            self.running = None
            raise
        self.waited_s += clock.monotonic() - started
        self.planned_on = min(self.planned_on, running.base_snapshot_id)
        files = self.bucket.merging.files
        self.levels = self.levels.apply(files(increment.before), files(increment.after))
        self.bucket = self.bucket.after(increment)
        self.compacted.append(increment)
        self.running = None  # only now: after an interrupt `discard` has to wait for it and to find its files

    def settle(self) -> None:
        """Wait for the running compaction, and for the one that became due while it ran.

        Raises:
            TidelakeError: a compaction failed.
        """
        self.collect(wait=True)
        if self.missed:
            self.trigger()
            self.collect(wait=True)

    def compact_fully(self) -> None:
        """Start a full compaction, after the one that is running.

        Raises:
            TidelakeError: the compaction before it failed.
        """
        self.collect(wait=True)
        self.trigger(full=True)

    def message(self, new: IndexFile | None, old: IndexFile | None, *, at_once: bool = False) -> CommitMessage:
        """Describe the changes for the committer; files that no snapshot will ever refer to are removed.

        Args:
            new: The hash index of the bucket, if it changed.
            old: The one that it replaces.
            at_once: Whether compacted files count as written, because all inputs were files of this writer. Then no
                snapshot has level-0 rows that readers do not see yet.
        """
        split = self.bucket.split
        written, compact = tuple(self.written), join_increments(self.compacted)
        temporary = find_temporary_files(self.compacted)
        indexes: tuple[IndexFile, ...] = ()
        if at_once:
            read = {file.file_name for file in compact.before}
            written = (*(file for file in written if file.file_name not in read), *compact.after)
            named = {file.file_name for file in written}
            temporary += tuple(file for file in compact.before if file.file_name not in named) + compact.changelog_files
            indexes = compact.new_index_files
            compact = CompactIncrement()
        found = CommitMessage(
            partition=split.partition,
            bucket=split.bucket,
            total_buckets=split.total_buckets,
            data=DataIncrement(
                new_files=written,
                changelog_files=tuple(self.changelog),
                new_index_files=indexes if new is None else (new, *indexes),
                deleted_index_files=() if old is None else (old,),
            ),
            compact=compact,
            base_snapshot_id=self.planned_on,
            compaction_wait_ms=round(self.waited_s * 1_000),
        )
        remove_files(self.bucket, temporary)
        remove_indexes(self.bucket, find_temporary_indexes(self.compacted))
        return found

    def discard(self) -> None:
        """Remove all files that were written here."""
        if self.running is not None:
            self.running.discard()
            self.running = None
        remove_files(self.bucket, [*self.written, *self.changelog, *made_by(self.compacted)])
        remove_indexes(self.bucket, [file for increment in self.compacted for file in increment.new_index_files])


def remove_files(bucket: Bucket, files: Iterable[DataFile]) -> None:
    """Delete files that no snapshot refers to; orphan cleaning finds those that the storage does not delete."""
    for file in files:
        with suppress(StorageError):
            bucket.store.env.io.delete(bucket.split.path_of(file))


def remove_indexes(bucket: Bucket, files: Sequence[IndexFile]) -> None:
    """Delete index files that no snapshot refers to; orphan cleaning finds those that the storage does not delete."""
    if bucket.vectors is not None and files:
        split = bucket.split
        remove_index_files(bucket.store, bucket.vectors.paths, files, partition=split.partition, bucket=split.bucket)
