"""What a merge engine is: it turns the versions of keys into one row each, for all keys at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

Ints = np.ndarray[Any, Any]

SEQUENCE: Final = "_SEQUENCE_NUMBER"
KIND: Final = "_VALUE_KIND"
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
"""The kinds of rows. Odd kinds retract."""


@dataclass(frozen=True, slots=True)
class Versions:
    """All versions of keys that have more than one, key after key, oldest first."""

    rows: pa.Table
    starts: Ints
    """Where the versions of each key begin; one more entry at the end, the number of rows."""
    kinds: Ints | None
    """The kinds of the rows, None where all are additions. Odd kinds are retractions."""

    @property
    def count(self) -> int:
        """How many keys there are."""
        return len(self.starts) - 1


class Engine(Protocol):
    """Folds versions. One engine is one small file."""

    @property
    def takes_last(self) -> bool:
        """Whether the answer is always the newest version as it is."""

    def changes_alone(self, rows: pa.Table) -> Ints | None:
        """Which rows `fold` may change even where they are the only version of their key; None: no row."""

    def fold(self, versions: Versions) -> tuple[pa.Table, Ints]:
        """The rows that come out, and of which key (by number) each is; a key may come to nothing.

        Raises:
            InvalidInputError: a version is one the engine does not accept.
        """


def retracts(rows: pa.Table) -> Ints:
    """Which rows take something back or delete."""
    if KIND not in rows.column_names:
        return np.zeros(rows.num_rows, bool)
    found: Ints = (rows.column(KIND).to_numpy() & 1) == 1
    return found


def last_of_each(wanted: Ints, starts: Ints) -> Ints:
    """The last row of each key that is wanted, -1 where none is."""
    places = np.where(wanted, np.arange(len(wanted)), -1)
    found: Ints = np.maximum.reduceat(places, starts[:-1])
    return found
