"""Keys of rows as numbers that sort as the format sorts them, so that a merge compares machine words.

A key is one unsigned word, bytes in memcmp order, or several columns. A window of the merge knows the smallest and the
largest of its keys, and squeezes what differs between them into words: of text the eight bytes behind what all have in
common, of sorted text that repeats its rank, of numbers their distance from the smallest. Sorted neighbours share most
of their prefix, so a word nearly always decides, and often it is all there is. Whole keys are made for ties alone.

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
from tidelake.lsm.order import stable_order
from tidelake.lsm.words import (
    WORD,
    Words,
    common_prefix,
    key_bytes,
    key_part,
    load_even,
    load_words,
    pack_words,
    sortable_words,
    widths,
    word_width,
)

Ints = np.ndarray[Any, Any]
KeyArray: TypeAlias = Any
"""The keys of a batch: words, bytes in memcmp order, or columns."""

_TIES_MAX: Final = 16
"""Neighbours with one word that are compared in turn before a search over whole keys takes over."""
_SAMPLE: Final = 512
"""Rows that tell whether sorted text repeats itself."""


# ------------------------------------------------------------------------------------------------ batches


@dataclass(frozen=True, slots=True)
class Columns:
    """Keys of several columns, which become bytes only where whole keys are asked for."""

    arrays: tuple[pa.Array, ...]

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, part: slice) -> Columns:
        return Columns(tuple(array[part] for array in self.arrays))

    def take(self, indices: pa.Array) -> Columns:
        """The keys at these places."""
        return Columns(tuple(array.take(indices) for array in self.arrays))

    def joined(self) -> pa.LargeBinaryArray:
        """Whole keys as bytes in memcmp order."""
        last = len(self.arrays) - 1
        parts = [key_part(array, ends=index < last) for index, array in enumerate(self.arrays)]
        return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


@dataclass(frozen=True, slots=True)
class KeyCodec:
    """How the key columns of a table become sortable keys."""

    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]

    @property
    def exact(self) -> bool:
        """Whether a key fits one word."""
        widths = [word_width(dtype) for dtype in self.types]
        return None not in widths and sum(width or 0 for width in widths) <= WORD

    def encode(self, rows: pa.Table) -> KeyArray:
        """The keys of rows, in their order.

        Raises:
            InvalidInputError: a key is null, or its type is none that keys have.
        """
        arrays = [_one_chunk(rows.column(name)) for name in self.columns]
        for name, array in zip(self.columns, arrays, strict=True):
            if array.null_count:
                raise InvalidInputError("primary key is null", column=name, hint="give every row a key")
        if self.exact:
            return pack_words(arrays)
        if len(arrays) == 1:
            return key_bytes(arrays[0])
        return Columns(tuple(array if word_width(array.type) else key_bytes(array) for array in arrays))


def first_and_last(keys: KeyArray) -> tuple[Any, Any]:
    """The smallest and the largest of sorted keys, as values that compare with those of other batches."""
    return key_at(keys, 0), key_at(keys, len(keys) - 1)


def count_up_to(keys: KeyArray, bound: Any) -> int:
    """How many of sorted keys are at most the bound."""
    if isinstance(keys, np.ndarray):
        return int(np.searchsorted(keys, bound, side="right"))
    if not isinstance(keys, Columns):
        return bisect_right(range(len(keys)), bound, key=lambda place: keys[place].as_py())
    low, high = 0, len(keys)
    for array, value in zip(keys.arrays, bound, strict=True):  # of the rows that are alike so far
        if word_width(array.type):
            words, least = sortable_words(array[low:high]), np.uint64(value)
            low, high = (low + int(np.searchsorted(words, least, side=side)) for side in ("left", "right"))
        else:
            places, at = range(low, high), array.__getitem__
            low, high = (low + side(places, value, key=lambda i: at(i).as_py()) for side in (bisect_left, bisect_right))
    return high


def key_at(keys: KeyArray, place: int) -> Any:
    """One key, as a value that compares with those of other batches."""
    if isinstance(keys, np.ndarray):
        return keys[place]
    if not isinstance(keys, Columns):
        return keys[place].as_py()
    cells = (array[place : place + 1] for array in keys.arrays)
    return tuple(int(sortable_words(cell)[0]) if word_width(cell.type) else cell[0].as_py() for cell in cells)


def slice_keys(keys: KeyArray, start: int, stop: int | None = None) -> KeyArray:
    """A part of keys, without a copy."""
    return keys[start:stop]


# ------------------------------------------------------------------------------------------------ windows


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of one window of a merge: words that sort alike, and whole keys where words alone do not decide."""

    words: Words
    whole: pa.LargeBinaryArray | Columns | None

    def __len__(self) -> int:
        return len(self.words)

    def take(self, indices: Ints) -> Keys:
        """The keys at these places."""
        return Keys(self.words[indices], None if self.whole is None else self.whole.take(pa.array(indices)))

    def order(self) -> Ints:
        """The places of the keys from small to large; equal keys stay as they are."""
        order = stable_order(self.words)
        if self.whole is None or not self._ties_differ(order):
            return order
        import polars as pl

        frame = pl.DataFrame({"key": pl.Series(_bytes(self.whole))})
        found: Ints = frame.select(pl.arg_sort_by("key", maintain_order=True)).to_series().to_numpy()
        return found.astype(np.int64)

    def starts(self, order: Ints) -> Ints:
        """Where in the order a new key begins."""
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
    """The keys of the parts of one window in a common form, each sorted unless told otherwise."""
    if not parts or isinstance(parts[0], np.ndarray):
        return [Keys(part, None) for part in parts]
    if isinstance(parts[0], Columns):
        return _packed(parts, sorted_parts=sorted_parts)
    words, exact = _text_words(parts, sorted_parts=sorted_parts)
    return [Keys(word, None if exact else part) for word, part in zip(words, parts, strict=True)]


