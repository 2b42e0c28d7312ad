"""`listagg`: joins texts with a delimiter and leaves out blank ones.

Blank means Java's `Character.isWhitespace`, which no-break spaces are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.lsm.aggregate.arrays import Bools, Index, choose, nulls_like, valid
from tidelake.lsm.aggregate.base import Function
from tidelake.lsm.aggregate.lists import explode, explode_pair, first_of_each, implode
from tidelake.lsm.aggregate.structure import value_codes

__all__ = ["BLANKS", "ListAgg"]

BLANKS: Final = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a"
    "\u2028\u2029\u205f\u3000"
)
_BLANK_STARTS: Final = np.array([*range(0x09, 0x0E), *range(0x1C, 0x21), 0xE1, 0xE2, 0xE3], np.uint8)
"""The first bytes that a blank text can have."""


@dataclass(frozen=True, slots=True)
class ListAgg(Function):
    """Joins texts; with `distinct`, appends only the parts of a newer text that are new."""

    delimiter: str
    distinct: bool

    @property
    def associative(self) -> bool:
        """Unless `distinct`: the oldest text is kept whole, with its repeated parts."""
        return not self.distinct

    def start(self, value: pa.Array) -> pa.Array:
        """See `Function.start`."""
        blank = _blank(value)
        return choose(blank, nulls_like(value), value) if blank.any() else value

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        empty_older, empty_newer = _blank(older), _blank(newer)
        both = ~(empty_older | empty_newer)
        if self.distinct:
            rows = pa.array(np.flatnonzero(both))
            joined = self._append_new_parts(older.take(rows), newer.take(rows))
            place = np.zeros(len(older), np.int64)
            place[both] = np.arange(len(rows))
            joined = joined.take(pa.array(place, mask=~both))
        else:
            joined = pc.binary_join_element_wise(older, newer, pa.scalar(self.delimiter, older.type))
        if both.all():
            return joined
        return choose(both, joined, choose(empty_newer, older, newer))

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array | None:
        """See `Aggregate.reduce`."""
        kept = ~_blank(values)
        bounds = np.concatenate([[0], np.cumsum(kept)])[starts]
        texts = values.filter(pa.array(kept))
        if self.distinct:
            # Joining two texts can form a longer delimiter across them, and the fold would then see other parts.
            return self._join_distinct(texts, bounds) if len(self.delimiter) == 1 else None
        begin, end = int(bounds[0]), int(bounds[-1])
        groups = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        known = bounds[1:] > bounds[:-1]
        return self._join_groups(texts.slice(begin, end - begin), groups, known)

    def _append_new_parts(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        items = explode_pair(self._split_parts(older), self._split_parts(newer))
        fresh = items.newer & ~_blank(items.values) & first_of_each(items.group, value_codes(items.values))
        added = items.keep(fresh)
        known = np.bincount(added.group, minlength=len(older)) > 0
        tail = self._join_groups(added.values, added.group, known)
        return pc.coalesce(pc.binary_join_element_wise(older, tail, pa.scalar(self.delimiter, older.type)), older)

    def _join_distinct(self, texts: pa.Array, bounds: Index) -> pa.Array:
        items = explode(self._split_parts(texts), bounds)
        fresh = ~_blank(items.values) & first_of_each(items.group, value_codes(items.values))
        kept = items.keep(fresh | ~items.newer)
        return self._join_groups(kept.values, kept.group, items.known)

    def _split_parts(self, texts: pa.Array) -> pa.Array:
        return pc.split_pattern(texts, pattern=self.delimiter or " ")

    def _join_groups(self, texts: pa.Array, group: Index, known: Bools) -> pa.Array:
        lists = implode(texts, group, known, pa.list_(texts.type))
        return pc.binary_join(lists, pa.scalar(self.delimiter, texts.type))


def _blank(array: pa.Array) -> Bools:
    """Return a mask of the texts that are null or consist of blanks only."""
    mask = ~valid(array)
    large = pa.types.is_large_string(array.type)
    offsets = np.frombuffer(array.buffers()[1] or bytes(8), np.int64 if large else np.int32)
    offsets = offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    octets = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    candidates = ~mask & (lengths == 0)
    filled = np.flatnonzero(~mask & (lengths > 0))
    candidates[filled] = np.isin(octets[starts[filled]], _BLANK_STARTS)
    rows = np.flatnonzero(candidates)
    if len(rows):
        trimmed = pc.utf8_trim(array.take(pa.array(rows)), characters=BLANKS)
        mask[rows] = pc.equal(pc.binary_length(trimmed), 0).to_numpy(zero_copy_only=False)
    return mask
