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
from tidelake.spec.arrow_nested import compact, map_children
from tidelake.spec.arrow_types import row_to_arrow
from tidelake.spec.cast_values import cast_array
from tidelake.spec.schema import Schema
from tidelake.spec.types import STRING, DataType, ElementType, Field, LengthType, MapType, Root, RowType

BATCH_ROWS = 1 << 17


def as_table(data: Any) -> pa.Table:
    """Rows of any kind as one Arrow table, with the types they come with.

    Raises:
        InvalidInputError: the data holds no rows, or no columns to make a table from.
    """
    if isinstance(data, pa.Table):
        return data
    batches = list(_arrow_batches(data, pa.schema([])))
    if not batches:
        raise InvalidInputError(
            "a table cannot be made from no rows", hint="create it with a schema first, or write Arrow data"
        )
    return pa.Table.from_batches(batches)


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
    # A row that says nothing is still a row: one column of nulls stands for it.
    names = list(dict.fromkeys(name for row in rows for name in row)) or target.names[:1]
    yield from _from_columns({name: [row.get(name) for row in rows] for name in names}, target)


def _from_columns(columns: Mapping[str, Any], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    arrays = {}
    for name, values in columns.items():
        if not isinstance(name, str):
            raise InvalidInputError("name of a column is no text", got=repr(name)[:100])
        known = target.field(name).type if name in target.names else None
        try:
            arrays[name] = pa.array(values, known)
            if known is not None:
                _check_exact(values, known)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
            raise _unfit(name, known or "any", str(cause)) from cause
    if len({len(array) for array in arrays.values()}) > 1:
        raise InvalidInputError(
            "columns are not of the same length",
            code="column-length",
            lengths=", ".join(f"{name} {len(array)}" for name, array in arrays.items()),
        )
    yield from pa.table(arrays).to_batches(max_chunksize=BATCH_ROWS)


def _check_exact(values: Any, known: pa.DataType) -> None:
    """Refuse what Arrow would cut to fit: fractions of whole numbers and of seconds, members a ROW does not have.

    Raises:
        ValueError: a value would lose something.
    """
    kinds = pa.types
    if kinds.is_integer(known) or kinds.is_timestamp(known) or kinds.is_time(known) or kinds.is_date(known):
        pa.array(values).cast(known)
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
    _check_lengths(values, column.type, column.name)
    for inner, dtype, place in _members(values, column.type, column.name):
        _check_member(inner, dtype, place)
    return values


def _members(values: pa.Array, dtype: DataType, place: str) -> Iterator[tuple[pa.Array, DataType, str]]:
    """What the values of a nested type hold, those of nulls left out."""
    if isinstance(dtype, RowType):
        for field, inner in zip(dtype.fields, values.drop_null().flatten(), strict=True):
            yield inner, field.type, f"{place}.{field.name}"
    elif isinstance(dtype, MapType):
        keys, items = map_children(compact(values.drop_null()))
        yield keys, dtype.key, f"{place}.key"
        yield items, dtype.value, f"{place}.value"
    elif isinstance(dtype, ElementType) and dtype.root is not Root.MULTISET:
        yield values.flatten(), dtype.element, f"{place}.element"


def _check_member(values: pa.Array, dtype: DataType, place: str) -> None:
    if values.null_count and not dtype.nullable:
        raise InvalidInputError(
            "column must not be null", code="null-value", column=place, hint=f"{values.null_count} values are missing"
        )
    _check_lengths(values, dtype, place)
    for inner, inner_type, inner_place in _members(values, dtype, place):
        _check_member(inner, inner_type, inner_place)


def _check_lengths(values: pa.Array, dtype: DataType, place: str) -> None:
    if not isinstance(dtype, LengthType) or dtype.length == 2**31 - 1:
        return
    sizes = pc.utf8_length(values) if dtype.root in (Root.CHAR, Root.VARCHAR) else pc.binary_length(values)
    longest = pc.max(sizes).as_py()
    if longest is not None and longest > dtype.length:
        raise InvalidInputError(
            "value is longer than its column allows",
            code="value-too-long",
            column=place,
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
