"""Changes as one row per change: every column a list, the two halves of an update packed together.

A row before an update and the one after it lie next to each other, so that each `-U` takes the row that follows.
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
        if held is not None:
            batch = pa.concat_batches([held, batch])
            held = None
        heads = _heads(batch)
        if batch.num_rows and heads[-1] == batch.num_rows - 1 and batch.column(0)[-1] == _BEFORE:
            held, batch, heads = batch.slice(batch.num_rows - 1), batch.slice(0, batch.num_rows - 1), heads[:-1]
        if batch.num_rows:
            yield _packed(batch, heads, schema)
    if held is not None:
        yield _packed(held, np.zeros(1, np.int64), schema)


def _heads(batch: pa.RecordBatch) -> np.ndarray:
    """Where rows that come out begin; in a run of rows before updates every second one goes with the one before it."""
    before = pc.equal(batch.column(0), _BEFORE).to_numpy(zero_copy_only=False)
    places = np.arange(batch.num_rows)
    # How many rows before updates there are in a row up to each place.
    breaks = np.maximum.accumulate(np.where(before, -1, places))
    run = np.where(before, places - breaks, 0)
    taken = np.zeros(batch.num_rows, bool)
    taken[1:] = before[:-1] & (run[:-1] % 2 == 1)
    return np.flatnonzero(~taken)


def _packed(batch: pa.RecordBatch, heads: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
    offsets = pa.array(np.append(heads, batch.num_rows), pa.int32())
    last = pa.array(np.append(heads[1:], batch.num_rows) - 1)
    kinds = batch.column(0).take(pa.array(heads))
    front = {batch.schema.names[0]: pc.if_else(pc.equal(kinds, _BEFORE), _AFTER, kinds)}
    columns = []
    for field, values in zip(schema, batch.columns, strict=True):
        if field.name in front:
            columns.append(front[field.name])
        elif pa.types.is_list(field.type) and field.type != values.type:
            columns.append(pa.ListArray.from_arrays(offsets, values, type=field.type))
        else:
            columns.append(values.take(last))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
