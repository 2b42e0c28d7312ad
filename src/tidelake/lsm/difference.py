"""The changelog rows between two states of some keys, computed for all keys at once.

A new key gives +I, a removed key -D with its old row, and a changed key -U with the old and +U with the new row. A
state that ends in a retract row counts as absent. Rows keep their sequence numbers; only the row kind is set.

Invariant: applying the changes to the state before gives the state after, and a key has at most two changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.lsm.engine import DELETE, INSERT, KIND, UPDATE_AFTER, UPDATE_BEFORE, Ints
from tidelake.spec.rows.binary_row import encode_rows
from tidelake.spec.types.data_types import Field

__all__ = ["KeyRows", "changed_keys", "difference", "equal_values"]


@dataclass(frozen=True, slots=True)
class KeyRows:
    """Rows with distinct keys, and the number of each row's key."""

    rows: pa.Table
    keys: Ints

    def only(self, wanted: Ints) -> KeyRows:
        """Return the rows for which a mask is true."""
        return self if wanted.all() else KeyRows(self.rows.filter(pa.array(wanted)), self.keys[wanted])

    def adds(self) -> KeyRows:
        """Return the rows that are not retract rows."""
        return self.only((self.rows.column(KIND).to_numpy() & 1) == 0)


def difference(before: KeyRows, after: KeyRows, *, compared: Sequence[Field] | None = None) -> pa.Table:
    """Return the changes from one state of keys to another, ordered by key number, with the old row of a key first.

    Args:
        before: The old rows; a key without one is missing.
        after: The new rows; a key without one is missing.
        compared: Report an update only if one of these columns differs; None reports every update.
    """
    before, after = before.adds(), after.adds()
    old, new = np.isin(before.keys, after.keys), np.isin(after.keys, before.keys)
    if compared is not None and old.any():
        same = _same_keys(before.only(old), after.only(new), compared)
        before, after = before.only(~np.isin(before.keys, same)), after.only(~np.isin(after.keys, same))
        old, new = np.isin(before.keys, after.keys), np.isin(after.keys, before.keys)
    gone = _with_kinds(before.rows, np.where(old, UPDATE_BEFORE, DELETE))
    come = _with_kinds(after.rows, np.where(new, UPDATE_AFTER, INSERT))
    order = np.argsort(np.concatenate([before.keys * 2, after.keys * 2 + 1]), kind="stable")
    return pa.concat_tables([gone, come]).combine_chunks().take(pa.array(order))


def changed_keys(before: KeyRows, after: KeyRows, compared: Sequence[Field]) -> Ints:
    """Return the keys that were added or removed, or whose rows differ in one of these columns."""
    before, after = before.adds(), after.adds()
    old, new = np.isin(before.keys, after.keys), np.isin(after.keys, before.keys)
    found: Ints = np.union1d(before.keys, after.keys)
    return np.setdiff1d(found, _same_keys(before.only(old), after.only(new), compared)) if old.any() else found


def _same_keys(before: KeyRows, after: KeyRows, compared: Sequence[Field]) -> Ints:
    """Return the keys whose rows are equal; both sides must have the same keys."""
    left, right = np.argsort(before.keys, kind="stable"), np.argsort(after.keys, kind="stable")
    one, other = before.rows.take(pa.array(left)), after.rows.take(pa.array(right))
    same = np.ones(len(left), dtype=bool)
    for field in compared:
        same &= equal_values(one.column(field.name).combine_chunks(), other.column(field.name).combine_chunks(), field)
    found: Ints = before.keys[left][same]
    return found


def equal_values(left: pa.Array, right: pa.Array, field: Field) -> Ints:
    """Return a mask of the positions at which two arrays of equal length have equal values; null equals null."""
    if pa.types.is_nested(left.type):  # Arrow cannot compare nested values, so compare their binary rows
        left, right = (encode_rows([array], [field.type], length=len(array)) for array in (left, right))
    same = pc.fill_null(pc.equal(left, right), False)
    found: Ints = pc.or_(same, pc.and_(left.is_null(), right.is_null())).to_numpy(zero_copy_only=False)
    return found


def _with_kinds(rows: pa.Table, kinds: Ints) -> pa.Table:
    place = rows.column_names.index(KIND)
    return rows.set_column(place, rows.schema.field(place), pa.array(kinds.astype(np.int8)))
