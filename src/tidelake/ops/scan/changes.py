"""What changed between two points, as splits: what snapshots added, their changelogs, or what two states differ by.

Rows of changes are not merged. Those of one bucket come in the order of their snapshots, so that the versions of a key
keep theirs. A difference is read bucket by bucket, because only there can the two states hold versions of one key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.expr.simplify import restrict
from tidelake.expr.tree import Predicate
from tidelake.ops.scan.modes import missing_range
from tidelake.ops.scan.options import BucketOptions, SplitOptions
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
from tidelake.ops.scan.split import Split, SplitMode, bucket_splits, pack
from tidelake.ops.scan.vectors import snapshot_vectors
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.spec.manifest import ADD, empty_entries
from tidelake.spec.manifest_list import ManifestMeta
from tidelake.spec.option_rules import bool_option
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import CommitKind, Snapshot
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

_PROBED_MAX = 1_000
_FILE = ("partition", "bucket", "file_name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is read of changes: the columns of a schema, rows that a condition keeps, how splits are packed."""

    schema: Schema
    paths: DataPaths
    where: Predicate | None = None
    options: Mapping[str, str] = field(default_factory=dict)


def shared_by_halves(where: Predicate | None, schema: Schema) -> Predicate | None:
    """What a condition says that is true of both rows of an update or of none: about its key and its partition."""
    if where is None:
        return None
    shared = restrict(where, frozenset((*schema.partition_keys, *schema.primary_keys)))
    return shared if shared.columns() else None


def find_change(store: TableStore, snapshot_id: int) -> Snapshot | None:
    """The snapshot with this id, or the long-lived changelog it left; None if there is neither.

    Raises:
        FormatError: its file is damaged.
    """
    # In this order: a changelog is there before its snapshot goes.
    return store.snapshots.find(snapshot_id) or store.changelogs.find(snapshot_id)


def earliest_change(store: TableStore) -> int | None:
    """The oldest snapshot whose changes are kept, if only as a long-lived changelog."""
    kept = (store.changelogs.earliest_id(), store.snapshots.earliest_id())
    return min((each for each in kept if each is not None), default=None)


def plan_changes(store: TableStore, wanted: Wanted, *, since: int, until: int, changelog: bool = False) -> Plan:
    """Plan the read of what snapshots after `since` up to `until` added, or wrote as changelog.

    Compactions are left out where they bring no change, and overwrites always: they replace what they add.

    Raises:
        InvalidInputError: the range is upside down.
        NotFoundError: a snapshot of the range has expired or does not exist.
        UnsupportedError: rows lie in files that hold some columns only.
    """
    if until < since:
        raise InvalidInputError("changes end before they begin", since=since, until=until)
    if since == until:
        return Plan(store.snapshots.find(until) if until > 0 else None, where=wanted.where)
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
        # A number far above the others must not make a list of all ids between: there are no more than files.
        there = {*store.snapshots.ids(), *store.changelogs.ids()}
        if sum(since < each <= until for each in there) < until - since:
            raise missing_range(since, until, earliest, latest)
    snapshots = store.env.executor.map(read, range(since + 1, until + 1))
    return plan_steps(store, wanted, snapshots, changelog=changelog)


def plan_steps(
    store: TableStore, wanted: Wanted, snapshots: Sequence[Snapshot], *, changelog: bool, staged: bool = False
) -> Plan:
    """Plan the read of the changes of these snapshots, oldest first; with `staged` also of rows without a bucket.

    Raises:
        NotFoundError: one of them expired meanwhile.
        UnsupportedError: rows lie in files that hold some columns only.
    """
    with store.snapshots.held_to(snapshots[0].id):  # the first to expire
        metas = [meta for snapshot in snapshots for meta in change_manifests(store, snapshot, changelog=changelog)]
        entries, read = _entries(store, wanted, metas)
    entries = entries.filter(pc.equal(entries.column("kind"), ADD))
    refuse_unreadable(store, snapshots[-1], entries)
    kept = _pruned(store, entries, wanted)
    splits = change_splits(kept, snapshots[-1].id, wanted, staged=staged)
    return Plan(snapshots[-1], tuple(splits), len(metas), read, entries.num_rows, kept.num_rows, wanted.where)


def change_manifests(store: TableStore, snapshot: Snapshot, *, changelog: bool) -> tuple[ManifestMeta, ...]:
    """The manifests of the files that hold a snapshot's changes; none where it has none that streams look at."""
    if changelog:
        overwrites = snapshot.commit_kind is CommitKind.OVERWRITE
        return () if overwrites else changelog_manifests(store.manifests, snapshot)
    return delta_manifests(store.manifests, snapshot) if snapshot.commit_kind is CommitKind.APPEND else ()


