"""Row kinds that come with the data: `+I`, `-U`, `+U`, `-D`, as a column beside the table's or one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.ops.write.frames import plain_frame
from tidelake.ops.write.rows import arrow_batches, check_names, conform
from tidelake.spec.arrow_types import row_to_arrow
from tidelake.spec.schema import Schema

ROWKIND: Final = "rowkind"
"""The column that carries kinds where the table has none of this name."""
KINDS: Final[Mapping[str, int]] = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}


def batches_with_kinds(
    data: Any, schema: Schema, *, column: str | None = None, field: str | None = None
) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
    """The rows of anything that holds rows, in the table's columns and types, each batch with the kinds of its rows.

    Args:
        data: The rows.
        schema: The table's schema.
        column: The column that carries kinds; `rowkind` when None, if the data has it and the table has not.
        field: The column of the table that carries kinds (`rowkind.field`).

    Raises:
        InvalidInputError: the data or one of its columns does not fit, or a kind is none.
    """
    target = row_to_arrow(schema.fields)
    data = plain_frame(data)
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        # wrong columns are wrong without rows too
        check_names([name for name in data.schema.names if name != (column or ROWKIND) or name in schema.names], schema)
    for batch in arrow_batches(data, schema):
        name = column or (ROWKIND if ROWKIND in batch.schema.names and ROWKIND not in schema.names else None)
        kinds: pa.Array | None = None
        if name is not None:
            if name not in batch.schema.names:
                raise InvalidInputError("data has no column with row kinds", column=name, hint="name one that it has")
            kinds = _numbers(batch.column(name), name)
            if name not in schema.names:
                batch = batch.drop_columns([name])
        if not batch.num_rows:
            continue
        rows = conform(batch, schema, target)
        if kinds is None and field is not None:
            kinds = _numbers(rows.column(field), field)
        yield rows, kinds


def _numbers(column: pa.Array, name: str) -> pa.Array:
    """The kinds of a column of texts, or of the numbers themselves."""
    if pa.types.is_integer(column.type):
        numbers = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        if column.null_count or not np.isin(numbers, list(KINDS.values())).all():
            raise _unknown(name)
        return column.cast(pa.int8())
    encoded = column.dictionary_encode() if not pa.types.is_dictionary(column.type) else column
    words = encoded.dictionary.to_pylist()
    if encoded.null_count or any(word not in KINDS for word in words):
        raise _unknown(name, next((word for word in words if word not in KINDS), None))
    return pa.array([KINDS[word] for word in words], pa.int8()).take(encoded.indices)


def _unknown(name: str, value: object = None) -> InvalidInputError:
    return InvalidInputError(
        "row kind is not known", column=name, value=value, hint=f"use one of {', '.join(KINDS)} in every row"
    )
