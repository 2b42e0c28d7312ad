"""A merge engine that compares two states of the same keys, given to the merge kernel as two runs.

Rows of the earlier state have the kind -D and those of the later state +I, so that a key in only one state passes
through the kernel with the right kind. A key in both is folded here: equal rows give no row, others -U and +U.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.lsm.difference import equal_values
from tidelake.lsm.engine import KIND, UPDATE_AFTER, UPDATE_BEFORE, Ints, Versions
from tidelake.spec.types.data_types import Field


@dataclass(frozen=True, slots=True)
class TwoStates:
    """Compares the rows of two states by these columns."""

    fields: tuple[Field, ...]

    @property
    def takes_last(self) -> bool:
        """See `Engine.takes_last`."""
        return False

    def changes_alone(self, rows: pa.Table) -> Ints | None:  # noqa: ARG002 - other engines look at the rows
        """See `Engine.changes_alone`: a single version stays unchanged."""
        return None

    def fold(self, versions: Versions) -> tuple[pa.Table, Ints]:
        """Return the old and the new row of each key whose rows differ."""
        assert versions.rows.num_rows == 2 * versions.count, "a state has each key once"
        first = versions.starts[:-1]
        before, after = (versions.rows.take(pa.array(first + side)) for side in (0, 1))
        changed = np.flatnonzero(rows_differ(before, after, self.fields))
        places = np.stack([first[changed], first[changed] + 1], 1).reshape(-1)
        rows = versions.rows.take(pa.array(places))
        kinds = np.tile(np.array([UPDATE_BEFORE, UPDATE_AFTER], np.int8), len(changed))
        at = rows.schema.get_field_index(KIND)
        return rows.set_column(at, rows.schema.field(at), pa.array(kinds)), np.repeat(changed, 2)


def rows_differ(left: pa.Table, right: pa.Table, fields: Sequence[Field]) -> Ints:
    """Return a mask of the positions at which two tables of equal length differ; null equals null, NaN equals NaN."""
    differ = np.zeros(left.num_rows, bool)
    for field in fields:
        one, other = (side.column(field.name).combine_chunks() for side in (left, right))
        same = equal_values(one, other, field)
        if pa.types.is_floating(one.type):
            both = pc.and_(pc.fill_null(pc.is_nan(one), False), pc.fill_null(pc.is_nan(other), False))
            same = same | both.to_numpy(zero_copy_only=False)
        differ |= ~same
    return differ
