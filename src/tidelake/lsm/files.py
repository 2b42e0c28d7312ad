"""A data file of the LSM tree with its key range in comparable form.

Manifests store the smallest and largest key of a file as BinaryRow bytes, which do not sort like the keys. This module
decodes them into tuples that Python compares exactly as the format orders keys: numbers and decimals by value, false
before true, texts and binaries by unsigned bytes, timestamps by (milliseconds, nanoseconds), nulls first, and floats
as -infinity … -0.0 < 0.0 … infinity < NaN.

Invariant: `RunFile`s with the same key types can be compared, and no smallest key is above the largest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.data_file import DataFile
from tidelake.spec.rows.binary_row_scalar import decode_row
from tidelake.spec.types.data_types import DataType, Root

__all__ = ["Key", "RunFile", "comparable_key", "run_files"]

Key = tuple[Any, ...]
"""A decoded key that compares as the format orders keys."""

_FLOAT64: Final = struct.Struct(">d")
_INT64: Final = struct.Struct(">q")
_NAN: Final = 2**63
_MAGNITUDE: Final = 2**63 - 1
_UNORDERED: Final = frozenset(
    {
        Root.ARRAY,
        Root.BLOB,
        Root.GEOGRAPHY,
        Root.GEOMETRY,
        Root.MAP,
        Root.MULTISET,
        Root.ROW,
        Root.VARIANT,
        Root.VECTOR,
    }
)


@dataclass(frozen=True, slots=True)
class RunFile:
    """One data file of a bucket and the range of its keys, both ends included."""

    meta: DataFile
    min_key: Key
    max_key: Key

    @property
    def name(self) -> str:
        """The file's name."""
        return self.meta.file_name

    @property
    def level(self) -> int:
        """The level of the file."""
        return self.meta.level

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self.meta.file_size

    @property
    def may_hold_deletes(self) -> bool:
        """Whether the file may have retract rows; old releases did not store the count, so those files may."""
        return self.meta.delete_row_count != 0

    @property
    def known_to_hold_deletes(self) -> bool:
        """Whether the metadata counts at least one retract row."""
        return bool(self.meta.delete_row_count)

    def at(self, level: int) -> RunFile:
        """Return the file with another level; only the metadata changes."""
        return self if level == self.level else replace(self, meta=replace(self.meta, level=level))


def run_files(files: Iterable[DataFile], key_types: Sequence[DataType]) -> tuple[RunFile, ...]:
    """Decode the key ranges of a bucket's data files.

    Args:
        files: The files as the manifests list them.
        key_types: The types of the trimmed primary key.

    Raises:
        FormatError: the stored keys do not have these types, or a smallest key is above the largest.
        InvalidInputError: a type has no order.
    """
    convert = _converter(key_types)
    return tuple(_run_file(file, key_types, convert) for file in files)


def comparable_key(row: bytes, key_types: Sequence[DataType]) -> Key:
    """Return the comparable form of one stored key.

    Raises:
        FormatError: the bytes are not a key of these types.
        InvalidInputError: a type has no order.
    """
    return _converter(key_types)(decode_row(row, key_types))


def _run_file(file: DataFile, types: Sequence[DataType], convert: Callable[[tuple[Any, ...]], Key]) -> RunFile:
    try:
        low = convert(decode_row(file.min_key, types))
        high = low if file.max_key == file.min_key else convert(decode_row(file.max_key, types))
    except FormatError as cause:
        raise FormatError("key range of a data file cannot be read", file=file.file_name, reason=cause) from cause
    if high < low:
        raise FormatError(
            "smallest key of a data file is above its largest", file=file.file_name, min_key=low, max_key=high
        )
    return RunFile(file, low, high)


def _converter(types: Sequence[DataType]) -> Callable[[tuple[Any, ...]], Key]:
    for dtype in types:
        if dtype.root in _UNORDERED:
            raise InvalidInputError("type of a key column has no order", type=dtype)
    changes = [(place, _change(dtype)) for place, dtype in enumerate(types)]
    changes = [(place, change) for place, change in changes if change is not None]

    def convert(values: tuple[Any, ...]) -> Key:
        if not changes:
            if None in values:
                raise _null_key(values)
            return values
        parts = list(values)
        for place, change in changes:
            assert change is not None
            parts[place] = change(parts[place])
        if None in parts:
            raise _null_key(values)
        return tuple(parts)

    return convert


def _change(dtype: DataType) -> Callable[[Any], Any] | None:
    """Return what makes a decoded value comparable; None if it already is.

    Texts need no conversion: Python compares code points, which is the order of UTF-8 bytes.
    """
    change = _ordered_float if dtype.root in (Root.FLOAT, Root.DOUBLE) else None
    if not dtype.nullable:
        return change
    if change is None:
        return lambda value: (value is not None, value)
    return lambda value: (value is not None, None if value is None else _ordered_float(value))


def _ordered_float(value: float | None) -> int | None:
    if value is None:
        return None
    if value != value:
        return _NAN
    bits: int = _INT64.unpack(_FLOAT64.pack(value))[0]
    return bits if bits >= 0 else bits ^ _MAGNITUDE


def _null_key(values: tuple[Any, ...]) -> FormatError:
    return FormatError("NOT NULL key column has a null", key=values)
