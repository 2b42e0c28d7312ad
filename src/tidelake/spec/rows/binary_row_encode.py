"""Encode Arrow columns as BinaryRows, column by column.

Each column becomes *cells*: one 64-bit slot per value, still without its offset, and the padded bytes of its values in
the variable part. The layout of a row is then a running sum of sizes. Elements of an array are laid out in the same
way, with narrower slots. Nothing here loops over rows. Invariant: the bytes equal those of `binary_row_scalar`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.spec.rows.binary_row_layout import (
    ARITY_PREFIX_SIZE,
    INLINE_MAX,
    NANOS_OF_MILLI,
    NULL_BITS_START,
    SIZE_MAX,
    WIDE_DECIMAL_SIZE,
    WIDE_TIMESTAMP_SIZE,
    Family,
    element_width,
    family,
    null_bits_size,
    round_to_eight,
)
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import INT, DataType, ElementType, MapType, Root, RowType, TimeType, VectorType

__all__ = ["Cells", "canonical", "encode_rows", "inline_slots", "octets", "to_cells", "validity"]

_Bytes = npt.NDArray[np.uint8]
_Bools = npt.NDArray[np.bool_]
_Slots = npt.NDArray[np.uint64]
_Sizes = npt.NDArray[np.int64]

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, slots=True)
class Cells:
    """The values of one column, ready to be laid out.

    Attributes:
        slots: The slot of each value; null slots are zero, and offsets into the variable part are not filled in.
        nulls: Which values are null, or None when none is.
        sizes: The bytes of each value in the variable part, a multiple of eight; None if no value has any.
        payload: All these bytes, without gaps.
    """

    slots: _Slots
    nulls: _Bools | None
    sizes: _Sizes | None = None
    payload: _Bytes | None = None


def encode_rows(
    columns: Sequence[pa.Array | pa.ChunkedArray],
    types: Sequence[DataType],
    *,
    arity_prefix: bool = True,
    length: int | None = None,
) -> pa.BinaryArray:
    """The BinaryRow of every row of the columns.

    Args:
        columns: Arrow arrays of equal length, cast without loss if their types are not the canonical ones.
        types: The type of each column.
        arity_prefix: Whether each row starts with its arity, as all stored rows do.
        length: The number of rows; only needed without columns.

    Raises:
        InvalidInputError: Columns and types do not match, a value does not fit its type, or all rows together are
            larger than 2 GiB.
    """
    if len(columns) != len(types):
        raise InvalidInputError("number of columns and number of types differ", columns=len(columns), types=len(types))
    count = _common_length(columns, length)
    cells = [to_cells(canonical(column, dtype), dtype) for column, dtype in zip(columns, types, strict=True)]
    prefix = ARITY_PREFIX_SIZE if arity_prefix else 0
    size = count * (prefix + null_bits_size(len(cells)) + 8 * len(cells))
    size += sum(int(cell.sizes.sum()) for cell in cells if cell.sizes is not None)
    if size > SIZE_MAX:
        raise InvalidInputError(
            "all rows together are larger than 2 GiB", size=size, hint="encode fewer rows at a time"
        )
    rows = _lay_out_rows(cells, count, arity_prefix=arity_prefix)
    buffers = [None, pa.py_buffer(rows.offsets.astype(np.int32)), pa.py_buffer(rows.data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def canonical(column: pa.Array | pa.ChunkedArray, dtype: DataType) -> pa.Array:
    """The column as one array of its canonical Arrow type; strings and binaries may keep the large form.

    Raises:
        InvalidInputError: The column cannot be cast without loss.
    """
    wanted = to_arrow(dtype)
    try:
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
            if isinstance(column, pa.ChunkedArray):
                raise InvalidInputError("column is larger than 2 GiB", hint="encode fewer rows at a time")
        if column.type == wanted:
            return column
        if family(dtype) is Family.BYTES and (
            pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        ):
            return column
        if family(dtype) is Family.BYTES and pa.types.is_fixed_size_binary(column.type):
            return column.cast(pa.binary())
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as cause:
        raise InvalidInputError(
            "column cannot be cast to its type", arrow_type=column.type, type=dtype, cause=str(cause)[:200]
        ) from cause


def validity(array: pa.Array) -> _Bools | None:
    """Which values are null, or None when none is."""
    if array.null_count == 0:
        return None
    nulls: _Bools = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def octets(array: pa.Array) -> tuple[_Bytes, _Sizes]:
    """Data and offsets of a (large) string or binary array. A null may have bytes too."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:
        return np.zeros(0, np.uint8), np.zeros(len(array) + 1, np.int64)
    bounds = np.frombuffer(offsets, np.int64 if large else np.int32)[array.offset : array.offset + len(array) + 1]
    return np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8), bounds.astype(np.int64)


