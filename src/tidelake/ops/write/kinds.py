"""Row kinds in the data: `+I`, `-U`, `+U`, `-D`, in an additional column or in a column of the table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.ops.write.frames import plain_frame
from tidelake.ops.write.rows import arrow_batches, check_names, conform
from tidelake.spec.rows.row_kind import KINDS
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import row_to_arrow

ROWKIND: Final = "rowkind"
"""The column with row kinds, unless the table has a column of this name."""


def batches_with_kinds(
    data: Any, schema: Schema, *, column: str | None = None, field: str | None = None
) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
    """The rows of any supported data, in the table's columns and types, each batch with its row kinds.

    Args:
        data: The rows.
        schema: The table's schema.
        column: The column with row kinds; `rowkind` when None, if the data has it and the table does not.
        field: The column of the table with row kinds (`rowkind.field`).

    Raises:
        InvalidInputError: the data or one of its columns does not fit, or a row kind is not known.
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
                raise InvalidInputError(
                    "row-kind column does not exist in the data",
                    column=name,
                    hint="pass the name of an existing column",
                )
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
    """The row kinds in a column of texts, or of numbers."""
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
