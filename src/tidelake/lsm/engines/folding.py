"""Folds one column of many keys with its aggregate function, oldest version first.

A function that can reduce whole groups does so. An associative function is folded as a tree, so that a key with very
many versions takes a logarithmic number of steps. Everything else, and every key with a retract row, is folded version
by version: the loop is over depth, never over keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from tidelake.lsm.aggregate import Aggregate

Ints = np.ndarray[Any, Any]
FIRST_VALUES: Final = frozenset({"first_value", "first_non_null_value", "first_not_null_value"})
"""Functions whose result depends on whether a value was added yet; a row that was set as the state does not count."""
KEEP_A_LONE_VALUE: Final = FIRST_VALUES | {
    *("last_value", "last_non_null_value", "primary-key"),
    *("sum", "product", "max", "min", "bool_and", "bool_or"),
}
"""Functions that do not change the only value of a key. Others may: `collect` with `distinct` drops repeated items."""
DEEP: Final = 8
"""The number of versions of a key above which a tree of merges is faster than a chain."""


def fold_column(
    function: Aggregate, values: pa.Array, starts: Ints, retracted: Ints | None, has_state: Ints | None
) -> pa.Array:
    """Return the folded value of each key.

    Args:
        function: The column's aggregate function.
        values: All versions, grouped by key, oldest first.
        starts: Where each key begins, and the number of versions at the end.
        retracted: Which versions are retract rows; None if none is.
        has_state: Which keys have a first version that is already a state; None if none has.

    Raises:
        InvalidInputError: a value overflows or is not allowed.
        UnsupportedError: there is a retract row and the function cannot retract.
    """
    count = len(starts) - 1
    hard = np.zeros(count, dtype=bool) if has_state is None else has_state.copy()
    if retracted is not None:
        hard |= np.logical_or.reduceat(retracted, starts[:-1])
    if not hard.any():
        return _fold_added(function, values, starts)
    if hard.all():
        return _fold_mixed(function, values, starts, retracted, has_state)
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
            None if retracted is None else retracted[rows],
            None if has_state is None else has_state[mixed],
        ),
    ]
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate([easy, mixed]), kind="stable")))


def rows_of_groups(starts: Ints, chosen: Ints) -> Ints:
    """Return the rows of the chosen groups, in order."""
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
    """Merge neighbours in pairs until each key has one value."""
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
    function: Aggregate, values: pa.Array, starts: Ints, retracted: Ints | None, has_state: Ints | None
) -> pa.Array:
    """Fold version by version. Keys with many versions come first, so that the unfinished ones are always a prefix."""
    sizes = np.diff(starts)
    if retracted is not None and function.ignores_retract:
        return _fold_without_retracted(function, values, starts, retracted, has_state)
    by_size = np.argsort(-sizes, kind="stable")
    heads = starts[:-1][by_size]
    state = values.take(pa.array(heads))
    back = None if retracted is None else retracted[heads]
    if has_state is None or not has_state.all():
        started = function.first(state, back)
        state = started if has_state is None else _choose(has_state[by_size], state, started)
    for depth in range(1, int(sizes.max())):
        going = int(np.searchsorted(-sizes[by_size], -depth, side="left"))
        rows = heads[:going] + depth
        held, fresh = state.slice(0, going), values.take(pa.array(rows))
        state = pa.concat_arrays(
            [_step(function, held, fresh, None if retracted is None else retracted[rows]), state[going:]]
        )
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


def _fold_without_retracted(
    function: Aggregate, values: pa.Array, starts: Ints, retracted: Ints, has_state: Ints | None
) -> pa.Array:
    """Fold without the retract rows, except one that is already a state; a key without other versions becomes null."""
    keep = ~retracted
    if has_state is not None:
        keep[starts[:-1][has_state]] = True
    counts = np.add.reduceat(keep.astype(np.int64), starts[:-1])
    filled = np.nonzero(counts)[0]
    left = np.concatenate([[0], np.cumsum(counts[filled])]).astype(np.int64)
    kept = values.filter(pa.array(keep))
    folded = (
        _fold_mixed(function, kept, left, None, None if has_state is None else has_state[filled])
        if len(filled)
        else pa.nulls(0, values.type)
    )
    places = np.full(len(counts), -1)
    places[filled] = np.arange(len(filled))
    return folded.take(pa.array(places, mask=places < 0))


def _choose(mask: Ints, yes: pa.Array, no: pa.Array) -> pa.Array:
    places = np.where(mask, np.arange(len(mask)), np.arange(len(mask)) + len(mask))
    return pa.concat_arrays([yes, no]).take(pa.array(places))
