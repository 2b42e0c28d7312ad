"""From a snapshot and a predicate to splits.

Pruning goes from cheap to expensive: manifests by partition range, entries by partition and bucket, files by their
column statistics (read with the schema that each file was written with). No file that may contain a wanted row is
dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import UnsupportedError
from tidelake.expr.evaluate import matches
from tidelake.expr.prune import Bounds, may_match
from tidelake.expr.simplify import literals, restrict
from tidelake.expr.tree import And, Predicate
from tidelake.io.clock import as_local_ms
from tidelake.ops.context import TableContext
from tidelake.ops.scan.deletion_vectors import deleted_counts, snapshot_vectors
from tidelake.ops.scan.modes import State
from tidelake.ops.scan.options import SplitOptions
from tidelake.ops.scan.partitions import PartitionFilter, PartitionPredicate
from tidelake.ops.scan.plan import EVERY_PARTITION, data_manifests, live_entries
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.split import Split, append_splits, bucket_splits
from tidelake.ops.scan.topn import SortKey, has_usable_bounds, may_be_first
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.rows.binary_row import decode_rows
from tidelake.spec.rows.bucket_function import assign_buckets
from tidelake.spec.schemas.bucket_mode import BucketOptions, derive_bucket_mode
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.stats.stats_evolution import bounds_under
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import with_nullable
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
    partitions: frozenset[bytes] = frozenset()
    """Partitions that have rows, before pruning by bucket and statistics."""

    @property
    def row_count(self) -> int:
        """Physical rows of the files that are left."""
        return sum(split.row_count for split in self.splits)

    @property
    def size(self) -> int:
        """Bytes of the files that are left."""
        return sum(split.size for split in self.splits)


def plan_append(context: TableContext, state: State, request: ReadRequest) -> Plan:
    """Plan the read of a state of an append table.

    With an order and a limit the splits hold at least the first `limit` rows by that order.

    Raises:
        NotFoundError: the table was dropped.
        UnsupportedError: rows are stored in files with only some of the columns.
    """
    store, schema, where = context.store, request.schema, request.where
    live = find_live(store, state.snapshot, where, schema)
    if live is None:
        return Plan(None, where=where)
    if state.created_from_ms is not None:
        live = replace(live, entries=created_since(live.entries, state.created_from_ms))
    entries = live.entries
    if where is not None:
        buckets = context.options.of(BucketOptions)
        entries = entries.slice(0, 0) if never(where) else prune_buckets(entries, where, schema, buckets)
        entries = prune_files(store, entries, where, schema)
    # If files may be skipped, their rows cannot be counted in advance.
    limit = None if request.forgives else request.limit
    if limit is not None and (where is None or where.columns() <= set(schema.partition_keys)):
        # A condition on partitions is decided file by file, so that every row of a file counts that is not deleted.
        if request.order:
            entries = _first_rows(store, entries, request.order, limit, schema, live.vectors)
        else:
            entries = _enough_rows(entries, limit, live.vectors)
    options = context.options.of(SplitOptions)
    return live.plan(entries, splits_of(entries, live.snapshot.id, context.paths, options, live.vectors))


def created_since(entries: pa.Table, time_ms: int) -> pa.Table:
    """The files written at or after a time, and those without a creation time."""
    made = entries.column("creation_time_ms")
    return entries.filter(pc.fill_null(pc.greater_equal(made, as_local_ms(time_ms)), True))


@dataclass(frozen=True, slots=True)
class Live:
    """The live files of a snapshot, in the partitions that a condition may want, and what it took to find them."""

    snapshot: Snapshot
    entries: pa.Table
    manifests: int
    manifests_read: int
    where: Predicate | None
    vectors: pa.Table | None = None
    """The deletion vectors of the snapshot, of all its files."""
    files: int = 0
    """All files of the snapshot, those of other partitions included."""

    def plan(self, kept: pa.Table, splits: Iterable[Split]) -> Plan:
        """The plan that reads what pruning kept of these files."""
        present = frozenset(self.entries.column("partition").unique().to_pylist())
        return Plan(
            self.snapshot,
            tuple(splits),
            self.manifests,
            self.manifests_read,
            self.files,
            kept.num_rows,
            self.where,
            present,
        )


def find_live(store: TableStore, snapshot: Snapshot | None, where: Predicate | None, schema: Schema) -> Live | None:
    """What a read at a snapshot begins with; None for a table without one.

    Raises:
        NotFoundError: the table was dropped.
        UnsupportedError: rows are stored in files with only some of the columns.
    """
    if snapshot is None:
        store.refuse_dropped()
        return None
    metas = data_manifests(store.manifests, snapshot)
    partitions = partition_filter(where, schema)
    read = partitions.prune(metas)
    entries = live_entries(store.manifests, read, partitions=partitions)
    refuse_unreadable(store, snapshot, entries)
    files = sum(meta.num_added - meta.num_deleted for meta in metas)
    return Live(snapshot, entries, len(metas), len(read), where, snapshot_vectors(store.manifests, snapshot), files)


def partition_filter(where: Predicate | None, schema: Schema) -> PartitionFilter:
    """The partitions that may hold a row which a condition keeps."""
    if where is not None and schema.partition_keys:
        of_partition = restrict(where, frozenset(schema.partition_keys))
        if of_partition.columns():
            return PartitionPredicate(of_partition, tuple(schema.partition_keys), tuple(schema.partition_types))
    return EVERY_PARTITION


def never(where: Predicate) -> bool:
    """Whether a condition looks at no column and keeps no row."""
    return not where.columns() and not pc.all(matches(where, {}, 1)).as_py()


def refuse_unreadable(store: TableStore, snapshot: Snapshot, entries: pa.Table) -> None:
    """Refuse files that would be read wrongly.

    Raises:
        UnsupportedError: a file contains only some of the columns.
    """
    if entries.column("write_cols").null_count < entries.num_rows:
        raise UnsupportedError(
            "table with files that contain only some columns cannot be read yet",
            code="data-evolution",
            table=store.env.io.root,
            snapshot_id=snapshot.id,
            hint="rewrite the rows with the engine that wrote them",
        )


def prune_files(store: TableStore, entries: pa.Table, where: Predicate, schema: Schema) -> pa.Table:
    """Drop the files whose statistics rule the predicate out, schema by schema."""
    if entries.num_rows == 0:
        return entries
    return entries.filter(pa.array(files_that_may_match(store, entries, where, schema)))


def files_that_may_match(store: TableStore, entries: pa.Table, where: Predicate, schema: Schema) -> np.ndarray:
    """Which files may hold a row that the predicate keeps, by the statistics of their columns."""
    keep = np.ones(entries.num_rows, dtype=bool)
    wanted = sorted(where.columns() & {field.name for field in schema.fields})
    if wanted:
        for rows, bounds in bounds_by_schema(store, entries, schema, wanted):
            keep[rows] = may_match(where, bounds, len(rows)).to_numpy(zero_copy_only=False)
    return keep


def _first_rows(
    store: TableStore,
    entries: pa.Table,
    order: Sequence[SortKey],
    limit: int,
    schema: Schema,
    vectors: pa.Table | None,
) -> pa.Table:
    """Drop the files that cannot hold one of the first `limit` rows; only right without a filter on rows.

    The first key alone decides: rows that are equal by it are all kept.
    """
    key = order[0]
    if entries.num_rows == 0 or not has_usable_bounds(schema.field(key.column).type):
        return entries
    found = list(bounds_by_schema(store, entries, schema, [key.column]))
    places = np.concatenate([rows for rows, _ in found])
    parts = [bounds[key.column] for _, bounds in found]
    joined = Bounds(*(pa.concat_arrays(arrays) for arrays in zip(*map(_arrays, parts), strict=True)))
    if vectors is not None:
        deleted = deleted_counts(entries, vectors)[places]
        joined = replace(joined, row_count=pc.subtract(joined.row_count, pa.array(deleted)))
    keep = np.ones(entries.num_rows, dtype=bool)
    keep[places] = may_be_first(joined, limit, descending=key.descending)
    return entries.filter(pa.array(keep))


def _arrays(bounds: Bounds) -> tuple[pa.Array, ...]:
    return bounds.low, bounds.high, bounds.null_count, bounds.row_count


def bounds_by_schema(
    store: TableStore, entries: pa.Table, schema: Schema, wanted: Sequence[str]
) -> Iterator[tuple[np.ndarray, dict[str, Bounds]]]:
    """The bounds of columns in the files of each schema, with the places of those files.

    Files with only some columns are left out: the schema alone does not say which columns their statistics cover.
    """
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
        yield rows, {name: Bounds(each.min, each.max, each.null_count, counts) for name, each in found.items()}


def prune_buckets(entries: pa.Table, where: Predicate, schema: Schema, options: BucketOptions) -> pa.Table:
    """Drop files of buckets that no wanted key hashes to; each entry counts with its own number of buckets."""
    hashes = derive_bucket_mode(schema, options.bucket).hashes_rows
    if not hashes or not schema.bucket_keys or entries.num_rows == 0:
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


def _enough_rows(entries: pa.Table, limit: int, vectors: pa.Table | None) -> pa.Table:
    """The first files, in the order they are read, that together hold `limit` rows; only right without a filter."""
    if entries.num_rows == 0:
        return entries
    entries = entries.sort_by([(name, "ascending") for name in ("partition", "bucket", "min_sequence", "file_name")])
    live = entries.column("row_count").to_numpy() - deleted_counts(entries, vectors)
    before = np.concatenate([[0], np.cumsum(live)[:-1]])
    return entries.filter(pa.array(before < limit))


def splits_of(
    entries: pa.Table, snapshot_id: int, paths: DataPaths, options: SplitOptions, vectors: pa.Table | None
) -> list[Split]:
    """Entries of append files as splits, bucket by bucket; see `bucket_splits`."""
    buckets = bucket_splits(entries, snapshot_id, paths, vectors)
    return [split for bucket in buckets for split in append_splits(bucket, options)]


def sort_splits(splits: Sequence[Split], schema: Schema) -> tuple[Split, ...]:
    """The splits by the values of their partition, null first, those of one partition in their order."""
    rows = list(dict.fromkeys(split.partition for split in splits))
    if not schema.partition_keys or len(rows) < 2:
        return tuple(splits)
    import polars as pl  # slow to load, and most reads do not need it

    types = [with_nullable(dtype, True) for dtype in schema.partition_types]
    columns = decode_rows(pa.array(rows, pa.large_binary()), types)
    values = pl.DataFrame({str(number): pl.from_arrow(column) for number, column in enumerate(columns)})
    order = values.select(pl.arg_sort_by(values.columns, nulls_last=False, maintain_order=True)).to_series()
    rank = {rows[place]: number for number, place in enumerate(order.to_list())}
    return tuple(sorted(splits, key=lambda split: rank[split.partition]))


def conjunction(*parts: Predicate | None) -> Predicate | None:
    """All of these predicates that are given, as one."""
    given: Sequence[Predicate] = [part for part in parts if part is not None]
    return given[0] if len(given) == 1 else And(tuple(given)) if given else None
