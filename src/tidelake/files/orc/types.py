"""The types of columns in ORC (spec 05, section 6), as far as Arrow can express them.

Arrow has no type for CHAR(n) and VARCHAR(n) and writes both as `string`, which Paimon's reader accepts for either. TIME
is an `int` of milliseconds. Every node has its field id as the attribute `paimon.id`.

Invariant: Paimon's reader and ours read back every value that is written; a timestamp for which that is not true is
refused with the name of its column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import UnsupportedError
from tidelake.spec.types.arrow_nested import (
    compact,
    list_child,
    map_children,
    rebuild_list,
    rebuild_map,
    rebuild_struct,
    struct_children,
)
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import DataType, ElementType, Field, MapType, Root, RowType, TimeType, walk

__all__ = ["from_orc", "orc_schema", "to_orc"]

_ID: Final = "paimon.id"
_UNSUPPORTED: Final = frozenset({Root.VARIANT, Root.GEOMETRY, Root.GEOGRAPHY, Root.BLOB, Root.VECTOR})
_CHANGED: Final = frozenset({Root.TIME, Root.TIMESTAMP, Root.TIMESTAMP_LTZ})


def orc_schema(fields: Sequence[Field]) -> pa.Schema:
    """Return the Arrow schema with which Arrow's writer produces the ORC types of the format.

    Raises:
        UnsupportedError: a type cannot be stored in ORC.
    """
    for field in fields:
        for dtype in walk(field.type):
            if dtype.root in _UNSUPPORTED:
                raise UnsupportedError(
                    "type cannot be stored in ORC files", column=field.name, type=dtype, hint="use the format parquet"
                )
    return pa.schema([_field(field.name, field.type, field.id) for field in fields])


def _field(name: str, dtype: DataType, field_id: int | None, *, nullable: bool = True) -> pa.Field:
    metadata = None if field_id is None else {_ID: str(field_id)}
    return pa.field(name, _stored_type(dtype), nullable=nullable, metadata=metadata)


def _stored_type(dtype: DataType) -> pa.DataType:
    match dtype:
        case ElementType(root=Root.MULTISET, element=element):
            return pa.map_(_field("key", element, None, nullable=False), pa.int32())
        case ElementType(element=element):
            return pa.list_(_field("element", element, None))
        case MapType(key=key, value=value):
            return pa.map_(_field("key", key, None, nullable=False), _field("value", value, None))
        case RowType(fields=fields):
            return pa.struct([_field(field.name, field.type, field.id) for field in fields])
        case TimeType(root=Root.TIME):
            return pa.int32()
        case TimeType(root=Root.TIMESTAMP):
            return pa.timestamp("ns")
        case TimeType():
            return pa.timestamp("ns", "UTC")
    return to_arrow(dtype)


def to_orc(array: pa.Array, dtype: DataType, stored: pa.DataType, column: str) -> pa.Array:
    """Convert an array from the canonical Arrow type to the Arrow type of `orc_schema`.

    Raises:
        UnsupportedError: a timestamp cannot be stored so that every reader reads it back.
    """
    if array.type == stored and not any(each.root in _CHANGED for each in walk(dtype)):
        return array
    match dtype:
        case ElementType(root=Root.MULTISET, element=element):
            array = compact(array)
            keys, counts = map_children(array)
            return rebuild_map(array, to_orc(keys, element, stored.key_type, column), counts, stored)
        case ElementType(element=element):
            array = compact(array)
            return rebuild_list(array, to_orc(list_child(array), element, stored.value_type, column), stored)
        case MapType(key=key, value=value):
            array = compact(array)
            keys, values = map_children(array)
            keys = to_orc(keys, key, stored.key_type, column)
            return rebuild_map(array, keys, to_orc(values, value, stored.item_type, column), stored)
        case RowType(fields=fields):
            members = [
                to_orc(child, field.type, stored.field(index).type, column)
                for index, (child, field) in enumerate(zip(struct_children(array), fields, strict=True))
            ]
            return rebuild_struct(array, members, stored)
        case TimeType(root=Root.TIME):
            return array.view(pa.int32())
        case TimeType():
            return _check_timestamps(array, stored, column)
    return array


def _check_timestamps(array: pa.Array, stored: pa.DataType, column: str) -> pa.Array:
    per_milli = {"ms": 1, "us": 1_000, "ns": 1_000_000}[array.type.unit]
    counts = array.view(pa.int64()).drop_null().to_numpy(zero_copy_only=False)
    limit = (2**63 - 1) // (1_000_000 // per_milli)
    if np.any((counts > limit) | (counts < -limit)):
        raise UnsupportedError(
            "timestamp is outside the years 1677 to 2262, which ORC readers support",
            column=column,
            hint="use the format parquet",
        )
    if per_milli > 1 and np.any((counts < 0) & (counts % per_milli != 0)):
        # Paimon's reader fails on the whole file if it has such a value.
        raise UnsupportedError(
            "timestamp before 1970 that is finer than milliseconds cannot be stored in ORC files",
            column=column,
            hint="use the format parquet, or round the values to milliseconds",
        )
    return array.cast(stored)


def from_orc(array: pa.Array, dtype: DataType) -> pa.Array:
    """Convert an array from Arrow's ORC reader: remove the padding of CHAR and restore TIME, in nested values too."""
    if not any(each.root in (Root.CHAR, Root.TIME) for each in walk(dtype)):
        return array
    match dtype:
        case ElementType(root=Root.MULTISET, element=element) if pa.types.is_map(array.type):
            array = compact(array)
            keys, counts = map_children(array)
            keys = from_orc(keys, element)
            return rebuild_map(array, keys, counts, pa.map_(pa.field("key", keys.type, nullable=False), pa.int32()))
        case ElementType(root=Root.ARRAY, element=element) if pa.types.is_list(array.type):
            array = compact(array)
            items = from_orc(list_child(array), element)
            return rebuild_list(array, items, pa.list_(pa.field("element", items.type)))
        case MapType(key=key, value=value) if pa.types.is_map(array.type):
            array = compact(array)
            keys, values = map_children(array)
            keys, values = from_orc(keys, key), from_orc(values, value)
            return rebuild_map(array, keys, values, pa.map_(pa.field("key", keys.type, nullable=False), values.type))
        case RowType(fields=fields) if pa.types.is_struct(array.type):
            types = {field.name: field.type for field in fields}
            names = [array.type.field(index).name for index in range(array.type.num_fields)]
            members = [
                from_orc(child, types[name]) if name in types else child
                for name, child in zip(names, struct_children(array), strict=True)
            ]
            fields_now = [pa.field(name, member.type) for name, member in zip(names, members, strict=True)]
            return rebuild_struct(array, members, pa.struct(fields_now))
    if dtype.root is Root.CHAR and pa.types.is_string(array.type):
        return pc.utf8_rtrim(array, characters=" ")
    if dtype.root is Root.TIME and pa.types.is_int32(array.type):
        return array.view(pa.time32("ms"))
    return array
