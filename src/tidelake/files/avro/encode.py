"""Encodes Arrow columns of any type as Avro records, vectorised.

As in `spec.avro.encode`, each value becomes one element of a binary array, and the arrays of a record's members are
joined element by element: the bytes of the joined array are the records. No Python object is created per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InternalError
from tidelake.spec.avro.encode import encode_values as encode_scalars
from tidelake.spec.types.arrow_nested import compact, struct_children, vector_to_list

__all__ = ["encode_columns", "encode_one"]

AvroType = Any
_EMPTY: Final = pa.scalar(b"", pa.large_binary())
_END: Final = pa.scalar(b"\x00", pa.large_binary())
_SECOND: Final = pa.scalar(b"\x02", pa.large_binary())


def encode_columns(columns: Sequence[pa.Array], avro_types: Sequence[AvroType]) -> pa.LargeBinaryArray:
    """Encode the rows of columns as records, one element each."""
    return _join([encode_one(column, kind) for column, kind in zip(columns, avro_types, strict=True)])


def encode_one(array: pa.Array, avro_type: AvroType) -> pa.LargeBinaryArray:
    """Encode each value of an array of a canonical Arrow type as an Avro type."""
    match avro_type:
        case ["null", branch]:
            return _encode_nullable(array, branch)
        case {"type": "record", "fields": members}:
            return encode_columns(struct_children(array), [member["type"] for member in members])
        case {"type": "array", "logicalType": "map", "items": {"fields": [key, value]}}:
            keys, values = _entries(array)
            return _encode_blocks(array, _join([encode_one(keys, key["type"]), encode_one(values, value["type"])]))
        case {"type": "array", "items": items}:
            return _encode_blocks(_as_list(array), encode_one(_items(_as_list(array)), items))
        case {"type": "map", "values": items}:
            keys, values = _entries(array)
            return _encode_blocks(array, _join([encode_scalars(keys, "string"), encode_one(values, items)]))
        case {"type": "bytes", "logicalType": "decimal"}:
            return _encode_decimals(array)
        case "boolean":
            return _encode_fixed(array.cast(pa.uint8()).to_numpy(zero_copy_only=False), 1)
        case "float" | "double":
            width = 4 if avro_type == "float" else 8
            return _encode_fixed(array.to_numpy(zero_copy_only=False), width)
        case "int" | "long" | {"type": "int" | "long"}:
            width = array.type.bit_width
            plain = array if pa.types.is_integer(array.type) else array.view(pa.int32() if width == 32 else pa.int64())
            return encode_scalars(plain, "long")
        case "string" | "bytes":
            return encode_scalars(array, avro_type)
    raise InternalError("Avro type has no encoder", avro_type=avro_type)


def _encode_nullable(array: pa.Array, branch: AvroType) -> pa.LargeBinaryArray:
    if array.null_count == 0:
        return _join([pa.repeat(_SECOND, len(array)), encode_one(array, branch)])
    present = array.is_valid()
    if array.null_count == len(array):
        return pa.repeat(_END, len(array))
    # Encode only the values that are not null; a null is the branch number alone.
    encoded = encode_one(compact(array.filter(present)), branch)
    mask = present.to_numpy(zero_copy_only=False)
    places = pa.array(np.cumsum(mask) - 1, mask=~mask)
    return _join([pc.if_else(present, _SECOND, _END), encoded.take(places).fill_null(b"")])


def _as_list(array: pa.Array) -> pa.Array:
    if pa.types.is_fixed_size_list(array.type):
        return vector_to_list(array, pa.list_(array.type.value_field))
    return array


def _items(array: pa.Array) -> pa.Array:
    return array.flatten()


def _entries(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    offsets = _list_offsets(array)
    start, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    return array.keys.slice(start, length), array.items.slice(start, length)


def _list_offsets(array: pa.Array) -> np.ndarray:
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)


def _encode_blocks(array: pa.Array, items: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Join encoded items to the lists of an array without nulls: count, items, and a closing zero."""
    lengths = np.diff(_list_offsets(array)).astype(np.int64)
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    item_offsets, data = _parts(items)
    bodies = _binary(item_offsets[starts], data)
    counts = encode_scalars(pa.array(lengths), "long")
    # The count of an empty list is zero, which is already the closing zero.
    closing = pc.if_else(pa.array(lengths > 0), _END, _EMPTY)
    return _join([counts, bodies, closing])


def _encode_decimals(array: pa.Array) -> pa.LargeBinaryArray:
    """Encode unscaled values as big-endian two's complement with as few bytes as possible."""
    array = compact(array.cast(pa.decimal128(38, array.type.scale)))
    raw = np.frombuffer(array.buffers()[1], np.uint8, len(array) * 16, array.offset * 16).reshape(-1, 16)[:, ::-1]
    fill = np.where(raw[:, 0] >= 0x80, 0xFF, 0).astype(np.uint8)
    # A leading byte can be dropped if it only repeats the sign, and the next byte still has it.
    repeats = (raw[:, :-1] == fill[:, None]) & ((raw[:, 1:] ^ fill[:, None]) < 0x80)
    dropped = np.cumprod(repeats, axis=1).sum(axis=1)
    lengths = (16 - dropped).astype(np.int64)
    data = raw[np.arange(16) >= dropped[:, None]]
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return _join([encode_scalars(pa.array(lengths), "long"), _binary(offsets, data)])


def _encode_fixed(values: np.ndarray, width: int) -> pa.LargeBinaryArray:
    data = np.ascontiguousarray(values).view(np.uint8)
    return _binary(np.arange(len(values) + 1, dtype=np.int64) * width, data)


def _join(pieces: Sequence[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
    return pieces[0] if len(pieces) == 1 else pc.binary_join_element_wise(*pieces, _EMPTY)


def _binary(offsets: np.ndarray, data: np.ndarray) -> pa.LargeBinaryArray:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int64)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _parts(array: pa.LargeBinaryArray) -> tuple[np.ndarray, np.ndarray]:
    _, offsets, data = array.buffers()
    view = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
    return view, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
