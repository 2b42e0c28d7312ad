"""Compare keys that are stored as BinaryRows, vectorised.

Integers, dates and decimals compare by value, texts and binaries by unsigned bytes, false before true. Floating point
numbers are in the order of Java: -infinity … -0.0 < 0.0 … infinity < NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.spec.rows.binary_row import decode_rows
from tidelake.spec.types.data_types import DataType


@dataclass(frozen=True, slots=True)
class Keys:
    """Decoded keys, with one comparable column for each part of the key."""

    columns: tuple[pa.Array, ...]

    def take(self, indices: pa.Array) -> Keys:
        """The keys at these indices."""
        return Keys(tuple(column.take(indices) for column in self.columns))

    def less(self, other: Keys) -> pa.BooleanArray:
        """For each row, whether its key is smaller than the other key."""
        assert self.columns
        result = pa.repeat(pa.scalar(False), len(self.columns[0]))
        for mine, theirs in zip(reversed(self.columns), reversed(other.columns), strict=True):
            result = pc.or_(pc.less(mine, theirs), pc.and_(pc.equal(mine, theirs), result))
        return result


def decode_keys(rows: pa.Array | pa.ChunkedArray, types: Sequence[DataType]) -> Keys:
    """Decode serialized key rows.

    Raises:
        FormatError: the bytes are not keys of these types.
    """
    flat = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    return Keys(tuple(_comparable(column) for column in decode_rows(flat, types)))


def overlapping_neighbours(
    min_keys: pa.Array | pa.ChunkedArray,
    max_keys: pa.Array | pa.ChunkedArray,
    types: Sequence[DataType],
    *,
    groups: Sequence[pa.Array | pa.ChunkedArray] = (),
) -> list[tuple[int, int]]:
    """Pairs of rows of one group with overlapping key ranges, among neighbours in the order of the smallest key.

    Each pair (a, b) has max(a) >= min(b). An empty result means that every group is one sorted run.
    """
    count = len(min_keys)
    if count < 2:
        return []
    low, high = decode_keys(min_keys, types), decode_keys(max_keys, types)
    numbers = [pc.rank(_flat(group), tiebreaker="dense") for group in groups]
    parts = {f"c{i}": column for i, column in enumerate((*numbers, *low.columns))}
    order = pc.sort_indices(pa.table(parts), sort_keys=[(name, "ascending") for name in parts])
    first, second = order.slice(0, count - 1), order.slice(1)
    apart = high.take(first).less(low.take(second)) if types else pa.repeat(pa.scalar(False), count - 1)
    clash = pc.invert(apart)
    for number in numbers:
        clash = pc.and_(clash, pc.equal(number.take(first), number.take(second)))
    return list(zip(first.filter(clash).to_pylist(), second.filter(clash).to_pylist(), strict=True))


def _comparable(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    wide: np.ndarray[Any, Any] = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(wide), np.nan, wide).view(np.int64)  # one NaN, above infinity
    ordered = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    return pa.array(ordered, mask=column.is_null().to_numpy(zero_copy_only=False))


def _flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
