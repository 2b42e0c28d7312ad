"""Compaction of a table: what is due in the chosen buckets, done and committed as one COMPACT snapshot.

Planning reads metadata only. A bucket that another job compacted first is planned again on what is there now; the
others are committed as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tidelake.errors import CommitConflictError, FormatError, NotFoundError
from tidelake.files.options import FileOptions
from tidelake.notebook import html_card, html_table, plain
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.compact.append import AppendCompactionOptions, Rewrite, plan_rewrites
from tidelake.ops.compact.buckets import EVERYTHING, Choice, Job, live_buckets
from tidelake.ops.compact.publish import Published, publish_compactions, still_there
from tidelake.ops.compact.steps import Hands, Progress, Step, run_steps
from tidelake.ops.compact.vectors import drop_vectors
from tidelake.ops.scan.options import BucketOptions, SplitOptions
from tidelake.spec.snapshot import Snapshot
from tidelake.store.snapshots import plan_again

_ROUNDS_MAX: Final = 5
_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True, repr=False)
class CompactionPlan:
    """What a compaction would rewrite, one step for each bucket or group of files."""

    rewrites: tuple[Step, ...]
    snapshot: Snapshot | None = None
    """What it was planned on."""

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


def plan_compaction(job: Job, choice: Choice = EVERYTHING, *, full: bool = False) -> CompactionPlan:
    """Which files of the newest snapshot a compaction would rewrite.

    Raises:
        CommitConflictError: the table has rows of a newer schema than the job's.
        UnsupportedError: the table's compactions do more than merge, or its rows are marked deleted.
    """
    return plan_again(lambda: _plan(job, choice, full))


def _plan(job: Job, choice: Choice, full: bool) -> CompactionPlan:
    snapshot, buckets = live_buckets(job, choice)
    if job.is_keyed:
        from tidelake.ops.compact.keyed_table import plan_buckets

        return CompactionPlan(plan_buckets(job, buckets, full=full), snapshot)
    rewrites = plan_rewrites(
        buckets,
        AppendCompactionOptions.parse(job.options),
        target_bytes=FileOptions.parse(job.options).target_bytes(primary_key=False),
        open_file_cost=SplitOptions.parse(job.options).open_file_cost,
        ordered=BucketOptions.parse(job.options).bucket > 0,
        full=full,
    )
    return CompactionPlan(tuple(rewrites), snapshot)


def run_compaction(
    job: Job,
    committer: Committer,
    choice: Choice = EVERYTHING,
    *,
    full: bool = False,
    hands: Hands | None = None,
    progress: Progress | None = None,
) -> CommitResult:
    """Compact what is due and commit it; buckets that another job compacted first are planned again.

    `hands` carry the steps out; without any, the threads of the lake do.

    Raises:
        CommitConflictError: another job was faster in one bucket again and again; the rest is committed.
        CommitUnknownError: the storage did not tell whether the commit is there.
        FormatError: a file is missing or damaged; nothing is committed and nothing left behind.
    """
    total, done = CommitResult(), Published()
    for _ in range(_ROUNDS_MAX):
        plan = plan_compaction(job, choice, full=full)
        try:
            messages = run_steps(job, plan.rewrites, hands, progress)
            if not job.is_keyed:
                messages = drop_vectors(job, plan.snapshot, messages)
        except (FormatError, NotFoundError):
            inputs = [(each.split.partition, each.split.bucket, each.files) for each in plan.rewrites]
            if all(still_there(job, inputs)):
                raise
            continue  # another job replaced a file and expired it while it was read
        done = publish_compactions(job, committer, messages)
        total = _both(total, done.result)
        if not done.lost:
            return total
        choice = replace(choice, places=done.lost)
    raise _overtaken(job, done)


def _both(one: CommitResult, other: CommitResult) -> CommitResult:
    return replace(
        other,
        snapshot_ids=one.snapshot_ids + other.snapshot_ids,
        rows=one.rows + other.rows,
        files=one.files + other.files,
        bytes=one.bytes + other.bytes,
        attempts=one.attempts + other.attempts,
        warnings=one.warnings + other.warnings,
    )


def _overtaken(job: Job, done: Published) -> CommitConflictError:
    place = min(done.lost, default=None)
    return CommitConflictError(
        "another job compacts the same buckets and was faster every time",
        code="compaction-overtaken",
        table=job.name,
        bucket=None if place is None else job.paths.bucket(*place),
        buckets=len(done.lost) or None,
        rounds=_ROUNDS_MAX,
        cause=None if done.conflict is None else done.conflict.message,
        hint="let one job compact, and write with write-only=true elsewhere; no row is lost",
    )
