"""Which runs to compact next: universal compaction, decided from sizes and levels alone.

The runs are looked at youngest first, and a compaction takes a prefix of them, so that younger data never ends up below
older data. In this order: a full compaction that is due by time or size; too many bytes above the oldest run; runs of
similar size; too many runs; and, where level 0 must not stay, whatever lies there.

Invariant: the output level is never 0, every run after the taken ones lies below the output level, and the same state
gives the same answer. Times are local wall-clock milliseconds, as creation times of files are.

Once a compaction has begun, runs on level 0 and level 1 are taken along whatever their size, so that level 1 does not
grow for ever by small merges. Release 2.0.0 does not do so yet; `absorb=False` picks as it does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tidelake.lsm.files import RunFile
from tidelake.lsm.levels import Levels
from tidelake.lsm.options import CompactionOptions

__all__ = [
    "Compaction",
    "Pick",
    "PickState",
    "first_state",
    "may_drop_deletes",
    "pick_level0",
    "pick_runs",
    "pick_universal",
    "plan_compaction",
    "plan_full_compaction",
]


class SizedRun(Protocol):
    """What the pick looks at."""

    @property
    def level(self) -> int:
        """The level of the run."""

    @property
    def size(self) -> int:
        """Its bytes."""


@dataclass(frozen=True, slots=True)
class Pick:
    """The first `count` runs become one run at `output_level`."""

    count: int
    output_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PickState:
    """What a writer remembers of a bucket between picks."""

    last_full_ms: int | None = None
    fruitless: int = 0
    """Triggers without a compaction since level 0 was last lifted by force; only a gentle table counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """One compaction of a bucket: these files become part of the run at `output_level`.

    `drop_delete` tells that no older version can lie below, so deletions need not be kept. With `one_by_one` every file
    is rewritten for itself: the tree is already as flat as it can be.
    """

    files: tuple[RunFile, ...]
    output_level: int
    drop_delete: bool
    one_by_one: bool = False


# ------------------------------------------------------------------------------------------------ on a tree


def first_state(levels: Levels) -> PickState:
    """The state of a writer that opens a bucket: its last full compaction is as old as the newest file it left."""
    times = [file.meta.creation_time_ms for file in levels.upper[-1]]
    return PickState(last_full_ms=max((time for time in times if time is not None), default=None))


def plan_compaction(
    levels: Levels,
    options: CompactionOptions,
    *,
    now_ms: int,
    state: PickState,
    needs_lookup: bool = False,
    deletion_vectors: bool = False,
    absorb: bool = True,
) -> tuple[Compaction | None, PickState]:
    """The compaction that is due, if any, and the state to remember.

    Args:
        levels: The files of the bucket.
        options: The table's options.
        now_ms: Local wall-clock time.
        state: What the last call returned, or `first_state`.
        needs_lookup: Whether rows of level 0 become visible only by a compaction that looks up older versions.
        deletion_vectors: Whether the table marks superseded rows, so that deletions need not be kept at all.
        absorb: Whether levels 0 and 1 are taken along once a compaction has begun.
    """
    runs = levels.runs()
    pick, state = pick_runs(
        runs,
        options,
        max_level=levels.max_level,
        now_ms=now_ms,
        state=state,
        needs_lookup=needs_lookup,
        absorb=absorb,
    )
    if pick is None:
        return None, state
    files = tuple(file for run in runs[: pick.count] for file in run.files)
    if len(files) == 1 and files[0].level == pick.output_level:
        return None, state
    drop = may_drop_deletes(levels, pick.output_level, deletion_vectors=deletion_vectors)
    return Compaction(files=files, output_level=pick.output_level, drop_delete=drop), state


def plan_full_compaction(
    levels: Levels,
    options: CompactionOptions,
    *,
    expired: Collection[str] = frozenset(),
    with_vectors: Collection[str] = frozenset(),
    deletion_vectors: bool = False,
) -> Compaction | None:
    """Everything to the lowest level; where all is there already, only the files that have a reason to change.

    Args:
        levels: The files of the bucket.
        options: The table's options.
        expired: Names of files that hold rows past their record-level expiry.
        with_vectors: Names of files that have a deletion vector.
        deletion_vectors: Whether the table uses deletion vectors.
    """
    runs = levels.runs()
    if not runs:
        return None
    bottom = levels.max_level
    drop = may_drop_deletes(levels, bottom, deletion_vectors=deletion_vectors)
    if len(runs) > 1 or runs[0].level != bottom:
        return Compaction(files=levels.files, output_level=bottom, drop_delete=drop)
    changing = tuple(
        file
        for file in runs[0].files
        if options.force_rewrite_all_files or file.name in expired or file.name in with_vectors
    )
    if not changing:
        return None
    return Compaction(files=changing, output_level=bottom, drop_delete=drop, one_by_one=True)


