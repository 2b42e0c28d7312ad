"""Key values as unsigned words, or as bytes in memcmp order, that sort as the format sorts keys.

Invariant: words and bytes compare as the format compares values: numbers by value, floats by total order with one NaN
above infinity, texts and binaries by unsigned bytes, a prefix before longer values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError

Words = np.ndarray[Any, np.dtype[np.uint64]]

_SIGN: Final = np.uint64(1 << 63)
WORD: Final = 8
"""Bytes of a word."""
_WORD_DIGITS: Final = 18
"""The precision up to which every decimal fits a word."""


# ------------------------------------------------------------------------------------------------ words


def sortable_words(array: pa.Array) -> Words:
    """Return fixed-width values without nulls as unsigned words of the same order.

    Raises:
        InvalidInputError: the type has no fixed width of at most one word.
    """
    found = sortable_numbers(array)
    if found.dtype == np.uint64:
        return found
    words: Words = found.astype(np.int64, copy=False).view(np.uint64) ^ _SIGN
    return words


def sortable_numbers(array: pa.Array) -> np.ndarray[Any, Any]:
    """Return fixed-width values without nulls as integers of the same order, without a copy where possible.

    Raises:
        InvalidInputError: the type has no fixed width of at most one word.
    """
    dtype = array.type
    if pa.types.is_boolean(dtype):
        bits: Words = array.cast(pa.uint8()).to_numpy(zero_copy_only=False).astype(np.uint64)
        return bits
    if pa.types.is_floating(dtype):
        wide = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
        bits = np.where(np.isnan(wide), np.nan, wide).view(np.uint64)
        return np.where(bits & _SIGN, ~bits, bits | _SIGN)
    if pa.types.is_decimal128(dtype) and dtype.precision <= _WORD_DIGITS:
        return _low_words(array)
    if word_width(dtype) is None:
        raise InvalidInputError("column cannot be part of a key", type=str(dtype))
    return _numbers(array)


def is_word(dtype: pa.DataType) -> bool:
    """Return whether all values of a type fit one sortable word."""
    return word_width(dtype) is not None


def _numbers(array: pa.Array) -> np.ndarray[Any, Any]:
    if not pa.types.is_integer(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    found: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=False)
    return found


def _low_words(array: pa.Array) -> np.ndarray[Any, Any]:
    raw = np.frombuffer(array.buffers()[1], dtype=np.int64)
    return raw[array.offset * 2 : (array.offset + len(array)) * 2 : 2].copy()


def word_width(dtype: pa.DataType) -> int | None:
    """Return the size of the sortable form in bytes; None if it is not fixed or larger than a word."""
    if pa.types.is_boolean(dtype):
        return 1
    if pa.types.is_floating(dtype):
        return WORD
    if pa.types.is_decimal128(dtype):
        return WORD if dtype.precision <= _WORD_DIGITS else None
    if pa.types.is_integer(dtype) or pa.types.is_date32(dtype) or pa.types.is_time32(dtype):
        return int(dtype.bit_width) // 8
    return WORD if pa.types.is_timestamp(dtype) else None


def pack_words(arrays: Sequence[pa.Array]) -> Words:
    """Pack fixed-width columns that fit one word together into one word per row."""
    words = sortable_words(arrays[0])
    if len(arrays) == 1:
        return words
    packed = np.zeros(len(words), dtype=np.uint64)
    for array in arrays:
        bits = (word_width(array.type) or WORD) * 8
        packed = (packed << np.uint64(bits)) | _narrow(array, bits)
    return packed


def _narrow(array: pa.Array, bits: int) -> Words:
    """Return words that sort correctly by their low bits alone."""
    words = sortable_words(array)
    if pa.types.is_boolean(array.type) or bits == 64:
        return words
    middle = np.uint64(1 << (bits - 1))
    return (words ^ _SIGN) + middle & np.uint64((1 << bits) - 1)


# ------------------------------------------------------------------------------------------------ bytes


def key_bytes(array: pa.Array) -> pa.LargeBinaryArray:
    """Return values as bytes in memcmp order.

    Raises:
        InvalidInputError: the type cannot be part of a key.
    """
    dtype = array.type
    if pa.types.is_dictionary(dtype):
        array, dtype = array.dictionary_decode(), dtype.value_type
    if pa.types.is_decimal128(dtype):
        return _fixed_bytes(_wide_decimal(array))
    if pa.types.is_fixed_size_binary(dtype):
        array = array.cast(pa.binary())
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        array = array.cast(pa.large_string())
    try:
        return array.cast(pa.large_binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as cause:
        raise InvalidInputError("column cannot be part of a key", type=str(dtype)) from cause


def key_part(array: pa.Array, *, ends: bool) -> pa.LargeBinaryArray:
    """Return one column of a composite key as bytes; unless it is the last, terminated so that no key is a prefix."""
    if word_width(array.type) is not None:
        return _fixed_bytes(sortable_words(array).astype(">u8").view(np.uint8).reshape(-1, WORD))
    whole = key_bytes(array)
    if not ends or pa.types.is_decimal128(array.type):
        return whole
    end = pa.scalar(b"\x00\x00", pa.large_binary())
    return pc.binary_join_element_wise(_escape_zeros(whole), end, pa.scalar(b"", pa.large_binary()))


def _escape_zeros(array: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Replace 00 by 00 01, so that 00 00 can end a part and sorts before every byte that could follow."""
    offsets, data = _raw(array)
    body = data[offsets[0] : offsets[-1]]
    zeros = np.nonzero(body == 0)[0]
    if not len(zeros):
        return array
    places = offsets - offsets[0]
    places = places + np.searchsorted(zeros, places, side="left")
    buffers = [None, pa.py_buffer(places.astype(np.int64)), pa.py_buffer(np.insert(body, zeros + 1, 1))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(array), buffers)


