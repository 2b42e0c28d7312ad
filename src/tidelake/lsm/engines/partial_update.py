"""`merge-engine = partial-update`: the newest non-null value of each column, or of each sequence group of columns.

Values are not copied while versions are folded: the state of a column is the number of the row that its value comes
from, so a step is integer arithmetic over all keys. Only columns with an aggregate function keep values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.lsm.engine import DELETE, INSERT, KIND, SEQUENCE, Ints, Versions, last_of_each, retracts
from tidelake.lsm.engines.folding import FIRST_VALUES, KEEP_A_LONE_VALUE
from tidelake.lsm.ranks import sequence_ranks

if TYPE_CHECKING:
    from tidelake.lsm.aggregate import Aggregate


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """Columns that are updated together, if the ordering columns show that a row is not older than the state."""

    ordering: tuple[str, ...]
    protected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartialUpdate:
    """Folds versions of which each sets some columns."""

    keys: tuple[str, ...]
    required: frozenset[str] = frozenset()
    """The NOT NULL columns."""
    groups: tuple[SequenceGroup, ...] = ()
    functions: Mapping[str, Aggregate] = field(default_factory=dict)
    ignore_delete: bool = False
    remove_on_delete: bool = False
    remove_on_group: frozenset[str] = frozenset()

    @property
    def takes_last(self) -> bool:
        """See `Engine.takes_last`."""
        return False

    def changes_alone(self, rows: pa.Table) -> Ints | None:
        """See `Engine.changes_alone`: retract rows, and rows without a sequence for one of the groups.

        Such a group drops its columns.
        """
        if not all(function.name in KEEP_A_LONE_VALUE for function in self.functions.values()):
            return np.ones(rows.num_rows, bool)
        changed = retracts(rows)
        for group in self.groups:
            empty = [rows.column(name).is_null().to_numpy() for name in group.ordering if name in rows.column_names]
            if len(empty) == len(group.ordering):
                changed |= np.logical_and.reduce(empty)
        return changed

    def fold(self, versions: Versions) -> tuple[pa.Table, Ints]:
        """Return one row per key.

        Raises:
            InvalidInputError: a NOT NULL column is null, or a value overflows.
            UnsupportedError: there is a retract row and no option says how to handle it.
        """
        retracts = versions.kinds is not None and bool((versions.kinds & 1).any())
        if not retracts and not self.groups:
            return self._newest_values(versions)
        if retracts and not (self.ignore_delete or self.remove_on_delete or self.groups):
            raise UnsupportedError(
                "partial-update table does not accept rows of kind -U or -D",
                option="merge-engine",
                hint="set ignore-delete=true, or partial-update.remove-record-on-delete=true, or use sequence groups"
                " (fields.<columns>.sequence-group)",
            )
        return _Fold(self, versions).run()

    def _newest_values(self, versions: Versions) -> tuple[pa.Table, Ints]:
        """Return the newest non-null value of each column, if there are no retract rows and no groups."""
        rows = versions.rows
        self.check_required(rows)
        last = versions.starts[1:] - 1
        columns = {}
        for name in rows.column_names:
            column = rows.column(name).combine_chunks()
            if name in (*self.keys, SEQUENCE):
                columns[name] = column.take(pa.array(last))
            elif name == KIND:
                columns[name] = pa.array(np.full(versions.count, INSERT, np.int8))
            else:
                columns[name] = take_rows(column, last_of_each(_valid(column), versions.starts))
        return pa.table(columns, schema=rows.schema), np.arange(versions.count)

    def check_required(self, rows: pa.Table) -> None:
        """Refuse nulls in NOT NULL columns.

        Raises:
            InvalidInputError: a NOT NULL column has a null.
        """
        for name in self.required:
            if name in rows.column_names and rows.column(name).null_count:
                raise InvalidInputError(
                    "NOT NULL column has a null", column=name, hint="set the column in every version of a key"
                )


def take_rows(column: pa.Array, places: Ints) -> pa.Array:
    """Return the values at these positions, null where a position is negative."""
    return column.take(pa.array(places, mask=places < 0))


def _valid(column: pa.Array) -> Ints:
    found: Ints = column.is_valid().to_numpy(zero_copy_only=False)
    return found


class _Fold:
    """Folds the versions of all keys, one depth at a time."""

    def __init__(self, engine: PartialUpdate, versions: Versions) -> None:
        self._engine = engine
        self._rows = versions.rows
        self._starts = versions.starts
        count = len(versions.rows)
        self._kinds = np.zeros(count, np.int8) if versions.kinds is None else versions.kinds
        names = [name for name in self._rows.column_names if name not in (*engine.keys, SEQUENCE, KIND)]
        self._columns = {name: self._rows.column(name).combine_chunks() for name in names}
        self._valid = {name: _valid(column) for name, column in self._columns.items()}
        # A group whose columns are not read cannot affect the wanted columns.
        read = [group for group in engine.groups if self._columns.keys() >= set(group.ordering)]
        self._groups = [_GroupState(group, self._columns, versions.count) for group in read]
        grouped = {name for group in engine.groups for name in (*group.ordering, *group.protected)}
        self._plain = [name for name in names if name not in grouped]
        self._folded = {
            name: function
            for name, function in engine.functions.items()
            if name in self._columns and any(name in group.protected for group in engine.groups)
        }
        none = np.full(versions.count, -1, np.int64)
        self._from = {name: none.copy() for name in names}
        self._values = {name: pa.nulls(versions.count, self._columns[name].type) for name in self._folded}
        self._has_state = {name: np.zeros(versions.count, dtype=bool) for name in self._folded}
        self._has_added = {name: np.zeros(versions.count, dtype=bool) for name in self._folded}
        self._deleted = np.zeros(versions.count, dtype=bool)
        self._inserted = np.zeros(versions.count, dtype=bool)
        self._last = none.copy()

    def run(self) -> tuple[pa.Table, Ints]:
        sizes = np.diff(self._starts)
        for depth in range(int(sizes.max())):
            keys = np.nonzero(sizes > depth)[0]
            rows = self._starts[keys] + depth
            self._deleted[keys] = False
            back = (self._kinds[rows] & 1) == 1
            if back.any():
                self._retract(keys[back], rows[back], first=depth == 0)
            if not back.all():
                self._add(keys[~back], rows[~back])
        return self._result()

    # -------------------------------------------------------------------------------------------- steps

    def _add(self, keys: Ints, rows: Ints) -> None:
        if not self._engine.groups:
            self._engine.check_required(self._rows.take(pa.array(rows)))
        for name in self._plain:
            given = self._valid[name][rows]
            self._from[name][keys[given]] = rows[given]
        for group in self._groups:
            newer = self._mask_newer(group, keys, rows)
            older = ~group.empty[rows] & ~newer
            for name in group.columns.protected:
                if name in self._folded:
                    self._fold_value(name, keys[newer], rows[newer], reverse=False)
                    self._fold_value(name, keys[older], rows[older], reverse=True)
                elif name in self._from:
                    self._from[name][keys[newer]] = rows[newer]
            self._advance_group(group, keys[newer], rows[newer])
        self._inserted[keys] = True
        self._last[keys] = rows

    def _retract(self, keys: Ints, rows: Ints, *, first: bool) -> None:
        if first:
            self._set_state(keys, rows)
        if self._engine.ignore_delete:
            return
        self._last[keys] = rows
        if self._engine.remove_on_delete:
            removed = self._kinds[rows] == DELETE
            self._set_state(keys[removed], rows[removed])
            self._deleted[keys[removed]] = True
            return
        # These groups come first, whatever their order: nothing else of a row that removes its key counts.
        for group in self._groups:
            if any(name in self._engine.remove_on_group for name in group.columns.ordering):
                gone = self._mask_newer(group, keys, rows) & (self._kinds[rows] == DELETE)
                self._set_state(keys[gone], rows[gone])
                self._deleted[keys[gone]] = True
                keys, rows = keys[~gone], rows[~gone]
        for group in self._groups:
            some, newer = ~group.empty[rows], self._mask_newer(group, keys, rows)
            for name in group.columns.protected:
                if name in self._folded:
                    self._retract_value(name, keys[some], rows[some])
                elif name in self._from:
                    self._from[name][keys[newer]] = -1
            self._advance_group(group, keys[newer], rows[newer])

    def _mask_newer(self, group: _GroupState, keys: Ints, rows: Ints) -> Ints:
        """Return a mask of the rows that are not older than their key's state in a group.

        A row without a sequence for the group does not change the group, so it is never newer.
        """
        found: Ints = ~group.empty[rows] & (group.code[rows] >= group.state[keys])
        return found

    def _set_state(self, keys: Ints, rows: Ints) -> None:
        """Set the state of keys to whole rows."""
        if not len(keys):
            return
        self._engine.check_required(self._rows.take(pa.array(rows)))
        for places in self._from.values():
            places[keys] = rows
        for name in self._folded:
            self._set_values(name, keys, self._columns[name].take(pa.array(rows)))
            self._has_state[name][keys] = True
        for group in self._groups:
            group.state[keys] = np.where(group.empty[rows], -1, group.code[rows])

    def _advance_group(self, group: _GroupState, keys: Ints, rows: Ints) -> None:
        for name in group.columns.ordering:
            if name in self._from:
                self._from[name][keys] = rows
        group.state[keys] = group.code[rows]

    # -------------------------------------------------------------------------------------------- values

    def _fold_value(self, name: str, keys: Ints, rows: Ints, *, reverse: bool) -> None:
        function, begun = self._folded[name], self._has_state[name][keys]
        if function.name in FIRST_VALUES:
            self._keep_first(name, keys, rows, reverse=reverse)
            return
        for going in (True, False):
            chosen, of_rows = keys[begun == going], rows[begun == going]
            if not len(chosen):
                continue
            fresh = self._columns[name].take(pa.array(of_rows))
            if not going:
                self._set_values(name, chosen, function.first(fresh))
            else:
                held = self._values[name].take(pa.array(chosen))
                folded = function.merge_reversed(held, fresh) if reverse else function.merge(held, fresh)
                self._set_values(name, chosen, folded)
        self._has_state[name][keys] = True

    def _keep_first(self, name: str, keys: Ints, rows: Ints, *, reverse: bool) -> None:
        """Keep the first value that was added; a value that a retract row set as the state was not added."""
        fresh, held = self._columns[name].take(pa.array(rows)), self._values[name].take(pa.array(keys))
        older, newer = (fresh, held) if reverse else (held, fresh)
        takes = ~self._has_added[name][keys]
        if self._folded[name].name != "first_value":
            takes &= _valid(newer)
        places = np.where(takes, len(keys), 0) + np.arange(len(keys))
        self._set_values(name, keys, pa.concat_arrays([older, newer]).take(pa.array(places)))
        self._has_added[name][keys[takes]] = True

    def _retract_value(self, name: str, keys: Ints, rows: Ints) -> None:
        if len(keys):
            held = self._values[name].take(pa.array(keys))
            self._set_values(name, keys, self._folded[name].retract(held, self._columns[name].take(pa.array(rows))))
            self._has_state[name][keys] = True

    def _set_values(self, name: str, keys: Ints, values: pa.Array) -> None:
        state = self._values[name]
        places = np.arange(len(state))
        places[keys] = len(state) + np.arange(len(keys))
        self._values[name] = pa.concat_arrays([state, values]).take(pa.array(places))

    # -------------------------------------------------------------------------------------------- result

    def _result(self) -> tuple[pa.Table, Ints]:
        newest = self._starts[1:] - 1
        counted = np.where(self._last >= 0, self._last, self._starts[:-1])
        columns: dict[str, pa.Array] = {}
        for name in self._rows.column_names:
            if name in self._values:
                columns[name] = self._values[name]
            elif name in self._from:
                columns[name] = take_rows(self._columns[name], self._from[name])
            elif name == KIND:
                gone = self._deleted | ~self._inserted
                columns[name] = pa.array(np.where(gone, DELETE, INSERT).astype(np.int8))
            else:
                places = counted if name == SEQUENCE else newest
                columns[name] = self._rows.column(name).combine_chunks().take(pa.array(places))
        return pa.table(columns, schema=self._rows.schema), np.arange(len(newest))


class _GroupState:
    """One sequence group: a rank of each row by the ordering columns, and the rank of each key's state."""

    def __init__(self, group: SequenceGroup, columns: Mapping[str, pa.Array], keys: int) -> None:
        self.columns = group
        ranks = [sequence_ranks(columns[name], descending=False) for name in group.ordering]
        self.empty = np.logical_and.reduce([rank == 0 for rank in ranks])
        order = np.lexsort(tuple(reversed(ranks)))
        fresh = np.zeros(len(order), np.int64)
        for rank in ranks:
            fresh[1:] |= rank[order][1:] != rank[order][:-1]
        self.code = np.empty(len(order), np.int64)
        self.code[order] = np.cumsum(fresh)
        self.state = np.full(keys, -1, np.int64)
