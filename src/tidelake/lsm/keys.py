"""Keys of rows as numbers that sort as the format sorts them, so that a merge compares machine words.

A key is one unsigned word, or bytes in memcmp order. Of bytes, a window of the merge looks at eight behind what all its
keys have in common: sorted neighbours share most of their prefix, so those eight nearly always decide, and often they
are all there is.

Invariant: words, and whole keys where words tie, compare as the format compares keys: numbers by value, floats by total
order with one NaN above infinity, text and binary by unsigned bytes with the shorter first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError

Words = np.ndarray[Any, np.dtype[np.uint64]]
KeyArray: TypeAlias = Any
"""The keys of a batch: words, or bytes in memcmp order."""

_SIGN: Final = np.uint64(1 << 63)
_WORD: Final = 8
_TIES_MAX: Final = 16
"""Neighbours with one prefix that are compared in turn before a search over whole keys takes over."""


# ------------------------------------------------------------------------------------------------ batches


@dataclass(frozen=True, slots=True)
class KeyCodec:
    """How the key columns of a table become sortable keys."""

    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]

    @property
    def exact(self) -> bool:
        """Whether a key fits one word."""
        widths = [_width(dtype) for dtype in self.types]
        return None not in widths and sum(width or 0 for width in widths) <= _WORD

    def encode(self, rows: pa.Table) -> KeyArray:
        """The keys of rows, in their order.

        Raises:
            InvalidInputError: a key is null, or its type is none that keys have.
        """
        arrays = [_whole(rows.column(name)) for name in self.columns]
        for name, array in zip(self.columns, arrays, strict=True):
            if array.null_count:
                raise InvalidInputError("primary key is null", column=name, hint="give every row a key")
        if self.exact:
            return _pack(arrays)
        if len(arrays) == 1:
            return _bytes_of(arrays[0])
        last = len(arrays) - 1
        parts = [_part(array, ends=index < last) for index, array in enumerate(arrays)]
        return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def first_and_last(keys: KeyArray) -> tuple[Any, Any]:
    """The smallest and the largest of sorted keys."""
    if isinstance(keys, np.ndarray):
        return keys[0], keys[-1]
    return keys[0].as_py(), keys[len(keys) - 1].as_py()


def count_up_to(keys: KeyArray, bound: Any) -> int:
    """How many of sorted keys are at most the bound."""
    if isinstance(keys, np.ndarray):
        return int(np.searchsorted(keys, bound, side="right"))
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() <= bound:
            low = middle + 1
        else:
            high = middle
    return low


def slice_keys(keys: KeyArray, start: int, stop: int | None = None) -> KeyArray:
    """A part of keys, without a copy."""
    return keys[start:stop]


# ------------------------------------------------------------------------------------------------ windows


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of one window of a merge: words that sort alike, and whole keys where words alone do not decide."""

    words: Words
    whole: pa.LargeBinaryArray | None

    def __len__(self) -> int:
        return len(self.words)

    def take(self, indices: np.ndarray[Any, Any]) -> Keys:
        """The keys at these places."""
        return Keys(self.words[indices], None if self.whole is None else self.whole.take(pa.array(indices)))

    def order(self) -> np.ndarray[Any, Any]:
        """The places of the keys from small to large; equal keys stay as they are."""
        order = np.argsort(self.words, kind="stable")
        if self.whole is None or not self._ties_differ(order):
            return order
        import polars as pl

        frame = pl.DataFrame({"key": pl.Series(self.whole)})
        found: np.ndarray[Any, Any] = frame.select(pl.arg_sort_by("key", maintain_order=True)).to_series().to_numpy()
        return found.astype(np.int64)

    def starts(self, order: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Where in the order a new key begins."""
        words = self.words[order]
        fresh = np.ones(len(words), dtype=bool)
        np.not_equal(words[1:], words[:-1], out=fresh[1:])
        if self.whole is not None:
            ties = np.nonzero(~fresh)[0]
            fresh[ties] = self._differ(order[ties - 1], order[ties])
        return np.nonzero(fresh)[0]

    def _ties_differ(self, order: np.ndarray[Any, Any]) -> bool:
        words = self.words[order]
        ties = np.nonzero(words[1:] == words[:-1])[0]
        return bool(self._differ(order[ties], order[ties + 1]).any())

    def _differ(self, left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        assert self.whole is not None
        return _bools(pc.not_equal(self.whole.take(pa.array(left)), self.whole.take(pa.array(right))))


def window(parts: Sequence[KeyArray], *, sorted_parts: bool = True) -> list[Keys]:
    """The keys of the parts of one window in a common form, each sorted unless told otherwise."""
    arrays = [part for part in parts if isinstance(part, pa.Array)]
    if not arrays:
        return [Keys(part, None) for part in parts if isinstance(part, np.ndarray)]
    filled = [array for array in arrays if len(array)]
    common = _common_prefix(filled) if sorted_parts and filled else 0
    longest = max((_longest(array) for array in filled), default=0) - common
    if longest < _WORD:
        return [Keys(_load(array, common, exact=True), None) for array in arrays]
    return [Keys(_load(array, common, exact=False), array) for array in arrays]


def concat(parts: Sequence[Keys]) -> Keys:
    """Keys of several parts one after the other."""
    words = np.concatenate([part.words for part in parts]) if parts else np.empty(0, np.uint64)
    whole = [part.whole for part in parts if part.whole is not None]
    return Keys(words, pa.concat_arrays(whole) if whole else None)


def locate(base: Keys, needles: Keys) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Where each needle stands in the sorted base, or would be put in front of, and whether it is there."""
    places = np.searchsorted(base.words, needles.words, side="left")
    if not len(base):
        return places, np.zeros(len(needles), dtype=bool)
    hits = _same_word(base, needles, places, np.arange(len(needles)))
    if base.whole is None or needles.whole is None:
        return places, hits
    rest = np.nonzero(hits)[0]
    hits[:] = False
    for _ in range(_TIES_MAX):
        if not len(rest):
            return places, hits
        there, wanted = base.whole.take(pa.array(places[rest])), needles.whole.take(pa.array(rest))
        hits[rest[_bools(pc.equal(there, wanted))]] = True
        rest = rest[_bools(pc.less(there, wanted))]
        places[rest] += 1
        rest = rest[_same_word(base, needles, places[rest], rest)]
    import polars as pl

    wanted = needles.whole.take(pa.array(rest))
    found = pl.Series(base.whole).search_sorted(pl.Series(wanted), side="left").to_numpy().astype(np.int64)
    places[rest] = found
    inside = found < len(base)
    there = base.whole.take(pa.array(np.minimum(found, len(base) - 1)))
    hits[rest] = inside & _bools(pc.equal(there, wanted))
    return places, hits


def _same_word(
    base: Keys, needles: Keys, places: np.ndarray[Any, Any], which: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    clipped = np.minimum(places, len(base) - 1)
    same: np.ndarray[Any, Any] = (places < len(base)) & (base.words[clipped] == needles.words[which])
    return same


# ------------------------------------------------------------------------------------------------ words


def sortable_words(array: pa.Array) -> Words:
    """Fixed-width values, none of them null, as unsigned words of the same order.

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
    if pa.types.is_decimal128(dtype):
        return _low_words(array).view(np.uint64) ^ _SIGN
    if _width(dtype) is None:
        raise InvalidInputError("column cannot be part of a key", type=str(dtype))
    return _numbers(array).astype(np.int64).view(np.uint64) ^ _SIGN


def is_word(dtype: pa.DataType) -> bool:
    """Whether values of a type fit one sortable word."""
    return _width(dtype) is not None


def _numbers(array: pa.Array) -> np.ndarray[Any, Any]:
    if not pa.types.is_integer(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    found: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=False)
    return found


def _low_words(array: pa.Array) -> np.ndarray[Any, Any]:
    raw = np.frombuffer(array.buffers()[1], dtype=np.int64)
    return raw[array.offset * 2 : (array.offset + len(array)) * 2 : 2].copy()


def _width(dtype: pa.DataType) -> int | None:
    """Bytes of the sortable form, None where it has no fixed one of at most a word."""
    if pa.types.is_boolean(dtype):
        return 1
    if pa.types.is_floating(dtype):
        return _WORD
    if pa.types.is_decimal128(dtype):
        return _WORD if dtype.precision <= 18 else None
    if pa.types.is_integer(dtype) or pa.types.is_date32(dtype) or pa.types.is_time32(dtype):
        return int(dtype.bit_width) // 8
    return _WORD if pa.types.is_timestamp(dtype) else None


def _pack(arrays: Sequence[pa.Array]) -> Words:
    words = sortable_words(arrays[0])
    if len(arrays) == 1:
        return words
    packed = np.zeros(len(words), dtype=np.uint64)
    for array in arrays:
        bits = (_width(array.type) or _WORD) * 8
        packed = (packed << np.uint64(bits)) | _narrow(array, bits)
    return packed


def _narrow(array: pa.Array, bits: int) -> Words:
    """Sortable in the low bits alone."""
    words = sortable_words(array)
    if pa.types.is_boolean(array.type) or bits == 64:
        return words
    middle = np.uint64(1 << (bits - 1))
    return (words ^ _SIGN) + middle & np.uint64((1 << bits) - 1)


# ------------------------------------------------------------------------------------------------ bytes


def _bytes_of(array: pa.Array) -> pa.LargeBinaryArray:
    dtype = array.type
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


def _part(array: pa.Array, *, ends: bool) -> pa.LargeBinaryArray:
    """One column of a composite key; where another follows, so marked that no key is the beginning of another."""
    if _width(array.type) is not None:
        return _fixed_bytes(sortable_words(array).astype(">u8").view(np.uint8).reshape(-1, _WORD))
    whole = _bytes_of(array)
    if not ends or pa.types.is_decimal128(array.type):
        return whole
    end = pa.scalar(b"\x00\x00", pa.large_binary())
    return pc.binary_join_element_wise(_escaped(whole), end, pa.scalar(b"", pa.large_binary()))


def _escaped(array: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """With 00 as 00 01, so that 00 00 can end a part: it sorts before everything that could follow."""
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


def _common_prefix(arrays: Sequence[pa.LargeBinaryArray]) -> int:
    """Bytes that all keys of sorted arrays begin with."""
    low = min(array[0].as_py() for array in arrays)
    high = max(array[len(array) - 1].as_py() for array in arrays)
    count = 0
    while count < min(len(low), len(high)) and low[count] == high[count]:
        count += 1
    return count


def _longest(array: pa.LargeBinaryArray) -> int:
    offsets, _ = _raw(array)
    return int(np.diff(offsets).max()) if len(array) else 0


def _load(array: pa.LargeBinaryArray, skip: int, *, exact: bool) -> Words:
    """Eight bytes of each key behind the first `skip`, or, `exact`, up to seven and how many they are."""
    if not len(array):
        return np.empty(0, np.uint64)
    offsets, data = _raw(array)
    begin = int(offsets[0])
    padded = np.concatenate([data[begin : offsets[-1]], np.zeros(_WORD, np.uint8)])
    starts = offsets[:-1] - begin + skip
    left = np.minimum(offsets[1:] - begin - starts, _WORD)
    every = np.ndarray((len(padded) - _WORD + 1,), dtype=">u8", buffer=padded.data, strides=(1,))
    words: Words = every[starts].astype(np.uint64)
    if int(left.min()) < _WORD:
        cut = ((_WORD - left) * 8).astype(np.uint64)
        words = np.where(left == 0, np.uint64(0), (words >> np.minimum(cut, 63)) << np.minimum(cut, 63))
    return words | left.astype(np.uint64) if exact else words


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _bools(array: pa.Array) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=False)
    return found
