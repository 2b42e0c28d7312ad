"""Conversion between the types of the format and Arrow types.

`to_arrow` returns the one canonical Arrow type of each type; the vectorised codecs work on these. `from_arrow` accepts
only Arrow types with an exact counterpart. It refuses others by name and never narrows a type silently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.spec.types.data_types import (
    LENGTH_MAX,
    DataType,
    DecimalType,
    ElementType,
    Field,
    LengthType,
    MapType,
    Root,
    RowType,
    SimpleType,
    TimeType,
    VectorType,
)

__all__ = ["arrow_field", "from_arrow", "row_to_arrow", "to_arrow"]

_DECIMAL_PRECISION_MAX: Final = 38

_FIXED: Final = {
    Root.BOOLEAN: pa.bool_(),
    Root.TINYINT: pa.int8(),
    Root.SMALLINT: pa.int16(),
    Root.INT: pa.int32(),
    Root.BIGINT: pa.int64(),
    Root.FLOAT: pa.float32(),
    Root.DOUBLE: pa.float64(),
    Root.DATE: pa.date32(),
    Root.TIME: pa.time32("ms"),
    Root.CHAR: pa.string(),
    Root.VARCHAR: pa.string(),
    Root.BINARY: pa.binary(),
    Root.VARBINARY: pa.binary(),
    Root.BLOB: pa.binary(),
    Root.GEOMETRY: pa.binary(),
    Root.GEOGRAPHY: pa.binary(),
    Root.VARIANT: pa.struct(
        [pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False)]
    ),
}

_VECTOR_ELEMENTS: Final = frozenset(
    {Root.BOOLEAN, Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.FLOAT, Root.DOUBLE}
)


def to_arrow(dtype: DataType) -> pa.DataType:
    """The canonical Arrow type. Whether the type itself is nullable belongs to the Arrow field that has it."""
    match dtype:
        case DecimalType(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case TimeType(root=Root.TIMESTAMP, precision=precision):
            return pa.timestamp(_unit(precision))
        case TimeType(root=Root.TIMESTAMP_LTZ, precision=precision):
            return pa.timestamp(_unit(precision), tz="UTC")
        case ElementType(root=Root.MULTISET, element=element):
            return pa.map_(_child("key", element, nullable=False), pa.field("value", pa.int32(), nullable=False))
        case ElementType(element=element):
            return pa.list_(_child("element", element))
        case MapType(key=key, value=value):
            # In Arrow a map key is never nullable, also where the declared type allows null.
            return pa.map_(_child("key", key, nullable=False), _child("value", value))
        case VectorType(element=element, length=length):
            return pa.list_(_child("element", element), length)
        case RowType(fields=fields):
            return pa.struct([arrow_field(field) for field in fields])
    return _FIXED[dtype.root]


def arrow_field(field: Field) -> pa.Field:
    """The Arrow field of a column or member, with its id and comment as metadata."""
    metadata = {"PARQUET:field_id": str(field.id)}
    if field.description is not None:
        metadata["comment"] = field.description
    return pa.field(field.name, to_arrow(field.type), nullable=field.type.nullable, metadata=metadata)


def row_to_arrow(fields: Sequence[Field]) -> pa.Schema:
    """The Arrow schema of columns."""
    return pa.schema([arrow_field(field) for field in fields])


def from_arrow(arrow_type: pa.DataType, nullable: bool = True) -> DataType:
    """The type of a column with this Arrow type.

    Members of a struct get their position as id; `new_schema` and `evolution` replace it by the permanent id.

    Raises:
        InvalidInputError: The Arrow type has no exact counterpart.
    """
    for accepts, convert in _RULES:
        if accepts(arrow_type):
            return convert(arrow_type, nullable)
    raise _type_error(arrow_type, _hint(arrow_type))


def _unit(precision: int) -> str:
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


def _child(name: str, dtype: DataType, *, nullable: bool | None = None) -> pa.Field:
    return pa.field(name, to_arrow(dtype), nullable=dtype.nullable if nullable is None else nullable)


def _type_error(arrow_type: pa.DataType, hint: str) -> InvalidInputError:
    return InvalidInputError("Arrow type has no counterpart in the table format", arrow_type=arrow_type, hint=hint)


def _hint(arrow_type: pa.DataType) -> str:
    kinds = pa.types
    if kinds.is_unsigned_integer(arrow_type):
        return "cast the column to a signed integer that is wide enough, or to decimal128(20, 0)"
    if kinds.is_float16(arrow_type):
        return "cast the column to float32"
    if kinds.is_time64(arrow_type):
        return "TIME keeps milliseconds: cast the column to time32('ms') or to int64"
    if kinds.is_duration(arrow_type) or kinds.is_interval(arrow_type):
        return "store the duration as int64 in a unit of your choice"
    if kinds.is_null(arrow_type):
        return "give the column a type, for example string"
    if isinstance(arrow_type, pa.BaseExtensionType):
        return "cast the column to the storage type of the extension"
    return "cast the column to a supported type"


def _simple(root: Root) -> Callable[[pa.DataType, bool], DataType]:
    return lambda _, nullable: SimpleType(root, nullable)


def _text(root: Root) -> Callable[[pa.DataType, bool], DataType]:
    return lambda _, nullable: LengthType(root, nullable, LENGTH_MAX)


def _decimal(arrow_type: pa.DataType, nullable: bool) -> DataType:
    precision, scale = arrow_type.precision, arrow_type.scale
    if precision > _DECIMAL_PRECISION_MAX or not 0 <= scale <= precision:
        raise _type_error(arrow_type, "cast to a decimal of at most 38 digits with a scale from 0 to its precision")
    return DecimalType(nullable=nullable, precision=precision, scale=scale)


def _fixed_binary(arrow_type: pa.DataType, nullable: bool) -> DataType:
    if arrow_type.byte_width < 1:
        raise _type_error(arrow_type, "cast the column to binary")
    return LengthType(Root.BINARY, nullable, arrow_type.byte_width)


def _time32(arrow_type: pa.DataType, nullable: bool) -> DataType:
    return TimeType(Root.TIME, nullable, 0 if arrow_type.unit == "s" else 3)


def _timestamp(arrow_type: pa.DataType, nullable: bool) -> DataType:
    root = Root.TIMESTAMP if arrow_type.tz is None else Root.TIMESTAMP_LTZ
    return TimeType(root, nullable, {"s": 0, "ms": 3, "us": 6, "ns": 9}[arrow_type.unit])


def _value_type(arrow_type: pa.DataType, nullable: bool) -> DataType:
    return from_arrow(arrow_type.value_type, nullable)


def _list(arrow_type: pa.DataType, nullable: bool) -> DataType:
    item = arrow_type.value_field
    return ElementType(Root.ARRAY, nullable, from_arrow(item.type, item.nullable))


def _vector(arrow_type: pa.DataType, nullable: bool) -> DataType:
    element = from_arrow(arrow_type.value_field.type, arrow_type.value_field.nullable)
    if element.root in _VECTOR_ELEMENTS and arrow_type.list_size >= 1:
        return VectorType(nullable=nullable, element=element, length=arrow_type.list_size)
    return ElementType(Root.ARRAY, nullable, element)


def _map(arrow_type: pa.DataType, nullable: bool) -> DataType:
    key, item = arrow_type.key_field, arrow_type.item_field
    return MapType(nullable=nullable, key=from_arrow(key.type, False), value=from_arrow(item.type, item.nullable))


def _row(arrow_type: pa.DataType, nullable: bool) -> DataType:
    members = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
    fields = tuple(Field(index, m.name, from_arrow(m.type, m.nullable)) for index, m in enumerate(members))
    return RowType(nullable=nullable, fields=fields)


_Rule = tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, bool], DataType]]
_RULES: Final[tuple[_Rule, ...]] = (
    (pa.types.is_boolean, _simple(Root.BOOLEAN)),
    (pa.types.is_int8, _simple(Root.TINYINT)),
    (pa.types.is_int16, _simple(Root.SMALLINT)),
    (pa.types.is_int32, _simple(Root.INT)),
    (pa.types.is_int64, _simple(Root.BIGINT)),
    (pa.types.is_float32, _simple(Root.FLOAT)),
    (pa.types.is_float64, _simple(Root.DOUBLE)),
    (pa.types.is_date, _simple(Root.DATE)),
    (pa.types.is_string, _text(Root.VARCHAR)),
    (pa.types.is_large_string, _text(Root.VARCHAR)),
    (pa.types.is_string_view, _text(Root.VARCHAR)),
    (pa.types.is_fixed_size_binary, _fixed_binary),
    (pa.types.is_binary, _text(Root.VARBINARY)),
    (pa.types.is_large_binary, _text(Root.VARBINARY)),
    (pa.types.is_binary_view, _text(Root.VARBINARY)),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_time32, _time32),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_dictionary, _value_type),
    (pa.types.is_run_end_encoded, _value_type),
    (pa.types.is_list, _list),
    (pa.types.is_large_list, _list),
    (pa.types.is_list_view, _list),
    (pa.types.is_large_list_view, _list),
    (pa.types.is_fixed_size_list, _vector),
    (pa.types.is_map, _map),
    (pa.types.is_struct, _row),
)
