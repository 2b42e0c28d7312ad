"""The live files of a snapshot, as an entries table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tidelake.ops.scan.partitions import EveryPartition, PartitionFilter
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.manifest import ENTRIES, IDENTITY_COLUMNS, PRUNING_COLUMNS, merge_entries
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.store.manifests import Keep, ManifestStore

EVERY_PARTITION = EveryPartition()


def data_manifests(store: ManifestStore, snapshot: Snapshot) -> tuple[ManifestMeta, ...]:
    """The manifests of a snapshot's state: those of before, then those of its own change."""
    base = store.read_list(snapshot.base_manifest_list, size=snapshot.base_manifest_list_size_bytes)
    return (*base, *delta_manifests(store, snapshot))


def delta_manifests(store: ManifestStore, snapshot: Snapshot) -> tuple[ManifestMeta, ...]:
    """The manifests of a snapshot's own change."""
    return store.read_list(snapshot.delta_manifest_list, size=snapshot.delta_manifest_list_size_bytes)


def changelog_manifests(store: ManifestStore, snapshot: Snapshot) -> tuple[ManifestMeta, ...]:
    """The manifests of the changelog files of a snapshot."""
    if snapshot.changelog_manifest_list is None:
        return ()
    return store.read_list(snapshot.changelog_manifest_list, size=snapshot.changelog_manifest_list_size_bytes)


def read_changes(
    store: ManifestStore,
    metas: Sequence[ManifestMeta],
    *,
    partitions: PartitionFilter = EVERY_PARTITION,
    columns: Iterable[str] | None = None,
) -> pa.Table:
    """The entries of manifests as they stand, additions and deletions."""
    chosen = partitions.prune(metas)
    keep: Keep | None = None if partitions is EVERY_PARTITION else (lambda table: partitions.mask(table["partition"]))
    return store.read_entries(chosen, columns=None if columns is None else list(columns), keep=keep)


def live_entries(
    store: ManifestStore,
    metas: Sequence[ManifestMeta],
    *,
    partitions: PartitionFilter = EVERY_PARTITION,
    columns: Iterable[str] | None = None,
) -> pa.Table:
    """The files that are live after all changes of these manifests.

    Raises:
        FormatError: a file is deleted that was never added, or added twice.
    """
    wanted = set(ENTRIES.names if columns is None else columns)
    chosen = partitions.prune(metas)
    needed = wanted if not any(meta.num_deleted for meta in chosen) else wanted | {"kind", *IDENTITY_COLUMNS}
    entries = read_changes(store, chosen, partitions=partitions, columns=needed | set(PRUNING_COLUMNS))
    if set(IDENTITY_COLUMNS) <= set(entries.column_names):  # they are, wherever something was deleted
        entries = merge_entries(entries, whole=True)
    return entries.select([name for name in ENTRIES.names if name in wanted])