def change_splits(entries: pa.Table, snapshot_id: int, wanted: Wanted, *, staged: bool = False) -> list[Split]:
    """Entries as splits whose rows are not merged, those of a bucket in the order of the entries.

    Rows that wait for a bucket are left out, as batch reads of changes do, unless `staged` asks for them.
    """
    options = SplitOptions.parse(wanted.options)
    if not wanted.schema.primary_keys:
        return splits_of(entries, snapshot_id, wanted.paths, options, None)
    if not staged:
        entries = entries.filter(pc.greater_equal(entries.column("bucket"), 0))
    return [
        replace(bucket, files=tuple(files), raw_convertible=False, mode=SplitMode.CHANGES)
        for bucket in bucket_splits(entries, snapshot_id, wanted.paths, None)
        for files in pack(
            in_arrival_order(bucket.files) if bucket.bucket == POSTPONE_BUCKET else bucket.files,
            lambda file: file.file_size,
            target=options.target_bytes,
            least=options.open_file_cost,
        )
    ]


def plan_overwrite(store: TableStore, wanted: Wanted, snapshot: Snapshot) -> Plan:
    """Plan the read of an overwrite as changes: what it replaced is taken back, and what it brought follows.

    The rows of an append table have no identity that could be taken back, so of those only what was added is read.

    Raises:
        NotFoundError: it is left as a long-lived changelog, and what it replaced is told no more.
        UnsupportedError: rows lie in files that hold some columns only.
    """
    try:
        metas = delta_manifests(store.manifests, snapshot)
        entries, read = _entries(store, wanted, metas)
    except NotFoundError as cause:
        if store.snapshots.exists(snapshot.id):
            raise
        raise _overwritten(store, snapshot) from cause  # a changelog of a producer keeps its changelog files alone
    added = entries.filter(pc.equal(entries.column("kind"), ADD))
    refuse_unreadable(store, snapshot, entries)
    splits: list[Split] = []
    if wanted.schema.primary_keys:
        gone = entries.filter(pc.not_equal(entries.column("kind"), ADD))
        parts = ((gone, SplitMode.TAKEN_BACK, snapshot.id - 1), (added, SplitMode.STATE, snapshot.id))
        for part, mode, state_id in parts:
            part = part.filter(pc.greater_equal(part.column("bucket"), 0))
            vectors = _vectors_at(store, wanted, snapshot, state_id) if part.num_rows else None
            splits += [
                replace(bucket, mode=mode, raw_convertible=False)
                for bucket in bucket_splits(part, state_id, wanted.paths, vectors)
            ]
        # Stable: in each bucket what goes comes before what follows it.
        splits.sort(key=lambda split: (split.partition, split.bucket))
    else:
        kept = _pruned(store, added, wanted)
        splits += splits_of(kept, snapshot.id, wanted.paths, SplitOptions.parse(wanted.options), None)
    return Plan(snapshot, tuple(splits), len(metas), read, entries.num_rows, entries.num_rows, wanted.where)


def _vectors_at(store: TableStore, wanted: Wanted, overwrite: Snapshot, state_id: int) -> pa.Table | None:
    """The deletion vectors of the state before or after an overwrite, which may be left as a changelog only.

    Raises:
        NotFoundError: they went with their snapshot.
    """
    state = find_change(store, state_id)
    try:
        if state is not None:
            return snapshot_vectors(store.manifests, state)
    except NotFoundError:
        if store.snapshots.exists(state_id):
            raise
    if not bool_option(wanted.options, "deletion-vectors.enabled"):
        return None  # it was the index of something else
    raise _overwritten(store, overwrite)


def _overwritten(store: TableStore, overwrite: Snapshot) -> NotFoundError:
    return NotFoundError(
        "what an overwrite replaced is gone with its snapshots",
        code="snapshot-expired",
        table=store.env.io.root,
        snapshot_id=overwrite.id,
        earliest=store.snapshots.earliest_id(),
        hint="begin behind it: reset_consumer(); with streaming-read-overwrite a table keeps what its consumers need",
    )


