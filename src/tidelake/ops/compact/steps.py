"""Steps of a compaction: values that any process which opened the table can carry out, and where that happens.

A step holds neither a store nor a credential and pickles. It may be carried out more than once, since its new files
belong to nobody until their message is committed. Invariant: once one step has failed, no other is begun any more, and
the new files of all others are removed, whether they were finished by then or are finished later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tidelake.files.options import FileOptions
from tidelake.io.executor import mutex
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.compact.append import Rewrite, run_rewrite
from tidelake.ops.compact.buckets import Job
from tidelake.ops.compact.publish import remove_files

if TYPE_CHECKING:  # append tables do without the tree
    from tidelake.ops.compact.keyed_table import BucketCompaction

Step: TypeAlias = "Rewrite | BucketCompaction"
"""Files of one bucket that become others."""
Progress = Callable[[int, int], None]
"""Told how many of how many steps are done."""


class Hands(Protocol):
    """Who carries steps out: the threads of this process, or the tasks of an engine."""

    def carry_out(self, job: Job, steps: Sequence[Step], gathered: Gathered) -> None:
        """Let `gathered.attempt` make the message of every step, in any order and several at a time.

        Raises:
            FormatError: a file is missing or damaged.
            StorageError: the storage, or what carries the steps out, failed.
        """


class Gathered:
    """The messages of the steps that are done."""

    def __init__(self, job: Job, count: int, progress: Progress | None) -> None:
        self._job, self._count, self._progress = job, count, progress
        self._lock = mutex()
        self._stopped = False
        self.made: dict[int, CommitMessage] = {}

    def attempt(self, work: Callable[[], Mapping[int, CommitMessage]]) -> None:
        """Carry some steps out, unless another one has failed: `work` gives their messages by their numbers."""
        with self._lock:
            if self._stopped:
                return
        try:
            self._take(work())
        except BaseException:
            self.stop()
            raise

    def _take(self, made: Mapping[int, CommitMessage]) -> None:
        with self._lock:
            if not self._stopped:
                self.made.update(made)
                if self._progress:
                    self._progress(len(self.made), self._count)
                return
        remove_files(self._job, made.values())

    def stop(self) -> None:
        """Begin nothing more, and remove what was made."""
        with self._lock:
            self._stopped = True
            made, self.made = self.made, {}
        remove_files(self._job, made.values())


class Threads:
    """Carries steps out in this process, as many at a time as the lake has threads; each takes bounded memory."""

    def carry_out(self, job: Job, steps: Sequence[Step], gathered: Gathered) -> None:
        """Run the steps in their order."""

        def act(number: int) -> None:
            gathered.attempt(lambda: {number: run_step(job, steps[number])})

        job.store.env.executor.map(act, range(len(steps)))


def run_steps(
    job: Job, steps: Sequence[Step], hands: Hands | None = None, progress: Progress | None = None
) -> list[CommitMessage]:
    """Carry steps out; the messages are in the order of the steps.

    Raises:
        FormatError: a file is missing or damaged; nothing is left behind.
        StorageError: the storage failed; nothing is left behind that it lets us remove.
    """
    gathered = Gathered(job, len(steps), progress)
    try:
        (hands or Threads()).carry_out(job, steps, gathered)
    except BaseException:
        gathered.stop()
        raise
    return [gathered.made[number] for number in range(len(steps))]


def run_step(job: Job, step: Step) -> CommitMessage:
    """Carry one step out; what it wrote is removed again if it fails.

    Raises:
        FormatError: a file is missing or damaged.
        StorageError: the storage failed.
        InvalidInputError: a merge gives a null where the table has none, or rows expire by a column without a time.
    """
    if isinstance(step, Rewrite):
        return run_rewrite(job.store, job.paths, step, FileOptions.parse(job.options))
    from tidelake.ops.compact.keyed_table import compact_bucket

    return compact_bucket(job, step)
