"""Rows of append splits as Arrow batches: files in order, each read with the schema it was written with.

A generator holds one batch at a time; nothing is gathered here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidelake.errors import FormatError, NotFoundError, UnsupportedError
from tidelake.expr.tree import Predicate
from tidelake.files.options import format_of
from tidelake.files.read import read_file
from tidelake.ops.scan.split import Split
from tidelake.spec.arrow_types import row_to_arrow
from tidelake.spec.data_file import DataFile
from tidelake.spec.schema import Schema
from tidelake.spec.types import Field
from tidelake.store.table_store import TableStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What a reader wants of each row: columns, a filter, and how many rows at most."""

    schema: Schema
    columns: tuple[str, ...]
    where: Predicate | None = None
    limit: int | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The wanted columns, in the order asked for."""
        return tuple(self.schema.field(name) for name in self.columns)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return row_to_arrow(self.fields)


def read_splits(store: TableStore, splits: Iterable[Split], request: ReadRequest) -> Iterator[pa.RecordBatch]:
    """The rows of splits, one after the other.

    Raises:
        FormatError: a file is missing or damaged.
    """
    left = request.limit
    for split in splits:
        for file in split.files:
            if left == 0:
                return
            for batch in read_data_file(store, split, file, request):
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= batch.num_rows
                if batch.num_rows:
                    yield batch
                if left == 0:
                    break


def read_data_file(store: TableStore, split: Split, file: DataFile, request: ReadRequest) -> Iterator[pa.RecordBatch]:
    """The rows of one file of a split.

    Raises:
        FormatError: the file is missing or damaged.
        UnsupportedError: the file lies outside the table, or in a format that is not read yet.
    """
    if file.external_path is not None:
        raise UnsupportedError(
            "data file lies outside the table", path=file.external_path, option="data-file.external-paths"
        )
    path = split.path_of(file)
    try:
        yield from read_file(
            store.env.io,
            path,
            format=format_of(file.file_name),
            file_fields=_file_fields(store, file),
            read_fields=request.fields,
            where=request.where,
            filter_fields=request.schema.fields,
        )
    except NotFoundError as cause:
        raise FormatError(
            "data file is missing",
            code="file-missing",
            path=path,
            table=store.env.io.root,
            snapshot_id=split.snapshot_id,
            hint="the snapshot may have expired meanwhile: plan again; else run check()",
        ) from cause


def _file_fields(store: TableStore, file: DataFile) -> Sequence[Field]:
    return store.schemas.get(file.schema_id).fields
