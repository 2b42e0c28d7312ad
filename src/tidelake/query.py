"""A lazy read of a table: columns, a filter, a limit, a point in time. Nothing is read before rows are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import pyarrow as pa

from tidelake.engine import engine
from tidelake.errors import InvalidInputError, NotFoundError, TidelakeError
from tidelake.expr.from_polars import weaker_predicate
from tidelake.expr.render import to_sql
from tidelake.expr.tree import Predicate
from tidelake.notebook import html_pre, plain
from tidelake.ops.read.append import ReadRequest
from tidelake.ops.read.binlog import binlog_schema, halves, packed
from tidelake.ops.read.changes import ROWKIND, ChangeRequest, read_change_rows
from tidelake.ops.read.order import sorted_batches
from tidelake.ops.read.rows import count_rows, read_all, read_rows
from tidelake.ops.scan.batch import BatchRead, check_read_options, plan_batch, read_at
from tidelake.ops.scan.modes import Reading, find_changes, find_reading, names_a_place
from tidelake.ops.scan.options import ReadOptions, ViewOptions
from tidelake.ops.scan.planner import Plan, conjunction
from tidelake.ops.scan.split import Split, SplitMode
from tidelake.ops.scan.topn import SortKey
from tidelake.spec.option_support import refuse_reading
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import Snapshot
from tidelake.store.paths import DataPaths
from tidelake.store.snapshots import EXPIRED, plan_again
from tidelake.store.table_store import TableStore

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

__all__ = ["HIDDEN_COLUMNS", "ROWKIND", "ChangeRange", "Scan", "Shape", "chosen_columns", "lazy_frame"]

T = TypeVar("T")
HIDDEN_COLUMNS = ("__paimon_partition", "__paimon_bucket", "__paimon_file_path", "__paimon_row_index")
"""What a distributed engine can tell of each row beside its columns: where it lies."""


class Shape(Enum):
    """What the rows of a read look like."""

    ROWS = "rows"
    """The columns of the table."""
    CHANGES = "changes"
    """The kind of each row in front; of a state the rows that are there."""
    AUDIT_LOG = "audit_log"
    """The kind of each row in front; of a state also deletions that are not compacted away."""
    BINLOG = "binlog"
    """The same, every column as a list; an update is one row with what was and what is."""


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """Snapshots or tags whose changes are read, after `since`, up to `until`; without them options say which."""

    since: int | str | None = None
    until: int | str | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """A read that has not happened yet. It plans on the snapshot that is newest when it is first used.

    From then on it stays there, with every scan that was made of it by choosing columns, rows or a limit: two looks see
    the same rows, whatever others commit meanwhile. A new scan of the table sees what is new.
    """

    name: str
    store: TableStore
    paths: DataPaths
    columns: tuple[str, ...]
    where: Predicate | None = None
    limit: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    changes: ChangeRange | None = None
    order: tuple[SortKey, ...] = ()
    optimized: bool = False
    shape: Shape = Shape.ROWS
    planned: Plan | None = None
    """What is read, where that is settled already."""
    _pinned: list[Reading] = field(default_factory=list, repr=False, compare=False)
    """What is read, from the first look on; shared with scans that are made of this one."""
    _plans: list[Plan] = field(default_factory=list, init=False, repr=False, compare=False)
    """The plan of this very scan, from the first look on."""

    @property
    def schema(self) -> Schema:
        """The schema the rows are read with."""
        return self.store.schema

    # -------------------------------------------------------------------------------------------- planning

    def snapshot(self) -> Snapshot | None:
        """The snapshot that is read."""
        return read_at(self.store, self.batch_read()) if self.planned is None else self.planned.snapshot

    def plan(self) -> Plan:
        """The files to read and what pruning left out.

        Raises:
            UnsupportedError: an option, or something the table holds, is not honoured.
            InvalidInputError: options contradict each other.
            NotFoundError: a snapshot, tag or branch is not there.
        """
        if self.planned is not None:
            return self.planned
        if not self._plans:
            self._plans.append(self._first_look(lambda: plan_batch(self.store, self.batch_read())))
        return self._plans[0]

    def _first_look(self, attempt: Callable[[], T]) -> T:
        """Plan or read; anew while the snapshot expires meanwhile, unless it is settled which one is read."""
        if self._is_settled:
            return attempt()

        def look() -> T:
            self._look_anew()
            return attempt()

        return plan_again(look)

    @property
    def _is_settled(self) -> bool:
        """Whether no other snapshot can stand in for one that expires: it is named, or was looked at before."""
        named = self.planned is not None or self.changes is not None or names_a_place(self.options)
        return named or bool(self._pinned or self._plans)

    def _look_anew(self) -> None:
        self._pinned.clear()
        self._plans.clear()

    def batch_read(self) -> BatchRead:
        """What planning is asked for.

        Raises:
            UnsupportedError: the table is not one whose rows are read here.
        """
        refuse_reading(self.store.schemas.newest_known(self.schema).options)
        return replace(self.stream_read(), reading=self._reading())

    def stream_read(self) -> BatchRead:
        """The same for a stream, which begins where its options say and settles on no state."""
        forgiving = ReadOptions.parse(self.options).forgiving
        return BatchRead(
            schema=self.schema,
            paths=self.paths,
            where=self.where,
            limit=None if forgiving else self.limit,  # rows of files that are left out do not count
            order=self.order,
            options=self.options,
            optimized=self.optimized,
            whole_updates=self.shape is Shape.BINLOG,
        )

    def _reading(self) -> Reading | None:
        """What is read, settled at the first look; None for a read of two branches, which only a whole plan settles."""
        if self.changes is None and ReadOptions.parse(self.options).other_branch is not None:
            return None
        if not self._pinned:
            self._pinned.append(self._find_reading())
        return self._pinned[0]

    def _find_reading(self) -> Reading:
        if self.changes is None:
            check_read_options(self.options)
            return find_reading(self.store, self.options)
        return find_changes(self.store, self.options, since=self.changes.since, until=self.changes.until)

    def read_optimized(self) -> Scan:
        """The same read of what the last full compactions left: nothing is merged, newer rows are not seen.

        Only a primary-key table has newer rows elsewhere; of any other all rows are read.
        """
        return replace(self, optimized=True)

    def splits(self) -> tuple[Split, ...]:
        """The splits of the read."""
        return self.plan().splits

    def explain(self) -> str:
        """What the read would do, for a person."""
        plan = self.plan()
        at = f"snapshot {plan.snapshot.id}" if plan.snapshot else "an empty table"
        merges = sum(not split.raw_convertible for split in plan.splits)
        lines = [
            f"read {self.name} at {at}",
            f"  columns    {', '.join(self.columns)}",
            f"  manifests  {plan.manifests_read} of {plan.manifests} read",
            f"  files      {plan.files_kept} of {plan.files_live} kept, {plan.size:,} bytes, {plan.row_count:,} rows",
            f"  splits     {len(plan.splits)}, {merges or 'none'} {'need' if merges > 1 else 'needs'} a merge",
        ]
        marked = [vector for split in plan.splits for vector in split.vectors.values()]
        if marked:
            rows = sum(vector.cardinality or 0 for vector in marked)
            least = "" if all(vector.cardinality is not None for vector in marked) else "at least "
            lines.append(f"  deleted    {least}{rows:,} rows, by the deletion vectors of {len(marked)} files")
        if self.where is not None:
            lines.insert(2, f"  where      {to_sql(self.where)}")
        if self.limit is not None:
            lines.insert(2, f"  limit      {self.limit}")
        if self.order:
            lines.insert(2, f"  order by   {', '.join(map(str, self.order))}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        condition = "" if self.where is None else f" where {self.where}"
        limit = "" if self.limit is None else f" limit {self.limit}"
        return plain(f"Scan({self.name}: {', '.join(self.columns)}{condition}{limit})")

    def _repr_html_(self) -> str:
        try:
            return html_pre(self.explain())
        except TidelakeError as error:
            return html_pre(f"{self!r}\n{error}")

    # -------------------------------------------------------------------------------------------- rows

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        found = self.request().arrow_schema
        return binlog_schema(found, self.columns) if self.shape is Shape.BINLOG else found

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, a batch at a time; memory is bounded by one batch.

        With an order as many rows are held as are asked for: `limit`, or all of them.
        """
        settled = self._is_settled
        rows = self._begun()
        return rows if settled else self._unless_expired(rows)

    def _begun(self) -> Iterator[pa.RecordBatch]:
        if self.order:
            return self._ordered()
        if self.shape is Shape.BINLOG:
            return self._packed()
        return self._rows(self.request())

    def _unless_expired(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows; planned again while the snapshot expires before the first of them is handed out."""

        def begin_anew() -> tuple[pa.RecordBatch | None, Iterator[pa.RecordBatch]]:
            self._look_anew()
            again = self._begun()
            return next(again, None), again

        try:
            first = next(rows, None)
        except NotFoundError as error:
            if error.code != EXPIRED:
                raise
            first, rows = plan_again(begin_anew)
        if first is not None:
            yield first
            yield from rows

    def _rows(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        if isinstance(request, ChangeRequest):
            return read_change_rows(self.store, self.splits(), request, self.options)
        return read_rows(self.store, self.splits(), request, self.options)

    def _packed(self) -> Iterator[pa.RecordBatch]:
        left = self.limit  # counted in rows that come out, not in the rows that are packed
        request = self.request()
        assert isinstance(request, ChangeRequest)
        for batch in packed(self._rows(halves(request)), request):
            if left == 0:
                return
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            yield batch

    def _ordered(self) -> Iterator[pa.RecordBatch]:
        if self.shape is Shape.BINLOG:
            raise InvalidInputError("lists of values have no order", hint="leave order_by out, or read the audit log")
        extra = tuple(key.column for key in self.order if key.column not in self.columns)
        wanted = self.request().arrow_schema.names
        request = replace(self.request(), columns=self.columns + extra, limit=None)
        for batch in sorted_batches(self._rows(request), self.order, self.limit, request.arrow_schema):
            yield batch.select(wanted) if extra else batch

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows as a stream of Arrow batches."""
        return pa.RecordBatchReader.from_batches(self.arrow_schema, self.batches())

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table; several files are read at a time."""
        return self._first_look(self._read_all)

    def _read_all(self) -> pa.Table:
        if self.order or self.limit is not None or self.shape is not Shape.ROWS:
            return pa.Table.from_batches(list(self._begun()), schema=self.arrow_schema)
        found = read_all(self.store, self.splits(), self.request(), self.options)
        return pa.Table.from_batches(found, schema=self.arrow_schema)

    @overload
    def to_polars(self, *, lazy: Literal[False] = False) -> pl.DataFrame: ...

    @overload
    def to_polars(self, *, lazy: Literal[True]) -> pl.LazyFrame: ...

    def to_polars(self, *, lazy: bool = False) -> pl.DataFrame | pl.LazyFrame:
        """All rows as a Polars frame.

        With `lazy` nothing is read before the frame is collected, and then only the columns and files that its query
        needs: columns, conditions and limits are handed on to the scan.
        """
        import polars as pl

        if lazy:
            return lazy_frame(self)

        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame.

        Raises:
            InvalidInputError: pandas is not installed.
        """
        try:
            import pandas  # noqa: F401, ICN001 - Arrow imports it once rows are there
        except ImportError as cause:
            raise InvalidInputError("pandas is not installed", hint="pip install pandas") from cause
        return self.to_arrow().to_pandas()

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

    def to_spark(self, spark: Any | None = None, columns: Sequence[str] | None = None) -> Any:
        """The rows as a lazy Spark frame, pinned to the snapshot that is the newest now.

        `spark` is the session; without it the active one is used, or a local one is started. `columns` may choose some
        of the scan's, and hidden ones beside them: `__paimon_partition`, `__paimon_bucket`, and where nothing has to be
        merged `__paimon_file_path` and `__paimon_row_index`.

        Raises:
            InvalidInputError: Spark or Java is not installed, no other process can reach the storage, or a column is
                not one of the scan's.
            UnsupportedError: a hidden column is not known for merged rows.
        """
        return engine().frame(self, spark, columns)

    def count(self) -> int:
        """How many rows there are; from the metadata where that is exact, and of the rest only keys are read."""
        return self._first_look(self._count)

    def _count(self) -> int:
        if self.shape is not Shape.ROWS and self.schema.primary_keys:
            splits = self.splits()
            as_they_lie = self.shape is not Shape.BINLOG and all(each.mode is SplitMode.CHANGES for each in splits)
            if as_they_lie and self.where is None and not ReadOptions.parse(self.options).forgiving:
                rows = sum(split.row_count for split in splits)
                return rows if self.limit is None else min(rows, self.limit)
            return sum(batch.num_rows for batch in self._begun())
        decided = self.where is None or self.where.columns() <= set(self.schema.partition_keys)
        if decided and not ReadOptions.parse(self.options).forgiving:
            # A condition on partitions is decided file by file.
            rows = count_rows(self.store, self.splits(), self.schema, self.options)
            return rows if self.limit is None else min(rows, self.limit)
        looked_at = self.where.columns() if self.where is not None else frozenset[str]()
        request = replace(self.request(), columns=tuple(sorted(looked_at)) or self.columns[:1])
        return sum(batch.num_rows for batch in read_rows(self.store, self.splits(), request, self.options))

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def request(self) -> ReadRequest:
        """What a reader of the splits is asked for."""
        options = ReadOptions.parse(self.options)
        plain = ReadRequest(
            schema=self.schema,
            columns=self.columns,
            where=self.where,
            limit=self.limit,
            ignore_corrupt_files=options.ignore_corrupt_files,
            ignore_lost_files=options.ignore_lost_files,
        )
        if self.shape is Shape.ROWS:
            return plain
        viewed = self.shape is not Shape.CHANGES
        numbered = viewed and ViewOptions.parse(self.options).sequence_number and bool(self.schema.primary_keys)
        return ChangeRequest(
            schema=plain.schema,
            columns=plain.columns,
            where=plain.where,
            limit=plain.limit,
            ignore_corrupt_files=plain.ignore_corrupt_files,
            ignore_lost_files=plain.ignore_lost_files,
            sequence=numbered,
            deletions=viewed,
        )


def lazy_frame(scan: Scan) -> pl.LazyFrame:
    """A Polars frame that reads the scan when it is collected, and no more of it than its query needs."""
    import polars as pl
    from polars.io.plugins import register_io_source

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        del batch_size
        # Each collection looks at the table as it is then, unless the scan was looked at before.
        narrow = replace(scan, _pinned=list(scan._pinned))
        if columns is not None:
            narrow = replace(narrow, columns=_narrowed(scan, columns))
        if limit is not None:
            # Polars takes the first rows before it looks at the condition.
            narrow = replace(narrow, limit=limit if scan.limit is None else min(limit, scan.limit))
        elif predicate is not None and scan.limit is None and scan.shape is Shape.ROWS:
            # Of changes it could tell another story: a row that leaves what is looked at is a deletion there.
            pushed = weaker_predicate(predicate, scan.schema.fields)
            narrow = replace(narrow, where=conjunction(narrow.where, pushed))
        for batch in narrow.batches():
            frame = pl.DataFrame(batch)
            frame = frame if columns is None else frame.select(columns)
            yield frame if predicate is None else frame.filter(predicate)

    empty = pl.DataFrame(scan.arrow_schema.empty_table())
    return register_io_source(source, schema=empty.schema, validate_schema=True, is_pure=True)


def _narrowed(scan: Scan, columns: Sequence[str]) -> tuple[str, ...]:
    # A count asks for no column at all, and the kind of a change is none of the table's.
    return tuple(name for name in columns if name in scan.columns) or scan.columns[:1]


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
