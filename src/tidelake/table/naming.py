"""Parses columns, types and positions as users write them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidelake.engine import engine, is_engine_frame
from tidelake.errors import InvalidInputError
from tidelake.ops.write.frames import arrow_type, columns_of
from tidelake.ops.write.rows import arrow_stream
from tidelake.spec.schemas.evolution import After, Before, First, Last, Position
from tidelake.spec.types.arrow_types import from_arrow
from tidelake.spec.types.data_types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, STRING, DataType, Root, TimeType
from tidelake.spec.types.type_codec import parse_type

if TYPE_CHECKING:
    from tidelake.table.engine_port import TableEngine

_PYTHON: Final[Mapping[object, DataType]] = {
    bool: BOOLEAN,
    int: BIGINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    dt.date: DATE,
    dt.datetime: TimeType(Root.TIMESTAMP, precision=6),
    dt.time: TimeType(Root.TIME, precision=3),
}
_BESIDE: Final = re.compile(r"(after|before)\s+`?(.+?)`?", re.IGNORECASE)


def path_of(name: str) -> str:
    """Check the name of a column, or with dots of a member of a ROW.

    Raises:
        InvalidInputError: it is not a text.
    """
    if not isinstance(name, str):
        raise InvalidInputError("name of a column is not text", got=repr(name)[:100], hint='write "name"')
    return name


def to_data_type(dtype: Any) -> DataType:
    """Return the data type for its text, or for a type of Python, Arrow, Polars, NumPy or pandas.

    Raises:
        InvalidInputError: it is not a type, or has no counterpart here.
    """
    if isinstance(dtype, DataType):
        return dtype
    if isinstance(dtype, str):
        return parse_type(dtype)
    found = _PYTHON.get(dtype) if isinstance(dtype, type) else None
    if found is not None:
        return found
    arrow = arrow_type(dtype)
    if arrow is None:
        raise InvalidInputError("type is neither text nor a type", got=repr(dtype)[:100], hint='write "BIGINT"')
    return from_arrow(arrow)


def column_types(schema: Any) -> dict[str, DataType]:
    """Return the column names with their types, from a mapping, a schema or a frame.

    Raises:
        InvalidInputError: two columns share a name, or a type has no counterpart.
    """
    if isinstance(schema, Mapping):
        return {_name(name): _typed_column(name, dtype) for name, dtype in schema.items()}
    if is_engine_frame(schema):
        port: TableEngine[object] = engine()
        return port.column_types(schema)
    schema = columns_of(schema)
    if hasattr(schema, "__arrow_c_schema__") and not isinstance(schema, pa.Schema):
        schema = pa.schema(schema)
    elif hasattr(schema, "__arrow_c_stream__"):
        schema = arrow_stream(schema).schema
    if not isinstance(schema, pa.Schema):
        raise InvalidInputError(
            "schema has an unknown form",
            got=type(schema).__name__,
            hint='write {"id": "BIGINT", "name": "STRING"}, or give an Arrow or Polars schema, df.dtypes, or a frame',
        )
    if len(set(schema.names)) < len(schema.names):
        raise InvalidInputError("two columns share a name", columns=", ".join(schema.names))
    return {column.name: from_arrow(column.type, column.nullable) for column in schema}


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidInputError("name of a column is not text", got=repr(name)[:100], hint='write "name"')
    return name


def _typed_column(name: object, dtype: Any) -> DataType:
    try:
        return to_data_type(dtype)
    except InvalidInputError as error:
        error.facts.setdefault("column", ascii(name)[1:-1][:80])
        raise


def position_of(place: Any) -> Position:
    """Parse a position: `"first"`, `"last"`, `"after id"`, `"before id"`, or an object of the class of that name.

    Raises:
        InvalidInputError: it is not a position.
    """
    if isinstance(place, First | Last | After | Before):
        return place
    word = place.strip().lower() if isinstance(place, str) else place
    if word in ("first", First):
        return First()
    if word in ("last", Last):
        return Last()
    beside = _BESIDE.fullmatch(place.strip()) if isinstance(place, str) else None
    if beside is None:
        raise InvalidInputError(
            "position of a column is not known",
            got=repr(place)[:100],
            hint='write "first", "last", "after id" or "before id"',
        )
    return After(beside[2]) if beside[1].lower() == "after" else Before(beside[2])


def names_of(given: Iterable[str]) -> tuple[str, ...]:
    """Return one name, or several, as a tuple.

    Raises:
        InvalidInputError: it is neither.
    """
    if not isinstance(given, Iterable):
        raise InvalidInputError("names must be a list of texts", got=repr(given)[:100])
    return (given,) if isinstance(given, str) else tuple(given)
