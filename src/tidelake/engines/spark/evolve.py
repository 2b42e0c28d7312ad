"""The columns of a frame beside those of a table: what does not fit is told before a job runs.

A column is found by its name. One that the frame lacks gets its default or null; one that the table lacks is refused,
or added where `write.merge-schema` allows it. What only values can tell, such as numbers that are too large, the tasks
find out.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from tidelake.engines.spark.types import from_spark, spark_arrow
from tidelake.errors import InvalidInputError
from tidelake.ops.define.merge_schema import MergeSchemaOptions, plan_merge
from tidelake.ops.write.kinds import ROWKIND
from tidelake.ops.write.rows import conform
from tidelake.spec.schema import Schema
from tidelake.spec.types import DataType, Field, Root
from tidelake.table import Table


def evolved(table: Table, frame: DataFrame, row_kind: str | None) -> Table:
    """The table with the columns that the frame has and the options allow to add.

    Raises:
        InvalidInputError: a change is not allowed; nothing was changed.
    """
    if not MergeSchemaOptions.parse(table.options).merge:
        return table
    newest = table._newest()
    given = [
        Field(number, each.name, _typed(each))
        for number, each in enumerate(_rows_of(frame, newest.schema, row_kind))
        if not isinstance(each.dataType, spark.NullType)
    ]
    changes = plan_merge(newest.schema, given, newest.options)
    return replace(newest.alter(*changes), dynamic=table.dynamic) if changes else newest


def check_columns(frame: DataFrame, schema: Schema, row_kind: str | None) -> None:
    """Look whether the columns of a frame can go into a table.

    Raises:
        InvalidInputError: a column is unknown, missing where it must not be, or of another kind.
    """
    if row_kind is not None and row_kind not in frame.columns:
        raise InvalidInputError("data has no column with row kinds", column=row_kind, hint="name one that it has")
    given = _rows_of(frame, schema, row_kind)
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


def _rows_of(frame: DataFrame, schema: Schema, row_kind: str | None) -> list[spark.StructField]:
    """The columns of the frame without the one that carries kinds."""
    kind = row_kind or ROWKIND
    return [each for each in frame.schema.fields if each.name != kind or each.name in schema.names]


def _typed(column: spark.StructField) -> DataType:
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
    return spark_arrow(_typed(column))
