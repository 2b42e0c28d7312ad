"""Run the steps of a compaction as Spark jobs: the driver plans and commits, tasks rewrite files and describe them.

Every share of the work is a job of its own. Several jobs run at a time, heaviest first. So the driver learns of
finished shares while the others run: it can report progress, and if one share fails it removes the files of the
finished ones. A task that Spark retries or runs twice writes files with other names. Only the messages of one of its
runs reach the driver, and the files of the others are orphans.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from tidelake.cleanup import undo_on_error
from tidelake.engines.spark.bridge.failures import missing_package_error, parse_carried_error
from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.bridge.output import DONE, TaskOutput, report_each
from tidelake.engines.spark.bridge.tasks import parallelism
from tidelake.engines.spark.compact.replay import replay_frame
from tidelake.errors import StorageError, TidelakeError
from tidelake.io.executor import ThreadExecutor
from tidelake.ops.commit.abort import remove_files
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.compact.buckets import Choice, live_buckets
from tidelake.ops.compact.keyed_table import plan_buckets
from tidelake.ops.compact.steps import Progress, Step, StepResults, run_step, run_steps
from tidelake.ops.context import TableContext
from tidelake.ops.scan.split import pack
from tidelake.ops.write.replay import ReplayPlan

SHARE_BYTES: Final = (16 << 20, 128 << 20)
"""The least and the most bytes of files that one job rewrites."""
_STEP_BYTES: Final = 1 << 20
"""The least weight of a step, because opening files takes time too."""
_SHARES_PER_CORE: Final = 4
_JOBS_MAX: Final = 64
"""Jobs that run at a time. With more cores than that, a job has several tasks."""

Share: TypeAlias = tuple[tuple[int, Step], ...]
"""Steps of one task, with their numbers."""


@dataclass(frozen=True, slots=True)
class SparkStepRunner:
    """Runs steps in tasks of a session."""

    session: SparkSession

    def run(self, context: TableContext, steps: Sequence[Step], results: StepResults) -> None:
        """Run the steps as jobs. After a failure no job is started, and those that are running are waited for.

        Raises:
            InvalidInputError: other processes cannot reach the table's storage.
            FormatError: a file is missing or damaged.
            StorageError: tasks failed at every attempt.
        """
        if not steps:
            return
        ref = TableRef.of(context.name, context.store, context.options)
        cores = parallelism(self.session)
        shares = shares_of(steps, cores)
        width = -(-cores // _JOBS_MAX)
        groups = [shares[start : start + width] for start in range(0, len(shares), width)]
        tag = f"tidelake-{context.store.env.ids.uuid()}"
        threads = ThreadExecutor(min(len(groups), cores, _JOBS_MAX), waits=False)
        self.session.addTag(tag)
        try:
            # Each thread inherits the user's local properties and this tag. Wrapping copies the properties, and one
            # copy cannot be used by two threads.
            runs = [
                self._inherit_properties(partial(self._run, context, StepTask(ref, tuple(group)), results))
                for group in groups
            ]
            threads.map(lambda run: run(), runs)
        except BaseException as error:
            # A user who presses Ctrl-C does not want to wait; what the tasks leave behind are orphans.
            if not isinstance(error, Exception):
                self.session.interruptTag(tag)
            raise
        finally:
            threads.close()
            self.session.removeTag(tag)

    def _inherit_properties(self, run: Callable[[], None]) -> Callable[[], None]:
        target: Any = inheritable_thread_target
        wrapped: Callable[[], None] = target(self.session)(run)
        return wrapped

    def _run(self, context: TableContext, work: StepTask, results: StepResults) -> None:
        results.attempt(lambda: self._messages(context, work))

    def _messages(self, context: TableContext, work: StepTask) -> dict[int, CommitMessage]:
        tasks = len(work.shares)
        messages: dict[int, CommitMessage] = {}
        failed: list[TidelakeError] = []
        for done in _collect(context, self.session.range(0, tasks, 1, tasks).mapInArrow(work.run, DONE)):
            if isinstance(done, TidelakeError):
                failed.append(done)
            else:
                messages.update(done)
        if failed:
            remove_files(context, messages.values())
            raise failed[0]
        return messages

    def replay(
        self, context: TableContext, plan: ReplayPlan, *, full: bool, progress: Progress | None
    ) -> list[CommitMessage]:
        """Give staged rows their buckets in one job, and compact the other buckets that are due in further jobs.

        Raises:
            InvalidInputError: other processes cannot reach the table's storage.
            FormatError: a file is missing or damaged.
            StorageError: tasks failed at every attempt.
        """
        outputs = _collect(context, replay_frame(self.session, context, plan, full=full))
        messages = [message for done in outputs if isinstance(done, TaskOutput) for message in done.messages]
        with undo_on_error(lambda: remove_files(context, messages)):
            for done in outputs:
                if isinstance(done, TidelakeError):
                    raise done
            there = {(message.partition, message.bucket) for message in messages}
            _, rest = live_buckets(context, Choice(places=frozenset(plan.due) - there))
            messages += run_steps(context, plan_buckets(context, rest, full=full), self)
            if progress:
                progress(len(plan.staged), len(plan.staged))
        return messages


def _collect(context: TableContext, frame: DataFrame) -> list[Any]:
    """Run the tasks of a frame of reports, and return these.

    Raises:
        StorageError: tasks failed at every attempt.
    """
    try:
        rows = frame.collect()
    except Exception as cause:
        raise (
            parse_carried_error(str(cause))
            or missing_package_error(str(cause))
            or StorageError(
                "compaction tasks failed on Spark",
                code="spark-job",
                table=context.name,
                cause=str(cause).strip().partition("\n")[0][:500],
                hint="nothing was committed: see the log of the executors, and try again",
            )
        ) from cause
    return [pickle.loads(row.done) for row in rows]


def shares_of(steps: Sequence[Step], cores: int) -> list[Share]:
    """Pack steps into shares, heaviest first: small steps together, but enough shares to keep all cores busy."""
    weights = [sum(file.file_size for file in step.files) for step in steps]
    order = sorted(range(len(steps)), key=weights.__getitem__, reverse=True)
    total = sum(max(weight, _STEP_BYTES) for weight in weights)
    least, most = SHARE_BYTES
    target = max(least, min(most, total // (cores * _SHARES_PER_CORE)))
    packed = pack(order, weights.__getitem__, target=target, least=_STEP_BYTES)
    return [tuple((number, steps[number]) for number in numbers) for numbers in packed]


@dataclass(frozen=True, slots=True)
class StepTask:
    """What the tasks of a job do; each runs the shares of the numbers that it gets."""

    ref: TableRef
    shares: tuple[Share, ...]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the steps of these shares, and report the messages of each share."""
        context = self.ref.open().context
        yield from report_each(batches, lambda number: _run_share(context, self.shares[number]))


def _run_share(context: TableContext, share: Share) -> dict[int, CommitMessage]:
    messages: dict[int, CommitMessage] = {}
    with undo_on_error(lambda: remove_files(context, messages.values())):
        for number, step in share:
            messages[number] = run_step(context, step)
    return messages
