"""Whatever a user hands over becomes Arrow batches of exactly the table's columns, or a refusal that says why.

Nothing is written before a batch has passed: a value that does not fit its column, a null where none may be, a column
that the table does not have or that is there twice is an `InvalidInputError` naming the column and the fix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.ops.write.frames import is_of, plain_frame
from tidelake.ops.write.values import check_exact_cast, fit_column, unfit
from tidelake.spec.arrow_types import from_arrow, row_to_arrow, to_arrow
from tidelake.spec.schema import Schema
from tidelake.spec.types import Field

Fields = Mapping[str, Field]
"""The columns of the table by their names; none when the table is yet to be made."""
BATCH_ROWS = 1 << 17


def as_table(data: Any) -> pa.Table:
    """Rows of any kind as one Arrow table, with the types they come with, fit to make a table of.

    Raises:
        InvalidInputError: the data holds no rows or no columns, or a table cannot hold one of them.
    """
    data = plain_frame(data)
    table = data if isinstance(data, pa.Table) else joined(list(_arrow_batches(data, {})))
    for index, column in enumerate(table.schema):
        try:
            dtype = from_arrow(column.type, column.nullable)
        except InvalidInputError as error:
            error.facts.setdefault("column", column.name)
            raise
        field = Field(index, column.name, dtype)
        for chunk in table.column(index).chunks:
            # Looked at before the table is made: a value that does not fit must not leave an empty one behind.
            fit_column(chunk, field, to_arrow(dtype), len(chunk))
    return table


def joined(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Batches of one stream of rows as one table, in types that hold the values of all of them.

    Raises:
        InvalidInputError: there are none, or they do not fit together.
    """
    if not batches:
        raise InvalidInputError(
            "a table cannot be made from no rows", hint="create it with a schema first, or write Arrow data"
        )
    try:
        # Batches of a stream of rows may have come out in different widths.
        return pa.concat_tables([pa.Table.from_batches([each]) for each in batches], promote_options="permissive")
    except pa.ArrowException as cause:
        raise InvalidInputError(
            "batches of the data do not fit together",
            code="schema-mismatch",
            cause=str(cause).splitlines()[0][:200],
            hint="give all batches the same columns and types, or create the table first",
        ) from cause


def arrow_batches(data: Any, schema: Schema) -> Iterator[pa.RecordBatch]:
    """The rows of anything that holds rows, with the columns and types they come with.

    Raises:
        InvalidInputError: the data is of a kind that holds no rows.
    """
    return _arrow_batches(data, {column.name: column for column in schema.fields})


def conform(batch: pa.RecordBatch, schema: Schema, target: pa.Schema | None = None) -> pa.RecordBatch:
    """One batch in the table's columns and types, defaults filled in and nulls checked.

    Raises:
        InvalidInputError: a column does not fit.
    """
    target = row_to_arrow(schema.fields) if target is None else target
    names = batch.schema.names
    check_names(names, schema)
    given = dict(zip(names, batch.columns, strict=True))
    columns = [
        fit_column(given.get(column.name), column, target.field(column.name).type, batch.num_rows)
        for column in schema.fields
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _arrow_batches(given: Any, fields: Fields) -> Iterator[pa.RecordBatch]:
    data = plain_frame(given)
    if isinstance(data, pa.Table):
        yield from data.to_batches(max_chunksize=BATCH_ROWS)
    elif isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.RecordBatchReader):
        yield from _read(data)
    elif hasattr(data, "__arrow_c_stream__"):
        yield from _read(arrow_stream(data))
    elif hasattr(data, "__arrow_c_array__"):
        yield _arrow_batch(data)
    elif hasattr(data, "to_arrow") and callable(data.to_arrow):
        yield from _arrow_batches(data.to_arrow(), fields)
    elif isinstance(data, Mapping):
        yield from _from_columns(data, fields)
    elif isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        yield from _from_items(data, fields)
    else:
        raise _no_rows(data)


