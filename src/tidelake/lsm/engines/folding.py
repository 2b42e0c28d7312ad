"""One column of many keys folded by its aggregate function, oldest version first.

A function that can reduce whole groups does so; one that is associative is folded as a tree, so that a key with very
many versions costs its logarithm in steps; everything else, and every key with a retraction, is folded version by
version: the loop is over depth, never over keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from tidelake.lsm.aggregate import Aggregate

Ints = np.ndarray[Any, Any]
FIRST_VALUES: Final = frozenset({"first_value", "first_non_null_value", "first_not_null_value"})
"""Functions that ask whether anything was added yet: a row that became the state as it is was not."""
KEEP_A_LONE_VALUE: Final = FIRST_VALUES | {
    *("last_value", "last_non_null_value", "primary-key"),
    *("sum", "product", "max", "min", "bool_and", "bool_or"),
}
"""Functions that leave the only value of a key as it is. Others may not: `collect` drops what is there twice."""
DEEP: Final = 8
"""Versions of a key from which on a tree of merges is less work than a chain."""


def fold_column(
    function: Aggregate, values: pa.Array, starts: Ints, taken: Ints | None, given: Ints | None
) -> pa.Array:
    """The value of each key.

    Args:
        function: The column's aggregate.
        values: All versions, key after key, oldest first.
        starts: Where each key begins, and the end.
        taken: Which versions are taken back, None where none is.
        given: Which keys begin with a state as it is (their first version), None where none does.

    Raises:
        InvalidInputError: a value overflows, or is not allowed.
        UnsupportedError: a version is taken back and the function cannot do that.
    """
    count = len(starts) - 1
    hard = np.zeros(count, dtype=bool) if given is None else given.copy()
    if taken is not None:
        hard |= np.logical_or.reduceat(taken, starts[:-1])
    if not hard.any():
        return _fold_added(function, values, starts)
    if hard.all():
        return _fold_mixed(function, values, starts, taken, given)
    easy = np.nonzero(~hard)[0]
    mixed = np.nonzero(hard)[0]
    easy_rows, easy_starts = _pick(starts, easy)
    rows, hard_starts = _pick(starts, mixed)
    parts = [
        _fold_added(function, values.take(pa.array(easy_rows)), easy_starts),
        _fold_mixed(
            function,
            values.take(pa.array(rows)),
            hard_starts,
            None if taken is None else taken[rows],
            None if given is None else given[mixed],
        ),
    ]
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate([easy, mixed]), kind="stable")))


def rows_of_groups(starts: Ints, chosen: Ints) -> Ints:
    """The rows of the chosen groups, in order."""
    return _pick(starts, chosen)[0]


def _pick(starts: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    sizes = starts[chosen + 1] - starts[chosen]
    ends = np.cumsum(sizes)
    begins = ends - sizes
    rows = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts[chosen] - begins, sizes)
    return rows, np.concatenate([[0], ends]).astype(np.int64)


def _fold_added(function: Aggregate, values: pa.Array, starts: Ints) -> pa.Array:
    found = function.reduce(values, starts)
    if found is not None:
        return found
    if function.associative and int(np.diff(starts).max()) > DEEP:
        return _tree(function, values, starts)
    return _fold_mixed(function, values, starts, None, None)


def _tree(function: Aggregate, values: pa.Array, starts: Ints) -> pa.Array:
    """Neighbours are merged in pairs until one value of each key is left."""
    sizes = np.diff(starts)
    while int(sizes.max()) > 1:
        begins = np.cumsum(sizes) - sizes
        inside = np.arange(len(values)) - np.repeat(begins, sizes)
        paired = (inside % 2 == 1).nonzero()[0]
        single = ((inside % 2 == 0) & (inside == np.repeat(sizes, sizes) - 1)).nonzero()[0]
        merged = function.merge(values.take(pa.array(paired - 1)), values.take(pa.array(paired)))
        order = np.argsort(np.concatenate([paired - 1, single]), kind="stable")
        values = pa.concat_arrays([merged, values.take(pa.array(single))]).take(pa.array(order))
        sizes = (sizes + 1) // 2
    return values


def _fold_mixed(
    function: Aggregate, values: pa.Array, starts: Ints, taken: Ints | None, given: Ints | None
) -> pa.Array:
    """Version by version; keys with many versions come first so that those still going are a prefix."""
    sizes = np.diff(starts)
    if taken is not None and function.ignores_retract:
        return _without_taken(function, values, starts, taken, given)
    by_size = np.argsort(-sizes, kind="stable")
    heads = starts[:-1][by_size]
    state = values.take(pa.array(heads))
    back = None if taken is None else taken[heads]
    if given is None or not given.all():
        started = function.first(state, back)
        state = started if given is None else _choose(given[by_size], state, started)
    for depth in range(1, int(sizes.max())):
        going = int(np.searchsorted(-sizes[by_size], -depth, side="left"))
        rows = heads[:going] + depth
        held, fresh = state.slice(0, going), values.take(pa.array(rows))
        state = pa.concat_arrays([_step(function, held, fresh, None if taken is None else taken[rows]), state[going:]])
    return state.take(pa.array(np.argsort(by_size, kind="stable")))


def _step(function: Aggregate, state: pa.Array, value: pa.Array, back: Ints | None) -> pa.Array:
    if back is None or not back.any():
        return function.merge(state, value)
    if back.all():
        return function.retract(state, value)
    added, removed = np.nonzero(~back)[0], np.nonzero(back)[0]
    parts = [
        function.merge(state.take(pa.array(added)), value.take(pa.array(added))),
        function.retract(state.take(pa.array(removed)), value.take(pa.array(removed))),
    ]
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate([added, removed]), kind="stable")))


def _without_taken(function: Aggregate, values: pa.Array, starts: Ints, taken: Ints, given: Ints | None) -> pa.Array:
    """Versions that are taken back do not count, except one that is the state as it is; a key may have none left."""
    keep = ~taken
    if given is not None:
        keep[starts[:-1][given]] = True
    counts = np.add.reduceat(keep.astype(np.int64), starts[:-1])
    filled = np.nonzero(counts)[0]
    left = np.concatenate([[0], np.cumsum(counts[filled])]).astype(np.int64)
    kept = values.filter(pa.array(keep))
    folded = (
        _fold_mixed(function, kept, left, None, None if given is None else given[filled])
        if len(filled)
        else pa.nulls(0, values.type)
    )
    places = np.full(len(counts), -1)
    places[filled] = np.arange(len(filled))
    return folded.take(pa.array(places, mask=places < 0))


def _choose(mask: Ints, yes: pa.Array, no: pa.Array) -> pa.Array:
    places = np.where(mask, np.arange(len(mask)), np.arange(len(mask)) + len(mask))
    return pa.concat_arrays([yes, no]).take(pa.array(places))
