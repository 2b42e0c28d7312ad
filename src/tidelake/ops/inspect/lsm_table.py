"""The levels of a primary-key table in numbers, from its metadata alone: one row per bucket and level.

The state comes from the manifests of the snapshot. What compactions wrote for each byte that writes brought comes from
the changes of the snapshots before it that are still there, the newest of them if they are many.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.io.clock import local_time_ms
from tidelake.lsm.engines.build import MergeOptions
from tidelake.lsm.files import run_files
from tidelake.lsm.levels import build_levels
from tidelake.lsm.measure import measure
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import first_state
from tidelake.ops.context import TableContext
from tidelake.ops.scan.plan import data_manifests, delta_manifests, live_entries, read_changes
from tidelake.ops.scan.split import bucket_splits
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.manifests.manifest import ADD, DELETE
from tidelake.store.table_store import TableStore

SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("level", pa.int32(), nullable=False),
        pa.field("files", pa.int64(), nullable=False),
        pa.field("runs", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("deletes", pa.int64()),
        pa.field("overlap", pa.int64(), nullable=False),
        pa.field("sorted_runs", pa.int64(), nullable=False),
        pa.field("compaction_debt_bytes", pa.int64(), nullable=False),
        pa.field("full_compaction_bytes", pa.int64(), nullable=False),
        pa.field("read_amplification", pa.float64(), nullable=False),
        pa.field("write_amplification", pa.float64()),
        pa.field("space_amplification", pa.float64(), nullable=False),
    ]
)
"""What belongs to a bucket as a whole is repeated for each of its levels."""
_WHOLE: Final = SCHEMA.names[9:]
_COLUMNS: Final = ("kind", "partition", "bucket", "file_name", "file_size")
_MADE: Final = pa.schema(
    {"partition": pa.large_binary(), "bucket": pa.int32(), "file_size": pa.int64(), "compacted": pa.bool_()}
)
_SNAPSHOTS_MAX: Final = 100
"""Snapshots whose changes are looked at for what writes and compactions wrote."""


def lsm_table(context: TableContext, snapshot: Snapshot | None) -> pa.Table:
    """The filled levels of every bucket at a snapshot.

    Raises:
        InvalidInputError: the table has no primary key, so its files have no levels.
    """
    store, schema = context.store, context.schema
    if not schema.primary_keys:
        raise InvalidInputError(
            "table without a primary key has no levels", table=store.env.io.root, hint="look at inspect.files()"
        )
    if snapshot is None:
        return SCHEMA.empty_table()
    entries = live_entries(store.manifests, data_manifests(store.manifests, snapshot))
    entries = entries.filter(pc.greater_equal(entries.column("bucket"), 0))
    types = [schema.field(name).type for name in schema.trimmed_primary_keys]
    tuned, merge = context.options.of(CompactionOptions), context.options.of(MergeOptions)
    now = local_time_ms(store.env.clock)
    written = written_bytes(store, snapshot)
    rows: list[dict[str, Any]] = []
    for split in bucket_splits(entries, snapshot.id, context.paths, None):
        levels = build_levels(run_files(split.files, types), num_levels=tuned.num_levels)
        appended, compacted = written.get((split.partition, split.bucket), (0, 0))
        report = measure(
            levels,
            tuned,
            now_ms=now,
            state=first_state(levels),
            needs_lookup=merge.needs_lookup,
            appended_bytes=appended,
            compacted_bytes=compacted,
        )
        whole = {name: getattr(report, name) for name in _WHOLE}
        place = {"partition": context.paths.partition(split.partition), "bucket": split.bucket}
        rows += [
            {**place, **{name: getattr(level, name) for name in SCHEMA.names[2:9]}, **whole}
            for level in report.levels
            if level.files
        ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def written_bytes(store: TableStore, snapshot: Snapshot) -> dict[tuple[bytes, int], tuple[int, int]]:
    """What writes and what compactions wrote to each bucket, over the snapshots up to this one that are kept.

    A file that a compaction only moved to another level was not written.
    """
    first = max(store.snapshots.earliest_id() or 1, snapshot.id - _SNAPSHOTS_MAX + 1)

    def read_added(snapshot_id: int) -> pa.Table:
        found = store.snapshots.find(snapshot_id)
        if found is None or found.commit_kind is CommitKind.ANALYZE:
            return _MADE.empty_table()
        try:
            entries = read_changes(store.manifests, delta_manifests(store.manifests, found), columns=_COLUMNS)
        except NotFoundError:
            if store.snapshots.exists(snapshot_id):
                raise
            return _MADE.empty_table()  # it expired since
        gone = entries.filter(pc.equal(entries.column("kind"), DELETE)).column("file_name").combine_chunks()
        moved = pc.is_in(entries.column("file_name"), value_set=gone)
        added = entries.filter(pc.and_not(pc.equal(entries.column("kind"), ADD), moved))
        compacted = pa.repeat(pa.scalar(found.commit_kind is CommitKind.COMPACT), added.num_rows)
        return added.select(_MADE.names[:3]).append_column("compacted", compacted).cast(_MADE)

    tables = store.env.executor.map(read_added, range(first, snapshot.id + 1))
    grouped = pa.concat_tables([_MADE.empty_table(), *tables]).group_by(
        _MADE.names[:2] + _MADE.names[3:], use_threads=False
    )
    sums = grouped.aggregate([("file_size", "sum")])
    written: dict[tuple[bytes, int], tuple[int, int]] = {}
    for row in sums.to_pylist():
        appended, compacted = written.get((row["partition"], row["bucket"]), (0, 0))
        size = row["file_size_sum"]
        both = (appended, compacted + size) if row["compacted"] else (appended + size, compacted)
        written[row["partition"], row["bucket"]] = both
    return written
