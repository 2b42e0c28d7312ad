"""Compaction of tables with postponed buckets: staged rows get their buckets, and these are compacted.

The staged rows of a snapshot are written in the order of arrival, through ordinary writers of the buckets, as the
newest versions there. One COMPACT snapshot removes the staged files and adds the rows. It is refused if another job
compacted, replaced or wrote to the same buckets in between, and planned again on the newest snapshot.

Invariant: at every snapshot each row is staged or in a bucket, never both and never neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import pyarrow.compute as pc

from tidelake.cleanup import undo_on_error
from tidelake.errors import CommitConflictError, FormatError, NotFoundError
from tidelake.ops.commit.abort import remove_files
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitMessage, CommitResult, Committable, CompactIncrement, DataIncrement
from tidelake.ops.commit.replan import replan
from tidelake.ops.compact.buckets import EVERYTHING, Choice, chosen_entries
from tidelake.ops.compact.steps import Progress
from tidelake.ops.context import TableContext
from tidelake.ops.scan.postponed import PostponeOptions, bucket_counts, staged_entries
from tidelake.ops.scan.split import Split, bucket_splits
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.postpone import staged_rows
from tidelake.spec.documents.snapshot import Snapshot

__all__ = ["ReplayPlan", "ReplayRunner", "fold_compaction", "plan_replay", "run_replay"]

_ROUNDS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The staged rows of a snapshot, the bucket counts of their partitions, and other buckets that are due."""

    snapshot: Snapshot
    staged: tuple[Split, ...]
    counts: dict[bytes, int]
    due: tuple[tuple[bytes, int], ...]


class ReplayRunner(Protocol):
    """Runs a replay plan in tasks of an engine instead of this process."""

    def replay(
        self, context: TableContext, plan: ReplayPlan, *, full: bool, progress: Progress | None
    ) -> list[CommitMessage]:
        """Write the rows to their buckets, compact these and the due ones, and return a message for each bucket.

        If that fails, the new files are removed.

        Raises:
            FormatError: a file is missing or damaged.
            StorageError: the storage or the engine failed.
        """


def plan_replay(context: TableContext, choice: Choice = EVERYTHING, *, full: bool = False) -> ReplayPlan | None:
    """Plan the replay of staged rows in the chosen partitions of the newest snapshot; None if there are none.

    Raises:
        CommitConflictError: the table has rows of a newer schema than the job's.
        UnsupportedError: an option is not honoured.
    """
    snapshot, entries = chosen_entries(context, choice)
    if snapshot is None:
        return None
    staged = staged_entries(entries)
    if not staged.num_rows:
        return None
    counts = bucket_counts(entries, context.options.of(PostponeOptions))
    real = entries.filter(pc.greater_equal(entries.column("bucket"), 0))
    fresh = real if full else real.filter(pc.equal(real.column("level"), 0))
    due = set(zip(*(fresh.column(name).to_pylist() for name in ("partition", "bucket")), strict=True))
    return ReplayPlan(
        snapshot, tuple(bucket_splits(staged, snapshot.id, context.paths, None)), counts, tuple(sorted(due))
    )


def run_replay(
    context: TableContext,
    committer_after: Callable[[int], Committer],
    choice: Choice = EVERYTHING,
    *,
    full: bool = False,
    runner: ReplayRunner | None = None,
    progress: Progress | None = None,
) -> CommitResult | None:
    """Move staged rows to their buckets and commit; None without staged rows.

    `committer_after` makes a committer that refuses what others replaced since a snapshot. `runner` replay the rows;
    without any, this process does.

    Raises:
        CommitConflictError: another job changed the same buckets first at every attempt; nothing was changed.
        CommitUnknownError: the storage did not answer whether the commit is there.
        FormatError: a file is missing or damaged; nothing was changed.
    """

    def attempt() -> CommitResult | None:
        plan = plan_replay(context, choice, full=full)
        if plan is None:
            return None
        try:
            messages = _replay_rows(context, plan, full=full, runner=runner, progress=progress)
        except (FormatError, NotFoundError) as error:
            # Another job may have replaced a file and expired it while it was read.
            error.replannable = context.store.snapshots.latest() != plan.snapshot
            raise
        try:
            return _commit(context, committer_after, plan, messages)
        except CommitConflictError as error:
            # The next plan starts from a newer snapshot, which becomes the last safe one.
            error.replannable |= error.code == "strict-mode"
            raise

    return replan(attempt, plans=_ROUNDS_MAX)


def _commit(
    context: TableContext,
    committer_after: Callable[[int], Committer],
    plan: ReplayPlan,
    messages: Sequence[CommitMessage],
) -> CommitResult:
    """Commit replayed rows; the new files are removed if the commit certainly failed."""
    with undo_on_error(lambda: remove_files(context, messages)):
        committer = committer_after(plan.snapshot.id)
    with undo_on_error(lambda: committer.discard(messages)):
        return committer.commit(Committable(messages=tuple(messages)))


def _replay_rows(
    context: TableContext,
    plan: ReplayPlan,
    *,
    full: bool,
    progress: Progress | None,
    runner: ReplayRunner | None = None,
) -> list[CommitMessage]:
    written = (runner or _InProcess()).replay(context, plan, full=full, progress=progress)
    return [*map(_remove_staged_files, plan.staged), *written]


class _InProcess:
    """Replays rows in this process, one partition after the other."""

    def replay(
        self, context: TableContext, plan: ReplayPlan, *, full: bool, progress: Progress | None
    ) -> list[CommitMessage]:
        """Write all rows with one writer."""
        writer = KeyedTableWriter(context, base_id=plan.snapshot.id, counts=plan.counts, compacts=True)
        with undo_on_error(writer.abort):
            for number, split in enumerate(plan.staged, start=1):
                for rows, kinds in staged_rows(context.store, split):
                    writer.write(rows, kinds)
                if progress:
                    progress(number, len(plan.staged))
            for partition, bucket in plan.due:
                writer.compact(partition, bucket, full=full)
            if full:
                writer.compact_written(full=True)
            written = writer.prepare()
        return [fold_compaction(context, message) for message in written]


def _remove_staged_files(split: Split) -> CommitMessage:
    return CommitMessage(
        partition=split.partition,
        bucket=split.bucket,
        total_buckets=split.total_buckets,
        compact=CompactIncrement(before=split.files),
    )


def fold_compaction(context: TableContext, message: CommitMessage) -> CommitMessage:
    """Fold written files into the compaction of a message; remove files that no snapshot will ever refer to."""
    written = {(file.file_name, file.level): file for file in message.data.new_files}
    before = tuple(f for f in message.compact.before if written.pop((f.file_name, f.level), None) is None)
    after = (*written.values(), *message.compact.after)
    kept = {file.file_name for file in after}
    gone = tuple(file for file in message.data.new_files if file.file_name not in kept)
    remove_files(context, [replace(message, data=DataIncrement(new_files=gone), compact=CompactIncrement())])
    changelog = (*message.data.changelog_files, *message.compact.changelog_files)
    compact = CompactIncrement(
        before=before,
        after=after,
        changelog_files=changelog,
        new_index_files=(*message.data.new_index_files, *message.compact.new_index_files),
        deleted_index_files=(*message.data.deleted_index_files, *message.compact.deleted_index_files),
    )
    return replace(message, data=DataIncrement(), compact=compact)
