"""`t$row_tracking`: the rows of a table that tracks rows, each with its id and the sequence number of its last change.

The id of a row is that of the first row of its file plus its position. Files whose rows have their own ids inside are
refused: their metadata does not say the id of the first one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.files.read.data_file import ROW_NUMBER
from tidelake.ops.context import TableContext
from tidelake.ops.read.append import read_data_file
from tidelake.ops.scan.batch import plan_batch
from tidelake.ops.scan.request import ReadRequest
from tidelake.options.capabilities import refuse_reading
from tidelake.spec.data_file import DataFile
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.schemas.schema_options import SchemaOptions
from tidelake.spec.types.arrow_types import row_to_arrow
from tidelake.spec.types.data_types import BIGINT, Field, with_nullable

__all__ = ["read_tracked_rows", "row_tracking_schema"]

_IDS: Final = (
    Field(2147483642, "_ROW_ID", with_nullable(BIGINT, False)),
    Field(2147483646, "_SEQUENCE_NUMBER", with_nullable(BIGINT, False)),
)


def row_tracking_schema(context: TableContext) -> Schema:
    """The columns of the table, and behind them those of the row's identity.

    Raises:
        InvalidInputError: the table does not track rows.
        UnsupportedError: its rows are spread over several files.
    """
    options = context.table_options.of(SchemaOptions)
    if not options.row_tracking:
        raise InvalidInputError(
            "table does not track rows",
            table=context.name,
            option="row-tracking.enabled",
            hint="the option is set when a table is created",
        )
    if options.data_evolution:
        raise UnsupportedError(
            "rows whose columns are in several files are not read yet",
            table=context.name,
            option="data-evolution.enabled",
            hint="read the table with Apache Paimon",
        )
    schema = context.schema
    return replace(schema, fields=(*schema.fields, *_IDS), primary_keys=())


def read_tracked_rows(context: TableContext) -> Iterator[pa.RecordBatch]:
    """The rows of the snapshot that the options name, file by file.

    Raises:
        UnsupportedError: the ids of the rows of a file are not in its metadata.
        FormatError: a file is missing or damaged.
    """
    refuse_reading(context.store.schemas.newest_known(context.schema).options)
    target = row_to_arrow(row_tracking_schema(context).fields)
    request = ReadRequest(schema=context.schema, columns=context.schema.names)
    for split in plan_batch(context, request).splits:
        for file in split.files:
            first, sequence = _identity(file)
            for rows in read_data_file(context.store, split, file, replace(request, positions=True)):
                ids = pc.add(rows.column(ROW_NUMBER), first)
                numbers = pa.repeat(pa.scalar(sequence, pa.int64()), rows.num_rows)
                own = [rows.column(name) for name in request.columns]
                yield pa.RecordBatch.from_arrays([*own, ids, numbers], schema=target)


def _identity(file: DataFile) -> tuple[int, int]:
    if file.first_row_id is None:
        raise UnsupportedError(
            "row ids of a data file are not in its metadata",
            file=file.file_name,
            hint="read the table with Apache Paimon",
        )
    return file.first_row_id, file.max_sequence