def may_drop_deletes(levels: Levels, output_level: int, *, deletion_vectors: bool) -> bool:
    """Whether a compaction to this level may forget deletions.

    It may when nothing lies below the output, where an older version could come back to life; with deletion vectors
    that version is marked as gone anyway.
    """
    return output_level != 0 and (deletion_vectors or output_level >= levels.non_empty_highest_level)


# ------------------------------------------------------------------------------------------------ on sizes


def pick_runs(
    runs: Sequence[SizedRun],
    options: CompactionOptions,
    *,
    max_level: int,
    now_ms: int,
    state: PickState,
    needs_lookup: bool = False,
    absorb: bool = True,
) -> tuple[Pick | None, PickState]:
    """What to compact, and the state to remember. `runs` are youngest first."""
    pick = pick_universal(
        runs, options, max_level=max_level, now_ms=now_ms, last_full_ms=state.last_full_ms, absorb=absorb
    )
    if pick is None and (needs_lookup or options.force_up_level0):
        interval = options.lookup_interval if needs_lookup else None
        fruitless = 0 if interval is None else state.fruitless + 1
        if interval is None or fruitless >= interval:
            pick = pick_level0(runs, options, max_level=max_level, now_ms=now_ms, absorb=absorb)
            fruitless = 0
        state = replace(state, fruitless=fruitless)
    if pick is not None and pick.count == len(runs):
        state = replace(state, last_full_ms=now_ms)
    return pick, state


def pick_universal(
    runs: Sequence[SizedRun],
    options: CompactionOptions,
    *,
    max_level: int,
    now_ms: int,
    last_full_ms: int | None = None,
    absorb: bool = True,
) -> Pick | None:
    """What is due by time, size or number of runs; None when nothing is."""
    count, trigger = len(runs), options.trigger
    if _full_is_due(runs, options, max_level, now_ms, last_full_ms):
        return Pick(count, max_level)
    if count < trigger:
        return None
    younger = sum(run.size for run in runs[:-1])
    if count and younger * 100 > options.max_size_amplification_percent * runs[-1].size:
        return Pick(count, max_level)
    ratio = options.ratio_percent_at(now_ms)
    by_ratio = _pick_ratio(runs, 1, max_level=max_level, ratio_percent=ratio, absorb=absorb)
    if by_ratio is not None or count <= trigger:
        return by_ratio
    return _pick_ratio(runs, count - trigger + 1, max_level=max_level, ratio_percent=ratio, absorb=absorb)


def pick_level0(
    runs: Sequence[SizedRun], options: CompactionOptions, *, max_level: int, now_ms: int, absorb: bool = True
) -> Pick | None:
    """All of level 0, with the runs of similar size behind it; None when level 0 is empty."""
    count = next((place for place, run in enumerate(runs) if run.level > 0), len(runs))
    if count == 0:
        return None
    ratio = options.ratio_percent_at(now_ms)
    return _pick_ratio(runs, count, max_level=max_level, ratio_percent=ratio, absorb=absorb, force=True)


def _full_is_due(
    runs: Sequence[SizedRun], options: CompactionOptions, max_level: int, now_ms: int, last_full_ms: int | None
) -> bool:
    if len(runs) <= 1:
        return False
    interval = options.optimization_interval_ms
    if interval is not None and (last_full_ms is None or now_ms - last_full_ms > interval):
        return True
    total, rising = options.total_size_threshold, options.incremental_size_threshold
    if total is not None and sum(run.size for run in runs) < total:
        return True
    return rising is not None and sum(run.size for run in runs if run.level != max_level) > rising


def _pick_ratio(
    runs: Sequence[SizedRun], count: int, *, max_level: int, ratio_percent: int, absorb: bool, force: bool = False
) -> Pick | None:
    """The first `count` runs and those behind them that are not much larger than all before."""
    taken = sum(run.size for run in runs[:count])
    triggered = force or count > 1
    for run in runs[count:]:
        # The format's own arithmetic is in floating point, and the boundary case must fall on the same side.
        too_large = float(taken) * (100.0 + ratio_percent) / 100.0 < float(run.size)
        if too_large and not (absorb and triggered and run.level <= 1):
            break
        taken += run.size
        count += 1
        triggered = True
    return _to_level(runs, count, max_level) if triggered else None


def _to_level(runs: Sequence[SizedRun], count: int, max_level: int) -> Pick:
    """Put the result right above the next run; where that would be level 0, take runs along until it is not."""
    output = max(0, runs[count].level - 1) if count < len(runs) else max_level
    while output == 0 and count < len(runs):
        output = runs[count].level
        count += 1
    return Pick(count, max_level if count == len(runs) else output)
