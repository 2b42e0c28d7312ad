"""The types of columns in Avro data files (spec 05, section 7): the record schema, and conversions to Arrow.

Avro has neither CHAR nor TINYINT nor timestamps finer than microseconds; a type that it cannot store is refused. The
logical types of TIMESTAMP and TIMESTAMP WITH LOCAL TIME ZONE look swapped: Paimon writes them so, and the values are
counts since 1970 in either case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.errors import FormatError, UnsupportedError
from tidelake.files.stored_values import cast_stored
from tidelake.files.vector_type import check_vector_lengths
from tidelake.spec.types.arrow_nested import (
    compact,
    list_child,
    list_to_vector,
    map_children,
    rebuild_list,
    rebuild_map,
    rebuild_struct,
    struct_children,
)
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import (
    INT,
    DataType,
    DecimalType,
    ElementType,
    Field,
    MapType,
    Root,
    RowType,
    TimeType,
    VectorType,
    with_nullable,
)

__all__ = ["avro_schema", "from_avro", "plain_schema"]

AvroType = Any

_RECORD: Final = "org.apache.paimon.avro.generated.record"
_NAME: Final = re.compile(r"[^\W\d]\w*")
_TEXTS: Final = frozenset({Root.CHAR, Root.VARCHAR})
_DEPTH_MAX: Final = 64
_ATOMS: Final[dict[Root, str]] = {
    Root.TINYINT: "int",
    Root.SMALLINT: "int",
    Root.INT: "int",
    Root.BIGINT: "long",
    Root.FLOAT: "float",
    Root.DOUBLE: "double",
    Root.BOOLEAN: "boolean",
    Root.CHAR: "string",
    Root.VARCHAR: "string",
    Root.BINARY: "bytes",
    Root.VARBINARY: "bytes",
    Root.BLOB: "bytes",
}
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


def avro_schema(fields: Sequence[Field]) -> dict[str, Any]:
    """Return the record schema of a file with these columns.

    Raises:
        UnsupportedError: a name or type cannot be stored in Avro.
    """
    names: set[str] = set()
    return _record(_RECORD, fields, names)


def _record(name: str, fields: Sequence[Field], names: set[str]) -> dict[str, Any]:
    if name in names:
        raise UnsupportedError(
            "two nested rows would have the same name in Avro", name=name, hint="rename one of the columns"
        )
    names.add(name)
    members = []
    for field in fields:
        if not _NAME.fullmatch(field.name):
            raise UnsupportedError(
                "column name cannot be stored in Avro files", column=field.name, hint="use letters, digits and _"
            )
        members.append(_member(field.name, field.type, f"{name}_{field.name}", names))
    return {"type": "record", "name": name, "fields": members}


def _member(name: str, dtype: DataType, row_name: str, names: set[str]) -> dict[str, Any]:
    avro_type = _union(dtype, row_name, names)
    return {"name": name, "type": avro_type, "default": None} if dtype.nullable else {"name": name, "type": avro_type}


def _union(dtype: DataType, name: str, names: set[str]) -> AvroType:
    bare = _bare(dtype, name, names)
    return ["null", bare] if dtype.nullable else bare


def _bare(dtype: DataType, name: str, names: set[str]) -> AvroType:
    match dtype:
        case RowType(fields=fields):
            return _record(name, fields, names)
        case ElementType(root=Root.ARRAY, element=element) | VectorType(element=element):
            return {"type": "array", "items": _union(element, name, names)}
        case ElementType(root=Root.MULTISET, element=element):
            if element.root not in _TEXTS:
                raise _unsupported_error(dtype)
            return {"type": "map", "values": ["null", "int"]}
        case MapType(key=key, value=value) if key.root in _TEXTS:
            return {"type": "map", "values": _union(value, name, names)}
        case MapType(key=key, value=value):
            names.add(name)
            entry = [
                {"name": "key", "type": _union(key, f"{name}_key", names)},
                {"default": None, "name": "value", "type": _union(value, f"{name}_value", names)},
            ]
            if not value.nullable:
                del entry[1]["default"]
            return {"type": "array", "items": {"type": "record", "name": name, "fields": entry}, "logicalType": "map"}
        case DecimalType(precision=precision, scale=scale):
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        case TimeType(root=Root.TIME, precision=precision) if precision <= 3:
            return {"type": "int", "logicalType": "time-millis"}
        case TimeType(root=Root.TIMESTAMP | Root.TIMESTAMP_LTZ, precision=precision) if precision <= 6:
            prefix = "local-" if dtype.root is Root.TIMESTAMP_LTZ else ""
            return {"type": "long", "logicalType": f"{prefix}timestamp-{'millis' if precision <= 3 else 'micros'}"}
    if dtype.root is Root.DATE:
        return {"type": "int", "logicalType": "date"}
    if dtype.root in _ATOMS:
        return _ATOMS[dtype.root]
    raise _unsupported_error(dtype)


def _unsupported_error(dtype: DataType) -> UnsupportedError:
    return UnsupportedError("type cannot be stored in Avro files", type=dtype, hint="use the format parquet")


# ---------------------------------------------------------------------------------------------------------------------
# Reading
# ---------------------------------------------------------------------------------------------------------------------


def plain_schema(avro_type: AvroType, names: dict[str, AvroType], depth: int = 0) -> AvroType:
    """Return a schema with the same encoding, without logical types, which readers would convert, or references.

    Raises:
        FormatError: the schema is not one of a data file.
    """
    if depth > _DEPTH_MAX:
        raise FormatError("Avro schema is nested too deeply")
    match avro_type:
        case str() if avro_type in _PRIMITIVES:
            return avro_type
        case str() if avro_type in names:
            return names[avro_type]
        case [*branches]:
            return [plain_schema(branch, names, depth + 1) for branch in branches]
        case {"type": "record", "name": str(name), "fields": [*members]}:
            fields = []
            for member in members:
                match member:
                    case {"name": str(member_name), "type": inner}:
                        fields.append({"name": member_name, "type": plain_schema(inner, names, depth + 1)})
                    case _:
                        raise FormatError("Avro schema has a member without name or type")
            # Number the records: their names need not be unique after a reference was replaced.
            names[name] = found = {"type": "record", "name": f"r{len(names)}", "fields": fields}
            return found
        case {"type": "array", "items": inner}:
            return {"type": "array", "items": plain_schema(inner, names, depth + 1)}
        case {"type": "map", "values": inner}:
            return {"type": "map", "values": plain_schema(inner, names, depth + 1)}
        case {"type": inner} if inner in _PRIMITIVES:
            return inner
        case {"type": inner} if isinstance(inner, dict | list):
            return plain_schema(inner, names, depth + 1)
    raise FormatError("Avro schema has a type that data files do not have", avro_type=str(avro_type)[:80])


def from_avro(array: pa.Array, dtype: DataType) -> pa.Array:
    """Convert an array from polars-avro to the canonical Arrow type of the type that it was written with.

    Raises:
        FormatError: the values do not have that type.
    """
    target = to_arrow(dtype)
    kinds = pa.types
    match dtype:
        case RowType(fields=fields) if kinds.is_struct(array.type):
            found = {array.type.field(index).name: index for index in range(array.type.num_fields)}
            children = struct_children(array)
            members = [
                from_avro(children[found[field.name]], field.type)
                if field.name in found
                else pa.nulls(len(array), to_arrow(field.type))
                for field in fields
            ]
            return rebuild_struct(array, members, target)
        case ElementType(root=Root.ARRAY, element=element) if _is_list(array.type):
            array = _small_list(array)
            return rebuild_list(array, from_avro(list_child(array), element), target)
        case VectorType(element=element, length=length) if _is_list(array.type):
            array = _small_list(array)
            check_vector_lengths(array, length)
            return list_to_vector(array, from_avro(list_child(array), element), target)
        case ElementType(root=Root.MULTISET, element=element):
            return _map(array, element, with_nullable(INT, False), target)
        case MapType(key=key, value=value):
            return _map(array, key, value, target)
        case DecimalType() if kinds.is_binary(array.type) or kinds.is_large_binary(array.type):
            return _decimals(array, dtype)
        case TimeType() if kinds.is_integer(array.type):
            return array.view(target) if array.type.bit_width == target.bit_width else cast_stored(array, target, dtype)
    if dtype.root is Root.DATE and kinds.is_int32(array.type):
        return array.view(target)
    return array if array.type == target else cast_stored(array, target, dtype)


def _is_list(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type))


def _small_list(array: pa.Array) -> pa.Array:
    if pa.types.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    return compact(array)


def _map(array: pa.Array, key: DataType, value: DataType, target: pa.DataType) -> pa.Array:
    if pa.types.is_map(array.type):
        array = compact(array)
        keys, values = map_children(array)
    elif _is_list(array.type) and pa.types.is_struct(array.type.value_type):
        # A map whose keys are not texts is stored as an array of entries.
        array = _small_list(array)
        keys, values = struct_children(list_child(array))
    else:
        raise FormatError("column values do not have the type of the schema", found=array.type)
    return rebuild_map(array, from_avro(keys, key), from_avro(values, value), target)


def _decimals(array: pa.Array, dtype: DecimalType) -> pa.Array:
    """Decode big-endian two's complement of any length to decimals."""
    array = compact(array.cast(pa.large_binary()))
    filled = compact(array.fill_null(b"\0")) if array.null_count else array
    _, offsets_buffer, data_buffer = filled.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64, len(filled) + 1, filled.offset * 8)
    data = np.frombuffer(data_buffer or b"", np.uint8)
    lengths = np.diff(offsets)
    if np.any((lengths < 1) | (lengths > 16)):
        raise FormatError("decimal does not have 1 to 16 bytes", type=dtype)
    first = data[offsets[:-1]] if len(filled) else np.empty(0, np.uint8)
    digits = np.repeat(np.where(first >= 0x80, 0xFF, 0).astype(np.uint8)[:, None], 16, axis=1)
    for place in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > place)
        digits[rows, place] = data[offsets[1:][rows] - 1 - place]  # little-endian: the last byte comes first
    validity = compact(array.is_valid()).buffers()[1] if array.null_count else None
    built = pa.Array.from_buffers(
        pa.decimal128(38, dtype.scale), len(filled), [validity, pa.py_buffer(np.ascontiguousarray(digits))]
    )
    return cast_stored(built, to_arrow(dtype), dtype)
