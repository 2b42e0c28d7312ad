"""The part of Protocol Buffers that the tail of an ORC file needs: messages to fields by number, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["packed_numbers", "read_message", "write_field", "zigzag"]


def read_message(data: bytes) -> dict[int, list[Any]]:
    """Return the values of each field number: varints as numbers, everything else as bytes.

    Raises:
        ValueError: the bytes are not a message.
        IndexError: the message is truncated.
    """
    found: dict[int, list[Any]] = {}
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        value: Any
        match key & 7:
            case 0:
                value, position = _varint(data, position)
            case 1:
                value, position = data[position : position + 8], position + 8
            case 2:
                size, position = _varint(data, position)
                value, position = data[position : position + size], position + size
                if len(value) != size:
                    raise ValueError("message is truncated")
            case 5:
                value, position = data[position : position + 4], position + 4
            case _:
                raise ValueError("wire type is not known")
        found.setdefault(key >> 3, []).append(value)
    return found


def write_field(number: int, value: int | bytes) -> bytes:
    """Encode one field: a number, or bytes with their length."""
    if isinstance(value, int):
        return _to_varint(number << 3) + _to_varint(value)
    return _to_varint(number << 3 | 2) + _to_varint(len(value)) + value


def packed_numbers(value: int | bytes) -> Iterator[int]:
    """Yield the numbers of a repeated field, packed or not.

    Raises:
        IndexError: the bytes are truncated.
    """
    if isinstance(value, int):
        yield value
        return
    position = 0
    while position < len(value):
        number, position = _varint(value, position)
        yield number


def zigzag(value: int) -> int:
    """Decode a signed number from its zigzag form."""
    return (value >> 1) ^ -(value & 1)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("number is too long")


def _to_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
