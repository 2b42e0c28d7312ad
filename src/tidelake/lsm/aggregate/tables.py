"""`nested_update` and `nested_partial_update`: arrays of rows as small tables inside a column.

Null rows are dropped. With a key each key lies once, in the order in which keys first appeared; a limit of rows keeps
out new keys, never changes of keys that are there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelake.lsm.aggregate.arrays import Bools, Index, choose, join_keys, total_ranks, valid
from tidelake.lsm.aggregate.base import Function
from tidelake.lsm.aggregate.lists import Items, Slots, explode, explode_pair, implode, slots, winners
from tidelake.lsm.aggregate.structure import dense_codes, list_lengths, value_codes

__all__ = ["NestedPartialUpdate", "NestedUpdate"]

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class NestedUpdate(Function):
    """Appends rows, or replaces them by key; taking back removes equal rows, or keys.

    Attributes:
        keys: Places of the key among the members of a row; none for a table without a key.
        sequence: Places of the members that say which row of a key is newer.
        null_keys: What becomes of a row whose key has a null: `merge` (null is a value), `ignore` or `error`.
        limit: How many rows there may be before new ones are refused.
    """

    keys: tuple[int, ...]
    sequence: tuple[int, ...]
    null_keys: str
    limit: int

    @property
    def associative(self) -> bool:
        """Unless a limit makes it matter which rows came first."""
        return self.limit == INT32_MAX

    def start(self, value: pa.Array) -> pa.Array:
        """See `Function.start`."""
        return self.reduce(value, np.arange(len(value) + 1))

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        items = explode_pair(older, newer)
        if not self.keys and self.limit < INT32_MAX:
            return self._appended(items, older, newer)
        # A null version looks at nothing, so it also finds nothing wrong.
        merged = self._merged(items.keep(valid(newer)[items.group]), older.type, state=True)
        return choose(valid(newer), merged, older)

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array:
        """See `Aggregate.reduce`."""
        return self._merged(explode(values, starts), values.type, state=False)

    def _merged(self, items: Items, kind: pa.DataType, *, state: bool) -> pa.Array:
        """`state`: whether the first version of a group is a state, whose rows no limit refuses."""
        items = self._usable(items)
        held = ~items.newer if state else np.zeros(len(items.group), bool)
        if not self.keys:
            items = items.keep(_rank(items.group) < self.limit)
            return implode(items.values, items.group, items.known, kind)
        keyed = slots(items.group, _key_codes(items.values, self.keys))
        ranks = tuple(total_ranks(items.values.field(place)) for place in self.sequence)
        kept = (keyed.rank() < self.limit) | held[keyed.first]
        winner = winners(keyed, ranks)[kept]
        return implode(items.values.take(pa.array(winner)), keyed.group[kept], items.known, kind)

    def _appended(self, items: Items, older: pa.Array, newer: pa.Array) -> pa.Array:
        """Rows until the limit; null rows of the older side take up room too, and one that is full stays as it is."""
        items = items.keep(valid(items.values) | ~items.newer)
        items = items.keep(~items.newer | (_rank(items.group) < self.limit))
        items = items.keep(valid(items.values))
        appended = implode(items.values, items.group, items.known, older.type)
        full = valid(older) & (list_lengths(older) >= self.limit)
        return choose(valid(newer) & ~full, appended, choose(full | valid(older), older, appended))

    def _usable(self, items: Items) -> Items:
        items = items.keep(valid(items.values))
        if not self.keys or self.null_keys == "merge":
            return items
        whole = np.logical_and.reduce([valid(items.values.field(place)) for place in self.keys])
        if self.null_keys == "error" and not whole.all():
            raise self.refused(
                "nested key has a null",
                hint=f"set fields.{self.column}.nested-key-null-strategy to ignore or merge",
                code="nested-key-null",
            )
        return items.keep(whole)

    def retract(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """See `Aggregate.retract`."""
        both = valid(state) & valid(value)
        items = explode_pair(state, value)
        items = self._usable(items.keep(both[items.group]))
        codes = _key_codes(items.values, self.keys) if self.keys else value_codes(items.values)
        keys = dense_codes(join_keys(items.group, codes))
        left = items.keep(~items.newer & ~np.isin(keys, keys[items.newer]))
        rows, group = left.values, left.group
        if self.keys:
            # A late row that became the state as it was written may have a key twice: the last stays.
            keyed = slots(group, _key_codes(rows, self.keys))
            rows, group = rows.take(pa.array(winners(keyed))), keyed.group
        return choose(both, implode(rows, group, both, state.type), state)


@dataclass(frozen=True, slots=True)
class NestedPartialUpdate(Function):
    """Rows by key, of which each member is the newest one that is not null."""

    keys: tuple[int, ...]

    @property
    def associative(self) -> bool:
        """Always."""
        return True

    def start(self, value: pa.Array) -> pa.Array:
        """See `Function.start`."""
        return self.reduce(value, np.arange(len(value) + 1))

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        merged = self._merged(explode_pair(older, newer), older.type)
        return choose(valid(newer), merged, older)

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array:
        """See `Aggregate.reduce`."""
        return self._merged(explode(values, starts), values.type)

    def _merged(self, items: Items, kind: pa.DataType) -> pa.Array:
        items = items.keep(valid(items.values))
        keyed = slots(items.group, _key_codes(items.values, self.keys))
        row_type = items.values.type
        members = [
            member.take(pa.array(place, mask=place < 0))
            for member in (items.values.field(index) for index in range(row_type.num_fields))
            for place in (_last_valid(keyed, valid(member)),)
        ]
        rows = pa.StructArray.from_arrays(members, fields=list(row_type))
        return implode(rows, keyed.group, items.known, kind)


def _key_codes(rows: pa.Array, places: tuple[int, ...]) -> Index:
    codes = value_codes(rows.field(places[0]))
    for place in places[1:]:
        codes = dense_codes(join_keys(codes, value_codes(rows.field(place))))
    return codes


def _rank(group: Index) -> Index:
    """How many items of its group come before each item."""
    return Slots(group, group, group).rank()


def _last_valid(keyed: Slots, mask: Bools) -> Index:
    """The last item of each slot that is not null; -1 where there is none."""
    found = np.full(len(keyed.group), -1)
    found[keyed.slot[mask]] = np.flatnonzero(mask)
    return found
