"""Files of a commit that it did not publish: of a compaction that lost its race, or of rows that were written again.

The same messages may have been committed before, by somebody who was not told so and tried once more. Invariant: a file
counts as nobody's only if every snapshot that could name it is there and names it not. It was made after the base
snapshot of the message that it came with, so none before that can.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.scan.plan import changelog_manifests, delta_manifests, read_changes
from tidelake.spec.manifest import ADD
from tidelake.spec.snapshot import Snapshot
from tidelake.store.table_store import TableStore

__all__ = ["unpublished"]


def unpublished(store: TableStore, paths: Sequence[str], given: Sequence[CommitMessage]) -> tuple[str, ...]:
    """These files, if no snapshot names one of them; none of them where that is not certain.

    `given` are the messages that they came with, as they were before any rebase: these tell since when they are there.

    Raises:
        FormatError: a document that would tell is damaged.
        StorageError: the storage failed.
    """
    bases = [each.base_snapshot_id for each in given]
    known = [base for base in bases if base is not None]
    latest = store.snapshots.latest_id()
    if latest is None or not paths or not bases or len(known) < len(bases):
        return ()
    names = pa.array([path.rpartition("/")[2] for path in paths], pa.large_string())
    for snapshot_id in range(min(known) + 1, latest + 1):
        snapshot = store.snapshots.find(snapshot_id)
        if snapshot is None or _names_one(store, snapshot, names):
            return ()
    return tuple(paths)


def _names_one(store: TableStore, snapshot: Snapshot, names: pa.Array) -> bool:
    """Whether a snapshot brings one of these files, as data, as changelog or as an index."""
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
