"""Encode and decode one BinaryRow at a time in plain Python, for partitions, keys and statistics of small commits.

The bytes equal those of the vectorised codec in `binary_row`. This module exists because a single row is faster without
Arrow; it imports neither Arrow nor NumPy. Invariant: `decode_row(encode_row(values, types), types)` returns the same
values, and no bytes make `decode_row` read outside its input or raise anything but `FormatError`.

Values are those of the format's internal domain:

    BOOLEAN, integers     bool, int               TIME             int milliseconds of day
    FLOAT, DOUBLE         float                   TIMESTAMP, LTZ   (milliseconds since the epoch, nanos of milli)
    CHAR, VARCHAR         str                     DECIMAL          decimal.Decimal
    BINARY, BLOB, ...     bytes                   VARIANT          (value bytes, metadata bytes)
    DATE                  int days                ARRAY, VECTOR    list
    ROW                   tuple                   MAP, MULTISET    list of (key, value); a mapping is accepted too
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.rows.binary_row_layout import (
    ARITY_PREFIX_SIZE,
    EMPTY_ROW,
    INLINE_MAX,
    MILLIS_OF_DAY,
    NANOS_OF_MILLI,
    NULL_BITS_START,
    SIZE_MAX,
    WIDE_DECIMAL_SIZE,
    WIDE_TIMESTAMP_SIZE,
    Family,
    array_header_size,
    element_width,
    family,
    null_bits_size,
    round_to_eight,
)
from tidelake.spec.types.data_types import (
    INT,
    DataType,
    DecimalType,
    ElementType,
    MapType,
    Root,
    RowType,
    VectorType,
)

__all__ = ["EMPTY_ROW", "decode_row", "encode_row", "unscaled_value"]

_I32: Final = struct.Struct("<i")
_I64: Final = struct.Struct("<q")
_LENGTH_OFFSET: Final = struct.Struct("<II")
_ARITY: Final = struct.Struct(">i")
_NUMBERS: Final = {
    Root.TINYINT: struct.Struct("<b"),
    Root.SMALLINT: struct.Struct("<h"),
    Root.INT: _I32,
    Root.DATE: _I32,
    Root.TIME: _I32,
    Root.BIGINT: _I64,
    Root.FLOAT: struct.Struct("<f"),
    Root.DOUBLE: struct.Struct("<d"),
}
_TEXT: Final = frozenset({Root.CHAR, Root.VARCHAR})


def encode_row(values: Sequence[object], types: Sequence[DataType]) -> bytes:
    """The stored form of one row: arity prefix and row bytes.

    Raises:
        InvalidInputError: The numbers of values and types differ, or a value does not fit its type.
    """
    if len(values) != len(types):
        raise InvalidInputError("number of values and number of types differ", values=len(values), types=len(types))
    return _ARITY.pack(len(types)) + _encode_fields(values, types)


def decode_row(data: bytes, types: Sequence[DataType]) -> tuple[Any, ...]:
    """The values of one stored row.

    Raises:
        FormatError: The bytes are not a row of these types.
    """
    if len(data) < ARITY_PREFIX_SIZE:
        raise FormatError("row is shorter than its arity prefix", size=len(data))
    (arity,) = _ARITY.unpack_from(data)
    if arity != len(types):
        raise FormatError("row has the wrong number of fields", arity=arity, expected=len(types))
    return _decode_fields(memoryview(data)[ARITY_PREFIX_SIZE:], types)


def unscaled_value(value: object, dtype: DecimalType) -> int:
    """The unscaled integer of a decimal.

    Raises:
        InvalidInputError: The value is not a finite decimal, or has more digits than the scale or precision allows.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = Decimal(value)
    if not isinstance(value, Decimal) or not value.is_finite():
        raise _unfit(value, dtype)
    if not value:
        return 0
    sign, digits, exponent = value.as_tuple()
    shift = int(exponent) + dtype.scale
    # Both checks come before a power of ten is computed: an exponent of a billion must not cost time or memory.
    if value.adjusted() >= dtype.precision - dtype.scale or -shift > len(digits):
        raise _unfit(value, dtype)
    number = int("".join(map(str, digits)))
    if shift >= 0:
        number *= int(10**shift)
    else:
        number, rest = divmod(number, int(10**-shift))
        if rest:
            raise _unfit(value, dtype)
    return -number if sign else number


