"""What an aggregate function is, and what all of them share.

The laws: `first` gives the state after the first fed row of a key; `merge` folds the next, newer row into it; a left
fold of `merge` is the result. `reduce`, where it answers, equals that fold bit for bit, errors included.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.lsm.aggregate.arrays import Bools, Index, choose, nulls_like
from tidelake.spec.types import DataType

__all__ = ["Aggregate", "Function", "IgnoringRetract"]


class Aggregate(Protocol):
    """One column's function. Arrays have equal lengths and the Arrow type of the column, which the result has too."""

    @property
    def name(self) -> str:
        """The name of the function, as in the option."""
        ...

    @property
    def associative(self) -> bool:
        """Whether added versions may be merged in a tree: the same value, and the same error, in any grouping."""
        ...

    @property
    def ignores_retract(self) -> bool:
        """Whether a retracted row counts for nothing; `first` is then meant for the first row that does count."""
        ...

    @property
    def takes_back(self) -> bool:
        """Whether a row that is taken back is not an error."""
        ...

    def first(self, value: pa.Array, retracted: Bools | None = None) -> pa.Array:
        """The state after the first fed row; `retracted` marks rows that are taken back instead of added.

        Raises:
            UnsupportedError: A row is taken back and the function cannot do that.
            InvalidInputError: A value overflows or is not allowed.
            FormatError: The bytes of a sketch or bitmap are none.
        """
        ...

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """The state after adding a newer row to an older state.

        Raises:
            InvalidInputError: A value overflows or is not allowed.
            FormatError: The bytes of a sketch or bitmap are none.
        """
        ...

    def merge_reversed(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """The state after adding a row that is older than the state; raises what `merge` raises."""
        ...

    def retract(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """The state after taking a row back.

        Raises:
            UnsupportedError: The function cannot do that.
            InvalidInputError: A value overflows or is not allowed.
        """
        ...

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array | None:
        """The fold of whole groups of added rows, oldest first, or None where there is no shortcut.

        Group g is `values[starts[g]:starts[g + 1]]`; a group without rows is null. Raises what `merge` raises.
        """
        ...


@dataclass(frozen=True, slots=True)
class Function(ABC):
    """Base of the functions: a function that keeps the first row as it is and takes nothing back."""

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
    def takes_back(self) -> bool:
        """See `Aggregate.takes_back`."""
        return type(self).retract is not Function.retract

    def start(self, value: pa.Array) -> pa.Array:
        """The state after the first row, when that is added."""
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
            "aggregate function cannot take a row back",
            column=self.column,
            function=self.name,
            hint=f"set fields.{self.column}.ignore-retract to true, or let deletes remove the whole row with"
            " aggregation.remove-record-on-delete",
        )

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array | None:
        """See `Aggregate.reduce`."""
        del values, starts
        return None

    def refused(
        self, message: str, *, code: str | None = None, hint: str | None = None, **facts: object
    ) -> InvalidInputError:
        """An error about a value of this column."""
        facts = {"column": self.column, "function": self.name, "type": self.dtype, **facts}
        return InvalidInputError(message, code=code, hint=hint, **facts)


@dataclass(frozen=True, slots=True)
class IgnoringRetract:
    """Another function for which rows that are taken back count for nothing (`fields.<c>.ignore-retract`)."""

    inner: Aggregate

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.inner.name

    @property
    def associative(self) -> bool:
        """As the function itself."""
        return self.inner.associative

    @property
    def ignores_retract(self) -> bool:
        """Always."""
        return True

    @property
    def takes_back(self) -> bool:
        """Always: it counts for nothing."""
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
