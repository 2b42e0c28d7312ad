"""Prepare the batches of Spark for a writer: convert them to the types of the table, and join small ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from tidelake.engines.spark.bridge.types import from_spark_column
from tidelake.engines.spark.write.buckets import TASK, from_spark_time
from tidelake.engines.spark.write.dynamic_buckets import PLACEMENT
from tidelake.ops.write.kinds import batches_with_kinds
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import row_to_arrow
from tidelake.spec.types.data_types import Root
from tidelake.table import Table

KIND: Final = "__tidelake_kind"
"""The column of row kinds, as numbers, in rows from our own tasks, whose values have been checked already."""
_JOINED_ROWS: Final = 1 << 17
_JOINED_BYTES: Final = 64 << 20


def convert_rows(
    batch: pa.RecordBatch, table: Table, row_kind: str | None
) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
    """Convert rows from Spark to the columns and types of the table, and yield them with their kinds.

    Raises:
        InvalidInputError: a value does not fit.
    """
    if row_kind == KIND:
        yield cast_rows(batch, table.schema), batch.column(KIND)
        return
    ours = [name for name in (TASK, PLACEMENT) if name in batch.schema.names]
    if ours:
        batch = batch.drop_columns(ours)
    for field in table.schema.fields:
        if field.type.root is Root.TIME and field.name in batch.schema.names:
            index = batch.schema.get_field_index(field.name)
            batch = batch.set_column(index, field.name, from_spark_time(batch.column(index), field))
    yield from batches_with_kinds(batch, table.schema, column=row_kind, field=table.options.get("rowkind.field"))


def cast_rows(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Cast rows whose values have been checked already; a null stays null instead of becoming the default."""
    columns = [from_spark_column(batch.column(each.name), each.type) for each in schema.fields]
    return pa.RecordBatch.from_arrays(columns, schema=row_to_arrow(schema.fields))


def join_batches(
    batches: Iterable[pa.RecordBatch], rows: int = _JOINED_ROWS, size: int = _JOINED_BYTES
) -> Iterator[pa.RecordBatch]:
    """Join the small batches of Spark, because every batch costs a writer a sort."""
    held: list[pa.RecordBatch] = []
    count = held_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        count, held_bytes = count + batch.num_rows, held_bytes + batch.nbytes
        if count >= rows or held_bytes >= size:
            yield pa.concat_batches(held)
            held, count, held_bytes = [], 0, 0
    if held:
        yield pa.concat_batches(held)