def arrow_stream(data: Any) -> pa.RecordBatchReader:
    """The stream of batches that an object of another library offers.

    Raises:
        InvalidInputError: it offers single values, not rows.
    """
    try:
        return pa.RecordBatchReader.from_stream(data)
    except pa.ArrowException as cause:
        raise _no_rows(data, str(cause)) from cause


def _arrow_batch(data: Any) -> pa.RecordBatch:
    try:
        return pa.record_batch(data)
    except (pa.ArrowException, TypeError, ValueError) as cause:
        raise _no_rows(data, str(cause)) from cause


def _no_rows(data: Any, cause: str | None = None) -> InvalidInputError:
    return InvalidInputError(
        "data is of a kind that holds no rows",
        got=type(data).__name__,
        cause=cause and cause.splitlines()[0][:200],
        hint="give Arrow, Polars or pandas data, a list of dicts, or an iterable of Arrow batches",
    )


def _read(stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches of a stream; what its source raises comes through, what Arrow makes of it is told as bad data."""
    try:
        yield from stream
    except pa.ArrowException as cause:
        raise InvalidInputError(
            "stream of rows broke off",
            code="stream-broken",
            cause=str(cause).splitlines()[0][:200],
            hint="nothing was written: repair the source and write again",
        ) from cause


def _from_items(items: Iterable[Any], fields: Fields) -> Iterator[pa.RecordBatch]:
    rows: list[Mapping[str, Any]] = []
    for given in items:
        item = _named(given, fields) if isinstance(given, tuple) else given
        if isinstance(item, Mapping):
            rows.append(item)
            if len(rows) < BATCH_ROWS:
                continue
        elif not (hasattr(item, "__arrow_c_stream__") or is_of("pandas", item) or is_of("polars", item)):
            raise InvalidInputError(
                "row is no mapping", got=type(item).__name__, hint="write rows as dicts: {'id': 1, 'name': 'a'}"
            )
        if rows:  # before the batch that follows them: rows keep their order
            yield from _from_rows(rows, fields)
            rows = []
        if not isinstance(item, Mapping):
            yield from _arrow_batches(item, fields)
    if rows:
        yield from _from_rows(rows, fields)


def _named(row: tuple[Any, ...], fields: Fields) -> Mapping[str, Any]:
    """A row by the names it brings along, or else by the order of the table's columns."""
    names = getattr(row, "_fields", None) or getattr(row, "__fields__", None) or tuple(fields)
    if not names:
        raise InvalidInputError(
            "values of a row have no names", hint="write rows as dicts, or create the table with a schema first"
        )
    if len(names) != len(row):
        raise InvalidInputError(
            "row has another number of values than the table has columns",
            values=len(row),
            columns=", ".join(names),
            hint="give a value for every column, None for a missing one, or write rows as dicts",
        )
    return dict(zip(names, row, strict=True))


def _from_rows(rows: Sequence[Mapping[str, Any]], fields: Fields) -> Iterator[pa.RecordBatch]:
    # A row that says nothing is still a row: one column of nulls stands for it.
    names = list(dict.fromkeys(name for row in rows for name in row)) or list(fields)[:1]
    yield from _from_columns({name: [row.get(name) for row in rows] for name in names}, fields)


def _from_columns(columns: Mapping[str, Any], fields: Fields) -> Iterator[pa.RecordBatch]:
    arrays = {}
    for name, values in columns.items():
        if not isinstance(name, str):
            raise InvalidInputError("name of a column is no text", got=repr(name)[:100])
        arrays[name] = _array(name, values, fields.get(name))
    if len({len(array) for array in arrays.values()}) > 1:
        raise InvalidInputError(
            "columns are not of the same length",
            code="column-length",
            lengths=", ".join(f"{name} {len(array)}" for name, array in arrays.items()),
        )
    try:
        yield from pa.table(arrays).to_batches(max_chunksize=BATCH_ROWS)
    except (pa.ArrowException, UnicodeError) as cause:
        raise InvalidInputError("names of the columns cannot be used", cause=str(cause)[:200]) from cause


def _array(name: str, values: Any, column: Field | None) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    known = None if column is None else to_arrow(column.type)
    try:
        given = values if hasattr(values, "__len__") else list(values)
        if known is not None and _holds_decimal(known):
            if hasattr(given, "dtype"):
                return check_exact_cast(pa.array(given), known)
            given = [_with_decimals(value, known) for value in given]
        array = pa.array(given, known)
        if known is not None:
            _check_exact(given, known)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
        raise unfit(name, "any" if column is None else column.type, str(cause)) from cause
    return array


def _holds_decimal(dtype: pa.DataType) -> bool:
    return pa.types.is_decimal(dtype) or any(_holds_decimal(dtype.field(each).type) for each in range(dtype.num_fields))


def _with_decimals(value: Any, known: pa.DataType) -> Any:
    """A value whose floats and texts are decimals where the type wants that, at every depth.

    A float is the shortest decimal that reads as it, the same as in a frame. Digits that do not fit are refused later.
    """
    kinds = pa.types
    if value is None or not _holds_decimal(known):
        return value
    if kinds.is_decimal(known):
        if isinstance(value, str):
            return _decimal(value)
        return _decimal(repr(float(value))) if isinstance(value, float | np.floating) else value
    if kinds.is_struct(known) and isinstance(value, Mapping):
        types = {field.name: field.type for field in known}
        return {name: _with_decimals(each, types.get(name, pa.null())) for name, each in value.items()}
    if kinds.is_map(known) and not isinstance(value, (str, bytes)):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(_with_decimals(k, known.key_type), _with_decimals(v, known.item_type)) for k, v in pairs]
    if (kinds.is_list(known) or kinds.is_fixed_size_list(known)) and not isinstance(value, (str, bytes)):
        return [_with_decimals(each, known.value_type) for each in value]
    return value