def to_cells(array: pa.Array, dtype: DataType, *, reserve: bool = True) -> Cells:
    """The cells of a column of canonical type.

    Args:
        array: The values.
        dtype: Their type.
        reserve: Whether a null decimal or timestamp reserves its bytes, as the format wants in rows but not in arrays.
    """
    nulls = validity(array)
    match family(dtype):
        case Family.NUMBER:
            return Cells(_number_slots(array, dtype, nulls), nulls)
        case Family.BYTES:
            return _bytes_cells(array, nulls)
        case Family.WIDE_DECIMAL:
            lengths, data = _minimal_big_endian(_fixed_values(array, 16).reshape(-1, 16))
            return _wide_cells(lengths, data, nulls, reserve=reserve)
        case Family.WIDE_TIMESTAMP:
            assert isinstance(dtype, TimeType)
            values = _fixed_values(array, 8).view(np.int64)
            per_milli = 1_000 if dtype.precision <= 6 else NANOS_OF_MILLI
            millis = values // per_milli
            nanos = (values - millis * per_milli) * (NANOS_OF_MILLI // per_milli)
            return _wide_cells(nanos.astype(np.uint64), millis.view(np.uint8).reshape(-1, 8), nulls, reserve=reserve)
    return _nested_cells(array, dtype, nulls)


@dataclass(frozen=True, slots=True)
class _Ragged:
    """Adjacent byte strings: string i is `data[offsets[i]:offsets[i + 1]]`."""

    data: _Bytes
    offsets: _Sizes

    @property
    def sizes(self) -> _Sizes:
        return np.diff(self.offsets)

    def arrow(self) -> pa.LargeBinaryArray:
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_binary(), len(self.offsets) - 1, buffers)


_NOTHING = pa.scalar(b"", pa.large_binary())
_PADS = pa.array([bytes(size) for size in range(8)], pa.large_binary())


def _ragged_of_sizes(data: _Bytes, sizes: _Sizes) -> _Ragged:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return _Ragged(data, offsets)


def _ragged_of_rows(matrix: _Bytes) -> _Ragged:
    rows, width = matrix.shape
    return _Ragged(np.ascontiguousarray(matrix).reshape(-1), np.arange(rows + 1, dtype=np.int64) * width)


def _concat(*pieces: _Ragged) -> _Ragged:
    """Concatenate the strings at the same index of all pieces."""
    if len(pieces) == 1:
        return pieces[0]
    data, offsets = octets(pc.binary_join_element_wise(*(piece.arrow() for piece in pieces), _NOTHING))
    return _Ragged(data[: offsets[-1]], offsets)


def _pad(strings: _Ragged) -> _Ragged:
    """Pad each string with zero bytes to a multiple of eight."""
    missing = -strings.sizes % 8
    if not missing.any():
        return strings
    data, offsets = octets(pc.binary_join_element_wise(strings.arrow(), _PADS.take(pa.array(missing)), _NOTHING))
    return _Ragged(data[: offsets[-1]], offsets)


def _common_length(columns: Sequence[Any], length: int | None) -> int:
    lengths = {len(column) for column in columns} | ({length} if length is not None else set())
    if len(lengths) != 1:
        raise InvalidInputError(
            "columns differ in length",
            lengths=sorted(lengths),
            hint="give columns of equal length; without columns, give `length`",
        )
    return int(lengths.pop())


