"""`max`, `min`, `bool_and` and `bool_or`.

Texts and binaries compare by unsigned bytes, false is before true, and floats have a total order: -0.0 is before 0.0,
and NaN is the largest. If one side is null, the result is the other side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.lsm.aggregate.arrays import (
    Index,
    Numbers,
    filled_groups,
    floats_to_integers,
    from_numbers,
    integers,
    integers_to_floats,
    valid,
)
from tidelake.lsm.aggregate.base import Function

__all__ = ["Extreme", "Logic"]

_DIGITS_INT64 = 18


@dataclass(frozen=True, slots=True)
class Logic(Function):
    """The conjunction (`every`) or disjunction of booleans, which are also their minimum and maximum."""

    every: bool

    @property
    def associative(self) -> bool:
        """Always."""
        return True

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        return pc.coalesce((pc.and_ if self.every else pc.or_)(older, newer), older, newer)

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array | None:
        """See `Aggregate.reduce`."""
        begin, filled = filled_groups(starts)
        mask = valid(values)
        numbers = values.fill_null(self.every).to_numpy(zero_copy_only=False)
        result, known = (np.zeros(len(filled), bool) for _ in range(2))
        if len(begin):
            result[filled] = (np.logical_and if self.every else np.logical_or).reduceat(numbers, begin)
            known[filled] = np.logical_or.reduceat(mask, begin)
        return pa.array(result, mask=~known)


@dataclass(frozen=True, slots=True)
class Extreme(Function):
    """The largest or the smallest value."""

    largest: bool

    @property
    def associative(self) -> bool:
        """Always."""
        return True

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        kind = older.type
        if pa.types.is_timestamp(kind) and kind.tz is not None:  # Arrow's kernels accept timestamps without a zone only
            plain = pa.timestamp(kind.unit)
            return self.merge(older.view(plain), newer.view(plain)).view(kind)
        if not pa.types.is_floating(kind):
            return (pc.max_element_wise if self.largest else pc.min_element_wise)(older, newer, skip_nulls=True)
        best = (np.maximum if self.largest else np.minimum)(floats_to_integers(older), floats_to_integers(newer))
        both = from_numbers(integers_to_floats(best), valid(older) & valid(newer), kind)
        return pc.coalesce(both, older, newer)

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array | None:
        """See `Aggregate.reduce`."""
        kind = values.type
        floating = pa.types.is_floating(kind)
        if not pa.types.is_primitive(kind) and not (pa.types.is_decimal(kind) and kind.precision <= _DIGITS_INT64):
            return None
        begin, filled = filled_groups(starts)
        mask = valid(values)
        numbers: Numbers = floats_to_integers(values) if floating else integers(values)
        limits = np.iinfo(numbers.dtype)
        numbers = np.where(mask, numbers, limits.min if self.largest else limits.max)
        result, known = np.zeros(len(filled), numbers.dtype), np.zeros(len(filled), bool)
        if len(begin):
            result[filled] = (np.maximum if self.largest else np.minimum).reduceat(numbers, begin)
            known[filled] = np.logical_or.reduceat(mask, begin)
        return from_numbers(integers_to_floats(result) if floating else result, known, kind)
