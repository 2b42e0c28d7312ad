"""Which rows that take something back a table cannot take: some function would be asked for what it cannot do.

Such a row is written without complaint, and from then on no version of its key can be merged with it, by anyone. In a
sequence group columns are looked at in the order of the schema: a deletion that removes the whole row does so at the
first column that orders its group, so only functions of columns before that are asked.

Invariant: no row that passes makes a merge fail which has the newest values of what orders its groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tidelake.lsm.engine import DELETE, Ints
from tidelake.lsm.engines.aggregation import Aggregation
from tidelake.lsm.engines.build import engine_for
from tidelake.lsm.engines.partial_update import PartialUpdate
from tidelake.spec.schema import Schema

__all__ = ["Unwilling", "find_unwilling"]


@dataclass(frozen=True, slots=True)
class Unwilling:
    """A column whose function takes nothing back, and which rows ask it to."""

    column: str
    function: str
    ordering: tuple[str, ...] = ()
    """What orders its group: rows without any of these leave the group alone."""
    removing: tuple[tuple[str, ...], ...] = ()
    """What orders groups with which a deletion removes the row before this column is looked at."""
    spared: bool = False
    """Whether every deletion removes the whole row."""

    @property
    def spares_deletions(self) -> bool:
        """Whether a deletion that has a value in every column which removes is never a matter of this column."""
        return self.spared or bool(self.removing)

    def asked(self, kinds: Ints, valid: Callable[[str], Ints]) -> Ints:
        """Which rows ask it to take something back; `valid` returns where a column is not null."""
        found: Ints = (kinds & 1) == 1
        if self.spared:
            found &= kinds != DELETE
        if self.ordering:
            found &= _any_valid(self.ordering, valid)
        for ordering in self.removing:
            found &= ~((kinds == DELETE) & _any_valid(ordering, valid))
        return found


def find_unwilling(schema: Schema, options: Mapping[str, str]) -> tuple[Unwilling, ...]:
    """The columns of a primary-key table whose functions take nothing back; none of those that are never asked.

    Raises:
        InvalidInputError: an option is wrong.
    """
    engine = engine_for(schema, options)
    if isinstance(engine, Aggregation):
        return tuple(
            Unwilling(name, function.name, spared=engine.remove_on_delete)
            for name, function in engine.functions.items()
            if not function.takes_back
        )
    if not isinstance(engine, PartialUpdate):
        return ()
    place = {name: number for number, name in enumerate(schema.names)}
    removing = [group.ordering for group in engine.groups if engine.remove_on_group & set(group.ordering)]
    return tuple(
        Unwilling(
            name,
            engine.functions[name].name,
            group.ordering,
            tuple(each for each in removing if min(place[column] for column in each) < place[name]),
        )
        for group in engine.groups
        for name in group.protected
        if name in engine.functions and not engine.functions[name].takes_back
    )


def _any_valid(columns: Sequence[str], valid: Callable[[str], Ints]) -> Ints:
    found: Ints = np.logical_or.reduce([valid(name) for name in columns])
    return found
