"""Batches in an order, all of them or the first few.

With a limit only about as many rows are held as are asked for; without one the sorted result itself is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from tidelake.ops.scan.topn import SortKey

SLACK_ROWS = 1 << 16
"""Rows that are gathered beyond the limit before the last ones are dropped."""
BATCH_ROWS = 1 << 17


def sorted_batches(
    batches: Iterable[pa.RecordBatch], keys: Sequence[SortKey], limit: int | None, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows in order, at most `limit`; rows that are equal by all keys keep the order they come in.

    Null comes first when ascending and last when descending; NaN counts as greater than every number.
    """
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if limit is not None and count > limit + SLACK_ROWS:
            held = _sort(held, keys, limit, schema).to_batches()
            count = sum(each.num_rows for each in held)
    yield from _sort(held, keys, limit, schema).to_batches(max_chunksize=BATCH_ROWS)


def _sort(batches: Sequence[pa.RecordBatch], keys: Sequence[SortKey], limit: int | None, schema: pa.Schema) -> pa.Table:
    import polars as pl  # slow to load, and most reads do not need it

    table = pa.Table.from_batches(batches, schema=schema)
    frame = pl.from_arrow(table.select([key.column for key in keys]))
    assert isinstance(frame, pl.DataFrame)
    order = frame.select(
        pl.arg_sort_by(
            [pl.col(key.column) for key in keys],
            descending=[key.descending for key in keys],
            nulls_last=[key.descending for key in keys],
            maintain_order=True,
        ).alias("order")
    ).to_series()
    chosen = order if limit is None else order.head(limit)
    return table.take(chosen.to_arrow()).combine_chunks()
