"""The slow twin of the BinaryRow codecs: one value at a time, written to be compared with the specification.

It shares no code with `tidelake.spec.rows.binary_row*`, so that the two check each other. Values are those of the
internal domain that `binary_row_scalar` describes. Input is not validated.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

from tidelake.spec.types.data_types import (
    DataType,
    DecimalType,
    ElementType,
    MapType,
    Root,
    RowType,
    SimpleType,
    TimeType,
    VectorType,
)

__all__ = ["slow_bucket", "slow_decode", "slow_encode", "slow_hash"]

_FORMATS = {
    Root.BOOLEAN: "<?",
    Root.TINYINT: "<b",
    Root.SMALLINT: "<h",
    Root.INT: "<i",
    Root.DATE: "<i",
    Root.TIME: "<i",
    Root.BIGINT: "<q",
    Root.FLOAT: "<f",
    Root.DOUBLE: "<d",
}
_TEXTS = (Root.CHAR, Root.VARCHAR)
_BINARIES = (Root.BINARY, Root.VARBINARY, Root.BLOB, Root.GEOMETRY, Root.GEOGRAPHY)
_CONTEXT = Context(prec=60)
_COUNT = SimpleType(Root.INT, nullable=False)


def slow_encode(values: Sequence[Any], types: Sequence[DataType], *, arity_prefix: bool = True) -> bytes:
    """Encode one row."""
    row = _Writer(header=(len(types) + 63 + 8) // 64 * 8, first_null_bit=8, width=8, count=len(types))
    for index, (value, dtype) in enumerate(zip(values, types, strict=True)):
        if value is None:
            row.set_null(index)
            if _is_wide_decimal(dtype):
                row.set_slot(index, _offset_and(0, row.append(bytes(16))))
            elif _is_wide_timestamp(dtype):
                row.set_slot(index, _offset_and(0, row.append(bytes(8))))
        else:
            row.set_value(index, value, dtype)
    return (struct.pack(">i", len(types)) if arity_prefix else b"") + bytes(row.data)


def slow_decode(data: bytes, types: Sequence[DataType], *, arity_prefix: bool = True) -> tuple[Any, ...]:
    """Decode one row."""
    if arity_prefix:
        assert struct.unpack(">i", data[:4]) == (len(types),)
        data = data[4:]
    header = (len(types) + 63 + 8) // 64 * 8
    return tuple(
        None if _bit(data, 8 + index) else _decode_value(data, header + 8 * index, dtype)
        for index, dtype in enumerate(types)
    )


def slow_hash(row: bytes) -> int:
    """Return the hash code of row bytes without arity prefix."""

    def rotate(number: int, bits: int) -> int:
        return (number << bits | number >> 32 - bits) & 0xFFFFFFFF

    state = 42
    for (word,) in struct.iter_unpack("<I", row):
        word = rotate(word * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
        state = (rotate(state ^ word, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    state ^= len(row)
    state = (state ^ state >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    state = (state ^ state >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    state ^= state >> 16
    return state - 2**32 if state >= 2**31 else state


def slow_bucket(values: Sequence[Any], types: Sequence[DataType], count: int) -> int:
    """Return the bucket that the default bucket function chooses."""
    return abs(slow_hash(slow_encode(values, types, arity_prefix=False))) % count


class _Writer:
    """A row or array that is being written: header, slots, and a growing variable part."""

    def __init__(self, *, header: int, first_null_bit: int, width: int, count: int) -> None:
        self.header, self.first_null_bit, self.width = header, first_null_bit, width
        self.data = bytearray(_round_up(header + width * count))

    def set_null(self, index: int) -> None:
        bit = self.first_null_bit + index
        self.data[bit // 8] |= 1 << bit % 8

    def set_slot(self, index: int, slot: bytes) -> None:
        position = self.header + self.width * index
        self.data[position : position + len(slot)] = slot

    def append(self, payload: bytes) -> int:
        """Add an item to the variable part, padded; return its offset."""
        offset = len(self.data)
        self.data += payload + bytes(_round_up(len(payload)) - len(payload))
        return offset

    def set_value(self, index: int, value: Any, dtype: DataType) -> None:
        if dtype.root in _FORMATS:
            self.set_slot(index, struct.pack(_FORMATS[dtype.root], value))
        elif isinstance(dtype, DecimalType):
            self._set_decimal(index, int(value.scaleb(dtype.scale, _CONTEXT)), dtype)
        elif isinstance(dtype, TimeType):
            millis, nanos = value
            if _is_wide_timestamp(dtype):
                self.set_slot(index, _offset_and(nanos, self.append(struct.pack("<q", millis))))
            else:
                self.set_slot(index, struct.pack("<q", millis))
        elif dtype.root in _TEXTS or dtype.root in _BINARIES:
            data = value.encode() if dtype.root in _TEXTS else value
            if len(data) < 8:
                self.set_slot(index, data + bytes(7 - len(data)) + bytes([0x80 + len(data)]))
            else:
                self.set_slot(index, _offset_and(len(data), self.append(data)))
        else:
            data = _encode_nested(value, dtype)
            self.set_slot(index, _offset_and(len(data), self.append(data)))

    def _set_decimal(self, index: int, unscaled: int, dtype: DecimalType) -> None:
        if not _is_wide_decimal(dtype):
            self.set_slot(index, struct.pack("<q", unscaled))
            return
        size = next(n for n in range(1, 17) if -(2 ** (8 * n - 1)) <= unscaled < 2 ** (8 * n - 1))
        data = unscaled.to_bytes(size, "big", signed=True)
        self.set_slot(index, _offset_and(size, self.append(data + bytes(16 - size))))


def _encode_nested(value: Any, dtype: DataType) -> bytes:
    match dtype:
        case RowType(fields=fields):
            return slow_encode(value, [field.type for field in fields], arity_prefix=False)
        case VectorType(element=element):
            items = b"".join(struct.pack(_FORMATS[element.root], item) for item in value)
            return struct.pack("<i", len(value)) + items + bytes(_round_up(len(items)) - len(items))
        case MapType() | ElementType(root=Root.MULTISET):
            key, item = _map_types(dtype)
            keys = _encode_array([pair[0] for pair in value], key)
            return struct.pack("<i", len(keys)) + keys + _encode_array([pair[1] for pair in value], item)
        case ElementType(element=element):
            return _encode_array(value, element)
    content, metadata = value
    return struct.pack("<i", len(content)) + bytes(content) + bytes(metadata)


def _encode_array(values: Sequence[Any], dtype: DataType) -> bytes:
    header = 4 + (len(values) + 31) // 32 * 4
    array = _Writer(header=header, first_null_bit=32, width=_width(dtype), count=len(values))
    array.data[:4] = struct.pack("<i", len(values))
    for index, value in enumerate(values):
        if value is None:
            array.set_null(index)
        else:
            array.set_value(index, value, dtype)
    return bytes(array.data)


def _decode_value(data: bytes, position: int, dtype: DataType) -> Any:
    if dtype.root in _FORMATS:
        return struct.unpack_from(_FORMATS[dtype.root], data, position)[0]
    if isinstance(dtype, TimeType) and not _is_wide_timestamp(dtype):
        return struct.unpack_from("<q", data, position)[0], 0
    if isinstance(dtype, DecimalType) and not _is_wide_decimal(dtype):
        return _decimal(struct.unpack_from("<q", data, position)[0], dtype)
    low, offset = struct.unpack_from("<II", data, position)
    if isinstance(dtype, TimeType):
        return struct.unpack_from("<q", data, offset)[0], low
    if data[position + 7] & 0x80:
        found = data[position : position + (data[position + 7] & 0x7F)]
    else:
        found = data[offset : offset + low]
    if isinstance(dtype, DecimalType):
        return _decimal(int.from_bytes(found, "big", signed=True), dtype)
    if dtype.root in _TEXTS:
        return found.decode()
    if dtype.root in _BINARIES:
        return found
    return _decode_nested(found, dtype)


def _decode_nested(data: bytes, dtype: DataType) -> Any:
    match dtype:
        case RowType(fields=fields):
            return slow_decode(data, [field.type for field in fields], arity_prefix=False)
        case VectorType(element=element, length=length):
            return [_decode_value(data, 4 + _width(element) * index, element) for index in range(length)]
        case MapType() | ElementType(root=Root.MULTISET):
            key, item = _map_types(dtype)
            (size,) = struct.unpack_from("<i", data)
            return list(zip(_decode_items(data[4 : 4 + size], key), _decode_items(data[4 + size :], item), strict=True))
        case ElementType(element=element):
            return _decode_items(data, element)
    (size,) = struct.unpack_from("<i", data)
    return data[4 : 4 + size], data[4 + size :]


def _decode_items(data: bytes, dtype: DataType) -> list[Any]:
    (count,) = struct.unpack_from("<i", data)
    header = 4 + (count + 31) // 32 * 4
    return [
        None if _bit(data, 32 + index) else _decode_value(data, header + _width(dtype) * index, dtype)
        for index in range(count)
    ]


def _map_types(dtype: DataType) -> tuple[DataType, DataType]:
    if isinstance(dtype, MapType):
        return dtype.key, dtype.value
    assert isinstance(dtype, ElementType)
    return dtype.element, _COUNT


def _width(dtype: DataType) -> int:
    return struct.calcsize(_FORMATS[dtype.root]) if dtype.root in _FORMATS else 8


def _is_wide_decimal(dtype: DataType) -> bool:
    return isinstance(dtype, DecimalType) and dtype.precision > 18


def _is_wide_timestamp(dtype: DataType) -> bool:
    return dtype.root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ) and isinstance(dtype, TimeType) and dtype.precision > 3


def _decimal(unscaled: int, dtype: DecimalType) -> Decimal:
    return Decimal(unscaled).scaleb(-dtype.scale, _CONTEXT)


def _bit(data: bytes, bit: int) -> int:
    return data[bit // 8] >> bit % 8 & 1


def _offset_and(low: int, offset: int) -> bytes:
    return struct.pack("<II", low, offset)


def _round_up(size: int) -> int:
    return (size + 7) // 8 * 8
