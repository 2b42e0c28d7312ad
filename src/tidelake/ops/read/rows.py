"""Rows of splits of any table: append files as they are, versions of primary-key tables merged on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from tidelake.ops.read.append import ReadRequest, read_splits
from tidelake.ops.read.keyed import Merging, read_keyed_split
from tidelake.ops.scan.split import Split
from tidelake.store.table_store import TableStore


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
    left = request.limit
    merging = Merging(request.schema, options)
    for split in splits:
        if left == 0:
            return
        for rows in read_keyed_split(store, split, replace(request, limit=None), merging):
            for batch in rows.to_batches():
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= batch.num_rows
                if batch.num_rows:
                    yield batch
            if left == 0:
                return
