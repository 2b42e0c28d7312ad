"""Plan the read of changes: files that snapshots added, their changelogs, or the difference of two states.

Rows of changes are not merged. Within a bucket they come in the order of their snapshots, which keeps the versions of a
key in order. A difference is read bucket by bucket, because all versions of a key are in one bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.expr.simplify import restrict
from tidelake.expr.tree import Predicate
from tidelake.ops.context import TableContext
from tidelake.ops.scan.deletion_vectors import snapshot_vectors
from tidelake.ops.scan.modes import missing_range
from tidelake.ops.scan.options import SplitOptions
from tidelake.ops.scan.plan import changelog_manifests, data_manifests, delta_manifests, live_entries, read_changes
from tidelake.ops.scan.planner import (
    Plan,
    partition_filter,
    prune_buckets,
    prune_files,
    refuse_unreadable,
    splits_of,
)
from tidelake.ops.scan.postponed import in_arrival_order
from tidelake.ops.scan.request import ReadRequest, Shape
from tidelake.ops.scan.split import Split, SplitMode, bucket_splits, pack
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.spec.manifests.manifest import ADD, empty_entries
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.spec.schemas.bucket_mode import BucketOptions
from tidelake.spec.schemas.schema import Schema
from tidelake.store.deletion_vectors import VectorOptions
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

_PROBED_MAX = 1_000
_FILE = ("partition", "bucket", "file_name")


def shared_by_halves(where: Predicate | None, schema: Schema) -> Predicate | None:
    """The part of a condition that holds for both rows of an update or for none: on its key and partition."""
    if where is None:
        return None
    shared = restrict(where, frozenset((*schema.partition_keys, *schema.primary_keys)))
    return shared if shared.columns() else None


def keep_updates_whole(request: ReadRequest) -> ReadRequest:
    """The request for changes; if updates are packed, both rows of an update are read if the condition keeps one."""
    if request.shape is not Shape.BINLOG or not request.schema.primary_keys:
        return request
    return replace(request, where=shared_by_halves(request.where, request.schema))


def find_change(store: TableStore, snapshot_id: int) -> Snapshot | None:
    """The snapshot with this id, or its long-lived changelog; None if neither exists.

    Raises:
        FormatError: its file is damaged.
    """
    # In this order: a changelog is written before its snapshot is deleted.
    return store.snapshots.find(snapshot_id) or store.changelogs.find(snapshot_id)


def earliest_change(store: TableStore) -> int | None:
    """The oldest snapshot whose changes are kept, if only as a long-lived changelog."""
    kept = (store.changelogs.earliest_id(), store.snapshots.earliest_id())
    return min((each for each in kept if each is not None), default=None)


def plan_changes(
    context: TableContext, request: ReadRequest, *, since: int, until: int, changelog: bool = False
) -> Plan:
    """Plan the read of what snapshots after `since` up to `until` added, or wrote as changelog.

    Compactions without changes are left out, and overwrites always: what they add replaces other files.

    Raises:
        InvalidInputError: the range ends before it begins.
        NotFoundError: a snapshot of the range has expired or does not exist.
        UnsupportedError: rows are stored in files with only some of the columns.
    """
    store = context.store
    if until < since:
        raise InvalidInputError("changes end before they begin", since=since, until=until)
    if since == until:
        return Plan(store.snapshots.find(until) if until > 0 else None, where=request.where)
    earliest, latest = store.snapshots.earliest_id() or 1, store.snapshots.latest_id() or 0
    if since < earliest - 1:
        earliest = earliest_change(store) or earliest
    if since < earliest - 1 or until > latest:
        raise missing_range(since, until, earliest, latest)

    def read(snapshot_id: int) -> Snapshot:
        found = find_change(store, snapshot_id)
        if found is None:
            raise missing_range(since, until, earliest, latest)
        return found

    if until - since > _PROBED_MAX:
        # A huge id must not lead to a list of all ids in between: no more snapshots exist than files.
        there = {*store.snapshots.ids(), *store.changelogs.ids()}
        if sum(since < each <= until for each in there) < until - since:
            raise missing_range(since, until, earliest, latest)
    snapshots = store.env.executor.map(read, range(since + 1, until + 1))
    return plan_steps(context, request, snapshots, changelog=changelog)


def plan_steps(
    context: TableContext,
    request: ReadRequest,
    snapshots: Sequence[Snapshot],
    *,
    changelog: bool,
    staged: bool = False,
) -> Plan:
    """Plan the read of the changes of these snapshots, oldest first; with `staged` also of rows without a bucket.

    Raises:
        NotFoundError: one of them expired while it was planned.
        UnsupportedError: rows are stored in files with only some of the columns.
    """
    store = context.store
    with store.snapshots.held_to(snapshots[0].id):  # the first to expire
        metas = [meta for snapshot in snapshots for meta in change_manifests(store, snapshot, changelog=changelog)]
        entries, read = _entries(store, request, metas)
    entries = entries.filter(pc.equal(entries.column("kind"), ADD))
    refuse_unreadable(store, snapshots[-1], entries)
    kept = _prune(context, entries, request)
    splits = change_splits(context, kept, snapshots[-1].id, staged=staged)
    return Plan(snapshots[-1], tuple(splits), len(metas), read, entries.num_rows, kept.num_rows, request.where)


def change_manifests(store: TableStore, snapshot: Snapshot, *, changelog: bool) -> tuple[ManifestMeta, ...]:
    """The manifests of the files with a snapshot's changes; none if streams skip the snapshot."""
    if changelog:
        overwrites = snapshot.commit_kind is CommitKind.OVERWRITE
        return () if overwrites else changelog_manifests(store.manifests, snapshot)
    return delta_manifests(store.manifests, snapshot) if snapshot.commit_kind is CommitKind.APPEND else ()


