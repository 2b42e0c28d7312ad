"""Functions that keep one of the values as it is: the first or the last one, any or not null, and the primary key."""

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
    """The newest value, even null; taking any value back leaves null."""

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
    """A column of the primary key, which all versions share."""

    def retract(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """See `Aggregate.retract`."""
        del state
        return value


@dataclass(frozen=True, slots=True)
class LastNonNullValue(_Choice):
    """The newest value that is not null; taking one that is not null back leaves null."""

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
    """The oldest value, even null.

    A null state is a first value that was null: whoever has fed nothing yet calls `first`, not `merge`.
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
        """The older value even where it is null: so does the reference implementation, which loses the state then."""
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
