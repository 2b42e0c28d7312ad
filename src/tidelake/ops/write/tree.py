"""The tree of one bucket while a writer adds to it: new files of level 0, and the compaction that runs beside.

At most one compaction of a bucket runs at a time; a trigger meanwhile is remembered for `settle`. Its result counts
once it is collected, on the tree as it is then: files that came meanwhile are younger and stay where they are.

Invariant: `levels` is what the table will hold once the messages so far are committed. The files of a compaction that
is never collected belong to nobody; `discard` removes them.
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
from tidelake.ops.write.increments import joined, made_by, passing, passing_indexes
from tidelake.spec.data_file import DataFile
from tidelake.spec.index_manifest import IndexFile
from tidelake.store.vectors import remove_index_files


@dataclass(frozen=True, slots=True)
class Running:
    """A compaction that was started, and what it was started on."""

    task: Task[CompactIncrement]
    bucket: Bucket
    inputs: frozenset[tuple[str, int]]
    base_snapshot_id: int

    def fits(self, levels: Levels) -> bool:
        """Whether all the files it read are still where they were."""
        return self.inputs <= {(file.name, file.level) for file in levels.files}

    def discard(self) -> None:
        """Wait for it and remove what it made; whether it failed no longer matters."""
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
    """Whether a compaction of an earlier round is still to be settled, so that none may be started."""
    planned_on: int = field(init=False)
    """The oldest snapshot that anything done here was planned on: a compaction may be of an earlier round."""
    missed: bool = False
    """Whether files came while a compaction ran, so that another may be due."""
    written: list[DataFile] = field(default_factory=list)
    told: list[DataFile] = field(default_factory=list)
    """Changelog files of what was written."""
    compacted: list[CompactIncrement] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.planned_on = self.base_snapshot_id

    @property
    def runs(self) -> int:
        """Sorted runs as of now."""
        return self.levels.number_of_sorted_runs

    def numbers(self, count: int) -> int:
        """The first of so many sequence numbers, which are used up."""
        first = self.next_sequence
        self.next_sequence += count
        return first

    def add(self, files: Sequence[DataFile], changelog: Sequence[DataFile] = ()) -> None:
        """Take in new files of level 0, and the changelog files of their rows."""
        self.written += files
        self.told += changelog
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
        self.running = Running(task, bucket, inputs, self.base_snapshot_id)

    def _holds_newer_schema(self) -> bool:
        """Whether a file has columns that this writer does not know: rows that it wrote again would lose them.

        Compactions of the bucket are then left to writers that opened the table since.
        """
        known = self.bucket.store.schema.id
        return any(file.meta.schema_id > known for file in self.levels.files)

    def collect(self, *, wait: bool) -> None:
        """Take over the result of the compaction that ran, if it has ended or is worth waiting for.

        Raises:
            TidelakeError: whatever made the compaction fail.
        """
        if self.running is None or not (wait or self.running.task.done()):
            return
        running = self.running
        try:
            increment = running.task.result()
        except Exception:
            self.running = None
            raise
        self.planned_on = min(self.planned_on, running.base_snapshot_id)
        files = self.bucket.merging.files
        self.levels = self.levels.apply(files(increment.before), files(increment.after))
        self.bucket = self.bucket.after(increment)
        self.compacted.append(increment)
        self.running = None  # only now: after an interrupt `discard` has to wait for it and to find its files

    def settle(self) -> None:
        """Wait for the compaction that runs, and for the one that became due meanwhile.

        Raises:
            TidelakeError: whatever made a compaction fail.
        """
        self.collect(wait=True)
        if self.missed:
            self.trigger()
            self.collect(wait=True)

    def compact_fully(self) -> None:
        """Start a full compaction, behind the one that runs.

        Raises:
            TidelakeError: whatever made the compaction before it fail.
        """
        self.collect(wait=True)
        self.trigger(full=True)

    def message(self, new: IndexFile | None, old: IndexFile | None, *, at_once: bool = False) -> CommitMessage:
        """What was done, for the committer; files that no commit will ever name are removed.

        Args:
            new: The hash index of the bucket, if it changed.
            old: The one that it replaces.
            at_once: Whether what was compacted counts as written, because only files of this writer were: then no
                snapshot shows rows that still wait for a compaction.
        """
        split = self.bucket.split
        written, compact, nobodys = tuple(self.written), joined(self.compacted), passing(self.compacted)
        indexes: tuple[IndexFile, ...] = ()
        if at_once:
            read = {file.file_name for file in compact.before}
            written = (*(file for file in written if file.file_name not in read), *compact.after)
            named = {file.file_name for file in written}
            nobodys += tuple(file for file in compact.before if file.file_name not in named) + compact.changelog_files
            indexes = compact.new_index_files
            compact = CompactIncrement()
        found = CommitMessage(
            partition=split.partition,
            bucket=split.bucket,
            total_buckets=split.total_buckets,
            data=DataIncrement(
                new_files=written,
                changelog_files=tuple(self.told),
                new_index_files=indexes if new is None else (new, *indexes),
                deleted_index_files=() if old is None else (old,),
            ),
            compact=compact,
            base_snapshot_id=self.planned_on,
        )
        remove_files(self.bucket, nobodys)
        remove_indexes(self.bucket, passing_indexes(self.compacted))
        return found

    def discard(self) -> None:
        """Remove everything that was written here."""
        if self.running is not None:
            self.running.discard()
            self.running = None
        remove_files(self.bucket, [*self.written, *self.told, *made_by(self.compacted)])
        remove_indexes(self.bucket, [file for increment in self.compacted for file in increment.new_index_files])


def remove_files(bucket: Bucket, files: Iterable[DataFile]) -> None:
    """Delete files that belong to nobody, as far as the storage lets us; orphan cleaning finds the rest."""
    for file in files:
        with suppress(StorageError):
            bucket.store.env.io.delete(bucket.split.path_of(file))


def remove_indexes(bucket: Bucket, files: Sequence[IndexFile]) -> None:
    """Delete index files that belong to nobody, as far as the storage lets us; orphan cleaning finds the rest."""
    if bucket.vectors is not None and files:
        split = bucket.split
        remove_index_files(bucket.store, bucket.vectors.paths, files, partition=split.partition, bucket=split.bucket)