# ------------------------------------------------------------------------------------------------ cells


def _fixed_values(array: pa.Array, width: int) -> _Bytes:
    """The value bytes of a fixed-width array; those of nulls are arbitrary."""
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array) * width, np.uint8)
    start = array.offset * width
    return np.frombuffer(data, np.uint8)[start : start + len(array) * width]


def _number_slots(array: pa.Array, dtype: DataType, nulls: _Bools | None) -> _Slots:
    if dtype.root is Root.BOOLEAN:
        values: npt.NDArray[Any] = array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64)
        return values
    if dtype.root is Root.DECIMAL:
        values = np.ascontiguousarray(_fixed_values(array, 16).view(np.uint64)[::2])
    else:
        width = element_width(dtype)
        # Viewed as unsigned, because the format does not extend the sign when it widens a value to its slot.
        values = _fixed_values(array, width).view(_UNSIGNED[width])
    slots = values.astype(np.uint64, copy=False)
    return slots if nulls is None else np.where(nulls, np.uint64(0), slots)


def _bytes_cells(array: pa.Array, nulls: _Bools | None) -> Cells:
    data, offsets = octets(array)
    starts, lengths = offsets[:-1], np.diff(offsets)
    if nulls is not None:
        lengths = np.where(nulls, 0, lengths)
    long = lengths > INLINE_MAX
    slots = np.where(long, lengths.astype(np.uint64), inline_slots(data, starts, lengths))
    if nulls is not None:
        slots[nulls] = 0
    if not long.any():
        return Cells(slots, nulls)
    values = array.cast(pa.large_binary())
    if not long.all():
        values = pc.if_else(pa.array(long), values, _NOTHING)
    data, offsets = octets(values)
    payload = _pad(_Ragged(data[offsets[0] : offsets[-1]], offsets - offsets[0]))
    return Cells(slots, nulls, payload.sizes, payload.data)


def inline_slots(data: _Bytes, starts: _Sizes, lengths: _Sizes) -> _Slots:
    """The slots of strings that are short enough; for longer ones the result is meaningless."""
    if len(data) == 0:
        return np.full(len(starts), 0x80 << 56, np.uint64)
    sizes = np.minimum(lengths, INLINE_MAX).astype(np.uint64)
    kept = windows(data, starts) & ((np.uint64(1) << (sizes << np.uint64(3))) - np.uint64(1))
    slots: _Slots = kept | (sizes | np.uint64(0x80)) << np.uint64(56)
    return slots


def windows(data: _Bytes, starts: _Sizes) -> _Slots:
    """The eight bytes from each start, little endian; bytes past the end of the data are zero."""
    last = int(starts.max(initial=0))
    if last + 8 > len(data):
        first = int(starts.min(initial=0))
        data, starts = np.concatenate([data[first : last + 8], np.zeros(8, np.uint8)]), starts - first
    every: _Slots = np.ndarray((len(data) - 7,), np.dtype("<u8"), data, strides=(1,))
    found: _Slots = every[starts]
    return found


def _minimal_big_endian(little: _Bytes) -> tuple[_Slots, _Bytes]:
    """Length and left-aligned bytes of the shortest big-endian two's complement of 16-byte integers."""
    big = little[:, ::-1]
    sign = np.where(big[:, :1] & 0x80, np.uint8(0xFF), np.uint8(0))
    spare = (big[:, :-1] == sign) & (big[:, 1:] >> 7 == sign >> 7)
    dropped = np.where(spare.all(axis=1), 15, np.argmin(spare, axis=1))
    columns = np.arange(16) + dropped[:, None]
    data = np.take_along_axis(big, np.minimum(columns, 15), axis=1)
    data[columns > 15] = 0
    return (16 - dropped).astype(np.uint64), data


