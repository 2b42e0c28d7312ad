"""Compaction of tables with postponed buckets: rows that wait get their buckets, and these are compacted.

The rows of a snapshot are replayed in the order in which they came, through ordinary writers of the buckets, above
everything that lies there. One COMPACT snapshot takes the staged files out and puts the rows in. It is refused if
somebody else compacted, replaced or wrote to the same buckets meanwhile, and planned again on what is there then.

Invariant: at every snapshot each row is staged or in a bucket, never both and never neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import pyarrow.compute as pc

from tidelake.errors import CommitConflictError, FormatError, NotFoundError
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitMessage, CommitResult, Committable, CompactIncrement, DataIncrement
from tidelake.ops.compact.buckets import EVERYTHING, Choice, Job, chosen_entries
from tidelake.ops.compact.publish import remove_files
from tidelake.ops.compact.steps import Progress
from tidelake.ops.scan.postponed import PostponeOptions, bucket_counts, staged_entries
from tidelake.ops.scan.split import Split, bucket_splits
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.postpone import staged_rows
from tidelake.spec.snapshot import Snapshot

__all__ = ["ReplayHands", "ReplayPlan", "folded", "plan_replay", "replay_options", "run_replay"]

_ROUNDS_MAX: Final = 5
_OVERTAKEN: Final = frozenset({"strict-mode", "file-deleted", "file-conflict", "key-range", "bucket-count"})
"""Conflicts that a fresh plan solves."""


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The rows of a snapshot that wait, the number of buckets of their partitions, and other buckets with new rows."""

    snapshot: Snapshot
    staged: tuple[Split, ...]
    counts: dict[bytes, int]
    due: tuple[tuple[bytes, int], ...]


class ReplayHands(Protocol):
    """Who replays the rows of a plan where this process does not."""

    def replay(self, job: Job, plan: ReplayPlan, *, full: bool, progress: Progress | None) -> list[CommitMessage]:
        """Write the rows to their buckets, compact these and those that are due, and describe it bucket by bucket.

        What was written is removed again if that fails.

        Raises:
            FormatError: a file is missing or damaged.
            StorageError: the storage, or what carries the work out, failed.
        """


def plan_replay(job: Job, choice: Choice = EVERYTHING, *, full: bool = False) -> ReplayPlan | None:
    """What waits in the chosen partitions of the newest snapshot; None if nothing does.

    Raises:
        CommitConflictError: the table has rows of a newer schema than the job's.
        UnsupportedError: an option is not honoured.
    """
    snapshot, entries = chosen_entries(job, choice)
    if snapshot is None:
        return None
    staged = staged_entries(entries)
    if not staged.num_rows:
        return None
    counts = bucket_counts(entries, PostponeOptions.parse(job.options))
    real = entries.filter(pc.greater_equal(entries.column("bucket"), 0))
    fresh = real if full else real.filter(pc.equal(real.column("level"), 0))
    due = set(zip(*(fresh.column(name).to_pylist() for name in ("partition", "bucket")), strict=True))
    return ReplayPlan(snapshot, tuple(bucket_splits(staged, snapshot.id, job.paths, None)), counts, tuple(sorted(due)))


def replay_options(options: Mapping[str, str], plan: ReplayPlan) -> dict[str, str]:
    """The options in force while a plan is carried out: compact, and nobody else compacts or replaces meanwhile."""
    return {
        **options,
        "write-only": "false",
        "commit.strict-mode.last-safe-snapshot": str(plan.snapshot.id),
    }


def run_replay(
    job: Job,
    committer_for: Callable[[ReplayPlan], Committer],
    choice: Choice = EVERYTHING,
    *,
    full: bool = False,
    hands: ReplayHands | None = None,
    progress: Progress | None = None,
) -> CommitResult | None:
    """Give the rows that wait their buckets and commit it; None if no row waits.

    `hands` replay the rows; without any, this process does.

    Raises:
        CommitConflictError: others were faster every time; nothing was changed.
        CommitUnknownError: the storage did not tell whether the commit is there.
        FormatError: a file is missing or damaged; nothing was changed.
    """
    for attempt in range(1, _ROUNDS_MAX + 1):
        plan = plan_replay(job, choice, full=full)
        if plan is None:
            return None
        try:
            messages = _replayed(job, plan, full=full, hands=hands, progress=progress)
        except (FormatError, NotFoundError):
            if attempt == _ROUNDS_MAX or job.store.snapshots.latest() == plan.snapshot:
                raise
            continue  # another job replaced a file and expired it while it was read
        try:
            return _committed(job, committer_for, plan, messages)
        except CommitConflictError as error:
            if attempt == _ROUNDS_MAX or error.code not in _OVERTAKEN:
                raise
    raise AssertionError("the last attempt returns or raises")


def _committed(
    job: Job, committer_for: Callable[[ReplayPlan], Committer], plan: ReplayPlan, messages: Sequence[CommitMessage]
) -> CommitResult:
    """Commit what was replayed; what was written for it is removed if that fails for certain."""
    committer: Committer | None = None
    try:
        committer = committer_for(plan)
        return committer.commit(Committable(messages=tuple(messages)))
    except BaseException:
        if committer is None:
            remove_files(job, messages)
        else:
            committer.discard(messages)
        raise


def _replayed(
    job: Job, plan: ReplayPlan, *, full: bool, progress: Progress | None, hands: ReplayHands | None = None
) -> list[CommitMessage]:
    written = (hands or _InProcess()).replay(job, plan, full=full, progress=progress)
    return [*map(_taken_out, plan.staged), *written]


class _InProcess:
    """Replays rows one partition after the other."""

    def replay(self, job: Job, plan: ReplayPlan, *, full: bool, progress: Progress | None) -> list[CommitMessage]:
        """Write all rows with one writer."""
        options = {**job.options, "write-only": "false"}
        writer = KeyedTableWriter(job.store, job.paths, options, base_id=plan.snapshot.id, counts=plan.counts)
        try:
            for number, split in enumerate(plan.staged, start=1):
                for rows, kinds in staged_rows(job.store, split):
                    writer.write(rows, kinds)
                if progress:
                    progress(number, len(plan.staged))
            for partition, bucket in plan.due:
                writer.compact(partition, bucket, full=full)
            if full:
                writer.compact_written(full=True)
            written = writer.prepare()
        except BaseException:
            writer.abort()
            raise
        return [folded(job, message) for message in written]


def _taken_out(split: Split) -> CommitMessage:
    return CommitMessage(
        partition=split.partition,
        bucket=split.bucket,
        total_buckets=split.total_buckets,
        compact=CompactIncrement(before=split.files),
    )


def folded(job: Job, message: CommitMessage) -> CommitMessage:
    """What was written and what was compacted as one compaction; files that no commit will ever name are removed."""
    written = {(file.file_name, file.level): file for file in message.data.new_files}
    before = tuple(f for f in message.compact.before if written.pop((f.file_name, f.level), None) is None)
    after = (*written.values(), *message.compact.after)
    kept = {file.file_name for file in after}
    gone = tuple(file for file in message.data.new_files if file.file_name not in kept)
    remove_files(job, [replace(message, data=DataIncrement(new_files=gone), compact=CompactIncrement())])
    changelog = (*message.data.changelog_files, *message.compact.changelog_files)
    compact = CompactIncrement(
        before=before,
        after=after,
        changelog_files=changelog,
        new_index_files=(*message.data.new_index_files, *message.compact.new_index_files),
        deleted_index_files=(*message.data.deleted_index_files, *message.compact.deleted_index_files),
    )
    return replace(message, data=DataIncrement(), compact=compact)
