"""Turn a scan into a lazy frame: planned now, read when Spark runs it.

Spark's own Parquet reader reads the files that need no merge, so that Catalyst prunes columns and pushes filters down.
Python workers read what that reader would read differently, and everything that is merged. For the binlog, which pairs
the two rows of an update, one task reads all changes of a bucket in their order. Invariant: columns, their types and
the rows are the same, whichever reader they come from.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from tidelake.engines.spark.bridge.conditions import column_named
from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.bridge.tasks import balance, parallelism
from tidelake.engines.spark.bridge.types import as_nullable, struct_of, to_spark_batch
from tidelake.engines.spark.read.native import NativeReader
from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.ops.read.binlog import halves, pack_updates
from tidelake.ops.read.changes import read_change_rows
from tidelake.ops.read.placed import HIDDEN_COLUMNS, hidden_fields, read_placed_rows, require_raw
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.split import Split, SplitMode
from tidelake.ops.scan.topn import SortKey
from tidelake.query import ROWKIND, Scan, Shape, with_request
from tidelake.spec.types.data_types import ElementType, Field, Root, with_nullable
from tidelake.table import Table
from tidelake.table.system import SystemScan

Batches = Iterator[pa.RecordBatch]
PART_BYTES: Final = 64 << 20
"""The size of the parts that a large file is cut into."""
TASK_BYTES, OPEN_BYTES = 4 << 20, 1 << 18
"""How much a task reads at least, and how many bytes are read in the time that it takes to open a file."""
BATCH_ROWS_LEAST, BATCH_ROWS_MOST = 1 << 13, 1 << 17
"""Rows of a batch for Spark: with fewer the cost per batch dominates, with more both sides hold too much at once."""


def frame_of(scan: Scan, spark: SparkSession, columns: Sequence[str] | None = None) -> DataFrame:
    """The rows of a scan as a lazy frame, pinned to the snapshot that is the newest now.

    Args:
        scan: What to read.
        spark: The session.
        columns: The columns of the frame: columns of the scan, and hidden columns; None for the columns of the scan.

    Raises:
        UnsupportedError: Spark does not have the type of a column, or a hidden column is requested of merged rows or
            of changes.
        InvalidInputError: other processes cannot reach the storage, the scan does not have a column, or the binlog is
            to be sorted.
        FormatError: a data file is missing.
    """
    if isinstance(scan, SystemScan):
        return _frame_of_rows(scan, spark, columns)
    chosen = _choose_columns(scan, columns)
    ref = TableRef.of(scan.name, scan.store, scan.options)
    hidden = tuple(name for name in chosen if name not in scan.columns)
    inside = tuple(dict.fromkeys([*(name for name in chosen if name in scan.columns), *(k.column for k in scan.order)]))
    merged = _with_kinds(scan, hidden)
    binlog = scan.shape is Shape.BINLOG
    wanted = (scan if merged else with_request(scan, shape=Shape.ROWS)).request()
    limit = None if scan.order or binlog else scan.limit
    request = replace(wanted, columns=inside or scan.columns[:1], limit=limit)
    pairs = binlog and merged
    struct = as_nullable(struct_of([*fields_of(request, pairs), *hidden_fields(hidden, scan.schema)]))
    found = scan.splits()
    splits = whole_buckets(found) if pairs else [one for split in found for one in split_by_file(split)]
    require_raw(splits, hidden)
    native = NativeReader(spark, scan, request.columns)
    direct = [] if hidden or merged else native.choose_splits(splits)
    apart = {id(split) for split in direct}
    rest = [
        part for split in splits if id(split) not in apart for part in ([Part(split)] if pairs else parts_of(split))
    ]
    frames = native.frames(direct)
    if rest:
        bins = balance(rest, lambda part: part.weight, parallelism(spark), least=TASK_BYTES)
        reader = Bins(ref, request, hidden, tuple(pickle.dumps(each) for each in bins), pairs)
        frames.append(spark.range(0, len(bins), 1, len(bins)).mapInArrow(reader.run, struct))
    whole = reduce(DataFrame.union, frames) if frames else spark.createDataFrame([], struct)
    if scan.order:
        whole = whole.orderBy(*map(_sorted_by, scan.order))
    if scan.limit is not None:
        whole = whole.limit(scan.limit)
    names = [_as_array(name) if binlog and not pairs and name in inside else column_named(name) for name in chosen]
    if merged:
        names[:0] = [column_named(each.name) for each in request.fields[: -len(request.columns)]]
    elif scan.shape is not Shape.ROWS:
        names.insert(0, f.lit("+I").alias(ROWKIND))
    return whole if len(names) == len(struct.names) and chosen == tuple(struct.names) else whole.select(*names)


def _frame_of_rows(scan: SystemScan, spark: SparkSession, columns: Sequence[str] | None) -> DataFrame:
    """The rows of a system table, read now: they come from metadata, which only the driver looks at."""
    chosen = scan.columns if columns is None else _choose_columns(scan, columns)
    if set(chosen) - set(scan.columns):
        raise UnsupportedError(
            "rows of a system table are not in data files, so they have no hidden columns", table=scan.name
        )
    request = replace(scan.request(), columns=tuple(chosen))
    rows = with_request(scan, columns=request.columns).to_arrow().combine_chunks().to_batches()
    struct = as_nullable(struct_of(request.fields))
    if not rows:
        return spark.createDataFrame([], struct)
    shown = pa.Table.from_batches([to_spark_batch(batch, request.fields) for batch in rows])
    return spark.createDataFrame(shown, struct)


def _with_kinds(scan: Scan, hidden: Sequence[str]) -> bool:
    """Whether the reader adds row kinds. For an append table a constant is enough: all of its rows are insertions."""
    if scan.shape is Shape.BINLOG and scan.order:
        raise InvalidInputError(
            "binlog cannot be sorted: its columns are lists, which have no order",
            hint="leave order_by out, or read the audit log",
        )
    if scan.shape is Shape.ROWS or not scan.schema.primary_keys:
        return False
    if hidden:
        raise UnsupportedError("hidden columns are not available for changes", column=hidden[0], hint="leave it out")
    return True


def fields_of(request: ReadRequest, pairs: bool) -> list[Field]:
    """The fields of a read. Where the two rows of an update come as one, the columns of the table are lists."""
    front = len(request.fields) - len(request.columns)
    return [
        replace(each, type=ElementType(Root.ARRAY, True, with_nullable(each.type, True)))
        if pairs and number >= front
        else each
        for number, each in enumerate(request.fields)
    ]


def _as_array(name: str) -> Column:
    return f.array(column_named(name)).alias(name)


def _choose_columns(scan: Scan, columns: Sequence[str] | None) -> tuple[str, ...]:
    if columns is None:
        return scan.columns
    known = {*scan.columns, *HIDDEN_COLUMNS}
    unknown = next((name for name in columns if name not in known), None)
    if unknown is not None:
        raise InvalidInputError(
            "column is not one of the scan's", column=unknown, hint=f"choose from {', '.join(known)}"
        )
    if not columns or len(set(columns)) < len(columns):
        raise InvalidInputError(
            "name at least one of the scan's columns, and each only once", columns=", ".join(columns)
        )
    return tuple(columns)


def _sorted_by(key: SortKey) -> Column:
    column = column_named(key.column)
    return column.desc_nulls_last() if key.descending else column.asc_nulls_first()


# ------------------------------------------------------------------------------------------------------------- tasks


@dataclass(frozen=True, slots=True)
class Part:
    """A split, or the same share of each of its files."""

    split: Split
    share: tuple[int, int] = (0, 1)

    @property
    def weight(self) -> int:
        """About how many bytes there are to read; opening a file counts as `OPEN_BYTES`."""
        return self.split.size // self.share[1] + OPEN_BYTES * len(self.split.files)


def split_by_file(split: Split) -> Iterator[Split]:
    """Split by file where nothing is merged; else yield the split as it is."""
    if not split.raw_convertible:
        yield split
        return
    yield from (split.with_files((file,)) for file in split.files)


def whole_buckets(splits: Iterable[Split]) -> list[Split]:
    """Join all changes of a bucket into one split, in their order: the two rows of an update may be in two files."""
    found: dict[tuple[object, ...], Split] = {}
    for number, split in enumerate(splits):
        changes = split.mode is SplitMode.CHANGES
        place = (split.partition, split.bucket, split.branch) if changes else (number,)
        known = found.get(place)
        found[place] = split if known is None else replace(known, files=known.files + split.files)
    return list(found.values())


def parts_of(split: Split) -> list[Part]:
    """The parts that several tasks can read of a split from `split_by_file`: a large file is cut."""
    parts = max(1, split.size // PART_BYTES) if split.raw_convertible else 1
    return [Part(split, (part, parts)) for part in range(parts)]


@dataclass(frozen=True, slots=True)
class Bins:
    """The input of all tasks; each task reads the bins of the numbers that it gets.

    Every bin is pickled separately, so that a task unpickles only its own.
    """

    ref: TableRef
    request: ReadRequest
    hidden: tuple[str, ...]
    bins: tuple[bytes, ...]
    pairs: bool = False
    """Whether the two rows of an update come as one row of lists."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Read the bins of these numbers."""
        table = self.ref.open()
        fields = [*fields_of(self.request, self.pairs), *hidden_fields(self.hidden, table.schema)]
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in resize_batches(self._rows(table, pickle.loads(self.bins[number]))):
                    yield to_spark_batch(rows, fields)

    def _rows(self, table: Table, parts: Iterable[Part]) -> Batches:
        context = table.context
        for part in parts:
            request = self.request.in_part(part.share)
            if request.shape is not Shape.ROWS:
                read = halves(request) if self.pairs else request
                changes = read_change_rows(context, [part.split], read)
                yield from pack_updates(changes, request) if self.pairs else changes
                continue
            if part.split.raw_convertible:
                request = replace(request, delivery=replace(request.delivery, stream=True))
            yield from read_placed_rows(context, [part.split], request, self.hidden)


def resize_batches(batches: Batches) -> Batches:
    """Join small batches and cut large ones."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= BATCH_ROWS_LEAST:
            yield from _concat(held)
            held, count = [], 0
    if held:
        yield from _concat(held)


def _concat(held: Sequence[pa.RecordBatch]) -> Batches:
    rows = pa.Table.from_batches(held)
    return iter((rows if len(held) == 1 else rows.combine_chunks()).to_batches(max_chunksize=BATCH_ROWS_MOST))
