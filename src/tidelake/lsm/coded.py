"""A text column as codes into a sorted dictionary, which is how Parquet stores texts that repeat.

Comparing codes is cheaper than comparing texts: a row is found by the code of its value, and a merge window ranks only
the distinct values. `docs/adr/0005-merge-kernel.md` has the measurement: about half the time of a read with a merge.

Invariant: the dictionary values ascend strictly, so codes compare as the texts they stand for.
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
    """Texts without nulls: the code of each row, and the dictionary values that the codes stand for."""

    codes: Ints
    values: pa.LargeBinaryArray

    @classmethod
    def of(cls, array: pa.DictionaryArray) -> Coded:
        """Convert an Arrow dictionary array, whose values may be unsorted and repeated.

        Raises:
            InvalidInputError: the type cannot be part of a key.
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
        """Return the texts at these positions."""
        return Coded(self.codes[indices.to_numpy()], self.values)

    def at(self, place: int) -> bytes:
        """Return the text at one position."""
        found: bytes = self.values[int(self.codes[place])].as_py()
        return found

    def span(self, *, ascending: bool) -> tuple[int, int]:
        """Return the smallest and the largest code; without rows an empty range, `(0, -1)`."""
        codes = self.codes
        if not len(codes):
            return 0, -1
        return (int(codes[0]), int(codes[-1])) if ascending else (int(codes.min()), int(codes.max()))

    def equal_range(self, low: int, high: int, value: bytes) -> tuple[int, int]:
        """Return where a text begins and ends among the sorted rows from `low` to `high`."""
        code = bisect_left(range(len(self.values)), value, key=lambda place: self.values[place].as_py())
        there = code < len(self.values) and self.values[code].as_py() == value
        codes = self.codes[low:high]
        first = int(np.searchsorted(codes, codes.dtype.type(code), side="left"))
        last = int(np.searchsorted(codes, codes.dtype.type(code), side="right")) if there else first
        return low + first, low + last

    def plain(self) -> pa.LargeBinaryArray:
        """Return the texts as an array without a dictionary."""
        return self.values.take(pa.array(self.codes))
