"""Rows of append splits as Arrow batches: files in order, each read with the schema it was written with.

Generators hold one batch at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from tidelake.errors import FormatError, NotFoundError
from tidelake.files.options import format_of
from tidelake.files.read.data_file import read_file
from tidelake.files.read.request import StoredFile
from tidelake.files.write.keyed import keyed_fields
from tidelake.index.vector_codec import Positions
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import DataFile
from tidelake.spec.layout import TableLayout
from tidelake.spec.types.data_types import Field
from tidelake.store.deletion_vectors import read_vector
from tidelake.store.external import open_external
from tidelake.store.schemas import SchemaStore
from tidelake.store.snapshots import make_expired_error
from tidelake.store.table_store import TableStore

__all__ = ["ReadRequest", "deleted_rows", "live_rows", "lost_file", "read_data_file", "read_splits"]

_LOG = logging.getLogger(__name__)


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
    store: TableStore, split: Split, file: DataFile, request: ReadRequest, *, only: Positions | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of one file of a split, or `only` those at some positions.

    Raises:
        FormatError: the file is missing or damaged, or outside the table and its external roots.
        UnsupportedError: the file is outside the table on a storage, or in a format, that cannot be read yet.
    """
    io, path = store.env.io, split.path_of(file)
    if file.external_path is not None:
        io, path = open_external(io, store.schema.options, file.external_path)
    file_fields = _file_fields(store, split, file)  # not inside `try`: a missing schema is not a damaged data file
    try:
        deleted = deleted_rows(store, split, file)
        stored = StoredFile(
            io=io,
            path=path,
            format=format_of(file.file_name),
            fields=file_fields,
            size=file.file_size,
            row_count=file.row_count,
            deleted=deleted,
            only=only,
        )
        yield from read_file(stored, request.for_files())
    except FormatError as cause:
        if not request.ignore_corrupt_files:
            raise
        _LOG.warning("skipped the rest of a damaged data file: %s", cause)
    except NotFoundError as cause:
        if request.ignore_lost_files:
            _LOG.warning("skipped a data file that is gone: %s", path)
            return
        raise lost_file(store, split, path, cause) from cause


def lost_file(store: TableStore, split: Split, path: str, cause: NotFoundError) -> NotFoundError | FormatError:
    """Make the error for a missing file of a split: its snapshot expired, or the table is damaged."""
    if split.branch is None and not store.snapshots.exists(split.snapshot_id) and not store.is_dropped():
        return make_expired_error(split.snapshot_id, store.env.io.root, cause)
    return FormatError(
        "data file is missing",
        code="file-missing",
        path=path,
        table=store.env.io.root,
        snapshot_id=split.snapshot_id,
        hint="if the snapshot expired or the table was dropped since, open it again; else run check()",
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
    """How many rows of files of a split are not deleted; a vector is read only if the metadata lacks its size.

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
