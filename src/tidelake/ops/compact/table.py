"""Compaction of a table: compact what is due in the chosen buckets and commit it as one COMPACT snapshot.

Planning reads metadata only. A bucket that another job compacted first is planned again on the newest snapshot; the
others are committed as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tidelake.errors import CommitConflictError, FormatError, NotFoundError
from tidelake.files.options import FileOptions
from tidelake.notebook import html_card, html_table, plain
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.compact.append import AppendCompactionOptions, Rewrite, plan_rewrites
from tidelake.ops.compact.buckets import EVERYTHING, Choice, live_buckets
from tidelake.ops.compact.publish import Published, publish_compactions, still_there
from tidelake.ops.compact.steps import Progress, Step, StepRunner, run_steps
from tidelake.ops.context import TableContext
from tidelake.ops.scan.options import SplitOptions
from tidelake.ops.vectors.vector_writer import drop_vectors
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.schemas.bucket_mode import BucketOptions
from tidelake.store.snapshots import plan_again

_ROUNDS_MAX: Final = 5
_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True, repr=False)
class CompactionPlan:
    """What a compaction would rewrite, one step for each bucket or group of files."""

    rewrites: tuple[Step, ...]
    snapshot: Snapshot | None = None
    """The snapshot that it was planned on."""

    @property
    def files(self) -> int:
        """Files that would be read and replaced."""
        return sum(len(rewrite.files) for rewrite in self.rewrites)

    @property
    def size(self) -> int:
        """Their bytes."""
        return sum(file.file_size for rewrite in self.rewrites for file in rewrite.files)

    def __str__(self) -> str:
        return f"{len(self.rewrites)} rewrites of {self.files} files, {self.size:,} bytes"

    def __repr__(self) -> str:
        lines = [
            f"  {path}: {files} files, {size} bytes{level and f' -> level {level}'}"
            for path, files, size, level in self._steps()
        ]
        return "\n".join([f"CompactionPlan({self})", *map(plain, lines), *self._more()])

    def _repr_html_(self) -> str:
        table = html_table(("bucket", "files", "bytes", "output level"), self._steps())
        return html_card(f"compaction: {self}", [("", more) for more in self._more()], table)

    def _steps(self) -> list[tuple[str, str, str, str]]:
        shown = []
        for each in self.rewrites[:_SHOWN_MAX]:
            level = "" if isinstance(each, Rewrite) else str(each.output_level)
            size = sum(file.file_size for file in each.files)
            shown.append((each.split.bucket_path, f"{len(each.files):,}", f"{size:,}", level))
        return shown

    def _more(self) -> list[str]:
        left = len(self.rewrites) - _SHOWN_MAX
        return [f"  and {left:,} more"] if left > 0 else []


Planner = Callable[[Choice], CompactionPlan]
"""Plans, on the newest snapshot, what is to be rewritten in the chosen buckets."""


def plan_compaction(context: TableContext, choice: Choice = EVERYTHING, *, full: bool = False) -> CompactionPlan:
    """Plan which files of the newest snapshot a compaction would rewrite.

    Raises:
        CommitConflictError: the table has rows of a newer schema than the job's.
        UnsupportedError: the table's compactions do more than merge.
    """
    return plan_again(lambda: _plan(context, choice, full))


def _plan(context: TableContext, choice: Choice, full: bool) -> CompactionPlan:
    snapshot, buckets = live_buckets(context, choice)
    if context.is_keyed:
        from tidelake.ops.compact.keyed_table import plan_buckets

        return CompactionPlan(plan_buckets(context, buckets, full=full), snapshot)
    rewrites = plan_rewrites(
        buckets,
        context.options.of(AppendCompactionOptions),
        target_bytes=context.options.of(FileOptions).target_bytes(primary_key=False),
        open_file_cost=context.options.of(SplitOptions).open_file_cost,
        ordered=context.options.of(BucketOptions).bucket > 0,
        full=full,
    )
    return CompactionPlan(tuple(rewrites), snapshot)


def run_compaction(
    context: TableContext,
    committer: Committer,
    choice: Choice = EVERYTHING,
    *,
    full: bool = False,
    runner: StepRunner | None = None,
    progress: Progress | None = None,
) -> CommitResult:
    """Compact what is due and commit it; buckets that another job compacted first are planned again.

    `runner` runs the steps; None for the threads of the lake.

    Raises:
        CommitConflictError: another job compacted a bucket first in every round; the other buckets are committed.
        CommitUnknownError: the storage did not answer whether the commit is there.
        FormatError: a file is missing or damaged; nothing is committed, and the new files are removed.
    """

    def plan(chosen: Choice) -> CompactionPlan:
        return plan_compaction(context, chosen, full=full)

    return run_planned(context, committer, choice, plan, runner=runner, progress=progress)


def run_planned(
    context: TableContext,
    committer: Committer,
    choice: Choice,
    make_plan: Planner,
    *,
    runner: StepRunner | None = None,
    progress: Progress | None = None,
) -> CommitResult:
    """Run what a planner plans and commit it; buckets that another job changed first are planned again.

    Raises:
        CommitConflictError: another job changed a bucket first in every round; the other buckets are committed.
        CommitUnknownError: the storage did not answer whether the commit is there.
        FormatError: a file is missing or damaged; nothing is committed, and the new files are removed.
    """
    total, done = CommitResult(), Published()
    for _ in range(_ROUNDS_MAX):
        plan = make_plan(choice)
        try:
            messages = run_steps(context, plan.rewrites, runner, progress)
            if not context.is_keyed:
                messages = drop_vectors(context, plan.snapshot, messages)
        except (FormatError, NotFoundError):
            inputs = [(each.split.partition, each.split.bucket, each.files) for each in plan.rewrites]
            if all(still_there(context, inputs)):
                raise
            continue  # another job replaced a file and expired it while it was read
        done = publish_compactions(context, committer, messages)
        total = add_results(total, done.result)
        if not done.lost:
            return total
        choice = replace(choice, places=done.lost)
    raise _overtaken(context, done)


def add_results(one: CommitResult, other: CommitResult) -> CommitResult:
    """The result of two commits of one verb, the earlier one first."""
    return replace(
        other,
        snapshot_ids=one.snapshot_ids + other.snapshot_ids,
        rows=one.rows + other.rows,
        files=one.files + other.files,
        bytes=one.bytes + other.bytes,
        attempts=one.attempts + other.attempts,
        conflicts=one.conflicts + other.conflicts,
        compacted=one.compacted + other.compacted,
        compaction_wait_ms=one.compaction_wait_ms + other.compaction_wait_ms,
        warnings=tuple(dict.fromkeys(one.warnings + other.warnings)),
    )


def _overtaken(context: TableContext, done: Published) -> CommitConflictError:
    place = min(done.lost, default=None)
    return CommitConflictError(
        "another job compacted the same buckets first in every round",
        code="compaction-overtaken",
        table=context.name,
        bucket=None if place is None else context.paths.bucket(*place),
        buckets=len(done.lost) or None,
        rounds=_ROUNDS_MAX,
        cause=None if done.conflict is None else done.conflict.message,
        hint="let one job compact, and write with write-only=true elsewhere; no row is lost",
    )
