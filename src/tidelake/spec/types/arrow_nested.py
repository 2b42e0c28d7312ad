"""Take nested Arrow arrays apart, and rebuild them around changed children.

To convert a leaf deep inside lists, maps and structs, walk down with these functions, change the leaf and rebuild on
the way up. Lengths and nulls stay the same. Slices are compacted first, so that no child is converted for rows outside
the slice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

__all__ = [
    "compact",
    "dense",
    "list_child",
    "list_to_vector",
    "map_children",
    "rebuild_list",
    "rebuild_map",
    "rebuild_struct",
    "struct_children",
    "vector_to_list",
    "with_nulls_pushed_down",
]


def compact(array: pa.Array) -> pa.Array:
    """The array, copied to its own buffers if it is a slice of larger ones."""
    if array.offset == 0 and _is_whole(array):
        return array
    return pa.concat_arrays([array, array.slice(0, 0)])


def dense(array: pa.Array) -> pa.Array:
    """The array, always copied to its own buffers: some of Arrow's file writers ignore the offset of a nested slice."""
    return pa.concat_arrays([array, array.slice(0, 0)])


def with_nulls_pushed_down(array: pa.Array) -> pa.Array:
    """A dense array in which the members of a null struct are null too, at every depth.

    Arrow allows any value there, and some of its file writers store that value in place of the next one.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        children = [array.field(index) for index in range(kind.num_fields)]
        if array.null_count:
            valid = array.is_valid()
            children = [_null_where_not(valid, child) for child in children]
        return rebuild_struct(array, [with_nulls_pushed_down(child) for child in children], kind)
    if pa.types.is_map(kind):
        keys, values = map_children(array)
        return rebuild_map(array, with_nulls_pushed_down(keys), with_nulls_pushed_down(values), kind)
    if pa.types.is_list(kind):
        return rebuild_list(array, with_nulls_pushed_down(list_child(array)), kind)
    return array


def _null_where_not(valid: pa.Array, array: pa.Array) -> pa.Array:
    """The array with nulls wherever `valid` is false; its other buffers are unchanged."""
    kept = array.is_valid().to_numpy(zero_copy_only=False) & valid.to_numpy(zero_copy_only=False)
    validity = pa.py_buffer(np.packbits(kept, bitorder="little"))
    kind = array.type
    array = dense(array)
    if pa.types.is_struct(kind):
        own, children = 1, [array.field(index) for index in range(kind.num_fields)]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        own, children = 2, [array.values]
    else:
        own, children = len(array.buffers()), None
    return pa.Array.from_buffers(kind, len(array), [validity, *array.buffers()[1:own]], -1, children=children)


def _is_whole(array: pa.Array) -> bool:
    if not (pa.types.is_list(array.type) or pa.types.is_map(array.type)):
        return True
    if len(array) == 0:
        return len(array.values) == 0
    offsets = _offsets(array)
    return bool(offsets[0] == 0) and int(offsets[-1]) == len(array.values)


def list_child(array: pa.Array) -> pa.Array:
    """The items of all lists of a compact array, in one array."""
    return array.values


def map_children(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The keys and the values of a compact map array."""
    return array.keys, array.items


def struct_children(array: pa.Array) -> list[pa.Array]:
    """The members of a struct array, without the nulls of the struct itself."""
    return [array.field(index) for index in range(array.type.num_fields)]


def rebuild_list(array: pa.Array, child: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """A list array with the lengths and nulls of a compact one and another child."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(arrow_type, len(array), [validity, offsets], -1, array.offset, children=[child])


def rebuild_map(array: pa.Array, keys: pa.Array, values: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """A map array with the lengths and nulls of a compact one and other keys and values."""
    validity, offsets = array.buffers()[:2]
    entries = pa.StructArray.from_arrays([keys, values], fields=[arrow_type.key_field, arrow_type.item_field])
    return pa.Array.from_buffers(arrow_type, len(array), [validity, offsets], -1, array.offset, children=[entries])


def rebuild_struct(array: pa.Array, children: Sequence[pa.Array], arrow_type: pa.DataType) -> pa.Array:
    """A struct array with the nulls of the given one and other members."""
    mask = array.is_null() if array.null_count else None
    if arrow_type.num_fields == 0:
        validity = None if mask is None else compact(array).buffers()[0]
        return pa.Array.from_buffers(arrow_type, len(array), [validity])
    fields = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
    return pa.StructArray.from_arrays(list(children), fields=fields, mask=mask)


def vector_to_list(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Convert fixed-size lists to lists of any length. The items that Arrow stores for a null list are dropped."""
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(valid * array.type.list_size, out=offsets[1:])
    validity = compact(array.is_valid()).buffers()[1] if array.null_count else None
    buffers = [validity, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(arrow_type, len(array), buffers, -1, children=[array.flatten()])


def list_to_vector(array: pa.Array, items: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Convert a compact list array to fixed-size lists with these items; every list must have that size.

    A null list needs items too. It gets those of another list, or zeros, because the child may not allow nulls.
    """
    size = arrow_type.list_size
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    if len(items) == 0:
        children = pa.array(np.zeros(size * len(array), np.int8)).cast(items.type)
    else:
        starts = np.where(valid, _offsets(array)[:-1], 0)
        children = items.take(pa.array((starts[:, None] + np.arange(size)).ravel()))
    validity = compact(array.is_valid()).buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(arrow_type, len(array), [validity], -1, children=[children])


def _offsets(array: pa.Array) -> np.ndarray:
    buffer = array.buffers()[1]
    return np.frombuffer(buffer, np.int32, len(array) + 1, array.offset * 4)
