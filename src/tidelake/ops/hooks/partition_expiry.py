"""Partition expiry after commits: looks for partitions that are too old, once in each interval of the option.

Jobs that commit once and end, and jobs that commit for weeks, share the interval: the first commit after it looks, and
notes when in a file of the table. A committer asks that file at most once in an interval, so that small commits cost
nothing. A process that ends before it notes its check leaves the check to the next commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.guards import Guard
from tidelake.ops.commit.messages import BATCH_IDENTIFIER, CommitResult
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.partition_expiry import plan_partition_expiry, run_partition_expiry
from tidelake.ops.scan.partition_times import PartitionExpiryOptions
from tidelake.ops.scan.partitions import PartitionFilter
from tidelake.ops.write.opening import make_overwrite_guards
from tidelake.store.expiry_check import ExpiryCheckStore

__all__ = ["PartitionExpiryHook"]


@dataclass(slots=True)
class PartitionExpiryHook:
    """Drops expired partitions after the commits of one user, in snapshots with the identifier of the commit."""

    context: TableContext
    user: str
    _checked_ms: int | None = field(default=None, repr=False)
    """When this committer, or as far as it knows another one, last looked."""

    def __call__(self, result: CommitResult) -> Iterable[str]:
        """Look for expired partitions and drop them, if that is due.

        Raises:
            InvalidInputError: the formatter is wrong.
            UnsupportedError: the strategy, or a letter of the formatter, is not supported.
            CommitConflictError: other jobs came first, at every attempt.
            StorageError: the storage failed; some partitions may be dropped.
        """
        context = self.context
        options = context.options.of(PartitionExpiryOptions)
        if options.time_ms is None or not context.schema.partition_keys or not result.snapshot_ids:
            return ()
        due = self._is_due(options)
        if not due and not options.checks_at_end:
            return ()
        # The commit's own snapshot says which number it has; if it has expired already, a later commit looks.
        published = context.snapshots.find(result.snapshot_ids[-1])
        if published is None or not (due or published.commit_identifier == BATCH_IDENTIFIER):
            return ()
        now_ms = context.store.env.clock.now_ms()
        plan = plan_partition_expiry(context, options)

        def drop(partitions: PartitionFilter, guards: Sequence[Guard]) -> CommitResult:
            guards_here = make_overwrite_guards(context, self.user)
            committer = Committer(context, self.user, overwrite_guards=guards_here)
            return committer.drop_after(partitions, identifier=published.commit_identifier, guards=guards)

        # Before the drop: a check that fails is not repeated at each commit. The next process looks again.
        self._checked_ms = now_ms
        run_partition_expiry(context, options, plan, drop)
        if options.check_interval_ms:
            ExpiryCheckStore(context.store.env.io, context.store.layout).write(now_ms)
        return [f"committed, but {warning}" for warning in plan.warnings]

    def _is_due(self, options: PartitionExpiryOptions) -> bool:
        """Whether the interval has passed, by what is known here, and then by what others noted."""
        interval_ms = options.check_interval_ms
        now_ms = self.context.store.env.clock.now_ms()
        if not _is_within(self._checked_ms, interval_ms, now_ms):
            store = self.context.store
            self._checked_ms = ExpiryCheckStore(store.env.io, store.layout).read()
        return not _is_within(self._checked_ms, interval_ms, now_ms)


def _is_within(checked_ms: int | None, interval_ms: int, now_ms: int) -> bool:
    # A check in the future means that the clock was set back, and counts as none.
    return checked_ms is not None and checked_ms <= now_ms < checked_ms + interval_ms
