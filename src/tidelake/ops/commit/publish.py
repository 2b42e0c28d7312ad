"""The port that publishes a snapshot, and how an unknown answer becomes a certain one.

The file-system publisher creates `snapshot-N` if absent. A catalog that owns the pointer implements the same protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidelake.errors import CommitUnknownError, FormatError, NotFoundError, StorageError
from tidelake.io.clock import Clock
from tidelake.io.fileio import Created, Exists, Outcome, Unknown
from tidelake.io.ids import Ids
from tidelake.io.retry import RetryOptions, delays
from tidelake.spec.snapshot import Snapshot
from tidelake.store.snapshots import SnapshotStore

SETTLE = RetryOptions(delay_min_ms=20, delay_max_ms=1_000, tries_min=6, elapsed_max_ms=10_000)


class SnapshotPublisher(Protocol):
    """Makes a snapshot the newest one, or tells that another was faster, or that the answer was lost."""

    def publish(self, candidate: Snapshot) -> Outcome:
        """Publish if the id is free."""


@dataclass(frozen=True, slots=True)
class FileSystemPublisher:
    """Publishes by creating the snapshot's file."""

    snapshots: SnapshotStore

    def publish(self, candidate: Snapshot) -> Outcome:
        return self.snapshots.publish(candidate)


def publish_surely(
    publisher: SnapshotPublisher, snapshots: SnapshotStore, candidate: Snapshot, *, clock: Clock, ids: Ids
) -> bool:
    """Publish and return whether the candidate is the snapshot of its id.

    After an unknown answer the file is read back. If it is not there, the same bytes are offered again: whoever asks
    later, this candidate is either the one snapshot of its id or certainly not.

    Raises:
        CommitUnknownError: the storage does not answer; the commit may be there.
        StorageError: certain, nothing was published.
    """
    outcome = publisher.publish(candidate)
    if isinstance(outcome, Created):
        return True
    cause: BaseException | None = outcome.cause if isinstance(outcome, Unknown) else None
    if isinstance(outcome, Exists):
        mine = _is_mine(snapshots, candidate)
        if mine is not None:
            return mine
    started = clock.monotonic()
    for delay in delays(SETTLE, ids.random, lambda: (clock.monotonic() - started) * 1_000):
        mine = _is_mine(snapshots, candidate)
        if mine is not None:
            return mine
        clock.sleep(delay)
        try:
            outcome = publisher.publish(candidate)
        except StorageError as error:
            # The first answer was lost, so even a certain failure of this one decides nothing.
            cause = error
            continue
        if isinstance(outcome, Created):
            return True
        cause = outcome.cause if isinstance(outcome, Unknown) else cause
    raise CommitUnknownError(
        "storage did not tell whether the snapshot was published",
        snapshot_id=candidate.id,
        commit_user=candidate.commit_user,
        commit_identifier=candidate.commit_identifier,
        uuid=candidate.uuid,
        cause=cause,
        hint="nothing was deleted; repeat the commit with its identifier, or look for the uuid in the snapshots",
    ) from cause


def _is_mine(snapshots: SnapshotStore, candidate: Snapshot) -> bool | None:
    """Whether the published snapshot of this id is the candidate; None when it cannot be read now."""
    try:
        published = snapshots.get(candidate.id)
    except (NotFoundError, StorageError, FormatError):
        return None
    return same_commit(published, candidate)


def same_commit(a: Snapshot, b: Snapshot) -> bool:
    """Whether two snapshots are one and the same publish."""
    return (a.uuid, a.commit_user, a.commit_identifier, a.commit_kind) == (
        b.uuid,
        b.commit_user,
        b.commit_identifier,
        b.commit_kind,
    )
