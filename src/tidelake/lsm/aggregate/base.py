"""The protocol of aggregate functions, and what all of them share.

The laws: `first` returns the state after the first row of a key; `merge` folds the next, newer row into it; a left fold
of `merge` is the result. If `reduce` returns a value, it equals that fold bit for bit, and it raises the same errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.lsm.aggregate.arrays import Bools, Index, choose, nulls_like
from tidelake.spec.types.data_types import DataType

__all__ = ["Aggregate", "Function", "IgnoringRetract"]


class Aggregate(Protocol):
    """The function of one column. Arguments have equal lengths and, like results, the Arrow type of the column."""

    @property
    def name(self) -> str:
        """The name of the function, as in options."""
        ...

    @property
    def associative(self) -> bool:
        """Whether added versions may be merged in any grouping with the same value and the same error."""
        ...

    @property
    def ignores_retract(self) -> bool:
        """Whether retract rows are skipped; `first` is then called for the first row that is not skipped."""
        ...

    @property
    def can_retract(self) -> bool:
        """Whether the function accepts retract rows."""
        ...

    def first(self, value: pa.Array, retracted: Bools | None = None) -> pa.Array:
        """Return the state after the first row; `retracted` is a mask of the retract rows.

        Raises:
            UnsupportedError: There is a retract row and the function cannot retract.
            InvalidInputError: A value overflows or is not allowed.
            FormatError: The bytes are not a valid sketch or bitmap.
        """
        ...

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """Return the state after adding a newer row to an older state.

        Raises:
            InvalidInputError: A value overflows or is not allowed.
            FormatError: The bytes are not a valid sketch or bitmap.
        """
        ...

    def merge_reversed(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """Return the state after adding a row that is older than the state; raises what `merge` raises."""
        ...

    def retract(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """Return the state after a retract row.

        Raises:
            UnsupportedError: The function cannot retract.
            InvalidInputError: A value overflows or is not allowed.
        """
        ...

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array | None:
        """Return the fold of whole groups of added rows, oldest first; None if the function has no shortcut for them.

        Group g is `values[starts[g]:starts[g + 1]]`; an empty group gives null. Raises what `merge` raises.
        """
        ...


@dataclass(frozen=True, slots=True)
class Function(ABC):
    """Base class of the functions: it starts with the first row unchanged and cannot retract."""

    column: str
    dtype: DataType
    name: str

    @property
    def associative(self) -> bool:
        """See `Aggregate.associative`."""
        return False

    @property
    def ignores_retract(self) -> bool:
        """See `Aggregate.ignores_retract`."""
        return False

    @property
    def can_retract(self) -> bool:
        """See `Aggregate.can_retract`."""
        return type(self).retract is not Function.retract

    def start(self, value: pa.Array) -> pa.Array:
        """Return the state after the first row, if that is not a retract row."""
        return value

    def first(self, value: pa.Array, retracted: Bools | None = None) -> pa.Array:
        """See `Aggregate.first`."""
        if retracted is None or not retracted.any():
            return self.start(value)
        if retracted.all():
            return self.retract(nulls_like(value), value)
        taken = pa.array(np.flatnonzero(retracted))
        added = pa.array(np.flatnonzero(~retracted))
        backed = value.take(taken)
        parts = pa.concat_arrays([self.start(value.take(added)), self.retract(nulls_like(backed), backed)])
        place = np.empty(len(value), np.int64)
        place[~retracted] = np.arange(len(added))
        place[retracted] = np.arange(len(added), len(value))
        return parts.take(pa.array(place))

    @abstractmethod
    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""

    def merge_reversed(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """See `Aggregate.merge_reversed`."""
        return self.merge(value, state)

    def retract(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """See `Aggregate.retract`."""
        assert len(state) == len(value)
        raise UnsupportedError(
            "aggregate function cannot retract a row",
            column=self.column,
            function=self.name,
            hint=f"set fields.{self.column}.ignore-retract to true, or let deletes remove the whole row with"
            " aggregation.remove-record-on-delete",
        )

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array | None:
        """See `Aggregate.reduce`."""
        del values, starts
        return None

    def value_error(
        self, message: str, *, code: str | None = None, hint: str | None = None, **facts: object
    ) -> InvalidInputError:
        """Return an error about a value of this column."""
        facts = {"column": self.column, "function": self.name, "type": self.dtype, **facts}
        return InvalidInputError(message, code=code, hint=hint, **facts)


@dataclass(frozen=True, slots=True)
class IgnoringRetract:
    """Wraps a function so that it skips retract rows (`fields.<c>.ignore-retract`)."""

    inner: Aggregate

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.inner.name

    @property
    def associative(self) -> bool:
        """As the wrapped function."""
        return self.inner.associative

    @property
    def ignores_retract(self) -> bool:
        """Always."""
        return True

    @property
    def can_retract(self) -> bool:
        """Always, because retract rows are skipped."""
        return True

    def first(self, value: pa.Array, retracted: Bools | None = None) -> pa.Array:
        """See `Aggregate.first`."""
        if retracted is None or not retracted.any():
            return self.inner.first(value)
        return choose(retracted, nulls_like(value), self.inner.first(value))

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        return self.inner.merge(older, newer)

    def merge_reversed(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """See `Aggregate.merge_reversed`."""
        return self.inner.merge_reversed(state, value)

    def retract(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """See `Aggregate.retract`."""
        del value
        return state

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array | None:
        """See `Aggregate.reduce`."""
        return self.inner.reduce(values, starts)
