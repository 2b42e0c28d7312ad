"""Ranks of the values of sequence columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidelake.lsm.engine import Ints
from tidelake.lsm.words import is_word, sortable_words


def sequence_ranks(column: pa.ChunkedArray, *, descending: bool) -> Ints:
    """Return ranks that order versions as a sequence column does; null is the oldest, descending too."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    ranks = np.zeros(len(array), np.int64)
    given = array.drop_null()
    if len(given):
        codes = np.unique(sortable_words(given), return_inverse=True)[1] if is_word(given.type) else _ranks(given)
        ranks[valid] = (codes.max() - codes if descending else codes) + 1
    return ranks


def _ranks(array: pa.Array) -> Ints:
    import polars as pl

    found: Ints = pl.Series(array).rank("dense").to_numpy().astype(np.int64)
    return found
