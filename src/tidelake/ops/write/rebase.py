"""Sequence numbers of rows that another commit overtook: the new files are written again above them.

The port of the committer, in process. A compaction that read the files which are written again is left to the next one;
one that did not goes with the message as before. Nothing that the messages name is removed here: until the commit is
published, a repetition of it starts from the same files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidelake.files.keyed import KIND_FIELD, SEQUENCE_FIELD, KeyedWriter
from tidelake.files.options import FileOptions
from tidelake.lsm.engine import SEQUENCE
from tidelake.ops.commit.messages import CommitMessage, CompactIncrement
from tidelake.ops.read.append import read_data_file
from tidelake.ops.read.keyed import KeyedRequest
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import DataFile, FileSource
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore


@dataclass(frozen=True, slots=True)
class InProcessRebaser:
    """Rewrites new level-0 files so that their sequence numbers lie above a bucket's maximum."""

    store: TableStore
    paths: DataPaths
    files: FileOptions
    thin: bool = False

    def rebase(
        self, messages: Sequence[CommitMessage], floors: Mapping[tuple[bytes, int], int], *, base_snapshot_id: int
    ) -> tuple[CommitMessage, ...]:
        """Messages with files whose numbers start above `floors`, based on the given snapshot.

        Raises:
            FormatError: a file is missing or damaged; nothing is left behind.
            StorageError: the storage failed; nothing is left behind that it lets us remove.
        """
        writers: list[KeyedWriter] = []
        try:
            return tuple(
                self._above(message, floors[message.partition, message.bucket], base_snapshot_id, writers)
                for message in messages
            )
        except BaseException:
            for writer in writers:
                writer.abort()
            raise

    def _above(
        self, message: CommitMessage, floor: int, base_snapshot_id: int, writers: list[KeyedWriter]
    ) -> CommitMessage:
        split = Split(
            snapshot_id=base_snapshot_id,
            partition=message.partition,
            bucket=message.bucket,
            bucket_path=self.paths.bucket(message.partition, message.bucket),
            total_buckets=message.total_buckets or -1,
            files=message.data.new_files,
        )
        shift = floor + 1 - min(file.min_sequence for file in message.data.new_files)
        files = tuple(new for file in message.data.new_files for new in self._shifted(split, file, shift, writers))
        told = tuple(
            new
            for file in message.data.changelog_files
            for new in self._shifted(split, file, shift, writers, changelog=True)
        )
        old = {file.file_name for file in message.data.new_files}
        stands = old.isdisjoint(file.file_name for file in message.compact.before)
        return replace(
            message,
            data=replace(message.data, new_files=files, changelog_files=told),
            compact=message.compact if stands else CompactIncrement(),
            base_snapshot_id=base_snapshot_id,
        )

    def _shifted(
        self, split: Split, file: DataFile, shift: int, writers: list[KeyedWriter], *, changelog: bool = False
    ) -> tuple[DataFile, ...]:
        schema = self.store.schemas.get(file.schema_id)
        request = KeyedRequest(schema=schema, columns=schema.names, wanted=(SEQUENCE_FIELD, KIND_FIELD, *schema.fields))
        writer = KeyedWriter(
            self.store.env,
            split.bucket_path,
            schema,
            self.files,
            level=0,
            source=FileSource.APPEND,
            thin=self.thin,
            changelog=changelog,
        )
        writers.append(writer)
        for batch in read_data_file(self.store, split, file, request):
            rows = pa.Table.from_batches([batch])
            place = rows.column_names.index(SEQUENCE)
            numbers = rows.column(SEQUENCE).to_numpy() + np.int64(shift)
            writer.write(rows.set_column(place, rows.schema.field(place), pa.array(numbers)))
        return writer.close()
