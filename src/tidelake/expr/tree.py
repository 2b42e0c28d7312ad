"""The predicate tree and how to build it. Values are plain Python values, interpreted by the type of their column.

`col("dt") == "2026-11-15"` builds a tree; `&`, `|` and `~` combine trees. The semantics are SQL's: a comparison with
null is neither true nor false, and a row is kept only if the whole predicate is true. A comparison of a column with a
constant is a `Compare`, which pruning understands best; everything else (`col("a") + 1 > col("b")`) is a `Test` of two
scalars.

Floating point is ordered in every node as Spark and Paimon order it: NaN equals itself and is greater than every
number, and the two zeros are equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tidelake.errors import InvalidInputError
from tidelake.expr.moments import plain_value
from tidelake.expr.node import Node, Scalar
from tidelake.expr.scalar import (
    NULL,
    Arithmetic,
    Call,
    Cast,
    Coalesce,
    ColumnRef,
    Literal,
    Member,
    Negate,
    literal_type,
)
from tidelake.spec.types.data_types import DataType
from tidelake.spec.types.type_codec import parse_type

__all__ = [
    "ALWAYS",
    "NEVER",
    "OPERATORS",
    "SAME",
    "UNKNOWN",
    "And",
    "Case",
    "Column",
    "Compare",
    "Holds",
    "In",
    "Is",
    "IsNull",
    "Like",
    "Missing",
    "Not",
    "Or",
    "Predicate",
    "Regex",
    "Scalar",
    "StartsWith",
    "Term",
    "Test",
    "Truth",
    "Unknown",
    "call",
    "case",
    "coalesce",
    "col",
    "flatten",
    "like",
    "lit",
]

OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
SAME: Final = "<=>"
"""Equality for which null equals null and nothing else; only a `Test` has it."""


class Predicate(Node):
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


@dataclass(frozen=True, slots=True, eq=True)
class Compare(Predicate):
    """column op value, with op one of `OPERATORS`."""

    column: str
    op: str
    value: Any

    def reads(self) -> str:
        return self.column


@dataclass(frozen=True, slots=True)
class In(Predicate):
    """Column equals one of the values."""

    column: str
    values: tuple[Any, ...]

    def reads(self) -> str:
        return self.column


@dataclass(frozen=True, slots=True)
class IsNull(Predicate):
    """Column is null."""

    column: str

    def reads(self) -> str:
        return self.column


@dataclass(frozen=True, slots=True)
class StartsWith(Predicate):
    """The text of a column begins with a prefix."""

    column: str
    prefix: str

    def reads(self) -> str:
        return self.column


@dataclass(frozen=True, slots=True)
class And(Predicate):
    """All parts are true; always true without parts."""

    parts: tuple[Predicate, ...] = ()

    def children(self) -> tuple[Node, ...]:
        return self.parts


@dataclass(frozen=True, slots=True)
class Or(Predicate):
    """At least one part is true; never true without parts."""

    parts: tuple[Predicate, ...] = ()

    def children(self) -> tuple[Node, ...]:
        return self.parts


@dataclass(frozen=True, slots=True)
class Not(Predicate):
    """The part is false (not: unknown)."""

    part: Predicate

    def children(self) -> tuple[Node, ...]:
        return (self.part,)


@dataclass(frozen=True, slots=True)
class Unknown(Predicate):
    """Neither true nor false: NULL as a condition."""


@dataclass(frozen=True, slots=True)
class Test(Predicate):
    """left op right, with op one of `OPERATORS` or `SAME`."""

    __test__ = False  # pytest would collect it as a test case because of its name

    left: Scalar
    op: str
    right: Scalar

    def __post_init__(self) -> None:
        if self.op not in (*OPERATORS, SAME):
            known = " ".join((*OPERATORS, SAME))
            raise InvalidInputError("operator is not known", operator=self.op, hint=f"use one of {known}")

    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Holds(Predicate):
    """A BOOLEAN value is true; unknown where it is null."""

    operand: Scalar

    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Is(Predicate):
    """The part has this truth value (None: unknown). Never unknown itself."""

    part: Predicate
    value: bool | None

    def children(self) -> tuple[Node, ...]:
        return (self.part,)


@dataclass(frozen=True, slots=True)
class Missing(Predicate):
    """A scalar is null."""

    operand: Scalar

    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Like(Predicate):
    r"""A text matches a pattern of `%` (anything) and `_` (any character); `\` escapes a `%`, `_` or `\`."""

    operand: Scalar
    pattern: str
    ignore_case: bool = False

    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Regex(Predicate):
    """A regular expression (of RE2: no backreferences, no lookaround) matches somewhere in a text."""

    operand: Scalar
    pattern: str

    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Case(Scalar):
    """The value of the first branch whose condition is true, else the default. Other branches are not evaluated."""

    branches: tuple[tuple[Predicate, Scalar], ...]
    default: Scalar = NULL

    def children(self) -> tuple[Node, ...]:
        return (*(node for branch in self.branches for node in branch), self.default)


@dataclass(frozen=True, slots=True)
class Truth(Scalar):
    """A predicate as a BOOLEAN value."""

    predicate: Predicate

    def children(self) -> tuple[Node, ...]:
        return (self.predicate,)


ALWAYS = And()
NEVER = Or()
UNKNOWN = Unknown()


def flatten(predicate: And | Or) -> list[Predicate]:
    """The parts of nested ANDs (or ORs) as one list, without recursion: a program may nest thousands of them."""
    parts: list[Predicate] = []
    waiting: list[Predicate] = [predicate]
    while waiting:
        current = waiting.pop()
        if isinstance(current, (And, Or)) and type(current) is type(predicate):
            waiting.extend(reversed(current.parts))
        else:
            parts.append(current)
    return parts


def like(operand: Scalar, pattern: str, *, escape: str = "\\", ignore_case: bool = False) -> Predicate:
    """Build a LIKE, or for a column and a pattern such as `abc%` a `StartsWith`, which can prune.

    Raises:
        InvalidInputError: the escape character is wrong, or precedes a character that needs no escape.
    """
    if len(escape) != 1 or escape in "%_":
        raise InvalidInputError("escape of LIKE is not one plain character", escape=ascii(escape), hint=r"use '\\'")
    parts: list[tuple[str, bool]] = []  # each character, and whether it stands for others
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            character = next(characters, "")
            if character not in ("%", "_", escape):
                raise InvalidInputError(
                    "escape of LIKE precedes an ordinary character",
                    pattern=ascii(pattern),
                    hint="write the escape character twice to mean itself",
                )
            parts.append((character, False))
        else:
            parts.append((character, character in "%_"))
    wild = [index for index, (_, special) in enumerate(parts) if special]
    if isinstance(operand, ColumnRef) and not ignore_case and wild == [len(parts) - 1] and parts[-1][0] == "%":
        return StartsWith(operand.column, "".join(character for character, _ in parts[:-1]))
    plain = "".join(f"\\{c}" if not special and c in "%_\\" else c for c, special in parts)
    return Like(operand, plain, ignore_case)


class Term:
    """A scalar to build expressions with: arithmetic returns terms, comparisons return predicates."""

    __slots__ = ("scalar",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, scalar: Scalar) -> None:
        self.scalar = scalar

    def __repr__(self) -> str:
        return f"term({self.scalar!r})"

    def __bool__(self) -> bool:
        raise InvalidInputError("an expression has no truth value of its own", hint="compare it: expression == True")

    def _compare(self, op: str, value: object) -> Predicate:
        return Test(self.scalar, op, _scalar(value))

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        return self._compare("=", value)

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return self._compare("!=", value)

    def __lt__(self, value: Any) -> Predicate:
        return self._compare("<", value)

    def __le__(self, value: Any) -> Predicate:
        return self._compare("<=", value)

    def __gt__(self, value: Any) -> Predicate:
        return self._compare(">", value)

    def __ge__(self, value: Any) -> Predicate:
        return self._compare(">=", value)

    def __add__(self, other: Any) -> Term:
        return _add(self.scalar, _scalar(other))

    def __radd__(self, other: Any) -> Term:
        return _add(_scalar(other), self.scalar)

    def __sub__(self, other: Any) -> Term:
        return Term(Arithmetic("-", self.scalar, _scalar(other)))

    def __rsub__(self, other: Any) -> Term:
        return Term(Arithmetic("-", _scalar(other), self.scalar))

    def __mul__(self, other: Any) -> Term:
        return Term(Arithmetic("*", self.scalar, _scalar(other)))

    def __rmul__(self, other: Any) -> Term:
        return Term(Arithmetic("*", _scalar(other), self.scalar))

    def __truediv__(self, other: Any) -> Term:
        return Term(Arithmetic("/", self.scalar, _scalar(other)))

    def __rtruediv__(self, other: Any) -> Term:
        return Term(Arithmetic("/", _scalar(other), self.scalar))

    def __mod__(self, other: Any) -> Term:
        return Term(Arithmetic("%", self.scalar, _scalar(other)))

    def __rmod__(self, other: Any) -> Term:
        return Term(Arithmetic("%", _scalar(other), self.scalar))

    def __neg__(self) -> Term:
        return Term(Negate(self.scalar))

    def is_in(self, values: Iterable[Any]) -> Predicate:
        """One of the values."""
        return Or(tuple(self == value for value in values))

    def is_null(self) -> Predicate:
        """No value."""
        return Missing(self.scalar)

    def is_not_null(self) -> Predicate:
        """Any value."""
        return Not(self.is_null())

    def is_true(self) -> Predicate:
        """True, for a BOOLEAN; unknown where it is null."""
        return Holds(self.scalar)

    def same_as(self, value: Any) -> Predicate:
        """Equal, or both null."""
        return Test(self.scalar, SAME, _scalar(value))

    def between(self, low: Any, high: Any) -> Predicate:
        """From low to high, both included."""
        return And((self >= low, self <= high))

    def like(self, pattern: str, *, escape: str = "\\", ignore_case: bool = False) -> Predicate:
        """The text matches a pattern of `%` and `_`."""
        return like(self.scalar, pattern, escape=escape, ignore_case=ignore_case)

    def matches(self, pattern: str) -> Predicate:
        """A regular expression matches somewhere in the text."""
        return Regex(self.scalar, pattern)

    def cast(self, dtype: DataType | str) -> Term:
        """The value as another type, `"DECIMAL(10, 2)"`."""
        return Term(Cast(self.scalar, parse_type(dtype) if isinstance(dtype, str) else dtype))

    def member(self, name: str) -> Term:
        """A member of a ROW."""
        return Term(Member(self.scalar, name))

    def concat(self, *others: Any) -> Term:
        """This text followed by the others."""
        return Term(Call("concat", (self.scalar, *map(_scalar, others))))


class Column(Term):
    """A column to compare with: `col("a") > 3`."""

    __slots__ = ("name",)
    __hash__ = None

    def __init__(self, name: str) -> None:
        super().__init__(ColumnRef(name))
        self.name = name

    def __repr__(self) -> str:
        return f"col({self.name!r})"

    def _compare(self, op: str, value: object) -> Predicate:
        return super()._compare(op, value) if _is_expression(value) else Compare(self.name, op, plain_value(value))

    def is_in(self, values: Iterable[Any]) -> Predicate:
        options = tuple(map(plain_value, values))
        return super().is_in(options) if any(map(_is_expression, options)) else In(self.name, options)

    def is_null(self) -> Predicate:
        return IsNull(self.name)

    def starts_with(self, prefix: str) -> Predicate:
        """The text begins with the prefix."""
        return StartsWith(self.name, prefix)


def col(name: str) -> Column:
    """A column to build a predicate with."""
    return Column(name)


def lit(value: Any) -> Term:
    """A constant to build an expression with.

    Raises:
        InvalidInputError: the value has no SQL type.
    """
    return Term(_scalar(value))


def call(function: str, *arguments: Any) -> Term:
    """A function by its name: `call("upper", col("s"))`."""
    return Term(Call(function.lower(), tuple(map(_scalar, arguments))))


def case(*branches: tuple[Predicate, Any], default: Any = None) -> Term:
    """The value of the first branch whose condition is true: `case((col("a") > 1, "big"), default="small")`."""
    return Term(Case(tuple((condition, _scalar(value)) for condition, value in branches), _scalar(default)))


def coalesce(*parts: Any) -> Term:
    """The first part that is not null."""
    return Term(Coalesce(tuple(map(_scalar, parts))))


def _is_expression(value: object) -> bool:
    return isinstance(value, (Term, Node))


def _scalar(value: Any) -> Scalar:
    match value:
        case Term():
            return value.scalar
        case Scalar():
            return value
        case Predicate():
            return Truth(value)
    value = plain_value(value)
    literal_type(value)  # refuses a value without an SQL type
    return Literal(value)


def _add(left: Scalar, right: Scalar) -> Term:
    """`+` concatenates if one side is known to be text; SQL's own `+` is for numbers only."""
    if any(_is_text(side) for side in (left, right)):
        return Term(Call("concat", (left, right)))
    return Term(Arithmetic("+", left, right))


def _is_text(side: Scalar) -> bool:
    match side:
        case Literal(value=str()) | Call(function="concat"):
            return True
    return False
