"""The changes between two snapshots of an append table: the files that its APPEND snapshots added."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.expr.tree import Predicate
from tidelake.ops.scan.options import SplitOptions
from tidelake.ops.scan.plan import delta_manifests, read_changes
from tidelake.ops.scan.planner import Plan, prune_files, splits_of
from tidelake.spec.manifest import ADD, empty_entries
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import CommitKind
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore


def plan_changes(
    store: TableStore,
    *,
    since: int,
    until: int,
    schema: Schema,
    paths: DataPaths,
    where: Predicate | None,
    options: SplitOptions,
) -> Plan:
    """Plan the read of what snapshots after `since` up to `until` added.

    Compactions and overwrites are left out: they add no row that was not there, or replace what they add.

    Raises:
        InvalidInputError: the range is upside down.
        NotFoundError: a snapshot of the range has expired or does not exist.
    """
    earliest, latest = store.snapshots.earliest_id() or 1, store.snapshots.latest_id() or 0
    if until < since:
        raise InvalidInputError("changes end before they begin", since=since, until=until)
    if since < earliest - 1 or until > latest:
        raise NotFoundError(
            "changes of that range are not kept",
            code="snapshot-not-found",
            since=since,
            until=until,
            hint=f"snapshots {earliest} to {latest} are there",
        )
    tables = [empty_entries()]
    metas = 0
    for snapshot_id in range(since + 1, until + 1):
        snapshot = store.snapshots.get(snapshot_id)
        if snapshot.commit_kind is CommitKind.APPEND:
            delta = delta_manifests(store.manifests, snapshot)
            metas += len(delta)
            tables.append(read_changes(store.manifests, delta))
    entries = pa.concat_tables(tables)
    entries = entries.filter(pc.equal(entries.column("kind"), ADD))
    live = entries.num_rows
    if where is not None:
        entries = prune_files(store, entries, where, schema)
    last = store.snapshots.get(until) if until > 0 else None
    splits = tuple(splits_of(entries, until, paths, options))
    return Plan(last, splits, metas, metas, live, entries.num_rows, where)
