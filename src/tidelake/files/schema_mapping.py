"""Maps the columns of a file to the fields of another schema, for schema evolution.

A file is read with the fields of the current schema (`read_fields`), but its columns are found with the schema that it
was written with (`file_fields`): a wanted field is looked up there by id, and the file's column by its name at that
time. A field that the file does not have is null. ROW members are matched by id in the same way, also inside lists and
maps.

Invariant: only ids count. A column that was dropped and added again under its old name is another column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tidelake.errors import FormatError
from tidelake.files.int96 import from_int96
from tidelake.files.stored_values import cast_stored
from tidelake.files.vector_type import check_vector_lengths
from tidelake.spec.casts.cast_values import cast_array
from tidelake.spec.types.arrow_nested import (
    compact,
    list_child,
    list_to_vector,
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
    LengthType,
    MapType,
    Root,
    RowType,
    TimeType,
    VectorType,
    children,
    with_nullable,
)

__all__ = ["Source", "canonical", "cast_to_schema", "find_sources", "restrict", "same_values"]


@dataclass(frozen=True, slots=True)
class Source:
    """A wanted field, and the file's field for it with only the wanted members; None if the file does not have it."""

    field: Field
    found: Field | None


def find_sources(read_fields: Sequence[Field], file_fields: Sequence[Field]) -> tuple[Source, ...]:
    """Find the file's field for each wanted field, by id."""
    by_id = {field.id: field for field in file_fields}
    sources = []
    for field in read_fields:
        found = by_id.get(field.id)
        kept = None if found is None else replace(found, type=restrict(found.type, field.type))
        sources.append(Source(field, kept))
    return tuple(sources)


def restrict(found: DataType, wanted: DataType) -> DataType:
    """Return the file's type without the ROW members that are not wanted."""
    match found, wanted:
        case RowType(fields=fields), RowType(fields=asked):
            by_id = {field.id: field for field in asked}
            kept = tuple(
                replace(field, type=restrict(field.type, by_id[field.id].type)) for field in fields if field.id in by_id
            )
            # Read at least one member, because it shows where the ROW itself is null.
            return replace(found, fields=kept or fields[:1])
        case ElementType(root=Root.ARRAY, element=element), ElementType(root=Root.ARRAY, element=asked_element):
            return replace(found, element=restrict(element, asked_element))
        case MapType(key=key, value=value), MapType(key=asked_key, value=asked_value):
            return replace(found, key=restrict(key, asked_key), value=restrict(value, asked_value))
    return found


def same_values(found: DataType, wanted: DataType) -> bool:
    """Return whether values of one type are unchanged as the other type, so that their statistics hold too."""
    if children(found) or children(wanted):
        return False
    if isinstance(found, LengthType) and isinstance(wanted, LengthType) and found.root is wanted.root:
        return (found.root in (Root.VARCHAR, Root.VARBINARY) and found.length <= wanted.length) or found == wanted
    return with_nullable(found, True) == with_nullable(wanted, True)


# ---------------------------------------------------------------------------------------------------------------------
# From the file's Arrow types to the canonical ones
# ---------------------------------------------------------------------------------------------------------------------


