"""Decode BinaryRows to Arrow columns, column by column.

The bytes come from files and are not trusted: every offset and length is checked against the bounds of its row (or
array, or map) before it is used, for all rows at once. Invariant: any bytes give either arrays that pass Arrow's full
validation or a `FormatError` that names the row and the field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.rows.binary_row_encode import octets
from tidelake.spec.rows.binary_row_layout import (
    ARITY_PREFIX_SIZE,
    INLINE_MAX,
    MILLIS_OF_DAY,
    NANOS_OF_MILLI,
    NULL_BITS_START,
    SIZE_MAX,
    WIDE_DECIMAL_SIZE,
    WIDE_TIMESTAMP_SIZE,
    Family,
    element_width,
    family,
    null_bits_size,
)
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import (
    INT,
    DataType,
    DecimalType,
    ElementType,
    MapType,
    Root,
    RowType,
    TimeType,
    VectorType,
)

__all__ = ["decode_rows"]

_Bytes = npt.NDArray[np.uint8]
_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]

_GATHER_BYTES_MAX = 1 << 22
_INT64 = np.iinfo(np.int64)


def decode_rows(
    rows: pa.BinaryArray | pa.LargeBinaryArray,
    types: Sequence[DataType],
    *,
    columns: Sequence[int] | None = None,
    arity_prefix: bool = True,
) -> list[pa.Array]:
    """The columns of BinaryRows, in their canonical Arrow types.

    Args:
        rows: The rows; their lengths may differ.
        types: The types of all fields of a row.
        columns: Positions of the fields to decode, in the order of the result; None for all.
        arity_prefix: Whether each row starts with its arity, as all stored rows do.

    Raises:
        FormatError: A row is null, has the wrong arity, or its bytes contradict the types.
        InvalidInputError: A position is out of range, or a decoded column would be larger than 2 GiB.
    """
    wanted = range(len(types)) if columns is None else columns
    for index in wanted:
        if not 0 <= index < len(types):
            raise InvalidInputError("row has no field at this position", position=index, fields=len(types))
    if isinstance(rows, pa.ChunkedArray):
        rows = pa.concat_arrays([chunk.cast(pa.large_binary()) for chunk in rows.chunks] or [pa.array([], rows.type)])
    if rows.null_count:
        raise FormatError("row is null", row=rows.is_null().index(True).as_py())
    blocks = _top_level(rows, len(types), arity_prefix=arity_prefix)
    null_bits = null_bits_size(len(types))
    if bool(np.any(bad := blocks.size < null_bits + 8 * len(types))):
        raise blocks.error("row is too short for its fields", bad, fields=len(types))
    return [_field(blocks, index, null_bits, types[index], f"field {index}") for index in wanted]


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Rows, arrays or other containers in the data, and how many bytes of each its values have claimed.

    In real data no two values of a container share bytes, so that the claims add up to at most its size. This is
    checked, because a small hostile array could otherwise decode to gigabytes by pointing all elements to the same
    bytes.

    Attributes:
        data: All bytes, followed by zeros so that a fixed-width read never runs past the end.
        start: Where each container starts.
        size: How many bytes it has.
        claimed: How many of them its values have claimed so far; the only field that changes.
        row: The number of the row that each container belongs to, for error messages.
    """

    data: _Bytes
    start: _Ints
    size: _Ints
    claimed: _Ints
    row: _Ints

    def error(self, message: str, bad: _Bools, **facts: Any) -> FormatError:
        first = int(np.argmax(bad))
        return FormatError(message, row=self.row[first], size=self.size[first], **facts)


