"""What came into an append table between two points: the files its APPEND snapshots added, or those one state has more.

What was added counts as it was added, whatever was deleted since; a state counts without its deleted rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.expr.tree import Predicate
from tidelake.ops.scan.modes import missing_range
from tidelake.ops.scan.options import SplitOptions
from tidelake.ops.scan.plan import changelog_manifests, data_manifests, delta_manifests, live_entries, read_changes
from tidelake.ops.scan.planner import Plan, prune_files, refuse_unreadable, splits_of
from tidelake.ops.scan.vectors import snapshot_vectors
from tidelake.spec.manifest import ADD, empty_entries
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import CommitKind, Snapshot
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

_FILE = ("partition", "bucket", "file_name")


def plan_changes(
    store: TableStore,
    *,
    since: int,
    until: int,
    schema: Schema,
    paths: DataPaths,
    where: Predicate | None,
    options: SplitOptions,
    changelog: bool = False,
) -> Plan:
    """Plan the read of what snapshots after `since` up to `until` added, or wrote as changelog.

    Compactions and overwrites are left out: they add no row that was not there, or replace what they add.

    Raises:
        InvalidInputError: the range is upside down.
        NotFoundError: a snapshot of the range has expired or does not exist.
        UnsupportedError: rows lie in files that hold some columns only.
    """
    if until < since:
        raise InvalidInputError("changes end before they begin", since=since, until=until)
    if since == until:
        return Plan(store.snapshots.find(until) if until > 0 else None, where=where)
    earliest, latest = store.snapshots.earliest_id() or 1, store.snapshots.latest_id() or 0
    if since < earliest - 1 or until > latest:
        raise missing_range(since, until, earliest, latest)
    snapshots = store.env.executor.map(store.snapshots.get, range(since + 1, until + 1))
    tables = [empty_entries()]
    metas = 0
    for snapshot in snapshots:
        if changelog:
            found = (
                () if snapshot.commit_kind is CommitKind.OVERWRITE else changelog_manifests(store.manifests, snapshot)
            )
        else:
            found = delta_manifests(store.manifests, snapshot) if snapshot.commit_kind is CommitKind.APPEND else ()
        metas += len(found)
        if found:
            tables.append(read_changes(store.manifests, found))
    entries = pa.concat_tables(tables)
    entries = entries.filter(pc.equal(entries.column("kind"), ADD))
    refuse_unreadable(store, snapshots[-1], entries)
    return _finished(store, snapshots[-1], entries, metas, schema, paths, where, options)


def plan_difference(
    store: TableStore,
    *,
    before: Snapshot | None,
    after: Snapshot,
    schema: Schema,
    paths: DataPaths,
    where: Predicate | None,
    options: SplitOptions,
) -> Plan:
    """Plan the read of the files that `after` has and `before` (None: the empty table) has not.

    Rows of an append table have no identity, so that files are compared: a row that a compaction wrote anew in between
    is read, as the format's own readers do.

    Raises:
        UnsupportedError: rows lie in files that hold some columns only.
    """
    metas = data_manifests(store.manifests, after)
    entries = live_entries(store.manifests, metas)
    refuse_unreadable(store, after, entries)
    if before is not None:
        known = live_entries(store.manifests, data_manifests(store.manifests, before), columns=_FILE)
        entries = entries.take(pa.array(_not_in(entries.select(_FILE), known)))
    vectors = snapshot_vectors(store.manifests, after)
    return _finished(store, after, entries, len(metas), schema, paths, where, options, vectors)


def _not_in(entries: pa.Table, known: pa.Table) -> np.ndarray:
    """The places of the entries that are not among the known ones."""
    numbered = entries.append_column("place", pa.array(np.arange(entries.num_rows)))
    left = numbered.join(known, list(_FILE), join_type="left anti")
    return np.sort(left.column("place").to_numpy())


def _finished(
    store: TableStore,
    last: Snapshot,
    entries: pa.Table,
    metas: int,
    schema: Schema,
    paths: DataPaths,
    where: Predicate | None,
    options: SplitOptions,
    vectors: pa.Table | None = None,
) -> Plan:
    live = entries.num_rows
    if where is not None:
        entries = prune_files(store, entries, where, schema)
    splits = tuple(splits_of(entries, last.id, paths, options, vectors))
    return Plan(last, splits, metas, metas, live, entries.num_rows, where)
