"""What a user can tune about compaction of primary-key tables. Unset options that follow others are resolved here."""

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
    """How eagerly a table that looks up older versions lifts its level 0."""

    RADICAL = "radical"
    GENTLE = "gentle"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions(OptionGroup):
    """When sorted runs are compacted, and which."""

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
        doc="Bytes above the oldest run, in percent of it, that start a full compaction.",
        affects=_COMPACT,
    )
    size_ratio_percent: int = option(
        "compaction.size-ratio", 1, doc="How much larger the next run may be to be taken along.", affects=_COMPACT
    )
    offpeak_start_hour: int = option(
        "compaction.offpeak.start.hour", -1, doc="First hour of quiet time.", affects=_COMPACT, check=between(-1, 23)
    )
    offpeak_end_hour: int = option(
        "compaction.offpeak.end.hour", -1, doc="Hour that ends quiet time.", affects=_COMPACT, check=between(-1, 23)
    )
    offpeak_ratio_percent: int = option(
        "compaction.offpeak-ratio", 0, doc="Added to the size ratio in quiet time.", affects=_COMPACT
    )
    optimization_interval_ms: DurationMs | None = option(
        "compaction.optimization-interval", None, doc="Compact fully at least this often.", affects=_COMPACT
    )
    total_size_threshold: Bytes | None = option(
        "compaction.total-size-threshold", None, doc="Below this size compact fully every time.", affects=_COMPACT
    )
    incremental_size_threshold: Bytes | None = option(
        "compaction.incremental-size-threshold",
        None,
        doc="Bytes above the lowest level that start a full compaction.",
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
        doc="A file is small below this share of the target.",
        affects=(Affects.MAINTENANCE,),
    )
    target_size: Bytes | None = option(
        "target-file-size",
        None,
        doc="Size at which a new file is begun; unset: 128 MB with a primary key, 256 MB without.",
        affects=_WRITE,
        check=at_least(1),
    )
    sort_spill_threshold_given: int | None = option(
        "sort-spill-threshold",
        None,
        doc="Runs of a section merged at once; more are copied to local disk first; unset: stop trigger + 1.",
        affects=_COMPACT,
        check=at_least(2),
    )
    lookup_compact: LookupCompact = option(
        "lookup-compact",
        LookupCompact.RADICAL,
        doc="Lift level 0 at every chance (radical) or now and then (gentle).",
        affects=_COMPACT,
    )
    lookup_interval_given: int | None = option(
        "lookup-compact.max-interval",
        None,
        doc="Gentle: chances until level 0 is lifted; unset: twice the trigger.",
        affects=_COMPACT,
    )
    full_every_commits: int | None = option(
        "full-compaction.delta-commits",
        None,
        doc="Compact fully every so many commits.",
        affects=_WRITE,
        check=at_least(1),
    )

    @property
    def stop_trigger(self) -> int:
        """Runs above which writers wait for a compaction."""
        given = self.stop_trigger_given
        return max(self.trigger, self.trigger + 3 if given is None else given)

    @property
    def num_levels(self) -> int:
        """Levels of the tree, level 0 included."""
        return self.trigger + 1 if self.num_levels_given is None else self.num_levels_given

    @property
    def small_file_bytes(self) -> int:
        """Files below this size are rewritten along with their neighbours."""
        return int((TARGET_BYTES if self.target_size is None else self.target_size) * self.small_file_ratio)

    @property
    def sort_spill_threshold(self) -> int:
        """Runs of one section that are merged at once."""
        given = self.sort_spill_threshold_given
        return self.stop_trigger + 1 if given is None else given

    @property
    def lookup_interval(self) -> int | None:
        """Fruitless triggers until a gentle table lifts level 0; None for a radical one, which never waits."""
        if self.lookup_compact is LookupCompact.RADICAL:
            return None
        given = self.lookup_interval_given
        return max(self.trigger, 2 * self.trigger if given is None else given)

    def ratio_percent_at(self, local_ms: int) -> int:
        """The size ratio at a local wall-clock time; the quiet hours may wrap around midnight."""
        start, end, hour = self.offpeak_start_hour, self.offpeak_end_hour, local_ms // 3_600_000 % 24
        if start == -1 or end == -1 or start == end:
            return self.size_ratio_percent
        quiet = start <= hour < end if start < end else hour < end or start <= hour
        return self.size_ratio_percent + (self.offpeak_ratio_percent if quiet else 0)
