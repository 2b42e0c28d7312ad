"""The source of a merge: any supported data as one Arrow table whose columns have types that expressions can use."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.ops.write.frames import plain_frame
from tidelake.ops.write.rows import arrow_batches, join_batches
from tidelake.ops.write.values import check_exact_cast, unfit
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import from_arrow, row_to_arrow, to_arrow
from tidelake.spec.types.data_types import STRING, DataType, Field


def typed_source(data: Any, schema: Schema) -> tuple[pa.Table, tuple[Field, ...]]:
    """The rows of a source, in memory, and their columns.

    Values without a type of their own (in dicts, or only nulls) get the type of the table's column of the same name.

    Raises:
        InvalidInputError: the data has no rows and columns, a column twice, or a column that a table cannot store.
    """
    data = plain_frame(data)
    batches = list(arrow_batches(data, schema))
    if batches:
        table = join_batches(batches)
    elif isinstance(data, pa.Table | pa.RecordBatchReader) or hasattr(data, "schema"):
        table = _empty(data, schema)
    else:
        table = row_to_arrow(schema.fields).empty_table()
    names = table.schema.names
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise InvalidInputError(
            "data has a column twice", code="column-duplicate", column=twice, hint="rename or drop one of the two"
        )
    known = {field.name: field.type for field in schema.fields}
    fields = tuple(Field(number, each.name, _type(each, known)) for number, each in enumerate(table.schema))
    columns = [_column(table.column(field.name), field) for field in fields]
    return pa.Table.from_arrays(columns, names=[field.name for field in fields]), fields


def _empty(data: Any, schema: Schema) -> pa.Table:
    """An empty table with the columns of the data."""
    arrow = data.schema
    return arrow.empty_table() if isinstance(arrow, pa.Schema) else row_to_arrow(schema.fields).empty_table()


def _type(column: pa.Field, known: dict[str, DataType]) -> DataType:
    if pa.types.is_null(column.type):
        return known.get(column.name, STRING)
    try:
        return from_arrow(column.type, True)
    except InvalidInputError as error:
        error.facts.setdefault("column", column.name)
        raise


def _column(values: pa.ChunkedArray, field: Field) -> pa.Array:
    try:
        return check_exact_cast(values.combine_chunks(), to_arrow(field.type))
    except (pa.ArrowException, ValueError) as cause:
        raise unfit(field.name, field.type, str(cause)) from cause
