"""Which parts of a numbered commit are already published; this makes a repeated commit a no-op.

There are four sources: the user's snapshots that are kept, the progress property that each of our snapshots copies from
the one before, the user's progress document, and the notes in it of commits that may be published: one that was about
to be, or those that a rollback could not settle. If the snapshots that would settle such a note have expired and the
property is gone, an error says so instead of guessing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from tidelake.errors import CommitUnknownError
from tidelake.ops.commit.messages import BATCH_IDENTIFIER
from tidelake.spec.documents.progress import PROPERTY_PREFIX, SINCE_PROPERTY, CommitProgress
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.store.commit_progress import ProgressStore
from tidelake.store.snapshots import SnapshotSource

_NUMBER: Final = re.compile("-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Published:
    """What is known of one identifier: completely published, or its snapshots up to `seen_id`."""

    done: bool = False
    snapshots: tuple[Snapshot, ...] = ()
    seen_id: int = 0

    def kinds(self) -> frozenset[CommitKind]:
        """The kinds of snapshot that exist for the identifier."""
        return frozenset(snapshot.commit_kind for snapshot in self.snapshots)


def find_published(
    snapshots: SnapshotSource, progress: CommitProgress, latest: Snapshot | None, identifier: int
) -> Published:
    """Search all sources for an identifier of a user.

    `latest` is the newest snapshot, read before the search: snapshots that appear while it runs have greater ids, and
    the commit itself searches those.

    Raises:
        CommitUnknownError: it may be published, and the snapshots that would show it have expired.
    """
    seen_id = latest.id if latest else 0
    committed = newest_committed(latest, progress)
    if committed is not None and committed > identifier:
        return Published(done=True)
    found: list[Snapshot] = []
    oldest_seen: int | None = None
    # Without a progress document the user may still have committed through another writer: search every snapshot.
    down_to = progress.after + 1 if progress.pending is not None or progress.committed is not None else 1
    unsettled_after = progress.find_unsettled_after(identifier)
    if unsettled_after is not None:
        down_to = min(down_to, unsettled_after + 1)
    for snapshot in snapshots.newest_first(down_to=down_to):
        oldest_seen = snapshot.id
        # A batch commit has the greatest possible identifier, which says nothing about numbered commits of the user.
        if snapshot.commit_user != progress.user or snapshot.commit_identifier == BATCH_IDENTIFIER:
            continue
        if snapshot.commit_identifier > identifier:
            return Published(done=True)
        if snapshot.commit_identifier < identifier:
            oldest_seen = 0  # identifiers of a user only grow, so older snapshots cannot have it
            break
        found.append(snapshot)
    if found:
        return Published(snapshots=tuple(reversed(found)), seen_id=seen_id)
    if committed == identifier:
        return Published(done=True)
    if unsettled_after is not None and not (
        _all_seen(seen_id, unsettled_after, oldest_seen)
        or carried_below(latest, progress.user, identifier, unsettled_after)
    ):
        raise _make_unknown_error(progress, identifier, unsettled_after)
    return Published(seen_id=seen_id)


def _make_unknown_error(progress: CommitProgress, identifier: int, after: int) -> CommitUnknownError:
    if progress.pending == identifier:
        return CommitUnknownError(
            "unknown whether the commit was published: the snapshots since its first attempt have expired",
            commit_user=progress.user,
            commit_identifier=identifier,
            after_snapshot=after,
            hint="check whether its rows are in the table, then commit them under a new identifier if they are not",
        )
    return CommitUnknownError(
        "unknown whether the commit was published: after a rollback no snapshot shows which commits are left",
        commit_user=progress.user,
        commit_identifier=identifier,
        newest_uncertain=progress.uncertain,
        hint="repeat the rollback if it did not end; else check whether the rows are in the table, and if they are not,"
        " commit them under an identifier greater than newest_uncertain",
    )


def newest_committed(latest: Snapshot | None, progress: CommitProgress) -> int | None:
    """The newest identifier of the user that is certainly published, by its document and the carried property."""
    known = (progress.committed, _number(latest, PROPERTY_PREFIX + progress.user))
    return max((each for each in known if each is not None), default=None)


def carried_below(latest: Snapshot | None, user: str, identifier: int, after: int) -> bool:
    """Whether the newest snapshot alone proves that no snapshot after a given one published an identifier.

    A commit sets the property of its user, and our later snapshots copy it; other writers drop it. So if the property
    is still there and smaller, no snapshot since has the identifier. The same holds if the user has no property but
    all snapshots since the given one copied properties.
    """
    carried = _number(latest, PROPERTY_PREFIX + user)
    if carried is not None:
        return carried < identifier
    since = _number(latest, SINCE_PROPERTY)
    return since is not None and since <= after + 1


def doubts_origin(progress: CommitProgress, latest: Snapshot | None, identifier: int, origin: str | None) -> bool:
    """Whether an identifier that is published may have been committed with other rows than those of this origin.

    A job repeats its newest commit after a crash, so that one is doubted only if it is known to have another origin, or
    if it has none although others have. Of an older one both origins have to be known: no job repeats it that was not
    set back.
    """
    known = progress.origin_of(identifier)
    newest = newest_committed(latest, progress)
    if newest is not None and identifier < newest:
        return origin is None or known != origin
    if origin is None or known == origin:
        return False
    return known is not None or (identifier == newest and bool(progress.origins))


def find_newest_in(line: Iterable[Snapshot], user: str) -> tuple[int | None, bool]:
    """The newest number of a user that snapshots prove, and whether the user certainly has no greater one in them.

    `line` is what is kept of a table's history, newest first. Where a part of it is missing the user may have committed
    greater numbers, unless a later snapshot shows that the properties were copied ever since.
    """
    settled_from: int | None = None
    has_gaps = False
    for snapshot in line:
        has_gaps = has_gaps or (settled_from is not None and snapshot.id < settled_from - 1)
        carried = _number(snapshot, PROPERTY_PREFIX + user)
        if carried is not None:
            return carried, not has_gaps
        if snapshot.commit_user == user and snapshot.commit_identifier != BATCH_IDENTIFIER:
            return snapshot.commit_identifier, not has_gaps
        since = _number(snapshot, SINCE_PROPERTY)
        first = snapshot.id if since is None else min(snapshot.id, since)
        settled_from = first if settled_from is None else min(settled_from, first)
    return None, not has_gaps and settled_from is not None and settled_from <= 1


def _number(latest: Snapshot | None, key: str) -> int | None:
    text = latest.properties.get(key) if latest else None
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def note_pending(
    store: ProgressStore, progress: CommitProgress, identifier: int, after: int, origin: str | None = None
) -> CommitProgress:
    """Record that an identifier, with rows of this origin, is about to be published on top of a snapshot."""
    noted = replace(progress, pending=identifier, after=after, origins=progress.with_origin(identifier, origin))
    store.write(noted)
    return noted


def note_committed(store: ProgressStore, progress: CommitProgress, identifier: int) -> None:
    """Record that an identifier is published."""
    newest = identifier if progress.committed is None else max(identifier, progress.committed)
    uncertain = progress.uncertain if progress.uncertain is not None and progress.uncertain > newest else None
    store.write(replace(progress, committed=newest, pending=None, uncertain=uncertain))


def _all_seen(seen_id: int, after: int, oldest_seen: int | None) -> bool:
    """Whether the search, which began when `seen_id` was the newest, read every snapshot after the given one."""
    return seen_id <= after if oldest_seen is None else oldest_seen <= after + 1
