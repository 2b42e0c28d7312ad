"""Encode Arrow columns as Avro records, vectorised.

`encode_values` encodes a column to one binary array. The arrays of a record's fields are joined element by element, and
the data buffer of the result is the payload of a block: there is never a Python object per record. Arrays of lists
reuse the data buffer of their encoded items.

Few records are encoded by fastavro instead, which has less overhead per call. Both give the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InternalError
from tidelake.spec.avro.container import RawBlock, plain_type

_ZERO = b"\x00"
_ONE = b"\x02"  # 1 in zig-zag form: the second branch of a union

AvroType = Any
BULK_COUNT = 50
"""From this many records on the columnar encoder is faster."""


def encode_records(fields: Sequence[Mapping[str, Any]], columns: Sequence[pa.Array]) -> pa.LargeBinaryArray:
    """Encode records; `columns` are in the order of `fields`."""
    if len(columns[0]) < BULK_COUNT:
        return _encode_few(fields, columns)
    return _join([encode_values(column, field["type"]) for field, column in zip(fields, columns, strict=True)])


def encode_values(values: pa.Array | pa.ChunkedArray, avro_type: AvroType) -> pa.LargeBinaryArray:
    """Encode each value of an Arrow array as the given Avro type."""
    if isinstance(values, pa.ChunkedArray):
        values = _one_chunk(values)
    match avro_type:
        case "int" | "long" | {"type": "int" | "long"}:
            return _encode_longs(_integers(values))
        case "string" | "bytes":
            return _encode_bytes(values)
        case ["null", branch]:
            return _encode_nullable(values, branch)
        case {"type": "array", "items": items}:
            return _encode_lists(values, items)
        case {"type": "record", "fields": fields}:
            return encode_records(fields, values.flatten())
    raise InternalError("Avro type has no encoder", avro_type=avro_type)


def split_blocks(records: pa.LargeBinaryArray, *, block_bytes: int) -> list[RawBlock]:
    """Cut encoded records into blocks of about `block_bytes` each."""
    if len(records) == 0:
        return []
    offsets, data = _parts(records)
    start = int(offsets[0])
    targets = np.arange(start + block_bytes, int(offsets[-1]) + block_bytes, block_bytes)
    cuts = np.unique(np.minimum(np.searchsorted(offsets, targets), len(records)))
    blocks: list[RawBlock] = []
    first = 0
    for last in cuts.tolist():
        if last > first:
            blocks.append(RawBlock(last - first, data[int(offsets[first]) : int(offsets[last])].tobytes()))
            first = last
    return blocks


def _encode_few(fields: Sequence[Mapping[str, Any]], columns: Sequence[pa.Array]) -> pa.LargeBinaryArray:
    import fastavro

    schema = few_schema(tuple(map(id, fields)), fields)
    names = [f"f{i}" for i in range(len(fields))]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    records: list[bytes] = []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, dict(zip(names, row, strict=True)))
        records.append(stream.getvalue())
    return pa.array(records, pa.large_binary())


_FEW: dict[tuple[int, ...], tuple[Sequence[Mapping[str, Any]], Any]] = {}


def few_schema(key: tuple[int, ...], fields: Sequence[Mapping[str, Any]]) -> Any:
    """The parsed schema of these fields. They are module constants that live forever, so their ids are a valid key."""
    import fastavro

    if key not in _FEW:
        flat = [{"name": f"f{i}", "type": plain_type(field["type"])} for i, field in enumerate(fields)]
        _FEW[key] = (fields, fastavro.parse_schema({"type": "record", "name": "few", "fields": flat}))
    return _FEW[key][1]


# ------------------------------------------------------------------------------------------------ pieces


def _encode_longs(values: np.ndarray[Any, np.dtype[np.int64]]) -> pa.LargeBinaryArray:
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    width = 1
    largest = int(zigzag.max()) if len(zigzag) else 0
    while largest >> (7 * width):
        width += 1
    if width == 1:
        sizes = np.ones(len(values), dtype=np.int64)
        data = zigzag.astype(np.uint8)
    else:
        shifts = (7 * np.arange(width)).astype(np.uint64)
        digits = zigzag[:, None] >> shifts
        sizes = np.maximum((digits != 0).sum(axis=1), 1)
        places = np.arange(width)
        more = places < (sizes - 1)[:, None]
        septets = (digits & 0x7F).astype(np.uint8) | (more.astype(np.uint8) << 7)
        data = septets[places < sizes[:, None]]
    return _binary(_offsets(sizes), data)


def _encode_bytes(values: pa.Array) -> pa.LargeBinaryArray:
    binary = values.cast(pa.large_binary())
    if binary.null_count:
        binary = binary.fill_null(b"")
    sizes = pc.binary_length(binary).to_numpy(zero_copy_only=False).astype(np.int64)
    return _join([_encode_longs(sizes), binary])


def _encode_nullable(values: pa.Array, branch: AvroType) -> pa.LargeBinaryArray:
    if values.null_count == 0:
        return _join([_repeat(_ONE, len(values)), encode_values(values, branch)])
    if values.null_count == len(values):
        return _repeat(_ZERO, len(values))
    present = values.is_valid()
    # Only values that are not null are encoded; a null has no bytes after its branch number.
    encoded = encode_values(values.filter(present), branch)
    places = np.cumsum(present.to_numpy(zero_copy_only=False)) - 1
    indices = pa.array(places, mask=~present.to_numpy(zero_copy_only=False))
    body = encoded.take(indices).fill_null(b"")
    branches = pc.if_else(present, pa.scalar(_ONE, pa.large_binary()), pa.scalar(_ZERO, pa.large_binary()))
    return _join([branches, body])


def _encode_lists(values: pa.Array, items: AvroType) -> pa.LargeBinaryArray:
    values = values.cast(pa.large_list(values.type.value_type))
    sizes = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    encoded = encode_values(values.flatten(), items)
    item_offsets, data = _parts(encoded)
    bodies = _binary(item_offsets[_offsets(sizes)], data)
    if not sizes.any():
        return _repeat(_ZERO, len(values))
    counts = _encode_longs(sizes)
    # A list is encoded as one run of items and a closing zero, and an empty list as the zero alone.
    closing = pc.if_else(pa.array(sizes > 0), pa.scalar(_ZERO, pa.large_binary()), pa.scalar(b"", pa.large_binary()))
    return _join([counts, bodies, closing])


# ------------------------------------------------------------------------------------------------ binary arrays


def _join(pieces: Sequence[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
    if len(pieces) == 1:
        return pieces[0]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()))


def _binary(offsets: np.ndarray[Any, Any], data: np.ndarray[Any, Any]) -> pa.LargeBinaryArray:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, dtype=np.int64)), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _parts(array: pa.LargeBinaryArray) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The offsets and the data bytes of a binary array without nulls."""
    _, offsets, data = array.buffers()
    view = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    return view, np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)


def _offsets(sizes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _repeat(value: bytes, count: int) -> pa.LargeBinaryArray:
    return pa.repeat(pa.scalar(value, pa.large_binary()), count)


def _integers(values: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    if values.null_count:
        values = values.fill_null(0)
    result: np.ndarray[Any, np.dtype[np.int64]] = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return result


def _one_chunk(values: pa.ChunkedArray) -> pa.Array:
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