@dataclass(frozen=True, slots=True)
class _Slots:
    """One value per slot: `position` in the data, the container it belongs to, and whether it is null."""

    blocks: _Blocks
    position: _Ints
    owner: _Ints | None
    nulls: _Bools
    dtype: DataType
    name: str

    def __len__(self) -> int:
        return len(self.position)

    def read(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return _read(self.blocks.data, self.position, dtype)

    def of_owner(self, values: _Ints) -> _Ints:
        return values if self.owner is None else values[self.owner]

    def check(self, bad: _Bools, message: str) -> None:
        bad = bad & ~self.nulls
        if bad.any():
            row = int(self.of_owner(self.blocks.row)[int(np.argmax(bad))])
            raise FormatError(message, row=row, field=self.name, type=self.dtype)

    def claim(self, offset: _Ints, size: _Ints) -> _Ints:
        """Check that payloads are inside their containers, and return their start in the data."""
        size = np.where(self.nulls, 0, size)
        limit = self.of_owner(self.blocks.size)
        self.check(offset + size > limit, "value extends beyond its row")
        claimed = self.blocks.claimed
        if self.owner is None:
            claimed += size
        else:
            total = np.zeros(len(size) + 1, np.int64)
            np.cumsum(size, out=total[1:])
            # The slots of a container are adjacent, so the sum over them is a difference of running totals.
            ends = np.searchsorted(self.owner, np.arange(len(claimed)), side="right")
            claimed += np.diff(total[ends], prepend=0)
        self.check(self.of_owner(claimed) > limit, "values of a row share bytes")
        return self.of_owner(self.blocks.start) + np.where(self.nulls, 0, offset)


def _read(data: _Bytes, position: _Ints, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Little-endian values at any positions, aligned or not."""
    kind = np.dtype(dtype).newbyteorder("<")
    every: npt.NDArray[Any] = np.ndarray((len(data) - kind.itemsize + 1,), kind, data, strides=(1,))
    return every[position]


def _top_level(rows: pa.Array, arity: int, *, arity_prefix: bool) -> _Blocks:
    data, offsets = octets(rows)
    begin, end = int(offsets[0]), int(offsets[-1])
    # One copy, which appends the zeros that make fixed-width reads at the end safe.
    data = np.concatenate([data[begin:end], np.zeros(16, np.uint8)])
    start, size = offsets[:-1] - begin, np.diff(offsets)
    if not arity_prefix:
        return _Blocks(data, start, size, np.zeros_like(size), np.arange(len(size)))
    row = np.arange(len(size))
    blocks = _Blocks(data, start + ARITY_PREFIX_SIZE, size - ARITY_PREFIX_SIZE, np.zeros_like(size), row)
    if bool(np.any(bad := blocks.size < 0)):
        raise blocks.error("row is shorter than its arity prefix", bad)
    arities = _read(data, start, np.int32).astype(np.int32).byteswap()
    if bool(np.any(bad := arities != arity)):
        found = arities[int(np.argmax(bad))]
        raise blocks.error("row has the wrong number of fields", bad, arity=found, expected=arity)
    return blocks


def _field(blocks: _Blocks, index: int, null_bits: int, dtype: DataType, name: str) -> pa.Array:
    byte, bit = divmod(index + NULL_BITS_START, 8)
    nulls = (blocks.data[blocks.start + byte] >> bit & 1).astype(np.bool_)
    return _decode(_Slots(blocks, blocks.start + (null_bits + 8 * index), None, nulls, dtype, name))


def _decode(slots: _Slots) -> pa.Array:
    match family(slots.dtype):
        case Family.NUMBER:
            return _decode_number(slots)
        case Family.BYTES:
            return _decode_bytes(slots)
        case Family.WIDE_DECIMAL:
            return _decode_wide_decimal(slots)
        case Family.WIDE_TIMESTAMP:
            return _decode_wide_timestamp(slots)
    return _decode_nested(slots)


# ------------------------------------------------------------------------------------------------ scalars


def _validity(nulls: _Bools) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None


def _array(slots: _Slots, values: npt.NDArray[Any]) -> pa.Array:
    values = np.ascontiguousarray(values)
    if slots.nulls.any():
        values[slots.nulls] = 0
    buffers = [_validity(slots.nulls), pa.py_buffer(values)]
    return pa.Array.from_buffers(to_arrow(slots.dtype), len(slots), buffers)


def _decode_number(slots: _Slots) -> pa.Array:
    dtype = slots.dtype
    if dtype.root is Root.BOOLEAN:
        bits = np.packbits(slots.read(np.uint8) != 0, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(slots), [_validity(slots.nulls), pa.py_buffer(bits)])
    if isinstance(dtype, DecimalType):
        low = slots.read(np.int64)
        limit = 10**dtype.precision
        slots.check((low <= -limit) | (low >= limit), "decimal has more digits than its type")
        return _array(slots, np.stack([low, low >> 63], axis=1))
    values = slots.read({1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}[element_width(dtype)])
    if dtype.root is Root.TIME:
        slots.check((values < 0) | (values >= MILLIS_OF_DAY), "time of day is out of range")
    return _array(slots, values)


def _decode_wide_decimal(slots: _Slots) -> pa.Array:
    slot = slots.read(np.uint64)
    size = (slot & np.uint64(0xFFFFFFFF)).astype(np.int64)
    slots.check((size < 1) | (size > WIDE_DECIMAL_SIZE), "decimal has an impossible length")
    size = np.clip(size, 1, WIDE_DECIMAL_SIZE)
    start = slots.claim((slot >> np.uint64(32)).astype(np.int64), size)
    # Byte k of the little-endian value is byte `size - 1 - k` of the stored one, and the sign beyond it.
    back = size[:, None] - 1 - np.arange(WIDE_DECIMAL_SIZE)
    sign = np.where(slots.blocks.data[start] & 0x80, np.uint8(0xFF), np.uint8(0))
    little = np.where(back >= 0, slots.blocks.data[start[:, None] + np.maximum(back, 0)], sign[:, None])
    array = _array(slots, little)
    _validate(slots, array, "decimal has more digits than its type")
    return array


def _decode_wide_timestamp(slots: _Slots) -> pa.Array:
    assert isinstance(slots.dtype, TimeType)
    slot = slots.read(np.uint64)
    nanos = (slot & np.uint64(0xFFFFFFFF)).astype(np.int64)
    slots.check(nanos >= NANOS_OF_MILLI, "timestamp has more than a millisecond of nanoseconds")
    size = np.full(len(slots), WIDE_TIMESTAMP_SIZE, np.int64)
    millis = _read(slots.blocks.data, slots.claim((slot >> np.uint64(32)).astype(np.int64), size), np.int64)
    per_milli = 1_000 if slots.dtype.precision <= 6 else NANOS_OF_MILLI
    part = nanos // (NANOS_OF_MILLI // per_milli)
    (low, low_part), (high, high_part) = divmod(_INT64.min, per_milli), divmod(_INT64.max, per_milli)
    outside = (millis < low) | (millis > high)
    outside |= ((millis == low) & (part < low_part)) | ((millis == high) & (part > high_part))
    slots.check(outside, "timestamp is out of the range of its Arrow type")
    return _array(slots, np.where(outside, 0, millis) * per_milli + part)


def _decode_bytes(slots: _Slots) -> pa.Array:
    slot = slots.read(np.uint64)
    high = (slot >> np.uint64(32)).astype(np.int64)
    inline = (high >> 31).astype(np.bool_)
    short = high >> 24 & 0x7F
    slots.check(inline & (short > INLINE_MAX), "inline value is longer than its slot")
    long = np.where(inline, 0, (slot & np.uint64(0xFFFFFFFF)).astype(np.int64))
    start = slots.claim(np.where(inline, 0, high), long)
    start = np.where(inline, slots.position, start)
    size = np.where(slots.nulls, 0, np.where(inline, short, long))
    array = _binary(slots, start, size, to_arrow(slots.dtype))
    if slots.dtype.root in (Root.CHAR, Root.VARCHAR):
        _validate(slots, array, "text is not valid UTF-8")
    return array


def _binary(slots: _Slots, start: _Ints, size: _Ints, arrow_type: pa.DataType) -> pa.Array:
    offsets = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=offsets[1:])
    if offsets[-1] > SIZE_MAX:
        raise InvalidInputError("column is larger than 2 GiB", field=slots.name, hint="decode fewer rows at a time")
    data = _gather(slots.blocks.data, start, offsets)
    buffers = [_validity(slots.nulls), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(arrow_type, len(slots), buffers)


def _gather(data: _Bytes, start: _Ints, offsets: _Ints) -> _Bytes:
    """Copy the strings that start at `start` into one buffer, at `offsets`."""
    out = np.empty(int(offsets[-1]), np.uint8)
    shift = start - offsets[:-1]
    first = 0
    while first < len(start):
        # The index takes eight bytes for each byte of data, so it is made in pieces to limit memory.
        limit = int(offsets[first]) + _GATHER_BYTES_MAX
        last = max(first + 1, int(np.searchsorted(offsets, limit, side="right")) - 1)
        begin, end = int(offsets[first]), int(offsets[last])
        if last == first + 1:
            out[begin:end] = data[start[first] : start[first] + end - begin]
        else:
            index = np.arange(begin, end) + np.repeat(shift[first:last], np.diff(offsets[first : last + 1]))
            out[begin:end] = data[index]
        first = last
    return out


def _validate(slots: _Slots, array: pa.Array, message: str) -> None:
    try:
        array.validate(full=True)
    except (pa.ArrowInvalid, UnicodeDecodeError) as cause:
        row = int(slots.of_owner(slots.blocks.row)[_first_invalid(array)])
        raise FormatError(message, row=row, field=slots.name, type=slots.dtype) from cause


def _first_invalid(array: pa.Array) -> int:
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            array.slice(low, middle - low).validate(full=True)
            low = middle
        except (pa.ArrowInvalid, UnicodeDecodeError):
            high = middle
    return low


# ------------------------------------------------------------------------------------------------ nested


def _decode_nested(slots: _Slots) -> pa.Array:
    slot = slots.read(np.uint64)
    size = (slot & np.uint64(0xFFFFFFFF)).astype(np.int64)
    start = slots.claim((slot >> np.uint64(32)).astype(np.int64), size)
    valid = ~slots.nulls
    row = slots.of_owner(slots.blocks.row)[valid]
    inner = _Blocks(slots.blocks.data, start[valid], size[valid], np.zeros(len(row), np.int64), row)
    match slots.dtype:
        case RowType(fields=fields):
            return _decode_struct(slots, inner, fields)
        case VectorType(element=element, length=length):
            return _decode_vector(slots, inner, element, length)
        case MapType(key=key, value=value):
            return _decode_map(slots, inner, key, value)
        case ElementType(root=Root.MULTISET, element=element):
            return _decode_map(slots, inner, element, INT)
        case ElementType(element=element):
            counts, values = _decode_arrays(inner, element, f"{slots.name}.element")
            return _list(slots, counts, values)
    return _decode_variant(slots, inner)


def _decode_struct(slots: _Slots, inner: _Blocks, fields: Sequence[Any]) -> pa.Array:
    null_bits = null_bits_size(len(fields))
    if bool(np.any(bad := inner.size < null_bits + 8 * len(fields))):
        raise inner.error("row is too short for its fields", bad, field=slots.name, fields=len(fields))
    members = [
        _spread(slots, _field(inner, index, null_bits, field.type, f"{slots.name}.{field.name}"))
        for index, field in enumerate(fields)
    ]
    return pa.Array.from_buffers(to_arrow(slots.dtype), len(slots), [_validity(slots.nulls)], children=members)


def _spread(slots: _Slots, values: pa.Array) -> pa.Array:
    """The values of the valid slots, with nulls in the others."""
    if len(values) == len(slots):
        return values
    return values.take(pa.array(np.cumsum(~slots.nulls) - 1, mask=slots.nulls))


def _list(slots: _Slots, counts: _Ints, values: pa.Array) -> pa.Array:
    lengths = np.zeros(len(slots), np.int64)
    lengths[~slots.nulls] = counts
    offsets = np.zeros(len(slots) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > SIZE_MAX:
        raise InvalidInputError("column has too many elements", field=slots.name, hint="decode fewer rows at a time")
    buffers = [_validity(slots.nulls), pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(to_arrow(slots.dtype), len(slots), buffers, children=[values])


def _counts(blocks: _Blocks, name: str) -> _Ints:
    """The i32 at the start of each container, which is never negative."""
    if bool(np.any(bad := blocks.size < 4)):
        raise blocks.error("value is too short for its size", bad, field=name)
    counts = _read(blocks.data, blocks.start, np.int32).astype(np.int64)
    if bool(np.any(bad := counts < 0)):
        raise blocks.error("value has a negative size", bad, field=name)
    return counts


def _decode_arrays(blocks: _Blocks, dtype: DataType, name: str) -> tuple[_Ints, pa.Array]:
    counts, width = _counts(blocks, name), element_width(dtype)
    headers = 4 + (counts + 31) // 32 * 4
    if bool(np.any(bad := headers + counts * width > blocks.size)):
        raise blocks.error("array is too short for its elements", bad, field=name)
    owner = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    start = blocks.start[owner]
    nulls = (blocks.data[start + 4 + within // 8] >> (within % 8).astype(np.uint8) & 1).astype(np.bool_)
    position = start + headers[owner] + within * width
    return counts, _decode(_Slots(blocks, position, owner, nulls, dtype, name))


def _split(blocks: _Blocks, name: str) -> tuple[_Blocks, _Blocks]:
    """Split each container into a part that is preceded by its size, and the rest."""
    sizes = _counts(blocks, name)
    if bool(np.any(bad := 4 + sizes > blocks.size)):
        raise blocks.error("value extends beyond its row", bad, field=name)
    return (
        _Blocks(blocks.data, blocks.start + 4, sizes, np.zeros_like(sizes), blocks.row),
        _Blocks(blocks.data, blocks.start + 4 + sizes, blocks.size - 4 - sizes, np.zeros_like(sizes), blocks.row),
    )


def _decode_map(slots: _Slots, inner: _Blocks, key: DataType, value: DataType) -> pa.Array:
    key_blocks, value_blocks = _split(inner, slots.name)
    counts, keys = _decode_arrays(key_blocks, key, f"{slots.name}.key")
    value_counts, values = _decode_arrays(value_blocks, value, f"{slots.name}.value")
    if bool(np.any(bad := counts != value_counts)):
        raise inner.error("map has a key without a value", bad, field=slots.name)
    if keys.null_count:
        nulls = keys.is_null().to_numpy(zero_copy_only=False)
        bad = np.bincount(np.repeat(np.arange(len(counts)), counts)[nulls], minlength=len(counts)) > 0
        raise inner.error("map has a null key", bad, field=slots.name)
    arrow_type = to_arrow(slots.dtype)
    entry = pa.struct([arrow_type.key_field, arrow_type.item_field])
    return _list(slots, counts, pa.Array.from_buffers(entry, len(keys), [None], children=[keys, values]))


def _decode_vector(slots: _Slots, inner: _Blocks, element: DataType, length: int) -> pa.Array:
    if family(element) is not Family.NUMBER:
        raise FormatError("elements of a vector are not numbers", field=slots.name, type=slots.dtype)
    width = element_width(element)
    if bool(np.any(bad := (_counts(inner, slots.name) != length) | (inner.size < 4 + width * length))):
        raise inner.error("vector does not have the length of its type", bad, field=slots.name, type=slots.dtype)
    if len(slots) * length > SIZE_MAX:
        raise InvalidInputError("column has too many elements", field=slots.name, hint="decode fewer rows at a time")
    # In Arrow a null vector has elements too, which are never used. Read them from the zeros after the data.
    start = np.full(len(slots), len(inner.data) - 16, np.int64)
    start[~slots.nulls] = inner.start + 4
    step = np.where(slots.nulls, 0, width)
    position = (start[:, None] + step[:, None] * np.arange(length, dtype=np.int64)).reshape(-1).astype(np.int64)
    row = np.repeat(slots.of_owner(slots.blocks.row), length)
    blocks = _Blocks(inner.data, position, np.full(len(position), width), np.zeros_like(position), row)
    nulls = np.zeros(len(position), np.bool_)
    values = _decode(_Slots(blocks, position, None, nulls, element, f"{slots.name}.element"))
    return pa.Array.from_buffers(to_arrow(slots.dtype), len(slots), [_validity(slots.nulls)], children=[values])


def _decode_variant(slots: _Slots, inner: _Blocks) -> pa.Array:
    members = []
    for part, name in zip(_split(inner, slots.name), ("value", "metadata"), strict=True):
        nulls = np.zeros(len(part.start), np.bool_)
        holder = _Slots(part, part.start, None, nulls, slots.dtype, f"{slots.name}.{name}")
        members.append(_spread(slots, _binary(holder, part.start, part.size, pa.binary())))
    return pa.Array.from_buffers(to_arrow(slots.dtype), len(slots), [_validity(slots.nulls)], children=members)
