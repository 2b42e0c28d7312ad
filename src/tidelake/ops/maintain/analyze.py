"""Statistics of a table for query planners: rows, size and columns of one snapshot, published as an ANALYZE snapshot.

The rows are read once, merged as any reader sees them, with bounded memory. The document is written before the snapshot
that names it; if the process dies in between it is an orphan. It is deleted again only if it is certain that no
snapshot names it. Later commits keep the statistics until the schema changes; expiry deletes the document with the last
snapshot that names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidelake.cleanup import undo_on_error
from tidelake.errors import FormatError, InvalidInputError, NotFoundError
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.column_sketch import ColumnSketch
from tidelake.ops.read.rows import count_rows, read_rows
from tidelake.ops.scan.batch import plan_batch
from tidelake.ops.scan.planner import Plan
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.split import Split
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.documents.statistics import Statistics, statistics_from_json, statistics_to_json
from tidelake.spec.limits import LIMITS
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.stats.column_stats import is_comparable
from tidelake.store.snapshots import plan_again
from tidelake.store.table_store import TableStore

__all__ = ["AnalyzeResult", "choose_columns", "compute_statistics", "read_statistics", "run_analyze"]

_PARTS_MAX = 8
"""Parts of the table that are read at a time; each has a sketch of every column."""

_MEMBERS = ("distinct_count", "null_count", "min", "max", "average_length", "max_length")
_COLUMNS = pa.schema(
    {"column": pa.string()} | {name: pa.string() if name in ("min", "max") else pa.int64() for name in _MEMBERS}
)


@dataclass(frozen=True, slots=True)
class AnalyzeResult:
    """The statistics that were published and the commit; no statistics for a table without a snapshot."""

    statistics: Statistics | None
    commit: CommitResult

    def to_arrow(self) -> pa.Table:
        """One row for each analyzed column."""
        found = self.statistics.columns if self.statistics and self.statistics.columns else {}
        rows = [
            {"column": name, **{member: getattr(each, member) for member in _MEMBERS}} for name, each in found.items()
        ]
        return pa.Table.from_pylist(rows, schema=_COLUMNS)


def choose_columns(schema: Schema, columns: Sequence[str] | str | None) -> tuple[str, ...]:
    """The columns to analyze: none, some, or with `"all"` every one whose type can be analyzed.

    Raises:
        InvalidInputError: a column does not exist, is named twice, or has a type that is never analyzed.
    """
    if columns is None:
        return ()
    if isinstance(columns, str):
        if columns != "all":
            raise InvalidInputError("columns must be a list of names", columns=columns, hint=f'[{columns!r}], or "all"')
        return tuple(field.name for field in schema.fields if is_comparable(field.type))
    fields = [schema.field(name) for name in columns]
    names = tuple(field.name for field in fields)
    if len(set(names)) < len(names):
        raise InvalidInputError("a column is named twice", columns=", ".join(names))
    for field in fields:
        if not is_comparable(field.type):
            raise InvalidInputError(
                "column cannot be analyzed, because its values have no order",
                column=field.name,
                type=field.type,
                hint='leave it out; "all" chooses every other column',
            )
    return names


def compute_statistics(context: TableContext, columns: Sequence[str]) -> Statistics | None:
    """Read the newest snapshot and compute its statistics; None for a table without one.

    Raises:
        FormatError: a file is missing or damaged.
        UnsupportedError: an option, or something the table holds, is not supported by reads.
    """
    schema = context.schema
    request = ReadRequest(schema=schema, columns=tuple(columns) or schema.names)

    def attempt() -> Statistics | None:
        plan = plan_batch(context, request)
        if plan.snapshot is None:
            return None
        if columns:
            count, sketches = _read(context, plan.splits, request)
        else:
            count, sketches = count_rows(context, plan.splits), {}
        return Statistics(
            snapshot_id=plan.snapshot.id,
            schema_id=schema.id,
            merged_record_count=count,
            merged_record_size_bytes=_merged_size(plan, count),
            columns={name: sketch.result() for name, sketch in sketches.items()},
        )

    return plan_again(attempt)


def run_analyze(context: TableContext, committer: Committer, columns: Sequence[str]) -> AnalyzeResult:
    """Compute statistics and publish them.

    Raises:
        FormatError: a file is missing or damaged.
        CommitConflictError: every attempt to publish lost its race; nothing was published.
        CommitUnknownError: it is unknown whether the snapshot was published; nothing was deleted.
        StorageError: the storage failed, and nothing was published.
    """
    statistics = compute_statistics(context, columns)
    if statistics is None:
        return AnalyzeResult(None, CommitResult())
    store = context.store
    name = f"stat-{store.env.ids.uuid()}-0"
    path = store.layout.statistics_path(name)

    def delete_if_nothing_is_published() -> None:
        if committer.left_nothing:
            store.env.io.delete(path)

    with undo_on_error(delete_if_nothing_is_published, ignore=(Exception,)):
        store.env.io.write(path, statistics_to_json(statistics))
        return AnalyzeResult(statistics, committer.analyze(name))


def read_statistics(store: TableStore, snapshot: Snapshot | None) -> Statistics | None:
    """The statistics that a snapshot carries, or None; they may describe an older snapshot.

    Raises:
        FormatError: the document is missing or damaged.
    """
    if snapshot is None or snapshot.statistics is None:
        return None
    path = store.layout.statistics_path(snapshot.statistics)
    try:
        data = store.env.io.read(path, limit=LIMITS.json_bytes)
    except NotFoundError as cause:
        raise FormatError(
            "statistics document is missing",
            path=path,
            snapshot_id=snapshot.id,
            hint="analyze the table again; rows are not affected",
        ) from cause
    return statistics_from_json(data, path=path)


def _read(context: TableContext, splits: Sequence[Split], request: ReadRequest) -> tuple[int, dict[str, ColumnSketch]]:
    """The number of rows, and a sketch of each column, of splits."""
    count = max(1, min(_PARTS_MAX, len(splits)))
    parts = [splits[number::count] for number in range(count)]

    def read(part: Sequence[Split]) -> tuple[int, dict[str, ColumnSketch]]:
        rows = 0
        sketches = _new_sketches(request)
        for batch in read_rows(context, part, request):
            rows += batch.num_rows
            for name, sketch in sketches.items():
                sketch.add(batch.column(name))
        return rows, sketches

    whole, total = _new_sketches(request), 0
    for rows, sketches in context.store.env.executor.map(read, parts):
        total += rows
        for name, sketch in sketches.items():
            whole[name].merge(sketch)
    return total, whole


def _new_sketches(request: ReadRequest) -> dict[str, ColumnSketch]:
    return {name: ColumnSketch(request.schema.field(name)) for name in request.columns}


def _merged_size(plan: Plan, merged: int) -> int:
    """The bytes of the files, as much of them as merged rows are of all their rows."""
    return plan.size * merged // plan.row_count if plan.row_count else 0
