"""Gathers the facts that a diagnosis of a table needs, all of them from metadata and in bulk.

Invariant: no data file is opened, and nothing is changed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.files.options import FileOptions
from tidelake.ops.commit.options import ManifestOptions
from tidelake.ops.compact.append import AppendCompactionOptions
from tidelake.ops.context import TableContext
from tidelake.ops.inspect.consumer_lag import consumer_lag_table
from tidelake.ops.inspect.diagnosis import THRESHOLDS, ConsumerFact, TableFacts, TagFact
from tidelake.ops.inspect.lsm_table import lsm_table
from tidelake.ops.inspect.system_tables import tags_table
from tidelake.ops.maintain.consumers import ConsumerOptions
from tidelake.ops.maintain.expire import ExpireOptions
from tidelake.ops.maintain.holders import look
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.ops.scan.split import bucket_codes
from tidelake.ops.write.keyed_options import KeyedWriteOptions
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.spec.rows.binary_row import decode_rows
from tidelake.spec.schemas.bucket_mode import BucketMode
from tidelake.spec.types.data_types import with_nullable
from tidelake.store.snapshots import plan_again

__all__ = ["gather_facts"]

_COLUMNS: Final = ("partition", "bucket", "file_size")


def gather_facts(context: TableContext) -> TableFacts:
    """The facts of a table at its newest snapshot.

    Raises:
        FormatError: a document of the table is damaged.
    """

    def gather() -> TableFacts:
        latest = context.snapshots.latest()
        known = {**_snapshot_facts(context), **_holder_facts(context)}
        if latest is not None:
            known |= {**_file_facts(context, latest), **_manifest_facts(context, latest)}
            if context.is_keyed:
                known |= _tree_facts(context, latest)
        return TableFacts(
            name=context.name,
            is_keyed=context.is_keyed,
            has_fixed_buckets=context.bucket_mode is BucketMode.FIXED,
            is_write_only=context.options.of(KeyedWriteOptions).write_only,
            **known,  # type: ignore[arg-type]
        )

    return plan_again(gather)


def _file_facts(context: TableContext, latest: Snapshot) -> dict[str, object]:
    """Sizes of buckets, and of the files of append tables; in primary-key tables levels decide what is compacted."""
    manifests = context.store.manifests
    entries = live_entries(manifests, data_manifests(manifests, latest), columns=_COLUMNS)
    if not entries.num_rows:
        return {}
    codes, sizes = bucket_codes(entries), entries.column("file_size").to_numpy()
    count = int(codes.max()) + 1
    bucket_bytes = np.bincount(codes, sizes, count)
    target = context.options.of(FileOptions).target_bytes(primary_key=context.is_keyed)
    is_small = sizes < target * context.options.of(AppendCompactionOptions).small_ratio
    small = np.bincount(codes, is_small, count)
    crowded = small >= THRESHOLDS.small_files_in_bucket if not context.is_keyed else np.zeros(count, bool)
    return {
        "bytes": int(sizes.sum()),
        "small_files": int(small[crowded].sum()),
        "buckets_with_small_files": int(crowded.sum()),
        **_skew_facts(context, entries, codes, bucket_bytes),
    }


def _skew_facts(
    context: TableContext, entries: pa.Table, codes: np.ndarray, bucket_bytes: np.ndarray
) -> dict[str, object]:
    """The largest bucket among those of its partition: partitions differ in size by nature, buckets should not."""
    place = int(np.flatnonzero(codes == bucket_bytes.argmax())[0])
    partition, bucket = (entries.column(name)[place].as_py() for name in ("partition", "bucket"))
    here = pc.equal(entries.column("partition"), pa.scalar(partition, entries.schema.field("partition").type))
    beside = bucket_bytes[np.unique(codes[here.to_numpy()])]
    return {
        "buckets": len(beside),
        "median_bucket_bytes": int(np.median(beside)),
        "largest_bucket": context.paths.bucket(partition, bucket),
        "largest_bucket_bytes": int(bucket_bytes.max()),
    }


def _tree_facts(context: TableContext, latest: Snapshot) -> dict[str, object]:
    levels = lsm_table(context, latest)
    buckets = levels.group_by(["partition", "bucket"]).aggregate([("compaction_debt_bytes", "max")])
    return {
        "compaction_debt_bytes": pc.sum(buckets.column("compaction_debt_bytes_max")).as_py() or 0,
        "sorted_runs": pc.max(levels.column("sorted_runs")).as_py() or 0,
    }


def _manifest_facts(context: TableContext, latest: Snapshot) -> dict[str, object]:
    metas = data_manifests(context.store.manifests, latest)
    target = context.options.of(ManifestOptions).target_bytes
    return {
        "manifests": len(metas),
        "small_manifests": sum(meta.file_size < target // 2 for meta in metas),
        "manifest_overlap": _measure_overlap(context, metas),
    }


def _measure_overlap(context: TableContext, metas: tuple[ManifestMeta, ...]) -> float | None:
    """The share of manifests whose range of the first partition column holds a value, averaged over values."""
    types = [with_nullable(each, True) for each in context.schema.partition_types]
    if not types or not metas:
        return None
    stats = [meta.partition_stats for meta in metas]
    low, high = (
        decode_rows(pa.array(rows, pa.large_binary()), types, columns=[0])[0]
        for rows in ([each.min_values for each in stats], [each.max_values for each in stats])
    )
    ranked = pc.rank(pa.concat_arrays([low, high]), tiebreaker="min").to_numpy()
    first, last = ranked[: len(metas)], ranked[len(metas) :]
    starts, ends = np.sort(first), np.sort(last)
    # A range holds a value unless it starts behind it or ends before it.
    values = np.unique(ranked)
    holds = np.searchsorted(starts, values, side="right") - np.searchsorted(ends, values, side="left")
    return float(holds.mean()) / len(metas) if len(values) > 1 else None


def _snapshot_facts(context: TableContext) -> dict[str, object]:
    options = context.options.of(ExpireOptions)
    files = look(context.store).own.files
    too_old = context.store.env.clock.now_ms() - options.time_retained_ms
    beyond = files[: max(len(files) - options.retain_min, 0)]
    # A snapshot counts from when the next one replaced it.
    replaced = [following[2] for following in files[1 : len(beyond) + 1]]
    return {"snapshots": len(files), "expirable_snapshots": sum(time_ms <= too_old for time_ms in replaced)}


def _holder_facts(context: TableContext) -> dict[str, object]:
    now_ms = context.store.env.clock.now_ms()
    consumers = tuple(
        ConsumerFact(
            name=row["consumer_id"],
            snapshots_behind=row["snapshots_behind"],
            behind_ms=int(row["behind"].total_seconds() * 1_000),
            is_lost=row["lost"],
        )
        for row in consumer_lag_table(context).to_pylist()
    )
    return {
        "consumers": consumers,
        "consumers_expire": context.options.of(ConsumerOptions).expire_after_ms is not None,
        "tags": _tag_facts(context, now_ms),
    }


def _tag_facts(context: TableContext, now_ms: int) -> tuple[TagFact, ...]:
    modified = {name: time_ms for name, _, time_ms in look(context.store).own.tags}
    return tuple(
        TagFact(
            name=row["tag_name"],
            age_ms=max(now_ms - modified.get(row["tag_name"], now_ms), 0),
            expires=row["time_retained"] is not None,
        )
        for row in tags_table(context).select(["tag_name", "time_retained"]).to_pylist()
    )
