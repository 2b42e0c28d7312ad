"""How columns look in Parquet: physical types, names and field ids (spec 05, section 5).

Invariant: a schema made here has the physical types the reference writer uses, and every node it gives an id has that
id. Arrow has no way to write one column as INT96, so timestamps finer than microseconds travel as twelve fixed bytes,
whose encoding is the same; `parquet_footer` then declares them as what they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from tidelake.errors import UnsupportedError
from tidelake.spec.arrow_nested import (
    compact,
    list_child,
    map_children,
    rebuild_list,
    rebuild_map,
    rebuild_struct,
    struct_children,
    vector_to_list,
)
from tidelake.spec.arrow_types import to_arrow
from tidelake.spec.types import (
    INT,
    DataType,
    ElementType,
    Field,
    GeoType,
    MapType,
    Root,
    RowType,
    TimeType,
    VectorType,
    walk,
)

__all__ = ["INT96_BYTES", "Leaf", "from_int96", "is_annotated", "is_int96", "leaves", "parquet_schema", "to_physical"]

_SYNTHETIC_ID: Final = 536_870_911
_IDS_PER_COLUMN: Final = 1024
INT96_BYTES: Final = 12
_INT96: Final = pa.binary(INT96_BYTES)
_PARTS: Final = np.dtype([("nanos", "<i8"), ("day", "<i4")])
_JULIAN_EPOCH: Final = 2_440_588
_NANOS_OF_DAY: Final = 86_400_000_000_000


@dataclass(frozen=True, slots=True)
class Leaf:
    """A primitive column of the file: the top-level column it is part of, and its type."""

    column: int
    type: DataType


def is_int96(dtype: DataType) -> bool:
    """Whether values of the type are stored as INT96."""
    return isinstance(dtype, TimeType) and dtype.root is not Root.TIME and dtype.precision > 6


def parquet_schema(fields: Sequence[Field]) -> pa.Schema:
    """The Arrow schema that makes Arrow's writer produce the physical schema of the format."""
    return pa.schema([_field(field.name, field.type, field.id, field.id, 1) for field in fields])


def _field(
    name: str, dtype: DataType, own_id: int, column_id: int, depth: int, *, nullable: bool | None = None
) -> pa.Field:
    # A member of a ROW has an id of its own and starts counting anew; what has none counts on below its column.
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
    return _INT96 if is_int96(dtype) else to_arrow(dtype)


def leaves(fields: Sequence[Field]) -> list[Leaf]:
    """The primitive columns of a file of these fields, in the order they are stored."""
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
    """Whether the type has a logical annotation that Arrow's writer does not know."""
    return isinstance(dtype, GeoType)


def to_physical(array: pa.Array, dtype: DataType, arrow_type: pa.DataType) -> pa.Array:
    """An array of the canonical Arrow type as the Arrow type of `parquet_schema`."""
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


def to_int96(array: pa.Array) -> pa.Array:
    """Nanoseconds since the epoch as INT96: nanoseconds of the day, then the Julian day, both little-endian.

    Days are rounded down, so that the nanoseconds are never negative: every reader of INT96 takes that. (The reference
    writer rounds towards zero before 1970; readers must add the two parts as signed numbers either way.)
    """
    values = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    days, nanos = np.divmod(values, _NANOS_OF_DAY)
    parts = np.empty(len(values), _PARTS)
    parts["nanos"] = nanos
    parts["day"] = days + _JULIAN_EPOCH
    validity = compact(array.is_valid()).buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(_INT96, len(values), [validity, pa.py_buffer(parts)])


def from_int96(array: pa.Array, unit: str) -> pa.Array:
    """INT96 as timestamps of a unit; what is finer than the unit is cut off.

    Raises:
        UnsupportedError: a value does not fit into 64 bits of that unit.
    """
    array = compact(array)
    parts = np.frombuffer(array.buffers()[1], _PARTS, len(array), array.offset * INT96_BYTES)
    scale = {"ms": 1_000_000, "us": 1_000, "ns": 1}[unit]
    # Added as signed numbers: before 1970 the reference writer rounds the day towards zero.
    more_days, nanos = np.divmod(parts["nanos"], _NANOS_OF_DAY)
    days = parts["day"].astype(np.int64) - _JULIAN_EPOCH + more_days
    per_day = _NANOS_OF_DAY // scale
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    if not _all_fit(days[valid], nanos[valid] // scale, per_day):
        raise UnsupportedError(
            "timestamp does not fit into 64 bits of its unit",
            unit=unit,
            hint="change the type of the column to TIMESTAMP(6), or to TIMESTAMP(3)",
        )
    counts = np.where(valid, days * per_day + nanos // scale, 0)
    return pa.array(counts, mask=None if valid.all() else ~valid).view(pa.timestamp(unit))


def _all_fit(days: np.ndarray, rest: np.ndarray, per_day: int) -> bool:
    """Whether `days * per_day + rest` fits into 64 bits everywhere."""
    limit = (2**63 - 1) // per_day
    if np.any((days > limit) | (days < -limit - 1)):
        return False
    # Only on the first and the last day does the rest decide; Python's own numbers do not wrap.
    edge = np.flatnonzero((days == limit) | (days == -limit - 1))
    return all(-(2**63) <= int(days[row]) * per_day + int(rest[row]) < 2**63 for row in edge)
