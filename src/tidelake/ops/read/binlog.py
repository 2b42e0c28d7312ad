"""Changes as one row per change: every column a list, the two halves of an update packed together.

A row before an update and the one after it lie next to each other: a `+U` right behind a `-U` goes with it. A `-U` that
has none stays a row by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ops.read.changes import KINDS

_BEFORE, _AFTER = KINDS[1], KINDS[2]


def binlog_schema(changes: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """The schema of packed changes: the columns of the table are lists."""
    wrapped = set(columns)
    return pa.schema(
        [
            pa.field(each.name, pa.list_(pa.field("item", each.type, nullable=True))) if each.name in wrapped else each
            for each in changes
        ]
    )


def packed(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Changes with the two rows of each update in one; a batch that ends between the two waits for the next."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        if held is not None:
            batch = pa.concat_batches([held, batch])
            held = None
        if batch.column(0)[-1] == _BEFORE:
            held, batch = batch.slice(batch.num_rows - 1), batch.slice(0, batch.num_rows - 1)
        if batch.num_rows:
            yield _packed(batch, _heads(batch), schema)
    if held is not None:
        yield _packed(held, np.zeros(1, np.int64), schema)


def _heads(batch: pa.RecordBatch) -> np.ndarray:
    """Where rows that come out begin: everywhere but at a row after an update that follows the one before it."""
    kinds = batch.column(0)
    before = pc.equal(kinds, _BEFORE).to_numpy(zero_copy_only=False)
    after = pc.equal(kinds, _AFTER).to_numpy(zero_copy_only=False)
    follows = np.zeros(batch.num_rows, bool)
    follows[1:] = before[:-1] & after[1:]
    return np.flatnonzero(~follows)


def _packed(batch: pa.RecordBatch, heads: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
    offsets = pa.array(np.append(heads, batch.num_rows), pa.int32())
    last = pa.array(np.append(heads[1:], batch.num_rows) - 1)
    columns = []
    for field, values in zip(schema, batch.columns, strict=True):
        if pa.types.is_list(field.type) and field.type != values.type:
            columns.append(pa.ListArray.from_arrays(offsets, values, type=field.type))
        else:
            columns.append(values.take(last))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
