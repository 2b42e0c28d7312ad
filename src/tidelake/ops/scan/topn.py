"""The first rows by an order: what is asked for, and which files cannot hold one of them.

Null counts as less than every value: ascending it comes first, descending last. A file is left out only when enough
other rows are certain to come before all of its own, so that the answer is the same with and without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.expr.prune import Bounds
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import DataType, Root

_DIRECTION: Final = re.compile(r"(.*\S)\s+(asc|desc)", re.IGNORECASE | re.DOTALL)
_UNORDERED: Final = frozenset(
    {Root.ARRAY, Root.MAP, Root.MULTISET, Root.ROW, Root.VECTOR, Root.VARIANT, Root.BLOB, Root.GEOMETRY, Root.GEOGRAPHY}
)
# NaN comes after every number, and bounds may pass over it.
_NO_BOUNDS: Final = frozenset({Root.FLOAT, Root.DOUBLE})


@dataclass(frozen=True, slots=True)
class SortKey:
    """One column of an order."""

    column: str
    descending: bool = False

    def __str__(self) -> str:
        return f"{self.column} desc" if self.descending else self.column


OrderBy: TypeAlias = str | Sequence[str | tuple[str, str]] | None
"""How an order is asked for: `"a"`, `"a desc"`, or a list of such and of pairs `("a", "desc")`."""


def parse_order(order_by: OrderBy, schema: Schema) -> tuple[SortKey, ...]:
    """The order that texts such as `"a"`, or `["a desc", ("b", "asc")]`, ask for.

    Raises:
        InvalidInputError: a column does not exist, has a type without an order, or is named twice.
    """
    parts = _split(order_by, schema)
    keys = tuple(_key(part, schema) for part in parts)
    names = [key.column for key in keys]
    if order_by is not None and not keys:
        raise InvalidInputError("order names no column", hint='write order_by="column" or "column desc"')
    if len(set(names)) < len(names):
        raise InvalidInputError("order names a column twice", columns=", ".join(names))
    for name in names:
        if schema.field(name).type.root in _UNORDERED:
            raise InvalidInputError("values of this type have no order", column=name, type=schema.field(name).type)
    return keys


def _split(order_by: object, schema: Schema) -> tuple[object, ...]:
    """The parts of an order, the most important first."""
    match order_by:
        case None:
            return ()
        case str():
            return (order_by,)
        case (str(), str() as word) if word.strip().lower() in ("asc", "desc") and word not in schema.names:
            return (tuple(order_by),)  # one pair
        case Mapping():
            return tuple(order_by.items())
        case Iterable() if not isinstance(order_by, AbstractSet):  # a set has no order
            return tuple(order_by)
    raise _unclear(order_by)


def _key(part: object, schema: Schema) -> SortKey:
    match part:
        case str():
            return _parse_key(part, schema)
        case (str() as name, str() as word) if word.strip().lower() in ("asc", "desc"):
            return SortKey(schema.field(name).name, word.strip().lower() == "desc")
    raise _unclear(part)


def _unclear(part: object) -> InvalidInputError:
    return InvalidInputError(
        "order is not understood", got=repr(part)[:80], hint='write "column", "column desc" or [("column", "desc")]'
    )


def _parse_key(text: str, schema: Schema) -> SortKey:
    # A column may be called `a desc`, blank and all: its own name comes first.
    found = None if text in schema.names else _DIRECTION.fullmatch(text.strip())
    name, direction = (found[1], found[2].lower()) if found else (text, "asc")
    return SortKey(schema.field(name).name, direction == "desc")


def has_usable_bounds(dtype: DataType) -> bool:
    """Whether the least and greatest value of a file bound all its values in this order."""
    return dtype.root not in _UNORDERED | _NO_BOUNDS


def may_be_first(bounds: Bounds, count: int, *, descending: bool) -> np.ndarray:
    """Which groups of rows may hold one of the first `count` rows."""
    rows = bounds.row_count.to_numpy(zero_copy_only=False).astype(np.int64)
    nulls = pc.fill_null(bounds.null_count, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    # Every value of a group comes no later than its far end and no earlier than its near end.
    near, far = (bounds.high, bounds.low) if descending else (bounds.low, bounds.high)
    direction = "descending" if descending else "ascending"
    order = pc.array_sort_indices(far, order=direction, null_placement="at_end").to_numpy()
    known = far.is_valid().to_numpy(zero_copy_only=False)
    # With deleted rows fewer are left than there are nulls, perhaps.
    certain = np.where(known, np.where(nulls < 0, 0, np.maximum(rows - nulls, 0)) if descending else rows, 0)
    enough = np.flatnonzero(np.cumsum(certain[order]) >= count)
    if len(enough) == 0:
        return np.ones(len(rows), dtype=bool)
    limit = far[int(order[enough[0]])]
    beyond = pc.fill_null(pc.less(near, limit) if descending else pc.greater(near, limit), False)
    late: np.ndarray = beyond.to_numpy(zero_copy_only=False)
    return ~(late if descending else late & (nulls == 0))
