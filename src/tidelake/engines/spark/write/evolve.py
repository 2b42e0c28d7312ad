"""Compare the columns of a frame with those of a table, and refuse what does not fit before a job runs.

Columns are matched by name. A column that the frame does not have gets its default or null. A column that the table
does not have is refused, or added if `write.merge-schema` allows it. Errors that depend on values, such as a number
that is too large, are left to the tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from tidelake.engines.spark.bridge.types import from_spark, spark_arrow
from tidelake.errors import InvalidInputError
from tidelake.ops.define.merge_schema import MergeSchemaOptions, plan_merge
from tidelake.ops.write.kinds import ROWKIND
from tidelake.ops.write.rows import conform
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import DataType, Field, Root
from tidelake.table import Table


def evolve_table(table: Table, frame: DataFrame, row_kind: str | None) -> Table:
    """Add the new columns of the frame to the table, if its options allow that, and return the changed table.

    The table must be given with its newest schema.

    Raises:
        InvalidInputError: a change is not allowed; nothing was changed.
    """
    if not table.context.options.of(MergeSchemaOptions).merge:
        return table
    given = [
        Field(number, each.name, _table_type(each))
        for number, each in enumerate(_data_columns(frame, table.schema, row_kind))
        if not isinstance(each.dataType, spark.NullType)
    ]
    return add_columns(table, given)


def add_columns(table: Table, fields: Sequence[Field]) -> Table:
    """Add the columns that the table does not have yet, as far as its options allow, and return the changed table.

    Raises:
        InvalidInputError: a change is not allowed; nothing was changed.
    """
    changes = plan_merge(table.schema, fields, table.context.options)
    return replace(table.alter(*changes), dynamic=table.dynamic) if changes else table


def check_columns(frame: DataFrame, schema: Schema, row_kind: str | None) -> None:
    """Check that the columns of a frame can be written to a table.

    Raises:
        InvalidInputError: the table does not have a column, a column that must not be null is missing, or a type does
            not fit.
    """
    if row_kind is not None and row_kind not in frame.columns:
        raise InvalidInputError(
            "the row-kind column does not exist in the data",
            column=row_kind,
            hint="pass the name of an existing column",
        )
    given = _data_columns(frame, schema, row_kind)
    known = {field.name: field.type for field in schema.fields}
    arrays = [pa.array([], _arrow(each, known.get(each.name))) for each in given]
    conform(pa.RecordBatch.from_arrays(arrays, names=[each.name for each in given]), schema)
    names = {each.name for each in given}
    for field in schema.fields:
        if field.name not in names and not field.type.nullable and field.default is None:
            raise InvalidInputError(
                "column must not be null",
                code="null-value",
                column=field.name,
                hint="the data does not have the column",
            )


def _data_columns(frame: DataFrame, schema: Schema, row_kind: str | None) -> list[spark.StructField]:
    """The columns of the frame without that of the row kinds."""
    kind = row_kind or ROWKIND
    return [each for each in frame.schema.fields if each.name != kind or each.name in schema.names]


def _table_type(column: spark.StructField) -> DataType:
    try:
        return from_spark(column.dataType, column.nullable)
    except InvalidInputError as error:
        error.facts.setdefault("column", column.name)
        raise


def _arrow(column: spark.StructField, wanted: DataType | None) -> pa.DataType:
    if isinstance(column.dataType, spark.NullType):
        return pa.null()
    if wanted is not None and wanted.root is Root.TIME and isinstance(column.dataType, spark.IntegerType):
        return pa.time32("ms")
    return spark_arrow(_table_type(column))
