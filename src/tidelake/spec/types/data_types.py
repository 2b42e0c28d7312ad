"""Data types of the format as frozen values.

A type includes its nullability; `str(type)` is the type text of the format. `type_codec` parses types from text and
JSON, `arrow_types` converts them to Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

LENGTH_MAX = 2**31 - 1
"""Length of STRING and BYTES, which are VARCHAR and VARBINARY of this length."""


class Root(Enum):
    """The family of a type, without its parameters. The value is the keyword of the type text."""

    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BOOLEAN = "BOOLEAN"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    DECIMAL = "DECIMAL"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    VARIANT = "VARIANT"
    BLOB = "BLOB"
    GEOMETRY = "GEOMETRY"
    GEOGRAPHY = "GEOGRAPHY"
    ARRAY = "ARRAY"
    MULTISET = "MULTISET"
    MAP = "MAP"
    VECTOR = "VECTOR"
    ROW = "ROW"


@dataclass(frozen=True, slots=True)
class DataType:
    """Base of all types. Build the subclasses below, or use the constructors of `type_codec`."""

    root: Root
    nullable: bool = True

    def body(self) -> str:
        """The type text without its nullability."""
        return self.root.value

    def __str__(self) -> str:
        return self.body() if self.nullable else f"{self.body()} NOT NULL"


@dataclass(frozen=True, slots=True)
class SimpleType(DataType):
    """BOOLEAN, the integers, FLOAT, DOUBLE, DATE, VARIANT, BLOB."""


@dataclass(frozen=True, slots=True)
class LengthType(DataType):
    """CHAR, VARCHAR (STRING), BINARY, VARBINARY (BYTES)."""

    length: int = 1

    def body(self) -> str:
        if self.length == LENGTH_MAX and self.root is Root.VARCHAR:
            return "STRING"
        if self.length == LENGTH_MAX and self.root is Root.VARBINARY:
            return "BYTES"
        return f"{self.root.value}({self.length})"


@dataclass(frozen=True, slots=True)
class DecimalType(DataType):
    """DECIMAL(precision, scale)."""

    root: Root = Root.DECIMAL
    precision: int = 10
    scale: int = 0

    def body(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True)
class TimeType(DataType):
    """TIME, TIMESTAMP and TIMESTAMP WITH LOCAL TIME ZONE."""

    precision: int = 6

    def body(self) -> str:
        if self.root is Root.TIMESTAMP_LTZ:
            return f"TIMESTAMP({self.precision}) WITH LOCAL TIME ZONE"
        return f"{self.root.value}({self.precision})"


@dataclass(frozen=True, slots=True)
class GeoType(DataType):
    """GEOMETRY(crs) and GEOGRAPHY(crs, algorithm)."""

    crs: str = "OGC:CRS84"
    algorithm: str | None = None

    def body(self) -> str:
        return f"{self.root.value}({self.crs}{f', {self.algorithm}' if self.algorithm else ''})"


@dataclass(frozen=True, slots=True)
class ElementType(DataType):
    """ARRAY and MULTISET of an element type."""

    element: DataType = SimpleType(Root.INT)

    def body(self) -> str:
        return f"{self.root.value}<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapType(DataType):
    """MAP of a key type to a value type."""

    root: Root = Root.MAP
    key: DataType = SimpleType(Root.INT)
    value: DataType = SimpleType(Root.INT)

    def body(self) -> str:
        return f"MAP<{self.key}, {self.value}>"


@dataclass(frozen=True, slots=True)
class VectorType(DataType):
    """VECTOR: a fixed number of elements, none of them null."""

    root: Root = Root.VECTOR
    element: DataType = SimpleType(Root.FLOAT)
    length: int = 1

    def body(self) -> str:
        return f"VECTOR<{self.element}, {self.length}>"


@dataclass(frozen=True, slots=True)
class Field:
    """A column or member of a ROW. `default` is the text of the value for rows that are written without one."""

    id: int
    name: str
    type: DataType
    description: str | None = None
    default: str | None = None

    @property
    def comment(self) -> str | None:
        """The description; users call it a comment."""
        return self.description

    def __str__(self) -> str:
        return f"`{self.name}` {self.type}"


@dataclass(frozen=True, slots=True)
class RowType(DataType):
    """ROW of fields."""

    root: Root = Root.ROW
    fields: tuple[Field, ...] = ()

    def body(self) -> str:
        return f"ROW<{', '.join(str(field) for field in self.fields)}>"


T = TypeVar("T", bound=DataType)


def with_nullable(dtype: T, nullable: bool) -> T:
    """The same type with the given nullability."""
    return dtype if dtype.nullable == nullable else replace(dtype, nullable=nullable)


def children(dtype: DataType) -> tuple[DataType, ...]:
    """The types directly inside a constructed type, in the order of the type text."""
    match dtype:
        case ElementType(element=element) | VectorType(element=element):
            return (element,)
        case MapType(key=key, value=value):
            return (key, value)
        case RowType(fields=fields):
            return tuple(field.type for field in fields)
    return ()


def walk(dtype: DataType) -> Iterator[DataType]:
    """The type and every type inside it, outermost first."""
    yield dtype
    for child in children(dtype):
        yield from walk(child)


BOOLEAN = SimpleType(Root.BOOLEAN)
TINYINT = SimpleType(Root.TINYINT)
SMALLINT = SimpleType(Root.SMALLINT)
INT = SimpleType(Root.INT)
BIGINT = SimpleType(Root.BIGINT)
FLOAT = SimpleType(Root.FLOAT)
DOUBLE = SimpleType(Root.DOUBLE)
DATE = SimpleType(Root.DATE)
STRING = LengthType(Root.VARCHAR, length=LENGTH_MAX)
BYTES = LengthType(Root.VARBINARY, length=LENGTH_MAX)
VARIANT = SimpleType(Root.VARIANT)
BLOB = SimpleType(Root.BLOB)