# ------------------------------------------------------------------------------------------------ encode


def _unfit(value: object, dtype: DataType) -> InvalidInputError:
    return InvalidInputError("value does not fit its type", value=repr(value)[:100], type=dtype)


def _encode_fields(values: Sequence[object], types: Sequence[DataType]) -> bytes:
    null_bits = null_bits_size(len(types))
    fixed = bytearray(null_bits + 8 * len(types))
    variable = bytearray()
    for index, (value, dtype) in enumerate(zip(values, types, strict=True)):
        if value is None:
            bit = index + NULL_BITS_START
            fixed[bit // 8] |= 1 << bit % 8
            slot, payload = _reserve(dtype, len(fixed) + len(variable))
        else:
            slot, payload = _encode_value(value, dtype, len(fixed) + len(variable))
        position = null_bits + 8 * index
        fixed[position : position + len(slot)] = slot
        _append(variable, payload)
    return bytes(fixed + variable)


def _encode_array(values: Sequence[object], dtype: DataType) -> bytes:
    header, width = array_header_size(len(values)), element_width(dtype)
    fixed = bytearray(round_to_eight(header + width * len(values)))
    fixed[:4] = _I32.pack(len(values))
    variable = bytearray()
    for index, value in enumerate(values):
        if value is None:
            fixed[4 + index // 8] |= 1 << index % 8
            continue
        slot, payload = _encode_value(value, dtype, len(fixed) + len(variable))
        position = header + width * index
        fixed[position : position + len(slot)] = slot
        _append(variable, payload)
    return bytes(fixed + variable)


def _append(variable: bytearray, payload: bytes) -> None:
    variable += payload
    variable += bytes(-len(payload) % 8)
    if len(variable) > SIZE_MAX:
        raise InvalidInputError("row is larger than 2 GiB", hint="store large values in a BLOB or in a file")


def _reserve(dtype: DataType, cursor: int) -> tuple[bytes, bytes]:
    """Slot and payload of a null field. Java reserves the bytes of wide decimals and timestamps to set them later."""
    match family(dtype):
        case Family.WIDE_DECIMAL:
            return _LENGTH_OFFSET.pack(0, cursor), bytes(WIDE_DECIMAL_SIZE)
        case Family.WIDE_TIMESTAMP:
            return _LENGTH_OFFSET.pack(0, cursor), bytes(WIDE_TIMESTAMP_SIZE)
    return b"", b""


def _encode_value(value: object, dtype: DataType, cursor: int) -> tuple[bytes, bytes]:
    """Slot and payload of a value whose payload, if any, starts at `cursor`."""
    match family(dtype):
        case Family.NUMBER:
            return _encode_number(value, dtype), b""
        case Family.BYTES:
            data = _octets(value, dtype)
            if len(data) <= INLINE_MAX:
                return data.ljust(INLINE_MAX, b"\0") + bytes([0x80 | len(data)]), b""
            return _LENGTH_OFFSET.pack(len(data), cursor), data
        case Family.WIDE_DECIMAL:
            assert isinstance(dtype, DecimalType)
            number = unscaled_value(value, dtype)
            magnitude = number if number >= 0 else ~number
            data = number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
            return _LENGTH_OFFSET.pack(len(data), cursor), data.ljust(WIDE_DECIMAL_SIZE, b"\0")
        case Family.WIDE_TIMESTAMP:
            millis, nanos = _instant(value, dtype)
            return _LENGTH_OFFSET.pack(nanos, cursor), _I64.pack(millis)
    data = _encode_nested(value, dtype)
    return _LENGTH_OFFSET.pack(len(data), cursor), data


def _encode_number(value: object, dtype: DataType) -> bytes:
    if dtype.root is Root.BOOLEAN:
        if not isinstance(value, bool):
            raise _unfit(value, dtype)
        return b"\1" if value else b"\0"
    if isinstance(dtype, DecimalType):
        return _I64.pack(unscaled_value(value, dtype))
    if dtype.root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ):
        return _I64.pack(_instant(value, dtype)[0])
    try:
        data: bytes = _NUMBERS[dtype.root].pack(value)
    except (struct.error, OverflowError) as cause:
        raise _unfit(value, dtype) from cause
    if dtype.root is Root.TIME and not 0 <= _I32.unpack(data)[0] < MILLIS_OF_DAY:
        raise _unfit(value, dtype)
    return data


def _octets(value: object, dtype: DataType) -> bytes:
    if dtype.root in _TEXT:
        if not isinstance(value, str):
            raise _unfit(value, dtype)
        try:
            return value.encode()
        except UnicodeEncodeError as cause:
            raise _unfit(value, dtype) from cause
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _unfit(value, dtype)
    return bytes(value)


def _instant(value: object, dtype: DataType) -> tuple[int, int]:
    match value:
        case (int(millis), int(nanos)) if -(2**63) <= millis < 2**63 and 0 <= nanos < NANOS_OF_MILLI:
            return millis, nanos
    raise _unfit(value, dtype)


def _encode_nested(value: object, dtype: DataType) -> bytes:
    match dtype:
        case RowType(fields=fields):
            if not isinstance(value, Sequence) or len(value) != len(fields):
                raise _unfit(value, dtype)
            return _encode_fields(value, [field.type for field in fields])
        case VectorType(element=element, length=length):
            if not isinstance(value, Sequence) or len(value) != length or family(element) is not Family.NUMBER:
                raise _unfit(value, dtype)
            if any(item is None for item in value):
                raise _unfit(value, dtype)
            data = b"".join(_encode_number(item, element) for item in value)
            # The elements are padded before the count is added, and the padding belongs to the length, as in Java.
            return _I32.pack(length) + data.ljust(round_to_eight(len(data)), b"\0")
        case MapType(key=key, value=item):
            return _encode_map(value, dtype, key, item)
        case ElementType(root=Root.MULTISET, element=element):
            return _encode_map(value, dtype, element, INT)
        case ElementType(element=element):
            if not isinstance(value, Sequence) or isinstance(value, str | bytes):
                raise _unfit(value, dtype)
            return _encode_array(value, element)
    match value:
        case (bytes(content), bytes(metadata)):
            return _I32.pack(len(content)) + content + metadata
    raise _unfit(value, dtype)


def _encode_map(value: object, dtype: DataType, key: DataType, item: DataType) -> bytes:
    if not isinstance(value, Mapping | Sequence) or isinstance(value, str | bytes):
        raise _unfit(value, dtype)
    pairs: Iterable[Any] = value.items() if isinstance(value, Mapping) else value
    keys: list[object] = []
    items: list[object] = []
    for pair in pairs:
        if not isinstance(pair, Sequence) or len(pair) != 2 or pair[0] is None:
            raise _unfit(value, dtype)
        keys.append(pair[0])
        items.append(pair[1])
    key_array = _encode_array(keys, key)
    return _I32.pack(len(key_array)) + key_array + _encode_array(items, item)


# ------------------------------------------------------------------------------------------------ decode


class _Container:
    """The bytes of one row or array, and how many of them its values have claimed.

    In real data no two values share bytes, so that the claims add up to at most the size. This is checked, because a
    small hostile array could otherwise decode to gigabytes by pointing all elements to the same bytes.
    """

    __slots__ = ("_free", "data")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self._free = len(data)

    def take(self, offset: int, size: int, dtype: DataType) -> memoryview:
        self._free -= size
        if offset + size > len(self.data) or self._free < 0:
            raise FormatError(
                "value extends beyond its row", type=dtype, offset=offset, size=size, row_size=len(self.data)
            )
        return self.data[offset : offset + size]


def _decode_fields(data: memoryview, types: Sequence[DataType]) -> tuple[Any, ...]:
    null_bits = null_bits_size(len(types))
    if len(data) < null_bits + 8 * len(types):
        raise FormatError("row is too short for its fields", size=len(data), fields=len(types))
    container = _Container(data)
    values: list[Any] = []
    for index, dtype in enumerate(types):
        bit = index + NULL_BITS_START
        null = data[bit // 8] >> bit % 8 & 1
        values.append(None if null else _decode_value(container, null_bits + 8 * index, dtype))
    return tuple(values)


def _decode_array(data: memoryview, dtype: DataType) -> list[Any]:
    count = _count(data, dtype)
    header, width = array_header_size(count), element_width(dtype)
    if header + width * count > len(data):
        raise FormatError("array is too short for its elements", size=len(data), elements=count)
    container = _Container(data)
    return [
        None if data[4 + i // 8] >> i % 8 & 1 else _decode_value(container, header + width * i, dtype)
        for i in range(count)
    ]


def _count(data: memoryview, dtype: DataType) -> int:
    if len(data) < 4:
        raise FormatError("value is too short for its size", type=dtype, size=len(data))
    count: int = _I32.unpack_from(data)[0]
    if count < 0:
        raise FormatError("value has a negative size", type=dtype, count=count)
    return count


def _decode_value(container: _Container, position: int, dtype: DataType) -> Any:
    slots = family(dtype)
    if slots is Family.NUMBER:
        return _decode_number(container.data, position, dtype)
    low, offset = _LENGTH_OFFSET.unpack_from(container.data, position)
    match slots:
        case Family.BYTES:
            inline = offset >> 31
            size = offset >> 24 & 0x7F if inline else low
            if inline and size > INLINE_MAX:
                raise FormatError("inline value is longer than its slot", type=dtype, size=size)
            data = bytes(container.data[position : position + size] if inline else container.take(offset, size, dtype))
            return _decode_text(data, dtype) if dtype.root in _TEXT else data
        case Family.WIDE_DECIMAL:
            assert isinstance(dtype, DecimalType)
            if not 1 <= low <= WIDE_DECIMAL_SIZE:
                raise FormatError("decimal has an impossible length", type=dtype, size=low)
            return _decimal(int.from_bytes(container.take(offset, low, dtype), "big", signed=True), dtype)
        case Family.WIDE_TIMESTAMP:
            if low >= NANOS_OF_MILLI:
                raise FormatError("timestamp has more than a millisecond of nanoseconds", type=dtype, nanos=low)
            return _I64.unpack(container.take(offset, WIDE_TIMESTAMP_SIZE, dtype))[0], low
    return _decode_nested(container.take(offset, low, dtype), dtype)


def _decode_number(data: memoryview, position: int, dtype: DataType) -> Any:
    if dtype.root is Root.BOOLEAN:
        return data[position] != 0
    if isinstance(dtype, DecimalType):
        return _decimal(_I64.unpack_from(data, position)[0], dtype)
    if dtype.root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ):
        return _I64.unpack_from(data, position)[0], 0
    value = _NUMBERS[dtype.root].unpack_from(data, position)[0]
    if dtype.root is Root.TIME and not 0 <= value < MILLIS_OF_DAY:
        raise FormatError("time of day is out of range", type=dtype, millis=value)
    return value


def _decode_text(data: bytes, dtype: DataType) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as cause:
        raise FormatError("text is not valid UTF-8", type=dtype, position=cause.start) from cause


def _decimal(number: int, dtype: DecimalType) -> Decimal:
    if abs(number) >= 10**dtype.precision:
        raise FormatError("decimal has more digits than its type", type=dtype, unscaled=number)
    return Decimal(f"{number}E-{dtype.scale}")


def _decode_nested(data: memoryview, dtype: DataType) -> Any:
    match dtype:
        case RowType(fields=fields):
            return _decode_fields(data, [field.type for field in fields])
        case VectorType(element=element, length=length):
            width = element_width(element)
            if family(element) is not Family.NUMBER:
                raise FormatError("elements of a vector are not numbers", type=dtype)
            if _count(data, dtype) != length or len(data) < 4 + width * length:
                raise FormatError("vector does not have the length of its type", type=dtype, size=len(data))
            return [_decode_number(data, 4 + width * index, element) for index in range(length)]
        case MapType(key=key, value=item):
            return _decode_map(data, dtype, key, item)
        case ElementType(root=Root.MULTISET, element=element):
            return _decode_map(data, dtype, element, INT)
        case ElementType(element=element):
            return _decode_array(data, element)
    size = _count(data, dtype)
    if 4 + size > len(data):
        raise FormatError("value extends beyond its row", type=dtype, size=size, row_size=len(data))
    return bytes(data[4 : 4 + size]), bytes(data[4 + size :])


def _decode_map(data: memoryview, dtype: DataType, key: DataType, item: DataType) -> list[tuple[Any, Any]]:
    size = _count(data, dtype)
    if 4 + size > len(data):
        raise FormatError("value extends beyond its row", type=dtype, size=size, row_size=len(data))
    keys = _decode_array(data[4 : 4 + size], key)
    items = _decode_array(data[4 + size :], item)
    if len(keys) != len(items) or None in keys:
        raise FormatError("map has a null key or a key without a value", type=dtype, keys=len(keys), values=len(items))
    return list(zip(keys, items, strict=True))
