"""From a snapshot and a predicate to splits.

Pruning goes from cheap to dear: manifests by partition range, entries by partition and bucket, files by the statistics
of their columns (read with the schema each file was written with). Nothing that may hold a wanted row is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import UnsupportedError
from tidelake.expr.evaluate import matches
from tidelake.expr.prune import Bounds, may_match
from tidelake.expr.simplify import literals, restrict
from tidelake.expr.tree import And, Predicate
from tidelake.ops.scan.options import BucketOptions, SplitOptions
from tidelake.ops.scan.partitions import PartitionFilter, PartitionPredicate
from tidelake.ops.scan.plan import EVERY_PARTITION, data_manifests, live_entries
from tidelake.ops.scan.split import Split, append_splits
from tidelake.spec.arrow_types import to_arrow
from tidelake.spec.bucket import assign_buckets
from tidelake.spec.data_file import data_files
from tidelake.spec.index_manifest import DELETION_VECTORS
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import Snapshot
from tidelake.spec.stats_evolution import bounds_under
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

_COMBINATIONS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Plan:
    """The splits of a read and what pruning did, for `explain`."""

    snapshot: Snapshot | None
    splits: tuple[Split, ...] = ()
    manifests: int = 0
    manifests_read: int = 0
    files_live: int = 0
    files_kept: int = 0
    where: Predicate | None = None

    @property
    def row_count(self) -> int:
        """Physical rows of the files that are left."""
        return sum(split.row_count for split in self.splits)

    @property
    def size(self) -> int:
        """Bytes of the files that are left."""
        return sum(split.size for split in self.splits)


def plan_append(
    store: TableStore,
    snapshot: Snapshot | None,
    *,
    schema: Schema,
    paths: DataPaths,
    where: Predicate | None = None,
    limit: int | None = None,
    options: SplitOptions,
    buckets: BucketOptions,
) -> Plan:
    """Plan the read of an append table at a snapshot, with the columns of `schema`.

    Raises:
        UnsupportedError: rows are marked deleted by deletion vectors, or lie in files that hold some columns only.
    """
    if snapshot is None:
        return Plan(None, where=where)
    metas = data_manifests(store.manifests, snapshot)
    partitions: PartitionFilter = EVERY_PARTITION
    if where is not None and schema.partition_keys:
        of_partition = restrict(where, frozenset(schema.partition_keys))
        if of_partition.columns():
            partitions = PartitionPredicate(of_partition, tuple(schema.partition_keys), tuple(schema.partition_types))
    read = partitions.prune(metas)
    entries = live_entries(store.manifests, metas, partitions=partitions)
    _refuse_unreadable(store, snapshot, entries)
    live = entries.num_rows
    if where is not None and not where.columns():  # the same for every row
        entries = entries.slice(0, live if pc.all(matches(where, {}, 1)).as_py() else 0)
    elif where is not None:
        entries = prune_buckets(entries, where, schema, buckets)
        entries = prune_files(store, entries, where, schema)
    elif limit is not None:
        entries = _enough_rows(entries, limit)
    splits = tuple(splits_of(entries, snapshot.id, paths, options))
    return Plan(snapshot, splits, len(metas), len(read), live, entries.num_rows, where)


def _refuse_unreadable(store: TableStore, snapshot: Snapshot, entries: pa.Table) -> None:
    """Refuse what would be read wrongly rather than give rows that are not there."""
    index = store.manifests.read_index(snapshot.index_manifest) if snapshot.index_manifest else ()
    if any(entry.file.index_type == DELETION_VECTORS for entry in index):
        raise UnsupportedError(
            "table with deletion vectors cannot be read yet",
            code="deletion-vectors",
            table=store.env.io.root,
            snapshot_id=snapshot.id,
            hint="compact it with the engine that wrote them",
        )
    if entries.column("write_cols").null_count < entries.num_rows:
        raise UnsupportedError(
            "table with files that hold some columns only cannot be read yet",
            code="data-evolution",
            table=store.env.io.root,
            snapshot_id=snapshot.id,
        )


def prune_files(store: TableStore, entries: pa.Table, where: Predicate, schema: Schema) -> pa.Table:
    """Drop the files whose statistics rule the predicate out, schema by schema."""
    known = {field.name for field in schema.fields}
    wanted = sorted(where.columns() & known)
    if not wanted or entries.num_rows == 0:
        return entries
    keep = np.ones(entries.num_rows, dtype=bool)
    ids = entries.column("schema_id").to_numpy()
    whole = entries.column("write_cols").is_null().to_numpy(zero_copy_only=False)
    for schema_id in np.unique(ids).tolist():
        rows = np.flatnonzero((ids == schema_id) & whole)
        part = entries.take(pa.array(rows))
        found = bounds_under(
            part.column("value_stats_min"),
            part.column("value_stats_max"),
            part.column("value_stats_null_counts"),
            part.column("value_stats_cols"),
            part.column("row_count"),
            file_fields=store.schemas.get(schema_id).fields,
            read_fields=schema.fields,
            wanted=wanted,
        )
        counts = part.column("row_count").combine_chunks()
        bounds = {name: Bounds(each.min, each.max, each.null_count, counts) for name, each in found.items()}
        keep[rows] = may_match(where, bounds, len(rows)).to_numpy(zero_copy_only=False)
    return entries.filter(pa.array(keep))


def prune_buckets(entries: pa.Table, where: Predicate, schema: Schema, options: BucketOptions) -> pa.Table:
    """Drop files of buckets that no wanted key hashes to; each entry counts with its own number of buckets."""
    if options.bucket <= 0 or not schema.bucket_keys or entries.num_rows == 0:
        return entries
    found = [literals(where, key, schema.field(key).type) for key in schema.bucket_keys]
    if any(values is None or not values for values in found):
        return entries
    rows = list(product(*(values for values in found if values is not None)))
    if len(rows) > _COMBINATIONS_MAX:
        return entries
    types = [schema.field(key).type for key in schema.bucket_keys]
    try:
        columns = [pa.array([row[i] for row in rows], to_arrow(dtype)) for i, dtype in enumerate(types)]
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return entries  # a value of another type: the comparison itself says what is wrong with it, if anything is
    keep = pa.repeat(pa.scalar(False), entries.num_rows)
    totals = entries.column("total_buckets").combine_chunks()
    for total in totals.unique().to_pylist():
        here = pc.equal(totals, total)
        if total <= 0:
            keep = pc.or_(keep, here)
            continue
        wanted = pa.array(np.unique(assign_buckets(columns, types, function=options.function, count=total)), pa.int32())
        keep = pc.or_(keep, pc.and_(here, pc.is_in(entries.column("bucket").combine_chunks(), value_set=wanted)))
    return entries.filter(keep)


def _enough_rows(entries: pa.Table, limit: int) -> pa.Table:
    """The first files that together hold at least `limit` rows; only right without a filter."""
    if entries.num_rows == 0:
        return entries
    before = np.concatenate([[0], np.cumsum(entries.column("row_count").to_numpy())[:-1]])
    return entries.filter(pa.array(before < limit))


def splits_of(entries: pa.Table, snapshot_id: int, paths: DataPaths, options: SplitOptions) -> list[Split]:
    """Entries of append files as splits, bucket by bucket."""
    ordered = entries.sort_by([("partition", "ascending"), ("bucket", "ascending")])
    places = zip(*(ordered.column(name).to_pylist() for name in ("partition", "bucket", "total_buckets")), strict=True)
    splits: list[Split] = []
    for (partition, bucket), group in groupby(zip(places, data_files(ordered), strict=True), key=lambda x: x[0][:2]):
        found = list(group)
        base = Split(
            snapshot_id=snapshot_id,
            partition=partition,
            bucket=bucket,
            bucket_path=paths.bucket(partition, bucket),
            total_buckets=found[0][0][2],
            files=(),
        )
        splits += append_splits(base, [file for _, file in found], options)
    return splits


def conjunction(*parts: Predicate | None) -> Predicate | None:
    """All of these predicates that are given, as one."""
    given: Sequence[Predicate] = [part for part in parts if part is not None]
    return given[0] if len(given) == 1 else And(tuple(given)) if given else None
