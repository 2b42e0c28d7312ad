"""Local merge: merge rows before they are sent to their buckets (`local-merge-buffer-size`), so a hot key is sent once.

The table's own engine merges them, on the whole primary key, partition columns included; a merged row keeps its row
kind. Rows here have no sequence number yet: they get one in their bucket.

Invariant: writing the merged rows in their order has the same result as writing the rows that went in, if the engine
can merge in steps at all (with some functions retractions cannot).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from tidelake.lsm.engine import KIND
from tidelake.lsm.engines.build import MergeOptions, engine_for
from tidelake.lsm.kernel import MergePlan, merge_rows
from tidelake.lsm.keys import KeyCodec
from tidelake.options import TableOptions
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import to_arrow

__all__ = ["LocalMerger", "with_kinds"]

Rows = tuple[pa.RecordBatch, pa.Array]
"""Rows of the table's columns, and the kind of each."""


@dataclass(slots=True)
class LocalMerger:
    """A buffer whose rows are merged when it is full. Not shared between threads."""

    schema: Schema
    options: TableOptions
    bytes: int
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _waiting_bytes: int = 0

    def push(self, batch: pa.RecordBatch, kinds: pa.Array | None = None) -> list[Rows]:
        """Add rows; if the buffer is full, return its merged rows.

        Args:
            batch: Rows of the table's columns and types.
            kinds: The kind of each row as a number (0 +I, 1 -U, 2 +U, 3 -D); all are +I when None.

        Raises:
            InvalidInputError: a key is null, or a version is one the engine does not accept.
        """
        rows = with_kinds(batch, kinds)
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        return self.flush() if self._waiting_bytes >= self.bytes else []

    def flush(self) -> list[Rows]:
        """Merge and return all rows in the buffer.

        Raises:
            InvalidInputError: a key is null, or a version is one the engine does not accept.
        """
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not waiting:
            return []
        merged = merge_rows(pa.Table.from_batches(waiting), self._plan())
        return [(batch.drop_columns([KIND]), batch.column(KIND)) for batch in merged.to_batches() if batch.num_rows]

    def clear(self) -> None:
        """Drop all rows."""
        self._waiting, self._waiting_bytes = [], 0

    def _plan(self) -> MergePlan:
        chosen = self.options.of(MergeOptions)
        keys = self.schema.primary_keys
        return MergePlan(
            KeyCodec(tuple(keys), tuple(to_arrow(self.schema.field(name).type) for name in keys)),
            engine_for(self.schema, self.options),
            sequence=chosen.sequence,
            descending=chosen.is_descending,
            by_age=True,
            ordered=True,
        )


def with_kinds(batch: pa.RecordBatch, kinds: pa.Array | None) -> pa.RecordBatch:
    """Rows with their kinds as an additional column; without kinds, all are insertions."""
    if kinds is None:
        kinds = pa.repeat(pa.scalar(0, pa.int8()), batch.num_rows)
    arrays = [*batch.columns, kinds.cast(pa.int8())]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema.append(pa.field(KIND, pa.int8())))
