"""Batches as Spark hands them over: in the columns and types of the table, and large enough for the work on each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from tidelake.engines.spark.assign import CODE
from tidelake.engines.spark.buckets import TASK, from_spark_time
from tidelake.engines.spark.types import from_spark_column
from tidelake.ops.write.kinds import batches_with_kinds
from tidelake.spec.arrow_types import row_to_arrow
from tidelake.spec.schema import Schema
from tidelake.spec.types import Root
from tidelake.table import Table

KIND: Final = "__tidelake_kind"
"""The column of kinds of rows that come from tasks of ours: numbers, and all values are fitted."""
_JOINED_ROWS: Final = 1 << 17
_JOINED_BYTES: Final = 64 << 20


def rows_of(
    batch: pa.RecordBatch, table: Table, row_kind: str | None
) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
    """Rows as Spark hands them over, in the columns and types of the table, with their kinds.

    Raises:
        InvalidInputError: a value does not fit.
    """
    if row_kind == KIND:
        yield fitted_rows(batch, table.schema), batch.column(KIND)
        return
    ours = [name for name in (TASK, CODE) if name in batch.schema.names]
    if ours:
        batch = batch.drop_columns(ours)
    for field in table.schema.fields:
        if field.type.root is Root.TIME and field.name in batch.schema.names:
            place = batch.schema.get_field_index(field.name)
            batch = batch.set_column(place, field.name, from_spark_time(batch.column(place), field))
    yield from batches_with_kinds(batch, table.schema, column=row_kind, field=table.options.get("rowkind.field"))


def fitted_rows(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Rows that have been fitted to the table already, in its types: what is null stays so."""
    columns = [from_spark_column(batch.column(each.name), each.type) for each in schema.fields]
    return pa.RecordBatch.from_arrays(columns, schema=row_to_arrow(schema.fields))


def joined(
    batches: Iterable[pa.RecordBatch], rows: int = _JOINED_ROWS, size: int = _JOINED_BYTES
) -> Iterator[pa.RecordBatch]:
    """The rows in batches worth the work that each one makes; those of Spark are small."""
    waiting: list[pa.RecordBatch] = []
    count = held = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        count, held = count + batch.num_rows, held + batch.nbytes
        if count >= rows or held >= size:
            yield pa.concat_batches(waiting)
            waiting, count, held = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)
