"""Whatever a user hands over becomes Arrow batches of exactly the table's columns, or a refusal that says why.

Nothing is written before a batch has passed: a value that does not fit its column, a null where none may be, a column
that the table does not have or that is there twice is an `InvalidInputError` naming the column and the fix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidelake.errors import InvalidInputError
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


def _arrow_batches(data: Any, fields: Fields) -> Iterator[pa.RecordBatch]:
    if isinstance(data, pa.Table):
        yield from data.to_batches(max_chunksize=BATCH_ROWS)
    elif isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.RecordBatchReader):
        yield from _read(data)
    elif hasattr(data, "__arrow_c_stream__"):
        yield from _read(pa.RecordBatchReader.from_stream(data))
    elif hasattr(data, "__arrow_c_array__"):
        yield pa.record_batch(data)
    elif hasattr(data, "to_arrow") and callable(data.to_arrow):
        yield from _arrow_batches(data.to_arrow(), fields)
    elif type(data).__module__.partition(".")[0] == "pandas":
        yield from _from_pandas(data)
    elif isinstance(data, Mapping):
        yield from _from_columns(data, fields)
    elif isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        yield from _from_items(data, fields)
    else:
        raise InvalidInputError(
            "data is of a kind that holds no rows",
            got=type(data).__name__,
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


def _from_pandas(frame: Any) -> Iterator[pa.RecordBatch]:
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as cause:
        raise InvalidInputError(
            "frame cannot be turned into rows",
            code="value-type",
            cause=str(cause).splitlines()[0][:200],
            hint="give every column values of one type",
        ) from cause
    yield from table.to_batches(max_chunksize=BATCH_ROWS)


def _from_items(items: Iterable[Any], fields: Fields) -> Iterator[pa.RecordBatch]:
    rows: list[Mapping[str, Any]] = []
    for item in items:
        if isinstance(item, Mapping):
            rows.append(item)
            if len(rows) < BATCH_ROWS:
                continue
        elif not (isinstance(item, pa.RecordBatch | pa.Table) or hasattr(item, "__arrow_c_stream__")):
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
        array = pa.array(given, known)
        if known is not None:
            _check_exact(given, known)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
        raise unfit(name, "any" if column is None else column.type, str(cause)) from cause
    return array


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
