"""The least and the greatest value of a column: of metadata where that is exact, and of rows read a batch at a time.

Null does not count, NaN is greater than every number, and -0.0 equals 0.0: as the rows of a table are ordered
everywhere else. Invariant: memory is bounded by one batch for each thread, because what was seen so far is one value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.ops.context import TableContext
from tidelake.ops.read.rows import read_rows
from tidelake.ops.scan.exact import Unread, plan_extremes
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.split import Split
from tidelake.spec.stats.column_stats import is_comparable
from tidelake.spec.types.data_types import Field

__all__ = ["find_extreme", "read_extreme", "refuse_unordered", "to_python"]


def read_extreme(
    context: TableContext, splits: Iterable[Split], request: ReadRequest, column: str, *, greatest: bool
) -> pa.Array:
    """The least or greatest value of a column in all rows of splits; rows are read only where metadata is not exact.

    The condition of the request, if there is one, may only look at partition columns. A file whose statistics show that
    none of its values can be the answer is not read.

    Raises:
        FormatError: a file is missing or damaged.
        InvalidInputError: a version is one that the merge engine does not accept.
    """
    splits = list(splits)
    planned = plan_extremes(context.store, splits, request.schema, [column], greatest=greatest)[column]
    wanted = replace(request, columns=(column,), limit=None, order=())
    dtype = planned.known.type

    def read(part: Unread) -> pa.Array:
        rows = read_rows(context, [part.split], wanted)
        return find_extreme((batch.column(column) for batch in rows), dtype, greatest=greatest)

    unbounded = [part for part in planned.unread if not len(part.bound)]
    found = context.store.env.executor.map(read, unbounded)
    best = find_extreme([planned.known, *found], dtype, greatest=greatest)
    for part in _most_promising_first([part for part in planned.unread if len(part.bound)], greatest=greatest):
        if not len(best) or _comes_before(part.bound, best, greatest=greatest):
            best = find_extreme([best, read(part)], dtype, greatest=greatest)
    return best


def _most_promising_first(parts: list[Unread], *, greatest: bool) -> list[Unread]:
    if not parts:
        return []
    order = pc.array_sort_indices(
        pa.concat_arrays([part.bound for part in parts]), order="descending" if greatest else "ascending"
    )
    return [parts[number] for number in order.to_pylist()]


def find_extreme(values: Iterable[pa.Array | pa.ChunkedArray], dtype: pa.DataType, *, greatest: bool) -> pa.Array:
    """The least or the greatest of all these values as an array of one; an empty one if all of them are null."""
    best = pa.array([], dtype)
    for part in values:
        best = _extreme(pa.concat_arrays([best, _extreme(part, greatest=greatest)]), greatest=greatest)
    return best


def _extreme(values: pa.Array | pa.ChunkedArray, *, greatest: bool) -> pa.Array:
    if values.null_count == len(values):
        return pa.array([], values.type)
    if not pa.types.is_floating(values.type):
        return pa.repeat(pc.min_max(values)["max" if greatest else "min"], 1)
    is_nan = pc.fill_null(pc.is_nan(values), False)
    numbers = values.filter(pc.and_not(values.is_valid(), is_nan))
    if pc.any(is_nan).as_py() and (greatest or not len(numbers)):
        return pa.array([float("nan")], values.type)
    return _same_zeros(pa.repeat(pc.min_max(numbers)["max" if greatest else "min"], 1))


def _same_zeros(values: pa.Array) -> pa.Array:
    """The same numbers with 0.0 instead of -0.0."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values


def _comes_before(value: pa.Array, other: pa.Array, *, greatest: bool) -> bool:
    """Whether the one value in an array is less than that in the other, or greater if the greatest is wanted."""
    both = pa.concat_arrays([other, value])
    return bool(pc.not_equal(_extreme(both, greatest=greatest), other)[0].as_py())


def refuse_unordered(field: Field) -> None:
    """Refuse a column whose values have no order.

    Raises:
        InvalidInputError: they have none.
    """
    if not is_comparable(field.type):
        raise InvalidInputError(
            "values of this type have no order", column=field.name, type=field.type, hint="choose another column"
        )


def to_python(value: pa.Array) -> Any:
    """The one value in an array as Python has it; None if there is none.

    Raises:
        UnsupportedError: it has nanoseconds, which only pandas can represent.
    """
    if not len(value):
        return None
    try:
        return value[0].as_py()
    except ValueError as cause:
        raise UnsupportedError(
            "value has nanoseconds, which a datetime of Python does not have",
            value=str(value[0].cast(pa.int64())),
            hint='pip install pandas, or read it as Arrow: scan(order_by="column", limit=1).to_arrow()',
        ) from cause
