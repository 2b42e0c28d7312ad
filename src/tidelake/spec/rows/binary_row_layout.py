"""Sizes and offsets inside a BinaryRow, shared by all its codecs.

A row is `header and null bits | one 8-byte slot per field | variable part`; all numbers are little endian and every
item of the variable part is padded with zero bytes to a multiple of eight. This module has only the arithmetic.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from tidelake.spec.types.data_types import DataType, DecimalType, Root, TimeType

__all__ = [
    "ARITY_PREFIX_SIZE",
    "COMPACT_DECIMAL_PRECISION",
    "COMPACT_TIMESTAMP_PRECISION",
    "EMPTY_ROW",
    "INLINE_MAX",
    "MILLIS_OF_DAY",
    "NANOS_OF_MILLI",
    "NULL_BITS_START",
    "SIZE_MAX",
    "WIDE_DECIMAL_SIZE",
    "WIDE_TIMESTAMP_SIZE",
    "Family",
    "array_header_size",
    "element_width",
    "family",
    "null_bits_size",
    "round_to_eight",
]

ARITY_PREFIX_SIZE: Final = 4
"""A stored row starts with its arity, a big-endian i32."""

EMPTY_ROW: Final = bytes(12)
"""The stored form of the row without fields, prefix included."""

NULL_BITS_START: Final = 8
"""The null bits of a row come after the eight bits of the row kind."""

INLINE_MAX: Final = 7
"""Strings and binaries up to this size are stored in their slot."""

COMPACT_DECIMAL_PRECISION: Final = 18
COMPACT_TIMESTAMP_PRECISION: Final = 3
WIDE_DECIMAL_SIZE: Final = 16
WIDE_TIMESTAMP_SIZE: Final = 8
NANOS_OF_MILLI: Final = 1_000_000
MILLIS_OF_DAY: Final = 86_400_000
SIZE_MAX: Final = 2**31 - 1
"""Sizes and offsets inside a row are i32."""


class Family(Enum):
    """How values of a type use their slot."""

    NUMBER = "the value itself, at most eight bytes"
    BYTES = "up to seven bytes inline, else offset and length"
    WIDE_DECIMAL = "offset and length; sixteen bytes reserved, in a row for null too"
    WIDE_TIMESTAMP = "offset and nanoseconds; eight bytes reserved, in a row for null too"
    NESTED = "offset and length"


_WIDTHS: Final = {
    Root.BOOLEAN: 1,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INT: 4,
    Root.DATE: 4,
    Root.TIME: 4,
    Root.FLOAT: 4,
    Root.BIGINT: 8,
    Root.DOUBLE: 8,
}
_BYTES: Final = frozenset(
    {Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY, Root.BLOB, Root.GEOMETRY, Root.GEOGRAPHY}
)


def family(dtype: DataType) -> Family:
    """How values of the type use their slot."""
    if dtype.root in _WIDTHS:
        return Family.NUMBER
    if dtype.root in _BYTES:
        return Family.BYTES
    match dtype:
        case DecimalType(precision=precision):
            return Family.NUMBER if precision <= COMPACT_DECIMAL_PRECISION else Family.WIDE_DECIMAL
        case TimeType(precision=precision):
            return Family.NUMBER if precision <= COMPACT_TIMESTAMP_PRECISION else Family.WIDE_TIMESTAMP
    return Family.NESTED


def element_width(dtype: DataType) -> int:
    """The bytes of an element in an array. In a row a slot always has eight bytes."""
    return _WIDTHS.get(dtype.root, 8)


def null_bits_size(arity: int) -> int:
    """The bytes of row kind and null bits before the slots of a row."""
    return (arity + 63 + NULL_BITS_START) // 64 * 8


def array_header_size(count: int) -> int:
    """The bytes of count and null bits before the elements of an array."""
    return 4 + (count + 31) // 32 * 4


def round_to_eight(size: int) -> int:
    """The size rounded up to a multiple of eight."""
    return (size + 7) & ~7
