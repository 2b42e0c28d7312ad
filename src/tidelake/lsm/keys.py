"""The keys of rows as machine words that sort as the format sorts keys, so that a merge compares integers.

A key is one unsigned word, bytes in memcmp order, or several columns. A merge window knows its smallest and largest key
and packs what differs between them into words (`packing`). The keys of a window share most of their prefix, so a word
nearly always decides, and is often exact. Whole keys are built only for ties.

Invariant: words, and whole keys where words tie, compare as the format compares keys (`words`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.lsm.coded import Coded
from tidelake.lsm.order import stable_order
from tidelake.lsm.packing import Column, is_fixed, pack, text_words
from tidelake.lsm.words import WORD, Words, key_bytes, key_part, pack_words, sortable_words, word_width

Ints = np.ndarray[Any, Any]
KeyArray: TypeAlias = Any
"""The keys of a batch: words, bytes in memcmp order, or columns."""

_TIES_MAX: Final = 16
"""How many keys with equal words are compared one by one before a binary search over whole keys."""


# ------------------------------------------------------------------------------------------------ batches


@dataclass(frozen=True, slots=True)
class Columns:
    """Keys of several columns, converted to bytes only if whole keys are needed.

    Joining the columns of every row into bytes took three times as long as the whole merge takes now
    (`docs/adr/0005-merge-kernel.md`).
    """

    arrays: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, part: slice) -> Columns:
        return Columns(tuple(array[part] for array in self.arrays))

    def take(self, indices: pa.Array) -> Columns:
        """Return the keys at these positions."""
        return Columns(tuple(array.take(indices) for array in self.arrays))

    def join_columns(self) -> pa.LargeBinaryArray:
        """Return whole keys as bytes in memcmp order."""
        last = len(self.arrays) - 1
        parts = [key_part(_plain(array), ends=index < last) for index, array in enumerate(self.arrays)]
        return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


@dataclass(frozen=True, slots=True)
class KeyCodec:
    """Converts the key columns of a table to sortable keys."""

    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]

    @property
    def exact(self) -> bool:
        """Whether every key fits one word."""
        widths = [word_width(dtype) for dtype in self.types]
        return None not in widths and sum(width or 0 for width in widths) <= WORD

    def encode(self, rows: pa.Table) -> KeyArray:
        """Return the keys of rows, in their order. The first of several columns may be an Arrow dictionary.

        Raises:
            InvalidInputError: a key is null, or a column has a type that cannot be part of a key.
        """
        arrays = [_one_chunk(rows.column(name)) for name in self.columns]
        for name, array in zip(self.columns, arrays, strict=True):
            if array.null_count:
                raise InvalidInputError("primary key is null", column=name, hint="give every row a key")
        if self.exact:
            return pack_words(arrays)
        if len(arrays) == 1:
            return key_bytes(arrays[0])
        first, *others = arrays
        leading = Coded.of(first) if pa.types.is_dictionary(first.type) else _column(first)
        return Columns((leading, *map(_column, others)))


def first_and_last(keys: KeyArray) -> tuple[Any, Any]:
    """Return the smallest and the largest of sorted keys, as values that compare with those of other batches."""
    return key_at(keys, 0), key_at(keys, len(keys) - 1)


def count_up_to(keys: KeyArray, bound: Any) -> int:
    """Return how many of the sorted keys are at most the bound."""
    if isinstance(keys, np.ndarray):
        return int(np.searchsorted(keys, bound, side="right"))
    if not isinstance(keys, Columns):
        return bisect_right(range(len(keys)), bound, key=lambda place: keys[place].as_py())
    low, high = 0, len(keys)
    for array, value in zip(keys.arrays, bound, strict=True):  # low:high are the rows equal in all columns so far
        if isinstance(array, Coded):
            low, high = array.equal_range(low, high, value)
        elif is_fixed(array):
            words, least = sortable_words(array[low:high]), np.uint64(value)
            low, high = (low + int(np.searchsorted(words, least, side=side)) for side in ("left", "right"))
        else:
            places, at = range(low, high), array.__getitem__
            low, high = (low + side(places, value, key=lambda i: at(i).as_py()) for side in (bisect_left, bisect_right))
    return high


def key_at(keys: KeyArray, place: int) -> Any:
    """Return one key as a value that compares with those of other batches."""
    if isinstance(keys, np.ndarray):
        return keys[place]
    if not isinstance(keys, Columns):
        return keys[place].as_py()
    return tuple(_cell(array, place) for array in keys.arrays)


def _cell(array: Column, place: int) -> Any:
    if isinstance(array, Coded):
        return array.at(place)
    return int(sortable_words(array[place : place + 1])[0]) if is_fixed(array) else array[place].as_py()


def slice_keys(keys: KeyArray, start: int, stop: int | None = None) -> KeyArray:
    """Return a slice of the keys without a copy."""
    return keys[start:stop]


# ------------------------------------------------------------------------------------------------ windows


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a merge window: sortable words, and the whole keys if words alone do not decide."""

    words: Words
    whole: pa.LargeBinaryArray | Columns | None

    def __len__(self) -> int:
        return len(self.words)

    def take(self, indices: Ints) -> Keys:
        """Return the keys at these positions."""
        return Keys(self.words[indices], None if self.whole is None else self.whole.take(pa.array(indices)))

    def order(self) -> Ints:
        """Return the indices that sort the keys; equal keys keep their order."""
        order = stable_order(self.words)
        if self.whole is None or not self._ties_differ(order):
            return order
        import polars as pl

        frame = pl.DataFrame({"key": pl.Series(_bytes(self.whole))})
        found: Ints = frame.select(pl.arg_sort_by("key", maintain_order=True)).to_series().to_numpy()
        return found.astype(np.int64)

    def starts(self, order: Ints) -> Ints:
        """Return the positions in the order at which a new key begins."""
        words = self.words[order]
        fresh = np.ones(len(words), dtype=bool)
        np.not_equal(words[1:], words[:-1], out=fresh[1:])
        if self.whole is not None:
            ties = np.nonzero(~fresh)[0]
            fresh[ties] = self._differ(order[ties - 1], order[ties])
        return np.nonzero(fresh)[0]

    def _ties_differ(self, order: Ints) -> bool:
        words = self.words[order]
        ties = np.nonzero(words[1:] == words[:-1])[0]
        return bool(self._differ(order[ties], order[ties + 1]).any())

    def _differ(self, left: Ints, right: Ints) -> Ints:
        return _bools(pc.not_equal(_at(self.whole, left), _at(self.whole, right)))


