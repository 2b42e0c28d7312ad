"""What changed between two states of some keys: rows of a changelog, for all keys at once.

A key that appears gives +I, one that disappears -D with its old row, one whose row changes -U with the old and +U with
the new row. A state that ends in a deletion counts as none. Rows keep their sequence numbers; only kinds are set.

Invariant: feeding the changes to the state before gives the state after, and a key has at most two changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.lsm.engine import DELETE, INSERT, KIND, UPDATE_AFTER, UPDATE_BEFORE, Ints
from tidelake.spec.binary_row import encode_rows
from tidelake.spec.types import Field

__all__ = ["KeyRows", "changed_keys", "difference", "equal_values"]


@dataclass(frozen=True, slots=True)
class KeyRows:
    """Rows, each of another key, and the numbers of their keys."""

    rows: pa.Table
    keys: Ints

    def only(self, wanted: Ints) -> KeyRows:
        """The rows for which a mask holds."""
        return self if wanted.all() else KeyRows(self.rows.filter(pa.array(wanted)), self.keys[wanted])

    def adds(self) -> KeyRows:
        """Without rows that delete or take back."""
        return self.only((self.rows.column(KIND).to_numpy() & 1) == 0)


def difference(before: KeyRows, after: KeyRows, *, compared: Sequence[Field] | None = None) -> pa.Table:
    """The changes from one state of keys to another, by the number of the key, old rows first.

    Args:
        before: The rows of the keys that had one.
        after: The rows of the keys that have one.
        compared: The columns in which an update must differ to be told; None tells every update.
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
    """The keys that appear, disappear, or whose rows differ in one of these columns."""
    before, after = before.adds(), after.adds()
    old, new = np.isin(before.keys, after.keys), np.isin(after.keys, before.keys)
    found: Ints = np.union1d(before.keys, after.keys)
    return np.setdiff1d(found, _same_keys(before.only(old), after.only(new), compared)) if old.any() else found


def _same_keys(before: KeyRows, after: KeyRows, compared: Sequence[Field]) -> Ints:
    """The keys whose rows are equal; both sides hold the same keys."""
    left, right = np.argsort(before.keys, kind="stable"), np.argsort(after.keys, kind="stable")
    one, other = before.rows.take(pa.array(left)), after.rows.take(pa.array(right))
    same = np.ones(len(left), dtype=bool)
    for field in compared:
        same &= equal_values(one.column(field.name).combine_chunks(), other.column(field.name).combine_chunks(), field)
    found: Ints = before.keys[left][same]
    return found


def equal_values(left: pa.Array, right: pa.Array, field: Field) -> Ints:
    """Which values of two arrays of one length are equal, place by place; null is equal to null."""
    if pa.types.is_nested(left.type):  # no comparison of these in Arrow; their bytes in the format tell as well
        left, right = (encode_rows([array], [field.type], length=len(array)) for array in (left, right))
    same = pc.fill_null(pc.equal(left, right), False)
    found: Ints = pc.or_(same, pc.and_(left.is_null(), right.is_null())).to_numpy(zero_copy_only=False)
    return found


def _with_kinds(rows: pa.Table, kinds: Ints) -> pa.Table:
    place = rows.column_names.index(KIND)
    return rows.set_column(place, rows.schema.field(place), pa.array(kinds.astype(np.int8)))
