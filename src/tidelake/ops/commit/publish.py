"""Offer a snapshot to its publisher, and settle an unknown answer."""

from __future__ import annotations

from tidelake.errors import CommitUnknownError, FormatError, NotFoundError, StorageError
from tidelake.io.clock import Clock
from tidelake.io.fileio import Created, Exists, Outcome, Unknown
from tidelake.io.ids import Ids
from tidelake.io.retry import RetryOptions, delays
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.store.snapshots import SnapshotPublisher, SnapshotSource

SETTLE = RetryOptions(delay_min_ms=20, delay_max_ms=1_000, tries_min=6, elapsed_max_ms=10_000)


def settle_offer(
    outcome: Outcome,
    publisher: SnapshotPublisher,
    snapshots: SnapshotSource,
    candidate: Snapshot,
    *,
    clock: Clock,
    ids: Ids,
) -> bool:
    """Return whether the candidate is the snapshot of its id, given the answer to its first `offer`.

    After an unknown answer the file is read back. If it does not exist, the same bytes are offered again, until the
    candidate either is the snapshot of its id or certainly is not.

    Raises:
        CommitUnknownError: the storage does not answer; the commit may be published.
        StorageError: the storage failed, and certainly nothing was published.
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
            # The first answer was lost, so even a certain failure of this offer does not settle it.
            cause = error
            continue
        if isinstance(outcome, Created):
            return True
        cause = outcome.cause if isinstance(outcome, Unknown) else cause
    raise CommitUnknownError(
        "storage did not confirm whether the snapshot was published",
        snapshot_id=candidate.id,
        commit_user=candidate.commit_user,
        commit_identifier=candidate.commit_identifier,
        uuid=candidate.uuid,
        cause=cause,
        hint="nothing was deleted; repeat the commit with its identifier, or look for the uuid in the snapshots",
    ) from cause


def offer(publisher: SnapshotPublisher, candidate: Snapshot) -> Outcome:
    """Offer a snapshot. Errors of other types than these become the answer "unknown".

    Raises:
        CommitUnknownError: the publisher cannot find out whether it was published.
        StorageError: the storage failed, and certainly nothing was published.
    """
    try:
        return publisher.publish(candidate)
    except (StorageError, CommitUnknownError):
        raise
    except Exception as error:  # noqa: BLE001 - after any other error the snapshot may exist
        return Unknown(error)


def is_mine(snapshots: SnapshotSource, candidate: Snapshot) -> bool | None:
    """Whether the published snapshot of this id is the candidate; None when it cannot be read now."""
    try:
        published = snapshots.get(candidate.id)
    except (NotFoundError, StorageError, FormatError):
        return None
    return same_commit(published, candidate)


def same_commit(a: Snapshot, b: Snapshot) -> bool:
    """Whether two snapshots are the same commit."""
    return (a.uuid, a.commit_user, a.commit_identifier, a.commit_kind) == (
        b.uuid,
        b.commit_user,
        b.commit_identifier,
        b.commit_kind,
    )
