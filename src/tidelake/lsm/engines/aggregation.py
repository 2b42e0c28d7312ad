"""`merge-engine = aggregation`: each column is folded by its own aggregate function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidelake.lsm.engine import DELETE, INSERT, KIND, Ints, Versions, last_of_each, retracts
from tidelake.lsm.engines.folding import FIRST_VALUES, KEEP_A_LONE_VALUE, fold_column, rows_of_groups

if TYPE_CHECKING:
    from tidelake.lsm.aggregate import Aggregate


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Folds every column that has a function; the others (keys, sequence number) come from the newest version.

    With `remove_on_delete`, a -D row resets the key to that row, and a key whose newest version is -D is deleted.
    """

    functions: Mapping[str, Aggregate]
    remove_on_delete: bool = False

    @property
    def takes_last(self) -> bool:
        """See `Engine.takes_last`."""
        return False

    def changes_alone(self, rows: pa.Table) -> Ints | None:
        """See `Engine.changes_alone`: retract rows, or all rows if a function may change a single value."""
        if all(function.name in KEEP_A_LONE_VALUE for function in self.functions.values()):
            return retracts(rows)
        return np.ones(rows.num_rows, bool)

    def fold(self, versions: Versions) -> tuple[pa.Table, Ints]:
        """Return one row per key.

        Raises:
            InvalidInputError: a value overflows or is not allowed.
            UnsupportedError: there is a retract row for a function that cannot retract.
        """
        rows, starts, kinds = versions.rows, versions.starts, versions.kinds
        newest = rows.take(pa.array(starts[1:] - 1))
        has_state: Ints | None = None
        deleted = np.zeros(versions.count, dtype=bool)
        resets = np.full(versions.count, -1)
        if self.remove_on_delete and kinds is not None:
            resets = last_of_each(kinds == DELETE, starts)
            has_state = resets >= 0
            deleted = resets == starts[1:] - 1
            rows, starts, kinds = _from(rows, starts, kinds, resets)
        retracted = None if kinds is None or not (kinds & 1).any() else (kinds & 1) == 1
        columns = {name: newest.column(name) for name in rows.column_names}
        for name, function in self.functions.items():
            if name in columns:
                values = rows.column(name).combine_chunks()
                columns[name] = fold_column(function, values, starts, retracted, has_state)
                if has_state is not None and has_state.any() and function.name in FIRST_VALUES:
                    columns[name] = _first_added(function.name, columns[name], name, versions, resets)
        if KIND in columns:
            columns[KIND] = pa.array(np.where(deleted, DELETE, INSERT).astype(np.int8))
        return pa.table(columns, schema=newest.schema), np.arange(versions.count)


def _first_added(function: str, folded: pa.Array, column: str, versions: Versions, resets: Ints) -> pa.Array:
    """Return the first added value of each key that was reset, for `first_value` and `first_non_null_value`.

    The row that reset the key did not add its value. If a value was added before, it was lost with the reset, so the
    row's own value stays.
    """
    values = versions.rows.column(column).combine_chunks()
    assert versions.kinds is not None
    added = (versions.kinds & 1) == 0
    if function != "first_value":
        added &= values.is_valid().to_numpy(zero_copy_only=False)
    first = np.minimum.reduceat(np.where(added, np.arange(len(values)), len(values)), versions.starts[:-1])
    kept = np.where((first > resets) & (first < len(values)), first, resets)
    reset = resets >= 0
    places = np.where(reset, len(folded) + kept, np.arange(len(folded)))
    return pa.concat_arrays([folded, values]).take(pa.array(places))


def _from(rows: pa.Table, starts: Ints, kinds: Ints, resets: Ints) -> tuple[pa.Table, Ints, Ints]:
    """Return the versions of each key from its last reset on."""
    begins = np.where(resets >= 0, resets, starts[:-1])
    if (begins == starts[:-1]).all():
        return rows, starts, kinds
    sizes = starts[1:] - begins
    chosen = rows_of_groups(np.stack([begins, starts[1:]], 1).reshape(-1), np.arange(0, 2 * len(begins), 2))
    return rows.take(pa.array(chosen)), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), kinds[chosen]
