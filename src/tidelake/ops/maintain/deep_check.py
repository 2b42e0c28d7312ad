"""Checking the rows themselves. Reads every live data file once, a batch at a time, and changes nothing.

I2  every live data file can be read
I4  a data file has as many rows as its manifest says
I13 rows lie in the partition and the bucket they belong to, and statistics tell the truth about them

Files of tables with a primary key are opened and counted only: what their rows mean is decided by a merge, and where
their keys are `key_check` looks at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidelake.errors import TidelakeError
from tidelake.files.column_stats import RunningStats
from tidelake.files.options import format_of
from tidelake.files.read import row_count_of
from tidelake.ops.maintain.check import LOOKS_MAX
from tidelake.ops.maintain.finding import Finding, Severity
from tidelake.ops.maintain.row_places import rows_in_bucket, rows_in_partition
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.scan.options import SplitOptions
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.ops.scan.planner import splits_of
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import DataFile
from tidelake.spec.schema import Schema
from tidelake.spec.stats import ColumnStats, decode_stats
from tidelake.spec.stats_modes import FULL
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

__all__ = ["check_rows"]


def check_rows(store: TableStore, paths: DataPaths, *, every_snapshot: bool = False) -> tuple[Finding, ...]:
    """What is wrong with the rows of the newest snapshot, or of every snapshot that is kept.

    Manifests and snapshots that cannot be read are the business of `check_table` and passed over here, as are files
    whose snapshot expires before they are read. Where the newest one does, all is looked at again.
    """
    for _ in range(LOOKS_MAX - 1):
        ids = store.snapshots.ids()
        findings = _check_files(store, paths, ids, every_snapshot=every_snapshot)
        if not ids or store.snapshots.exists(ids[-1]):
            return findings
    return _check_files(store, paths, store.snapshots.ids(), every_snapshot=every_snapshot)


def _check_files(
    store: TableStore, paths: DataPaths, ids: Sequence[int], *, every_snapshot: bool
) -> tuple[Finding, ...]:
    findings: list[Finding] = []
    for split, file in _files(store, paths, ids, every_snapshot=every_snapshot):
        path = split.path_of(file)
        try:
            findings += _check_file(store, split, file, path)
        except TidelakeError as error:
            if store.snapshots.exists(split.snapshot_id):
                findings.append(_error("I2", str(error), path))
    return tuple(findings)


def _files(
    store: TableStore, paths: DataPaths, ids: Sequence[int], *, every_snapshot: bool
) -> Iterator[tuple[Split, DataFile]]:
    """The live files inside the table, each once however many snapshots have it; newest snapshots first."""
    seen: set[str] = set()
    for snapshot_id in reversed(ids):
        try:
            snapshot = store.snapshots.get(snapshot_id)
            entries = live_entries(store.manifests, data_manifests(store.manifests, snapshot))
            splits = splits_of(entries, snapshot_id, paths, SplitOptions.parse({}), None)  # deleted rows too
        except TidelakeError:
            continue
        for split in splits:
            for file in split.files:
                path = split.path_of(file)
                if file.external_path is None and path not in seen:
                    seen.add(path)
                    yield split, file
        if not every_snapshot:
            return


def _check_file(store: TableStore, split: Split, file: DataFile, path: str) -> list[Finding]:
    schema = store.schemas.get(file.schema_id)
    if schema.primary_keys or file.write_cols is not None:
        rows = row_count_of(store.env.io, path, format=format_of(file.file_name))
        return _check_count(rows, file, path)
    look = _Look(schema, split)
    request = ReadRequest(schema=schema, columns=tuple(each.name for each in schema.fields))
    for batch in read_data_file(store, split, file, request):
        look.at(batch)
    told = decode_stats(file.value_stats, schema.fields, file.value_stats_cols)
    wrong = [
        _error("I13", f"statistics of column {name} lie: {why}", path)
        for name, running in look.stats.items()
        for why in _lies(told[name], running.result())
    ]
    return [*_check_count(look.rows, file, path), *wrong, *(_error("I13", why, path) for why in sorted(look.misplaced))]


def _check_count(rows: int, file: DataFile, path: str) -> list[Finding]:
    return [] if rows == file.row_count else [_error("I4", f"file has {rows} rows instead of {file.row_count}", path)]


def _error(invariant: str, message: str, place: str) -> Finding:
    return Finding(invariant, Severity.ERROR, message, place)


@dataclass(slots=True)
class _Look:
    """What the rows of one file say, batch by batch."""

    schema: Schema
    split: Split
    rows: int = 0
    misplaced: set[str] = field(default_factory=set)
    stats: dict[str, RunningStats] = field(init=False)

    def __post_init__(self) -> None:
        self.stats = {each.name: RunningStats(each.type, FULL) for each in self.schema.fields}

    def at(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        for name, running in self.stats.items():
            running.add(batch.column(name))
        if not rows_in_partition(self.schema, self.split, batch):
            self.misplaced.add("rows belong to another partition")
        if not rows_in_bucket(self.schema, self.split, batch):
            self.misplaced.add("rows belong to another bucket")


def _lies(told: ColumnStats, found: ColumnStats) -> Iterator[str]:
    """Where statistics contradict the rows. Bounds may be wider than the values, never narrower."""
    if told.null_count is not None and found.null_count is not None and told.null_count != found.null_count:
        yield f"{told.null_count} nulls instead of {found.null_count}"
    if told.min is not None and found.min is not None and told.min > found.min:
        yield "a value lies below the minimum"
    if told.max is not None and found.max is not None and told.max < found.max:
        yield "a value lies above the maximum"
