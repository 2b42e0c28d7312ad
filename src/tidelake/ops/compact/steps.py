"""Steps of a compaction, which any process that opened the table can run, and the step runners.

A step holds neither a store nor a credential and pickles. It may run more than once, because no snapshot refers to its
new files until their message is committed. Invariant: once one step has failed, no other is started, and the new files
of all others are removed, whether they are finished already or finish later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tidelake.cleanup import undo_on_error
from tidelake.files.options import FileOptions
from tidelake.io.executor import mutex
from tidelake.ops.commit.abort import remove_files
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.compact.append import Rewrite, run_rewrite
from tidelake.ops.context import TableContext

if TYPE_CHECKING:  # append tables do without the tree
    from tidelake.ops.compact.keyed_table import BucketCompaction

Step: TypeAlias = "Rewrite | BucketCompaction"
"""Files of one bucket to rewrite."""
Progress = Callable[[int, int], None]
"""Called with the number of finished steps and the number of all steps."""


class StepRunner(Protocol):
    """Runs steps: in threads of this process, or in tasks of an engine."""

    def run(self, context: TableContext, steps: Sequence[Step], results: StepResults) -> None:
        """Run every step through `results.attempt`, in any order and several at a time.

        Raises:
            FormatError: a file is missing or damaged.
            StorageError: the storage or the engine failed.
        """


class StepResults:
    """Collects the messages of finished steps."""

    def __init__(self, context: TableContext, count: int, progress: Progress | None) -> None:
        self._context, self._count, self._progress = context, count, progress
        self._lock = mutex()
        self._stopped = False
        self.made: dict[int, CommitMessage] = {}

    def attempt(self, work: Callable[[], Mapping[int, CommitMessage]]) -> None:
        """Run some steps, unless another one has failed: `work` returns their messages by step number."""
        with self._lock:
            if self._stopped:
                return
        with undo_on_error(self.stop):
            self._add(work())

    def _add(self, made: Mapping[int, CommitMessage]) -> None:
        with self._lock:
            if not self._stopped:
                self.made.update(made)
                if self._progress:
                    self._progress(len(self.made), self._count)
                return
        remove_files(self._context, made.values())

    def stop(self) -> None:
        """Start no more steps, and remove the new files of the finished ones."""
        with self._lock:
            self._stopped = True
            made, self.made = self.made, {}
        remove_files(self._context, made.values())


class Threads:
    """Runs steps in this process, as many at a time as the lake has threads; each needs bounded memory."""

    def run(self, context: TableContext, steps: Sequence[Step], results: StepResults) -> None:
        """Run the steps in their order."""

        def act(number: int) -> None:
            results.attempt(lambda: {number: run_step(context, steps[number])})

        context.store.env.executor.map(act, range(len(steps)))


def run_steps(
    context: TableContext, steps: Sequence[Step], runner: StepRunner | None = None, progress: Progress | None = None
) -> list[CommitMessage]:
    """Run steps; the messages come in the order of the steps.

    Raises:
        FormatError: a file is missing or damaged; the new files are removed.
        StorageError: the storage failed; the new files are removed as far as it lets us.
    """
    results = StepResults(context, len(steps), progress)
    with undo_on_error(results.stop):
        (runner or Threads()).run(context, steps, results)
    return [results.made[number] for number in range(len(steps))]


def run_step(context: TableContext, step: Step) -> CommitMessage:
    """Run one step; if it fails, the files it wrote are removed.

    Raises:
        FormatError: a file is missing or damaged.
        StorageError: the storage failed.
        InvalidInputError: a merge gives a null where the table has none, or rows expire by a column without a time.
    """
    if isinstance(step, Rewrite):
        return run_rewrite(context.store, context.paths, step, context.options.of(FileOptions))
    from tidelake.ops.compact.keyed_table import compact_bucket

    return compact_bucket(context, step)
