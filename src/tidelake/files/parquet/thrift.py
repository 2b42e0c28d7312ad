"""The part of Thrift's compact protocol that the footer of a Parquet file needs.

A struct is read into a tree (field number -> wire type and value) and written back; what is not changed is written
exactly as it was read. The tree has no schema: its users know the field numbers.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from tidelake.errors import FormatError

__all__ = ["BINARY", "I32", "I64", "LIST", "STRUCT", "Struct", "read_struct", "write_struct"]

TRUE: Final = 1
FALSE: Final = 2
I8: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
MAP: Final = 11
STRUCT: Final = 12

_DEPTH_MAX: Final = 64

Struct = dict[int, tuple[int, Any]]
"""Field number -> (wire type, value). The value of a list is (element type, elements)."""


def read_struct(data: bytes) -> Struct:
    """Parse a struct.

    Raises:
        FormatError: the bytes are not a single struct in the compact protocol.
    """
    try:
        tree, position = _read_struct(data, 0, 0)
    except (IndexError, struct.error, KeyError) as error:
        raise FormatError("footer is not a Thrift struct") from error
    if position != len(data):
        raise FormatError("footer has bytes after its struct", offset=position)
    return tree


def write_struct(tree: Struct) -> bytes:
    """Encode a struct."""
    out = bytearray()
    _write_struct(out, tree)
    return bytes(out)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise FormatError("footer has a number that is too long", offset=position)


def _read_struct(data: bytes, position: int, depth: int) -> tuple[Struct, int]:
    if depth > _DEPTH_MAX:
        raise FormatError("footer is nested too deeply", offset=position)
    tree: Struct = {}
    number = 0
    while (head := data[position]) != 0:
        position += 1
        kind = head & 0x0F
        if head >> 4:
            number += head >> 4
        else:
            raw, position = _read_varint(data, position)
            number = (raw >> 1) ^ -(raw & 1)
        if kind in (TRUE, FALSE):
            tree[number] = kind, kind == TRUE
        else:
            value, position = _read_value(data, position, kind, depth)
            tree[number] = kind, value
    return tree, position + 1


def _read_value(data: bytes, position: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (I16, I32, I64):
        raw, position = _read_varint(data, position)
        return (raw >> 1) ^ -(raw & 1), position
    if kind == BINARY:
        size, position = _read_varint(data, position)
        if size > len(data) - position:
            raise FormatError("value in the footer is longer than the footer", offset=position)
        return data[position : position + size], position + size
    if kind == STRUCT:
        return _read_struct(data, position, depth + 1)
    if kind in (LIST, SET):
        return _read_list(data, position, depth)
    if kind in (TRUE, FALSE, I8):  # a boolean inside a list takes a byte
        return data[position], position + 1
    if kind == DOUBLE:
        return struct.unpack_from("<d", data, position)[0], position + 8
    raise FormatError("footer has a value of an unknown kind", kind=kind, offset=position)


def _read_list(data: bytes, position: int, depth: int) -> tuple[tuple[int, list[Any]], int]:
    head = data[position]
    position += 1
    kind, count = head & 0x0F, head >> 4
    if count == 15:
        count, position = _read_varint(data, position)
    if count > len(data) - position or depth > _DEPTH_MAX:
        raise FormatError("list in the footer has more values than the footer has bytes", offset=position)
    values = []
    for _ in range(count):
        value, position = _read_value(data, position, kind, depth + 1)
        values.append(value)
    return (kind, values), position


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_struct(out: bytearray, tree: Struct) -> None:
    last = 0
    for number in sorted(tree):
        kind, value = tree[number]
        if kind in (TRUE, FALSE):
            kind = TRUE if value else FALSE
        if 0 < number - last <= 15:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            _write_varint(out, (number << 1) ^ (number >> 31))
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
        last = number
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in (I16, I32, I64):
        _write_varint(out, (value << 1) ^ (value >> 63))
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        inner, values = value
        if len(values) < 15:
            out.append(len(values) << 4 | inner)
        else:
            out.append(0xF0 | inner)
            _write_varint(out, len(values))
        for each in values:
            _write_value(out, inner, each)
    elif kind == DOUBLE:
        out += struct.pack("<d", value)
    else:
        out.append(value)
