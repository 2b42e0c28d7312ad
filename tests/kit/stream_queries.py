"""A query on the stream of a table, run as Spark runs its micro-batches, without a JVM.

The checkpoint outlives the readers. Each run makes another reader, as a restarted query does in another process, and
tasks read with a reader of their own that went through pickle.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from tidelake.engines.spark.datasource.source import TidelakeSource
from tidelake.engines.spark.stream.source import TableStream
from tidelake.table import Table

Row = dict[str, Any]


class StreamQuery:
    """A query with its checkpoint."""

    def __init__(self, table: Table, **options: object) -> None:
        self._location = table.location
        self.options: dict[str, str] = {}
        self.change(**options)
        self.offsets: list[str] = []
        """The ends of batches, as Spark stores them before it runs a batch."""
        self.done = 0
        """How many batches Spark stored as done."""

    def change(self, **options: object) -> None:
        """Set options, with `__` for a dash and `_` for a dot; Spark passes their names in lower case."""
        for key, value in options.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            self.options[key.replace("__", "-").replace("_", ".").lower()] = text

    def reader(self, struct: StructType | None = None) -> TableStream:
        source = TidelakeSource({"path": self._location, **self.options})
        reader = source.streamReader(struct or source.schema())
        assert isinstance(reader, TableStream)
        return reader

    def run(
        self, *, now: bool = True, most: int = 100, crash: bool = False, struct: StructType | None = None
    ) -> list[list[Row]]:
        """The rows of each batch until nothing is left to read.

        Args:
            now: Whether the query has the trigger availableNow.
            most: The number of batches after which the query is stopped.
            crash: Whether the driver dies after the first batch, before Spark stores that it is done.
            struct: The columns that an older load of the stream had.
        """
        reader = self.reader(struct)
        if now:
            reader.prepareForTriggerAvailableNow()
        limit = pickle.loads(pickle.dumps(reader.getDefaultReadLimit()))
        found = []
        if self.done < len(self.offsets):
            found.append(self._batch(reader, struct))
        while len(found) < most and self._plan(reader, limit):
            rows = self._rows(reader, struct)
            found.append(rows)
            if crash:
                return found
            self.done += 1
        reader.stop()
        return found

    def _plan(self, reader: TableStream, limit: ReadLimit) -> bool:
        start = json.loads(self.offsets[-1]) if self.offsets else reader.initialOffset()
        end = json.dumps(reader.latestOffset(start, limit))
        if self.offsets and end == self.offsets[-1]:
            return False
        self.offsets.append(end)
        if self.done:
            reader.commit(json.loads(self.offsets[self.done - 1]))
        return True

    def _batch(self, reader: TableStream, struct: StructType | None) -> list[Row]:
        rows = self._rows(reader, struct)
        self.done += 1
        return rows

    def _rows(self, reader: TableStream, struct: StructType | None) -> list[Row]:
        number = self.done
        start = json.loads(self.offsets[number - 1]) if number else reader.initialOffset()
        tasks = reader.partitions(start, json.loads(self.offsets[number]))
        sent = pickle.dumps(self.reader(struct))
        return [
            row
            for task in pickle.loads(pickle.dumps(list(tasks)))
            for batch in pickle.loads(sent).read(task)
            for row in batch.to_pylist()
        ]


def all_rows(batches: Iterable[Iterable[Row]]) -> list[Row]:
    """The rows of all batches."""
    return [row for batch in batches for row in batch]


def fold(rows: Iterable[Row], *keys: str) -> list[Row]:
    """The table that rows with kinds make, in the order of the keys.

    An error says that a change does not fit what came before it.
    """
    state: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        values = {name: value for name, value in row.items() if name != "rowkind"}
        key = tuple(values[name] for name in keys)
        if row["rowkind"] in ("+I", "+U"):
            state[key] = values
        else:
            assert key in state, row
            state.pop(key)
    return [state[key] for key in sorted(state)]


READ_ALL = ReadAllAvailable()
