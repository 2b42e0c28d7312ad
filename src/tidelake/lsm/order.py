"""The order of machine words: a stable sort that moves whole words, not places.

Sorting values is several times faster than sorting places by their values, so the place is put into the low bits of the
word itself, where the distance between the smallest and the largest word leaves room for it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

Ints = np.ndarray[Any, Any]
_FEW: Final = 64
_RUNS: Final = 64
"""Sorted runs one after the other, if they are few, are merged by the library's own sort."""


def stable_order(words: np.ndarray[Any, np.dtype[np.uint64]]) -> Ints:
    """The places of words from small to large; equal words stay as they are."""
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
        # The lowest bits were cut off: where they matter, places are sorted after all.
        found = words[order]
        if not bool((found[1:] >= found[:-1]).all()):
            return np.argsort(words, kind="stable")
    return order
