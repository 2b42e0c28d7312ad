"""`merge-engine = first-row`: the oldest version wins; retract rows are refused, or skipped with `ignore-delete`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.lsm.engine import Ints, Versions


@dataclass(frozen=True, slots=True)
class FirstRow:
    """Keeps the first version."""

    ignore_delete: bool = False

    @property
    def takes_last(self) -> bool:
        """See `Engine.takes_last`."""
        return False

    def changes_alone(self, rows: pa.Table) -> Ints | None:  # noqa: ARG002 - other engines look at the rows
        """See `Engine.changes_alone`: a single version stays unchanged."""
        return None

    def fold(self, versions: Versions) -> tuple[pa.Table, Ints]:
        """Return the first version of each key that counts.

        Raises:
            InvalidInputError: there is a retract row and `ignore_delete` is not set.
        """
        first = versions.starts[:-1]
        if versions.kinds is not None and (versions.kinds & 1).any():
            if not self.ignore_delete:
                raise InvalidInputError(
                    "first-row table does not accept rows of kind -U or -D",
                    option="merge-engine",
                    hint="set ignore-delete=true to skip them, or choose another merge engine",
                )
            end = len(versions.kinds)
            adds = np.where((versions.kinds & 1) == 0, np.arange(end), end)
            first = np.minimum.reduceat(adds, versions.starts[:-1])
            keys = np.nonzero(first < end)[0]
            return versions.rows.take(pa.array(first[keys])), keys
        return versions.rows.take(pa.array(first)), np.arange(versions.count)