def plan_latest_delta(store: TableStore, wanted: Wanted, snapshot: Snapshot) -> Plan:
    """Plan the read of the files that an APPEND snapshot added, versions of a key merged with each other.

    Raises:
        UnsupportedError: rows lie in files that hold some columns only.
    """
    plan = plan_steps(store, wanted, [snapshot], changelog=False)
    if not wanted.schema.primary_keys:
        return plan
    whole: dict[tuple[bytes, int], Split] = {}
    for split in plan.splits:
        known = whole.get((split.partition, split.bucket))
        files = split.files if known is None else known.files + split.files
        whole[split.partition, split.bucket] = replace(split, files=files, mode=SplitMode.STATE)
    return replace(plan, splits=tuple(whole.values()))


# ------------------------------------------------------------------------------------------------ differences


def plan_difference(store: TableStore, wanted: Wanted, *, before: Snapshot | None, after: Snapshot) -> Plan:
    """Plan the read of what `after` has other than `before` (None: the empty table).

    Rows of an append table have no identity, so that files are compared: a row that a compaction wrote anew in between
    is read, as the format's own readers do.

    Raises:
        InvalidInputError: a partition was dealt to another number of buckets in between.
        UnsupportedError: rows lie in files that hold some columns only.
    """
    with store.snapshots.held_to(after.id if before is None else before.id):
        return _plan_difference(store, wanted, before, after)


def _plan_difference(store: TableStore, wanted: Wanted, before: Snapshot | None, after: Snapshot) -> Plan:
    metas = data_manifests(store.manifests, after)
    partitions = partition_filter(wanted.where, wanted.schema)
    entries = live_entries(store.manifests, metas, partitions=partitions)
    refuse_unreadable(store, after, entries)
    if wanted.schema.primary_keys:
        splits = _keyed_difference(store, wanted, entries, before, after)
        kept = sum(len(split.files) for split in splits)
        return Plan(after, tuple(splits), len(metas), len(metas), entries.num_rows, kept, wanted.where)
    if before is not None:
        known = live_entries(store.manifests, data_manifests(store.manifests, before), columns=_FILE)
        entries = entries.take(pa.array(_not_in(entries.select(_FILE), known)))
    kept_entries = _pruned(store, entries, wanted)
    vectors = snapshot_vectors(store.manifests, after)
    splits = splits_of(kept_entries, after.id, wanted.paths, SplitOptions.parse(wanted.options), vectors)
    return Plan(after, tuple(splits), len(metas), len(metas), entries.num_rows, kept_entries.num_rows, wanted.where)


def _keyed_difference(
    store: TableStore, wanted: Wanted, after: pa.Table, older: Snapshot | None, newer: Snapshot
) -> list[Split]:
    """One split for each bucket whose files are not the same in both states, with all files of both.

    All, because a version of a key in a file that both have is merged with those in files that only one has.
    """
    from tidelake.lsm.engines.build import MergeOptions  # append tables do without the tree
    from tidelake.ops.scan.keyed import visible

    partitions = partition_filter(wanted.where, wanted.schema)
    merge = MergeOptions.parse(wanted.options)
    buckets = BucketOptions.parse(wanted.options)
    states: list[dict[tuple[bytes, int], Split]] = []
    for snapshot, entries in ((older, None), (newer, after)):
        if entries is None:
            metas = data_manifests(store.manifests, snapshot) if snapshot is not None else ()
            entries = live_entries(store.manifests, metas, partitions=partitions)
            refuse_unreadable(store, newer, entries)
        entries = visible(entries, merge, level0=True)
        if wanted.where is not None:
            entries = prune_buckets(entries, wanted.where, wanted.schema, buckets)
        vectors = snapshot_vectors(store.manifests, snapshot) if snapshot is not None else None
        splits = bucket_splits(entries, newer.id, wanted.paths, vectors)
        states.append({(split.partition, split.bucket): split for split in splits})
    before, now = states
    _refuse_rescaled(before.values(), now.values(), wanted.paths)
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
                "states with other numbers of buckets cannot be compared bucket by bucket",
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


def _entries(store: TableStore, wanted: Wanted, metas: Sequence[ManifestMeta]) -> tuple[pa.Table, int]:
    """The entries of manifests in the partitions that may be wanted, and how many manifests were read."""
    partitions = partition_filter(wanted.where, wanted.schema)
    read = partitions.prune(metas)
    if not read:
        return empty_entries(), 0
    return read_changes(store.manifests, read, partitions=partitions), len(read)


def _pruned(store: TableStore, entries: pa.Table, wanted: Wanted) -> pa.Table:
    """Without the files that hold no wanted row: nothing is merged, so that each row speaks for itself."""
    if wanted.where is None or not entries.num_rows:
        return entries
    entries = prune_buckets(entries, wanted.where, wanted.schema, BucketOptions.parse(wanted.options))
    return prune_files(store, entries, wanted.where, wanted.schema)
