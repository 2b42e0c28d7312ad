"""`merge_map` and `merge_map_with_keytime`: maps whose entries are merged by key."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.lsm.aggregate.arrays import Index, choose, join_keys, valid
from tidelake.lsm.aggregate.base import Function
from tidelake.lsm.aggregate.lists import Items, explode, explode_pair, implode, slots, winners
from tidelake.lsm.aggregate.structure import dense_codes, value_codes

__all__ = ["MergeMap", "MergeMapWithKeyTime"]


@dataclass(frozen=True, slots=True)
class MergeMap(Function):
    """The union of entries, the newer one of each key; a retract row removes its keys."""

    @property
    def associative(self) -> bool:
        """Always."""
        return True

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        joined = _union_entries(explode_pair(older, newer), older.type)
        # If one side is null, the other is returned unchanged, in its own order.
        return choose(valid(older) & valid(newer), joined, choose(valid(older), older, newer))

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array:
        """See `Aggregate.reduce`."""
        return _union_entries(explode(values, starts), values.type)

    def retract(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """See `Aggregate.retract`."""
        items = explode_pair(state, value)
        keys = dense_codes(join_keys(items.group, value_codes(items.values.field(0))))
        left = items.keep(~items.newer & ~np.isin(keys, keys[items.newer]))
        return implode(left.values, left.group, valid(state), state.type)


def _union_entries(items: Items, kind: pa.DataType) -> pa.Array:
    keyed = slots(items.group, value_codes(items.values.field(0)))
    return implode(items.values.take(pa.array(winners(keyed))), keyed.group, items.known, kind)


@dataclass(frozen=True, slots=True)
class MergeMapWithKeyTime(Function):
    """The union of entries whose values have a time as text: a later one replaces, a null value removes its key."""

    time: int
    """The index of the time among the members of the rows."""

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        both = valid(older) & valid(newer)
        joined = self._merge_by_time(older, newer)
        return choose(both, joined, choose(valid(older), older, newer))

    def _merge_by_time(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        items = explode_pair(older, newer)
        keyed = slots(items.group, value_codes(items.values.field(0)))
        rows = items.values.field(1)
        times = pc.if_else(rows.is_valid(), rows.field(self.time), pa.scalar(None, rows.field(self.time).type))
        timed, gone = valid(times), ~valid(rows)
        # A map has each key at most once, so a slot has an older item, a newer item, or both.
        size = len(keyed.group)
        old, new = (np.full(size, -1) for _ in range(2))
        positions = np.arange(len(items.group))
        old[keyed.slot[~items.newer]] = positions[~items.newer]
        new[keyed.slot[items.newer]] = positions[items.newer]
        compared = pc.greater(*(times.take(pa.array(each, mask=each < 0)) for each in (new, old)))
        later = compared.fill_null(False).to_numpy(zero_copy_only=False)
        has_old, has_new = old >= 0, new >= 0
        put = has_new & timed[new] & (~has_old | ~timed[old] | later)
        removed = has_new & gone[new]
        chosen = np.where(put, new, old)
        kept = ~removed & (chosen >= 0)
        return implode(items.values.take(pa.array(chosen[kept])), keyed.group[kept], items.known, older.type)