def change_splits(context: TableContext, entries: pa.Table, snapshot_id: int, *, staged: bool = False) -> list[Split]:
    """Entries as splits whose rows are not merged, those of a bucket in the order of the entries.

    Staged rows are left out, as in batch reads of changes, unless `staged` is set.
    """
    options = context.options.of(SplitOptions)
    if not context.is_keyed:
        return splits_of(entries, snapshot_id, context.paths, options, None)
    if not staged:
        entries = entries.filter(pc.greater_equal(entries.column("bucket"), 0))
    return [
        replace(bucket, files=tuple(files), raw_convertible=False, mode=SplitMode.CHANGES)
        for bucket in bucket_splits(entries, snapshot_id, context.paths, None)
        for files in pack(
            in_arrival_order(bucket.files) if bucket.bucket == POSTPONE_BUCKET else bucket.files,
            lambda file: file.file_size,
            target=options.target_bytes,
            least=options.open_file_cost,
        )
    ]


def plan_overwrite(context: TableContext, request: ReadRequest, snapshot: Snapshot) -> Plan:
    """Plan the read of an overwrite as changes: retract rows for what it replaced, then the rows that it added.

    Rows of an append table have no key that could be retracted, so only the added ones are read.

    Raises:
        NotFoundError: only its long-lived changelog is left, so what it replaced is unknown.
        UnsupportedError: rows are stored in files with only some of the columns.
    """
    store = context.store
    try:
        metas = delta_manifests(store.manifests, snapshot)
        entries, read = _entries(store, request, metas)
    except NotFoundError as cause:
        if store.snapshots.exists(snapshot.id):
            raise
        raise _overwritten(store, snapshot) from cause  # with a changelog producer only the changelog files are kept
    added = entries.filter(pc.equal(entries.column("kind"), ADD))
    refuse_unreadable(store, snapshot, entries)
    splits: list[Split] = []
    if request.schema.primary_keys:
        gone = entries.filter(pc.not_equal(entries.column("kind"), ADD))
        parts = ((gone, SplitMode.TAKEN_BACK, snapshot.id - 1), (added, SplitMode.STATE, snapshot.id))
        for part, mode, state_id in parts:
            part = part.filter(pc.greater_equal(part.column("bucket"), 0))
            vectors = _vectors_at(context, snapshot, state_id) if part.num_rows else None
            splits += [
                replace(bucket, mode=mode, raw_convertible=False)
                for bucket in bucket_splits(part, state_id, context.paths, vectors)
            ]
        # The sort is stable: in each bucket retract rows come before added rows.
        splits.sort(key=lambda split: (split.partition, split.bucket))
    else:
        kept = _prune(context, added, request)
        splits += splits_of(kept, snapshot.id, context.paths, context.options.of(SplitOptions), None)
    return Plan(snapshot, tuple(splits), len(metas), read, entries.num_rows, entries.num_rows, request.where)


