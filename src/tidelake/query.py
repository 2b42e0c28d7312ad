"""A lazy read of a table: columns, a filter, a limit, a point in time. Nothing is read before rows are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.expr.tree import Predicate
from tidelake.ops.read.append import ReadRequest, read_splits
from tidelake.ops.scan.changes import plan_changes
from tidelake.ops.scan.options import BucketOptions, SplitOptions
from tidelake.ops.scan.planner import Plan, plan_append
from tidelake.ops.scan.split import Split
from tidelake.ops.scan.travel import TravelOptions, resolve
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import Snapshot
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

ROWKIND = "rowkind"


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """Snapshots whose changes are read: after `since`, up to `until`."""

    since: int
    until: int


@dataclass(frozen=True, slots=True)
class Scan:
    """A read that has not happened yet. It plans on the snapshot that is newest when it is first used."""

    name: str
    store: TableStore
    paths: DataPaths
    columns: tuple[str, ...]
    where: Predicate | None = None
    limit: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    changes: ChangeRange | None = None

    @property
    def schema(self) -> Schema:
        """The schema the rows are read with."""
        return self.store.schema

    # -------------------------------------------------------------------------------------------- planning

    def snapshot(self) -> Snapshot | None:
        """The snapshot that is read."""
        return resolve(self.store, TravelOptions.parse(self.options))

    def plan(self) -> Plan:
        """The files to read and what pruning left out.

        Raises:
            UnsupportedError: the table needs a merge, which is not there yet.
        """
        if self.schema.primary_keys:
            raise UnsupportedError("reading primary-key tables is not supported yet", table=self.name)
        split_options = SplitOptions.parse(self.options)
        if self.changes is not None:
            return plan_changes(
                self.store,
                since=self.changes.since,
                until=self.changes.until,
                schema=self.schema,
                paths=self.paths,
                where=self.where,
                options=split_options,
            )
        return plan_append(
            self.store,
            self.snapshot(),
            schema=self.schema,
            paths=self.paths,
            where=self.where,
            limit=self.limit,
            options=split_options,
            buckets=BucketOptions.parse(self.options),
        )

    def splits(self) -> tuple[Split, ...]:
        """The splits of the read."""
        return self.plan().splits

    def explain(self) -> str:
        """What the read would do, for a person."""
        plan = self.plan()
        at = f"snapshot {plan.snapshot.id}" if plan.snapshot else "an empty table"
        lines = [
            f"read {self.name} at {at}",
            f"  columns    {', '.join(self.columns)}",
            f"  manifests  {plan.manifests_read} of {plan.manifests} read",
            f"  files      {plan.files_kept} of {plan.files_live} kept, {plan.size:,} bytes, {plan.row_count:,} rows",
            f"  splits     {len(plan.splits)}, none needs a merge",
        ]
        if self.where is not None:
            lines.insert(2, f"  where      {self.where}")
        if self.limit is not None:
            lines.insert(2, f"  limit      {self.limit}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Scan({self.name}: {', '.join(self.columns)})"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.explain())}</pre>"

    # -------------------------------------------------------------------------------------------- rows

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        fields = list(self._request().arrow_schema)
        return pa.schema([pa.field(ROWKIND, pa.string(), nullable=False), *fields] if self.changes else fields)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, a batch at a time; memory is bounded by one batch."""
        for batch in read_splits(self.store, self.splits(), self._request()):
            yield _with_kind(batch, self.arrow_schema) if self.changes else batch

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows as a stream of Arrow batches."""
        return pa.RecordBatchReader.from_batches(self.arrow_schema, self.batches())

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        return pa.Table.from_batches(list(self.batches()), schema=self.arrow_schema)

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars frame."""
        import polars as pl

        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame.

        Raises:
            InvalidInputError: pandas is not installed.
        """
        try:
            return self.to_arrow().to_pandas()
        except ImportError as cause:
            raise InvalidInputError("pandas is not installed", hint="pip install pandas") from cause

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """The rows as a DuckDB relation.

        Raises:
            InvalidInputError: duckdb is not installed.
        """
        try:
            import duckdb
        except ImportError as cause:
            raise InvalidInputError("duckdb is not installed", hint="pip install 'tidelake[duckdb]'") from cause
        return (connection or duckdb.connect()).from_arrow(self.to_arrow())

    def count(self) -> int:
        """How many rows there are; from the metadata alone where that is exact."""
        if self.where is None or self.where.columns() <= set(self.schema.partition_keys):
            rows = self.plan().row_count  # a condition on partitions is decided file by file
            return rows if self.limit is None else min(rows, self.limit)
        narrow = tuple(sorted(self.where.columns()))
        request = ReadRequest(schema=self.schema, columns=narrow, where=self.where, limit=self.limit)
        return sum(batch.num_rows for batch in read_splits(self.store, self.splits(), request))

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def _request(self) -> ReadRequest:
        return ReadRequest(schema=self.schema, columns=self.columns, where=self.where, limit=self.limit)


def chosen_columns(schema: Schema, columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns to read, checked.

    Raises:
        InvalidInputError: one does not exist, or is asked for twice.
    """
    if columns is None:
        return tuple(each.name for each in schema.fields)
    if isinstance(columns, str):
        raise InvalidInputError("columns must be a list of names", columns=columns, hint=f"write [{columns!r}]")
    if not columns:
        raise InvalidInputError("read at least one column", hint="use count() for the number of rows")
    if len(set(columns)) < len(columns):
        raise InvalidInputError("a column is asked for twice", columns=", ".join(columns))
    return tuple(schema.field(name).name for name in columns)


def _with_kind(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    kinds = pa.repeat(pa.scalar("+I"), batch.num_rows)
    return pa.RecordBatch.from_arrays([kinds, *batch.columns], schema=schema)
