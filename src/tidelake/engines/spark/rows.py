"""A scan as a lazy frame: planned now, read when Spark runs it.

Files that need no merge go through Spark's own Parquet reader, so that Catalyst prunes columns and pushes filters; what
it cannot read as we do, and everything that is merged, goes through Arrow in Python workers. Changes of a bucket that
are packed two and two are read by one task, in their order. Invariant: columns, their types and the rows are the same
whichever way they come.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from tidelake.engines.spark.conditions import column_named
from tidelake.engines.spark.native import NativeReader
from tidelake.engines.spark.remote import TableRef
from tidelake.engines.spark.tasks import balanced, parallelism
from tidelake.engines.spark.types import as_nullable, struct_of, to_spark_batch
from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.files.read import ROW_NUMBER
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.read.binlog import halves, packed
from tidelake.ops.read.changes import ChangeRequest, read_change_rows
from tidelake.ops.read.rows import read_rows
from tidelake.ops.scan.split import Split, SplitMode
from tidelake.ops.scan.topn import SortKey
from tidelake.query import HIDDEN_COLUMNS, ROWKIND, Scan, Shape
from tidelake.spec.binary_row_decode import decode_rows
from tidelake.spec.data_file import DataFile
from tidelake.spec.schema import Schema
from tidelake.spec.types import BIGINT, INT, STRING, ElementType, Field, Root, RowType, with_nullable
from tidelake.table import Table

Batches = Iterator[pa.RecordBatch]
PART_BYTES: Final = 64 << 20
"""Bytes of a file that make another part of it worth it."""
TASK_BYTES, OPEN_BYTES = 4 << 20, 1 << 18
"""Bytes that make another task worth it, and bytes that are read in the time that it takes to open a file."""
BATCH_ROWS_LEAST, BATCH_ROWS_MOST = 1 << 13, 1 << 17
"""Rows of a batch that Spark is handed: fewer cost more to hand over than to read, more have to be held at once."""
_PARTITION, _BUCKET, _FILE_PATH, _ROW_INDEX = HIDDEN_COLUMNS


def frame_of(scan: Scan, spark: SparkSession, columns: Sequence[str] | None = None) -> DataFrame:
    """The rows of a scan, pinned to the snapshot that is the newest now.

    Args:
        scan: What to read.
        spark: The session.
        columns: Which columns of the scan come out, and hidden ones beside them; those of the scan if None.

    Raises:
        UnsupportedError: Spark has no counterpart to the type of a column, or a hidden one is not known for merged rows
            or changes.
        InvalidInputError: no other process can reach the storage, a column is not one of the scan's, or the binlog is
            to be sorted.
        FormatError: a data file is missing.
    """
    chosen = _checked(scan, columns)
    ref = TableRef.of(scan.name, scan.store, scan.options)
    hidden = tuple(name for name in chosen if name not in scan.columns)
    inside = tuple(dict.fromkeys([*(name for name in chosen if name in scan.columns), *(k.column for k in scan.order)]))
    merged = _with_kinds(scan, hidden)
    binlog = scan.shape is Shape.BINLOG
    wanted = scan.request() if merged else replace(scan, shape=Shape.ROWS).request()
    limit = None if scan.order or binlog else scan.limit
    request = replace(wanted, columns=inside or scan.columns[:1], limit=limit)
    packs = binlog and merged
    struct = as_nullable(struct_of([*fields_of(request, packs), *_hidden_fields(hidden, scan.schema)]))
    found = scan.splits()
    splits = whole_buckets(found) if packs else [one for split in found for one in singles(split)]
    _refuse_merged(splits, hidden)
    native = NativeReader(spark, scan, request.columns)
    direct = [] if hidden or merged else native.taken(splits)
    apart = {id(split) for split in direct}
    rest = [
        part for split in splits if id(split) not in apart for part in ([Part(split)] if packs else parts_of(split))
    ]
    frames = native.frames(direct)
    if rest:
        bins = balanced(rest, lambda part: part.weight, parallelism(spark), least=TASK_BYTES)
        reader = Bins(ref, request, hidden, tuple(pickle.dumps(each) for each in bins), packs)
        frames.append(spark.range(0, len(bins), 1, len(bins)).mapInArrow(reader.run, struct))
    whole = reduce(DataFrame.union, frames) if frames else spark.createDataFrame([], struct)
    if scan.order:
        whole = whole.orderBy(*map(_sorted_by, scan.order))
    if scan.limit is not None:
        whole = whole.limit(scan.limit)
    names = [_listed(name) if binlog and not packs and name in inside else column_named(name) for name in chosen]
    if merged:
        names[:0] = [column_named(each.name) for each in request.fields[: -len(request.columns)]]
    elif scan.shape is not Shape.ROWS:
        names.insert(0, f.lit("+I").alias(ROWKIND))
    return whole if len(names) == len(struct.names) and chosen == tuple(struct.names) else whole.select(*names)


def _with_kinds(scan: Scan, hidden: Sequence[str]) -> bool:
    """Whether rows come with kinds of their own: an append table only knows insertions."""
    if scan.shape is Shape.BINLOG and scan.order:
        raise InvalidInputError("lists of values have no order", hint="leave order_by out, or read the audit log")
    if scan.shape is Shape.ROWS or not scan.schema.primary_keys:
        return False
    if hidden:
        raise UnsupportedError("hidden columns are not known for changes", column=hidden[0], hint="leave it out")
    return True


def fields_of(request: ReadRequest, packs: bool) -> list[Field]:
    """What comes out of a read; with the two rows of an update in one, columns of the table are lists."""
    front = len(request.fields) - len(request.columns)
    return [
        replace(each, type=ElementType(Root.ARRAY, True, with_nullable(each.type, True)))
        if packs and number >= front
        else each
        for number, each in enumerate(request.fields)
    ]


def _listed(name: str) -> Column:
    return f.array(column_named(name)).alias(name)


def _checked(scan: Scan, columns: Sequence[str] | None) -> tuple[str, ...]:
    if columns is None:
        return scan.columns
    known = {*scan.columns, *HIDDEN_COLUMNS}
    unknown = next((name for name in columns if name not in known), None)
    if unknown is not None:
        raise InvalidInputError("column is not one of the scan's", column=unknown, hint=f"choose of {', '.join(known)}")
    if not columns or len(set(columns)) < len(columns):
        raise InvalidInputError("columns are not some of the scan's, each once", columns=", ".join(columns))
    return tuple(columns)


def _sorted_by(key: SortKey) -> Column:
    column = column_named(key.column)
    return column.desc_nulls_last() if key.descending else column.asc_nulls_first()


# ---------------------------------------------------------------------------------------------------- hidden columns


def _hidden_fields(hidden: Sequence[str], schema: Schema) -> list[Field]:
    partition = RowType(fields=tuple(schema.field(name) for name in schema.partition_keys))
    types = {_PARTITION: partition, _BUCKET: INT, _FILE_PATH: STRING, _ROW_INDEX: BIGINT}
    return [Field(-1, name, types[name]) for name in hidden]


def _refuse_merged(splits: Iterable[Split], hidden: Sequence[str]) -> None:
    """A merged row comes from several files, or from none of them as it is."""
    wrong = next((name for name in (_FILE_PATH, _ROW_INDEX) if name in hidden), None)
    if wrong is not None and not all(split.raw_convertible for split in splits):
        raise UnsupportedError(
            "hidden column is known only for rows that need no merge",
            column=wrong,
            hint="leave it out, compact the table first, or read what is compacted: scan().read_optimized()",
        )


def address_of(root: str, split: Split, file: DataFile) -> str:
    """The whole address of a file, as the system table of files tells it."""
    root = root.rstrip("/")
    return file.external_path or f"{'file:' if root.startswith('/') else ''}{root}/{split.path_of(file)}"


# ------------------------------------------------------------------------------------------------------------- tasks


@dataclass(frozen=True, slots=True)
class Part:
    """A split, or a part of each of its files."""

    split: Split
    share: tuple[int, int] = (0, 1)

    @property
    def weight(self) -> int:
        """Bytes to read, about; opening a file counts as some."""
        return self.split.size // self.share[1] + OPEN_BYTES * len(self.split.files)


def singles(split: Split) -> Iterator[Split]:
    """The files of a split one by one where nothing is merged."""
    if not split.raw_convertible:
        yield split
        return
    yield from (split.with_files((file,)) for file in split.files)


def whole_buckets(splits: Iterable[Split]) -> list[Split]:
    """Splits with all changes of a bucket in one, in their order: a file may end between the rows of an update."""
    found: dict[tuple[object, ...], Split] = {}
    for number, split in enumerate(splits):
        changes = split.mode is SplitMode.CHANGES
        place = (split.partition, split.bucket, split.branch) if changes else (number,)
        known = found.get(place)
        found[place] = split if known is None else replace(known, files=known.files + split.files)
    return list(found.values())


def parts_of(split: Split) -> list[Part]:
    """What can be read apart of one of `singles`: parts of a large file."""
    parts = max(1, split.size // PART_BYTES) if split.raw_convertible else 1
    return [Part(split, (part, parts)) for part in range(parts)]


@dataclass(frozen=True, slots=True)
class Bins:
    """What all tasks read; each takes the bin of its number. Bins are pickled apart: a task opens its own alone."""

    ref: TableRef
    request: ReadRequest
    hidden: tuple[str, ...]
    bins: tuple[bytes, ...]
    packs: bool = False
    """Whether the two rows of an update come as one."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """The rows of the bins of these numbers."""
        table = self.ref.open()
        fields = [*fields_of(self.request, self.packs), *_hidden_fields(self.hidden, table.schema)]
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in gathered(self._rows(table, pickle.loads(self.bins[number]))):
                    yield to_spark_batch(rows, fields)

    def _rows(self, table: Table, parts: Iterable[Part]) -> Batches:
        for part in parts:
            request = replace(self.request, share=part.share)
            if isinstance(request, ChangeRequest):
                read = halves(request) if self.packs else request
                changes = read_change_rows(table.store, [part.split], read, table.options)
                yield from packed(changes, request) if self.packs else changes
                continue
            if part.split.raw_convertible:
                yield from self._raw(table, part.split, request)
                continue
            for rows in read_rows(table.store, [part.split], request, table.options):
                yield self._located(rows, table, part.split, None) if self.hidden else rows

    def _raw(self, table: Table, split: Split, request: ReadRequest) -> Batches:
        numbers = _ROW_INDEX in self.hidden
        for file in split.files:
            for rows in read_data_file(table.store, split, file, request, row_numbers=numbers, stream=True):
                yield self._located(rows, table, split, file) if self.hidden else rows

    def _located(self, rows: pa.RecordBatch, table: Table, split: Split, file: DataFile | None) -> pa.RecordBatch:
        count = rows.num_rows
        columns = {name: rows.column(name) for name in self.request.columns}
        for name in self.hidden:
            if name == _PARTITION:
                columns[name] = _partition(split, table.schema, count)
            elif name == _BUCKET:
                columns[name] = pa.repeat(pa.scalar(split.bucket, pa.int32()), count)
            elif name == _ROW_INDEX:
                columns[name] = rows.column(ROW_NUMBER)
            else:
                assert file is not None
                columns[name] = pa.repeat(pa.scalar(address_of(table.store.env.io.root, split, file)), count)
        return pa.RecordBatch.from_pydict(columns)


def _partition(split: Split, schema: Schema, count: int) -> pa.Array:
    if not schema.partition_keys:
        return pa.Array.from_buffers(pa.struct([]), count, [None])
    values = decode_rows(pa.array([split.partition], pa.binary()), schema.partition_types)
    one = pa.StructArray.from_arrays(values, list(schema.partition_keys))
    return one.take(pa.array(np.zeros(count, np.int64)))


def gathered(batches: Batches) -> Batches:
    """The same rows in batches that are neither tiny nor huge."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= BATCH_ROWS_LEAST:
            yield from _joined(held)
            held, count = [], 0
    if held:
        yield from _joined(held)


def _joined(held: Sequence[pa.RecordBatch]) -> Batches:
    rows = pa.Table.from_batches(held)
    return iter((rows if len(held) == 1 else rows.combine_chunks()).to_batches(max_chunksize=BATCH_ROWS_MOST))
