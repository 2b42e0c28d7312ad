"""A column of texts as numbers of a dictionary whose values ascend: what a file stores of texts that repeat.

Few values are compared instead of many rows: a row is found by the number of its value, and a window of a merge ranks
the values it has.

Invariant: the values ascend strictly, so numbers compare as the texts they stand for.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.lsm.words import key_bytes

__all__ = ["Coded"]

Ints = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Coded:
    """Texts without nulls: the number of each, and the values that the numbers stand for."""

    codes: Ints
    values: pa.LargeBinaryArray

    @classmethod
    def of(cls, array: pa.DictionaryArray) -> Coded:
        """The texts of an Arrow dictionary, whose values may come in any order and more than once.

        Raises:
            InvalidInputError: the type is none that keys have.
        """
        codes, values = array.indices.to_numpy(), key_bytes(array.dictionary)
        if pc.all(pc.less(values[:-1], values[1:])).as_py() is not False:
            return cls(codes, values)
        ranks = pc.rank(values, tiebreaker="dense").to_numpy() - 1
        firsts = np.empty(int(ranks.max()) + 1, np.int64)
        firsts[ranks] = np.arange(len(ranks))
        return cls(ranks.astype(np.int32)[codes], values.take(pa.array(firsts)))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, part: slice) -> Coded:
        return Coded(self.codes[part], self.values)

    def take(self, indices: pa.Array) -> Coded:
        """The texts at these places."""
        return Coded(self.codes[indices.to_numpy()], self.values)

    def at(self, place: int) -> bytes:
        """One text."""
        found: bytes = self.values[int(self.codes[place])].as_py()
        return found

    def span(self, *, ascending: bool) -> tuple[int, int]:
        """The smallest and the largest number; of no rows, nothing that any number is in."""
        codes = self.codes
        if not len(codes):
            return 0, -1
        return (int(codes[0]), int(codes[-1])) if ascending else (int(codes.min()), int(codes.max()))

    def equal_range(self, low: int, high: int, value: bytes) -> tuple[int, int]:
        """Where a text begins and ends among sorted rows, of which those from `low` to `high` are looked at."""
        code = bisect_left(range(len(self.values)), value, key=lambda place: self.values[place].as_py())
        there = code < len(self.values) and self.values[code].as_py() == value
        codes = self.codes[low:high]
        first = int(np.searchsorted(codes, codes.dtype.type(code), side="left"))
        last = int(np.searchsorted(codes, codes.dtype.type(code), side="right")) if there else first
        return low + first, low + last

    def plain(self) -> pa.LargeBinaryArray:
        """The texts themselves."""
        return self.values.take(pa.array(self.codes))
