"""`collect`: the items of all versions in one array, with `distinct` each value once.

Of equal items the first is kept, so items are in the order of their first appearance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelake.lsm.aggregate.arrays import Index, choose, join_keys, valid
from tidelake.lsm.aggregate.base import Function
from tidelake.lsm.aggregate.lists import Items, explode, explode_pair, first_of_each, implode, occurrences
from tidelake.lsm.aggregate.structure import dense_codes, list_lengths, value_codes

__all__ = ["Collect"]


@dataclass(frozen=True, slots=True)
class Collect(Function):
    """Appends arrays; a retract row removes one occurrence of each of its items."""

    distinct: bool

    @property
    def associative(self) -> bool:
        """Always."""
        return True

    def start(self, value: pa.Array) -> pa.Array:
        """See `Function.start`."""
        return self.reduce(value, np.arange(len(value) + 1)) if self.distinct else value

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        return self._implode_items(explode_pair(older, newer), older.type)

    def merge_reversed(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """Append the row: `collect` does not care about the order of versions."""
        return self.merge(state, value)

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array:
        """See `Aggregate.reduce`."""
        return self._implode_items(explode(values, starts), values.type)

    def _implode_items(self, items: Items, kind: pa.DataType) -> pa.Array:
        if self.distinct:
            items = items.keep(first_of_each(items.group, value_codes(items.values)))
        return implode(items.values, items.group, items.known, kind)

    def retract(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """See `Aggregate.retract`."""
        items = explode_pair(state, value)
        keys = dense_codes(join_keys(items.group, value_codes(items.values)))
        taken = np.bincount(keys[items.newer], minlength=len(keys))
        kept = np.zeros(len(keys), bool)
        kept[~items.newer] = occurrences(keys[~items.newer]) >= taken[keys[~items.newer]]
        left = items.keep(kept)
        rest = implode(left.values, left.group, valid(state), state.type)
        # Retracting an empty array must return the state unchanged, byte for byte.
        return choose(list_lengths(value) > 0, rest, state)
