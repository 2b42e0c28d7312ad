"""Steps of a compaction as Spark jobs: the driver plans and commits, tasks rewrite files and describe them.

Each share of the work is a job of its own; several run at a time, and the heaviest is begun first. So the driver knows
what is done while the rest still runs: it can tell so, and when one share fails it removes what the others wrote. A
task that is repeated or runs twice writes files of other names: only the messages of the one that Spark counts reach
the driver, and what the others wrote is an orphan.
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

from tidelake.engines.spark.failures import carried, lacking, outcome
from tidelake.engines.spark.receive import DONE, Done
from tidelake.engines.spark.remote import TableRef
from tidelake.engines.spark.replay import replayed
from tidelake.engines.spark.tasks import parallelism
from tidelake.errors import StorageError, TidelakeError
from tidelake.io.executor import ThreadExecutor
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.compact.buckets import Choice, Job, live_buckets
from tidelake.ops.compact.keyed_table import plan_buckets
from tidelake.ops.compact.publish import remove_files
from tidelake.ops.compact.steps import Gathered, Progress, Step, run_step, run_steps
from tidelake.ops.scan.split import pack
from tidelake.ops.write.unpostpone import ReplayPlan

SHARE_BYTES: Final = (16 << 20, 128 << 20)
"""What a job is worth it for, and what is enough for one."""
_STEP_BYTES: Final = 1 << 20
"""What a step weighs at least: opening files takes time too."""
_SHARES_PER_CORE: Final = 4
_JOBS_MAX: Final = 64
"""Jobs at a time; where there are more cores, a job has several tasks."""

Share: TypeAlias = tuple[tuple[int, Step], ...]
"""Steps of one task, with their numbers."""


@dataclass(frozen=True, slots=True)
class SparkHands:
    """Carries steps out in tasks of a session."""

    session: SparkSession

    def carry_out(self, job: Job, steps: Sequence[Step], gathered: Gathered) -> None:
        """Run the steps as jobs; those that run when one fails are waited for, none is begun any more.

        Raises:
            InvalidInputError: no other process can reach the table's storage.
            FormatError: a file is missing or damaged.
            StorageError: tasks failed again and again.
        """
        if not steps:
            return
        ref = TableRef.of(job.name, job.store, job.options)
        cores = parallelism(self.session)
        shares = shares_of(steps, cores)
        width = -(-cores // _JOBS_MAX)
        groups = [shares[start : start + width] for start in range(0, len(shares), width)]
        tag = f"tidelake-{job.store.env.ids.uuid()}"
        threads = ThreadExecutor(min(len(groups), cores, _JOBS_MAX), waits=False)
        self.session.addTag(tag)
        try:
            # Each thread has the user's properties and this tag; the properties are one object for one thread.
            runs = [self._inheriting(partial(self._run, job, _Work(ref, tuple(group)), gathered)) for group in groups]
            threads.map(lambda run: run(), runs)
        except BaseException as error:
            if not isinstance(error, Exception):  # the user is in a hurry, and what tasks leave behind are orphans
                self.session.interruptTag(tag)
            raise
        finally:
            threads.close()
            self.session.removeTag(tag)

    def _inheriting(self, run: Callable[[], None]) -> Callable[[], None]:
        target: Any = inheritable_thread_target
        wrapped: Callable[[], None] = target(self.session)(run)
        return wrapped

    def _run(self, job: Job, work: _Work, gathered: Gathered) -> None:
        gathered.attempt(lambda: self._messages(job, work))

    def _messages(self, job: Job, work: _Work) -> dict[int, CommitMessage]:
        tasks = len(work.shares)
        made: dict[int, CommitMessage] = {}
        failed: list[TidelakeError] = []
        for done in _collected(job, self.session.range(0, tasks, 1, tasks).mapInArrow(work.run, DONE)):
            if isinstance(done, TidelakeError):
                failed.append(done)
            else:
                made.update(done)
        if failed:
            remove_files(job, made.values())
            raise failed[0]
        return made

    def replay(self, job: Job, plan: ReplayPlan, *, full: bool, progress: Progress | None) -> list[CommitMessage]:
        """Give rows that wait their buckets as a job, and carry out what else is due as others.

        Raises:
            InvalidInputError: no other process can reach the table's storage.
            FormatError: a file is missing or damaged.
            StorageError: tasks failed again and again.
        """
        told = _collected(job, replayed(self.session, job, plan, full=full))
        messages = [message for done in told if isinstance(done, Done) for message in done.messages]
        try:
            for done in told:
                if isinstance(done, TidelakeError):
                    raise done
            there = {(message.partition, message.bucket) for message in messages}
            _, rest = live_buckets(job, Choice(places=frozenset(plan.due) - there))
            messages += run_steps(job, plan_buckets(job, rest, full=full), self)
            if progress:
                progress(len(plan.staged), len(plan.staged))
        except BaseException:
            remove_files(job, messages)
            raise
        return messages


def _collected(job: Job, frame: DataFrame) -> list[Any]:
    """What the tasks of a frame tell.

    Raises:
        StorageError: they failed again and again.
    """
    try:
        rows = frame.collect()
    except Exception as cause:
        raise (
            carried(str(cause))
            or lacking(str(cause))
            or StorageError(
                "tasks that compact failed on Spark",
                code="spark-job",
                table=job.name,
                cause=str(cause).strip().partition("\n")[0][:500],
                hint="nothing was committed: see the log of the executors, and try again",
            )
        ) from cause
    return [pickle.loads(row.done) for row in rows]


def shares_of(steps: Sequence[Step], cores: int) -> list[Share]:
    """The steps in shares, the heaviest first: small ones together, and else enough to keep all cores busy."""
    weights = [sum(file.file_size for file in step.files) for step in steps]
    order = sorted(range(len(steps)), key=weights.__getitem__, reverse=True)
    total = sum(max(weight, _STEP_BYTES) for weight in weights)
    least, most = SHARE_BYTES
    target = max(least, min(most, total // (cores * _SHARES_PER_CORE)))
    packed = pack(order, weights.__getitem__, target=target, least=_STEP_BYTES)
    return [tuple((number, steps[number]) for number in numbers) for numbers in packed]


@dataclass(frozen=True, slots=True)
class _Work:
    """What the tasks of a job do; each takes the share of its number."""

    ref: TableRef
    shares: tuple[Share, ...]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The messages of the share's steps, or the one error that trying again would not help."""
        job = self.ref.open()._job()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                done = outcome(partial(_carried_out, job, self.shares[number]))
                yield pa.RecordBatch.from_pydict({"done": pa.array([pickle.dumps(done)], pa.binary())})


def _carried_out(job: Job, share: Share) -> dict[int, CommitMessage]:
    made: dict[int, CommitMessage] = {}
    try:
        for number, step in share:
            made[number] = run_step(job, step)
    except BaseException:
        remove_files(job, made.values())
        raise
    return made
