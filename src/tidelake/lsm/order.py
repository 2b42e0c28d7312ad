"""A stable argsort of machine words that sorts values instead of indices.

Sorting values is several times faster than sorting indices by their values, so each word's index is packed into its low
bits, which are free if the range of the words is small enough.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

Ints = np.ndarray[Any, Any]
_FEW: Final = 64
_RUNS: Final = 64
"""Up to so many ascending runs one after the other, NumPy's stable sort, which merges runs, is faster."""


def stable_order(words: np.ndarray[Any, np.dtype[np.uint64]]) -> Ints:
    """Return the indices that sort the words; equal words keep their order."""
    count = len(words)
    if count < _FEW:
        return np.argsort(words, kind="stable")
    steps_back = int((words[1:] < words[:-1]).sum())
    if steps_back == 0:
        return np.arange(count)
    if steps_back < _RUNS:
        return np.argsort(words, kind="stable")
    low = words.min()
    place_bits = int(count - 1).bit_length()
    spare = place_bits + int(words.max() - low).bit_length() - 64
    packed = words - low
    if spare > 0:
        packed >>= np.uint64(spare)
    packed <<= np.uint64(place_bits)
    packed |= np.arange(count, dtype=np.uint64)
    packed.sort()
    packed &= np.uint64((1 << place_bits) - 1)
    order: Ints = packed.view(np.int64)
    if spare > 0:
        # The lowest bits of the words were dropped to make room. If they decide, fall back to sorting indices.
        found = words[order]
        if not bool((found[1:] >= found[:-1]).all()):
            return np.argsort(words, kind="stable")
    return order