def canonical(array: pa.Array, dtype: DataType) -> pa.Array:
    """Convert an array from a format's reader to the canonical Arrow type of the type that it was written with.

    Raises:
        FormatError: the values do not have that type.
    """
    target = to_arrow(dtype)
    if array.type == target:
        return array
    if pa.types.is_large_list(array.type):
        array = cast_stored(array, pa.list_(array.type.value_field), dtype)
    elif pa.types.is_fixed_size_list(array.type):
        array = vector_to_list(array, pa.list_(array.type.value_field))
    match dtype:
        case RowType(fields=fields) if pa.types.is_struct(array.type):
            found = {array.type.field(index).name: index for index in range(array.type.num_fields)}
            parts = _members(array)
            members = [
                canonical(parts[found[field.name]], field.type)
                if field.name in found
                else pa.nulls(len(array), to_arrow(field.type))
                for field in fields
            ]
            return rebuild_struct(array, members, target)
        case ElementType(root=Root.ARRAY, element=element) if pa.types.is_list(array.type):
            array = compact(array)
            return rebuild_list(array, canonical(list_child(array), element), target)
        case ElementType(root=Root.MULTISET, element=element) if pa.types.is_map(array.type):
            return _canonical_map(array, element, with_nullable(INT, False), target)
        case MapType(key=key, value=value) if pa.types.is_map(array.type):
            return _canonical_map(array, key, value, target)
        case VectorType(element=element, length=length) if pa.types.is_list(array.type):
            array = compact(array)
            check_vector_lengths(array, length)
            return list_to_vector(array, canonical(list_child(array), element), target)
        case TimeType(root=Root.TIMESTAMP | Root.TIMESTAMP_LTZ) if pa.types.is_fixed_size_binary(array.type):
            return from_int96(array, target.unit).view(target)
        case TimeType(root=Root.TIMESTAMP | Root.TIMESTAMP_LTZ) if pa.types.is_timestamp(array.type):
            # Some formats and writers drop the time zone; the value is the same count since 1970 in either case.
            return cast_stored(array.cast(pa.timestamp(array.type.unit)), pa.timestamp(target.unit), dtype).cast(target)
    if dtype.root is Root.VARIANT and pa.types.is_struct(array.type):
        return _variant(array, target)
    return cast_stored(array, target, dtype)


def _members(array: pa.Array) -> list[pa.Array]:
    """Return the members of a struct array; below a null they are null, so that hidden values are not converted."""
    return array.flatten() if array.null_count else struct_children(array)


def _canonical_map(array: pa.Array, key: DataType, value: DataType, target: pa.DataType) -> pa.Array:
    array = compact(array)
    keys, values = map_children(array)
    return rebuild_map(array, canonical(keys, key), canonical(values, value), target)


def _variant(array: pa.Array, target: pa.DataType) -> pa.Array:
    names = {array.type.field(index).name for index in range(array.type.num_fields)}
    if names - {"value", "metadata"} or len(names) != 2:
        raise FormatError(
            "shredded VARIANT is not supported",
            members=", ".join(sorted(names)),
            hint="write the table again without variant shredding",
        )
    return rebuild_struct(array, [array.field(index) for index in _order(array, ("value", "metadata"))], target)


def _order(array: pa.Array, names: Sequence[str]) -> list[int]:
    return [array.type.get_field_index(name) for name in names]


# ---------------------------------------------------------------------------------------------------------------------
# From the file's type to the wanted one
# ---------------------------------------------------------------------------------------------------------------------


def cast_to_schema(array: pa.Array, found: DataType, wanted: DataType, zone: str) -> pa.Array:
    """Convert values of the file's type to the wanted type: members by id, primitive values by the format's casts.

    Raises:
        FormatError: a value cannot be converted.
        UnsupportedError: the types cannot be converted.
    """
    target = to_arrow(wanted)
    match found, wanted:
        case RowType(fields=fields), RowType(fields=asked):
            parts = dict(zip((field.id for field in fields), _members(array), strict=True))
            types = {field.id: field.type for field in fields}
            members = [
                cast_to_schema(parts[field.id], types[field.id], field.type, zone)
                if field.id in parts
                else pa.nulls(len(array), to_arrow(field.type))
                for field in asked
            ]
            return rebuild_struct(array, members, target)
        case ElementType(root=Root.ARRAY, element=element), ElementType(root=Root.ARRAY, element=asked_element):
            if not children(element) and with_nullable(element, True) == with_nullable(asked_element, True):
                return (
                    array if array.type == target else rebuild_list(compact(array), list_child(compact(array)), target)
                )
            array = compact(array)
            return rebuild_list(array, cast_to_schema(list_child(array), element, asked_element, zone), target)
        case MapType(key=key, value=value), MapType(key=asked_key, value=asked_value):
            if array.type == target and not children(key) and not children(value) and found == wanted:
                return array
            array = compact(array)
            keys, values = map_children(array)
            return rebuild_map(
                array,
                cast_to_schema(keys, key, asked_key, zone),
                cast_to_schema(values, value, asked_value, zone),
                target,
            )
    if with_nullable(found, True) == with_nullable(wanted, True):
        return array
    return cast_array(array, found, wanted, zone)
