"""The protocol of merge engines: an engine folds the versions of each key into one row, for all keys at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

Ints = np.ndarray[Any, Any]

SEQUENCE: Final = "_SEQUENCE_NUMBER"
KIND: Final = "_VALUE_KIND"
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
"""The row kinds. Odd kinds are retract rows."""


@dataclass(frozen=True, slots=True)
class Versions:
    """All versions of the keys that have more than one, grouped by key, oldest first."""

    rows: pa.Table
    starts: Ints
    """Where the versions of each key begin; one more entry at the end, the number of rows."""
    kinds: Ints | None
    """The row kinds; None if no row is a retract row."""

    @property
    def count(self) -> int:
        """The number of keys."""
        return len(self.starts) - 1


class Engine(Protocol):
    """A merge engine."""

    @property
    def takes_last(self) -> bool:
        """Whether the result is always the newest version, unchanged."""

    def changes_alone(self, rows: pa.Table) -> Ints | None:
        """Return a mask of rows that `fold` may change even if they are the only version of their key; None: no row."""

    def fold(self, versions: Versions) -> tuple[pa.Table, Ints]:
        """Return the merged rows and the number of each row's key; a key may have no merged row.

        Raises:
            InvalidInputError: the engine does not accept one of the versions.
        """


def retracts(rows: pa.Table) -> Ints:
    """Return a mask of the retract rows."""
    if KIND not in rows.column_names:
        return np.zeros(rows.num_rows, bool)
    found: Ints = (rows.column(KIND).to_numpy() & 1) == 1
    return found


def last_of_each(wanted: Ints, starts: Ints) -> Ints:
    """Return the last row of each key for which `wanted` is true; -1 for a key without such a row."""
    places = np.where(wanted, np.arange(len(wanted)), -1)
    found: Ints = np.maximum.reduceat(places, starts[:-1])
    return found
