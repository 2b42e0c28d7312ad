"""Where rows go: the bucket of each row as Spark sees it, and the task that writes it.

Keys of integers and dates are hashed by plain column expressions, which Spark compiles; any other key crosses into
Python, alone, to be hashed as everywhere else. Invariant: a row gets the bucket that `spec.bucket` gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf

from tidelake.engines.spark.types import from_spark_column
from tidelake.ops.scan.options import BucketOptions
from tidelake.spec.bucket import BucketFunction, assign_buckets
from tidelake.spec.schema import Schema
from tidelake.spec.types import DataType, Root

TASK: Final = "__tidelake_task"
_HASH: Final = "__tidelake_hash"
_WORDS: Final = {Root.TINYINT: 1, Root.SMALLINT: 1, Root.INT: 1, Root.DATE: 1, Root.BIGINT: 2}
"""32-bit words of an eight-byte slot that are not always zero."""
_MASK: Final = 0xFFFFFFFF
_SEED, _C1, _C2, _N = 42, 0xCC9E2D51, 0x1B873593, 0xE6546B64


def with_task(frame: DataFrame, schema: Schema, buckets: BucketOptions, tasks: int) -> DataFrame:
    """The frame with one more column, the number of the task that writes each row."""
    keys = [schema.field(name) for name in schema.bucket_keys]
    frame, bucket = bucket_of(frame, [field.name for field in keys], [field.type for field in keys], buckets)
    if schema.partition_keys:
        place = f.xxhash64(*(_named(name) for name in schema.partition_keys))
        bucket = f.pmod(f.pmod(place, f.lit(tasks)) + bucket, f.lit(tasks))
    else:
        bucket = f.pmod(bucket, f.lit(tasks))
    return frame.withColumn(TASK, bucket.cast("int")).drop(_HASH)


def bucket_of(
    frame: DataFrame, names: Sequence[str], types: Sequence[DataType], buckets: BucketOptions
) -> tuple[DataFrame, Column]:
    """A frame with what the bucket is computed from, and the bucket of each row."""
    plain = all(dtype.root in _WORDS and not dtype.nullable for dtype in types)
    if buckets.function is BucketFunction.DEFAULT and plain:
        frame = _hashed(frame, names, types)
        signed = f.when(_named(_HASH) > 0x7FFFFFFF, _named(_HASH) - (1 << 32)).otherwise(_named(_HASH))
        return frame, f.abs(signed % buckets.bucket)

    def assign(*columns: pa.Array) -> pa.Array:
        arrays = [from_spark_column(column, dtype) for column, dtype in zip(columns, types, strict=True)]
        return pa.array(assign_buckets(arrays, types, function=buckets.function, count=buckets.bucket), pa.int32())

    udf: Any = arrow_udf
    return frame, udf(assign, "int")(*(_named(name) for name in names))


def _hashed(frame: DataFrame, names: Sequence[str], types: Sequence[DataType]) -> DataFrame:
    """Murmur3 over the null bits, all zero, and the slots of the columns; one projection for each step.

    A step refers to the one before it several times: written as one expression it would double with each.
    """
    state = _SEED
    header = (len(names) + 8 + 63) // 64 * 2
    for _ in range(header):
        state = _mixed_number(state, 0)
    hashed = f.lit(state).cast("long")
    for name, dtype in zip(names, types, strict=True):
        value = _named(name)
        whole = (f.unix_date(value) if dtype.root is Root.DATE else value).cast("long")
        words: list[Column] = [whole.bitwiseAND(_MASK)]
        words.append(f.shiftrightunsigned(whole, 32) if _WORDS[dtype.root] == 2 else f.lit(0).cast("long"))
        for word in words:
            frame = frame.withColumn(_HASH, _mixed(hashed, word))
            hashed = _named(_HASH)
    length = 4 * header + 8 * len(names)
    frame = frame.withColumn(_HASH, hashed.bitwiseXOR(length))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        frame = frame.withColumn(_HASH, _times(hashed.bitwiseXOR(f.shiftrightunsigned(hashed, shift)), factor))
    return frame.withColumn(_HASH, hashed.bitwiseXOR(f.shiftrightunsigned(hashed, 16)))


def _mixed(state: Column, word: Column) -> Column:
    once = _times(_rotated(_times(word, _C1), 15), _C2)
    return (_rotated(state.bitwiseXOR(once), 13) * 5 + _N).bitwiseAND(_MASK)


def _mixed_number(state: int, word: int) -> int:
    once = word * _C1 & _MASK
    once = ((once << 15 | once >> 17) & _MASK) * _C2 & _MASK
    state ^= once
    return ((state << 13 | state >> 19) & _MASK) * 5 + _N & _MASK


def _times(value: Column, factor: int) -> Column:
    """The low 32 bits of a product, in two halves: the whole one would overflow a long, an error in Spark."""
    low = value.bitwiseAND(0xFFFF) * factor
    high = f.shiftleft((f.shiftrightunsigned(value, 16) * factor).bitwiseAND(0xFFFF), 16)
    return (low + high).bitwiseAND(_MASK)


def _rotated(value: Column, bits: int) -> Column:
    return f.shiftleft(value, bits).bitwiseOR(f.shiftrightunsigned(value, 32 - bits)).bitwiseAND(_MASK)


def _named(name: str) -> Column:
    return f.col(f"`{name.replace('`', '``')}`")
