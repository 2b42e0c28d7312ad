"""Rows of splits of any table: raw reads of append files, merge on read of primary-key tables.

A read goes through these stages, each of which takes the whole `ReadRequest`:

1. **settle** (`Scan`, `ops/scan/modes`): the snapshots that are read, found once;
2. **list** (`ops/scan/planner.find_live`, `changes.plan_steps`): the files of those, without other partitions;
3. **prune** (`planner`, `keyed`, `topn`): files that no wanted row can be in, by bucket, key range and statistics;
4. **pack** (`split`, `vectors`): what is left as splits, with the deletion vectors of their files;
5. **merge** (`keyed`, `keyed_changes`, `staged`): the versions of a key, where a split holds several;
6. **open** (`append.read_data_file`): where a file is, the schema it was written with, its deletion vector;
7. **read** (`files/read`): its rows; that module names the stages inside a file;
8. **shape** (`changes`, `binlog`, `order`, `Scan`): kinds in front, updates packed, rows sorted and counted off.

Where something new goes: files that hold some columns only (data evolution) are put together in stage 4, where files of
the same rows become one entry of a split, and opened together in stage 6; until then `planner.refuse_unreadable` keeps
them out. A file index is one more way to prune in stage 3 if the manifest holds it, and belongs to `files/read` if the
file does. VARIANT and BLOB values concern single files: `files/read` again. What a reader wants of them is a field of
the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelake.ops.context import TableContext
from tidelake.ops.read.append import live_rows, read_splits
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.split import Split, SplitMode

if TYPE_CHECKING:  # append tables do without the tree
    from tidelake.ops.read.keyed import Merging

_PARTS_MAX, _PART_ROWS = 8, 1 << 19
"""Parts of a file that are read apart at most, and rows that are worth it."""


def read_rows(context: TableContext, splits: Iterable[Split], request: ReadRequest) -> Iterator[pa.RecordBatch]:
    """The rows of splits, one split after the other.

    Raises:
        FormatError: a file is missing or damaged.
        InvalidInputError: a version is one that the merge engine does not accept.
    """
    if not request.schema.primary_keys:
        yield from read_splits(context.store, splits, request)
        return
    from tidelake.ops.read.keyed import Merging  # append tables do without the tree

    left = request.limit
    merging = Merging(request.schema, context.options)
    for split in splits:
        if left == 0:
            return
        for rows in _read_keyed(context, split, replace(request, limit=None), merging):
            for batch in rows.to_batches():
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= batch.num_rows
                if batch.num_rows:
                    yield batch
            if left == 0:
                return


def _read_keyed(context: TableContext, split: Split, request: ReadRequest, merging: Merging) -> Iterator[pa.Table]:
    if split.mode is SplitMode.STATE:
        from tidelake.ops.read.keyed import read_keyed_split

        return read_keyed_split(context.store, split, request, merging)
    from tidelake.ops.read.keyed_changes import read_additions

    return read_additions(context, split, request)


def read_all(context: TableContext, splits: Iterable[Split], request: ReadRequest) -> list[pa.RecordBatch]:
    """All rows of splits in their order, read in parallel by the threads of the lake. The limit is ignored.

    Raises:
        FormatError: a file is missing or damaged.
        InvalidInputError: a version is one that the merge engine does not accept.
    """
    whole = replace(request, limit=None)
    pieces = [piece for split in splits for piece in _pieces(split)]

    def read(piece: tuple[Split, tuple[int, int]]) -> list[pa.RecordBatch]:
        return list(read_rows(context, [piece[0]], whole.in_part(piece[1])))

    return [batch for batches in context.store.env.executor.map(read, pieces) for batch in batches]


def count_rows(context: TableContext, splits: Iterable[Split]) -> int:
    """How many rows splits have; only what has to be merged is read, and of that the keys.

    Raises:
        FormatError: a file is missing or damaged.
        InvalidInputError: a version is one that the merge engine does not accept.
    """
    store, schema = context.store, context.schema
    splits = list(splits)
    known = sum(live_rows(store, split, split.files) for split in splits if split.raw_convertible)
    merged = [split for split in splits if not split.raw_convertible]
    if not merged:
        return known
    from tidelake.ops.read.keyed import Merging, count_keyed_split  # append tables do without the tree

    merging = Merging(schema, context.options)
    one = ReadRequest(schema=schema, columns=tuple(schema.trimmed_primary_keys[-1:]))

    def count(split: Split) -> int:
        if split.mode is SplitMode.STATE:
            return count_keyed_split(store, split, merging)
        return sum(rows.num_rows for rows in _read_keyed(context, split, one, merging))

    return known + sum(store.env.executor.map(count, merged))


def _pieces(split: Split) -> Iterator[tuple[Split, tuple[int, int]]]:
    """The units to read in parallel: without a merge single files, or parts of large files."""
    if not split.raw_convertible:
        yield split, (0, 1)
        return
    for file in split.files:
        parts = max(1, min(_PARTS_MAX, file.row_count // _PART_ROWS))
        yield from ((split.with_files((file,)), (part, parts)) for part in range(parts))
