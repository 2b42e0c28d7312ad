"""The write buffer: batches of all buckets in the order of arrival, until they are sorted by bucket and key.

A row is copied once, when its block is sorted: the keys alone decide the order, then the columns are gathered one by
one, several in parallel. Sequence numbers are given in the order of arrival, one per row, also to rows that a later
version of their key replaces.

Invariant: `sort_block` returns the rows of a bucket in the order of their keys, and versions of a key in the order of
arrival. If only the newest version counts, it returns only that one, unless every version is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.io.executor import Executor
from tidelake.lsm.engine import SEQUENCE
from tidelake.lsm.kernel import MergePlan
from tidelake.lsm.keys import KeyArray, window

Ints = np.ndarray[Any, Any]
_FEW_VALUES: Final = 16
"""A column of texts is gathered by dictionary codes if it has this many times fewer distinct values than rows."""
_SAMPLE: Final = 4096


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Rows of one bucket by key, with their sequence numbers."""

    place: int
    rows: pa.Table
    starts: Ints
    """The first row of each key."""

    @property
    def unique(self) -> bool:
        """Whether every key has one row."""
        return len(self.starts) == int(self.rows.num_rows)


@dataclass(slots=True)
class WriteBuffer:
    """Batches, and for each of their rows the number of its partition and bucket."""

    bytes: int = 0
    _batches: list[pa.RecordBatch] = field(default_factory=list)
    _places: list[Ints] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch, places: Ints) -> None:
        """Take in rows: the columns of the table and the kind."""
        self._batches.append(batch)
        self._places.append(places)
        self.bytes += batch.nbytes

    @property
    def row_counts(self) -> Ints:
        """The number of rows of each partition and bucket."""
        counts = [np.bincount(places) for places in self._places]
        total = np.zeros(max(map(len, counts), default=0), np.int64)
        for each in counts:
            total[: len(each)] += each
        return total

    def take(self, only: Collection[int] | None = None) -> tuple[list[pa.RecordBatch], Ints]:
        """Take out the rows of these buckets, or of all, in the order of arrival."""
        batches, places = self._batches, self._places
        self._batches, self._places, self.bytes = [], [], 0
        if only is not None:
            chosen = np.array(sorted(only), np.int32)
            masks = [np.isin(each, chosen) for each in places]
            for batch, each, mask in zip(batches, places, masks, strict=True):
                if not mask.all():
                    self.add(batch.filter(pa.array(~mask)), each[~mask])
            batches = [batch.filter(pa.array(mask)) for batch, mask in zip(batches, masks, strict=True)]
            places = [each[mask] for each, mask in zip(places, masks, strict=True)]
        return batches, np.concatenate(places) if places else np.empty(0, np.int32)

    def clear(self) -> None:
        """Drop all rows."""
        self._batches, self._places, self.bytes = [], [], 0


def sort_block(
    batches: list[pa.RecordBatch],
    places: Ints,
    plan: MergePlan,
    first_numbers: Callable[[int, int], int],
    executor: Executor,
    ready: Callable[[], None] | None = None,
    *,
    every_version: bool = False,
) -> list[SortedRows]:
    """Sort the rows of a block by bucket and key.

    Args:
        batches: The rows; the list is emptied, so that the memory of a column is freed as soon as it is gathered.
        places: The number of the partition and bucket of each row.
        plan: How versions are merged.
        first_numbers: Reserves sequence numbers for a number of rows of a bucket, and returns the first.
        executor: Sorts buckets and gathers columns in parallel.
        ready: Called when the order is known and before rows are copied.
        every_version: Whether versions are wanted too that a merge would drop.

    Raises:
        InvalidInputError: a key is null.
    """
    if not len(places):
        return []
    schema = batches[0].schema
    keys = plan.keys.encode(pa.Table.from_batches(batches).select(list(plan.keys.columns)))
    groups = _by_place(places)
    newest_only = _newest_only(plan) and not every_version
    orders = executor.map(lambda group: _order(_take_keys(keys, group[1]), newest_only=newest_only), groups)
    parts = [
        (place, rows[order], order + first_numbers(place, len(rows)), starts)
        for (place, rows), (order, starts) in zip(groups, orders, strict=True)
    ]
    columns = [[batch.column(index) for batch in batches] for index in range(len(schema))]
    batches.clear()
    if ready is not None:
        ready()
    gathered = _gather_columns(columns, [rows for _, rows, _, _ in parts], executor)
    found = []
    for number, (place, _, numbers, starts) in enumerate(parts):
        table = pa.Table.from_arrays([column[number] for column in gathered], schema=schema)
        found.append(SortedRows(place, table.append_column(SEQUENCE, pa.array(numbers)), starts))
    return found


