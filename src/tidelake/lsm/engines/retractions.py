"""Finds retract rows that a table cannot merge because an aggregate function of theirs cannot retract.

Paimon writes such a row without complaint, and from then on every merge of its key fails. In a sequence group, columns
are processed in the order of the schema: a -D row that removes the whole row does so at the first ordering column of
its group, so only functions of earlier columns are asked to retract.

Invariant: a row that passes, with the newest ordering values of its groups, does not make a merge fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tidelake.lsm.engine import DELETE, Ints
from tidelake.lsm.engines.aggregation import Aggregation
from tidelake.lsm.engines.build import engine_for
from tidelake.lsm.engines.partial_update import PartialUpdate
from tidelake.options import TableOptions
from tidelake.spec.schemas.schema import Schema

__all__ = ["UnretractableColumn", "find_unretractable_columns"]


@dataclass(frozen=True, slots=True)
class UnretractableColumn:
    """A column whose function cannot retract, and which rows would ask it to."""

    column: str
    function: str
    ordering: tuple[str, ...] = ()
    """The ordering columns of its group: a row with nulls in all of them does not change the group."""
    removing_groups: tuple[tuple[str, ...], ...] = ()
    """The ordering columns of groups with which a -D row removes the whole row before this column is processed."""
    deletions_exempt: bool = False
    """Whether every -D row removes the whole row."""

    @property
    def spares_deletions(self) -> bool:
        """Whether a -D row with a value in every ordering column that removes rows never reaches this column."""
        return self.deletions_exempt or bool(self.removing_groups)

    def rows_to_retract(self, kinds: Ints, valid: Callable[[str], Ints]) -> Ints:
        """Return a mask of the rows that ask the function to retract; `valid` returns where a column is not null."""
        found: Ints = (kinds & 1) == 1
        if self.deletions_exempt:
            found &= kinds != DELETE
        if self.ordering:
            found &= _any_valid(self.ordering, valid)
        for ordering in self.removing_groups:
            found &= ~((kinds == DELETE) & _any_valid(ordering, valid))
        return found


def find_unretractable_columns(schema: Schema, options: TableOptions) -> tuple[UnretractableColumn, ...]:
    """Return the columns of a primary-key table whose functions may be asked to retract and cannot.

    Raises:
        InvalidInputError: an option is wrong.
    """
    engine = engine_for(schema, options)
    if isinstance(engine, Aggregation):
        return tuple(
            UnretractableColumn(name, function.name, deletions_exempt=engine.remove_on_delete)
            for name, function in engine.functions.items()
            if not function.can_retract
        )
    if not isinstance(engine, PartialUpdate):
        return ()
    place = {name: number for number, name in enumerate(schema.names)}
    removing_groups = [group.ordering for group in engine.groups if engine.remove_on_group & set(group.ordering)]
    return tuple(
        UnretractableColumn(
            name,
            engine.functions[name].name,
            group.ordering,
            tuple(each for each in removing_groups if min(place[column] for column in each) < place[name]),
        )
        for group in engine.groups
        for name in group.protected
        if name in engine.functions and not engine.functions[name].can_retract
    )


def _any_valid(columns: Sequence[str], valid: Callable[[str], Ints]) -> Ints:
    found: Ints = np.logical_or.reduce([valid(name) for name in columns])
    return found
