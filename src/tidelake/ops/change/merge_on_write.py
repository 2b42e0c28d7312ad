"""DELETE, UPDATE and MERGE of append tables with deletion vectors: data files stay as they are.

The positions of matching rows are added to the vectors of their files, in one OVERWRITE snapshot with the new versions
of updated rows. A file without any live row left is removed. The commit is planned on one snapshot and refused if
another job removed one of the files, or changed their vectors, in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidelake.cleanup import undo_on_error
from tidelake.expr.tree import Predicate
from tidelake.files.read.data_file import ROW_NUMBER
from tidelake.index.vector_codec import bitmap_of
from tidelake.ops.commit.messages import CommitMessage, DataIncrement
from tidelake.ops.read.append import ReadRequest, live_rows, read_data_file
from tidelake.ops.scan.split import Split
from tidelake.ops.vectors.vector_writer import index_files_of, rolls, write_index_files
from tidelake.options import TableOptions
from tidelake.spec.data_file import DataFile
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.rows.bucket_function import PartitionBucket
from tidelake.store.deletion_vectors import VectorOptions, remove_index_files
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

if TYPE_CHECKING:
    from pyroaring import BitMap

__all__ = ["MarkedFiles", "RowsToDelete", "find_matching", "mark_rows"]

Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(slots=True)
class RowsToDelete:
    """Positions of rows to delete, by bucket and data file."""

    files: dict[PartitionBucket, dict[str, tuple[Split, DataFile, BitMap]]] = field(default_factory=dict)

    def add(self, split: Split, file: DataFile, positions: BitMap) -> None:
        """Add rows of a file; none of them is deleted yet."""
        if not positions:
            return
        of_bucket = self.files.setdefault((split.partition, split.bucket), {})
        known = of_bucket.get(file.file_name)
        of_bucket[file.file_name] = (split, file, positions if known is None else known[2] | positions)

    @property
    def rows(self) -> int:
        """The number of rows to delete."""
        return sum(len(each[2]) for files in self.files.values() for each in files.values())


def find_matching(
    store: TableStore,
    splits: Sequence[Split],
    where: Predicate,
    take: Callable[[pa.RecordBatch], None] | None = None,
) -> RowsToDelete:
    """Find the rows that match a condition; `take` gets the whole rows, in their order.

    Raises:
        FormatError: a file is missing or damaged.
    """
    schema = store.schema
    names = tuple(each.name for each in schema.fields) if take is not None else ()
    request = ReadRequest(schema=schema, columns=names, where=where, positions=True)

    def look(piece: tuple[Split, DataFile]) -> BitMap:
        split, file = piece
        found = bitmap_of(np.zeros(0, np.int64))
        for batch in read_data_file(store, split, file, request):
            found |= bitmap_of(batch.column(ROW_NUMBER).to_numpy())
            if take is not None:
                take(batch.drop_columns([ROW_NUMBER]))
        return found

    pieces = [(split, file) for split in splits for file in split.files]
    found = store.env.executor.map(look, pieces) if take is None else map(look, pieces)
    to_delete = RowsToDelete()
    for (split, file), positions in zip(pieces, found, strict=True):
        to_delete.add(split, file, positions)
    return to_delete


@dataclass(slots=True)
class MarkedFiles:
    """Deletes rows with deletion vectors; the data files stay as they are."""

    store: TableStore
    paths: DataPaths
    snapshot: Snapshot
    options: TableOptions
    to_delete: RowsToDelete = field(default_factory=RowsToDelete)
    _messages: tuple[CommitMessage, ...] = ()

    def take(
        self, split: Split, file: DataFile, positions: Ints, taken: Callable[[pa.RecordBatch, int], None] | None = None
    ) -> None:
        """Delete the rows at these ascending positions of a file.

        `taken` gets the whole rows batch by batch, with the index of the first one in `positions`.

        Raises:
            FormatError: the file is missing or damaged.
        """
        self.to_delete.add(split, file, bitmap_of(positions))
        if taken is None:
            return
        request = ReadRequest(schema=self.store.schema, columns=self.store.schema.names)
        first = 0
        for batch in read_data_file(self.store, split, file, request, only=positions):
            taken(batch, first)
            first += batch.num_rows

    def finish(self) -> tuple[CommitMessage, ...]:
        """Write the vectors; raises the errors of `mark_rows`."""
        self._messages = mark_rows(self.store, self.paths, self.snapshot, self.to_delete, self.options)
        return self._messages

    def abort(self) -> None:
        """Remove the new index files; those that cannot be removed are orphans."""
        _remove(self.store, self.paths, self._messages)


def mark_rows(
    store: TableStore, paths: DataPaths, snapshot: Snapshot, to_delete: RowsToDelete, options: TableOptions
) -> tuple[CommitMessage, ...]:
    """Write the vectors that delete these rows of a snapshot; files without any live row left are removed.

    Raises:
        FormatError: an index file is missing or damaged; the new files are removed.
        StorageError: the storage failed; the new files are removed as far as it lets us.
    """
    chosen = options.of(VectorOptions)
    rolled = rolls(store.schema, options)
    known = index_files_of(store, snapshot)
    messages: list[CommitMessage] = []
    with undo_on_error(lambda: _remove(store, paths, messages)):
        for place, files in to_delete.files.items():
            partition, bucket = place
            gone = [file for split, file, rows in files.values() if live_rows(store, split, (file,)) == len(rows)]
            names = frozenset(file.file_name for file in gone)
            update = write_index_files(
                store,
                paths,
                known.get(place, ()),
                partition=partition,
                bucket=bucket,
                marked={name: rows for name, (_, _, rows) in files.items() if name not in names},
                removed=names,
                options=chosen,
                rolled=rolled,
            )
            split = next(iter(files.values()))[0]
            messages.append(
                CommitMessage(
                    partition=partition,
                    bucket=bucket,
                    total_buckets=split.total_buckets,
                    data=DataIncrement(
                        deleted_files=tuple(gone), new_index_files=update.new, deleted_index_files=update.deleted
                    ),
                )
            )
    return tuple(messages)


def _remove(store: TableStore, paths: DataPaths, messages: Sequence[CommitMessage]) -> None:
    for message in messages:
        new = message.data.new_index_files
        remove_index_files(store, paths, new, partition=message.partition, bucket=message.bucket)
