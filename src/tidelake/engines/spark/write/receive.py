"""Write rows that other tasks sent, and report the files to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from tidelake.cleanup import undo_on_error
from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.bridge.output import TaskOutput, report_output
from tidelake.engines.spark.bridge.packed_rows import Ints, unpack_rows
from tidelake.engines.spark.write.batches import join_batches
from tidelake.errors import StorageError
from tidelake.lsm.engine import KIND
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.table import Table

BUCKET: Final = "__tidelake_bucket"


@dataclass(frozen=True, slots=True)
class ReceiveRows:
    """Writes rows that were sent with their row kinds, and perhaps with their buckets."""

    ref: TableRef
    base_id: int
    """The snapshot that all tasks start from, 0 for none."""
    overwrite: bool = False
    identifier: int | None = None
    counts: Mapping[bytes, int] = field(default_factory=dict)
    """How many buckets each partition has, where the table does not say it (`bucket` = -2)."""
    compacts: bool | None = None
    """Whether the writer compacts; None leaves that to the option `write-only`."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows, and report the files."""
        yield from report_output(batches, lambda: self._write(batches))

    def _write(self, batches: Iterable[pa.RecordBatch]) -> TaskOutput:
        table = self.ref.open()
        owner_runs: set[int] = set()

        def unpack_and_note_runs() -> Iterator[pa.RecordBatch]:
            for each in unpack_rows(batches):
                owner_runs.add(each.run_id)
                yield each.rows

        writer = self.open_writer(table)
        with undo_on_error(writer.abort, ignore=(StorageError,)):
            for rows in join_batches(unpack_and_note_runs()):
                write_rows(writer, rows)
            messages = self.prepare_messages(table, writer)
        return TaskOutput(messages, tuple(owner_runs))

    def open_writer(self, table: Table) -> KeyedTableWriter:
        """Open the writer."""
        # A local merge, if any, ran before the rows were sent: another one here would only cost time.
        return KeyedTableWriter(
            table.context,
            self.overwrite,
            base_id=self.base_id,
            counts=self.counts,
            compacts=self.compacts,
            merges_locally=False,
        )

    def prepare_messages(self, table: Table, writer: KeyedTableWriter) -> tuple[CommitMessage, ...]:
        """Close the files, and describe them."""
        del table
        return tuple(writer.prepare(self.identifier, wait=True))


def write_rows(writer: KeyedTableWriter, rows: pa.RecordBatch) -> None:
    """Write rows with their kinds, and to the buckets that they were sent with, if they were."""
    buckets: Ints | None = None
    if BUCKET in rows.schema.names:
        buckets = rows.column(BUCKET).to_numpy()
        rows = rows.drop_columns([BUCKET])
    writer.write(rows.drop_columns([KIND]), rows.column(KIND), buckets)
