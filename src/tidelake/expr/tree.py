"""The predicate tree. Values are plain Python values; a column's type gives them meaning when they are applied.

`col("dt") == "2026-11-15"` builds a tree; `&`, `|` and `~` combine trees. SQL semantics: a comparison with null is
neither true nor false, and a row is kept only where the whole is true.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tidelake.errors import InvalidInputError

OPERATORS = ("=", "!=", "<", "<=", ">", ">=")


class Predicate:
    """A condition on a row."""

    __slots__ = ()

    def __and__(self, other: Predicate) -> Predicate:
        return And((self, other))

    def __or__(self, other: Predicate) -> Predicate:
        return Or((self, other))

    def __invert__(self) -> Predicate:
        return Not(self)

    def __bool__(self) -> bool:
        raise InvalidInputError("a predicate has no truth value of its own", hint="combine with & | ~, not and/or/not")

    def columns(self) -> frozenset[str]:
        """The names of the columns it looks at."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=True)
class Compare(Predicate):
    """column op value, with op one of `OPERATORS`."""

    column: str
    op: str
    value: Any

    def columns(self) -> frozenset[str]:
        return frozenset({self.column})


@dataclass(frozen=True, slots=True)
class In(Predicate):
    """Column equals one of the values."""

    column: str
    values: tuple[Any, ...]

    def columns(self) -> frozenset[str]:
        return frozenset({self.column})


@dataclass(frozen=True, slots=True)
class IsNull(Predicate):
    """Column is null."""

    column: str

    def columns(self) -> frozenset[str]:
        return frozenset({self.column})


@dataclass(frozen=True, slots=True)
class And(Predicate):
    """All parts hold; without parts it always does."""

    parts: tuple[Predicate, ...] = ()

    def columns(self) -> frozenset[str]:
        return frozenset().union(*(part.columns() for part in self.parts))


@dataclass(frozen=True, slots=True)
class Or(Predicate):
    """At least one part holds; without parts it never does."""

    parts: tuple[Predicate, ...] = ()

    def columns(self) -> frozenset[str]:
        return frozenset().union(*(part.columns() for part in self.parts))


@dataclass(frozen=True, slots=True)
class Not(Predicate):
    """The part is false (not: unknown)."""

    part: Predicate

    def columns(self) -> frozenset[str]:
        return self.part.columns()


ALWAYS = And()


class Column:
    """A column to compare with: `col("a") > 3`."""

    __slots__ = ("name",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"col({self.name!r})"

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        return Compare(self.name, "=", value)

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return Compare(self.name, "!=", value)

    def __lt__(self, value: Any) -> Predicate:
        return Compare(self.name, "<", value)

    def __le__(self, value: Any) -> Predicate:
        return Compare(self.name, "<=", value)

    def __gt__(self, value: Any) -> Predicate:
        return Compare(self.name, ">", value)

    def __ge__(self, value: Any) -> Predicate:
        return Compare(self.name, ">=", value)

    def is_in(self, values: Iterable[Any]) -> Predicate:
        """One of the values."""
        return In(self.name, tuple(values))

    def is_null(self) -> Predicate:
        """No value."""
        return IsNull(self.name)

    def is_not_null(self) -> Predicate:
        """Any value."""
        return Not(IsNull(self.name))

    def between(self, low: Any, high: Any) -> Predicate:
        """From low to high, both included."""
        return And((self >= low, self <= high))


def col(name: str) -> Column:
    """A column to build a predicate with."""
    return Column(name)
