"""What holds files: snapshots, tags, branches, long-lived changelogs and consumers at one moment.

`look` only lists folders, so that it can be repeated right before something is deleted: if the result has changed, the
plan made on the first one is not carried out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidelake.io.fileio import FileIO
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.layout import TableLayout
from tidelake.store.branches import BranchStore
from tidelake.store.changelogs import ChangelogStore
from tidelake.store.consumers import ConsumerStore
from tidelake.store.snapshots import SnapshotStore
from tidelake.store.table_store import TableStore
from tidelake.store.tags import TagStore


@dataclass(frozen=True, slots=True)
class BranchView:
    """What one branch holds, by name and by what its files look like in a listing."""

    layout: TableLayout
    files: tuple[tuple[int, int, int], ...]
    """Id, size and time of each snapshot's file, oldest first."""
    tags: tuple[tuple[str, int, int], ...]
    """Name, size and time of each tag's file."""
    changelogs: tuple[int, ...]

    @property
    def branch(self) -> str:
        """The name of the branch."""
        return self.layout.branch

    @property
    def snapshots(self) -> tuple[int, ...]:
        """The ids of the snapshots, oldest first."""
        return tuple(number for number, _, _ in self.files)


@dataclass(frozen=True, slots=True)
class View:
    """All branches of a table at one moment, the one that is worked on apart."""

    own: BranchView
    others: tuple[BranchView, ...]

    @property
    def every(self) -> tuple[BranchView, ...]:
        """All branches."""
        return (self.own, *self.others)


def look(store: TableStore) -> View:
    """List what holds files now.

    Raises:
        StorageError: the storage failed.
    """
    io, branch = store.env.io, store.layout.branch
    layouts = [each for each in BranchStore(io, store.layout).layouts() if each.branch != branch]
    return View(_branch_view(io, store.layout), tuple(_branch_view(io, layout) for layout in layouts))


def _branch_view(io: FileIO, layout: TableLayout) -> BranchView:
    tags, files = TagStore(io, layout).files(), SnapshotStore(io, layout).files()
    return BranchView(
        layout,
        files=tuple((number, each.size, each.modified_ms) for number, each in sorted(files.items())),
        tags=tuple((name, each.size, each.modified_ms) for name, each in sorted(tags.items())),
        changelogs=tuple(ChangelogStore(io, layout).ids()),
    )


def find_change(
    before: View,
    after: View,
    *,
    gone: Iterable[int] = (),
    untagged: Iterable[str] = (),
    left: Iterable[int] = (),
    dropped: Iterable[int] = (),
) -> str | None:
    """Find what has changed between two looks so that a plan made on the first may be wrong; None if nothing has.

    New snapshots on top do not count: they hold new files, and old ones that the snapshot before them holds too.

    Args:
        before: what the plan was made on.
        after: what is there now.
        gone: snapshots of the own branch that were meant to go.
        untagged: tags of the own branch that were meant to go.
        left: long-lived changelogs of the own branch that snapshots were meant to leave.
        dropped: long-lived changelogs of the own branch that were meant to go.
    """
    if [view.branch for view in before.every] != [view.branch for view in after.every]:
        return "branches"
    tags = set(untagged)
    expected = replace(
        before.own,
        tags=tuple(tag for tag in before.own.tags if tag[0] not in tags),
        changelogs=tuple(sorted({*before.own.changelogs, *left}.difference(dropped))),
    )
    for old, new in zip((expected, *before.others), after.every, strict=True):
        if old.tags != new.tags:
            return "tags"
        if old.changelogs != new.changelogs:
            return "long-lived changelogs"
        leaving = set(gone if old is expected else ())
        if not {file for file in old.files if file[0] not in leaving} <= set(new.files):
            return "snapshots"
        # A new snapshot below the former newest one comes from a rollback or a fast-forward, not from a commit.
        if any(each < max(old.snapshots, default=0) for each in set(new.snapshots) - set(old.snapshots)):
            return "snapshots"
    return None


def read_snapshots(store: TableStore, view: BranchView, ids: Iterable[int]) -> list[Snapshot]:
    """Some snapshots of a branch, oldest first.

    Raises:
        NotFoundError: one of them is gone.
        FormatError: one of them is damaged.
    """
    return store.env.executor.map(SnapshotStore(store.env.io, view.layout).get, sorted(ids))


def read_tags(store: TableStore, view: BranchView) -> dict[str, Snapshot]:
    """What the tags of a branch keep, by name.

    Raises:
        NotFoundError: one of them is gone.
        FormatError: one of them is damaged.
    """
    found = TagStore(store.env.io, view.layout).all()
    return {name: tag.snapshot for name, tag in found.items()}


def read_changelogs(store: TableStore, view: BranchView) -> list[Snapshot]:
    """The long-lived changelogs of a branch, oldest first.

    Raises:
        NotFoundError: one of them is gone.
        FormatError: one of them is damaged.
    """
    return store.env.executor.map(ChangelogStore(store.env.io, view.layout).get, view.changelogs)


def next_consumed(store: TableStore) -> int | None:
    """The lowest snapshot that a consumer of the own branch has still to read, or None without consumers.

    Raises:
        FormatError: the document of a consumer is damaged: it may hold anything.
    """
    consumers = ConsumerStore(store.env.io, store.layout, store.env.clock).all()
    return min((each.next_snapshot for each in consumers.values()), default=None)
