"""Packs the key columns of a merge window into one machine word per row.

From left to right, each column takes only the bits that its range of values in the window needs, until the word is
full. Repeating texts are replaced by their rank among the texts of the window; of other texts the word holds the eight
bytes after their common prefix.

Invariant: within a window a smaller word means a smaller key; if the words are `exact`, equal words mean equal keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.lsm.coded import Coded
from tidelake.lsm.words import WORD, Words, common_prefix, load_even, load_words, sortable_numbers, widths, word_width

__all__ = ["Column", "is_fixed", "pack", "text_words"]

Ints = np.ndarray[Any, Any]
Column: TypeAlias = Any
"""Values of fixed width, bytes in memcmp order, or texts as dictionary codes."""

_SAMPLE: Final = 512
"""How many rows are sampled to decide whether sorted texts repeat."""
_BITS: Final = 8 * WORD
_MASK: Final = (1 << _BITS) - 1


def is_fixed(column: Column) -> bool:
    """Return whether every possible value of a column fits one word."""
    return not isinstance(column, Coded) and word_width(column.type) is not None


def pack(columns: Sequence[Sequence[Column]], *, sorted_parts: bool) -> tuple[list[Words], bool]:
    """Return the words of each part's rows, and whether they are exact.

    Args:
        columns: For each key column, its values in every part.
        sorted_parts: Whether every part is sorted by key.
    """
    fields: list[_Field] = []
    room, exact = _BITS, True
    for number, arrays in enumerate(columns):
        parts, alone = _narrow_column(arrays, sorted_parts=sorted_parts and number == 0)
        spans = [span for part in parts if (span := part.span()) is not None]
        low = min((span[0] for span in spans), default=0)
        bits = (max((span[1] for span in spans), default=0) - low).bit_length()
        kept = min(bits, room)
        fields.append(_Field(parts, low, bits - kept, room := room - kept))
        exact = alone and kept == bits
        if not exact:
            break
    spare = fields[-1].shift
    return [_combine_fields(fields, part, spare) for part in range(len(columns[0]))], exact


def _combine_fields(fields: Sequence[_Field], part: int, spare: int) -> Words:
    first, *others = (each.parts[part].words(each.low, each.cut, each.shift - spare) for each in fields)
    for words in others:
        first |= words
    return first


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Values that are already integers."""

    values: Ints

    def span(self) -> tuple[int, int] | None:
        return (int(self.values.min()), int(self.values.max())) if len(self.values) else None

    def words(self, low: int, cut: int, shift: int) -> Words:
        if self.values.dtype.itemsize == WORD:
            found = self.values.view(np.uint64) - np.uint64(low & _MASK)
        else:
            found = np.subtract(self.values, low, dtype=np.int64).view(np.uint64)
        if cut:
            found >>= np.uint64(cut)
        if shift:
            found <<= np.uint64(shift)
        return found


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Texts as the ranks of the distinct ones, and which rows have them."""

    ranks: Words
    places: Ints
    """The index into `ranks` of each row; or, if `in_a_row`, how many consecutive rows each rank has."""
    in_a_row: bool

    def span(self) -> tuple[int, int] | None:
        return (int(self.ranks.min()), int(self.ranks.max())) if len(self.ranks) else None

    def words(self, low: int, cut: int, shift: int) -> Words:
        ranks = _Numbers(self.ranks).words(low, cut, shift)
        found: Words = np.repeat(ranks, self.places) if self.in_a_row else ranks.take(self.places)
        return found


@dataclass(frozen=True, slots=True)
class _Field:
    """One key column and its bits in the word."""

    parts: Sequence[_Numbers | _Ranked]
    low: int
    cut: int
    """How many of its lowest bits do not fit."""
    shift: int


def _narrow_column(arrays: Sequence[Column], *, sorted_parts: bool) -> tuple[Sequence[_Numbers | _Ranked], bool]:
    """Return one column of all parts as integers, and whether they distinguish all values."""
    if all(map(is_fixed, arrays)):
        return [_Numbers(sortable_numbers(array)) for array in arrays], True
    if _worth_ranks(arrays, sorted_parts=sorted_parts):
        return _ranks(arrays, sorted_parts=sorted_parts), True
    plain = [array.plain() if isinstance(array, Coded) else array for array in arrays]
    words, exact = text_words(plain, sorted_parts=sorted_parts)
    return [_Numbers(each) for each in words], exact


def _worth_ranks(arrays: Sequence[Column], *, sorted_parts: bool) -> bool:
    if not sorted_parts:
        return all(isinstance(array, Coded) for array in arrays)
    base = max(arrays, key=len)
    return isinstance(base, Coded) or len(_changes(base[:_SAMPLE])) <= _SAMPLE // 4


def _ranks(arrays: Sequence[Column], *, sorted_parts: bool) -> list[_Ranked]:
    distinct: list[pa.Array] = []
    places: list[Ints] = []
    for array in arrays:
        if isinstance(array, Coded):
            low, high = array.span(ascending=sorted_parts)
            distinct.append(array.values[low : high + 1])
            places.append(array.codes - low if low else array.codes)
        else:
            changes = _changes(array)
            distinct.append(array.take(pa.array(changes)))
            places.append(np.diff(np.append(changes, len(array))))
    ranks = pc.rank(pa.concat_arrays(distinct), tiebreaker="dense").to_numpy()
    cuts = np.split(ranks, np.cumsum([len(each) for each in distinct])[:-1])
    in_a_row = (not isinstance(array, Coded) for array in arrays)
    return [_Ranked(*each) for each in zip(cuts, places, in_a_row, strict=True)]


def _changes(array: pa.LargeBinaryArray) -> Ints:
    """Return the positions at which a new value begins."""
    if not len(array):
        return np.empty(0, np.int64)
    fresh = pc.not_equal(array[1:], array[:-1]).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.nonzero(fresh)[0] + 1])


def text_words(arrays: Sequence[pa.LargeBinaryArray], *, sorted_parts: bool) -> tuple[list[Words], bool]:
    """Return the eight most significant distinct bytes of each text, and whether they distinguish all texts."""
    filled = [array for array in arrays if len(array)]
    if not filled:
        return [np.empty(0, np.uint64) for _ in arrays], True
    common = common_prefix(filled, sorted_arrays=sorted_parts)
    bounds = [widths(array) for array in filled]
    shortest, longest = min(low for low, _ in bounds), max(high for _, high in bounds)
    if shortest == longest >= WORD:
        # Start after the common prefix, but not so late that fewer than eight bytes are left.
        skip = min(common, longest - WORD)
        return [load_even(array, longest, skip) for array in arrays], skip == longest - WORD
    exact = longest - common < WORD
    return [load_words(array, common, exact=exact) for array in arrays], exact
