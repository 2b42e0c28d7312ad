"""Convert types between the table format and Spark, and the Arrow data that crosses between the two.

Spark keeps microseconds, shows TIME as milliseconds of the day and MULTISET as a map of counts. Values of these types
cannot be written back as they were read; values of all other types can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.spec.types import data_types as paimon
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import Root

T = TypeVar("T", bound=spark.DataType)
_MICROS: Final = 6
_LEAVE_OUT: Final = "leave the column out: to_spark(columns=[...]) reads the others"
_CASTS: Final = {
    "TimeType": "cast the column to int milliseconds of the day, or to timestamp",
    "NullType": "give the column a type: cast it, for example to string",
    "DayTimeIntervalType": "store the length of time as bigint in a unit of your choice",
    "YearMonthIntervalType": "store the length of time as int months",
    "CalendarIntervalType": "store the length of time as bigint in a unit of your choice",
    "VariantType": "turn the column into text with to_json",
}
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
    """Convert a type to that of Spark. CHAR and VARCHAR become STRING: Spark keeps lengths only in its own catalogs.

    Raises:
        UnsupportedError: Spark does not have such a type.
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
        raise UnsupportedError("Spark cannot read this type", type=str(dtype), hint=_LEAVE_OUT)
    return found


def struct_of(fields: Sequence[paimon.Field]) -> spark.StructType:
    """Convert columns to a struct of Spark.

    Raises:
        UnsupportedError: Spark does not have the type of one of them.
    """
    members = []
    for field in fields:
        try:
            dtype = to_spark(field.type)
        except UnsupportedError as cause:
            cause.facts["column"] = field.name  # for a nested field this ends up as the outermost column
            raise
        members.append(spark.StructField(field.name, dtype, field.type.nullable, comment_of(field)))
    return spark.StructType(members)


def comment_of(field: paimon.Field) -> dict[str, str]:
    """The metadata in which Spark keeps the comment of a column."""
    return {} if field.description is None else {"comment": field.description}


def as_nullable(dtype: T) -> T:
    """The same type with nulls allowed everywhere, as Spark's own file readers give it."""
    match dtype:
        case spark.ArrayType():
            return cast(T, spark.ArrayType(as_nullable(dtype.elementType), containsNull=True))
        case spark.MapType():
            return cast(T, spark.MapType(as_nullable(dtype.keyType), as_nullable(dtype.valueType)))
        case spark.StructType():
            members = (
                spark.StructField(each.name, as_nullable(each.dataType), True, each.metadata) for each in dtype.fields
            )
            return cast(T, spark.StructType(list(members)))
    return dtype


def from_spark(dtype: spark.DataType, nullable: bool = True) -> paimon.DataType:
    """Convert a type of Spark to that of a new column.

    Raises:
        InvalidInputError: the table format does not have such a type.
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
                paimon.Field(number, each.name, from_spark(each.dataType, each.nullable), each.metadata.get("comment"))
                for number, each in enumerate(dtype.fields)
            )
            return paimon.RowType(nullable=nullable, fields=tuple(fields))
    found = next((_BACK[each] for each in type(dtype).__mro__ if each in _BACK), None)
    if found is None:
        raise InvalidInputError(
            "Spark type has no counterpart in the table format",
            type=dtype.simpleString(),
            hint=_CASTS.get(type(dtype).__name__, "cast the column, or leave it out"),
        )
    return paimon.with_nullable(found, nullable)


def require_frame(data: object) -> DataFrame:
    """Return the data if it is a frame of Spark.

    Raises:
        InvalidInputError: it is not. A frame of pandas on Spark is refused too, because only its user knows which index
            levels should become columns.
    """
    if any(each.__module__.startswith("pyspark.pandas") for each in type(data).__mro__):
        raise InvalidInputError(
            "data is a pandas-on-Spark frame",
            got=type(data).__name__,
            hint='use frame.to_spark(index_col=["id"]), which keeps the index, or frame.to_spark(), which drops it',
        )
    if not isinstance(data, DataFrame):
        raise InvalidInputError(
            "data is neither a Spark frame nor its schema", got=type(data).__name__, hint="use toDF() first"
        )
    return data


def columns_of(data: object) -> dict[str, paimon.DataType]:
    """The columns of a new table for a frame, or for the schema of one.

    Raises:
        InvalidInputError: it is neither, two columns share a name, or the table format does not have a type.
    """
    schema = data if isinstance(data, spark.StructType) else require_frame(data).schema
    if len(set(schema.names)) < len(schema.names):
        raise InvalidInputError("two columns share a name", columns=", ".join(schema.names))
    return {each.name: from_spark(each.dataType, each.nullable) for each in schema.fields}


def spark_arrow(dtype: paimon.DataType) -> pa.DataType:
    """The Arrow type in which Spark accepts a column."""
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
    """Convert rows from the types of the table to those of Spark; digits below a microsecond are cut off."""
    columns = [to_spark_column(column, field.type) for column, field in zip(batch.columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])


def to_spark_column(column: pa.Array, dtype: paimon.DataType) -> pa.Array:
    """Convert a column from the type of the table to that of Spark, without a copy if they are the same."""
    wanted = spark_arrow(dtype)
    if column.type == wanted:
        return column
    fine = any(isinstance(each, paimon.TimeType) and each.precision > _MICROS for each in paimon.walk(dtype))
    return pc.cast(_without_nanos(column) if fine else column, wanted, safe=False)


def _without_nanos(column: pa.Array) -> pa.Array:
    """Round timestamps down to the microsecond; a cast would round those before 1970 up.

    Offsets are copied, because Arrow does not build a nested array from the offsets of a slice.
    """
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pc.floor_temporal(column, unit="microsecond").cast(pa.timestamp("us", kind.tz))
    if pa.types.is_map(kind):
        parts = _without_nanos(column.keys), _without_nanos(column.items)
        return pa.MapArray.from_arrays(_offsets(column), *parts, mask=column.is_null())
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(_offsets(column), _without_nanos(column.values), mask=column.is_null())
    if pa.types.is_struct(kind) and kind.num_fields:
        names = [kind.field(index).name for index in range(kind.num_fields)]
        members = [_without_nanos(column.field(index)) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(members, names, mask=column.is_null())
    return column


def _offsets(column: pa.Array) -> pa.Array:
    return pa.array(column.offsets.to_numpy(), pa.int32())


def from_spark_column(column: pa.Array, dtype: paimon.DataType) -> pa.Array:
    """Convert a column from the type of Spark to that of the table."""
    wanted = to_arrow(dtype)
    return column if column.type == wanted else pc.cast(column, wanted, safe=False)
