"""From a snapshot and a predicate to the splits of a primary-key table.

A file may be pruned by its key range alone. By other columns it is pruned only together with all files of its bucket
that may contain other versions of its keys: a newer version that does not match must still hide an older one that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import UnsupportedError
from tidelake.expr.prune import Bounds, may_match
from tidelake.expr.simplify import restrict
from tidelake.expr.tree import Predicate
from tidelake.lsm.engines.build import ChangelogProducer, MergeEngine, MergeOptions
from tidelake.lsm.files import RunFile, run_files
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.sections import Section, partition_files
from tidelake.ops.context import TableContext
from tidelake.ops.scan.changes import change_splits
from tidelake.ops.scan.modes import State
from tidelake.ops.scan.options import SplitOptions, UnreadableOptions
from tidelake.ops.scan.planner import Plan, created_since, files_that_may_match, find_live, never, prune_buckets
from tidelake.ops.scan.postponed import PostponeOptions, bucket_counts, staged_entries
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.split import Split, bucket_codes, bucket_splits, pack
from tidelake.options import TableOptions
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.spec.schemas.bucket_mode import BucketOptions
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.stats.stats_evolution import bounds_under
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore


def plan_keyed(context: TableContext, state: State, request: ReadRequest) -> Plan:
    """Plan the read of a state of a primary-key table.

    An `optimized` request reads only the highest level. A `first_of_stream` request reads the state that the changes of
    later snapshots continue: files whose changelog a later compaction will write are left out, and without a producer
    staged rows follow the state in the order they were written.

    Raises:
        NotFoundError: the table was dropped.
        UnsupportedError: rows are not ordered by key and sequence number.
    """
    options, schema, where = context.options, request.schema, request.where
    optimized, first_of_stream, created_from_ms = request.optimized, request.first_of_stream, state.created_from_ms
    _refuse_other_orders(options.of(UnreadableOptions))
    live = find_live(context.store, state.snapshot, where, schema)
    if live is None:
        return Plan(None, where=where)
    merge = options.of(MergeOptions)
    none = live.entries.slice(0, 0)
    staged = none if optimized or first_of_stream else _select_staged(live.entries, options)
    apart = pc.is_in(live.entries.column("partition"), value_set=staged.column("partition").combine_chunks().unique())
    entries = visible(live.entries.filter(pc.invert(apart)), merge, level0=first_of_stream or request.waiting or None)
    levels = options.of(CompactionOptions).num_levels
    if optimized or (first_of_stream and merge.changelog_producer is ChangelogProducer.FULL_COMPACTION):
        entries = entries.filter(pc.equal(entries.column("level"), levels - 1))
    elif first_of_stream and merge.changelog_producer is ChangelogProducer.LOOKUP:
        entries = entries.filter(pc.greater(entries.column("level"), 0))
    if created_from_ms is not None:
        entries = created_since(entries, created_from_ms)
    if where is not None:
        entries = entries.slice(0, 0) if never(where) else entries
        entries = prune_buckets(entries, where, schema, options.of(BucketOptions))
        entries = prune_by_key(context.store, entries, where, schema)
        entries = prune_by_value(context.store, entries, where, schema, merge)
    splits = keyed_splits(context, entries, live.snapshot.id, schema, live.vectors)
    if staged.num_rows and (where is None or not never(where)):
        there = live.entries.filter(apart)
        splits += staged_splits(there, live.snapshot.id, context.paths, options.of(PostponeOptions), live.vectors)
        entries = pa.concat_tables([entries, there])
    if first_of_stream and merge.changelog_producer is ChangelogProducer.NONE:
        # Staged rows will be in no later change: the compaction that moves them to buckets is skipped.
        came = staged_entries(live.entries)
        came = came if created_from_ms is None else created_since(came, created_from_ms)
        came = came.slice(0, 0) if where is not None and never(where) else came
        splits += change_splits(context, came, live.snapshot.id, staged=True)
        entries = pa.concat_tables([entries, came])
    return live.plan(entries, splits)


def _refuse_other_orders(options: UnreadableOptions) -> None:
    refused = (
        (options.clustering_override, "pk-clustering-override", "files are sorted by other columns than the key"),
        (
            options.snapshot_ordering,
            "sequence.snapshot-ordering",
            "versions are ordered by the snapshots that brought them",
        ),
    )
    for is_set, key, reason in refused:
        if is_set:
            raise UnsupportedError(
                f"table cannot be read yet: {reason}",
                code="option-unsupported",
                option=key,
                hint="read this table with Apache Paimon",
            )


def _select_staged(entries: pa.Table, options: TableOptions) -> pa.Table:
    """The staged files that a batch read merges in."""
    merged = options.of(PostponeOptions).merge_on_read
    return staged_entries(entries) if merged else entries.slice(0, 0)


def staged_splits(
    entries: pa.Table, snapshot_id: int, paths: DataPaths, options: PostponeOptions, vectors: pa.Table | None
) -> list[Split]:
    """One split for each existing or future bucket of partitions with staged rows; none of their files is pruned."""
    counts = bucket_counts(entries, options)
    found = {(split.partition, split.bucket): split for split in bucket_splits(entries, snapshot_id, paths, vectors)}
    splits = []
    for partition, bucket in [place for place in found if place[1] == POSTPONE_BUCKET]:
        waiting = found[partition, bucket]
        for number in range(counts[partition]):
            fresh = replace(waiting.with_files(()), bucket=number, bucket_path=paths.bucket(partition, number))
            splits.append(
                replace(
                    found.get((partition, number), fresh),
                    total_buckets=counts[partition],
                    raw_convertible=False,
                    staged=waiting.files,
                    staged_path=waiting.bucket_path,
                )
            )
    return splits


def visible(entries: pa.Table, merge: MergeOptions, *, level0: bool | None = None) -> pa.Table:
    """The files that a batch read uses: no staged ones, and no level-0 files if these wait for a compaction.

    `level0` overrides whether level-0 files are used.
    """
    keep = pc.greater_equal(entries.column("bucket"), 0)
    if not (not merge.level0_waits if level0 is None else level0):
        keep = pc.and_(keep, pc.greater(entries.column("level"), 0))
    return entries.filter(keep)


def prune_by_key(store: TableStore, entries: pa.Table, where: Predicate, schema: Schema) -> pa.Table:
    """Drop files whose key range rules the predicate out."""
    keys = schema.trimmed_primary_keys
    about = restrict(where, frozenset(keys))
    wanted = sorted(about.columns())
    if not wanted or entries.num_rows == 0:
        return entries
    keep = np.ones(entries.num_rows, dtype=bool)
    ids = entries.column("schema_id").to_numpy()
    for schema_id in np.unique(ids).tolist():
        rows = np.flatnonzero(ids == schema_id)
        part = entries.take(pa.array(rows))
        written = store.schemas.get(schema_id)
        found = bounds_under(
            part.column("key_stats_min"),
            part.column("key_stats_max"),
            part.column("key_stats_null_counts"),
            pa.chunked_array([pa.nulls(len(rows), pa.list_(pa.string()))]),
            part.column("row_count"),
            file_fields=[written.field(name) for name in written.trimmed_primary_keys],
            read_fields=[schema.field(name) for name in keys],
            wanted=wanted,
        )
        counts = part.column("row_count").combine_chunks()
        bounds = {name: Bounds(each.min, each.max, each.null_count, counts) for name, each in found.items()}
        keep[rows] = may_match(about, bounds, len(rows)).to_numpy(zero_copy_only=False)
    return entries.filter(pa.array(keep))


def prune_by_value(
    store: TableStore, entries: pa.Table, where: Predicate, schema: Schema, merge: MergeOptions
) -> pa.Table:
    """Prune files by column statistics: one by one if files of a bucket do not overlap, else bucket by bucket."""
    if entries.num_rows == 0:
        return entries
    may = files_that_may_match(store, entries, where, schema)
    if may.all():
        return entries
    codes = bucket_codes(entries)
    count = int(codes.max()) + 1
    levels = entries.column("level").to_numpy()
    low, high = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(low, codes, levels)
    np.maximum.at(high, codes, levels)
    # If level 0 is not read, the other levels contain at most one live version of a key.
    alone = (np.bincount(codes, minlength=count) == 1) | ((low == high) & (low > 0)) | (merge.level0_waits & (low > 0))
    anywhere = np.zeros(count, dtype=bool)
    np.logical_or.at(anywhere, codes, may)
    merged = merge.engine in (MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATION)
    together = np.ones(entries.num_rows, dtype=bool) if merged else anywhere[codes]
    return entries.filter(pa.array(np.where(alone[codes], may, together)))


def keyed_splits(
    context: TableContext, entries: pa.Table, snapshot_id: int, schema: Schema, vectors: pa.Table | None
) -> list[Split]:
    """Entries as splits, bucket by bucket; files that may hold versions of one key stay together."""
    options, one_version = context.options.of(SplitOptions), context.options.of(MergeOptions).level0_waits
    types = [schema.field(name).type for name in schema.trimmed_primary_keys]
    return [
        replace(bucket.with_files(file.meta for file in group.files), raw_convertible=group.raw_convertible)
        for bucket in bucket_splits(entries, snapshot_id, context.paths, vectors)
        for group in plan_split_groups(run_files(bucket.files, types), options, one_version=one_version)
    ]


@dataclass(frozen=True, slots=True)
class SplitGroup:
    """Files that one task reads. `raw_convertible` means that their rows need no merge."""

    files: tuple[RunFile, ...]
    raw_convertible: bool


def plan_split_groups(files: Sequence[RunFile], options: SplitOptions, *, one_version: bool) -> tuple[SplitGroup, ...]:
    """Pack the files of a bucket for a batch read.

    Files above level 0 without deletions are packed one by one if no two of them can contain the same key. Otherwise
    whole sections are packed, and only a split of a single file without deletions needs no merge.

    Args:
        files: The files to read, in the order of the plan.
        options: What a split weighs at most, and an item at least.
        one_version: Whether levels above 0 hold at most one live version of a key: deletion vectors, or first-row.
    """
    settled = all(file.level > 0 and not file.known_to_hold_deletes for file in files)
    raw = settled and (one_version or len({file.level for file in files}) == 1)
    items = [Section(((file,),)) for file in files] if raw else partition_files(files)
    bins = pack(items, lambda item: item.size, target=options.target_bytes, least=options.open_file_cost)
    groups = (tuple(file for item in group for file in item.files) for group in bins)
    return tuple(SplitGroup(group, raw or _alone(group)) for group in groups)


def _alone(group: tuple[RunFile, ...]) -> bool:
    return len(group) == 1 and not group[0].known_to_hold_deletes
