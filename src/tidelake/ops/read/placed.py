"""Rows with the place where each is stored: partition, bucket, file and position in the file.

Every row has a partition and a bucket. A file and a position only a row has that comes from one file as it is: a row
that is merged may combine rows of several files, and a read that would merge is refused, not answered half.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from tidelake.errors import UnsupportedError
from tidelake.files.read.data_file import ROW_NUMBER
from tidelake.ops.context import TableContext
from tidelake.ops.read.append import read_data_file
from tidelake.ops.read.rows import read_rows
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import DataFile
from tidelake.spec.rows.binary_row_decode import decode_rows
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import arrow_field
from tidelake.spec.types.data_types import BIGINT, INT, STRING, Field, RowType

__all__ = ["HIDDEN_COLUMNS", "address_of", "hidden_among", "hidden_fields", "read_placed_rows", "require_raw"]

HIDDEN_COLUMNS: Final = ("__paimon_partition", "__paimon_bucket", "__paimon_file_path", "__paimon_row_index")
"""Columns that a read can add to each row: the place where it is stored."""
_PARTITION, _BUCKET, _FILE_PATH, _ROW_INDEX = HIDDEN_COLUMNS


def hidden_fields(hidden: Sequence[str], schema: Schema) -> tuple[Field, ...]:
    """The hidden columns with these names."""
    partition = RowType(fields=tuple(schema.field(name) for name in schema.partition_keys))
    types = {_PARTITION: partition, _BUCKET: INT, _FILE_PATH: STRING, _ROW_INDEX: BIGINT}
    return tuple(Field(-1, name, types[name]) for name in hidden)


def hidden_among(names: Sequence[str], schema: Schema) -> tuple[str, ...]:
    """The names that are those of hidden columns; a column of the table of such a name is that column."""
    return tuple(name for name in names if name in HIDDEN_COLUMNS and name not in schema.names)


def require_raw(splits: Iterable[Split], hidden: Sequence[str]) -> None:
    """Refuse the path and row index of merged rows: such a row may combine rows of several files.

    Raises:
        UnsupportedError: one of them is asked for, and rows have to be merged.
    """
    wrong = next((name for name in (_FILE_PATH, _ROW_INDEX) if name in hidden), None)
    if wrong is not None and not all(split.raw_convertible for split in splits):
        raise UnsupportedError(
            "hidden column is available only for rows that need no merge",
            column=wrong,
            hint="leave it out, compact the table first, or read only compacted files: scan().read_optimized()",
        )


def address_of(root: str, split: Split, file: DataFile) -> str:
    """The full address of a file, the same as in the system table `files`."""
    root = root.rstrip("/")
    return file.external_path or f"{'file:' if root.startswith('/') else ''}{root}/{split.path_of(file)}"


def read_placed_rows(
    context: TableContext, splits: Iterable[Split], request: ReadRequest, hidden: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of splits that `require_raw` accepts: the columns of the request, and behind them the hidden ones.

    Raises:
        FormatError: a file is missing or damaged.
        InvalidInputError: a version is one that the merge engine does not accept.
    """
    left = request.limit
    unlimited = replace(request, limit=None, positions=False)
    for split in splits:
        for batch in _read_split(context, split, unlimited, hidden):
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            if batch.num_rows:
                yield batch
            if left == 0:
                return


def _read_split(
    context: TableContext, split: Split, request: ReadRequest, hidden: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    if not split.raw_convertible:
        for rows in read_rows(context, [split], request):
            yield _add_place(rows, context, split, None, request, hidden)
        return
    positioned = replace(request, positions=_ROW_INDEX in hidden)
    for file in split.files:
        for rows in read_data_file(context.store, split, file, positioned):
            yield _add_place(rows, context, split, file, request, hidden)


def _add_place(
    rows: pa.RecordBatch,
    context: TableContext,
    split: Split,
    file: DataFile | None,
    request: ReadRequest,
    hidden: Sequence[str],
) -> pa.RecordBatch:
    if not hidden:
        return rows
    count = rows.num_rows
    columns = {name: rows.column(name) for name in request.columns}
    for name in hidden:
        if name == _PARTITION:
            columns[name] = _partition(split, context.schema, count)
        elif name == _BUCKET:
            columns[name] = pa.repeat(pa.scalar(split.bucket, pa.int32()), count)
        elif name == _ROW_INDEX:
            columns[name] = rows.column(ROW_NUMBER)
        else:
            assert file is not None
            columns[name] = pa.repeat(pa.scalar(address_of(context.store.env.io.root, split, file)), count)
    return pa.RecordBatch.from_pydict(columns)


def _partition(split: Split, schema: Schema, count: int) -> pa.Array:
    if not schema.partition_keys:
        return pa.Array.from_buffers(pa.struct([]), count, [None])
    values = decode_rows(pa.array([split.partition], pa.binary()), schema.partition_types)
    one = pa.StructArray.from_arrays(values, fields=[arrow_field(schema.field(name)) for name in schema.partition_keys])
    return one.take(pa.array(np.zeros(count, np.int64)))