def _vectors_at(context: TableContext, overwrite: Snapshot, state_id: int) -> pa.Table | None:
    """The deletion vectors of the state before or after an overwrite; that snapshot may be a changelog by now.

    Raises:
        NotFoundError: they were deleted with their snapshot.
    """
    store = context.store
    state = find_change(store, state_id)
    try:
        if state is not None:
            return snapshot_vectors(store.manifests, state)
    except NotFoundError:
        if store.snapshots.exists(state_id):
            raise
    if not context.options.of(VectorOptions).enabled:
        return None  # the index manifest had only other indexes
    raise _overwritten(store, overwrite)


def _overwritten(store: TableStore, overwrite: Snapshot) -> NotFoundError:
    return NotFoundError(
        "what an overwrite replaced is gone with its snapshots",
        code="snapshot-expired",
        table=store.env.io.root,
        snapshot_id=overwrite.id,
        earliest=store.snapshots.earliest_id(),
        hint="continue after it with reset_consumer(); with streaming-read-overwrite a table keeps what consumers need",
    )


def plan_latest_delta(context: TableContext, request: ReadRequest, snapshot: Snapshot) -> Plan:
    """Plan the read of the files that an APPEND snapshot added, versions of a key merged with each other.

    Raises:
        UnsupportedError: rows are stored in files with only some of the columns.
    """
    plan = plan_steps(context, request, [snapshot], changelog=False)
    if not request.schema.primary_keys:
        return plan
    whole: dict[tuple[bytes, int], Split] = {}
    for split in plan.splits:
        known = whole.get((split.partition, split.bucket))
        files = split.files if known is None else known.files + split.files
        whole[split.partition, split.bucket] = replace(split, files=files, mode=SplitMode.STATE)
    return replace(plan, splits=tuple(whole.values()))


# ------------------------------------------------------------------------------------------------ differences


def plan_difference(context: TableContext, request: ReadRequest, *, before: Snapshot | None, after: Snapshot) -> Plan:
    """Plan the read of the difference between `before` (None: the empty table) and `after`.

    Rows of an append table have no key, so files are compared: a row that a compaction rewrote in between is read, as
    Paimon's own readers do.

    Raises:
        InvalidInputError: the number of buckets of a partition changed in between.
        UnsupportedError: rows are stored in files with only some of the columns.
    """
    with context.store.snapshots.held_to(after.id if before is None else before.id):
        return _plan_difference(context, request, before, after)


def _plan_difference(context: TableContext, request: ReadRequest, before: Snapshot | None, after: Snapshot) -> Plan:
    store = context.store
    metas = data_manifests(store.manifests, after)
    partitions = partition_filter(request.where, request.schema)
    entries = live_entries(store.manifests, metas, partitions=partitions)
    refuse_unreadable(store, after, entries)
    if request.schema.primary_keys:
        splits = _difference_by_bucket(context, request, entries, before, after)
        kept = sum(len(split.files) for split in splits)
        return Plan(after, tuple(splits), len(metas), len(metas), entries.num_rows, kept, request.where)
    if before is not None:
        known = live_entries(store.manifests, data_manifests(store.manifests, before), columns=_FILE)
        entries = entries.take(pa.array(_not_in(entries.select(_FILE), known)))
    kept_entries = _prune(context, entries, request)
    vectors = snapshot_vectors(store.manifests, after)
    splits = splits_of(kept_entries, after.id, context.paths, context.options.of(SplitOptions), vectors)
    return Plan(after, tuple(splits), len(metas), len(metas), entries.num_rows, kept_entries.num_rows, request.where)


