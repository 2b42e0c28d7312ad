"""The types of columns in Parquet: physical types, names and field ids (spec 05, section 5).

Invariant: a schema has the physical types and field ids that Paimon writes. Arrow cannot write a single column as
INT96, so timestamps finer than microseconds are written as twelve fixed bytes, which have the same encoding, and
`footer` then declares them as INT96.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tidelake.files.int96 import INT96, is_int96, to_int96
from tidelake.spec.types.arrow_nested import (
    compact,
    list_child,
    map_children,
    rebuild_list,
    rebuild_map,
    rebuild_struct,
    struct_children,
    vector_to_list,
)
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import (
    INT,
    DataType,
    ElementType,
    Field,
    GeoType,
    MapType,
    Root,
    RowType,
    VectorType,
    walk,
)

__all__ = ["Leaf", "is_annotated", "leaves", "parquet_schema", "to_physical"]

_SYNTHETIC_ID: Final = 536_870_911
_IDS_PER_COLUMN: Final = 1024


@dataclass(frozen=True, slots=True)
class Leaf:
    """A primitive column of the file: the index of its top-level column, and its type."""

    column: int
    type: DataType


def parquet_schema(fields: Sequence[Field]) -> pa.Schema:
    """Return the Arrow schema with which Arrow's writer produces the physical schema of the format."""
    return pa.schema([_field(field.name, field.type, field.id, field.id, 1) for field in fields])


def _field(
    name: str, dtype: DataType, own_id: int, column_id: int, depth: int, *, nullable: bool | None = None
) -> pa.Field:
    # A ROW member has its own id and restarts the numbering; elements, keys and values continue that of their column.
    return pa.field(
        name,
        _physical(dtype, column_id, depth),
        nullable=dtype.nullable if nullable is None else nullable,
        metadata={"PARQUET:field_id": str(own_id)},
    )


def _physical(dtype: DataType, column_id: int, depth: int) -> pa.DataType:
    above = _SYNTHETIC_ID + _IDS_PER_COLUMN * column_id + depth
    below = _SYNTHETIC_ID - _IDS_PER_COLUMN * column_id - depth
    match dtype:
        case ElementType(root=Root.MULTISET, element=element):
            return pa.map_(
                _field("key", element, below, column_id, depth + 1, nullable=False),
                pa.field("value", pa.int32(), nullable=False, metadata={"PARQUET:field_id": str(above)}),
            )
        case ElementType(element=element) | VectorType(element=element):
            return pa.list_(_field("element", element, above, column_id, depth + 1))
        case MapType(key=key, value=value):
            return pa.map_(
                _field("key", key, below, column_id, depth + 1, nullable=False),
                _field("value", value, above, column_id, depth + 1),
            )
        case RowType(fields=fields):
            return pa.struct([_field(field.name, field.type, field.id, field.id, 1) for field in fields])
    if dtype.root is Root.VARIANT:
        return pa.struct(
            [
                pa.field("value", pa.binary(), nullable=False, metadata={"PARQUET:field_id": "0"}),
                pa.field("metadata", pa.binary(), nullable=False, metadata={"PARQUET:field_id": "1"}),
            ]
        )
    return INT96 if is_int96(dtype) else to_arrow(dtype)


def leaves(fields: Sequence[Field]) -> list[Leaf]:
    """Return the primitive columns of a file with these fields, in the order in which they are stored."""
    return [Leaf(index, dtype) for index, field in enumerate(fields) for dtype in _leaf_types(field.type)]


def _leaf_types(dtype: DataType) -> Iterator[DataType]:
    match dtype:
        case ElementType(root=Root.MULTISET, element=element):
            yield from _leaf_types(element)
            yield INT
        case ElementType(element=element) | VectorType(element=element):
            yield from _leaf_types(element)
        case MapType(key=key, value=value):
            yield from _leaf_types(key)
            yield from _leaf_types(value)
        case RowType(fields=fields):
            for field in fields:
                yield from _leaf_types(field.type)
        case _ if dtype.root is Root.VARIANT:
            yield dtype
            yield dtype
        case _:
            yield dtype


def is_annotated(dtype: DataType) -> bool:
    """Return whether the type has a logical annotation that Arrow's writer cannot write."""
    return isinstance(dtype, GeoType)


def to_physical(array: pa.Array, dtype: DataType, arrow_type: pa.DataType) -> pa.Array:
    """Convert an array from the canonical Arrow type to the Arrow type of `parquet_schema`."""
    if not any(is_int96(each) or each.root is Root.VECTOR for each in walk(dtype)):
        return array
    match dtype:
        case ElementType(root=Root.MULTISET, element=element):
            array = compact(array)
            keys, counts = map_children(array)
            return rebuild_map(array, to_physical(keys, element, arrow_type.key_type), counts, arrow_type)
        case ElementType(element=element):
            array = compact(array)
            return rebuild_list(array, to_physical(list_child(array), element, arrow_type.value_type), arrow_type)
        case VectorType():
            return vector_to_list(array, arrow_type)
        case MapType(key=key, value=value):
            array = compact(array)
            keys, values = map_children(array)
            keys = to_physical(keys, key, arrow_type.key_type)
            return rebuild_map(array, keys, to_physical(values, value, arrow_type.item_type), arrow_type)
        case RowType(fields=fields):
            children = struct_children(array)
            members = [arrow_type.field(index).type for index in range(arrow_type.num_fields)]
            changed = [
                to_physical(child, field.type, member)
                for child, field, member in zip(children, fields, members, strict=True)
            ]
            return rebuild_struct(array, changed, arrow_type)
    return to_int96(array)
