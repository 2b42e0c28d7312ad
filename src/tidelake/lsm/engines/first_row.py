"""`merge-engine = first-row`: the oldest version wins; retractions are refused, or skipped with `ignore-delete`."""

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
        """Whether the answer is always the newest version as it is."""
        return False

    def changes_alone(self, rows: pa.Table) -> Ints | None:  # noqa: ARG002 - others ask for them
        """No row: a version comes out as it went in, or not at all."""
        return None

    def fold(self, versions: Versions) -> tuple[pa.Table, Ints]:
        """The first version of each key that counts.

        Raises:
            InvalidInputError: a version retracts and is not to be ignored.
        """
        first = versions.starts[:-1]
        if versions.kinds is not None and (versions.kinds & 1).any():
            if not self.ignore_delete:
                raise InvalidInputError(
                    "first-row table takes no retractions",
                    option="merge-engine",
                    hint="set ignore-delete=true to skip them, or choose another merge engine",
                )
            end = len(versions.kinds)
            adds = np.where((versions.kinds & 1) == 0, np.arange(end), end)
            first = np.minimum.reduceat(adds, versions.starts[:-1])
            keys = np.nonzero(first < end)[0]
            return versions.rows.take(pa.array(first[keys])), keys
        return versions.rows.take(pa.array(first)), np.arange(versions.count)