def _packed(parts: Sequence[Columns], *, sorted_parts: bool) -> list[Keys]:
    """Columns from the left, each as few bits as the window needs, until a word is full."""
    packed: list[Words] = [np.zeros(len(part), np.uint64) for part in parts]
    room = 8 * WORD
    for number in range(len(parts[0].arrays)):
        arrays = [part.arrays[number] for part in parts]
        words, exact = _column_words(arrays, sorted_parts=sorted_parts and number == 0)
        filled = [word for word in words if len(word)]
        low = min((int(word.min()) for word in filled), default=0)
        bits = (max((int(word.max()) for word in filled), default=0) - low).bit_length()
        excess = max(0, bits - room)
        if bits > excess:
            for word, whole in zip(words, packed, strict=True):
                word -= np.uint64(low)
                word >>= np.uint64(excess)
                if room < 8 * WORD:
                    word |= whole << np.uint64(bits - excess)
            packed = words
            room -= bits - excess
        if excess or not exact:
            return [Keys(word, part) for word, part in zip(packed, parts, strict=True)]
    return [Keys(word, None) for word in packed]


def _column_words(arrays: Sequence[pa.Array], *, sorted_parts: bool) -> tuple[list[Words], bool]:
    """Words of one column of all parts, and whether they tell all values apart."""
    if word_width(arrays[0].type):
        return [sortable_words(array) for array in arrays], True
    ranks = _ranks(arrays) if sorted_parts else None
    return (ranks, True) if ranks is not None else _text_words(arrays, sorted_parts=sorted_parts)


def _text_words(arrays: Sequence[pa.LargeBinaryArray], *, sorted_parts: bool) -> tuple[list[Words], bool]:
    filled = [array for array in arrays if len(array)]
    if not filled:
        return [np.empty(0, np.uint64) for _ in arrays], True
    common = common_prefix(filled, sorted_arrays=sorted_parts)
    bounds = [widths(array) for array in filled]
    shortest, longest = min(low for low, _ in bounds), max(high for _, high in bounds)
    if shortest == longest >= WORD:
        # Behind the common prefix, or as much of it as fills the word.
        skip = min(common, longest - WORD)
        return [load_even(array, longest, skip) for array in arrays], skip == longest - WORD
    exact = longest - common < WORD
    return [load_words(array, common, exact=exact) for array in arrays], exact


def _ranks(arrays: Sequence[pa.LargeBinaryArray]) -> list[Words] | None:
    """The ranks of sorted texts, if these repeat themselves."""
    base = max(arrays, key=len)
    if len(_changes(base[:_SAMPLE])) > _SAMPLE // 4:
        return None
    changes = [_changes(array) for array in arrays]
    distinct = pa.concat_arrays([array.take(pa.array(at)) for array, at in zip(arrays, changes, strict=True)])
    ranks = pc.rank(distinct, tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.uint64)
    cuts = np.split(ranks, np.cumsum([len(at) for at in changes])[:-1])
    sizes = (np.diff(np.append(at, len(array))) for array, at in zip(arrays, changes, strict=True))
    return [np.repeat(rank, size) for rank, size in zip(cuts, sizes, strict=True)]


def _changes(array: pa.LargeBinaryArray) -> Ints:
    """Where a new value begins."""
    if not len(array):
        return np.empty(0, np.int64)
    fresh = _bools(pc.not_equal(array[1:], array[:-1]))
    return np.concatenate([[0], np.nonzero(fresh)[0] + 1])


def concat(parts: Sequence[Keys]) -> Keys:
    """Keys of several parts one after the other."""
    words = np.concatenate([part.words for part in parts]) if parts else np.empty(0, np.uint64)
    whole = [part.whole for part in parts if part.whole is not None]
    if not whole:
        return Keys(words, None)
    if isinstance(whole[0], Columns):
        columns = zip(*(part.arrays for part in whole), strict=True)
        return Keys(words, Columns(tuple(pa.concat_arrays(arrays) for arrays in columns)))
    return Keys(words, pa.concat_arrays(whole))


def locate(base: Keys, needles: Keys) -> tuple[Ints, Ints]:
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
    """Whole keys at these places."""
    return _bytes(keys.take(pa.array(indices)))


def _bytes(keys: KeyArray) -> pa.LargeBinaryArray:
    return keys.joined() if isinstance(keys, Columns) else keys


def _one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _bools(array: pa.Array) -> Ints:
    found: Ints = array.to_numpy(zero_copy_only=False)
    return found
