"""Does a snapshot that was just published stand on the one it was planned on?

An id may be free although its time is over: a job sleeps between planning and publishing until others have committed
and expired the very id it wants (the commit would lie below the newest snapshot, acknowledged and lost), or a rollback
has removed the snapshot it was planned on (it would refer to files that are gone). Such a snapshot is taken back.

Snapshots expire from the oldest on, so while the one before is there nothing after it has expired and nothing below
was rolled back to; that is nearly always all there is to ask.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitUnknownError, NotFoundError
from tidelake.ops.commit.candidate import Candidate
from tidelake.ops.scan.plan import data_manifests, delta_manifests, live_entries, read_changes
from tidelake.spec.manifest import ADD, DELETE, IDENTITY_COLUMNS, identities
from tidelake.spec.snapshot import Snapshot
from tidelake.store.table_store import TableStore

_COLUMNS: Final = ("kind", *IDENTITY_COLUMNS)
_EXPIRED: Final = "snapshot was published, and the one before it has expired meanwhile"


def settle_standing(store: TableStore, candidate: Candidate) -> bool:
    """Whether a published candidate stands; one that does not was taken back, and is to be planned again.

    Raises:
        CommitUnknownError: nothing tells whether it stands, or it could not be taken back.
    """
    try:
        if _stands(store, candidate):
            return True
    except CommitUnknownError:
        raise
    except Exception:  # noqa: BLE001 - it is published, and nothing speaks against it
        return True
    try:
        store.snapshots.delete(candidate.snapshot.id)
    except Exception as cause:
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
    if after is not None:
        return _knows(store, after, candidate)
    if snapshots.exists(own):
        return False  # snapshots expire in order, so the id was taken and had expired before it was published
    # It expired after those that built on it, or was removed with them. Files that a later one names are proof.
    later = snapshots.find(min(each for each in ids if each > own))
    if later is not None and _knows(store, later, candidate):
        return True
    raise _unknown(candidate, _EXPIRED)


def _knows(store: TableStore, after: Snapshot, candidate: Candidate) -> bool:
    """Whether a later snapshot was built on the candidate.

    Then its manifests name those that the candidate wrote, or files that it added. It was not if it names manifests
    that the candidate replaced, or if it has, or itself takes out, files that the candidate took out.
    """
    manifests = store.manifests
    try:
        metas = data_manifests(manifests, after)
        names = {meta.file_name for meta in metas}
        before, replaced = ({meta.file_name for meta in part} for part in (candidate.before, candidate.after))
        if names & {*(replaced - before), *(meta.file_name for meta in candidate.delta_metas)}:
            return True
        added = _identities(candidate.delta, ADD)
        if len(added):
            return _share_one(added, identities(read_changes(manifests, metas, columns=_COLUMNS)))
        taken_out = _identities(candidate.delta, DELETE)
        if names & (before - replaced) or _share_one(taken_out, identities(live_entries(manifests, metas))):
            return False
        change = read_changes(manifests, delta_manifests(manifests, after), columns=_COLUMNS)
        if _share_one(taken_out, identities(change)):
            return False
    except NotFoundError as cause:  # that one has expired too; never the error of a commit that published nothing
        raise _unknown(candidate, _EXPIRED) from cause
    raise _unknown(candidate, _EXPIRED)


def _identities(entries: pa.Table, kind: int) -> pa.Array:
    return identities(entries.filter(pc.equal(entries.column("kind"), kind)))


def _share_one(some: pa.Array, others: pa.Array) -> bool:
    return bool(pc.any(pc.is_in(some, value_set=others)).as_py())


def _unknown(candidate: Candidate, message: str) -> CommitUnknownError:
    return CommitUnknownError(
        message,
        snapshot_id=candidate.snapshot.id,
        commit_user=candidate.snapshot.commit_user,
        commit_identifier=candidate.snapshot.commit_identifier,
        hint="look at the snapshots before repeating the commit",
    )
