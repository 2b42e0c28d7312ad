"""Compute the metadata of a manifest for its list: counts and ranges, from its entries or from other manifests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.spec.data_file import EMPTY_ROW, SimpleStats
from tidelake.spec.manifests.manifest import DELETE
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.spec.rows.binary_row_scalar import decode_row, encode_row
from tidelake.spec.stats.column_stats import partition_stats
from tidelake.spec.types.data_types import DataType, Root, with_nullable


def meta_of_entries(
    entries: pa.Table, file_name: str, file_size: int, partition_types: Sequence[DataType], *, schema_id: int
) -> ManifestMeta:
    """The metadata of a manifest with these entries. `schema_id` is for an empty table of entries."""
    deleted = int(pc.sum(pc.equal(entries.column("kind"), DELETE)).as_py() or 0)
    row_ids = _row_ids(entries)
    return ManifestMeta(
        file_name=file_name,
        file_size=file_size,
        num_added=entries.num_rows - deleted,
        num_deleted=deleted,
        partition_stats=_partition_stats(entries.column("partition"), partition_types),
        schema_id=schema_id if entries.num_rows == 0 else int(pc.max(entries.column("schema_id")).as_py()),
        min_bucket=pc.min(entries.column("bucket")).as_py(),
        max_bucket=pc.max(entries.column("bucket")).as_py(),
        min_level=pc.min(entries.column("level")).as_py(),
        max_level=pc.max(entries.column("level")).as_py(),
        min_row_id=row_ids[0],
        max_row_id=row_ids[1],
    )


def combine_metas(
    metas: Sequence[ManifestMeta], file_name: str, file_size: int, partition_types: Sequence[DataType]
) -> ManifestMeta:
    """The metadata of a manifest with all entries of these manifests."""

    def combine(choose: Callable[[Iterable[int]], int], name: str) -> int | None:
        values = [getattr(meta, name) for meta in metas]
        return None if any(value is None for value in values) else choose(values)

    return ManifestMeta(
        file_name=file_name,
        file_size=file_size,
        num_added=sum(meta.num_added for meta in metas),
        num_deleted=sum(meta.num_deleted for meta in metas),
        partition_stats=_combine_stats(metas, partition_types),
        schema_id=max(meta.schema_id for meta in metas),
        min_bucket=combine(min, "min_bucket"),
        max_bucket=combine(max, "max_bucket"),
        min_level=combine(min, "min_level"),
        max_level=combine(max, "max_level"),
        min_row_id=combine(min, "min_row_id"),
        max_row_id=combine(max, "max_row_id"),
    )


def _row_ids(entries: pa.Table) -> tuple[int | None, int | None]:
    first = entries.column("first_row_id")
    if first.null_count or not len(first):
        return None, None
    last = pc.subtract(pc.add(first, entries.column("row_count")), 1)
    return pc.min(first).as_py(), pc.max(last).as_py()


def _partition_stats(partitions: pa.ChunkedArray, types: Sequence[DataType]) -> SimpleStats:
    if not types or not len(partitions):
        return SimpleStats(EMPTY_ROW, EMPTY_ROW, ())
    counted = pc.value_counts(partitions.combine_chunks() if partitions.num_chunks != 1 else partitions.chunk(0))
    rows, counts = counted.field(0), counted.field(1)
    if len(rows) == 1 and not any(dtype.root in (Root.FLOAT, Root.DOUBLE) for dtype in types):
        # The usual commit: one partition, whose row is its own minimum and maximum.
        row: bytes = rows[0].as_py()
        nulls = tuple(len(partitions) if value is None else 0 for value in decode_row(row, types))
        return SimpleStats(row, row, nulls)
    return partition_stats(rows, counts, types)


def _combine_stats(metas: Sequence[ManifestMeta], types: Sequence[DataType]) -> SimpleStats:
    if not types:
        return SimpleStats(EMPTY_ROW, EMPTY_ROW, ())
    stats = [meta.partition_stats for meta in metas]
    nulls = tuple(sum(counts) for counts in zip(*(_counts(each, len(types)) for each in stats), strict=True))
    bounds = {row for each in stats for row in (each.min_values, each.max_values)}
    if len(bounds) == 1:
        row = bounds.pop()
        return SimpleStats(row, row, nulls)
    combined = partition_stats(pa.array(sorted(bounds), pa.large_binary()), None, types)
    low, high = combined.min_values, combined.max_values
    known = [all(column) for column in zip(*(_has_bounds(meta, types) for meta in metas), strict=True)]
    if not all(known):
        nullable = [with_nullable(dtype, True) for dtype in types]
        rows = (decode_row(row, nullable) for row in (low, high))
        low, high = (encode_row([v if k else None for k, v in zip(known, r, strict=True)], nullable) for r in rows)
    return SimpleStats(low, high, nulls)


def _has_bounds(meta: ManifestMeta, types: Sequence[DataType]) -> list[bool]:
    """For each column, whether the bounds cover all its values. They are missing if one value was NaN."""
    stats = meta.partition_stats
    low = decode_row(stats.min_values, [with_nullable(dtype, True) for dtype in types])
    counted = stats.null_counts if len(stats.null_counts) == len(types) else (None,) * len(types)
    return [value is not None or nulls == meta.num_entries for value, nulls in zip(low, counted, strict=True)]


def _counts(stats: SimpleStats, width: int) -> tuple[int, ...]:
    return tuple(count or 0 for count in stats.null_counts) if len(stats.null_counts) == width else (0,) * width