def window(parts: Sequence[KeyArray], *, sorted_parts: bool = True) -> list[Keys]:
    """Return the keys of a window's parts in a common form. Parts are sorted unless `sorted_parts` is false."""
    if not parts or isinstance(parts[0], np.ndarray):
        return [Keys(part, None) for part in parts]
    if isinstance(parts[0], Columns):
        words, exact = pack(list(zip(*(part.arrays for part in parts), strict=True)), sorted_parts=sorted_parts)
    else:
        words, exact = text_words(parts, sorted_parts=sorted_parts)
    return [Keys(word, None if exact else part) for word, part in zip(words, parts, strict=True)]


def concat(parts: Sequence[Keys]) -> Keys:
    """Concatenate the keys of several parts."""
    words = np.concatenate([part.words for part in parts]) if parts else np.empty(0, np.uint64)
    whole = [part.whole for part in parts if part.whole is not None]
    if not whole:
        return Keys(words, None)
    if isinstance(whole[0], Columns):
        columns = zip(*(part.arrays for part in whole), strict=True)
        return Keys(words, Columns(tuple(pa.concat_arrays(list(map(_plain, arrays))) for arrays in columns)))
    return Keys(words, pa.concat_arrays(whole))


def locate(base: Keys, needles: Keys) -> tuple[Ints, Ints]:
    """Return the position of each needle in the sorted base, or where it would be inserted, and whether it is there."""
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
        there, wanted = _at(base.whole, places[rest]), _at(needles.whole, rest)
        hits[rest[_bools(pc.equal(there, wanted))]] = True
        rest = rest[_bools(pc.less(there, wanted))]
        places[rest] += 1
        rest = rest[_same_word(base, needles, places[rest], rest)]
    import polars as pl

    held, wanted = _bytes(base.whole), _at(needles.whole, rest)
    found = pl.Series(held).search_sorted(pl.Series(wanted), side="left").to_numpy().astype(np.int64)
    places[rest] = found
    inside = found < len(base)
    there = held.take(pa.array(np.minimum(found, len(base) - 1)))
    hits[rest] = inside & _bools(pc.equal(there, wanted))
    return places, hits


def _same_word(base: Keys, needles: Keys, places: Ints, which: Ints) -> Ints:
    clipped = np.minimum(places, len(base) - 1)
    same: Ints = (places < len(base)) & (base.words[clipped] == needles.words[which])
    return same


# ------------------------------------------------------------------------------------------------ arrays


def _at(keys: KeyArray, indices: Ints) -> pa.LargeBinaryArray:
    """Return the whole keys at these positions as bytes."""
    return _bytes(keys.take(pa.array(indices)))


def _bytes(keys: KeyArray) -> pa.LargeBinaryArray:
    return keys.join_columns() if isinstance(keys, Columns) else keys


def _column(array: pa.Array) -> Column:
    return array if is_fixed(array) else key_bytes(array)


def _plain(array: Column) -> pa.Array:
    return array.plain() if isinstance(array, Coded) else array


def _one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _bools(array: pa.Array) -> Ints:
    found: Ints = array.to_numpy(zero_copy_only=False)
    return found