def _fixed_bytes(rows: np.ndarray[Any, Any]) -> pa.LargeBinaryArray:
    count, width = rows.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int64)
    flat = np.ascontiguousarray(rows).reshape(-1)
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(flat)])


def _wide_decimal(array: pa.Array) -> np.ndarray[Any, Any]:
    raw = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    rows = raw[array.offset * 16 : (array.offset + len(array)) * 16].reshape(-1, 16)[:, ::-1].copy()
    rows[:, 0] ^= 0x80
    return rows


def _raw(array: pa.LargeBinaryArray) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    return places, np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)


def common_prefix(arrays: Sequence[pa.LargeBinaryArray], *, sorted_arrays: bool) -> int:
    """Return the length of the prefix that all keys share."""
    if sorted_arrays:
        ends = [(array[0].as_py(), array[len(array) - 1].as_py()) for array in arrays]
    else:
        found = [pc.min_max(array) for array in arrays]
        ends = [(each["min"].as_py(), each["max"].as_py()) for each in found]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    count = 0
    while count < min(len(low), len(high)) and low[count] == high[count]:
        count += 1
    return count


def widths(array: pa.LargeBinaryArray) -> tuple[int, int]:
    """Return the lengths of the shortest and of the longest value."""
    offsets, _ = _raw(array)
    lengths = np.diff(offsets)
    return int(lengths.min()), int(lengths.max())


def load_even(array: pa.LargeBinaryArray, width: int, skip: int) -> Words:
    """Return eight bytes of each key after the first `skip`; all keys have the same width."""
    offsets, data = _raw(array)
    if not len(array):
        return np.empty(0, np.uint64)
    strided = np.ndarray((len(array),), dtype=">u8", buffer=data, offset=int(offsets[0]) + skip, strides=(width,))
    return strided.astype(np.uint64)


def load_words(array: pa.LargeBinaryArray, skip: int, *, exact: bool) -> Words:
    """Return eight bytes of each key after the first `skip`; if `exact`, up to seven bytes and their number."""
    if not len(array):
        return np.empty(0, np.uint64)
    offsets, data = _raw(array)
    begin = int(offsets[0])
    padded = np.concatenate([data[begin : offsets[-1]], np.zeros(WORD, np.uint8)])
    starts = offsets[:-1] - begin + skip
    left = np.minimum(offsets[1:] - begin - starts, WORD)
    every = np.ndarray((len(padded) - WORD + 1,), dtype=">u8", buffer=padded.data, strides=(1,))
    words: Words = every[starts].astype(np.uint64)
    if int(left.min()) < WORD:
        cut = ((WORD - left) * 8).astype(np.uint64)
        words = np.where(left == 0, np.uint64(0), (words >> np.minimum(cut, 63)) << np.minimum(cut, 63))
    return words | left.astype(np.uint64) if exact else words
