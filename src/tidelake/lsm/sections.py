"""Cuts files into sections, whose key ranges do not overlap.

A key is in at most one section, so sections can be merged one after the other or by different tasks. Within a section
the files are assigned to as few sorted runs as possible, because the cost of a merge grows with the number of runs.

Invariant: sections are disjoint and in key order; the files of each run are disjoint and in key order; every file is in
exactly one run of one section.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidelake.lsm.files import Key, RunFile

__all__ = ["Section", "partition_files"]


@dataclass(frozen=True, slots=True)
class Section:
    """Files with overlapping key ranges, as sorted runs."""

    runs: tuple[tuple[RunFile, ...], ...]

    @property
    def files(self) -> tuple[RunFile, ...]:
        """All files, run by run."""
        return tuple(file for run in self.runs for file in run)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for run in self.runs for file in run)


def partition_files(files: Iterable[RunFile]) -> tuple[Section, ...]:
    """Cut files of any levels into sections of as few runs as possible."""
    return tuple(Section(_assign_runs(group)) for group in _group_overlapping(files))


def _group_overlapping(files: Iterable[RunFile]) -> Iterator[list[RunFile]]:
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


def _assign_runs(files: list[RunFile]) -> tuple[tuple[RunFile, ...], ...]:
    """Append each file, in key order, to the run that ends first; start a new run if even that one overlaps it."""
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
