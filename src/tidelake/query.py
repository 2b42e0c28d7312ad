"""A lazy read of a table: columns, a filter, a limit, a point in time. Nothing is read before rows are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

import pyarrow as pa

from tidelake.engine import engine
from tidelake.errors import InvalidInputError, NotFoundError, TidelakeError
from tidelake.expr.from_polars import weaker_predicate
from tidelake.expr.render import to_sql
from tidelake.expr.tree import Predicate
from tidelake.notebook import html_pre, plain, pluralize
from tidelake.ops.context import TableContext
from tidelake.ops.read.binlog import binlog_schema, halves, pack_updates
from tidelake.ops.read.changes import read_change_rows
from tidelake.ops.read.extremes import find_extreme, read_extreme, refuse_unordered, to_python
from tidelake.ops.read.order import sorted_batches
from tidelake.ops.read.placed import HIDDEN_COLUMNS
from tidelake.ops.read.rows import count_rows, read_all, read_rows
from tidelake.ops.scan.batch import check_read_options, plan_batch, read_at
from tidelake.ops.scan.exact import metadata_columns
from tidelake.ops.scan.modes import Reading, find_changes, find_reading, names_a_place
from tidelake.ops.scan.options import ReadOptions, ViewOptions
from tidelake.ops.scan.planner import Plan, conjunction
from tidelake.ops.scan.request import ROWKIND, ReadRequest, Shape
from tidelake.ops.scan.split import Split, SplitMode
from tidelake.ops.scan.topn import SortKey
from tidelake.options import TableOptions
from tidelake.options.capabilities import refuse_reading
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.schemas.schema import Schema
from tidelake.store.snapshots import EXPIRED, plan_again
from tidelake.store.table_store import TableStore

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

__all__ = ["HIDDEN_COLUMNS", "ROWKIND", "ChangeRange", "Scan", "Shape", "chosen_columns", "lazy_frame", "with_request"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """Snapshots or tags whose changes are read, after `since`, up to `until`; without them options say which."""

    since: int | str | None = None
    until: int | str | None = None


class ScanEngine(Protocol):
    """What a scan needs from an engine; frames and sessions are the engine's own types."""

    def frame(self, scan: Scan, session: Any | None = None, columns: Sequence[str] | None = None) -> Any:
        """A lazy frame of the scan's rows, pinned to one snapshot; `columns` may name hidden ones beside the scan's."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A lazy read. It is planned on the snapshot that is the newest when it is first used.

    From then on it stays on that snapshot, as do all scans derived from it by columns, rows or a limit: every use sees
    the same rows, whatever is committed in between. A new scan of the table sees new commits.
    """

    context: TableContext
    wanted: ReadRequest
    """What the user asked for; `request()` adds what the options say."""
    changes: ChangeRange | None = None
    planned: Plan | None = None
    """The plan, if it is settled already."""
    _pinned: list[Reading] = field(default_factory=list, repr=False, compare=False)
    """What is read, known from the first use on; shared with scans that are derived from this one."""
    _plans: list[Plan] = field(default_factory=list, init=False, repr=False, compare=False)
    """The plan of this scan, known from its first use on."""

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.context.name

    @property
    def store(self) -> TableStore:
        """The documents of the table."""
        return self.context.store

    @property
    def options(self) -> TableOptions:
        """The options in force."""
        return self.context.options

    @property
    def schema(self) -> Schema:
        """The schema the rows are read with."""
        return self.wanted.schema

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that come out, beside what the shape adds."""
        return self.wanted.columns

    @property
    def where(self) -> Predicate | None:
        """The condition that rows fulfil."""
        return self.wanted.where

    @property
    def limit(self) -> int | None:
        """How many rows come out at most."""
        return self.wanted.limit

    @property
    def order(self) -> tuple[SortKey, ...]:
        """The order of the rows."""
        return self.wanted.order

    @property
    def shape(self) -> Shape:
        """What the rows look like."""
        return self.wanted.shape

    # -------------------------------------------------------------------------------------------- planning

    def snapshot(self) -> Snapshot | None:
        """The snapshot that is read."""
        return read_at(self.context, self._settled_request()) if self.planned is None else self.planned.snapshot

    def plan(self) -> Plan:
        """The files to read and what pruning left out.

        Raises:
            UnsupportedError: an option, or something the table holds, is not honoured.
            InvalidInputError: options contradict each other.
            NotFoundError: a snapshot, tag or branch does not exist.
        """
        if self.planned is not None:
            return self.planned
        if not self._plans:
            self._plans.append(self._first_look(lambda: plan_batch(self.context, self._settled_request())))
        return self._plans[0]

    def _first_look(self, attempt: Callable[[], T]) -> T:
        """Plan or read; retry if the snapshot expires in between, unless the snapshot is settled."""
        if self._is_settled:
            return attempt()

        def look() -> T:
            self._forget_reading()
            return attempt()

        return plan_again(look)

    @property
    def _is_settled(self) -> bool:
        """Whether the snapshot cannot be replaced by a newer one if it expires: it was named, or used before."""
        named = self.planned is not None or self.changes is not None or names_a_place(self.options)
        return named or bool(self._pinned or self._plans)

    def _forget_reading(self) -> None:
        self._pinned.clear()
        self._plans.clear()

    def _settled_request(self) -> ReadRequest:
        """The request with what is read, found now if it was not before.

        Raises:
            UnsupportedError: the table is not one whose rows are read here.
        """
        refuse_reading(self.store.schemas.newest_known(self.schema).options)
        return replace(self.request(), reading=self._settle_reading())

    def _settle_reading(self) -> Reading | None:
        """What is read, settled at the first use; None for a read of two branches, which only a whole plan settles."""
        if self.changes is None and self.options.of(ReadOptions).other_branch is not None:
            return None
        if not self._pinned:
            self._pinned.append(self._find_reading())
        return self._pinned[0]

    def _find_reading(self) -> Reading:
        if self.changes is None:
            check_read_options(self.options)
            return find_reading(self.context)
        return find_changes(self.context, since=self.changes.since, until=self.changes.until)

    def read_optimized(self) -> Scan:
        """The same read of only what the last full compactions wrote: nothing is merged, newer rows are not seen.

        Only primary-key tables have such newer rows; of other tables all rows are read.
        """
        return with_request(self, optimized=True)

    def with_columns(self, columns: Sequence[str]) -> Scan:
        """The same read of only those of its columns that are among these, or of its first column."""
        # A count needs no column at all, and `rowkind` is not a column of the table.
        return with_request(self, columns=tuple(name for name in columns if name in self.columns) or self.columns[:1])

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
        lines += self._explain_aggregates()
        if self.where is not None:
            lines.insert(2, f"  where      {to_sql(self.where)}")
        if self.limit is not None:
            lines.insert(2, f"  limit      {self.limit}")
        if self.order:
            lines.insert(2, f"  order by   {', '.join(map(str, self.order))}")
        return "\n".join(lines)

    def _explain_aggregates(self) -> list[str]:
        """What `count`, `min` and `max` would be answered by."""
        if self.shape is not Shape.ROWS or not self._keeps_whole_files:
            return ["  count      by reading rows", "  min, max   by reading rows"]
        merges = sum(not split.raw_convertible for split in self.splits())
        keys = f" and the keys of {pluralize(merges, 'split')}" if merges else ""
        asked = self.columns if self.limit is None else ()
        low, high = metadata_columns(self.store, self.splits(), self.schema, asked)
        ends = {"min, max": low} if low == high else {"min": low, "max": high}
        how = {
            end: f"from metadata for {', '.join(names)}" if names else "by reading rows" for end, names in ends.items()
        }
        return [f"  count      from metadata{keys}", *(f"  {end:9}  {text}" for end, text in how.items())]

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
        rows = self._begin()
        return rows if settled else self._retry_if_expired(rows)

    def _begin(self) -> Iterator[pa.RecordBatch]:
        if self.order:
            return self._read_sorted()
        if self.shape is Shape.BINLOG:
            return self._read_packed()
        return self._rows(self.request())

    def _retry_if_expired(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows; planned again if the snapshot expires before the first row is returned."""

        def begin_again() -> tuple[pa.RecordBatch | None, Iterator[pa.RecordBatch]]:
            self._forget_reading()
            again = self._begin()
            return next(again, None), again

        try:
            first = next(rows, None)
        except NotFoundError as error:
            if error.code != EXPIRED:
                raise
            first, rows = plan_again(begin_again)
        if first is not None:
            yield first
            yield from rows

    def _rows(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        if request.shape is Shape.ROWS:
            return read_rows(self.context, self.splits(), request)
        return read_change_rows(self.context, self.splits(), request)

    def _read_packed(self) -> Iterator[pa.RecordBatch]:
        left = self.limit  # counts returned rows, not the rows that are packed into them
        request = self.request()
        for batch in pack_updates(self._rows(halves(request)), request):
            if left == 0:
                return
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            yield batch

    def _read_sorted(self) -> Iterator[pa.RecordBatch]:
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
            return pa.Table.from_batches(list(self._begin()), schema=self.arrow_schema)
        found = read_all(self.context, self.splits(), self.request())
        return pa.Table.from_batches(found, schema=self.arrow_schema)

    @overload
    def to_polars(self, *, lazy: Literal[False] = False) -> pl.DataFrame: ...

    @overload
    def to_polars(self, *, lazy: Literal[True]) -> pl.LazyFrame: ...

    def to_polars(self, *, lazy: bool = False) -> pl.DataFrame | pl.LazyFrame:
        """All rows as a Polars frame.

        With `lazy` nothing is read before the frame is collected, and then only the columns and files that its query
        needs: columns, conditions and limits are pushed down to the scan.
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
        frames: ScanEngine = engine()
        return frames.frame(self, spark, columns)

    def count(self) -> int:
        """How many rows there are; from the metadata where that is exact, and of the rest only keys are read."""
        return self._first_look(self._count)

    def _count(self) -> int:
        if self.shape is not Shape.ROWS and self.schema.primary_keys:
            splits = self.splits()
            need_no_merge = self.shape is not Shape.BINLOG and all(each.mode is SplitMode.CHANGES for each in splits)
            if need_no_merge and self.where is None and not self.request().forgives:
                rows = sum(split.row_count for split in splits)
                return rows if self.limit is None else min(rows, self.limit)
            return sum(batch.num_rows for batch in self._begin())
        if self._keeps_whole_files:
            rows = count_rows(self.context, self.splits())
            return rows if self.limit is None else min(rows, self.limit)
        looked_at = self.where.columns() if self.where is not None else frozenset[str]()
        request = replace(self.request(), columns=tuple(sorted(looked_at)) or self.columns[:1])
        return sum(batch.num_rows for batch in read_rows(self.context, self.splits(), request))

    @property
    def _keeps_whole_files(self) -> bool:
        """Whether every row of the files is wanted: a condition on partitions holds for all rows of a file or none."""
        # A condition on no column, such as 1 = 0, holds for all rows or for none; planners of changes do not ask it.
        looked_at = self.where.columns() if self.where is not None else frozenset[str]()
        decided = self.where is None or (bool(looked_at) and looked_at <= set(self.schema.partition_keys))
        return decided and not self.request().forgives

    def min(self, column: str) -> Any:
        """The least value of a column as Python has it; None if no row has one.

        It comes from metadata where that is exact, and only files that may hold it are read; `explain` says which
        columns need no rows. The column may be one that the scan leaves out. NaN is greater than every number.

        Raises:
            InvalidInputError: the column does not exist, or its values have no order.
            UnsupportedError: the value has nanoseconds and pandas is not installed.
        """
        return self._extreme(column, greatest=False)

    def max(self, column: str) -> Any:
        """The greatest value of a column, like `min`.

        Raises:
            InvalidInputError: the column does not exist, or its values have no order.
            UnsupportedError: the value has nanoseconds and pandas is not installed.
        """
        return self._extreme(column, greatest=True)

    def _extreme(self, column: str, *, greatest: bool) -> Any:
        field = self.schema.field(column)
        refuse_unordered(field)
        if self.shape is Shape.BINLOG:
            raise InvalidInputError("lists of values have no order", hint="read the audit log")
        return to_python(self._first_look(lambda: self._find_extreme(field.name, greatest=greatest)))

    def _find_extreme(self, column: str, *, greatest: bool) -> pa.Array:
        if self._answers_by_file:
            return read_extreme(self.context, self.splits(), self.request(), column, greatest=greatest)
        narrow = with_request(self, columns=(column,))
        dtype = narrow.arrow_schema.field(column).type
        return find_extreme((batch.column(column) for batch in narrow._begin()), dtype, greatest=greatest)

    @property
    def _answers_by_file(self) -> bool:
        """Whether the rows of the scan are all rows of its files, so that metadata can speak for them."""
        return self.shape is Shape.ROWS and self.limit is None and self._keeps_whole_files

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def request(self) -> ReadRequest:
        """The request for planners and readers: what the user asked for, and what the options add."""
        options = self.options.of(ReadOptions)
        viewed = self.wanted.shows_deletions and self.context.is_keyed
        return replace(
            self.wanted,
            ignore_corrupt_files=options.ignore_corrupt_files,
            ignore_lost_files=options.ignore_lost_files,
            numbered=viewed and self.options.of(ViewOptions).sequence_number,
        )


def with_request(scan: Scan, **changes: Any) -> Scan:
    """The same scan with other fields of its request."""
    return replace(scan, wanted=replace(scan.wanted, **changes))


def lazy_frame(scan: Scan) -> pl.LazyFrame:
    """A Polars frame that reads the scan when it is collected, and only what its query needs."""
    import polars as pl
    from polars.io.plugins import register_io_source

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        del batch_size
        # Each collect reads the newest snapshot, unless the scan was used before.
        narrow = replace(scan, _pinned=list(scan._pinned))
        if columns is not None:
            narrow = narrow.with_columns(columns)
        if limit is not None:
            # Polars applies the limit before the condition.
            narrow = with_request(narrow, limit=limit if scan.limit is None else min(limit, scan.limit))
        elif predicate is not None and scan.limit is None and scan.shape is Shape.ROWS:
            # Not for changes: with a condition, a row that no longer matches is reported as a deletion.
            pushed = weaker_predicate(predicate, scan.schema.fields)
            narrow = with_request(narrow, where=conjunction(narrow.where, pushed))
        for batch in narrow.batches():
            frame = pl.DataFrame(batch)
            frame = frame if columns is None else frame.select(columns)
            yield frame if predicate is None else frame.filter(predicate)

    empty = pl.DataFrame(scan.arrow_schema.empty_table())
    return register_io_source(source, schema=empty.schema, validate_schema=True, is_pure=True)


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
