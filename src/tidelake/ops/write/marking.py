"""DELETE, UPDATE and MERGE of append tables with deletion vectors: rows are marked, files stay as they are.

The positions of matching rows are added to the vectors of their files, in one OVERWRITE snapshot with the new versions
of updated rows. A file none of whose rows is left is removed. The commit is planned on one snapshot and refused if
another job removed one of the files, or marked other rows of them, meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidelake.expr.tree import Predicate
from tidelake.files.read import ROW_NUMBER
from tidelake.index.deletion_vectors import bitmap_of
from tidelake.ops.commit.messages import CommitMessage, DataIncrement
from tidelake.ops.compact.vectors import index_files_of, rolls, run_update
from tidelake.ops.read.append import ReadRequest, live_rows, read_data_file
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import DataFile
from tidelake.spec.snapshot import Snapshot
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore
from tidelake.store.vectors import VectorOptions, remove_index_files

if TYPE_CHECKING:
    from pyroaring import BitMap

__all__ = ["MarkedFiles", "Marks", "find_matching", "mark_rows"]

Place = tuple[bytes, int]
Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(slots=True)
class Marks:
    """Rows to delete, by the bucket and the data file they lie in."""

    files: dict[Place, dict[str, tuple[Split, DataFile, BitMap]]] = field(default_factory=dict)

    def add(self, split: Split, file: DataFile, positions: BitMap) -> None:
        """Note rows of a file; none of them is deleted yet."""
        if not positions:
            return
        of_bucket = self.files.setdefault((split.partition, split.bucket), {})
        known = of_bucket.get(file.file_name)
        of_bucket[file.file_name] = (split, file, positions if known is None else known[2] | positions)

    @property
    def rows(self) -> int:
        """How many rows are noted."""
        return sum(len(each[2]) for files in self.files.values() for each in files.values())


def find_matching(
    store: TableStore,
    splits: Sequence[Split],
    where: Predicate,
    take: Callable[[pa.RecordBatch], None] | None = None,
) -> Marks:
    """The rows that a condition keeps; `take` is given them whole, in their order.

    Raises:
        FormatError: a file is missing or damaged.
    """
    schema = store.schema
    names = tuple(each.name for each in schema.fields) if take is not None else ()
    request = ReadRequest(schema=schema, columns=names, where=where)

    def look(piece: tuple[Split, DataFile]) -> BitMap:
        split, file = piece
        found = bitmap_of(np.zeros(0, np.int64))
        for batch in read_data_file(store, split, file, request, row_numbers=True):
            found |= bitmap_of(batch.column(ROW_NUMBER).to_numpy())
            if take is not None:
                take(batch.drop_columns([ROW_NUMBER]))
        return found

    pieces = [(split, file) for split in splits for file in split.files]
    found = store.env.executor.map(look, pieces) if take is None else map(look, pieces)
    marks = Marks()
    for (split, file), positions in zip(pieces, found, strict=True):
        marks.add(split, file, positions)
    return marks


@dataclass(slots=True)
class MarkedFiles:
    """Takes rows out of files by marking them; the files stay as they are."""

    store: TableStore
    paths: DataPaths
    snapshot: Snapshot
    options: Mapping[str, str]
    marks: Marks = field(default_factory=Marks)
    _messages: tuple[CommitMessage, ...] = ()

    def take(
        self, split: Split, file: DataFile, positions: Ints, taken: Callable[[pa.RecordBatch, int], None] | None = None
    ) -> None:
        """Take the rows at these positions, which ascend, out of a file.

        `taken` is shown the whole rows a batch at a time, with the number of its first among the positions.

        Raises:
            FormatError: the file is missing or damaged.
        """
        self.marks.add(split, file, bitmap_of(positions))
        if taken is None:
            return
        request = ReadRequest(schema=self.store.schema, columns=self.store.schema.names)
        first = 0
        for batch in read_data_file(self.store, split, file, request, only=positions):
            taken(batch, first)
            first += batch.num_rows

    def finish(self) -> tuple[CommitMessage, ...]:
        """Write the vectors; raises like `mark_rows`."""
        self._messages = mark_rows(self.store, self.paths, self.snapshot, self.marks, self.options)
        return self._messages

    def abort(self) -> None:
        """Remove the vectors; what cannot be removed now is an orphan."""
        _remove(self.store, self.paths, self._messages)


def mark_rows(
    store: TableStore, paths: DataPaths, snapshot: Snapshot, marks: Marks, options: Mapping[str, str]
) -> tuple[CommitMessage, ...]:
    """Write the vectors that delete these rows of a snapshot; files that are left without a row are removed.

    Raises:
        FormatError: an index file is missing or damaged; nothing is left behind.
        StorageError: the storage failed; nothing is left behind that it lets us remove.
    """
    chosen = VectorOptions.parse(options)
    rolled = rolls(store.schema, options)
    known = index_files_of(store, snapshot)
    messages: list[CommitMessage] = []
    try:
        for place, files in marks.files.items():
            partition, bucket = place
            gone = [file for split, file, rows in files.values() if live_rows(store, split, (file,)) == len(rows)]
            names = frozenset(file.file_name for file in gone)
            update = run_update(
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
    except BaseException:
        _remove(store, paths, messages)
        raise
    return tuple(messages)


def _remove(store: TableStore, paths: DataPaths, messages: Sequence[CommitMessage]) -> None:
    for message in messages:
        new = message.data.new_index_files
        remove_index_files(store, paths, new, partition=message.partition, bucket=message.bucket)
