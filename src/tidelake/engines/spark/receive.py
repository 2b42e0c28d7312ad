"""What a task that writes hands back to the driver, and the task that writes the rows of parcels."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from tidelake.engines.spark.batches import joined
from tidelake.engines.spark.failures import outcome
from tidelake.engines.spark.parcels import Ints, opened
from tidelake.engines.spark.remote import TableRef
from tidelake.errors import StorageError
from tidelake.lsm.engine import KIND
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.table import Table

DONE: Final = "done binary"
"""The column of a frame of what tasks did."""
BUCKET: Final = "__tidelake_bucket"
LOCAL_MERGE: Final = "local-merge-buffer-size"


@dataclass(frozen=True, slots=True)
class Done:
    """What a task did."""

    messages: tuple[CommitMessage, ...] = ()
    marks: tuple[int, ...] = ()


def told(batches: Iterable[pa.RecordBatch], work: Callable[[], Done]) -> Iterator[pa.RecordBatch]:
    """What a task did with its rows, or the error that trying again cannot help, as a row for the driver."""
    done = outcome(work)
    # The rest of the rows has to be taken, or Spark waits for ever to hand it over.
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"done": pa.array([pickle.dumps(done)], pa.binary())})


@dataclass(frozen=True, slots=True)
class Receiving:
    """Writes the rows of parcels, which have their kinds and perhaps their buckets, and describes the files."""

    ref: TableRef
    base_id: int
    """The snapshot that every task starts from, 0 for none."""
    overwrite: bool = False
    identifier: int | None = None
    counts: Mapping[bytes, int] = field(default_factory=dict)
    """The numbers of buckets of partitions where the table leaves them open."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the task did, for the driver."""
        yield from told(batches, lambda: self._done(batches))

    def _done(self, batches: Iterable[pa.RecordBatch]) -> Done:
        table = self.ref.open()
        marks: set[int] = set()

        def marked() -> Iterator[pa.RecordBatch]:
            for parcel in opened(batches):
                marks.add(parcel.mark)
                yield parcel.rows

        writer = self.writer(table)
        try:
            for rows in joined(marked()):
                take_in(writer, rows)
            messages = self.prepared(table, writer)
        except BaseException:
            with suppress(StorageError):
                writer.abort()
            raise
        return Done(messages, tuple(marks))

    def writer(self, table: Table) -> KeyedTableWriter:
        """Who writes the rows."""
        # Rows that may be merged before they are sent were, and others must not be.
        options = {key: value for key, value in table.options.items() if key != LOCAL_MERGE}
        return KeyedTableWriter(
            table.store, table.paths, options, self.overwrite, base_id=self.base_id, counts=self.counts
        )

    def prepared(self, table: Table, writer: KeyedTableWriter) -> tuple[CommitMessage, ...]:
        """What was written."""
        del table
        return tuple(writer.prepare(self.identifier, wait=True))


def take_in(writer: KeyedTableWriter, rows: pa.RecordBatch) -> None:
    """Write rows with their kinds, to their buckets if they have some."""
    buckets: Ints | None = None
    if BUCKET in rows.schema.names:
        buckets = rows.column(BUCKET).to_numpy()
        rows = rows.drop_columns([BUCKET])
    writer.write(rows.drop_columns([KIND]), rows.column(KIND), buckets)
