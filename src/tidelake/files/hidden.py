"""Clears the values below nulls, which no reader sees but writers look at.

Arrow allows any value below a null struct. Parquet's writer refuses one case: a NOT NULL member that is null there, as
it is in every row that is older than the column. `clear_hidden_values` converts a column to the one form that every
writer accepts: below a null, a nullable member is null, a NOT NULL member has an empty value, and a list or map has no
items.

Invariant: visible values do not change, and a visible null in a NOT NULL member stays null, so that the writer still
refuses it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidelake.spec.types.arrow_nested import (
    compact,
    dense,
    list_child,
    map_children,
    rebuild_list,
    rebuild_map,
    rebuild_struct,
)

__all__ = ["clear_hidden_values"]


def clear_hidden_values(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return the same visible values with cleared values below nulls.

    Args:
        array: Values of the type of the field, except for the nullability of members.
        field: Says what may be null, at every depth.
    """
    return _clear(dense(array), field, None) if _has_null_struct(array) else array


def _has_null_struct(array: pa.Array) -> bool:
    """Return whether there is a null struct at any depth; only below one there can be hidden values."""
    kind = array.type
    if pa.types.is_struct(kind):
        return array.null_count > 0 or any(_has_null_struct(array.field(index)) for index in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _has_null_struct(array.keys) or _has_null_struct(array.items)
    return bool(pa.types.is_list(kind)) and _has_null_struct(array.values)


def _clear(array: pa.Array, field: pa.Field, hidden: np.ndarray | None) -> pa.Array:
    """Clear the rows of a dense array that are hidden below a null."""
    kind = field.type
    if pa.types.is_struct(kind):
        members = [array.field(index) for index in range(kind.num_fields)]
        below = _either(hidden, array)
        settled = [_clear(member, kind.field(index), below) for index, member in enumerate(members)]
        return _with_validity(rebuild_struct(array, settled, kind), field, hidden)
    if pa.types.is_map(kind):
        array = _drop_hidden_items(array, _either(hidden, array))
        keys, values = map_children(array)
        keys, values = _clear(keys, kind.key_field, None), _clear(values, kind.item_field, None)
        return _with_validity(rebuild_map(array, keys, values, kind), field, hidden)
    if pa.types.is_list(kind):
        array = _drop_hidden_items(array, _either(hidden, array))
        items = _clear(list_child(array), kind.value_field, None)
        return _with_validity(rebuild_list(array, items, kind), field, hidden)
    return _with_validity(array, field, hidden)


def _either(hidden: np.ndarray | None, array: pa.Array) -> np.ndarray | None:
    """Return a mask of the rows that are hidden or null themselves."""
    if array.null_count == 0:
        return hidden
    null: np.ndarray = array.is_null().to_numpy(zero_copy_only=False)
    return null if hidden is None else null | hidden


def _drop_hidden_items(array: pa.Array, gone: np.ndarray | None) -> pa.Array:
    """Return a list or map array without the items of some rows."""
    if gone is None or not gone.any():
        return compact(array)
    array = compact(array)
    validity, offsets = array.buffers()[:2]
    ends = np.frombuffer(offsets, np.int32, len(array) + 1)
    lengths = ends[1:] - ends[:-1]
    if not lengths[gone].any():
        return array
    starts = np.zeros(len(array) + 1, np.int32)
    np.cumsum(np.where(gone, 0, lengths), out=starts[1:])
    items = array.values.filter(pa.array(np.repeat(~gone, lengths)))
    return pa.Array.from_buffers(array.type, len(array), [validity, pa.py_buffer(starts)], -1, children=[items])


def _with_validity(array: pa.Array, field: pa.Field, hidden: np.ndarray | None) -> pa.Array:
    """Make hidden rows null if the field is nullable, and valid if not, without changing their values."""
    if hidden is None or not hidden.any():
        return array
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    valid = valid & ~hidden if field.nullable else valid | hidden
    array = dense(array)
    kind = array.type
    if pa.types.is_struct(kind):
        own, children = 1, [array.field(index) for index in range(kind.num_fields)]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        own, children = 2, [array.values]
    else:
        own, children = len(array.buffers()), None
    validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(array), [validity, *array.buffers()[1:own]], -1, children=children)
