"""DELETE, UPDATE and MERGE of append tables by copy on write.

Files that hold a matching row are read, changed and rewritten; the commit deletes the old files and adds the new ones
in one snapshot. It is planned on one snapshot and refused if another job removed one of these files in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.cleanup import undo_on_error
from tidelake.errors import CommitConflictError, StorageError
from tidelake.expr.evaluate import matches
from tidelake.expr.tree import Predicate
from tidelake.files.options import FileOptions
from tidelake.files.read.data_file import ROW_NUMBER
from tidelake.files.write.bucket import BucketWriter
from tidelake.io.fileio import join
from tidelake.ops.commit.messages import CommitMessage, DataIncrement
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import DataFile
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

ROWS_CHANGED: Final = "rows-changed"
"""Code of the conflict that a new plan solves: another commit changed the same rows first."""
Ints = np.ndarray[Any, np.dtype[np.int64]]
Change = Callable[[pa.RecordBatch, pa.BooleanArray], pa.RecordBatch]
"""Makes the rows that replace a batch, given which of its rows match."""


def rows_changed(store: TableStore, snapshot_id: int, bucket: int | None = None) -> CommitConflictError:
    """The error for a change whose rows a snapshot has changed since they were read, or may have if it expired."""
    return CommitConflictError(
        "another commit changed the same rows first",
        code=ROWS_CHANGED,
        table=store.env.io.root,
        snapshot_id=snapshot_id,
        bucket=bucket,
        hint="read the rows again and repeat the change",
    )


@dataclass(frozen=True, slots=True)
class RowLevelResult:
    """Messages to commit, and the number of affected rows and files."""

    messages: tuple[CommitMessage, ...]
    rows: int
    files: int


def delete_rows(batch: pa.RecordBatch, hit: pa.BooleanArray) -> pa.RecordBatch:
    """The rows of a batch that stay."""
    return batch.filter(pc.invert(hit))


def rewrite_matching(
    store: TableStore,
    paths: DataPaths,
    splits: Sequence[Split],
    where: Predicate,
    change: Change,
    files: FileOptions,
) -> RowLevelResult:
    """Rewrite every file that holds a matching row.

    Raises:
        FormatError: a file is missing or damaged; the new files are removed.
    """
    rewriter = _Rewriter(store, paths, where, change, files)
    messages: list[CommitMessage] = []
    rows = touched = 0
    with undo_on_error(lambda: rewriter.abort(messages)):
        for split in splits:
            for file in split.files:
                message, hits = rewriter.rewrite(split, file)
                if message is not None:
                    messages.append(message)
                    rows += hits
                    touched += 1
    return RowLevelResult(tuple(messages), rows, touched)


@dataclass(slots=True)
class CopiedFiles:
    """Removes rows from files by copying the other rows to new files."""

    store: TableStore
    paths: DataPaths
    files: FileOptions
    _messages: list[CommitMessage] = field(default_factory=list)

    def take(
        self, split: Split, file: DataFile, positions: Ints, taken: Callable[[pa.RecordBatch, int], None] | None = None
    ) -> None:
        """Remove the rows at these ascending positions from a file.

        `taken` gets the whole rows batch by batch, with the index of the first one in `positions`.

        Raises:
            FormatError: the file is missing or damaged.
            StorageError: the storage failed.
        """
        schema = self.store.schema
        request = ReadRequest(schema=schema, columns=schema.names, positions=True)
        folder = self.paths.bucket(split.partition, split.bucket)
        writer = BucketWriter(self.store.env, folder, schema, self.files)
        with undo_on_error(writer.abort):
            for batch in read_data_file(self.store, split, file, request):
                numbers = batch.column(ROW_NUMBER).to_numpy()
                rows = batch.select(list(schema.names))
                first, end = np.searchsorted(positions, [numbers[0], numbers[-1] + 1])
                here = np.searchsorted(numbers, positions[first:end])
                if taken is not None and len(here):
                    taken(rows.take(pa.array(here)), int(first))
                stays = np.ones(len(numbers), dtype=bool)
                stays[here] = False
                if stays.any():
                    writer.write(rows.filter(pa.array(stays)) if len(here) else rows)
            new = writer.close(sequence=file.min_sequence)
        increment = DataIncrement(new_files=new, deleted_files=(file,))
        self._messages.append(
            CommitMessage(
                partition=split.partition, bucket=split.bucket, total_buckets=split.total_buckets, data=increment
            )
        )

    def finish(self) -> tuple[CommitMessage, ...]:
        """Describe the changes for the committer."""
        return tuple(self._messages)

    def abort(self) -> None:
        """Remove the new files; those that cannot be removed are orphans."""
        _remove(self.store, self.paths, self._messages)


@dataclass(frozen=True, slots=True)
class _Rewriter:
    store: TableStore
    paths: DataPaths
    where: Predicate
    change: Change
    files: FileOptions

    def rewrite(self, split: Split, file: DataFile) -> tuple[CommitMessage | None, int]:
        """Rewrite one file; matches are counted first, because a file without any does not have to be rewritten."""
        schema = self.store.schema
        probe = ReadRequest(schema=schema, columns=tuple(sorted(self.where.columns())), where=self.where)
        hits = (
            sum(batch.num_rows for batch in read_data_file(self.store, split, file, probe))
            if probe.columns
            else file.row_count
        )
        if hits == 0:
            return None, 0
        folder = self.paths.bucket(split.partition, split.bucket)
        writer = BucketWriter(self.store.env, folder, schema, self.files)
        with undo_on_error(writer.abort):
            for batch in self._change_rows(split, file):
                if batch.num_rows:
                    writer.write(batch)
            new = writer.close(sequence=file.min_sequence)
        increment = DataIncrement(new_files=new, deleted_files=(file,))
        message = CommitMessage(
            partition=split.partition, bucket=split.bucket, total_buckets=split.total_buckets, data=increment
        )
        return message, hits

    def _change_rows(self, split: Split, file: DataFile) -> Iterator[pa.RecordBatch]:
        schema = self.store.schema
        request = ReadRequest(schema=schema, columns=tuple(field.name for field in schema.fields))
        for batch in read_data_file(self.store, split, file, request):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            hit = matches(self.where, columns, batch.num_rows)
            yield self.change(batch, hit)

    def abort(self, messages: Sequence[CommitMessage]) -> None:
        _remove(self.store, self.paths, messages)


def _remove(store: TableStore, paths: DataPaths, messages: Sequence[CommitMessage]) -> None:
    for message in messages:
        folder = paths.bucket(message.partition, message.bucket)
        for file in message.data.new_files:
            # A file that cannot be removed becomes an orphan; the error that is being raised matters more.
            with suppress(StorageError):
                store.env.io.delete(join(folder, file.file_name))