def _wide_cells(low: _Slots, data: _Bytes, nulls: _Bools | None, *, reserve: bool) -> Cells:
    """Cells of values whose payloads have the same size; `low` is the lower half of their slots."""
    count, width = data.shape
    assert width in (WIDE_DECIMAL_SIZE, WIDE_TIMESTAMP_SIZE)
    if nulls is None:
        return Cells(low, None, np.full(count, width, np.int64), np.ascontiguousarray(data).reshape(-1))
    low = np.where(nulls, np.uint64(0), low)
    if reserve:
        data = np.where(nulls[:, None], np.uint8(0), data)
        return Cells(low, nulls, np.full(count, width, np.int64), data.reshape(-1))
    return Cells(low, nulls, np.where(nulls, 0, width), data[~nulls].reshape(-1))


def _nested_cells(array: pa.Array, dtype: DataType, nulls: _Bools | None) -> Cells:
    # Arrow keeps arbitrary children for null values. They are dropped, so that they cannot fail to encode.
    strings = _encode_nested(array if nulls is None else array.drop_null(), dtype)
    padded_strings = _pad(strings)
    if nulls is None:
        return Cells(strings.sizes.astype(np.uint64), None, padded_strings.sizes, padded_strings.data)
    slots, sizes = np.zeros(len(array), np.uint64), np.zeros(len(array), np.int64)
    slots[~nulls], sizes[~nulls] = strings.sizes, padded_strings.sizes
    return Cells(slots, nulls, sizes, padded_strings.data)


# ------------------------------------------------------------------------------------------------ layout


def _lay_out_rows(cells: Sequence[Cells], count: int, *, arity_prefix: bool) -> _Ragged:
    prefix = ARITY_PREFIX_SIZE if arity_prefix else 0
    null_bits = null_bits_size(len(cells))
    head = np.zeros((count, prefix + null_bits + 8 * len(cells)), np.uint8)
    if prefix:
        head[:, :prefix] = np.frombuffer(len(cells).to_bytes(prefix, "big"), np.uint8)
    cursor = np.full(count, null_bits + 8 * len(cells), np.int64)
    pieces: list[_Ragged] = []
    for index, cell in enumerate(cells):
        if cell.nulls is not None:
            byte, bit = divmod(index + NULL_BITS_START, 8)
            head[:, prefix + byte] |= cell.nulls.view(np.uint8) << bit
        slots = cell.slots
        if cell.sizes is not None and cell.payload is not None:
            slots = _with_offsets(slots, cursor, cell.sizes)
            cursor += cell.sizes
            pieces.append(_ragged_of_sizes(cell.payload, cell.sizes))
        position = prefix + null_bits + 8 * index
        head[:, position : position + 8] = slots.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
    _check_size(cursor)
    return _concat(_ragged_of_rows(head), *pieces)


