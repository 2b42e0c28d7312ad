"""Commit progress goes back with its table: numbered commits that a rollback removes may be committed again.

Every progress document is rewound to what the target proves, not only those of users whose removed snapshots are still
there. Invariant: whenever the process dies, no number counts as committed whose rows are not in the table or about to
go, and none counts as free whose rows may be in it. So a document is written twice: before the first snapshot goes it
gets the numbers that may go as `uncertain`, and after the last one is gone they become free. In between, and if nothing
shows whether the target has a number, a committer that is asked for it raises instead of guessing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tidelake.ops.commit.messages import BATCH_IDENTIFIER
from tidelake.ops.commit.progress import find_newest_in
from tidelake.ops.maintain.tags import tag_store
from tidelake.spec.documents.progress import CommitProgress
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.store.table_store import TableStore


@dataclass(frozen=True, slots=True)
class Rewound:
    """A user's commit progress while snapshots are removed, and when they are gone."""

    noted: CommitProgress
    settled: CommitProgress


@dataclass(frozen=True, slots=True)
class Removed:
    """What is known of the snapshots after the target."""

    first: Mapping[str, int]
    """The first number of each user in them."""
    is_whole: bool
    """Whether none of them is missing."""


def note_rewind(store: TableStore, target: Snapshot) -> dict[str, Rewound]:
    """Write what stays certain of every user's progress, before the snapshots after the target are removed.

    Returns:
        By user, what `settle_rewind` writes once they are removed.

    Raises:
        FormatError: a document is damaged; nothing was written.
        StorageError: the storage failed.
    """
    documents = store.progress.all()
    if not documents:
        return {}
    removed = _read_removed(store, target)
    line = _Line(_walk_back(store, target))
    rewound = {each.user: plan_rewind(each, target.id, find_newest_in(line, each.user), removed) for each in documents}
    changed = {each.user: rewound[each.user] for each in documents if rewound[each.user].settled != each}
    for document in documents:
        if document.user in changed and changed[document.user].noted != document:
            store.progress.write(changed[document.user].noted)
    return changed


def settle_rewind(store: TableStore, rewound: Mapping[str, Rewound]) -> None:
    """Free the numbers whose snapshots were removed; a document that was written since then stays.

    Raises:
        StorageError: the storage failed; repeat the call that removed the snapshots.
    """
    for user, each in rewound.items():
        if each.settled != each.noted and store.progress.read(user) == each.noted:
            store.progress.write(each.settled)


def plan_rewind(progress: CommitProgress, target_id: int, proven: tuple[int | None, bool], removed: Removed) -> Rewound:
    """The progress of one user, by what the history up to the target proves (`find_newest_in`).

    If that leaves open whether there is a greater number, the removed snapshots decide: if all are there and none is
    the user's, all its commits stay, and else those before the first that goes. Their numbers are known if they have
    origins.
    """
    # A pending commit may be in any snapshot after `after`, and the ids after the target are given again.
    progress = replace(progress, after=min(progress.after, target_id))
    known = _max_known(progress.committed, progress.uncertain)
    newest, is_exact = proven
    first = removed.first.get(progress.user)
    if known is None or (newest is not None and newest >= known and progress.uncertain is None):
        return Rewound(progress, progress)
    if not is_exact and removed.is_whole:
        with_origin = [number for number, _ in progress.origins if first is not None and number < first]
        if first is None:
            newest, is_exact = _max_known(newest, progress.committed), progress.uncertain is None
        elif with_origin:
            newest, is_exact = _max_known(newest, max(with_origin)), True
    committed = None if newest is None else min(newest, known)
    possible = known if first is None else min(known, first - 1)
    uncertain = None if is_exact or (committed is not None and possible <= committed) else possible
    kept = _max_known(committed, uncertain)
    origins = tuple(
        each for each in progress.origins if (kept is not None and each[0] <= kept) or each[0] == progress.pending
    )
    settled = replace(progress, committed=committed, uncertain=uncertain, origins=origins)
    may_go = None if committed == known else known
    return Rewound(replace(progress, committed=committed, uncertain=may_go), settled)


def _max_known(*numbers: int | None) -> int | None:
    return max((each for each in numbers if each is not None), default=None)


def _read_removed(store: TableStore, target: Snapshot) -> Removed:
    first: dict[str, int] = {}
    ids = [each for each in store.snapshots.ids() if each > target.id]
    found = [each for each in map(store.snapshots.find, ids) if each is not None]
    for snapshot in found:
        if snapshot.commit_identifier != BATCH_IDENTIFIER:
            known = first.get(snapshot.commit_user, snapshot.commit_identifier)
            first[snapshot.commit_user] = min(known, snapshot.commit_identifier)
    newest = max(ids, default=target.id)
    return Removed(first, is_whole=len(found) == newest - target.id)


class _Line:
    """Snapshots that are read once, and only as far back as a user needs them."""

    def __init__(self, unread: Iterator[Snapshot]) -> None:
        self._unread = unread
        self._read: list[Snapshot] = []

    def __iter__(self) -> Iterator[Snapshot]:
        yield from self._read
        while (snapshot := next(self._unread, None)) is not None:
            self._read.append(snapshot)
            yield snapshot


def _walk_back(store: TableStore, target: Snapshot) -> Iterator[Snapshot]:
    """The target and what is kept of the history before it, newest first: snapshots and tags."""
    yield target
    tagged = {each.snapshot.id: each.snapshot for each in tag_store(store).all().values()}
    older: Sequence[int] = sorted({*store.snapshots.ids(), *tagged}, reverse=True)
    for snapshot_id in older:
        if snapshot_id < target.id:
            snapshot = tagged.get(snapshot_id) or store.snapshots.find(snapshot_id)
            if snapshot is not None:
                yield snapshot
