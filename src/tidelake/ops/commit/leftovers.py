"""Files of a commit that it did not publish: output of a compaction that lost its race, or files a rebase replaced.

An earlier attempt may have committed the same messages without its caller learning of it. Invariant: a file counts as
unpublished only if every snapshot that could name it can be read and does not name it. A file is written after the base
snapshot of its message, so older snapshots cannot name it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.commit.since import commits_since
from tidelake.ops.scan.plan import changelog_manifests, delta_manifests, read_changes
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.manifest import ADD
from tidelake.store.table_store import TableStore

__all__ = ["select_unpublished"]


def select_unpublished(store: TableStore, paths: Sequence[str], given: Sequence[CommitMessage]) -> tuple[str, ...]:
    """Return the files if certainly no snapshot names one of them, else none.

    `given` are the messages of the files as they were before any rebase; their base snapshots bound the search.

    Raises:
        FormatError: a snapshot or manifest to search is damaged.
        StorageError: the storage failed.
    """
    bases = [each.base_snapshot_id for each in given]
    known = [base for base in bases if base is not None]
    latest = store.snapshots.latest_id()
    if latest is None or not paths or not bases or len(known) < len(bases):
        return ()
    names = pa.array([path.rpartition("/")[2] for path in paths], pa.large_string())
    for later in commits_since(store, min(known), latest):
        if later.snapshot is None or _names_one(store, later.snapshot, names):
            return ()
    return tuple(paths)


def _names_one(store: TableStore, snapshot: Snapshot, names: pa.Array) -> bool:
    """Whether a snapshot adds one of these files as a data, changelog or index file."""
    manifests = store.manifests
    for metas in (delta_manifests(manifests, snapshot), changelog_manifests(manifests, snapshot)):
        entries = read_changes(manifests, metas, columns=("kind", "file_name"))
        added = entries.filter(pc.equal(entries.column("kind"), ADD)).column("file_name")
        if pc.any(pc.is_in(added, value_set=names)).as_py():
            return True
    if snapshot.index_manifest is None:
        return False
    wanted = set(names.to_pylist())
    return any(each.file.file_name in wanted for each in manifests.read_index(snapshot.index_manifest))
