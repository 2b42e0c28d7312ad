"""From a snapshot and a predicate to the splits of a primary-key table.

A file may be left out for its key range alone. What its other columns hold rules it out only together with all files of
its bucket that may hold other versions of its keys: a newer version that does not match must still hide an older one
that does.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.expr.evaluate import matches
from tidelake.expr.prune import Bounds, may_match
from tidelake.expr.simplify import restrict
from tidelake.expr.tree import Predicate
from tidelake.lsm.engines.build import MergeEngine, MergeOptions
from tidelake.lsm.files import run_files
from tidelake.lsm.sections import plan_split_groups
from tidelake.ops.scan.options import BucketOptions, SplitOptions
from tidelake.ops.scan.partitions import PartitionFilter, PartitionPredicate
from tidelake.ops.scan.plan import EVERY_PARTITION, data_manifests, live_entries
from tidelake.ops.scan.planner import Plan, files_that_may_match, prune_buckets, refuse_unreadable
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import data_files
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import Snapshot
from tidelake.spec.stats_evolution import bounds_under
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore


def plan_keyed(
    store: TableStore,
    snapshot: Snapshot | None,
    *,
    schema: Schema,
    paths: DataPaths,
    where: Predicate | None = None,
    options: SplitOptions,
    table_options: Mapping[str, str],
) -> Plan:
    """Plan the read of a primary-key table at a snapshot, with the columns of `schema`.

    Raises:
        NotFoundError: the table was dropped.
        UnsupportedError: rows are marked deleted by deletion vectors.
    """
    if snapshot is None:
        store.refuse_dropped()
        return Plan(None, where=where)
    metas = data_manifests(store.manifests, snapshot)
    partitions: PartitionFilter = EVERY_PARTITION
    if where is not None and schema.partition_keys:
        of_partition = restrict(where, frozenset(schema.partition_keys))
        if of_partition.columns():
            partitions = PartitionPredicate(of_partition, tuple(schema.partition_keys), tuple(schema.partition_types))
    read = partitions.prune(metas)
    entries = live_entries(store.manifests, metas, partitions=partitions)
    refuse_unreadable(store, [snapshot], entries)
    live = entries.num_rows
    present = frozenset(entries.column("partition").unique().to_pylist())
    entries = visible(entries, MergeOptions.parse(table_options))
    if where is not None and not where.columns():  # the same for every row
        entries = entries.slice(0, entries.num_rows if pc.all(matches(where, {}, 1)).as_py() else 0)
    elif where is not None:
        entries = prune_buckets(entries, where, schema, BucketOptions.parse(table_options))
        entries = prune_by_key(store, entries, where, schema)
        entries = prune_by_value(store, entries, where, schema, MergeOptions.parse(table_options))
    splits = tuple(keyed_splits(entries, snapshot.id, paths, schema, options, MergeOptions.parse(table_options)))
    return Plan(snapshot, splits, len(metas), len(read), live, entries.num_rows, where, present)


def visible(entries: pa.Table, merge: MergeOptions) -> pa.Table:
    """The files that a batch read looks at: none that wait for a bucket, none on level 0 where that may lose."""
    keep = pc.greater_equal(entries.column("bucket"), 0)
    if merge.level0_waits:
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
    """Drop files by what their columns hold: one by one where those of a bucket do not overlap, else all together."""
    if entries.num_rows == 0:
        return entries
    may = files_that_may_match(store, entries, where, schema)
    if may.all():
        return entries
    buckets = pa.table({"partition": entries.column("partition"), "bucket": entries.column("bucket")})
    parts = entries.column("partition").combine_chunks().dictionary_encode().indices.to_numpy()
    codes = np.unique(np.stack([parts, buckets.column("bucket").to_numpy()], 1), axis=0, return_inverse=True)[1]
    codes = codes.reshape(-1)
    count = int(codes.max()) + 1
    levels = entries.column("level").to_numpy()
    low, high = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(low, codes, levels)
    np.maximum.at(high, codes, levels)
    alone = (np.bincount(codes, minlength=count) == 1) | ((low == high) & (low > 0))
    anywhere = np.zeros(count, dtype=bool)
    np.logical_or.at(anywhere, codes, may)
    merged = merge.engine in (MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATION)
    together = np.ones(entries.num_rows, dtype=bool) if merged else anywhere[codes]
    return entries.filter(pa.array(np.where(alone[codes], may, together)))


def keyed_splits(
    entries: pa.Table, snapshot_id: int, paths: DataPaths, schema: Schema, options: SplitOptions, merge: MergeOptions
) -> list[Split]:
    """Entries as splits, bucket by bucket; files that may hold versions of one key stay together."""
    ordered = entries.sort_by([("partition", "ascending"), ("bucket", "ascending")])
    places = zip(*(ordered.column(name).to_pylist() for name in ("partition", "bucket", "total_buckets")), strict=True)
    types = [schema.field(name).type for name in schema.trimmed_primary_keys]
    splits: list[Split] = []
    for (partition, bucket), group in groupby(zip(places, data_files(ordered), strict=True), key=lambda x: x[0][:2]):
        found = list(group)
        groups = plan_split_groups(
            run_files([file for _, file in found], types),
            target_bytes=options.target_bytes,
            open_file_cost=options.open_file_cost,
            one_version=merge.level0_waits,
        )
        splits += [
            Split(
                snapshot_id=snapshot_id,
                partition=partition,
                bucket=bucket,
                bucket_path=paths.bucket(partition, bucket),
                total_buckets=found[0][0][2],
                files=tuple(file.meta for file in each.files),
                raw_convertible=each.raw_convertible,
            )
            for each in groups
        ]
    return splits
