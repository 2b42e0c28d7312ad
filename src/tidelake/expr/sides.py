"""Expressions over two tables at once, as the clauses of a merge have them: the target `t` and the source `s`.

A column is known by its side and its name, `t.id` and `s.id`, and so is the node that reads it; the words `target` and
`source` are understood too. A name without a side stands for the only side that has such a column.

Invariant: every expression that comes out of `Sides` reads columns by their full names alone.
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
from tidelake.spec.types import Field

TARGET: Final = "t"
SOURCE: Final = "s"
SIDES: Final = {"t": TARGET, "target": TARGET, "s": SOURCE, "source": SOURCE}
"""What a side may be called."""

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
    """The columns of a side that an expression with full names reads, without the side."""
    return frozenset(column_of(name) for name in node.columns() if side_of(name) == side)


def shown(node: Predicate | Scalar) -> str:
    """An expression with full names as SQL text."""
    return _QUOTED.sub(r"\1.\2", to_sql(node))


def of_target(node: N) -> N:
    """An expression that reads the target alone, as the table itself knows it: without the side."""
    return renamed(node, column_of)


def renamed(node: N, name: Callable[[str], str]) -> N:
    """The same expression over columns of other names.

    Raises:
        InvalidInputError: it is nested too deeply.
    """
    try:
        found: N = _renamed(node, name)
    except RecursionError as cause:
        raise InvalidInputError("expression is nested too deeply", hint="use IN for a long list of values") from cause
    return found


def _renamed(node: Any, name: Callable[[str], str]) -> Any:
    column = node.reads()
    if column is not None:
        return replace(node, column=name(column))
    return with_children(node, lambda child: _renamed(child, name))


@dataclass(frozen=True, slots=True)
class Sides:
    """The columns of both sides, and what a person's expression over them means."""

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
            InvalidInputError: it is neither, is not understood, or names a column that is not there.
        """
        if isinstance(given, str):
            from tidelake.expr.parse import parse_where  # the SQL parser takes as long to load as a small read

            return parse_where(given, self.fields, sided=True)
        if not isinstance(given, Predicate):
            raise InvalidInputError(
                "condition is neither text nor an expression",
                got=type(given).__name__,
                hint='write "t.id = s.id" or col("t.id") == col("s.id")',
            )
        return renamed(given, self._found)

    def value(self, given: object) -> Scalar:
        """A value: SQL text, an expression, or a plain Python value other than a text.

        Raises:
            InvalidInputError: it is not understood, or names a column that is not there.
        """
        if isinstance(given, str):
            from tidelake.expr.parse import parse_scalar

            return parse_scalar(given, self.fields, sided=True)
        return renamed(lit(given).scalar, self._found)

    def _found(self, name: str) -> str:
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
        raise InvalidInputError("column is not known", column=name, hint=f"columns are {', '.join(known)}")
