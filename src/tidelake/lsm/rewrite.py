"""Plans the steps of one compaction: which files are merged and rewritten, and which are upgraded.

A large file that overlaps no other would come out of a merge unchanged, so it is upgraded: only its metadata changes.
Small files are rewritten with their neighbours. No file in between is left out: the result must be one sorted run.

Invariant: every input file is in at most one step; a file in none is already on the output level. An upgraded file
keeps its name: it is in the files before and after the compaction, and must never be deleted as an input.
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
        """The files that the step reads."""
        return tuple(file for section in self.sections for file in section.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """Upgrade one file to `level` without changing its bytes.

    If `watched`, its rows still have to be read, to compare them with lower levels or to report them in a changelog.
    """

    file: RunFile
    level: int
    watched: bool = False

    @property
    def after(self) -> RunFile:
        """The file with its new level, under the same name."""
        return self.file.at(self.level)


Step = Rewrite | Upgrade


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupRules:
    """When a table with lookup compactions has to rewrite a level-0 file instead of upgrading it."""

    deletion_vectors: bool = False
    last_wins: bool = False
    """The merge keeps the last version unchanged (deduplicate without sequence fields): older ones do not matter."""
    format_changes: bool = False
    """The output level uses another file format than level 0."""

    def must_rewrite(self, file: RunFile, *, to_bottom: bool) -> bool:
        """Return whether the file's rows would be wrong on the new level."""
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
    reports_bottom: bool = False,
) -> tuple[Step, ...]:
    """Return the steps of a compaction, in key order.

    Args:
        compaction: The picked compaction.
        options: The table's options.
        max_level: The lowest level of the tree.
        expired: Names of files with rows past their record-level expiry.
        lookup: When level-0 files have to be rewritten; None if compactions of the table do not look up.
        reports_bottom: Whether rows are reported in the changelog when they reach the lowest level.
    """
    walk = _Walk(compaction, options.force_rewrite_all_files, max_level, expired, lookup, reports_bottom)
    if compaction.one_by_one:
        return tuple(walk.plan_rewrite([_single(file)]) for file in compaction.files)
    steps: list[Step] = []
    pending: list[Section] = []
    for section in partition_files(compaction.files):
        files = section.files
        if len(section.runs) > 1 or files[0].size < options.small_file_bytes:
            # The files of a section with one run are a single file: two disjoint files would be two sections.
            pending.append(section)
            continue
        steps += walk.plan_pending(pending)
        steps += walk.plan_move(files[0])
        pending = []
    steps += walk.plan_pending(pending)
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
    reports_bottom: bool

    def plan_rewrite(self, sections: list[Section]) -> Rewrite:
        target = self.compaction
        return Rewrite(sections=tuple(sections), output_level=target.output_level, drop_delete=target.drop_delete)

    def plan_pending(self, pending: list[Section]) -> list[Step]:
        """Rewrite the pending sections together; a single file may not need it."""
        if not pending:
            return []
        if len(pending) == 1 and len(pending[0].runs) == 1:
            return [step for file in pending[0].files for step in self.plan_move(file)]
        return [self.plan_rewrite(pending)]

    def plan_move(self, file: RunFile) -> list[Step]:
        output = self.compaction.output_level
        to_bottom = output == self.max_level
        # No later compaction removes retract rows from a file on the lowest level, so it has to happen now.
        stale = (to_bottom and file.may_hold_deletes) or self.rewrite_all or file.name in self.expired
        rules = self.lookup if file.level == 0 else None
        if stale or (rules is not None and rules.must_rewrite(file, to_bottom=to_bottom)):
            return [self.plan_rewrite([_single(file)])]
        if file.level == output:
            return []
        return [Upgrade(file=file, level=output, watched=rules is not None or (to_bottom and self.reports_bottom))]
