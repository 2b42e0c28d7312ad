"""Picks the sorted runs to compact next: universal compaction, decided from sizes and levels alone.

Runs are considered youngest first, and a compaction takes a prefix of them, so that younger data never ends up below
older data. The reasons to compact, in this order: a full compaction is due by time or size; size amplification; runs of
similar size; too many runs; and, if files must not stay on level 0, whatever is there.

Invariant: the output level is never 0, every run after the picked ones is on a level below the output, and equal inputs
give equal picks. Times are local wall-clock milliseconds, as the creation times of files are.

Once a pick has more than one run, the following runs on levels 0 and 1 are included whatever their size, so that level
1 does not grow for ever by small merges. Paimon 2.0.0 does not do this yet; `absorb=False` picks as it does.
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
    """What a pick needs to know about a sorted run."""

    @property
    def level(self) -> int:
        """The level of the run."""

    @property
    def size(self) -> int:
        """The size of the run in bytes."""


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
    """Triggers without a compaction since level 0 was last compacted by force; counted with `lookup-compact=gentle`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """One compaction of a bucket: these files become part of the run at `output_level`.

    `drop_delete`: no older version can be below the output, so retract rows need not be kept. With `one_by_one` each
    file is rewritten by itself, because the tree is already flat.
    """

    files: tuple[RunFile, ...]
    output_level: int
    drop_delete: bool
    one_by_one: bool = False


# ------------------------------------------------------------------------------------------------ on a tree


def first_state(levels: Levels) -> PickState:
    """Return the state of a writer that opens a bucket: the newest file of the lowest level dates the full compaction.

    Without this, every new writer would start with a full compaction if `compaction.optimization-interval` is set.
    """
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
    """Return the compaction that is due, if any, and the state for the next call.

    Args:
        levels: The files of the bucket.
        options: The table's options.
        now_ms: Local wall-clock time.
        state: What the last call returned, or `first_state`.
        needs_lookup: Whether compactions look up older versions, so that level 0 has to be compacted.
        deletion_vectors: Whether the table uses deletion vectors, so that retract rows need not be kept at all.
        absorb: Whether a pick of several runs includes the following runs on levels 0 and 1.
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
    """Return a compaction of all files to the lowest level; if all are there already, of those that need rewriting.

    Args:
        levels: The files of the bucket.
        options: The table's options.
        expired: Names of files with rows past their record-level expiry.
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
    """Return whether a compaction to this level may drop retract rows.

    It may if no files are below the output level. Otherwise an older version of the key could be there, and without its
    retract row it would be read again. With deletion vectors that version is already deleted by its position.
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
    """Return the runs to compact, if any, and the state for the next call. `runs` are youngest first."""
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
    """Return what is due by time, size or number of runs; None if nothing is."""
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
    """Return all of level 0 and the following runs of similar size; None if level 0 is empty."""
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
    """Return the first `count` runs and the following ones as long as none is much larger than all runs before it."""
    taken = sum(run.size for run in runs[:count])
    triggered = force or count > 1
    for run in runs[count:]:
        # Paimon computes this in floating point. Do the same, so that boundary cases give the same pick.
        too_large = float(taken) * (100.0 + ratio_percent) / 100.0 < float(run.size)
        if too_large and not (absorb and triggered and run.level <= 1):
            break
        taken += run.size
        count += 1
        triggered = True
    return _to_level(runs, count, max_level) if triggered else None


def _to_level(runs: Sequence[SizedRun], count: int, max_level: int) -> Pick:
    """Choose the level above the next run as output; while that is level 0, include the next run."""
    output = max(0, runs[count].level - 1) if count < len(runs) else max_level
    while output == 0 and count < len(runs):
        output = runs[count].level
        count += 1
    return Pick(count, max_level if count == len(runs) else output)
