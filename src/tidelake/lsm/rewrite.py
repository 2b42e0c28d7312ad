"""One compaction as a list of steps: which files are merged and rewritten, and which only change their level.

A large file that overlaps nothing would come out of a merge as it went in, so it is moved by its metadata alone. Small
ones are rewritten with their neighbours. No file is skipped in the middle: the result must stay one sorted run.

Invariant: every input file is in at most one step; those in none already lie where they should. A moved file keeps its
name: it is among the files before and the files after, and must never be deleted as an input.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tidelake.lsm.files import RunFile
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import Compaction
from tidelake.lsm.sections import Section, partition_files

__all__ = ["LookupRules", "Rewrite", "Step", "Upgrade", "plan_steps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Merge the sections one after the other and write the result to `output_level`."""

    sections: tuple[Section, ...]
    output_level: int
    drop_delete: bool

    @property
    def files(self) -> tuple[RunFile, ...]:
        """The files it reads."""
        return tuple(file for section in self.sections for file in section.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """Move one file to `level` without touching its bytes.

    With `watched` its rows still have to be read: to be compared with what lies below, or to be told of as new.
    """

    file: RunFile
    level: int
    watched: bool = False

    @property
    def after(self) -> RunFile:
        """The file as it is listed afterwards, under the same name."""
        return self.file.at(self.level)


Step = Rewrite | Upgrade


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupRules:
    """What a table that looks up older versions says about lifting a file from level 0."""

    deletion_vectors: bool = False
    last_wins: bool = False
    """The merge keeps the last version as it is (deduplicate without sequence fields): nothing below changes a row."""
    format_changes: bool = False
    """Files of the output level have another format than those of level 0."""

    def must_rewrite(self, file: RunFile, *, to_bottom: bool) -> bool:
        """Whether the file's bytes would not be right on the new level."""
        if self.format_changes or (self.deletion_vectors and file.may_hold_deletes):
            return True
        return not (to_bottom or self.last_wins)


def plan_steps(
    compaction: Compaction,
    options: CompactionOptions,
    *,
    max_level: int,
    expired: Collection[str] = frozenset(),
    lookup: LookupRules | None = None,
    tells_bottom: bool = False,
) -> tuple[Step, ...]:
    """The steps of a compaction, in key order.

    Args:
        compaction: What was picked.
        options: The table's options.
        max_level: The lowest level of the tree.
        expired: Names of files that hold rows past their record-level expiry.
        lookup: How files leave level 0 where the table looks up older versions; None where it does not.
        tells_bottom: Whether rows are told of as new when they reach the lowest level.
    """
    walk = _Walk(compaction, options.force_rewrite_all_files, max_level, expired, lookup, tells_bottom)
    if compaction.one_by_one:
        return tuple(walk.rewritten([_single(file)]) for file in compaction.files)
    steps: list[Step] = []
    waiting: list[Section] = []
    for section in partition_files(compaction.files):
        files = section.files
        if len(section.runs) > 1 or files[0].size < options.small_file_bytes:
            # The files of a section with one run are a single file: two disjoint files would be two sections.
            waiting.append(section)
            continue
        steps += walk.flushed(waiting)
        steps += walk.moved(files[0])
        waiting = []
    steps += walk.flushed(waiting)
    return tuple(steps)


def _single(file: RunFile) -> Section:
    return Section(((file,),))


@dataclass(frozen=True, slots=True)
class _Walk:
    compaction: Compaction
    rewrite_all: bool
    max_level: int
    expired: Collection[str]
    lookup: LookupRules | None
    tells_bottom: bool

    def rewritten(self, sections: list[Section]) -> Rewrite:
        target = self.compaction
        return Rewrite(sections=tuple(sections), output_level=target.output_level, drop_delete=target.drop_delete)

    def flushed(self, waiting: list[Section]) -> list[Step]:
        """What becomes of the sections that wait: rewritten together, but a file that is alone need not be."""
        if not waiting:
            return []
        if len(waiting) == 1 and len(waiting[0].runs) == 1:
            return [step for file in waiting[0].files for step in self.moved(file)]
        return [self.rewritten(waiting)]

    def moved(self, file: RunFile) -> list[Step]:
        output = self.compaction.output_level
        to_bottom = output == self.max_level
        # Nobody removes deletions from the lowest level later on: now is the time.
        stale = (to_bottom and file.may_hold_deletes) or self.rewrite_all or file.name in self.expired
        rules = self.lookup if file.level == 0 else None
        if stale or (rules is not None and rules.must_rewrite(file, to_bottom=to_bottom)):
            return [self.rewritten([_single(file)])]
        if file.level == output:
            return []
        return [Upgrade(file=file, level=output, watched=rules is not None or (to_bottom and self.tells_bottom))]
