"""Sequence numbers of rows that another commit overtook: the new files are written again above them.

The port of the committer, in process. Of a message only what it wrote is kept: a compaction that was planned on the
older state is left to the next one, and its files are removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidelake.errors import StorageError
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
            FormatError: a file is missing or damaged.
            StorageError: the storage failed.
        """
        return tuple(
            self._above(message, floors[message.partition, message.bucket], base_snapshot_id) for message in messages
        )

    def _above(self, message: CommitMessage, floor: int, base_snapshot_id: int) -> CommitMessage:
        split = Split(
            snapshot_id=base_snapshot_id,
            partition=message.partition,
            bucket=message.bucket,
            bucket_path=self.paths.bucket(message.partition, message.bucket),
            total_buckets=message.total_buckets or -1,
            files=message.data.new_files,
        )
        shift = floor + 1 - min(file.min_sequence for file in message.data.new_files)
        files = tuple(new for file in message.data.new_files for new in self._shifted(split, file, shift))
        moved = {file.file_name for file in message.compact.before}
        made = [file for file in message.compact.after if file.file_name not in moved]
        for file in (*message.data.new_files, *made):
            with suppress(StorageError):  # found by orphan cleaning
                self.store.env.io.delete(split.path_of(file))
        return replace(
            message,
            data=replace(message.data, new_files=files),
            compact=CompactIncrement(),
            base_snapshot_id=base_snapshot_id,
        )

    def _shifted(self, split: Split, file: DataFile, shift: int) -> tuple[DataFile, ...]:
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
        )
        try:
            for batch in read_data_file(self.store, split, file, request):
                rows = pa.Table.from_batches([batch])
                place = rows.column_names.index(SEQUENCE)
                numbers = rows.column(SEQUENCE).to_numpy() + np.int64(shift)
                writer.write(rows.set_column(place, rows.schema.field(place), pa.array(numbers)))
            return writer.close()
        except BaseException:
            writer.abort()
            raise
