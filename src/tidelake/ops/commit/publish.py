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

    def left_nothing(self, candidate: Snapshot) -> bool:
        """Whether it is certain that a publish which an interrupt ended published nothing, and never will.

        Raises:
            StorageError: the storage failed.
        """


@dataclass(frozen=True, slots=True)
class FileSystemPublisher:
    """Publishes by creating the snapshot's file."""

    snapshots: SnapshotStore

    def publish(self, candidate: Snapshot) -> Outcome:
        return self.snapshots.publish(candidate)

    def left_nothing(self, candidate: Snapshot) -> bool:
        # A snapshot that was published and has expired since would have a newer one beside it.
        newest = self.snapshots.latest_id() or 0
        return self.snapshots.io.is_synchronous and newest < candidate.id and not self.snapshots.exists(candidate.id)


def settle_offer(
    outcome: Outcome,
    publisher: SnapshotPublisher,
    snapshots: SnapshotStore,
    candidate: Snapshot,
    *,
    clock: Clock,
    ids: Ids,
) -> bool:
    """Return whether the candidate is the snapshot of its id, given the answer to its first `offer`.

    After an unknown answer the file is read back. If it is not there, the same bytes are offered again: whoever asks
    later, this candidate is either the one snapshot of its id or certainly not.

    Raises:
        CommitUnknownError: the storage does not answer; the commit may be there.
        StorageError: certain, nothing was published.
    """
    if isinstance(outcome, Created):
        return True
    cause: BaseException | None = outcome.cause if isinstance(outcome, Unknown) else None
    if isinstance(outcome, Exists):
        mine = is_mine(snapshots, candidate)
        if mine is not None:
            return mine
    started = clock.monotonic()
    for delay in delays(SETTLE, ids.random, lambda: (clock.monotonic() - started) * 1_000):
        mine = is_mine(snapshots, candidate)
        if mine is not None:
            return mine
        clock.sleep(delay)
        try:
            outcome = offer(publisher, candidate)
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


def offer(publisher: SnapshotPublisher, candidate: Snapshot) -> Outcome:
    """Offer a snapshot; an error of another kind than these says nothing about what became of it.

    Raises:
        CommitUnknownError: the publisher says that nobody can tell.
        StorageError: certain, nothing was published.
    """
    try:
        return publisher.publish(candidate)
    except (StorageError, CommitUnknownError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the snapshot may be there
        return Unknown(error)


def is_mine(snapshots: SnapshotStore, candidate: Snapshot) -> bool | None:
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
