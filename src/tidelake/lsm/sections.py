"""Files cut into sections, ranges of keys that have nothing to do with each other, and packed into splits of a read.

A key lies in at most one section, so sections are merged one after the other or by different tasks. Inside a section
the files are dealt to as few sorted runs as possible, because a merge costs by the number of runs.

Invariant: sections are disjoint and in key order; the files of each run are disjoint and in key order; every file is in
exactly one run of one section.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidelake.lsm.files import Key, RunFile

__all__ = ["Section", "SplitGroup", "partition_files", "plan_split_groups"]


@dataclass(frozen=True, slots=True)
class Section:
    """Files whose key ranges hang together, as sorted runs."""

    runs: tuple[tuple[RunFile, ...], ...]

    @property
    def files(self) -> tuple[RunFile, ...]:
        """All files, run by run."""
        return tuple(file for run in self.runs for file in run)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for run in self.runs for file in run)


@dataclass(frozen=True, slots=True)
class SplitGroup:
    """Files that one task reads. `raw_convertible` tells that their rows are the table's rows, without a merge."""

    files: tuple[RunFile, ...]
    raw_convertible: bool


def partition_files(files: Iterable[RunFile]) -> tuple[Section, ...]:
    """Cut files of any levels into sections of as few runs as possible."""
    return tuple(Section(_deal(group)) for group in _connected(files))


def plan_split_groups(
    files: Sequence[RunFile], *, target_bytes: int, open_file_cost: int, one_version: bool
) -> tuple[SplitGroup, ...]:
    """Pack the files of a bucket of a primary-key table for a batch read.

    Files that hold no deletions and lie above level 0 are packed one by one when no two of them can hold one key.
    Otherwise whole sections are packed, and only a split of a single file without deletions needs no merge.

    Args:
        files: The files to read, in the order of the plan.
        target_bytes: What a split weighs at most, unless a single item is heavier.
        open_file_cost: What an item weighs at least.
        one_version: Whether levels above 0 hold at most one live version of a key: deletion vectors, or first-row.
    """
    if not files:
        return ()
    settled = all(file.level > 0 and not file.known_to_hold_deletes for file in files)
    if settled and (one_version or len({file.level for file in files}) == 1):
        raw, items = True, [Section(((file,),)) for file in files]
    else:
        raw, items = False, list(partition_files(files))
    groups = (tuple(group) for group in _packed(items, target_bytes=target_bytes, least=open_file_cost))
    return tuple(SplitGroup(group, raw or _alone(group)) for group in groups)


def _alone(group: tuple[RunFile, ...]) -> bool:
    return len(group) == 1 and not group[0].known_to_hold_deletes


def _packed(sections: Iterable[Section], *, target_bytes: int, least: int) -> Iterator[list[RunFile]]:
    group: list[RunFile] = []
    weight = 0
    for section in sections:
        own = max(section.size, least)
        if group and weight + own > target_bytes:
            yield group
            group, weight = [], 0
        group.extend(section.files)
        weight += own
    if group:
        yield group


def _connected(files: Iterable[RunFile]) -> Iterator[list[RunFile]]:
    group: list[RunFile] = []
    reach: Key = ()
    for file in sorted(files, key=lambda each: (each.min_key, each.max_key)):
        if group and file.min_key > reach:
            yield group
            group = []
        reach = max(reach, file.max_key) if group else file.max_key
        group.append(file)
    if group:
        yield group


def _deal(files: list[RunFile]) -> tuple[tuple[RunFile, ...], ...]:
    """Put each file, in key order, behind the run that ended first; open a run when even that one reaches into it."""
    runs: list[list[RunFile]] = []
    ends: list[tuple[Key, int]] = []
    for file in files:
        if ends and file.min_key > ends[0][0]:
            run = ends[0][1]
            heapq.heapreplace(ends, (file.max_key, run))
        else:
            run = len(runs)
            runs.append([])
            heapq.heappush(ends, (file.max_key, run))
        runs[run].append(file)
    return tuple(tuple(run) for run in runs)
