"""What each retained snapshot cost: rows, bytes and files that it added and deleted, and how its commit went.

All of it comes from the snapshots and the manifests of their own changes, which are read side by side and summed up one
snapshot at a time, so that memory does not grow with the table. A snapshot that expires in the meantime is left out.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import NotFoundError
from tidelake.io.clock import as_local_ms
from tidelake.ops.commit.candidate import ATTEMPTS_PROPERTY, WRITER_NAME
from tidelake.ops.context import TableContext
from tidelake.ops.scan.plan import changelog_manifests, delta_manifests, read_changes
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.manifest import ADD
from tidelake.store.table_store import TableStore

__all__ = ["metrics_table"]

SCHEMA: Final = pa.schema(
    [
        pa.field("snapshot_id", pa.int64(), nullable=False),
        pa.field("commit_user", pa.string(), nullable=False),
        pa.field("commit_identifier", pa.int64(), nullable=False),
        pa.field("commit_kind", pa.string(), nullable=False),
        pa.field("operation", pa.string()),
        pa.field("commit_time", pa.timestamp("ms"), nullable=False),
        pa.field("since_previous", pa.duration("ms")),
        pa.field("attempts", pa.int32()),
        pa.field("retries", pa.int32()),
        pa.field("files_added", pa.int64(), nullable=False),
        pa.field("rows_added", pa.int64(), nullable=False),
        pa.field("bytes_added", pa.int64(), nullable=False),
        pa.field("files_deleted", pa.int64(), nullable=False),
        pa.field("rows_deleted", pa.int64(), nullable=False),
        pa.field("bytes_deleted", pa.int64(), nullable=False),
        pa.field("changelog_files", pa.int64(), nullable=False),
        pa.field("changelog_rows", pa.int64(), nullable=False),
        pa.field("changelog_bytes", pa.int64(), nullable=False),
        pa.field("total_rows", pa.int64()),
    ]
)
"""Attempts are null where another writer published the snapshot, because it does not record them."""
_COLUMNS: Final = ("kind", "row_count", "file_size")


def metrics_table(context: TableContext) -> pa.Table:
    """One row for each snapshot that is kept, oldest first.

    Raises:
        FormatError: a snapshot or a manifest is damaged.
    """
    store = context.store
    found = store.env.executor.map(lambda snapshot_id: _measure(store, snapshot_id), store.snapshots.ids())
    rows: list[dict[str, Any]] = []
    before: Snapshot | None = None
    for snapshot, sums in (each for each in found if each is not None):
        # The time since a snapshot that is not the one right before it would be misleading.
        follows = before is not None and before.id == snapshot.id - 1
        waited = snapshot.time_ms - before.time_ms if before is not None and follows else None
        rows.append({**_commit_facts(snapshot), "since_previous": waited, **sums})
        before = snapshot
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _measure(store: TableStore, snapshot_id: int) -> tuple[Snapshot, dict[str, int]] | None:
    snapshot = store.snapshots.find(snapshot_id)
    if snapshot is None:
        return None
    try:
        changes = read_changes(store.manifests, delta_manifests(store.manifests, snapshot), columns=_COLUMNS)
        changelog = read_changes(store.manifests, changelog_manifests(store.manifests, snapshot), columns=_COLUMNS)
    except NotFoundError:
        if store.snapshots.exists(snapshot_id):
            raise
        return None
    is_added = pc.equal(changes.column("kind"), ADD)
    return snapshot, {
        **_sums(changes.filter(is_added), "{}_added"),
        **_sums(changes.filter(pc.invert(is_added)), "{}_deleted"),
        **_sums(changelog, "changelog_{}"),
    }


def _sums(entries: pa.Table, name: str) -> dict[str, int]:
    return {
        name.format("files"): entries.num_rows,
        name.format("rows"): pc.sum(entries.column("row_count")).as_py() or 0,
        name.format("bytes"): pc.sum(entries.column("file_size")).as_py() or 0,
    }


def _commit_facts(snapshot: Snapshot) -> dict[str, Any]:
    attempts = _attempts(snapshot)
    return {
        "snapshot_id": snapshot.id,
        "commit_user": snapshot.commit_user,
        "commit_identifier": snapshot.commit_identifier,
        "commit_kind": snapshot.commit_kind.value,
        "operation": snapshot.operation,
        "commit_time": as_local_ms(snapshot.time_ms),
        "attempts": attempts,
        "retries": None if attempts is None else attempts - 1,
        "total_rows": snapshot.total_record_count,
    }


def _attempts(snapshot: Snapshot) -> int | None:
    text = snapshot.properties.get(ATTEMPTS_PROPERTY, "")
    if text.isdecimal() and len(text) < 10:
        return int(text)
    return 1 if (snapshot.writer_version or "").startswith(WRITER_NAME) else None
