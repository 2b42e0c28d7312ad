"""Explodes versions of lists into items with the number of their group, and implodes them into lists again.

Invariant: items are ordered by group, and within a group by version, oldest first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelake.lsm.aggregate.arrays import Bools, Index, bitmap, filled_groups, join_keys, valid
from tidelake.lsm.aggregate.structure import as_entries, dense_codes, list_lengths

__all__ = ["Items", "Slots", "explode", "explode_pair", "first_of_each", "implode", "occurrences", "slots", "winners"]


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """The items of all lists of all groups.

    Attributes:
        values: The items; entries of a map are structs of key and value.
        group: The group of each item, ascending.
        newer: Whether the item comes from a later version than the first of its group.
        known: Which groups have a version that is not null.
    """

    values: pa.Array
    group: Index
    newer: Bools
    known: Bools

    def keep(self, mask: Bools) -> Items:
        """Return the items for which the mask is true."""
        if mask.all():
            return self
        return Items(self.values.filter(pa.array(mask)), self.group[mask], self.newer[mask], self.known)


def _as_lists(array: pa.Array) -> pa.Array:
    return as_entries(array) if pa.types.is_map(array.type) else array


def explode(values: pa.Array, starts: Index) -> Items:
    """Return the items of groups of versions; group g is `values[starts[g]:starts[g + 1]]`."""
    lists = _as_lists(values).slice(int(starts[0]), int(starts[-1] - starts[0]))
    lengths, mask = list_lengths(lists), valid(lists)
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    begin, filled = filled_groups(starts - starts[0])
    known = np.zeros(len(filled), bool)
    oldest = np.zeros(len(lists), bool)
    if len(begin):
        known[filled] = np.logical_or.reduceat(mask, begin)
        oldest[begin] = True
    return Items(lists.flatten(), np.repeat(rows, lengths), ~np.repeat(oldest, lengths), known)


def explode_pair(older: pa.Array, newer: pa.Array) -> Items:
    """Return the items of groups of two versions, given as two arrays."""
    count = len(older)
    one, two = _as_lists(older), _as_lists(newer)
    before, after = list_lengths(one), list_lengths(two)
    rows = np.arange(count)
    group = np.concatenate([np.repeat(rows, before), np.repeat(rows, after)])
    order = np.argsort(group, kind="stable")
    values = pa.concat_arrays([one.flatten(), two.flatten()]).take(pa.array(order))
    late = np.repeat([False, True], [int(before.sum()), int(after.sum())])
    return Items(values, group[order], late[order], valid(older) | valid(newer))


def implode(values: pa.Array, group: Index, known: Bools, kind: pa.DataType) -> pa.Array:
    """Return lists (or maps) of a type from items ordered by group; null for groups that are not known."""
    offsets = np.zeros(len(known) + 1, np.int32)
    np.cumsum(np.bincount(group, minlength=len(known)), out=offsets[1:])
    buffers = [bitmap(known), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(known), buffers, -1, children=[values])


def first_of_each(group: Index, codes: Index) -> Bools:
    """Return a mask of the items that are the first with their code in their group."""
    import polars as pl

    found: Bools = pl.Series(join_keys(group, codes)).is_first_distinct().to_numpy()
    return found


def occurrences(keys: Index) -> Index:
    """Return how many equal keys come before each key."""
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    fresh = np.ones(len(keys), bool)
    fresh[1:] = sorted_keys[1:] != sorted_keys[:-1]
    positions = np.arange(len(keys))
    found = np.empty(len(keys), np.int64)
    found[order] = positions - np.maximum.accumulate(np.where(fresh, positions, 0))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Items with a key: one slot per key and group, in the order in which keys first appear.

    Attributes:
        slot: The slot of each item.
        group: The group of each slot.
        first: The first item of each slot.
    """

    slot: Index
    group: Index
    first: Index

    def rank(self) -> Index:
        """Return how many slots of the same group come before each slot."""
        if not len(self.group):
            return self.group
        fresh = np.ones(len(self.group), bool)
        fresh[1:] = self.group[1:] != self.group[:-1]
        positions = np.arange(len(self.group))
        rank: Index = positions - np.maximum.accumulate(np.where(fresh, positions, 0))
        return rank


def slots(group: Index, codes: Index) -> Slots:
    """Assign a slot to each key of each group."""
    slot = dense_codes(join_keys(group, codes))
    first = np.flatnonzero(first_of_each(group, codes))
    return Slots(slot, group[first], first)


def winners(keyed: Slots, ranks: tuple[Index, ...] = ()) -> Index:
    """Return the item that wins each slot: the last one, or the last of those with the highest ranks."""
    positions = np.arange(len(keyed.slot))
    winner = np.empty(len(keyed.group), np.int64)
    if ranks:
        order = np.lexsort((positions, *reversed(ranks), keyed.slot))
        winner[keyed.slot[order]] = order  # NumPy assigns in order, so the last item of a slot wins
    else:
        winner[keyed.slot] = positions
    return winner