def _decimal(text: str) -> Decimal:
    try:
        found = Decimal(text)
    except InvalidOperation as cause:
        raise ValueError(f"{text[:40]!r} is not a number") from cause
    if not found.is_finite():
        raise ValueError(f"{text[:40]} is not a number that a DECIMAL holds")
    return found


def _check_exact(values: Any, known: pa.DataType) -> None:
    """Refuse what Arrow would cut to fit: fractions of whole numbers and of seconds, members a ROW does not have.

    Raises:
        ValueError: a value would lose something.
    """
    kinds = pa.types
    if (
        kinds.is_integer(known)
        or kinds.is_timestamp(known)
        or kinds.is_time(known)
        or kinds.is_date(known)
        or kinds.is_float32(known)
    ):
        check_exact_cast(pa.array(values), known)
    elif kinds.is_struct(known):
        given = [value for value in values if isinstance(value, Mapping)]
        unknown = {name for value in given for name in value} - {field.name for field in known}
        if unknown:
            raise ValueError(f"row has no member {min(map(str, unknown))}")
        for field in known:
            _check_exact([value.get(field.name) for value in given], field.type)
    elif kinds.is_list(known) or kinds.is_fixed_size_list(known):
        if any(isinstance(value, (str, bytes)) for value in values):
            raise ValueError("a text is no array")
        _check_exact([item for value in values if value is not None for item in value], known.value_type)
    elif kinds.is_map(known):
        pairs = [value.items() if isinstance(value, Mapping) else value for value in values if value is not None]
        _check_exact([key for value in pairs for key, _ in value], known.key_type)
        _check_exact([item for value in pairs for _, item in value], known.item_type)


def check_names(names: Sequence[str], schema: Schema) -> None:
    """Refuse columns that the table does not have, and names that are there twice or missing.

    Raises:
        InvalidInputError: there is one.
    """
    known = {column.name: None for column in schema.fields}
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidInputError(
                "data has a column twice", code="column-duplicate", column=name, hint="rename or drop one of the two"
            )
        if name not in known:
            near = next((each for each in known if each.lower() == name.lower()), None)
            columns = ", ".join(known)
            raise InvalidInputError(
                "data has a column that the table does not have",
                code="column-unknown",
                column=name,
                hint=f"rename it to {near}" if near else f"drop it, or add it to the table; columns are {columns}",
            )
