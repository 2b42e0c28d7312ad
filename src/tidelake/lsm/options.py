"""The compaction options of primary-key tables. Defaults that depend on other options are resolved here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidelake.options import Affects, Bytes, DurationMs, OptionGroup, at_least, between, option

__all__ = ["CompactionOptions", "LookupCompact"]

_WRITE: Final = (Affects.WRITE,)
_COMPACT: Final = (Affects.WRITE, Affects.MAINTENANCE)
TARGET_BYTES: Final = 128 << 20


class LookupCompact(Enum):
    """How eagerly a table with lookup compactions compacts its level 0."""

    RADICAL = "radical"
    GENTLE = "gentle"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions(OptionGroup):
    """When to compact sorted runs, and which."""

    trigger: int = option(
        "num-sorted-run.compaction-trigger",
        5,
        doc="Sorted runs that start a compaction.",
        affects=_WRITE,
        check=at_least(1),
    )
    stop_trigger_given: int | None = option(
        "num-sorted-run.stop-trigger", None, doc="Sorted runs above which writers wait; unset: 3 more.", affects=_WRITE
    )
    num_levels_given: int | None = option(
        "num-levels", None, doc="Levels of the tree; unset: trigger + 1.", affects=_WRITE, check=at_least(2)
    )
    max_size_amplification_percent: int = option(
        "compaction.max-size-amplification-percent",
        200,
        doc="Size of all younger runs, in percent of the oldest, that starts a full compaction.",
        affects=_COMPACT,
    )
    size_ratio_percent: int = option(
        "compaction.size-ratio",
        1,
        doc="By how many percent the next run may be larger to be included.",
        affects=_COMPACT,
    )
    offpeak_start_hour: int = option(
        "compaction.offpeak.start.hour",
        -1,
        doc="First hour of the off-peak time.",
        affects=_COMPACT,
        check=between(-1, 23),
    )
    offpeak_end_hour: int = option(
        "compaction.offpeak.end.hour",
        -1,
        doc="Hour at which the off-peak time ends.",
        affects=_COMPACT,
        check=between(-1, 23),
    )
    offpeak_ratio_percent: int = option(
        "compaction.offpeak-ratio", 0, doc="Percentage added to the size ratio in off-peak time.", affects=_COMPACT
    )
    optimization_interval_ms: DurationMs | None = option(
        "compaction.optimization-interval", None, doc="Time after which a full compaction is due.", affects=_COMPACT
    )
    total_size_threshold: Bytes | None = option(
        "compaction.total-size-threshold",
        None,
        doc="A bucket smaller than this is always compacted fully.",
        affects=_COMPACT,
    )
    incremental_size_threshold: Bytes | None = option(
        "compaction.incremental-size-threshold",
        None,
        doc="Size of all levels above the lowest that starts a full compaction.",
        affects=_COMPACT,
    )
    force_up_level0: bool = option(
        "compaction.force-up-level-0", False, doc="Never leave files on level 0.", affects=_COMPACT
    )
    force_rewrite_all_files: bool = option(
        "compaction.force-rewrite-all-files", False, doc="Full compactions rewrite every file.", affects=_COMPACT
    )
    small_file_ratio: float = option(
        "compaction.small-file-ratio",
        0.7,
        doc="Share of the target size below which a file counts as small.",
        affects=(Affects.MAINTENANCE,),
    )
    target_size: Bytes | None = option(
        "target-file-size",
        None,
        doc="Size at which a new file is begun; unset: 128 MB with a primary key, 256 MB without.",
        affects=_WRITE,
        check=at_least(1),
    )
    lookup_compact: LookupCompact = option(
        "lookup-compact",
        LookupCompact.RADICAL,
        doc="Compact level 0 at every trigger (radical) or after several triggers (gentle).",
        affects=_COMPACT,
    )
    lookup_interval_given: int | None = option(
        "lookup-compact.max-interval",
        None,
        doc="With gentle, triggers until level 0 is compacted; unset: twice the compaction trigger.",
        affects=_COMPACT,
    )
    full_every_commits: int | None = option(
        "full-compaction.delta-commits",
        None,
        doc="Number of commits after which a full compaction is due.",
        affects=_WRITE,
        check=at_least(1),
    )

    @property
    def stop_trigger(self) -> int:
        """The number of sorted runs above which writers wait for a compaction."""
        given = self.stop_trigger_given
        return max(self.trigger, self.trigger + 3 if given is None else given)

    @property
    def num_levels(self) -> int:
        """The number of levels of the tree, including level 0."""
        return self.trigger + 1 if self.num_levels_given is None else self.num_levels_given

    @property
    def small_file_bytes(self) -> int:
        """The size below which a file is rewritten with its neighbours instead of being upgraded."""
        return int((TARGET_BYTES if self.target_size is None else self.target_size) * self.small_file_ratio)

    @property
    def lookup_interval(self) -> int | None:
        """How many triggers without a compaction a gentle table waits before it compacts level 0; None if radical."""
        if self.lookup_compact is LookupCompact.RADICAL:
            return None
        given = self.lookup_interval_given
        return max(self.trigger, 2 * self.trigger if given is None else given)

    def ratio_percent_at(self, local_ms: int) -> int:
        """Return the size ratio at a local wall-clock time; the off-peak hours may span midnight."""
        start, end, hour = self.offpeak_start_hour, self.offpeak_end_hour, local_ms // 3_600_000 % 24
        if start == -1 or end == -1 or start == end:
            return self.size_ratio_percent
        quiet = start <= hour < end if start < end else hour < end or start <= hour
        return self.size_ratio_percent + (self.offpeak_ratio_percent if quiet else 0)
