"""The columns that a data source returns to Spark, and the rows of splits in exactly these columns.

Spark compares the batches of a Python data source with the schema that it was given before, down to the nullability of
the members of nested values. Batch reads and streams share this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import types as spark

from tidelake.engines.spark.bridge.types import from_spark, spark_arrow, struct_of, to_spark, to_spark_batch
from tidelake.errors import InvalidInputError
from tidelake.ops.context import TableContext
from tidelake.ops.read.changes import read_change_rows
from tidelake.ops.read.placed import hidden_among, hidden_fields, read_placed_rows
from tidelake.ops.read.rows import read_rows
from tidelake.ops.scan.request import ReadRequest, Shape
from tidelake.ops.scan.split import Split
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import Field


def read_source_rows(
    context: TableContext, splits: Iterable[Split], request: ReadRequest, struct: spark.StructType
) -> Iterator[pa.RecordBatch]:
    """The rows of splits, with the columns of the struct; it may leave out row kinds, which the request reads.

    Raises:
        FormatError: a file is missing or damaged.
        InvalidInputError: a version is one that the merge engine does not accept.
    """
    target = arrow_schema(struct)
    hidden = hidden_among(struct.names, request.schema)
    if request.shape is Shape.ROWS:
        read = partial(read_placed_rows, hidden=hidden) if hidden else read_rows
    else:
        read = read_change_rows
    found = (*request.fields, *hidden_fields(hidden, request.schema))
    fields = [each for each in found if each.name in struct.names]
    for rows in read(context, splits, request):
        batch = to_spark_batch(rows.select([each.name for each in fields]), fields)
        columns = (batch.column(field.name).cast(field.type) for field in target)
        yield pa.RecordBatch.from_arrays(list(columns), schema=target)


def source_struct(fields: Iterable[Field]) -> spark.StructType:
    """The columns of Spark for fields of a table.

    Raises:
        UnsupportedError: Spark does not have the type of a column.
    """
    return spark.StructType(
        [
            spark.StructField(each.name, allow_null_members(each.dataType), each.nullable, each.metadata)
            for each in struct_of(list(fields))
        ]
    )


def check_struct(struct: spark.StructType, schema: Schema) -> None:
    """Compare the columns that Spark requests, or has stored in its catalog, with those of the table.

    Raises:
        InvalidInputError: a column does not exist or has another type, or no column is requested.
    """
    known = {field.name: field for field in schema.fields}
    if not struct.fields:
        raise InvalidInputError("no column is requested", hint="leave the schema out to read all columns")
    for column in struct.fields:
        field = known.get(column.name)
        if field is None:
            raise InvalidInputError(
                "table does not have a column of the requested schema",
                code="schema-mismatch",
                column=column.name,
                hint=f"columns are {', '.join(known)}; change them with alter() of the table, not with Spark's ALTER",
            )
        requested, actual = column.dataType.simpleString(), to_spark(field.type).simpleString()
        if requested != actual:
            raise InvalidInputError(
                "column has another type than in the requested schema",
                code="schema-mismatch",
                column=column.name,
                type=actual,
                given=requested,
                hint="leave the schema out, and cast the column afterwards",
            )


def allow_null_members(dtype: spark.DataType) -> spark.DataType:
    """The same type with nullable members: if the whole value is null, Arrow stores null for the members too."""
    match dtype:
        case spark.ArrayType():
            return spark.ArrayType(allow_null_members(dtype.elementType), containsNull=True)
        case spark.MapType():
            return spark.MapType(
                allow_null_members(dtype.keyType), allow_null_members(dtype.valueType), valueContainsNull=True
            )
        case spark.StructType():
            return spark.StructType(
                [spark.StructField(f.name, allow_null_members(f.dataType), True, f.metadata) for f in dtype]
            )
    return dtype


def arrow_schema(struct: spark.StructType) -> pa.Schema:
    """The Arrow schema of these columns, with the nullability of members, which Spark checks."""
    return pa.schema([_arrow_field(each.name, each.dataType, each.nullable) for each in struct.fields])


def _arrow_field(name: str, dtype: spark.DataType, nullable: bool) -> pa.Field:
    return pa.field(name, _arrow_type(dtype), nullable)


def _arrow_type(dtype: spark.DataType) -> pa.DataType:
    match dtype:
        case spark.ArrayType():
            return pa.list_(_arrow_field("element", dtype.elementType, dtype.containsNull))
        case spark.MapType():
            key = _arrow_field("key", dtype.keyType, nullable=False)
            return pa.map_(key, _arrow_field("value", dtype.valueType, dtype.valueContainsNull))
        case spark.StructType():
            return pa.struct(list(arrow_schema(dtype)))
    return spark_arrow(from_spark(dtype))