def _newest_only(plan: MergePlan) -> bool:
    return plan.engine.takes_last and plan.by_age and not plan.sequence


def _by_place(places: Ints) -> list[tuple[int, Ints]]:
    """The rows of each bucket, in the order of arrival."""
    top = int(places.max())
    if top == 0:
        return [(0, np.arange(len(places)))]
    # NumPy sorts 16-bit numbers by counting, which is much faster.
    order = np.argsort(places.astype(np.uint16) if top < 1 << 16 else places, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(places))])
    return [
        (place, order[bounds[place] : bounds[place + 1]])
        for place in range(top + 1)
        if bounds[place] < bounds[place + 1]
    ]


def _take_keys(keys: KeyArray, rows: Ints) -> KeyArray:
    if len(rows) == len(keys):
        return keys
    return keys[rows] if isinstance(keys, np.ndarray) else keys.take(pa.array(rows))


def _order(keys: KeyArray, *, newest_only: bool) -> tuple[Ints, Ints]:
    """The order of keys and the start of each key in it; of equal keys only the last, if only that one counts."""
    (found,) = window([keys], sorted_parts=False)
    order = found.order()
    starts = found.starts(order)
    if newest_only and len(starts) < len(order):
        order = order[np.append(starts[1:], len(order)) - 1]
        starts = np.arange(len(order))
    return order, starts


def _gather_columns(columns: list[list[pa.Array]], wanted: Sequence[Ints], executor: Executor) -> list[list[pa.Array]]:
    """The wanted rows of each column, part by part; each column is freed as soon as it is gathered."""
    types = [chunks[0].type for chunks in columns]

    def join(index: int) -> pa.Array:
        chunks, columns[index] = columns[index], []
        whole = _join_chunks(chunks)
        return whole.dictionary_encode() if _repeats(whole) else whole

    whole: dict[int, Any] = dict(enumerate(executor.map(join, range(len(columns)))))
    left = [len(wanted)] * len(columns)
    # Large columns first, so that no thread is left alone with one at the end.
    by_size = sorted(whole, key=lambda index: -whole[index].nbytes)
    tasks = [(index, part) for index in by_size for part in range(len(wanted))]

    def gather(task: tuple[int, int]) -> pa.Array:
        index, part = task
        found = whole[index].take(pa.array(wanted[part]))
        left[index] -= 1
        if not left[index]:
            whole.pop(index, None)
        return found.cast(types[index]) if found.type != types[index] else found

    found = dict(zip(tasks, executor.map(gather, tasks), strict=True))
    return [[found[index, part] for part in range(len(wanted))] for index in range(len(columns))]


def _join_chunks(chunks: Sequence[pa.Array]) -> pa.Array:
    """Join chunks to one array; without a copy if they are neighbouring slices of one array."""
    first = chunks[0]
    if len(chunks) == 1:
        return first
    if not pa.types.is_nested(first.type):
        places = [_place(chunk) for chunk in chunks]
        if all(one[0] == other[0] and one[2] == other[1] for one, other in pairwise(places)):
            length = places[-1][2] - places[0][1]
            return pa.Array.from_buffers(first.type, length, first.buffers(), offset=first.offset)
    return pa.concat_arrays(chunks)


def _place(chunk: pa.Array) -> tuple[list[int | None], int, int]:
    """The memory addresses of the buffers of a chunk, and its range in them."""
    buffers = [None if buffer is None else buffer.address for buffer in chunk.buffers()]
    return buffers, chunk.offset, chunk.offset + len(chunk)


def _repeats(column: pa.Array) -> bool:
    """Whether a column of texts has few distinct values, by a sample: it is copied faster by dictionary codes."""
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)) or len(column) < _SAMPLE * 4:
        return False
    places = pa.array(np.arange(0, len(column), len(column) // _SAMPLE))
    return len(column.take(places).unique()) * _FEW_VALUES < _SAMPLE
