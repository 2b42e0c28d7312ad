"""Staged rows, as sorted runs that a read of their bucket merges in (`postpone.merge-on-read`).

The rows of a partition are read in the order they were written. Those of one bucket are collected up to a limit, merged
as a writer would merge them, and become a run that is newer than all files of the bucket. Invariant: memory holds one
such block, and one batch of each run that is stored on local disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from tidelake.io.scratch import Extent, ScratchFile
from tidelake.lsm.engine import SEQUENCE
from tidelake.lsm.kernel import MergePlan, Piece, merge_rows
from tidelake.ops.read.append import read_data_file
from tidelake.ops.scan.postponed import in_arrival_order
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.split import Split
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.spec.rows.bucket_function import assign_buckets
from tidelake.spec.schemas.bucket_mode import BucketOptions
from tidelake.store.table_store import TableStore

__all__ = ["staged_runs"]

_SEQUENCE: Final = pa.field(SEQUENCE, pa.int64(), nullable=False)
_BLOCK_BYTES: Final = 128 << 20
_BATCH_ROWS: Final = 1 << 16


def staged_runs(
    store: TableStore, split: Split, request: ReadRequest, buckets: BucketOptions, plan: MergePlan, age: int
) -> list[Iterator[Piece]]:
    """The staged rows of the bucket, as runs from this age on.

    `request` reads the columns that the merge needs and the kind of each row.

    Raises:
        FormatError: a file is missing or damaged.
        InvalidInputError: a version is one that the merge engine does not accept.
    """
    next_sequence = max((file.max_sequence for file in split.files), default=-1) + 1
    runs: list[Iterator[Piece]] = []
    for rows in _blocks(_read_bucket(store, split, request, buckets)):
        numbers = np.arange(next_sequence, next_sequence + rows.num_rows)
        next_sequence += rows.num_rows
        merged = merge_rows(rows.append_column(_SEQUENCE, pa.array(numbers)), plan)
        runs.append(_run(merged, age + len(runs), on_disk=bool(runs)))
    return runs


def _read_bucket(
    store: TableStore, split: Split, request: ReadRequest, buckets: BucketOptions
) -> Iterator[pa.RecordBatch]:
    schema = request.schema
    names = schema.bucket_keys
    types = [schema.field(name).type for name in names]
    staged = replace(
        split, bucket=POSTPONE_BUCKET, bucket_path=split.staged_path, files=in_arrival_order(split.staged), staged=()
    )
    for file in staged.files:
        for batch in read_data_file(store, staged, file, request):
            columns = [batch.column(name) for name in names]
            found = assign_buckets(columns, types, function=buckets.function, count=split.total_buckets)
            yield batch.filter(pa.array(found == split.bucket))


def _blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= _BLOCK_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _run(rows: pa.Table, age: int, *, on_disk: bool) -> Iterator[Piece]:
    if not on_disk:
        return iter([Piece(rows, age, 0)])
    file = ScratchFile()
    extents = [file.append(_encode(batch)) for batch in rows.to_batches(max_chunksize=_BATCH_ROWS)]
    return _read_from_disk(file, extents, age)


def _encode(batch: pa.RecordBatch) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return memoryview(sink.getvalue())


def _read_from_disk(file: ScratchFile, extents: Sequence[Extent], age: int) -> Iterator[Piece]:
    try:
        for extent in extents:
            with pa.ipc.open_stream(pa.py_buffer(file.read(extent))) as stream:
                yield Piece(stream.read_all(), age, 0)
    finally:
        file.close()
