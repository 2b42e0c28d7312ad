"""Scalar expressions as frozen values, such as `a + 1` in `SET v = a + 1` and `upper(s)` in a condition.

The nodes know nothing about Arrow. `evaluate` computes them as Spark SQL does in ANSI mode with the session time zone
UTC: an overflow, a division by zero or a text that is not a number is an error, never a null.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.expr.node import Node, Scalar
from tidelake.spec.types.data_types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    STRING,
    DataType,
    DecimalType,
    Root,
    TimeType,
)

ARITHMETIC: Final = ("+", "-", "*", "/", "%", "div")
DECIMAL_DIGITS_MAX: Final = 38


@dataclass(frozen=True, slots=True)
class Literal(Scalar):
    """A constant. Without a type it has the type of its Python value, see `literal_type`."""

    value: Any
    type: DataType | None = None


NULL: Final = Literal(None)


@dataclass(frozen=True, slots=True)
class ColumnRef(Scalar):
    """The value of a column."""

    column: str

    def reads(self) -> str:
        """The column."""
        return self.column


@dataclass(frozen=True, slots=True)
class Member(Scalar):
    """A member of a ROW value; null if the row is."""

    operand: Scalar
    name: str

    def children(self) -> tuple[Node, ...]:
        """The row."""
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Arithmetic(Scalar):
    """left op right, with op one of `ARITHMETIC`; `div` is the whole part of the quotient, as a BIGINT."""

    op: str
    left: Scalar
    right: Scalar

    def __post_init__(self) -> None:
        if self.op not in ARITHMETIC:
            raise InvalidInputError("operator is not known", operator=self.op, hint=f"use {' '.join(ARITHMETIC)}")

    def children(self) -> tuple[Node, ...]:
        """Both operands."""
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Negate(Scalar):
    """The operand with the other sign."""

    operand: Scalar

    def children(self) -> tuple[Node, ...]:
        """The operand."""
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Coalesce(Scalar):
    """The first part that is not null. Later parts are evaluated only where they are needed."""

    parts: tuple[Scalar, ...]

    def children(self) -> tuple[Node, ...]:
        """The parts."""
        return self.parts


@dataclass(frozen=True, slots=True)
class NullIf(Scalar):
    """Null where both are equal, else left."""

    left: Scalar
    right: Scalar

    def children(self) -> tuple[Node, ...]:
        """Both operands."""
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Cast(Scalar):
    """The operand as another type; a value that does not fit is an error."""

    operand: Scalar
    type: DataType

    def children(self) -> tuple[Node, ...]:
        """The operand."""
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Call(Scalar):
    """A function by its lower-case name; `functions.FUNCTIONS` lists them."""

    function: str
    arguments: tuple[Scalar, ...] = ()

    def children(self) -> tuple[Node, ...]:
        """The arguments."""
        return self.arguments


def literal_type(value: Any) -> DataType | None:
    """The SQL type of a Python value; None for None.

    A whole number is an INT if it fits, else a BIGINT, else a DECIMAL.

    Raises:
        InvalidInputError: the value has no SQL type.
    """
    match value:
        case None:
            return None
        case bool():
            return BOOLEAN
        case int():
            if -(2**31) <= value < 2**31:
                return INT
            return BIGINT if -(2**63) <= value < 2**63 else _decimal_type(Decimal(value))
        case float():
            return DOUBLE
        case Decimal():
            return _decimal_type(value)
        case str():
            return STRING
        case bytes():
            return BYTES
        case pa.TimestampScalar():
            return TimeType(Root.TIMESTAMP if value.type.tz is None else Root.TIMESTAMP_LTZ, precision=9)
        case dt.datetime():
            return TimeType(Root.TIMESTAMP if value.tzinfo is None else Root.TIMESTAMP_LTZ, precision=6)
        case dt.date():
            return DATE
        case dt.time():
            return TimeType(Root.TIME, precision=3)
    raise InvalidInputError(
        "value cannot be a constant of an expression",
        value=ascii(value),
        hint="use a number, text, bytes, a date or a time",
    )


def literal(value: Any, dtype: DataType | None = None) -> Literal:
    """A constant; its type is kept only if it differs from that of the Python value.

    Raises:
        InvalidInputError: the value has no SQL type.
    """
    inferred = literal_type(value)
    return Literal(value, None if dtype == inferred else dtype)


def _decimal_type(value: Decimal) -> DecimalType:
    if value.is_finite():
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        scale = max(-exponent, 0)
        precision = max(len(digits) + max(exponent, 0) if any(digits) else 1, scale, 1)
        if precision <= DECIMAL_DIGITS_MAX:
            return DecimalType(precision=precision, scale=scale)
    raise InvalidInputError("number has more than 38 digits", value=value, hint="write it as a DOUBLE, such as 1e40")
