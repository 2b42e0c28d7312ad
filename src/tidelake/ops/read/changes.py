"""Rows with their row kinds: stored changes, states including deletions, and differences of two states.

The first column is `rowkind` (+I, -U, +U, -D), then comes the sequence number if it is requested. An append table has
only insertions; primary-key tables are read by `keyed_changes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa

from tidelake.ops.context import TableContext
from tidelake.ops.read.append import read_splits
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.split import Split

KINDS: Final = pa.array(["+I", "-U", "+U", "-D"], pa.string())
"""The names of kinds, by their numbers in data files."""


def read_change_rows(context: TableContext, splits: Iterable[Split], request: ReadRequest) -> Iterator[pa.RecordBatch]:
    """The rows of splits with their kinds, one split after the other.

    Raises:
        FormatError: a file is missing or damaged.
        InvalidInputError: a version is one that the merge engine does not accept.
    """
    left = request.limit
    for split in splits:
        for batch in _read_kinds(context, split, replace(request, limit=None)):
            if left == 0:
                return
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            if batch.num_rows:
                yield batch


def _read_kinds(context: TableContext, split: Split, request: ReadRequest) -> Iterator[pa.RecordBatch]:
    if request.schema.primary_keys:
        from tidelake.ops.read.keyed_changes import read_keyed_changes  # append tables do without the tree

        for rows in read_keyed_changes(context, split, request):
            yield from rows.to_batches()
        return
    for batch in read_splits(context.store, [split], request.of_rows):
        yield pa.RecordBatch.from_arrays([repeat_kind(0, batch.num_rows), *batch.columns], schema=request.arrow_schema)


def repeat_kind(kind: int, count: int) -> pa.Array:
    """The name of a kind, so many times."""
    return pa.repeat(KINDS[kind], count)
