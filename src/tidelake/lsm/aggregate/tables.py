"""`nested_update` and `nested_partial_update`: arrays of rows that are merged as nested tables.

Null rows are dropped. A table with a key has each key once, in the order of first appearance; the row limit refuses new
keys, never updates of existing ones.
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
    """Appends rows, or replaces them by key; a retract row removes equal rows, or keys.

    Attributes:
        keys: Indices of the key members of a row; empty for a table without a key.
        sequence: Indices of the members that order the rows of a key.
        null_keys: What to do with a row whose key has a null: `merge` (null is a value), `ignore` or `error`.
        limit: The number of rows from which on new ones are refused.
    """

    keys: tuple[int, ...]
    sequence: tuple[int, ...]
    null_keys: str
    limit: int

    @property
    def associative(self) -> bool:
        """Unless there is a limit: then it matters which rows came first."""
        return self.limit == INT32_MAX

    def start(self, value: pa.Array) -> pa.Array:
        """See `Function.start`."""
        return self.reduce(value, np.arange(len(value) + 1))

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        items = explode_pair(older, newer)
        if not self.keys and self.limit < INT32_MAX:
            return self._append_until_limit(items, older, newer)
        # As in Paimon, adding a null does not look at the state, so it must not raise for null keys in it either.
        merged = self._merge_items(items.keep(valid(newer)[items.group]), older.type, state=True)
        return choose(valid(newer), merged, older)

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array:
        """See `Aggregate.reduce`."""
        return self._merge_items(explode(values, starts), values.type, state=False)

    def _merge_items(self, items: Items, kind: pa.DataType, *, state: bool) -> pa.Array:
        """Merge the items of each group; with `state` the first version is a state, which the limit does not cut."""
        items = self._drop_unusable_rows(items)
        held = ~items.newer if state else np.zeros(len(items.group), bool)
        if not self.keys:
            items = items.keep(_rank(items.group) < self.limit)
            return implode(items.values, items.group, items.known, kind)
        keyed = slots(items.group, _key_codes(items.values, self.keys))
        ranks = tuple(total_ranks(items.values.field(place)) for place in self.sequence)
        kept = (keyed.rank() < self.limit) | held[keyed.first]
        winner = winners(keyed, ranks)[kept]
        return implode(items.values.take(pa.array(winner)), keyed.group[kept], items.known, kind)

    def _append_until_limit(self, items: Items, older: pa.Array, newer: pa.Array) -> pa.Array:
        """Append rows up to the limit. Null rows of the older side count too; a full state stays unchanged."""
        items = items.keep(valid(items.values) | ~items.newer)
        items = items.keep(~items.newer | (_rank(items.group) < self.limit))
        items = items.keep(valid(items.values))
        appended = implode(items.values, items.group, items.known, older.type)
        full = valid(older) & (list_lengths(older) >= self.limit)
        return choose(valid(newer) & ~full, appended, choose(full | valid(older), older, appended))

    def _drop_unusable_rows(self, items: Items) -> Items:
        items = items.keep(valid(items.values))
        if not self.keys or self.null_keys == "merge":
            return items
        whole = np.logical_and.reduce([valid(items.values.field(place)) for place in self.keys])
        if self.null_keys == "error" and not whole.all():
            raise self.value_error(
                "nested key has a null",
                hint=f"set fields.{self.column}.nested-key-null-strategy to ignore or merge",
                code="nested-key-null",
            )
        return items.keep(whole)

    def retract(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """See `Aggregate.retract`."""
        both = valid(state) & valid(value)
        items = explode_pair(state, value)
        items = self._drop_unusable_rows(items.keep(both[items.group]))
        codes = _key_codes(items.values, self.keys) if self.keys else value_codes(items.values)
        keys = dense_codes(join_keys(items.group, codes))
        left = items.keep(~items.newer & ~np.isin(keys, keys[items.newer]))
        rows, group = left.values, left.group
        if self.keys:
            # A state that was set from a written row may have a key twice: the last row wins.
            keyed = slots(group, _key_codes(rows, self.keys))
            rows, group = rows.take(pa.array(winners(keyed))), keyed.group
        return choose(both, implode(rows, group, both, state.type), state)


@dataclass(frozen=True, slots=True)
class NestedPartialUpdate(Function):
    """Merges rows by key; each member is the newest value that is not null."""

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
        merged = self._merge_items(explode_pair(older, newer), older.type)
        return choose(valid(newer), merged, older)

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array:
        """See `Aggregate.reduce`."""
        return self._merge_items(explode(values, starts), values.type)

    def _merge_items(self, items: Items, kind: pa.DataType) -> pa.Array:
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
    """Return how many items of the same group come before each item."""
    return Slots(group, group, group).rank()


def _last_valid(keyed: Slots, mask: Bools) -> Index:
    """Return the last item of each slot that is not null; -1 if there is none."""
    found = np.full(len(keyed.group), -1)
    found[keyed.slot[mask]] = np.flatnonzero(mask)
    return found
