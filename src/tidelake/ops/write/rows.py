"""The user's data as Arrow batches with exactly the table's columns, or an error that says why that is not possible.

A batch is checked before any of it is written: a value that does not fit its column, a null in a column without nulls,
a column that the table does not have or that is there twice raises an `InvalidInputError` with the column and the fix.
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
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import from_arrow, row_to_arrow, to_arrow
from tidelake.spec.types.data_types import Field

Fields = Mapping[str, Field]
"""The columns of the table by name; none if the table does not exist yet."""
BATCH_ROWS = 1 << 17


def as_table(data: Any) -> pa.Table:
    """Any supported data as one Arrow table with its own types, from which a table can be created.

    Raises:
        InvalidInputError: the data has no rows or no columns, or a column that a table cannot store.
    """
    data = plain_frame(data)
    table = data if isinstance(data, pa.Table) else join_batches(list(_arrow_batches(data, {})))
    for index, column in enumerate(table.schema):
        try:
            dtype = from_arrow(column.type, column.nullable)
        except InvalidInputError as error:
            error.facts.setdefault("column", column.name)
            raise
        field = Field(index, column.name, dtype)
        for chunk in table.column(index).chunks:
            # Checked before the table is created, because a value that does not fit would leave an empty table.
            fit_column(chunk, field, to_arrow(dtype), len(chunk))
    return table


def join_batches(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Join batches of one stream of rows to one table, in types that hold all their values.

    Raises:
        InvalidInputError: the list is empty, or the batches do not fit together.
    """
    if not batches:
        raise InvalidInputError(
            "table cannot be created from data without rows", hint="create it with a schema first, or write Arrow data"
        )
    try:
        # Batches of a stream of Python rows may have types of different widths.
        return pa.concat_tables([pa.Table.from_batches([each]) for each in batches], promote_options="permissive")
    except pa.ArrowException as cause:
        raise InvalidInputError(
            "batches of the data do not fit together",
            code="schema-mismatch",
            cause=str(cause).splitlines()[0][:200],
            hint="give all batches the same columns and types, or create the table first",
        ) from cause


def arrow_batches(data: Any, schema: Schema) -> Iterator[pa.RecordBatch]:
    """The rows of any supported data, with its own columns and types.

    Raises:
        InvalidInputError: the data has no rows and columns.
    """
    return _arrow_batches(data, {column.name: column for column in schema.fields})


def conform(batch: pa.RecordBatch, schema: Schema, target: pa.Schema | None = None) -> pa.RecordBatch:
    """Convert a batch to the table's columns and types, fill in defaults and check nulls.

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
    """The stream of batches of an object of another library.

    Raises:
        InvalidInputError: it has single values, not rows.
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
        "data has no rows and columns",
        got=type(data).__name__,
        cause=cause and cause.splitlines()[0][:200],
        hint="give Arrow, Polars or pandas data, a list of dicts, or an iterable of Arrow batches",
    )


def _read(stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches of a stream; errors of its source pass through, errors of Arrow become errors about the data."""
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
        item = _name_values(given, fields) if isinstance(given, tuple) else given
        if isinstance(item, Mapping):
            rows.append(item)
            if len(rows) < BATCH_ROWS:
                continue
        elif not (hasattr(item, "__arrow_c_stream__") or is_of("pandas", item) or is_of("polars", item)):
            raise InvalidInputError(
                "row is not a mapping", got=type(item).__name__, hint="write rows as dicts: {'id': 1, 'name': 'a'}"
            )
        if rows:  # written before the batch that follows them, so that rows keep their order
            yield from _from_rows(rows, fields)
            rows = []
        if not isinstance(item, Mapping):
            yield from _arrow_batches(item, fields)
    if rows:
        yield from _from_rows(rows, fields)


def _name_values(row: tuple[Any, ...], fields: Fields) -> Mapping[str, Any]:
    """A row by its own names, or else by the order of the table's columns."""
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
    # An empty dict is still a row; a column of nulls keeps it.
    names = list(dict.fromkeys(name for row in rows for name in row)) or list(fields)[:1]
    yield from _from_columns({name: [row.get(name) for row in rows] for name in names}, fields)


def _from_columns(columns: Mapping[str, Any], fields: Fields) -> Iterator[pa.RecordBatch]:
    arrays = {}
    for name, values in columns.items():
        if not isinstance(name, str):
            raise InvalidInputError("name of a column is not a text", got=repr(name)[:100])
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
    """Convert floats and texts of a value to decimals where the type has decimals, at every depth.

    A float becomes the shortest decimal that parses to it, as in a frame. Digits that do not fit are refused later.
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
    """Refuse what Arrow would drop silently: fractions of integers and of seconds, members that a ROW does not have.

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
            raise ValueError("a text is not an array")
        _check_exact([item for value in values if value is not None for item in value], known.value_type)
    elif kinds.is_map(known):
        pairs = [value.items() if isinstance(value, Mapping) else value for value in values if value is not None]
        _check_exact([key for value in pairs for key, _ in value], known.key_type)
        _check_exact([item for value in pairs for _, item in value], known.item_type)


def check_names(names: Sequence[str], schema: Schema) -> None:
    """Refuse columns that the table does not have, and columns that are there twice.

    Raises:
        InvalidInputError: there is such a column.
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
