"""Repair the hints of a table: `LATEST` and `EARLIEST` of its snapshots and changelogs, on every branch.

Readers check a hint before they use it, so a wrong one only makes them slower; other readers may trust it. The folders
are listed, and a hint that does not name the oldest or the newest document is written again. Nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidelake.errors import NotFoundError
from tidelake.io.fileio import FileIO
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.branches import branch_store
from tidelake.spec.documents.hint import hint_bytes, parse_hint
from tidelake.spec.layout import (
    CHANGELOG_PREFIX,
    EARLIEST,
    LATEST,
    SNAPSHOT_PREFIX,
    TableLayout,
    parse_numbered,
)
from tidelake.spec.names import MAIN_BRANCH

__all__ = ["HintRepair", "RepairPlan", "plan_repair", "run_repair"]

_HINT_BYTES_MAX = 1 << 10


@dataclass(frozen=True, slots=True)
class HintRepair:
    """One hint: what it says, None if it cannot be read, and what it should say."""

    path: str
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The hints of one table that are wrong, and its oldest and newest snapshot."""

    table: str
    hints: tuple[HintRepair, ...] = ()
    earliest: int | None = None
    latest: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether every hint is right."""
        return not self.hints

    def __str__(self) -> str:
        if self.is_empty:
            return f"{self.table}: every hint is right"
        changes = (f"{each.path} {_show(each.before)} -> {each.after}" for each in self.hints)
        return f"{self.table}: {', '.join(changes)}"


def plan_repair(context: TableContext) -> RepairPlan:
    """Compare the hints of a table with what its folders hold.

    Raises:
        StorageError: the storage failed.
    """
    store, wrong = context.store, list[HintRepair]()
    layouts = [store.layout]
    if store.layout.branch == MAIN_BRANCH:
        layouts += [replace(store.layout, branch=name) for name in sorted(branch_store(store).names())]
    for layout in layouts:
        wrong += _wrong_hints(store.env.io, layout)
    ids = store.snapshots.ids()
    return RepairPlan(context.name, tuple(wrong), min(ids, default=None), max(ids, default=None))


def _wrong_hints(io: FileIO, layout: TableLayout) -> Iterator[HintRepair]:
    folders = (
        (layout.snapshot_dir, SNAPSHOT_PREFIX, layout.snapshot_hint_path),
        (layout.changelog_dir, CHANGELOG_PREFIX, layout.changelog_hint_path),
    )
    for folder, prefix, path_of in folders:
        numbers = (parse_numbered(each.name, prefix) for each in io.list(folder) if not each.is_dir)
        ids = [number for number in numbers if number is not None]
        for name, right in ((EARLIEST, min(ids, default=None)), (LATEST, max(ids, default=None))):
            said = _read_hint(io, path_of(name)) if right is not None else None
            # The first snapshot after a gap may be noted as the oldest that counts (`earliest`).
            follows_gap = name == EARLIEST and said is not None and said in ids and said - 1 not in ids
            if right is not None and said != right and not follows_gap:
                yield HintRepair(path_of(name), said, right)


def _read_hint(io: FileIO, path: str) -> int | None:
    try:
        return parse_hint(io.read(path, limit=_HINT_BYTES_MAX))
    except NotFoundError:
        return None


def run_repair(context: TableContext, plan: RepairPlan) -> None:
    """Write the hints again.

    A commit that is published in between may leave a newer hint, which this replaces by an older one. Readers look past
    a hint that is behind, and the next commit writes it again.

    Raises:
        StorageError: the storage failed; the hints that are left are as they were.
    """
    for each in plan.hints:
        context.store.env.io.overwrite(each.path, hint_bytes(each.after))


def _show(number: int | None) -> str:
    return "missing" if number is None else str(number)
