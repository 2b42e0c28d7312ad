"""Verify that a snapshot that was just published follows the snapshot it was planned on.

An id may be free again when it is too late to use it. A job may pause between planning and publishing until others have
committed and expired that very id: its commit would be below the newest snapshot, acknowledged and lost. Or a rollback
may have removed the snapshot it was planned on: its commit would refer to files that are gone. Such a snapshot is
deleted again.

Snapshots expire from the oldest on. So while the previous snapshot exists, no later one has expired and no rollback
went below it; that is nearly always the only check needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitUnknownError, NotFoundError
from tidelake.ops.commit.candidate import Candidate
from tidelake.ops.scan.plan import data_manifests, delta_manifests, live_entries, read_changes
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.index_manifest import IndexEntry
from tidelake.spec.manifests.manifest import ADD, DELETE, IDENTITY_COLUMNS, identities
from tidelake.store.manifests import ManifestStore
from tidelake.store.table_store import TableStore

_COLUMNS: Final = ("kind", *IDENTITY_COLUMNS)
_EXPIRED: Final = "snapshot was published, but the one before it has expired since"


def verify_published(store: TableStore, candidate: Candidate) -> bool:
    """Whether a published candidate follows its base; if not, it was deleted and must be planned again.

    Raises:
        CommitUnknownError: it cannot be found out, or the snapshot could not be deleted.
    """
    try:
        if _stands(store, candidate):
            return True
    except CommitUnknownError:
        raise
    except Exception:  # noqa: BLE001 - it is published, and nothing contradicts it
        return True
    try:
        store.publisher.delete(candidate.snapshot.id)
    except Exception as cause:
        raise _unknown(candidate, "snapshot was published too late and could not be deleted") from cause
    return False


def _stands(store: TableStore, candidate: Candidate) -> bool:
    own, snapshots = candidate.snapshot.id, store.snapshots
    if own == 1 or snapshots.exists(own - 1):
        return True
    ids = snapshots.ids()
    if max(ids) <= own:
        return min(ids) >= own  # older ones exist, but not the one before: rolled back
    after = snapshots.find(own + 1)
    if after is not None:
        return _knows(store, after, candidate)
    if snapshots.exists(own):
        return False  # snapshots expire in order, so the id was taken and had expired before it was published
    # It expired after later ones were built on it, or was removed with them. Files that a later one names prove it.
    later = snapshots.find(min(each for each in ids if each > own))
    if later is not None and _knows(store, later, candidate):
        return True
    raise _unknown(candidate, _EXPIRED)


def _knows(store: TableStore, after: Snapshot, candidate: Candidate) -> bool:
    """Whether a later snapshot was built on the candidate.

    If it was, it names manifests or index files that the candidate wrote, or files that it added. If it was not, it
    names manifests or index files that the candidate replaced, or it has or deletes files that the candidate deleted,
    or the state that it was built on is another one.
    """
    manifests = store.manifests
    try:
        metas = data_manifests(manifests, after)
        names = {meta.file_name for meta in metas}
        before, after_names = ({meta.file_name for meta in part} for part in (candidate.before, candidate.after))
        if names & {*(after_names - before), *(meta.file_name for meta in candidate.delta_metas)}:
            return True
        indexes = _index_names(manifests.read_index(after.index_manifest)) if after.index_manifest else frozenset()
        own_indexes, old_indexes = _index_names(candidate.index), _index_names(candidate.index_before)
        if indexes & (own_indexes - old_indexes):
            return True
        added = _identities(candidate.delta, ADD)
        if len(added):
            return _share_one(added, identities(read_changes(manifests, metas, columns=_COLUMNS)))
        taken_out = _identities(candidate.delta, DELETE)
        if names & (before - after_names) or indexes & (old_indexes - own_indexes):
            return False
        if _share_one(taken_out, identities(live_entries(manifests, metas))):
            return False
        change = read_changes(manifests, delta_manifests(manifests, after), columns=_COLUMNS)
        if _share_one(taken_out, identities(change)):
            return False
        if after.id == candidate.snapshot.id + 1 and not _has_same_base(manifests, after, candidate):
            return False
    except NotFoundError as cause:  # it expired too; NotFoundError would mean that nothing was published
        raise _unknown(candidate, _EXPIRED) from cause
    raise _unknown(candidate, _EXPIRED)


def _has_same_base(manifests: ManifestStore, after: Snapshot, candidate: Candidate) -> bool:
    """Whether the next snapshot was built on the same data files as those of the candidate.

    This decides for a commit without data files of its own, such as deletion vectors that the next snapshot, a
    compaction, has applied and dropped.
    """
    base = manifests.read_list(after.base_manifest_list, size=after.base_manifest_list_size_bytes)
    found, own = (
        set(identities(live_entries(manifests, metas, columns=_COLUMNS)).to_pylist())
        for metas in (base, (*candidate.after, *candidate.delta_metas))
    )
    return found == own


def _index_names(entries: Sequence[IndexEntry]) -> frozenset[str]:
    return frozenset(entry.file.file_name for entry in entries)


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
        hint="look at the snapshots before you repeat the commit",
    )