def _encode_array(values: pa.Array, counts: _Sizes, dtype: DataType) -> _Ragged:
    """Encode arrays of `counts[i]` elements each; `values` has the elements of all arrays in order."""
    cells = to_cells(values, dtype, reserve=False)
    width = element_width(dtype)
    headers = 4 + (counts + 31) // 32 * 4
    head_sizes = (headers + counts * width + 7) & ~7
    heads = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(head_sizes, out=heads[1:])
    first = np.cumsum(counts) - counts
    within = np.arange(len(values), dtype=np.int64) - np.repeat(first, counts)
    owner_heads = np.repeat(heads[:-1], counts)

    data = np.zeros(heads[-1], np.uint8)
    data.view("<u4")[heads[:-1] >> 2] = counts
    if cells.nulls is not None:
        null = within[cells.nulls]
        bits = np.left_shift(np.uint8(1), (null % 8).astype(np.uint8))
        np.bitwise_or.at(data, owner_heads[cells.nulls] + 4 + null // 8, bits)

    slots, pieces = cells.slots, [_Ragged(data, heads)]
    if cells.sizes is not None and cells.payload is not None:
        payload = _ragged_of_sizes(cells.payload, cells.sizes)
        bounds = np.append(first, len(values))
        array_offsets = payload.offsets[bounds]
        cursor = payload.offsets[:-1] + np.repeat(head_sizes - array_offsets[:-1], counts)
        _check_size(cursor + cells.sizes)
        slots = _with_offsets(slots, cursor, cells.sizes)
        pieces.append(_Ragged(cells.payload, array_offsets))
    _put_elements(data, owner_heads + np.repeat(headers, counts) + within * width, slots, width)
    return _concat(*pieces)


def _put_elements(data: _Bytes, positions: _Sizes, slots: _Slots, width: int) -> None:
    # Elements are aligned to four bytes, not eight, so that wide ones are written in two halves.
    if width == 8:
        halves = data.view("<u4")
        halves[positions >> 2] = slots & np.uint64(0xFFFFFFFF)
        halves[(positions >> 2) + 1] = slots >> np.uint64(32)
    else:
        data.view(_UNSIGNED[width])[positions // width] = slots


def _with_offsets(slots: _Slots, cursor: _Sizes, sizes: _Sizes) -> _Slots:
    return slots | np.where(sizes > 0, cursor.astype(np.uint64) << np.uint64(32), np.uint64(0))


def _check_size(cursor: _Sizes) -> None:
    if cursor.max(initial=0) > SIZE_MAX:
        raise InvalidInputError("row is larger than 2 GiB", hint="store large values in a BLOB or in a file")


def _encode_nested(array: pa.Array, dtype: DataType) -> _Ragged:
    match dtype:
        case RowType(fields=fields):
            cells = [to_cells(member, field.type) for member, field in zip(array.flatten(), fields, strict=True)]
            return _lay_out_rows(cells, len(array), arity_prefix=False)
        case VectorType(element=element, length=length):
            return _encode_vectors(array, element, length)
        case MapType(key=key, value=value):
            return _encode_maps(array, key, value)
        case ElementType(root=Root.MULTISET, element=element):
            return _encode_maps(array, element, INT)
        case ElementType(element=element):
            counts = np.diff(_list_offsets(array))
            return _encode_array(array.flatten(), counts, element)
    content, metadata = (_ragged_of_array(member) for member in array.flatten())
    return _concat(_lengths(content.sizes), content, metadata)


def _encode_maps(array: pa.MapArray, key: DataType, value: DataType) -> _Ragged:
    offsets = _list_offsets(array)
    start, stop = int(offsets[0]), int(offsets[-1])
    keys, values = array.keys.slice(start, stop - start), array.items.slice(start, stop - start)
    if keys.null_count:
        raise InvalidInputError("map has a null key", hint="remove the entry or give it a key")
    counts = np.diff(offsets)
    key_arrays = _encode_array(keys, counts, key)
    return _concat(_lengths(key_arrays.sizes), key_arrays, _encode_array(values, counts, value))


def _encode_vectors(array: pa.FixedSizeListArray, element: DataType, length: int) -> _Ragged:
    values = array.flatten()
    if family(element) is not Family.NUMBER:
        raise InvalidInputError("vector cannot hold elements of this type", type=element)
    if values.null_count:
        raise InvalidInputError("vector has a null element", hint="use an ARRAY for elements that may be null")
    width = element_width(element)
    # The elements are padded before the count is added, and the padding belongs to the length, as in Java.
    matrix = np.zeros((len(array), 4 + round_to_eight(width * length)), np.uint8)
    matrix[:, :4] = np.frombuffer(length.to_bytes(4, "little"), np.uint8)
    slots = to_cells(values, element).slots.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, :width]
    matrix[:, 4 : 4 + width * length] = np.ascontiguousarray(slots).reshape(len(array), width * length)
    return _ragged_of_rows(matrix)


def _list_offsets(array: pa.ListArray) -> _Sizes:
    """Offsets of an array without nulls, which therefore span exactly the values that `flatten` returns."""
    offsets: _Sizes = array.offsets.to_numpy().astype(np.int64)
    return offsets


def _ragged_of_array(array: pa.Array) -> _Ragged:
    data, offsets = octets(array)
    return _Ragged(data[offsets[0] : offsets[-1]], offsets - offsets[0])


def _lengths(sizes: _Sizes) -> _Ragged:
    return _ragged_of_rows(sizes.astype("<i4").view(np.uint8).reshape(-1, 4))