def _difference_by_bucket(
    context: TableContext, request: ReadRequest, after: pa.Table, older: Snapshot | None, newer: Snapshot
) -> list[Split]:
    """One split for each bucket whose files are not the same in both states, with all files of both.

    All of them, because versions of a key in a common file are merged with versions in other files.
    """
    from tidelake.lsm.engines.build import MergeOptions  # append tables do without the tree
    from tidelake.ops.scan.keyed import visible

    store = context.store
    partitions = partition_filter(request.where, request.schema)
    merge = context.options.of(MergeOptions)
    buckets = context.options.of(BucketOptions)
    states: list[dict[tuple[bytes, int], Split]] = []
    for snapshot, entries in ((older, None), (newer, after)):
        if entries is None:
            metas = data_manifests(store.manifests, snapshot) if snapshot is not None else ()
            entries = live_entries(store.manifests, metas, partitions=partitions)
            refuse_unreadable(store, newer, entries)
        entries = visible(entries, merge, level0=True)
        if request.where is not None:
            entries = prune_buckets(entries, request.where, request.schema, buckets)
        vectors = snapshot_vectors(store.manifests, snapshot) if snapshot is not None else None
        splits = bucket_splits(entries, newer.id, context.paths, vectors)
        states.append({(split.partition, split.bucket): split for split in splits})
    before, now = states
    _refuse_rescaled(before.values(), now.values(), context.paths)
    found = []
    for place in sorted({*before, *now}):
        old, new = before.get(place), now.get(place)
        split = new or old
        assert split is not None
        changed = replace(
            split,
            files=new.files if new else (),
            vectors=new.vectors if new else {},
            before=old.files if old else (),
            before_vectors=old.vectors if old else {},
            raw_convertible=False,
            mode=SplitMode.DIFFERENCE,
        )
        if changed.places != changed.places_before:
            found.append(changed)
    return found


def _refuse_rescaled(before: Iterable[Split], after: Iterable[Split], paths: DataPaths) -> None:
    counts = {split.partition: split.total_buckets for split in before}
    for split in after:
        known = counts.get(split.partition, split.total_buckets)
        if known != split.total_buckets:
            raise InvalidInputError(
                "states with different numbers of buckets cannot be compared bucket by bucket",
                code="rescaled",
                partition=paths.partition(split.partition) or "the whole table",
                before=known,
                after=split.total_buckets,
                hint="read the changes of the snapshots instead: incremental-between-scan-mode=delta or changelog",
            )


def _not_in(entries: pa.Table, known: pa.Table) -> np.ndarray:
    """The places of the entries that are not among the known ones."""
    numbered = entries.append_column("place", pa.array(np.arange(entries.num_rows)))
    left = numbered.join(known, list(_FILE), join_type="left anti", use_threads=False)
    return np.sort(left.column("place").to_numpy())


# ------------------------------------------------------------------------------------------------ entries


def _entries(store: TableStore, request: ReadRequest, metas: Sequence[ManifestMeta]) -> tuple[pa.Table, int]:
    """The entries of manifests in the partitions that may be wanted, and how many manifests were read."""
    partitions = partition_filter(request.where, request.schema)
    read = partitions.prune(metas)
    if not read:
        return empty_entries(), 0
    return read_changes(store.manifests, read, partitions=partitions), len(read)


def _prune(context: TableContext, entries: pa.Table, request: ReadRequest) -> pa.Table:
    """Drop the files without a wanted row; rows are not merged, so each file can be decided alone."""
    if request.where is None or not entries.num_rows:
        return entries
    entries = prune_buckets(entries, request.where, request.schema, context.options.of(BucketOptions))
    return prune_files(context.store, entries, request.where, request.schema)
