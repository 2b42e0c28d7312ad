"""Changes as one row per change: every column is a list, and the two rows of an update are packed together.

The two rows of an update are adjacent: a `+U` directly after a `-U` of the same key belongs to it, even if a file ends
between them. A `-U` without a `+U` stays a row of its own.

Invariant: an update is kept or dropped as a whole. A condition keeps a change if one of its rows satisfies it. Before
rows are packed only the part of the condition on keys and partitions may drop rows: it is the same for both rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.expr.evaluate import matches
from tidelake.expr.tree import Predicate
from tidelake.ops.read.changes import KINDS
from tidelake.ops.scan.changes import shared_by_halves
from tidelake.ops.scan.request import ReadRequest
from tidelake.spec.rows.binary_row import encode_rows
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import with_nullable

_BEFORE, _AFTER = KINDS[1], KINDS[2]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def binlog_schema(changes: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """The schema of packed changes: the columns of the table are lists."""
    wrapped = set(columns)
    return pa.schema(
        [
            pa.field(each.name, pa.list_(pa.field("item", each.type, nullable=True))) if each.name in wrapped else each
            for each in changes
        ]
    )


def halves(request: ReadRequest) -> ReadRequest:
    """What has to be read for `pack_updates` to answer a request: both rows of each update, and their keys."""
    if not request.schema.primary_keys:
        return replace(request, limit=None)
    looked_at = sorted(request.where.columns()) if request.where is not None else ()
    columns = dict.fromkeys((*request.columns, *_identity(request.schema), *looked_at))
    where = shared_by_halves(request.where, request.schema)
    return replace(request, columns=tuple(columns), where=where, limit=None)


def pack_updates(batches: Iterable[pa.RecordBatch], request: ReadRequest) -> Iterator[pa.RecordBatch]:
    """Changes with the two rows of each update in one; a batch that ends between the two waits for the next.

    Args:
        batches: The changes that `halves` of the request asks for.
        request: What is wanted of packed changes; its limit is left to the caller.
    """
    names = request.arrow_schema.names
    schema = binlog_schema(request.arrow_schema, request.columns)
    where = request.where if request.schema.primary_keys else None
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
            yield from _choose(batch, _heads(batch, request.schema), names, schema, where)
    if held is not None:
        yield from _choose(held, np.zeros(1, np.int64), names, schema, where)


def _identity(schema: Schema) -> tuple[str, ...]:
    """What the two rows of an update have in common."""
    return tuple(dict.fromkeys((*schema.partition_keys, *schema.primary_keys)))


def _heads(batch: pa.RecordBatch, schema: Schema) -> np.ndarray:
    """Where rows that come out begin: everywhere but at a row after an update that follows the one before it."""
    kinds = batch.column(0)
    before = pc.equal(kinds, _BEFORE).to_numpy(zero_copy_only=False)
    after = pc.equal(kinds, _AFTER).to_numpy(zero_copy_only=False)
    places = np.flatnonzero(before[:-1] & after[1:])
    places = places[_of_one_key(batch, places, schema)]
    return np.delete(np.arange(batch.num_rows), places + 1)


def _of_one_key(batch: pa.RecordBatch, places: np.ndarray, schema: Schema) -> Flags:
    """Whether the rows at places and those right behind them belong to the same key."""
    names = _identity(schema)
    types = [with_nullable(schema.field(name).type, True) for name in names]
    first, second = (
        encode_rows([batch.column(name).take(pa.array(rows)) for name in names], types, length=len(rows))
        for rows in (places, places + 1)
    )
    same: Flags = pc.equal(first, second).to_numpy(zero_copy_only=False)
    return same


def _choose(
    batch: pa.RecordBatch, heads: np.ndarray, names: Sequence[str], schema: pa.Schema, where: Predicate | None
) -> Iterator[pa.RecordBatch]:
    """The changes of which one row fulfils the condition."""
    rows = _pack(batch.select(names), heads, schema)
    if where is not None:
        columns = {name: batch.column(name) for name in where.columns()}
        hits = pc.fill_null(matches(where, columns, batch.num_rows), False).to_numpy(zero_copy_only=False)
        rows = rows.filter(pa.array(np.logical_or.reduceat(hits, heads)))
    if rows.num_rows:
        yield rows


def _pack(batch: pa.RecordBatch, heads: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
    offsets = pa.array(np.append(heads, batch.num_rows), pa.int32())
    last = pa.array(np.append(heads[1:], batch.num_rows) - 1)
    columns = []
    for field, values in zip(schema, batch.columns, strict=True):
        if pa.types.is_list(field.type) and field.type != values.type:
            columns.append(pa.ListArray.from_arrays(offsets, values, type=field.type))
        else:
            columns.append(values.take(last))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
