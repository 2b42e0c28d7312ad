"""Functions that keep one of the values: the first or last, the first or last that is not null, or the primary key."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelake.lsm.aggregate.arrays import Index, choose, filled_groups, nulls_like, valid
from tidelake.lsm.aggregate.base import Function

__all__ = ["FirstNonNullValue", "FirstValue", "KeyValue", "LastNonNullValue", "LastValue"]


@dataclass(frozen=True, slots=True)
class _Choice(Function):
    @property
    def associative(self) -> bool:
        """Always."""
        return True


@dataclass(frozen=True, slots=True)
class LastValue(_Choice):
    """The newest value, even if it is null; a retract row sets null."""

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        del older
        return newer

    def retract(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """See `Aggregate.retract`."""
        del value
        return nulls_like(state)

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array | None:
        """See `Aggregate.reduce`."""
        return _pick(values, starts[1:] - 1, starts[1:] > starts[:-1])


@dataclass(frozen=True, slots=True)
class KeyValue(LastValue):
    """A column of the primary key, whose value all versions share."""

    def retract(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """See `Aggregate.retract`."""
        del state
        return value


@dataclass(frozen=True, slots=True)
class LastNonNullValue(_Choice):
    """The newest value that is not null; a retract row with a value sets null."""

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        return choose(valid(newer), newer, older)

    def retract(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """See `Aggregate.retract`."""
        return choose(valid(value), nulls_like(state), state)

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array | None:
        """See `Aggregate.reduce`."""
        if not values.null_count:
            return _pick(values, starts[1:] - 1, starts[1:] > starts[:-1])
        begin, filled = filled_groups(starts)
        rows = np.full(len(filled), -1)
        if len(begin):
            rows[filled] = np.maximum.reduceat(np.where(valid(values), np.arange(len(values)), -1), begin)
        return _pick(values, rows, rows >= 0)


@dataclass(frozen=True, slots=True)
class FirstValue(_Choice):
    """The oldest value, even if it is null.

    A null state means that the first value was null: for the first row, call `first`, not `merge`.
    """

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        del newer
        return older

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array | None:
        """See `Aggregate.reduce`."""
        return _pick(values, starts[:-1], starts[1:] > starts[:-1])


@dataclass(frozen=True, slots=True)
class FirstNonNullValue(_Choice):
    """The oldest value that is not null."""

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        return choose(valid(older), older, newer)

    def merge_reversed(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """Return the older value even if it is null. Paimon does so too, and loses the state then."""
        del state
        return value

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array | None:
        """See `Aggregate.reduce`."""
        if not values.null_count:
            return _pick(values, starts[:-1], starts[1:] > starts[:-1])
        begin, filled = filled_groups(starts)
        rows = np.full(len(filled), len(values))
        if len(begin):
            rows[filled] = np.minimum.reduceat(np.where(valid(values), np.arange(len(values)), len(values)), begin)
        return _pick(values, rows, rows < len(values))


def _pick(values: pa.Array, rows: Index, known: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.Array:
    return values.take(pa.array(rows, mask=None if known.all() else ~known))
