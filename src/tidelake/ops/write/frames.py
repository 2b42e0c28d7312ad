"""Frames of pandas and Polars as Arrow data, with pandas indexes and the types that Arrow does not know.

Neither library is imported unless its data is given. Invariant: nothing that identifies a row is lost. Every named
level of a pandas index becomes a column, whatever its values are; an unnamed level only numbers the rows and is
dropped.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelake.errors import InvalidInputError

if TYPE_CHECKING:
    import polars as pl


def is_of(library: str, data: object) -> bool:
    """Whether the data is of a class of this library, or of one derived from it."""
    return any(each.__module__.partition(".")[0] == library for each in type(data).__mro__)


def plain_frame(data: Any) -> Any:
    """A frame of pandas or Polars as an Arrow table; other data is returned unchanged.

    Raises:
        InvalidInputError: a column is there twice, or its values cannot be stored in a table.
    """
    if is_of("pandas", data):
        return _from_pandas(data)
    return _from_polars(data) if is_of("polars", data) else data


def columns_of(data: Any) -> Any:
    """The columns of a frame of pandas or Polars, without its rows where that saves reading them; else the data.

    Raises:
        InvalidInputError: a column is there twice, or its type cannot be stored in a table.
    """
    if is_of("pandas", data) and not hasattr(data, "columns"):
        return _from_dtypes(data)
    if not is_of("polars", data):
        return plain_frame(data)
    import polars as pl

    if isinstance(data, pl.LazyFrame):
        return plain_frame(pl.DataFrame(schema=data.collect_schema()))
    return plain_frame(data.clear() if isinstance(data, pl.DataFrame) else data)


def arrow_type(dtype: Any) -> pa.DataType | None:
    """The Arrow type for a type of Arrow, Polars, NumPy or pandas; None for anything else.

    Raises:
        InvalidInputError: the type does not say what its values are.
    """
    if isinstance(dtype, pa.DataType):
        return dtype
    if is_of("polars", dtype):
        return _polars_type(dtype)
    if is_of("pandas", dtype) or is_of("numpy", dtype) or isinstance(dtype, type):
        return _numpy_type(dtype)
    return None


# ------------------------------------------------------------------------------------------------ pandas


def _numpy_type(dtype: Any) -> pa.DataType | None:
    categories = getattr(dtype, "categories", None)
    if categories is not None:
        return _numpy_type(categories.dtype)
    if isinstance(dtype, type) and not is_of("numpy", dtype) and dtype.__module__.partition(".")[0] != "numpy":
        return None
    try:
        if is_of("pandas", dtype):
            import pandas as pd

            if not isinstance(dtype, pd.api.extensions.ExtensionDtype):
                return None
            found = pa.array(pd.Series([], dtype=dtype), from_pandas=True).type
        else:
            found = pa.from_numpy_dtype(dtype)
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError):
        found = pa.null()
    if pa.types.is_null(found):
        raise InvalidInputError(
            "type does not say what its values are", type=str(dtype)[:80], hint='name the type: {"column": "STRING"}'
        )
    return found


def _from_dtypes(series: Any) -> pa.Schema:
    """The columns that `df.dtypes` describes."""
    names = [str(name) for name in series.index]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(
            "data has a column twice", code="column-duplicate", column=twice, hint="rename or drop one of the two"
        )
    columns = []
    for name, dtype in zip(names, series, strict=True):
        try:
            found = arrow_type(dtype)
        except InvalidInputError as error:
            error.facts.setdefault("column", name)
            raise
        if found is None:
            raise _no_frame(series)
        columns.append(pa.field(name, found))
    return pa.schema(columns)


def _from_pandas(frame: Any) -> pa.Table:
    if not hasattr(frame, "columns"):
        raise _no_frame(frame)
    if frame.columns.nlevels > 1:
        raise InvalidInputError(
            "names of columns have several levels", got=str(frame.columns[0])[:80], hint="give each column one name"
        )
    levels = [level for level, name in enumerate(frame.index.names) if name is not None]
    names = [str(name) for name in [*(frame.index.names[level] for level in levels), *frame.columns]]
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice in names[: len(levels)]:
        raise InvalidInputError(
            "index and columns of the frame share a name",
            code="column-duplicate",
            column=twice,
            hint="rename the index, or drop it with reset_index(drop=True)",
        )
    if twice is not None:
        raise InvalidInputError(
            "data has a column twice", code="column-duplicate", column=twice, hint="rename or drop one of the two"
        )
    try:
        whole = frame.reset_index(level=levels) if levels else frame
        return pa.Table.from_pandas(whole, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
        raise InvalidInputError(
            "frame cannot be turned into rows",
            code="value-type",
            cause="; ".join(str(part) for part in cause.args)[:200],
            hint="give every column values of one type",
        ) from cause


# ------------------------------------------------------------------------------------------------ Polars


def _from_polars(data: Any) -> pa.Table:
    import polars as pl

    frame = data.collect() if isinstance(data, pl.LazyFrame) else data
    if not isinstance(frame, pl.DataFrame):
        raise _no_frame(data)
    stored = {name: _to_storable_type(dtype, name) for name, dtype in frame.schema.items()}
    other = {name: dtype for name, dtype in stored.items() if dtype != frame.schema[name]}
    try:
        return pa.table(frame.cast(other) if other else frame)  # type: ignore[arg-type]
    except pl.exceptions.PolarsError as cause:
        raise InvalidInputError(
            "value does not fit its column",
            code="value-type",
            columns=", ".join(other),
            cause=str(cause).splitlines()[0][:200],
            hint="cast the column to a type that a table has",
        ) from cause


def _polars_type(dtype: Any) -> pa.DataType:
    import polars as pl

    try:
        empty = pl.DataFrame(schema={"column": dtype})
    except (pl.exceptions.PolarsError, TypeError, ValueError) as cause:
        raise InvalidInputError(
            "type does not say what its values are", type=str(dtype)[:80], hint="give the type inside it too"
        ) from cause
    return _from_polars(empty).schema.field(0).type


def _to_storable_type(dtype: pl.DataType, column: str) -> pl.DataType:
    """The Polars type that holds the same values and that Arrow knows.

    Raises:
        InvalidInputError: no such type exists.
    """
    import polars as pl

    match dtype:
        case pl.Categorical() | pl.Enum():
            return pl.String()
        case pl.Int128():
            return pl.Decimal(38, 0)
        case pl.List():
            return pl.List(_to_storable_type(dtype.inner, column))  # type: ignore[arg-type]
        case pl.Array():
            return pl.Array(_to_storable_type(dtype.inner, column), dtype.size)  # type: ignore[arg-type]
        case pl.Struct():
            return pl.Struct({each.name: _to_storable_type(each.dtype, column) for each in dtype.fields})  # type: ignore[arg-type]
        case pl.Object():
            hint = "a table cannot store Python objects: convert them to texts, numbers or structs"
            raise InvalidInputError("column holds Python objects", column=column, type=dtype, hint=hint)
        case pl.UInt128():
            hint = "cast the column to pl.Decimal(38, 0)"
            raise InvalidInputError("type of the column cannot be stored", column=column, type=dtype, hint=hint)
    return dtype


def _no_frame(data: object) -> InvalidInputError:
    return InvalidInputError(
        "data has no rows and columns", got=type(data).__name__, hint="convert it to a frame with to_frame()"
    )
