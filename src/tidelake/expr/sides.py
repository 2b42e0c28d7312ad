"""Expressions over two tables, as in the clauses of a merge: the target `t` and the source `s`.

A column is named by its side and its name, `t.id` and `s.id`, also in the nodes that read it; users may write `target`
and `source` as well. A name without a side is allowed if only one side has such a column.

Invariant: expressions that `Sides` returns use full names only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from tidelake.errors import InvalidInputError
from tidelake.expr.node import Node, Scalar
from tidelake.expr.render import to_sql
from tidelake.expr.simplify import with_children
from tidelake.expr.tree import Predicate, lit
from tidelake.spec.types.data_types import Field

TARGET: Final = "t"
SOURCE: Final = "s"
SIDES: Final = {"t": TARGET, "target": TARGET, "s": SOURCE, "source": SOURCE}
"""The names that users may give a side."""

_QUOTED: Final = re.compile(r"`([ts])\.(\w+)`")
N = TypeVar("N", bound=Node)


def full_name(side: str, column: str) -> str:
    """The name of a column of a side."""
    return f"{side}.{column}"


def side_of(name: str) -> str:
    """The side of a full name."""
    return name.partition(".")[0]


def column_of(name: str) -> str:
    """The column of a full name."""
    return name.partition(".")[2]


def looks_at(node: Node, side: str) -> frozenset[str]:
    """The columns of one side that an expression with full names reads, named without the side."""
    return frozenset(column_of(name) for name in node.columns() if side_of(name) == side)


def sides_to_sql(node: Predicate | Scalar) -> str:
    """An expression with full names as SQL text."""
    return _QUOTED.sub(r"\1.\2", to_sql(node))


def of_target(node: N) -> N:
    """An expression that reads only the target, with the column names of the table."""
    return rename_columns(node, column_of)


def rename_columns(node: N, name: Callable[[str], str]) -> N:
    """The same expression with other column names.

    Raises:
        InvalidInputError: it is nested too deeply.
    """
    try:
        found: N = _rename(node, name)
    except RecursionError as cause:
        raise InvalidInputError("expression is nested too deeply", hint="use IN for a long list of values") from cause
    return found


def _rename(node: Any, name: Callable[[str], str]) -> Any:
    column = node.reads()
    if column is not None:
        return replace(node, column=name(column))
    return with_children(node, lambda child: _rename(child, name))


@dataclass(frozen=True, slots=True)
class Sides:
    """The columns of both sides; converts users' expressions to expressions with full names."""

    target: tuple[Field, ...]
    source: tuple[Field, ...]
    known: dict[str, Field] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The columns of both sides, by their full names."""

    def __post_init__(self) -> None:
        for side, columns in ((TARGET, self.target), (SOURCE, self.source)):
            for each in columns:
                name = full_name(side, each.name)
                self.known[name] = replace(each, name=name)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of both sides with their full names."""
        return tuple(self.known.values())

    def condition(self, given: object) -> Predicate:
        """A condition: SQL text, or an expression built with `tl.col`.

        Raises:
            InvalidInputError: it is neither, is not understood, or names a column that does not exist.
        """
        if isinstance(given, str):
            from tidelake.expr.parse import (
                parse_where,
            )  # imported here: loading the SQL parser takes as long as a small read

            return parse_where(given, self.fields, sided=True)
        if not isinstance(given, Predicate):
            raise InvalidInputError(
                "condition is neither text nor an expression",
                got=type(given).__name__,
                hint='write "t.id = s.id" or col("t.id") == col("s.id")',
            )
        return rename_columns(given, self._resolve)

    def value(self, given: object) -> Scalar:
        """A value: SQL text, an expression, or a plain Python value other than a text.

        Raises:
            InvalidInputError: it is not understood, or names a column that does not exist.
        """
        if isinstance(given, str):
            from tidelake.expr.parse import parse_scalar

            return parse_scalar(given, self.fields, sided=True)
        return rename_columns(lit(given).scalar, self._resolve)

    def _resolve(self, name: str) -> str:
        known = self.known
        side, dot, rest = name.partition(".")
        if dot and side in SIDES and full_name(SIDES[side], rest) in known:
            return full_name(SIDES[side], rest)
        found = [full_name(each, name) for each in (TARGET, SOURCE) if full_name(each, name) in known]
        if len(found) == 1:
            return found[0]
        if found:
            raise InvalidInputError(
                "column is ambiguous",
                column=name,
                hint=f'both sides have it: write col("{found[0]}") or col("{found[1]}")',
            )
        raise InvalidInputError("column does not exist", column=name, hint=f"columns are {', '.join(known)}")
