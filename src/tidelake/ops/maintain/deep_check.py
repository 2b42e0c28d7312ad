"""Check the rows themselves. Reads every live data file once, a batch at a time, and changes nothing.

I2  every live data file can be read
I4  a data file has as many rows as its manifest says
I13 rows are in the partition and the bucket they belong to, and their statistics are right

Files of primary-key tables are only opened and counted: their rows mean something only after a merge, and `key_check`
checks where their keys are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidelake.errors import TidelakeError
from tidelake.files.column_stats import RunningStats
from tidelake.files.options import format_of
from tidelake.files.read.data_file import row_count_of
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.check import LOOKS_MAX
from tidelake.ops.maintain.finding import Finding, Severity
from tidelake.ops.maintain.row_places import rows_in_bucket, rows_in_partition
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.scan.options import SplitOptions
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.ops.scan.planner import splits_of
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import DataFile
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.stats.column_stats import ColumnStats, decode_stats
from tidelake.spec.stats.stats_modes import FULL

__all__ = ["check_rows"]


def check_rows(context: TableContext, *, every_snapshot: bool = False) -> tuple[Finding, ...]:
    """Find errors in the rows of the newest snapshot, or of every snapshot that is kept.

    Manifests and snapshots that cannot be read are skipped, because `check_table` reports them; so are files whose
    snapshot expires before they are read. If the newest snapshot expires, the check starts again.
    """
    snapshots = context.snapshots
    for _ in range(LOOKS_MAX - 1):
        ids = snapshots.ids()
        findings = _check_files(context, ids, every_snapshot=every_snapshot)
        if not ids or snapshots.exists(ids[-1]):
            return findings
    return _check_files(context, snapshots.ids(), every_snapshot=every_snapshot)


def _check_files(context: TableContext, ids: Sequence[int], *, every_snapshot: bool) -> tuple[Finding, ...]:
    findings: list[Finding] = []
    for split, file in _files(context, ids, every_snapshot=every_snapshot):
        path = split.path_of(file)
        try:
            findings += _check_file(context, split, file, path)
        except TidelakeError as error:
            if context.store.snapshots.exists(split.snapshot_id):
                findings.append(_error("I2", str(error), path))
    return tuple(findings)


def _files(context: TableContext, ids: Sequence[int], *, every_snapshot: bool) -> Iterator[tuple[Split, DataFile]]:
    """The live files inside the table, each once however many snapshots have it; newest snapshots first."""
    store = context.store
    seen: set[str] = set()
    for snapshot_id in reversed(ids):
        try:
            snapshot = store.snapshots.get(snapshot_id)
            entries = live_entries(store.manifests, data_manifests(store.manifests, snapshot))
            splits = splits_of(entries, snapshot_id, context.paths, SplitOptions(), None)  # deleted rows too
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


def _check_file(context: TableContext, split: Split, file: DataFile, path: str) -> list[Finding]:
    store = context.store
    schema = store.schemas.get(file.schema_id)
    if schema.primary_keys or file.write_cols is not None:
        rows = row_count_of(store.env.io, path, format=format_of(file.file_name))
        return _check_count(rows, file, path)
    look = _Look(context, schema, split)
    request = ReadRequest(schema=schema, columns=tuple(each.name for each in schema.fields))
    for batch in read_data_file(store, split, file, request):
        look.at(batch)
    recorded = decode_stats(file.value_stats, schema.fields, file.value_stats_cols)
    wrong = [
        _error("I13", f"statistics of column {name} are wrong: {why}", path)
        for name, running in look.stats.items()
        for why in _find_contradictions(recorded[name], running.result())
    ]
    return [*_check_count(look.rows, file, path), *wrong, *(_error("I13", why, path) for why in sorted(look.misplaced))]


def _check_count(rows: int, file: DataFile, path: str) -> list[Finding]:
    return [] if rows == file.row_count else [_error("I4", f"file has {rows} rows instead of {file.row_count}", path)]


def _error(invariant: str, message: str, place: str) -> Finding:
    return Finding(invariant, Severity.ERROR, message, place)


@dataclass(slots=True)
class _Look:
    """What the rows of one file say, batch by batch."""

    context: TableContext
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
        if not rows_in_bucket(self.context, self.schema, self.split, batch):
            self.misplaced.add("rows belong to another bucket")


def _find_contradictions(recorded: ColumnStats, found: ColumnStats) -> Iterator[str]:
    """Where statistics contradict the rows. Bounds may be wider than the values, never narrower."""
    if recorded.null_count is not None and found.null_count is not None and recorded.null_count != found.null_count:
        yield f"{recorded.null_count} nulls instead of {found.null_count}"
    if recorded.min is not None and found.min is not None and recorded.min > found.min:
        yield "a value is below the minimum"
    if recorded.max is not None and found.max is not None and recorded.max < found.max:
        yield "a value is above the maximum"
