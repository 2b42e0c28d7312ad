"""Rows that wait in memory: batches as they came, of all buckets together, until they are sorted by bucket and key.

A row is copied once, when its block is sorted: the keys alone decide the order, then each column is gathered for
itself, several at a time. Sequence numbers are given in the order of arrival, one per row, also to rows that a later
version of their key makes superfluous.

Invariant: what `sort_block` gives of a bucket are its rows in the order of their keys, versions of a key in the order
of their arrival; where only the newest version ever counts, only that one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.io.executor import Executor
from tidelake.lsm.engine import SEQUENCE
from tidelake.lsm.kernel import MergePlan, merge_rows
from tidelake.lsm.keys import KeyArray, window

Ints = np.ndarray[Any, Any]
_FEW_VALUES: Final = 16
"""A column of texts is gathered by its distinct values where there are so many times fewer of them than rows."""
_SAMPLE: Final = 4096


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Rows of one bucket by key, with their sequence numbers."""

    place: int
    rows: pa.Table
    starts: Ints
    """Where each key begins."""

    @property
    def unique(self) -> bool:
        """Whether every key is there once."""
        return len(self.starts) == int(self.rows.num_rows)

    def merged(self, plan: MergePlan) -> pa.Table:
        """The rows with each key once.

        Raises:
            InvalidInputError: a version is one the engine does not accept.
        """
        return self.rows if self.unique else merge_rows(self.rows, plan)


@dataclass(slots=True)
class WriteBuffer:
    """Batches that wait, and the number of the place of each of their rows."""

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
        """Rows of each place."""
        counts = [np.bincount(places) for places in self._places]
        total = np.zeros(max(map(len, counts), default=0), np.int64)
        for each in counts:
            total[: len(each)] += each
        return total

    def take(self, only: Collection[int] | None = None) -> tuple[list[pa.RecordBatch], Ints]:
        """The rows of these places, or of all, in the order of their arrival; they wait no longer."""
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
        """Forget the rows."""
        self._batches, self._places, self.bytes = [], [], 0


def sort_block(
    batches: list[pa.RecordBatch],
    places: Ints,
    plan: MergePlan,
    first_numbers: Callable[[int, int], int],
    executor: Executor,
) -> list[SortedRows]:
    """The rows of a block by place and key.

    Args:
        batches: The rows; the list is emptied, so that columns are let go as soon as they are gathered.
        places: The place of each row.
        plan: How versions are merged.
        first_numbers: Tells the sequence number of the first of so many rows of a place.
        executor: Gathers columns at the same time.

    Raises:
        InvalidInputError: a key is null.
    """
    if not len(places):
        return []
    schema = batches[0].schema
    keys = plan.keys.encode(pa.Table.from_batches(batches).select(list(plan.keys.columns)))
    parts = []
    for place, rows in _by_place(places):
        order, starts = _order(_taken(keys, rows), newest_only=_newest_only(plan))
        numbers = order + first_numbers(place, len(rows))
        parts.append((place, rows[order], numbers, starts))
    columns = [[batch.column(index) for batch in batches] for index in range(len(schema))]
    batches.clear()

    def gather(index: int) -> list[pa.Array]:
        chunks, columns[index] = columns[index], []
        return _gathered(chunks, [rows for _, rows, _, _ in parts])

    gathered = executor.map(gather, range(len(schema)))
    found = []
    for number, (place, _, numbers, starts) in enumerate(parts):
        table = pa.Table.from_arrays([column[number] for column in gathered], schema=schema)
        found.append(SortedRows(place, table.append_column(SEQUENCE, pa.array(numbers)), starts))
    return found


def _newest_only(plan: MergePlan) -> bool:
    return plan.engine.takes_last and plan.by_age and not plan.sequence


def _by_place(places: Ints) -> list[tuple[int, Ints]]:
    """The rows of each place, in the order of their arrival."""
    top = int(places.max())
    if top == 0:
        return [(0, np.arange(len(places)))]
    # Narrow numbers are sorted by counting.
    order = np.argsort(places.astype(np.uint16) if top < 1 << 16 else places, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(places))])
    return [
        (place, order[bounds[place] : bounds[place + 1]])
        for place in range(top + 1)
        if bounds[place] < bounds[place + 1]
    ]


def _taken(keys: KeyArray, rows: Ints) -> KeyArray:
    if len(rows) == len(keys):
        return keys
    return keys[rows] if isinstance(keys, np.ndarray) else keys.take(pa.array(rows))


def _order(keys: KeyArray, *, newest_only: bool) -> tuple[Ints, Ints]:
    """The order of keys and where each begins in it; of equal keys only the last, if only that one counts."""
    (found,) = window([keys], sorted_parts=False)
    order = found.order()
    starts = found.starts(order)
    if newest_only and len(starts) < len(order):
        order = order[np.append(starts[1:], len(order)) - 1]
        starts = np.arange(len(order))
    return order, starts


def _gathered(chunks: Sequence[pa.Array], wanted: Sequence[Ints]) -> list[pa.Array]:
    whole = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    plain = whole.type
    if _repeats(whole):
        whole = whole.dictionary_encode()
    found = [whole.take(pa.array(rows)) for rows in wanted]
    return [each.cast(plain) for each in found] if whole.type != plain else found


def _repeats(column: pa.Array) -> bool:
    """Whether a column of texts has few distinct values, by a sample: such a one is copied faster by number."""
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)) or len(column) < _SAMPLE * 4:
        return False
    places = pa.array(np.arange(0, len(column), len(column) // _SAMPLE))
    return len(column.take(places).unique()) * _FEW_VALUES < _SAMPLE
