"""Which parts of a numbered commit are already published: what makes a repeated commit a no-op.

Four witnesses are asked: the user's own snapshots while they are kept, the progress property that our snapshots carry
on, the user's progress document, and the note in it of a commit that was about to be published. If the snapshots that
would tell about such a note are gone and so is the property, nobody knows, and that is said instead of guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tidelake.errors import CommitUnknownError
from tidelake.ops.commit.messages import BATCH_IDENTIFIER
from tidelake.spec.progress import PROPERTY_PREFIX, SINCE_PROPERTY, Progress
from tidelake.spec.snapshot import CommitKind, Snapshot
from tidelake.store.progress import ProgressStore
from tidelake.store.snapshots import SnapshotStore

_NUMBER: Final = re.compile("-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Published:
    """What is known of one identifier: wholly done, or the snapshots of it that were found up to `seen_id`."""

    done: bool = False
    snapshots: tuple[Snapshot, ...] = ()
    seen_id: int = 0

    def kinds(self) -> frozenset[CommitKind]:
        """The kinds of snapshot that exist for the identifier."""
        return frozenset(snapshot.commit_kind for snapshot in self.snapshots)


def find_published(snapshots: SnapshotStore, progress: Progress, identifier: int) -> Published:
    """Look for a user's identifier among all witnesses.

    Raises:
        CommitUnknownError: it was about to be published once, and the snapshots that would tell have expired.
    """
    # Looked at first: what appears while we search has a greater id, and the commit looks for it there.
    latest = snapshots.latest()
    seen_id = latest.id if latest else 0
    committed = newest_committed(latest, progress)
    if committed is not None and committed > identifier:
        return Published(done=True)
    found: list[Snapshot] = []
    oldest_seen: int | None = None
    # Without a progress document the user may still have committed here through another writer: ask every snapshot.
    down_to = progress.after + 1 if progress.pending is not None or progress.committed is not None else 1
    for snapshot in snapshots.newest_first(down_to=down_to):
        oldest_seen = snapshot.id
        # A batch commit has the greatest identifier of all and says nothing about numbered ones of the same user.
        if snapshot.commit_user != progress.user or snapshot.commit_identifier == BATCH_IDENTIFIER:
            continue
        if snapshot.commit_identifier > identifier:
            return Published(done=True)
        if snapshot.commit_identifier < identifier:
            oldest_seen = 0  # the identifiers of a user only grow: further back there is none to find
            break
        found.append(snapshot)
    if found:
        return Published(snapshots=tuple(reversed(found)), seen_id=seen_id)
    if committed == identifier:
        return Published(done=True)
    if progress.pending == identifier and not (
        _all_seen(seen_id, progress.after, oldest_seen)
        or carried_below(latest, progress.user, identifier, progress.after)
    ):
        raise CommitUnknownError(
            "commit was about to be published once, and the snapshots that would tell have expired",
            commit_user=progress.user,
            commit_identifier=identifier,
            after_snapshot=progress.after,
            hint="check whether its rows are in the table, then commit them under a new identifier if they are not",
        )
    return Published(seen_id=seen_id)


def newest_committed(latest: Snapshot | None, progress: Progress) -> int | None:
    """The newest identifier of the user that is certainly published, by its document and the carried property."""
    known = (progress.committed, _number(latest, PROPERTY_PREFIX + progress.user))
    return max((each for each in known if each is not None), default=None)


def carried_below(latest: Snapshot | None, user: str, identifier: int, after: int) -> bool:
    """Whether the newest snapshot tells, without those before it, that none after a given one published an identifier.

    Who publishes for a user sets the user's property, and all of ours carry it on; other writers drop it. So where it
    is still there and smaller, no snapshot since has a greater identifier. Where it never was, snapshots that carried
    properties on ever since the given one tell the same.
    """
    carried = _number(latest, PROPERTY_PREFIX + user)
    if carried is not None:
        return carried < identifier
    since = _number(latest, SINCE_PROPERTY)
    return since is not None and since <= after + 1


def _number(latest: Snapshot | None, key: str) -> int | None:
    text = latest.properties.get(key) if latest else None
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def note_pending(store: ProgressStore, progress: Progress, identifier: int, after: int) -> Progress:
    """Write down that an identifier is about to be published on top of a snapshot."""
    noted = Progress(user=progress.user, committed=progress.committed, pending=identifier, after=after)
    store.write(noted)
    return noted


def note_committed(store: ProgressStore, progress: Progress, identifier: int) -> None:
    """Write down that an identifier is published."""
    newest = identifier if progress.committed is None else max(identifier, progress.committed)
    store.write(Progress(user=progress.user, committed=newest, after=progress.after))


def _all_seen(seen_id: int, after: int, oldest_seen: int | None) -> bool:
    """Whether the search, which began when `seen_id` was the newest, met every snapshot after the given one."""
    return seen_id <= after if oldest_seen is None else oldest_seen <= after + 1
