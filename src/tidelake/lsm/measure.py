"""The health of an LSM tree in numbers: its levels, its compaction debt, and its amplification.

    read amplification    sorted runs that a merge opens, averaged over the bytes read; 1 if no files overlap
    write amplification   bytes written by writers and compactions, per byte that writers added
    space amplification   bytes of all runs, per byte of the oldest run, which holds nearly every key
    compaction debt       bytes that compactions would rewrite now until none is due

Invariant: every number is computed from metadata; no file is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelake.lsm.files import RunFile
from tidelake.lsm.levels import Levels
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import PickState, SizedRun, pick_runs, plan_full_compaction
from tidelake.lsm.rewrite import Rewrite, plan_steps
from tidelake.lsm.sections import partition_files

__all__ = ["LevelReport", "LsmReport", "measure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelReport:
    """One level. `overlap` is the largest number of its files that may share a key; 1 on a sorted level."""

    level: int
    files: int
    runs: int
    bytes: int
    rows: int
    deletes: int | None
    """The number of retract rows; None if a file does not store it."""
    overlap: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LsmReport:
    """One bucket. `full_compaction_bytes` is what a full compaction would rewrite, without upgraded files."""

    levels: tuple[LevelReport, ...]
    sorted_runs: int
    compaction_debt_bytes: int
    full_compaction_bytes: int
    read_amplification: float
    write_amplification: float | None
    space_amplification: float


@dataclass(frozen=True, slots=True)
class _Sized:
    level: int
    size: int


def measure(
    levels: Levels,
    options: CompactionOptions,
    *,
    now_ms: int,
    state: PickState,
    needs_lookup: bool = False,
    appended_bytes: int = 0,
    compacted_bytes: int = 0,
) -> LsmReport:
    """Measure one bucket.

    Args:
        levels: Its files.
        options: The table's options.
        now_ms: Local wall-clock time.
        state: What the writer remembers of the bucket between picks.
        needs_lookup: Whether level-0 rows become visible only by a compaction.
        appended_bytes: What writers added in the snapshots considered; if 0, write amplification is unknown.
        compacted_bytes: What compactions added in the same snapshots.
    """
    runs = levels.runs()
    total = sum(run.size for run in runs)
    sections = partition_files(levels.files)
    full = plan_full_compaction(levels, options)
    steps = () if full is None else plan_steps(full, options, max_level=levels.max_level)
    return LsmReport(
        levels=tuple(_level(level, files) for level, files in enumerate((levels.level0, *levels.upper))),
        sorted_runs=len(runs),
        compaction_debt_bytes=_debt(runs, options, levels.max_level, now_ms, state, needs_lookup=needs_lookup),
        full_compaction_bytes=sum(file.size for step in steps if isinstance(step, Rewrite) for file in step.files),
        read_amplification=sum(each.size * len(each.runs) for each in sections) / total if total else 1.0,
        write_amplification=(appended_bytes + compacted_bytes) / appended_bytes if appended_bytes else None,
        space_amplification=total / runs[-1].size if runs and runs[-1].size else 1.0,
    )


def _level(level: int, files: Sequence[RunFile]) -> LevelReport:
    deletes = [file.meta.delete_row_count for file in files]
    known = [count for count in deletes if count is not None]
    return LevelReport(
        level=level,
        files=len(files),
        runs=len(files) if level == 0 else min(len(files), 1),
        bytes=sum(file.size for file in files),
        rows=sum(file.meta.row_count for file in files),
        deletes=sum(known) if len(known) == len(deletes) else None,
        overlap=max((len(section.runs) for section in partition_files(files)), default=0),
    )


def _debt(
    runs: Sequence[SizedRun],
    options: CompactionOptions,
    max_level: int,
    now_ms: int,
    state: PickState,
    *,
    needs_lookup: bool,
) -> int:
    """Simulate the picks that are due, assuming that a merge drops no row.

    This ends, because each pick reduces the number of runs or empties level 0.
    """
    debt = 0
    while runs:
        pick, state = pick_runs(
            runs, options, max_level=max_level, now_ms=now_ms, state=state, needs_lookup=needs_lookup
        )
        if pick is None or (pick.count == 1 and runs[0].level == pick.output_level):
            break
        merged = _Sized(pick.output_level, sum(run.size for run in runs[: pick.count]))
        debt += merged.size
        runs = [merged, *runs[pick.count :]]
    return debt
