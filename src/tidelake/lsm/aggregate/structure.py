"""Numbers the distinct values of an Arrow array of any type, so that equal values have equal numbers.

Equality is that of the format: null equals null, NaN equals NaN, 0.0 differs from -0.0, rows and arrays are equal if
their members are, and maps if they have the same entries in any order. Invariant: two values of one array get the same
number if and only if they are equal; numbers are dense, from 0, in the order in which values first appear.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidelake.lsm.aggregate.arrays import Index, bitmap, floats_to_integers, join_keys, valid
from tidelake.spec.types.arrow_nested import vector_to_list

__all__ = ["as_entries", "dense_codes", "list_lengths", "value_codes"]


def value_codes(array: pa.Array) -> Index:
    """Return the number of each value; nulls have a number of their own."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _row_codes(array)
    if pa.types.is_map(kind):
        return _map_codes(array)
    if pa.types.is_fixed_size_list(kind):
        return _list_codes(vector_to_list(array, pa.list_(kind.value_field)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_codes(array)
    if pa.types.is_floating(kind):
        array = pa.array(floats_to_integers(array), mask=~valid(array))
    elif pa.types.is_null(kind):
        return np.zeros(len(array), np.int64)
    return _number_values(array)


def dense_codes(keys: Index) -> Index:
    """Renumber keys densely in the order in which they first appear."""
    return _number_values(pa.array(keys))


def list_lengths(array: pa.Array) -> Index:
    """Return the length of each list; 0 for a null list."""
    lengths = array.value_lengths()
    found: Index = lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def as_entries(array: pa.Array) -> pa.Array:
    """Return a map array as lists of its entries, without a copy."""
    kind = array.type
    members = pa.struct([kind.key_field, kind.item_field])
    validity, offsets = array.buffers()[:2]
    shape = pa.list_(pa.field("entries", members, nullable=False))
    child = pa.StructArray.from_arrays([array.values.field(0), array.values.field(1)], fields=list(members))
    return pa.Array.from_buffers(shape, len(array), [validity, offsets], -1, array.offset, children=[child])


def _number_values(array: pa.Array) -> Index:
    codes: Index = array.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    return codes


def _row_codes(array: pa.Array) -> Index:
    mask = valid(array)
    codes = mask.astype(np.int64)
    for index in range(array.type.num_fields):
        member = np.where(mask, value_codes(array.field(index)), 0)
        codes = dense_codes(join_keys(codes, member))
    return dense_codes(codes) if array.type.num_fields == 0 else codes


def _list_codes(array: pa.Array) -> Index:
    lengths = list_lengths(array)
    return _sequence_codes(value_codes(array.flatten()), lengths, valid(array))


def _map_codes(array: pa.Array) -> Index:
    entries = as_entries(array)
    lengths = list_lengths(entries)
    flat = entries.flatten()
    keys = value_codes(flat.field(0))
    rows = np.repeat(np.arange(len(array)), lengths)
    order = np.lexsort((keys, rows))
    pairs = join_keys(keys, value_codes(flat.field(1)))
    return _sequence_codes(pairs[order], lengths, valid(array))


def _sequence_codes(items: Index, lengths: Index, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Index:
    """Number sequences by comparing the bytes of their items' numbers."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths * 8, out=offsets[1:])
    buffers = [bitmap(mask), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(items))]
    return _number_values(pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers))
