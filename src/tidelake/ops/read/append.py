"""Rows of append splits as Arrow batches: files in order, each read with the schema it was written with.

A generator holds one batch at a time; nothing is gathered here.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidelake.errors import FormatError, NotFoundError
from tidelake.expr.tree import Predicate
from tidelake.files.keyed import keyed_fields
from tidelake.files.options import format_of
from tidelake.files.read import read_file
from tidelake.index.deletion_vectors import Positions
from tidelake.ops.scan.split import Split
from tidelake.spec.arrow_types import row_to_arrow
from tidelake.spec.data_file import DataFile
from tidelake.spec.layout import TableLayout
from tidelake.spec.schema import Schema
from tidelake.spec.types import Field
from tidelake.store.external import open_external
from tidelake.store.schemas import SchemaStore
from tidelake.store.snapshots import expired
from tidelake.store.table_store import TableStore
from tidelake.store.vectors import read_vector

_LOG = logging.getLogger(__name__)
BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What a reader wants of each row: columns, a filter, and how many rows at most."""

    schema: Schema
    columns: tuple[str, ...]
    where: Predicate | None = None
    limit: int | None = None
    ignore_corrupt_files: bool = False
    ignore_lost_files: bool = False
    share: tuple[int, int] = (0, 1)
    """Which of how many parts of each file is read; the parts together are the file."""

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


def read_data_file(
    store: TableStore,
    split: Split,
    file: DataFile,
    request: ReadRequest,
    *,
    batch_rows: int = BATCH_ROWS,
    row_numbers: bool = False,
    dictionaries: Collection[str] = (),
    stream: bool = False,
    only: Positions | None = None,
    loosely: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of one file of a split, or `only` those at some places; with `row_numbers` also the place of each.

    Columns named in `dictionaries` come as Arrow dictionaries where the file has them so. With `stream`, memory holds a
    batch at a time, not a row group. `loosely`, the condition only rules out row groups.

    Raises:
        FormatError: the file is missing or damaged, or lies outside the table and its external roots.
        UnsupportedError: the file lies outside the table on a storage, or in a format, that is not read yet.
    """
    io, path = store.env.io, split.path_of(file)
    if file.external_path is not None:
        io, path = open_external(io, store.schema.options, file.external_path)
    file_fields = _file_fields(store, split, file)  # outside: a missing schema is no damaged data file
    try:
        deleted = deleted_rows(store, split, file)
        yield from read_file(
            io,
            path,
            format=format_of(file.file_name),
            file_fields=file_fields,
            read_fields=request.fields,
            where=request.where,
            filter_fields=request.schema.fields,
            batch_rows=batch_rows,
            row_numbers=row_numbers,
            skip=deleted,
            only=only,
            dictionaries=dictionaries,
            stream=stream,
            loosely=loosely,
            share=request.share,
            file_size=file.file_size,
            row_count=file.row_count,
        )
    except FormatError as cause:
        if not request.ignore_corrupt_files:
            raise
        _LOG.warning("left out the rest of a damaged data file: %s", cause)
    except NotFoundError as cause:
        if request.ignore_lost_files:
            _LOG.warning("left out a data file that is gone: %s", path)
            return
        raise lost_file(store, split, path, cause) from cause


def lost_file(store: TableStore, split: Split, path: str, cause: NotFoundError) -> NotFoundError | FormatError:
    """The error for a file of a split that is not there: its snapshot expired, or the table is damaged."""
    if split.branch is None and not store.snapshots.exists(split.snapshot_id) and not store.is_dropped():
        return expired(split.snapshot_id, store.env.io.root, cause)
    return FormatError(
        "data file is missing",
        code="file-missing",
        path=path,
        table=store.env.io.root,
        snapshot_id=split.snapshot_id,
        hint="the snapshot expired or the table was dropped meanwhile: open it again; else run check()",
    )


def deleted_rows(store: TableStore, split: Split, file: DataFile) -> Positions | None:
    """The positions of the deleted rows of a file of a split; None if it has no deletion vector.

    Raises:
        NotFoundError: the file that holds the vector is gone.
        FormatError: the vector is damaged, or does not fit the file.
    """
    vector = split.vectors.get(file.file_name)
    if vector is None:
        return None
    return read_vector(store, vector, row_count=file.row_count, neighbours=split.vectors.values())


def live_rows(store: TableStore, split: Split, files: Iterable[DataFile]) -> int:
    """How many rows of files of a split are not deleted; a vector is read only where the metadata does not tell.

    Raises:
        NotFoundError: the snapshot expired, and a file that holds a vector is gone.
        FormatError: a vector is missing or damaged, or does not fit its file.
    """
    count = 0
    for file in files:
        vector = split.vectors.get(file.file_name)
        known = 0 if vector is None else vector.cardinality
        if known is None:
            try:
                deleted = deleted_rows(store, split, file)
            except NotFoundError as cause:
                raise lost_file(store, split, split.path_of(file), cause) from cause
            known = 0 if deleted is None else len(deleted)
        count += file.row_count - known
    return count


def _file_fields(store: TableStore, split: Split, file: DataFile) -> Sequence[Field]:
    schemas = store.schemas
    if split.branch is not None and split.branch != store.layout.branch:
        schemas = SchemaStore(store.env.io, TableLayout(branch=split.branch))
    schema = schemas.get(file.schema_id)
    return keyed_fields(schema) if schema.primary_keys else schema.fields
