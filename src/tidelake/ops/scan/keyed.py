"""From a snapshot and a predicate to the splits of a primary-key table.

A file may be left out for its key range alone. What its other columns hold rules it out only together with all files of
its bucket that may hold other versions of its keys: a newer version that does not match must still hide an older one
that does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

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
from tidelake.ops.scan.changes import Wanted, change_splits
from tidelake.ops.scan.options import BucketOptions, SplitOptions
from tidelake.ops.scan.planner import Plan, created_since, files_that_may_match, find_live, never, prune_buckets
from tidelake.ops.scan.postponed import PostponeOptions, bucket_counts, staged_entries
from tidelake.ops.scan.split import Split, bucket_codes, bucket_splits, pack
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.spec.option_rules import bool_option
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import Snapshot
from tidelake.spec.stats_evolution import bounds_under
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

_UNREAD: Final = {
    "pk-clustering-override": "files are sorted by other columns than the key",
    "sequence.snapshot-ordering": "versions are ordered by the snapshots that brought them",
}
"""Options under which a merge by key and sequence number would give wrong rows."""


def plan_keyed(
    store: TableStore,
    snapshot: Snapshot | None,
    *,
    schema: Schema,
    paths: DataPaths,
    where: Predicate | None = None,
    options: SplitOptions,
    table_options: Mapping[str, str],
    optimized: bool = False,
    created_from_ms: int | None = None,
    first_of_stream: bool = False,
    waiting: bool = False,
) -> Plan:
    """Plan the read of a primary-key table at a snapshot, with the columns of `schema`.

    `optimized` reads what the last full compactions left, the lowest level that the options know, and nothing else;
    `created_from_ms` only files made at or after that time. `first_of_stream` reads what the changes of later snapshots
    continue: where compactions write the changelog, files that are still to be compacted come with it, and where nobody
    does, rows that wait for a bucket follow the state as they came. `waiting` takes files on level 0 in that batch
    reads leave out.

    Raises:
        NotFoundError: the table was dropped.
        UnsupportedError: rows are not ordered by key and sequence number.
    """
    for key, reason in _UNREAD.items():
        if bool_option(table_options, key):
            raise UnsupportedError(
                f"table cannot be read yet: {reason}",
                code="option-unsupported",
                option=key,
                hint="read this table with Apache Paimon",
            )
    live = find_live(store, snapshot, where, schema)
    if live is None:
        return Plan(None, where=where)
    merge = MergeOptions.parse(table_options)
    none = live.entries.slice(0, 0)
    staged = none if optimized or first_of_stream else _staged(live.entries, table_options)
    apart = pc.is_in(live.entries.column("partition"), value_set=staged.column("partition").combine_chunks().unique())
    entries = visible(live.entries.filter(pc.invert(apart)), merge, level0=first_of_stream or waiting or None)
    levels = CompactionOptions.parse(table_options).num_levels
    if optimized or (first_of_stream and merge.changelog_producer is ChangelogProducer.FULL_COMPACTION):
        entries = entries.filter(pc.equal(entries.column("level"), levels - 1))
    elif first_of_stream and merge.changelog_producer is ChangelogProducer.LOOKUP:
        entries = entries.filter(pc.greater(entries.column("level"), 0))
    if created_from_ms is not None:
        entries = created_since(entries, created_from_ms)
    if where is not None:
        entries = entries.slice(0, 0) if never(where) else entries
        entries = prune_buckets(entries, where, schema, BucketOptions.parse(table_options))
        entries = prune_by_key(store, entries, where, schema)
        entries = prune_by_value(store, entries, where, schema, merge)
    splits = keyed_splits(entries, live.snapshot.id, paths, schema, options, merge, live.vectors)
    if staged.num_rows and (where is None or not never(where)):
        there = live.entries.filter(apart)
        splits += staged_splits(there, live.snapshot.id, paths, PostponeOptions.parse(table_options), live.vectors)
        entries = pa.concat_tables([entries, there])
    if first_of_stream and merge.changelog_producer is ChangelogProducer.NONE:
        # No changelog will tell of rows that wait for a bucket, and what compacts them is passed over.
        came = staged_entries(live.entries)
        came = came if created_from_ms is None else created_since(came, created_from_ms)
        came = came.slice(0, 0) if where is not None and never(where) else came
        wanted = Wanted(schema=schema, paths=paths, where=where, options=table_options)
        splits += change_splits(came, live.snapshot.id, wanted, staged=True)
        entries = pa.concat_tables([entries, came])
    return live.plan(entries, splits)


def _staged(entries: pa.Table, table_options: Mapping[str, str]) -> pa.Table:
    """The staged files that a batch read merges in."""
    merged = PostponeOptions.parse(table_options).merge_on_read
    return staged_entries(entries) if merged else entries.slice(0, 0)


def staged_splits(
    entries: pa.Table, snapshot_id: int, paths: DataPaths, options: PostponeOptions, vectors: pa.Table | None
) -> list[Split]:
    """One split for each bucket, there or to come, of partitions with rows that wait; no file of theirs is left out."""
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
    """The files that a batch read looks at: none that wait for a bucket, none on level 0 where that may lose.

    `level0` tells whether level 0 is looked at, whatever batch reads do.
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
    """Drop files by what their columns hold: one by one where those of a bucket do not overlap, else all together."""
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
    # Where level 0 is not read, upper levels hold at most one live version of a key.
    alone = (np.bincount(codes, minlength=count) == 1) | ((low == high) & (low > 0)) | (merge.level0_waits & (low > 0))
    anywhere = np.zeros(count, dtype=bool)
    np.logical_or.at(anywhere, codes, may)
    merged = merge.engine in (MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATION)
    together = np.ones(entries.num_rows, dtype=bool) if merged else anywhere[codes]
    return entries.filter(pa.array(np.where(alone[codes], may, together)))


def keyed_splits(
    entries: pa.Table,
    snapshot_id: int,
    paths: DataPaths,
    schema: Schema,
    options: SplitOptions,
    merge: MergeOptions,
    vectors: pa.Table | None,
) -> list[Split]:
    """Entries as splits, bucket by bucket; files that may hold versions of one key stay together."""
    types = [schema.field(name).type for name in schema.trimmed_primary_keys]
    return [
        replace(bucket.with_files(file.meta for file in group.files), raw_convertible=group.raw_convertible)
        for bucket in bucket_splits(entries, snapshot_id, paths, vectors)
        for group in plan_split_groups(run_files(bucket.files, types), options, one_version=merge.level0_waits)
    ]


@dataclass(frozen=True, slots=True)
class SplitGroup:
    """Files that one task reads. `raw_convertible` tells that their rows are the table's rows, without a merge."""

    files: tuple[RunFile, ...]
    raw_convertible: bool


def plan_split_groups(files: Sequence[RunFile], options: SplitOptions, *, one_version: bool) -> tuple[SplitGroup, ...]:
    """Pack the files of a bucket for a batch read.

    Files that hold no deletions and lie above level 0 are packed one by one when no two of them can hold one key.
    Otherwise whole sections are packed, and only a split of a single file without deletions needs no merge.

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
