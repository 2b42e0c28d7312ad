"""Does a snapshot that was just published stand on the one it was planned on?

An id may be free although its time is over: a job sleeps between planning and publishing until others have committed
and expired the very id it wants (the commit would lie below the newest snapshot, acknowledged and lost), or a rollback
has removed the snapshot it was planned on (it would refer to files that are gone). Such a snapshot is taken back.

Snapshots expire from the oldest on, so while the one before is there nothing after it has expired and nothing below
was rolled back to; that is nearly always all there is to ask.
"""

from __future__ import annotations

import pyarrow.compute as pc

from tidelake.errors import CommitUnknownError, FormatError, StorageError
from tidelake.ops.commit.candidate import Candidate
from tidelake.ops.scan.plan import data_manifests, read_changes
from tidelake.spec.manifest import IDENTITY_COLUMNS, identities
from tidelake.spec.snapshot import Snapshot
from tidelake.store.table_store import TableStore


def settle_standing(store: TableStore, candidate: Candidate) -> bool:
    """Whether a published candidate stands; one that does not was taken back, and is to be planned again.

    Raises:
        CommitUnknownError: nothing tells whether it stands, or it could not be taken back.
    """
    try:
        if _stands(store, candidate):
            return True
    except (StorageError, FormatError):
        return True  # it is published, and nothing speaks against it
    try:
        store.snapshots.delete(candidate.snapshot.id)
    except StorageError as cause:
        raise _unknown(candidate, "snapshot was published too late and could not be taken back") from cause
    return False


def _stands(store: TableStore, candidate: Candidate) -> bool:
    own, snapshots = candidate.snapshot.id, store.snapshots
    if own == 1 or snapshots.exists(own - 1):
        return True
    ids = snapshots.ids()
    if max(ids) <= own:
        return min(ids) >= own  # an older one without the one before: rolled back
    after = snapshots.find(own + 1)
    return after is not None and _knows(store, after, candidate)


def _knows(store: TableStore, after: Snapshot, candidate: Candidate) -> bool:
    """Whether the next snapshot was built on the candidate: then its manifests name the candidate's files."""
    mine = identities(candidate.delta)
    if not len(mine):
        raise _unknown(candidate, "snapshot was published, and the one before it has expired meanwhile")
    entries = read_changes(store.manifests, data_manifests(store.manifests, after), columns=IDENTITY_COLUMNS)
    return bool(pc.any(pc.is_in(mine, value_set=identities(entries))).as_py())


def _unknown(candidate: Candidate, message: str) -> CommitUnknownError:
    return CommitUnknownError(
        message,
        snapshot_id=candidate.snapshot.id,
        commit_user=candidate.snapshot.commit_user,
        commit_identifier=candidate.snapshot.commit_identifier,
        hint="look at the snapshots before repeating the commit",
    )
