"""What lies below a null: nothing that a reader could see, and still something that a writer looks at.

Arrow lets any value stand below a null struct. Parquet's writer refuses one case of it: a member declared NOT NULL that
is null there, as it is in every row that is older than the column. `settle` puts the arrays of a column into the one
form that every writer takes: below a null a nullable member is null, a NOT NULL one holds an empty value, and a list or
map holds nothing.

Invariant: the values that can be seen stay as they are, and a null that breaks a NOT NULL where it can be seen stays a
null, so that the writer goes on refusing it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidelake.spec.arrow_nested import (
    compact,
    dense,
    list_child,
    map_children,
    rebuild_list,
    rebuild_map,
    rebuild_struct,
)

__all__ = ["settle"]


def settle(array: pa.Array, field: pa.Field) -> pa.Array:
    """The same values with nothing astonishing below a null.

    Args:
        array: Values of the type of the field, up to the nullability of what is inside.
        field: Says what may be null, at every depth.
    """
    return _settle(dense(array), field, None) if _hides(array) else array


def _hides(array: pa.Array) -> bool:
    """Whether there is a null struct anywhere: only below one can a member be out of place."""
    kind = array.type
    if pa.types.is_struct(kind):
        return array.null_count > 0 or any(_hides(array.field(index)) for index in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _hides(array.keys) or _hides(array.items)
    return bool(pa.types.is_list(kind)) and _hides(array.values)


def _settle(array: pa.Array, field: pa.Field, hidden: np.ndarray | None) -> pa.Array:
    """A dense array whose rows marked as hidden lie below a null."""
    kind = field.type
    if pa.types.is_struct(kind):
        members = [array.field(index) for index in range(kind.num_fields)]
        below = _either(hidden, array)
        settled = [_settle(member, kind.field(index), below) for index, member in enumerate(members)]
        return _with_validity(rebuild_struct(array, settled, kind), field, hidden)
    if pa.types.is_map(kind):
        array = _emptied(array, _either(hidden, array))
        keys, values = map_children(array)
        keys, values = _settle(keys, kind.key_field, None), _settle(values, kind.item_field, None)
        return _with_validity(rebuild_map(array, keys, values, kind), field, hidden)
    if pa.types.is_list(kind):
        array = _emptied(array, _either(hidden, array))
        items = _settle(list_child(array), kind.value_field, None)
        return _with_validity(rebuild_list(array, items, kind), field, hidden)
    return _with_validity(array, field, hidden)


def _either(hidden: np.ndarray | None, array: pa.Array) -> np.ndarray | None:
    """Rows that are hidden or null themselves."""
    if array.null_count == 0:
        return hidden
    null: np.ndarray = array.is_null().to_numpy(zero_copy_only=False)
    return null if hidden is None else null | hidden


def _emptied(array: pa.Array, gone: np.ndarray | None) -> pa.Array:
    """A list or map array that holds no items for the rows that are gone."""
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
    """The array with its hidden rows null if the field may be, and valid if not; what they hold stays."""
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
