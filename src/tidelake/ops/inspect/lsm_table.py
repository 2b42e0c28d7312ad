"""The levels of a primary-key table in numbers, from its metadata alone: one row per bucket and level."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.io.clock import local_time_ms
from tidelake.lsm.engines.build import MergeOptions
from tidelake.lsm.files import run_files
from tidelake.lsm.levels import build_levels
from tidelake.lsm.measure import measure
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import first_state
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.spec.data_file import data_files
from tidelake.spec.snapshot import Snapshot
from tidelake.store.paths import DataPaths
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
        pa.field("space_amplification", pa.float64(), nullable=False),
    ]
)
"""What belongs to a bucket as a whole is repeated for each of its levels."""


def lsm_table(store: TableStore, paths: DataPaths, options: Mapping[str, str], snapshot: Snapshot | None) -> pa.Table:
    """The filled levels of every bucket at a snapshot.

    Raises:
        InvalidInputError: the table has no primary key, so its files have no levels.
    """
    schema = store.schema
    if not schema.primary_keys:
        raise InvalidInputError(
            "table without a primary key has no levels", table=store.env.io.root, hint="look at inspect.files()"
        )
    if snapshot is None:
        return SCHEMA.empty_table()
    entries = live_entries(store.manifests, data_manifests(store.manifests, snapshot))
    ordered = entries.sort_by([("partition", "ascending"), ("bucket", "ascending")])
    places = zip(*(ordered.column(name).to_pylist() for name in ("partition", "bucket")), strict=True)
    types = [schema.field(name).type for name in schema.trimmed_primary_keys]
    tuned, merge = CompactionOptions.parse(options), MergeOptions.parse(options)
    now = local_time_ms(store.env.clock)
    rows: list[dict[str, Any]] = []
    for (partition, bucket), group in groupby(zip(places, data_files(ordered), strict=True), key=lambda x: x[0]):
        levels = build_levels(run_files([file for _, file in group], types), num_levels=tuned.num_levels)
        report = measure(levels, tuned, now_ms=now, state=first_state(levels), needs_lookup=merge.needs_lookup)
        whole = {
            name: getattr(report, name)
            for name in (
                "sorted_runs",
                "compaction_debt_bytes",
                "full_compaction_bytes",
                "read_amplification",
                "space_amplification",
            )
        }
        for level in report.levels:
            if level.files:
                own = {name: getattr(level, name) for name in SCHEMA.names[2:9]}
                rows.append({"partition": paths.partition(partition), "bucket": bucket, **own, **whole})
    return pa.Table.from_pylist(rows, schema=SCHEMA)
