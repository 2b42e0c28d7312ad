"""Whatever a user hands over becomes Arrow batches of exactly the table's columns, or a refusal that says why.

Nothing is written before a batch has passed: a value that does not fit its column, a null where none may be, a column
that the table does not have or that is there twice is an `InvalidInputError` naming the column and the fix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.spec.arrow_types import row_to_arrow
from tidelake.spec.cast_values import cast_array
from tidelake.spec.schema import Schema
from tidelake.spec.types import STRING, Field, LengthType, Root

BATCH_ROWS = 1 << 17


def to_batches(data: Any, schema: Schema) -> Iterator[pa.RecordBatch]:
    """The rows of anything that holds rows, in the table's columns and types.

    Raises:
        InvalidInputError: the data or one of its columns does not fit.
    """
    target = row_to_arrow(schema.fields)
    for batch in _arrow_batches(data, target):
        if batch.num_rows:
            yield conform(batch, schema, target)


def conform(batch: pa.RecordBatch, schema: Schema, target: pa.Schema | None = None) -> pa.RecordBatch:
    """One batch in the table's columns and types, defaults filled in and nulls checked.

    Raises:
        InvalidInputError: a column does not fit.
    """
    target = row_to_arrow(schema.fields) if target is None else target
    names = batch.schema.names
    _check_names(names, schema)
    columns = [_column(batch, column, target.field(column.name)) for column in schema.fields]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _arrow_batches(data: Any, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    if isinstance(data, pa.Table):
        yield from data.to_batches(max_chunksize=BATCH_ROWS)
    elif isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, (pa.RecordBatchReader,)) or hasattr(data, "__arrow_c_stream__"):
        yield from pa.RecordBatchReader.from_stream(data)
    elif hasattr(data, "__arrow_c_array__"):
        yield pa.record_batch(data)
    elif hasattr(data, "to_arrow") and callable(data.to_arrow):
        yield from _arrow_batches(data.to_arrow(), target)
    elif type(data).__module__.partition(".")[0] == "pandas":
        yield from pa.Table.from_pandas(data, preserve_index=False).to_batches(max_chunksize=BATCH_ROWS)
    elif isinstance(data, Mapping):
        yield from _from_columns(data, target)
    elif isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        yield from _from_items(data, target)
    else:
        raise InvalidInputError(
            "data is of a kind that holds no rows",
            got=type(data).__name__,
            hint="give Arrow, Polars or pandas data, a list of dicts, or an iterable of Arrow batches",
        )


def _from_items(items: Iterable[Any], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    rows: list[Mapping[str, Any]] = []
    for item in items:
        if isinstance(item, Mapping):
            rows.append(item)
            if len(rows) >= BATCH_ROWS:
                yield from _from_rows(rows, target)
                rows = []
        elif isinstance(item, (pa.RecordBatch, pa.Table)) or hasattr(item, "__arrow_c_stream__"):
            yield from _arrow_batches(item, target)
        else:
            raise InvalidInputError(
                "row is no mapping", got=type(item).__name__, hint="write rows as dicts: {'id': 1, 'name': 'a'}"
            )
    if rows:
        yield from _from_rows(rows, target)


def _from_rows(rows: Sequence[Mapping[str, Any]], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    yield from _from_columns({name: [row.get(name) for row in rows] for name in names}, target)


def _from_columns(columns: Mapping[str, Any], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    arrays = {}
    for name, values in columns.items():
        known = target.field(name).type if name in target.names else None
        try:
            arrays[name] = pa.array(values, known)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
            raise _unfit(str(name), known or "any", str(cause)) from cause
    yield from pa.table(arrays).to_batches(max_chunksize=BATCH_ROWS)


def _check_names(names: Sequence[str], schema: Schema) -> None:
    known = {column.name for column in schema.fields}
    for name in names:
        if names.count(name) > 1:
            raise InvalidInputError("data has a column twice", code="column-duplicate", column=name)
        if name not in known:
            near = next((k for k in known if k.lower() == name.lower()), None)
            raise InvalidInputError(
                "data has a column that the table does not have",
                code="column-unknown",
                column=name,
                hint=f"rename it to {near}"
                if near
                else f"drop it, or add it to the table; columns are {', '.join(known)}",
            )


def _column(batch: pa.RecordBatch, column: Field, target: pa.Field) -> pa.Array:
    if column.name not in batch.schema.names:
        values = pa.nulls(batch.num_rows, target.type)
    else:
        values = batch.column(column.name)
    if pa.types.is_dictionary(values.type) or isinstance(values, pa.ExtensionArray):
        values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values.storage
    if values.type != target.type:
        try:
            values = values.cast(target.type)
        except (pa.ArrowException, ValueError) as cause:
            raise _unfit(column.name, column.type, str(cause)) from cause
    if column.default is not None and values.null_count:
        default = cast_array(pa.array([column.default]), STRING, column.type)
        values = pc.fill_null(values, default[0])
    if values.null_count and not column.type.nullable:
        missing = column.name not in batch.schema.names
        raise InvalidInputError(
            "column must not be null",
            code="null-value",
            column=column.name,
            hint="the data does not have it" if missing else f"{values.null_count} rows have no value",
        )
    _check_length(values, column)
    return values


def _check_length(values: pa.Array, column: Field) -> None:
    dtype = column.type
    if not isinstance(dtype, LengthType) or dtype.length == 2**31 - 1:
        return
    sizes = pc.utf8_length(values) if dtype.root in (Root.CHAR, Root.VARCHAR) else pc.binary_length(values)
    longest = pc.max(sizes).as_py()
    if longest is not None and longest > dtype.length:
        raise InvalidInputError(
            "value is longer than its column allows",
            code="value-too-long",
            column=column.name,
            type=dtype,
            length=longest,
            hint="shorten it, or change the column's type",
        )


def _unfit(column: str, dtype: object, cause: str) -> InvalidInputError:
    return InvalidInputError(
        "value does not fit its column",
        code="value-type",
        column=column,
        type=dtype,
        cause=cause.splitlines()[0][:200] if cause else "",
        hint="cast the data to the column's type before writing",
    )
