"""Whether rows are in the partition and bucket they belong to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidelake.ops.context import TableContext
from tidelake.ops.scan.split import Split
from tidelake.spec.rows.binary_row import encode_rows
from tidelake.spec.rows.bucket_function import assign_buckets
from tidelake.spec.schemas.bucket_mode import BucketOptions
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import with_nullable

__all__ = ["rows_in_bucket", "rows_in_partition"]


def rows_in_partition(schema: Schema, split: Split, batch: pa.RecordBatch) -> bool:
    """Whether all rows are of the partition that their file is in."""
    if not schema.partition_keys or not batch.num_rows:
        return True
    types = [with_nullable(dtype, True) for dtype in schema.partition_types]
    columns = [batch.column(name) for name in schema.partition_keys]
    found: list[bytes] = encode_rows(columns, types, length=batch.num_rows).unique().to_pylist()
    return found == [split.partition]


def rows_in_bucket(context: TableContext, schema: Schema, split: Split, batch: pa.RecordBatch) -> bool:
    """Whether all rows are of the bucket that their file is in, as far as that follows from the rows."""
    keys = schema.bucket_keys
    if split.total_buckets <= 0 or not keys:
        return True
    found = assign_buckets(
        [batch.column(name) for name in keys],
        [schema.field(name).type for name in keys],
        function=context.options.of(BucketOptions).function,
        count=split.total_buckets,
    )
    return bool(np.all(found == split.bucket))
