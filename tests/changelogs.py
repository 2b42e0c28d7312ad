"""The changelog of a snapshot as it lies in its files, read without the reader of changes."""

from __future__ import annotations

from typing import Any

from tidelake.files.keyed import KIND_FIELD, SEQUENCE_FIELD
from tidelake.lsm.engine import KIND, SEQUENCE
from tidelake.ops.read.append import read_data_file
from tidelake.ops.read.keyed import KeyedRequest
from tidelake.ops.scan.plan import changelog_manifests, read_changes
from tidelake.ops.scan.split import bucket_splits
from tidelake.spec.data_file import DataFile, data_files
from tidelake.table import Table

__all__ = ["WORDS", "changelog", "changelog_files", "changelogs", "numbered_changelog"]

WORDS = ("+I", "-U", "+U", "-D")


def changelog_files(table: Table, snapshot_id: int) -> list[DataFile]:
    """The changelog files that a snapshot names."""
    store = table.store
    metas = changelog_manifests(store.manifests, store.snapshots.get(snapshot_id))
    return list(data_files(read_changes(store.manifests, metas)))


def numbered_changelog(table: Table, snapshot_id: int) -> list[tuple[int, str, dict[str, Any]]]:
    """Sequence numbers, kinds and rows, bucket after bucket, in the order of the files."""
    store = table.store
    metas = changelog_manifests(store.manifests, store.snapshots.get(snapshot_id))
    schema = store.schema
    request = KeyedRequest(schema=schema, columns=schema.names, wanted=(SEQUENCE_FIELD, KIND_FIELD, *schema.fields))
    found: list[tuple[int, str, dict[str, Any]]] = []
    for split in bucket_splits(read_changes(store.manifests, metas), snapshot_id, table.paths, None):
        for file in split.files:
            for batch in read_data_file(store, split, file, request):
                found += [(row.pop(SEQUENCE), WORDS[row.pop(KIND)], row) for row in batch.to_pylist()]
    return found


def changelog(table: Table, snapshot_id: int) -> list[tuple[str, ...]]:
    """Kinds and values of the rows."""
    return [(kind, *row.values()) for _, kind, row in numbered_changelog(table, snapshot_id)]


def changelogs(table: Table) -> dict[int, list[tuple[str, ...]]]:
    """The changelog of every snapshot that has one."""
    snapshots = table.store.snapshots
    ids = range(1, (snapshots.latest_id() or 0) + 1)
    return {each: found for each in ids if (found := changelog(table, each))}
