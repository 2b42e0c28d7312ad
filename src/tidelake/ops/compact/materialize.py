"""Materialize deletion vectors: rewrite the files that have one without their deleted rows, so that no vector is left.

An append table rewrites just these files. In a primary-key table the buckets that have a vector are compacted fully.
A full compaction moves a large file to the lowest level as it is, with its vector; so such buckets are looked at once
more, and the files that still have one are rewritten where they are.

Invariant: no row changes. A bucket in which another job deletes rows first is planned again, so that no deletion is
lost.
"""

from __future__ import annotations

from typing import Final

from tidelake.files.options import FileOptions
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.compact.append import plan_vector_rewrites
from tidelake.ops.compact.buckets import EVERYTHING, Choice, live_buckets
from tidelake.ops.compact.steps import Progress, StepRunner
from tidelake.ops.compact.table import CompactionPlan, add_results, run_planned
from tidelake.ops.context import TableContext
from tidelake.ops.scan.options import SplitOptions
from tidelake.spec.schemas.bucket_mode import BucketOptions
from tidelake.store.snapshots import plan_again

__all__ = ["plan_materialization", "run_materialization"]

_PASSES: Final = 2
"""A second pass rewrites the files that the first one moved with their vectors."""


def plan_materialization(context: TableContext, choice: Choice = EVERYTHING) -> CompactionPlan:
    """Plan which files of the newest snapshot are rewritten.

    Raises:
        CommitConflictError: the table has rows of a newer schema than the job's.
        UnsupportedError: the table's compactions do more than merge.
    """
    return plan_again(lambda: _plan(context, choice))


def _plan(context: TableContext, choice: Choice) -> CompactionPlan:
    snapshot, buckets = live_buckets(context, choice)
    holding = [split for split in buckets if any(file.file_name in split.vectors for file in split.files)]
    if context.is_keyed:
        from tidelake.ops.compact.keyed_table import plan_buckets  # append tables do without the tree

        return CompactionPlan(plan_buckets(context, holding, full=True), snapshot)
    rewrites = plan_vector_rewrites(
        holding,
        target_bytes=context.options.of(FileOptions).target_bytes(primary_key=False),
        open_file_cost=context.options.of(SplitOptions).open_file_cost,
        ordered=context.options.of(BucketOptions).bucket > 0,
    )
    return CompactionPlan(tuple(rewrites), snapshot)


def run_materialization(
    context: TableContext,
    committer: Committer,
    choice: Choice = EVERYTHING,
    *,
    runner: StepRunner | None = None,
    progress: Progress | None = None,
) -> CommitResult:
    """Rewrite the files that have a deletion vector, and commit that.

    `runner` runs the steps; None for the threads of the lake.

    Raises:
        CommitConflictError: another job changed a bucket first in every round; the other buckets are committed.
        CommitUnknownError: the storage did not answer whether the commit is there.
        FormatError: a file is missing or damaged; nothing is committed, and the new files are removed.
    """

    def plan(chosen: Choice) -> CompactionPlan:
        return plan_materialization(context, chosen)

    total = CommitResult()
    for _ in range(_PASSES if context.is_keyed else 1):
        done = run_planned(context, committer, choice, plan, runner=runner, progress=progress)
        total = add_results(total, done)
        if not done.snapshot_ids:
            break
    return total
