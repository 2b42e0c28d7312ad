"""The files of one bucket arranged as levels.

Level 0 has the flushed files: each is a sorted run of its own, newest first. Every other level is one sorted run, whose
files have disjoint key ranges and are in key order. Runs are listed youngest first, which is why a compaction always
takes a prefix of `runs`.

Invariant: a `Levels` never has overlapping files on a level above 0, nor the same file twice on a level. If the tree on
disk is deeper than configured, more levels are added to hold it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from tidelake.errors import FormatError, InvalidInputError
from tidelake.lsm.files import RunFile

__all__ = ["Levels", "Run", "build_levels"]


@dataclass(frozen=True, slots=True)
class Run:
    """A sorted run: files with disjoint ranges in key order, all on one level."""

    level: int
    files: tuple[RunFile, ...]

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Levels:
    """All files of one bucket. Make it with `build_levels`; a change is a new value.

    `level0` is newest first; `upper` holds the sorted levels 1, 2, … (empty ones too) with their files in key order.
    """

    level0: tuple[RunFile, ...]
    upper: tuple[tuple[RunFile, ...], ...]

    @property
    def max_level(self) -> int:
        """The number of the lowest level, to which full compactions write."""
        return len(self.upper)

    @property
    def files(self) -> tuple[RunFile, ...]:
        """Every file, youngest run first."""
        return (*self.level0, *(file for level in self.upper for file in level))

    def runs(self) -> tuple[Run, ...]:
        """Return the sorted runs, youngest first: each file of level 0, then each level that has files."""
        above = (Run(level, files) for level, files in enumerate(self.upper, start=1) if files)
        return (*(Run(0, (file,)) for file in self.level0), *above)

    @property
    def number_of_sorted_runs(self) -> int:
        """The largest number of runs that a reader may have to merge."""
        return len(self.level0) + sum(bool(files) for files in self.upper)

    @property
    def non_empty_highest_level(self) -> int:
        """The largest level number that has files; -1 if there are no files."""
        above = max((level for level, files in enumerate(self.upper, start=1) if files), default=0)
        return above or (0 if self.level0 else -1)

    def apply(self, before: Iterable[RunFile], after: Iterable[RunFile]) -> Levels:
        """Return the tree after a flush or compaction removed `before` and added `after`.

        An upgraded file is in both, under the same name.

        Raises:
            InvalidInputError: a file to remove is not in the tree.
            FormatError: a file to add is already in the tree, or overlaps another file of its level.
        """
        gone = {(file.level, file.name) for file in before}
        missing = gone.difference((file.level, file.name) for file in self.files)
        if missing:
            level, name = min(missing)
            raise InvalidInputError(
                "file to remove is not in the tree",
                file=name,
                level=level,
                hint="plan again on the files of the newest snapshot",
            )
        kept = (file for file in self.files if (file.level, file.name) not in gone)
        return build_levels((*kept, *after), num_levels=len(self.upper) + 1)


def build_levels(files: Iterable[RunFile], *, num_levels: int) -> Levels:
    """Arrange the files of a bucket as levels.

    Args:
        files: All live files of the bucket, in any order.
        num_levels: The configured number of levels, including level 0; more are added if a file needs them.

    Raises:
        InvalidInputError: fewer than two levels.
        FormatError: two files of a sorted level overlap, a file is listed twice, or a level is negative.
    """
    if num_levels < 2:
        raise InvalidInputError("tree needs at least two levels", num_levels=num_levels, hint="raise `num-levels`")
    by_level: defaultdict[int, list[RunFile]] = defaultdict(list)
    for file in files:
        by_level[file.level].append(file)
    if by_level and min(by_level) < 0:
        wrong = by_level[min(by_level)][0]
        raise FormatError("data file has a negative level", file=wrong.name, level=wrong.level)
    level0 = sorted(by_level.pop(0, ()), key=_newest_first)
    for one, other in pairwise(level0):
        if one.name == other.name:
            raise FormatError("data file is listed twice", file=one.name, level=0)
    depth = max((num_levels - 1, *by_level))
    return Levels(tuple(level0), tuple(_sorted_run(by_level.get(level, [])) for level in range(1, depth + 1)))


def _newest_first(file: RunFile) -> tuple[int, int, int, bytes]:
    """Return a sort key for level 0, newest first.

    Files of concurrent writers can have equal sequence numbers. The other parts of the key only make every reader
    choose the same order.
    """
    meta = file.meta
    # Java compares strings by UTF-16 code units.
    name = meta.file_name.encode("utf-16-be", "surrogatepass")
    return -meta.max_sequence, meta.min_sequence, meta.creation_time_ms or 0, name


def _sorted_run(files: list[RunFile]) -> tuple[RunFile, ...]:
    ordered = sorted(files, key=lambda file: file.min_key)
    for one, other in pairwise(ordered):
        if other.min_key <= one.max_key:
            raise FormatError(
                "two files of a sorted level overlap",
                first=one.name,
                second=other.name,
                level=one.level,
                hint="two jobs compacted this bucket at once: run `check`, and compact it fully",
            )
    return tuple(ordered)
