"""DELETE and UPDATE of append tables by copy on write.

Files that hold a matching row are read, changed and written anew; the commit deletes the old ones and adds the new
ones in one snapshot. It is planned on one snapshot and refused if another job removed one of those files meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.expr.evaluate import matches
from tidelake.expr.tree import Predicate
from tidelake.files.describe import describe
from tidelake.files.options import FileOptions
from tidelake.files.write import RollingWriter
from tidelake.io.clock import local_time_ms
from tidelake.ops.commit.messages import CommitMessage, DataIncrement
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import DataFile
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

Change = Callable[[pa.RecordBatch, pa.BooleanArray], pa.RecordBatch]
"""The rows that replace a batch, given which of its rows match."""


@dataclass(frozen=True, slots=True)
class RowLevelResult:
    """Messages to commit, and how many rows and files are affected."""

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
    *,
    target_bytes: int,
) -> RowLevelResult:
    """Rewrite every file that holds a matching row.

    Raises:
        FormatError: a file is missing or damaged; nothing is left behind.
    """
    rewriter = _Rewriter(store, paths, where, change, files, target_bytes)
    messages: list[CommitMessage] = []
    rows = touched = 0
    try:
        for split in splits:
            for file in split.files:
                message, hits = rewriter.rewrite(split, file)
                if message is not None:
                    messages.append(message)
                    rows += hits
                    touched += 1
    except Exception:
        rewriter.abort(messages)
        raise
    return RowLevelResult(tuple(messages), rows, touched)


@dataclass(frozen=True, slots=True)
class _Rewriter:
    store: TableStore
    paths: DataPaths
    where: Predicate
    change: Change
    files: FileOptions
    target_bytes: int

    def rewrite(self, split: Split, file: DataFile) -> tuple[CommitMessage | None, int]:
        """One file: counted first, so that a file without a match is not written for nothing."""
        schema = self.store.schema
        probe = ReadRequest(schema=schema, columns=tuple(sorted(self.where.columns())), where=self.where)
        hits = (
            sum(batch.num_rows for batch in read_data_file(self.store, split, file, probe))
            if probe.columns
            else file.row_count
        )
        if hits == 0:
            return None, 0
        uuid = self.store.env.ids.uuid()
        count = iter(range(1 << 62))
        writer = RollingWriter(
            self.store.env.io,
            self.paths.bucket(split.partition, split.bucket),
            schema.fields,
            names=lambda extension: f"{self.files.prefix}{uuid}-{next(count)}.{extension}",
            format=self.files.format,
            options=self.files,
            target_bytes=self.target_bytes,
        )
        try:
            for batch in self._changed(split, file):
                if batch.num_rows:
                    writer.write(batch)
            written = writer.close()
        except Exception:
            writer.abort()
            raise
        new: list[DataFile] = []
        sequence, time_ms = file.min_sequence, local_time_ms(self.store.env.clock)
        for each in written:
            new.append(describe(each, schema, self.files, sequence=sequence, time_ms=time_ms))
            sequence += each.row_count
        increment = DataIncrement(new_files=tuple(new), deleted_files=(file,))
        message = CommitMessage(
            partition=split.partition, bucket=split.bucket, total_buckets=split.total_buckets, data=increment
        )
        return message, hits

    def _changed(self, split: Split, file: DataFile) -> Iterator[pa.RecordBatch]:
        schema = self.store.schema
        request = ReadRequest(schema=schema, columns=tuple(field.name for field in schema.fields))
        for batch in read_data_file(self.store, split, file, request):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            hit = matches(self.where, columns, batch.num_rows)
            yield self.change(batch, hit)

    def abort(self, messages: Sequence[CommitMessage]) -> None:
        for message in messages:
            for file in message.data.new_files:
                folder = self.paths.bucket(message.partition, message.bucket)
                self.store.env.io.delete(f"{folder}/{file.file_name}")
