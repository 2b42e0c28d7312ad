"""Rows of splits of any table: append files as they are, versions of primary-key tables merged on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelake.ops.read.append import ReadRequest, live_rows, read_splits
from tidelake.ops.scan.split import Split, SplitMode
from tidelake.spec.schema import Schema
from tidelake.store.table_store import TableStore

if TYPE_CHECKING:  # append tables do without the tree
    from tidelake.ops.read.keyed import Merging

_PARTS_MAX, _PART_ROWS = 8, 1 << 19
"""Parts of a file that are read apart at most, and rows that are worth it."""


def read_rows(
    store: TableStore, splits: Iterable[Split], request: ReadRequest, options: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """The rows of splits, one split after the other.

    Raises:
        FormatError: a file is missing or damaged.
        InvalidInputError: a version is one that the merge engine does not accept.
    """
    if not request.schema.primary_keys:
        yield from read_splits(store, splits, request)
        return
    from tidelake.ops.read.keyed import Merging  # append tables do without the tree

    left = request.limit
    merging = Merging(request.schema, options)
    for split in splits:
        if left == 0:
            return
        for rows in _keyed(store, split, replace(request, limit=None), merging):
            for batch in rows.to_batches():
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= batch.num_rows
                if batch.num_rows:
                    yield batch
            if left == 0:
                return


def _keyed(store: TableStore, split: Split, request: ReadRequest, merging: Merging) -> Iterator[pa.Table]:
    if split.mode is SplitMode.STATE:
        from tidelake.ops.read.keyed import read_keyed_split

        return read_keyed_split(store, split, request, merging)
    from tidelake.ops.read.keyed_changes import read_additions

    return read_additions(store, split, request, merging.options)


def read_all(
    store: TableStore, splits: Iterable[Split], request: ReadRequest, options: Mapping[str, str]
) -> list[pa.RecordBatch]:
    """All rows of splits in their order, as many pieces at a time as the lake has threads. The limit is not looked at.

    Raises:
        FormatError: a file is missing or damaged.
        InvalidInputError: a version is one that the merge engine does not accept.
    """
    pieces = [piece for split in splits for piece in _pieces(split)]

    def read(piece: tuple[Split, tuple[int, int]]) -> list[pa.RecordBatch]:
        return list(read_rows(store, [piece[0]], replace(request, limit=None, share=piece[1]), options))

    return [batch for batches in store.env.executor.map(read, pieces) for batch in batches]


def count_rows(store: TableStore, splits: Iterable[Split], schema: Schema, options: Mapping[str, str]) -> int:
    """How many rows splits have; only what has to be merged is read, and of that the keys.

    Raises:
        FormatError: a file is missing or damaged.
        InvalidInputError: a version is one that the merge engine does not accept.
    """
    splits = list(splits)
    known = sum(live_rows(store, split, split.files) for split in splits if split.raw_convertible)
    merged = [split for split in splits if not split.raw_convertible]
    if not merged:
        return known
    from tidelake.ops.read.keyed import Merging, count_keyed_split  # append tables do without the tree

    merging = Merging(schema, options)
    one = ReadRequest(schema=schema, columns=tuple(schema.trimmed_primary_keys[-1:]))

    def count(split: Split) -> int:
        if split.mode is SplitMode.STATE:
            return count_keyed_split(store, split, merging)
        return sum(rows.num_rows for rows in _keyed(store, split, one, merging))

    return known + sum(store.env.executor.map(count, merged))


def _pieces(split: Split) -> Iterator[tuple[Split, tuple[int, int]]]:
    """What can be read apart: where nothing is merged single files, and parts of large ones."""
    if not split.raw_convertible:
        yield split, (0, 1)
        return
    for file in split.files:
        parts = max(1, min(_PARTS_MAX, file.row_count // _PART_ROWS))
        yield from ((split.with_files((file,)), (part, parts)) for part in range(parts))
