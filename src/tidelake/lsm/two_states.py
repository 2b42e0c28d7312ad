"""Two states of the same keys compared by the merge: the sides are runs, and keys that both have meet in one fold.

Rows of the earlier side carry the kind of a deletion and those of the later side that of an insertion, so that a key
which only one side has passes through as it is. A key that both have comes here: equal rows come to nothing, others to
what was there before and what is there now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.lsm.difference import equal_values
from tidelake.lsm.engine import KIND, UPDATE_AFTER, UPDATE_BEFORE, Ints, Versions
from tidelake.spec.types import Field


@dataclass(frozen=True, slots=True)
class TwoStates:
    """Compares the rows of two sides by these columns; the earlier side is the older one."""

    fields: tuple[Field, ...]

    @property
    def takes_last(self) -> bool:
        """Whether the answer is always the newest version as it is."""
        return False

    def changes_alone(self, rows: pa.Table) -> Ints | None:  # noqa: ARG002 - others ask for them
        """No row: a version comes out as it went in, or not at all."""
        return None

    def fold(self, versions: Versions) -> tuple[pa.Table, Ints]:
        """The row before and the row after of each key whose rows are not the same."""
        assert versions.rows.num_rows == 2 * versions.count, "a side has each key once"
        first = versions.starts[:-1]
        before, after = (versions.rows.take(pa.array(first + side)) for side in (0, 1))
        changed = np.flatnonzero(rows_differ(before, after, self.fields))
        places = np.stack([first[changed], first[changed] + 1], 1).reshape(-1)
        rows = versions.rows.take(pa.array(places))
        kinds = np.tile(np.array([UPDATE_BEFORE, UPDATE_AFTER], np.int8), len(changed))
        at = rows.schema.get_field_index(KIND)
        return rows.set_column(at, rows.schema.field(at), pa.array(kinds)), np.repeat(changed, 2)


def rows_differ(left: pa.Table, right: pa.Table, fields: Sequence[Field]) -> Ints:
    """Which rows of two tables of one length are not the same, place by place; null is null, and NaN is NaN."""
    differ = np.zeros(left.num_rows, bool)
    for field in fields:
        one, other = (side.column(field.name).combine_chunks() for side in (left, right))
        same = equal_values(one, other, field)
        if pa.types.is_floating(one.type):
            both = pc.and_(pc.fill_null(pc.is_nan(one), False), pc.fill_null(pc.is_nan(other), False))
            same = same | both.to_numpy(zero_copy_only=False)
        differ |= ~same
    return differ
