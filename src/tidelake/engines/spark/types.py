"""Types of the format in Spark, and the Arrow data that crosses between the two.

Spark keeps microseconds and knows neither TIME (it reads milliseconds of the day) nor bags (it reads counts): what it
sees of those is a view, and only the rest can be written back as it was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.spec import types as paimon
from tidelake.spec.arrow_types import to_arrow
from tidelake.spec.types import Root

_SIMPLE: Final[dict[Root, spark.DataType]] = {
    Root.BOOLEAN: spark.BooleanType(),
    Root.TINYINT: spark.ByteType(),
    Root.SMALLINT: spark.ShortType(),
    Root.INT: spark.IntegerType(),
    Root.BIGINT: spark.LongType(),
    Root.FLOAT: spark.FloatType(),
    Root.DOUBLE: spark.DoubleType(),
    Root.DATE: spark.DateType(),
    Root.TIME: spark.IntegerType(),
    Root.TIMESTAMP: spark.TimestampNTZType(),
    Root.TIMESTAMP_LTZ: spark.TimestampType(),
    Root.CHAR: spark.StringType(),
    Root.VARCHAR: spark.StringType(),
    Root.BINARY: spark.BinaryType(),
    Root.VARBINARY: spark.BinaryType(),
    Root.BLOB: spark.BinaryType(),
}
_BACK: Final[dict[type[spark.DataType], paimon.DataType]] = {
    spark.BooleanType: paimon.BOOLEAN,
    spark.ByteType: paimon.TINYINT,
    spark.ShortType: paimon.SMALLINT,
    spark.IntegerType: paimon.INT,
    spark.LongType: paimon.BIGINT,
    spark.FloatType: paimon.FLOAT,
    spark.DoubleType: paimon.DOUBLE,
    spark.DateType: paimon.DATE,
    spark.StringType: paimon.STRING,
    spark.BinaryType: paimon.BYTES,
    spark.TimestampNTZType: paimon.TimeType(Root.TIMESTAMP, precision=6),
    spark.TimestampType: paimon.TimeType(Root.TIMESTAMP_LTZ, precision=6),
}


def to_spark(dtype: paimon.DataType) -> spark.DataType:
    """How Spark sees a type. CHAR and VARCHAR are texts: Spark knows their lengths only in its own catalogs.

    Raises:
        UnsupportedError: Spark has no counterpart.
    """
    match dtype:
        case paimon.DecimalType(precision=precision, scale=scale):
            return spark.DecimalType(precision, scale)
        case paimon.ElementType(root=Root.MULTISET, element=element):
            return spark.MapType(to_spark(element), spark.IntegerType(), valueContainsNull=False)
        case paimon.ElementType(element=element) | paimon.VectorType(element=element):
            return spark.ArrayType(to_spark(element), containsNull=element.nullable)
        case paimon.MapType(key=key, value=value):
            return spark.MapType(to_spark(key), to_spark(value), valueContainsNull=value.nullable)
        case paimon.RowType(fields=fields):
            return struct_of(fields)
    found = _SIMPLE.get(dtype.root)
    if found is None:
        raise UnsupportedError("type cannot be read by Spark", type=str(dtype), hint="leave the column out: columns=")
    return found


def struct_of(fields: Sequence[paimon.Field]) -> spark.StructType:
    """How Spark sees columns.

    Raises:
        UnsupportedError: Spark has no counterpart to the type of one.
    """
    members = []
    for field in fields:
        comment = {} if field.description is None else {"comment": field.description}
        members.append(spark.StructField(field.name, to_spark(field.type), field.type.nullable, comment))
    return spark.StructType(members)


def from_spark(dtype: spark.DataType, nullable: bool = True) -> paimon.DataType:
    """The type of a column that is made for data of Spark.

    Raises:
        InvalidInputError: the type has no counterpart.
    """
    match dtype:
        case spark.DecimalType():
            return paimon.DecimalType(nullable=nullable, precision=dtype.precision, scale=dtype.scale)
        case spark.CharType():
            return paimon.LengthType(Root.CHAR, nullable, dtype.length)
        case spark.VarcharType():
            return paimon.LengthType(Root.VARCHAR, nullable, dtype.length)
        case spark.ArrayType():
            return paimon.ElementType(Root.ARRAY, nullable, from_spark(dtype.elementType, dtype.containsNull))
        case spark.MapType():
            value = from_spark(dtype.valueType, dtype.valueContainsNull)
            return paimon.MapType(nullable=nullable, key=from_spark(dtype.keyType, False), value=value)
        case spark.StructType():
            fields = (
                paimon.Field(number, each.name, from_spark(each.dataType, each.nullable))
                for number, each in enumerate(dtype.fields)
            )
            return paimon.RowType(nullable=nullable, fields=tuple(fields))
    found = next((_BACK[each] for each in type(dtype).__mro__ if each in _BACK), None)
    if found is None:
        raise InvalidInputError(
            "Spark type has no counterpart in the table format", type=dtype.simpleString(), hint="cast the column"
        )
    return paimon.with_nullable(found, nullable)


def spark_arrow(dtype: paimon.DataType) -> pa.DataType:
    """The Arrow type in which Spark takes a column in."""
    match dtype:
        case paimon.TimeType(root=Root.TIME):
            return pa.int32()
        case paimon.TimeType(root=Root.TIMESTAMP):
            return pa.timestamp("us")
        case paimon.TimeType(root=Root.TIMESTAMP_LTZ):
            return pa.timestamp("us", tz="UTC")
        case paimon.ElementType(root=Root.MULTISET, element=element):
            return pa.map_(spark_arrow(element), pa.int32())
        case paimon.ElementType(element=element) | paimon.VectorType(element=element):
            return pa.list_(spark_arrow(element))
        case paimon.MapType(key=key, value=value):
            return pa.map_(spark_arrow(key), spark_arrow(value))
        case paimon.RowType(fields=fields):
            return pa.struct([pa.field(each.name, spark_arrow(each.type)) for each in fields])
    return to_arrow(dtype)


def to_spark_batch(batch: pa.RecordBatch, fields: Sequence[paimon.Field]) -> pa.RecordBatch:
    """Rows of the table's types as Spark takes them in; digits below a microsecond are cut off."""
    columns = []
    for column, field in zip(batch.columns, fields, strict=True):
        wanted = spark_arrow(field.type)
        columns.append(column if column.type == wanted else pc.cast(column, wanted, safe=False))
    return pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])


def from_spark_column(column: pa.Array, dtype: paimon.DataType) -> pa.Array:
    """A column as Spark hands it out, in the canonical type of the table."""
    wanted = to_arrow(dtype)
    return column if column.type == wanted else pc.cast(column, wanted, safe=False)
