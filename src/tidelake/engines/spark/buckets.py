"""Where rows go: the bucket of each row as Spark sees it, and the task that writes it.

Keys of integers and dates are hashed by plain column expressions, which Spark compiles; any other key crosses into
Python, alone, to be hashed as everywhere else. Values are looked at as the writer will see them: in the type of the
column, with its default in the place of null.

Invariant: a row gets the bucket that `spec.bucket` gives it, and all rows of a bucket go to one task. A value that does
not fit its column gets any bucket: the task that writes it refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tidelake.engines.spark.conditions import column_named as named
from tidelake.engines.spark.types import to_spark
from tidelake.errors import InvalidInputError
from tidelake.ops.scan.options import BucketOptions
from tidelake.ops.write.bucket_counts import KnownBuckets
from tidelake.ops.write.routing import Router
from tidelake.ops.write.values import fit_column
from tidelake.spec.arrow_types import to_arrow
from tidelake.spec.bucket import BucketFunction, assign_buckets
from tidelake.spec.cast_values import cast_array
from tidelake.spec.schema import Schema
from tidelake.spec.types import STRING, Field, Root

TASK: Final = "__tidelake_task"
_HASH: Final = "__tidelake_hash"
_LOW: Final = {
    Root.TINYINT: 0xFF,
    Root.SMALLINT: 0xFFFF,
    Root.INT: 0xFFFFFFFF,
    Root.DATE: 0xFFFFFFFF,
    Root.BIGINT: 0xFFFFFFFF,
}
"""Types that Spark hashes, and the bits of their values in the first of the two words of a slot."""
_PLAIN_KEYS_MAX: Final = 4
"""Columns of a key beyond which Spark takes longer to compile the hash than Python to compute it."""
_MASK: Final = 0xFFFFFFFF
_SEED, _C1, _C2, _N = 42, 0xCC9E2D51 - (1 << 32), 0x1B873593, 0xE6546B64
_F1, _F2 = 0x85EBCA6B - (1 << 32), 0xC2B2AE35 - (1 << 32)


def with_task(frame: DataFrame, schema: Schema, buckets: BucketOptions, tasks: int) -> DataFrame:
    """The frame with one more column, the number of the task that writes each row.

    Raises:
        InvalidInputError: the bucket function does not take the bucket key.
    """
    keys = [schema.field(name) for name in schema.bucket_keys]
    columns = frame.columns
    frame, bucket = bucket_of(frame, keys, buckets)
    frame = frame.withColumn(TASK, task_of(columns, schema, bucket, tasks))
    return frame.drop(_HASH) if _HASH in frame.columns else frame


def with_counted_task(
    frame: DataFrame, schema: Schema, buckets: BucketOptions, known: KnownBuckets, tasks: int
) -> DataFrame:
    """The same where partitions have different numbers of buckets."""
    placing = _Placing(schema, buckets, known)
    columns = frame.columns
    bucket = arrow_udf(placing.run, "int")(*(raw(columns, field) for field in placing.fields))
    return frame.withColumn(TASK, task_of(columns, schema, bucket.cast("long"), tasks))


def task_of(columns: Sequence[str], schema: Schema, bucket: Column, tasks: int) -> Column:
    """The task of a row by its partition and its bucket: buckets of a partition go to tasks one after the other."""
    if schema.partition_keys:
        place = f.xxhash64(*(seen(columns, schema.field(name)) for name in schema.partition_keys))
        bucket = f.pmod(place, f.lit(tasks)) + bucket
    return f.pmod(bucket, f.lit(tasks)).cast("int")


def bucket_of(frame: DataFrame, keys: Sequence[Field], buckets: BucketOptions) -> tuple[DataFrame, Column]:
    """A frame with what the bucket is computed from, and the bucket of each row.

    Raises:
        InvalidInputError: the bucket function does not take such a key.
    """
    none = [pa.array([], to_arrow(field.type)) for field in keys]
    assign_buckets(none, [field.type for field in keys], function=buckets.function, count=buckets.bucket)
    columns = frame.columns
    if buckets.function is BucketFunction.MOD and keys[0].default is None:
        whole = seen(columns, keys[0]).cast("long")
        return frame, f.coalesce(f.pmod(whole, f.lit(buckets.bucket)), f.lit(0).cast("long"))
    if buckets.function is BucketFunction.DEFAULT and _is_plain(keys):
        frame = _hashed(frame, keys)
        return frame, f.abs(_signed_hash() % buckets.bucket)
    assign = _Assign(tuple(keys), buckets.function, buckets.bucket)
    return frame, arrow_udf(assign.run, "int")(*(raw(columns, field) for field in keys)).cast("long")


def _is_plain(keys: Sequence[Field]) -> bool:
    fits = (field.type.root in _LOW and not field.type.nullable and field.default is None for field in keys)
    return len(keys) <= _PLAIN_KEYS_MAX and all(fits)


@dataclass(frozen=True, slots=True)
class _Assign:
    """Buckets of keys that Spark does not hash as the format does."""

    keys: tuple[Field, ...]
    function: BucketFunction
    count: int

    def run(self, *columns: pa.Array) -> pa.Array:
        try:
            arrays = [fitted(column, field) for column, field in zip(columns, self.keys, strict=True)]
        except InvalidInputError:
            return pa.repeat(pa.scalar(0, pa.int32()), len(columns[0]))
        types = [field.type for field in self.keys]
        return pa.array(assign_buckets(arrays, types, function=self.function, count=self.count), pa.int32())


@dataclass(frozen=True, slots=True)
class _Placing:
    """Buckets of rows whose partition says how many there are."""

    schema: Schema
    buckets: BucketOptions
    known: KnownBuckets

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that it looks at."""
        names = dict.fromkeys((*self.schema.partition_keys, *self.schema.bucket_keys))
        return tuple(self.schema.field(name) for name in names)

    def run(self, *columns: pa.Array) -> pa.Array:
        try:
            found = [fitted(column, field) for column, field in zip(columns, self.fields, strict=True)]
        except InvalidInputError:
            return pa.repeat(pa.scalar(0, pa.int32()), len(columns[0]))
        rows = pa.RecordBatch.from_arrays(found, names=[field.name for field in self.fields])
        return pa.array(Router(self.schema, self.buckets, self.known).found(rows)[2], pa.int32())


# ------------------------------------------------------------------------------------------------ columns


def raw(columns: Sequence[str], field: Field) -> Column:
    """A column of the table as the frame has it; null where it does not."""
    return named(field.name) if field.name in columns else f.lit(None).cast(to_spark(field.type))


def seen(columns: Sequence[str], field: Field) -> Column:
    """A column of the table as the writer will see it: equal values are equal here; null where it does not fit."""
    found = raw(columns, field).try_cast(to_spark(field.type))
    if field.default is None:
        return found
    default = cast_array(pa.array([field.default]), STRING, field.type)[0].as_py()
    return f.coalesce(found, f.lit(default).cast(to_spark(field.type)))


def fitted(column: pa.Array, field: Field) -> pa.Array:
    """A column as Spark hands it out, as the table takes it.

    Raises:
        InvalidInputError: a value does not fit.
    """
    return fit_column(from_spark_time(column, field), field, to_arrow(field.type), len(column))


def from_spark_time(column: pa.Array, field: Field) -> pa.Array:
    """A TIME as such: Spark sees the milliseconds of the day."""
    return column.cast(pa.time32("ms")) if field.type.root is Root.TIME and column.type == pa.int32() else column


def arrow_udf(run: Any, returns: str) -> Any:
    """A function over Arrow arrays as one of Spark."""
    functions: Any = f  # its types do not know it yet
    return functions.arrow_udf(run, returns)


# ------------------------------------------------------------------------------------------------ hashes


def _hashed(frame: DataFrame, keys: Sequence[Field]) -> DataFrame:
    """Murmur3 over the null bits, all zero, and the slots of the columns, but for its last step.

    A step refers to the one before it several times: written as one expression it would double with each, so there is
    a projection for every column and one for the end.
    """
    columns = frame.columns
    number = _SEED
    header = (len(keys) + 8 + 63) // 64 * 2
    for _ in range(header):
        number = _mixed_number(number)
    state = f.lit(number).cast("long")
    for field in keys:
        value = seen(columns, field)
        whole = (f.unix_date(value) if field.type.root is Root.DATE else value).cast("long")
        state = _mixed(state, whole.bitwiseAND(_LOW[field.type.root]))
        state = _mixed(state, f.shiftrightunsigned(whole, 32) if field.type.root is Root.BIGINT else None)
        frame = frame.withColumn(_HASH, state)
        state = named(_HASH)
    length = 4 * header + 8 * len(keys)
    for shift, factor in ((16, _F1), (13, _F2)):
        state = state.bitwiseXOR(length) if shift == 16 else state
        state = _times(state.bitwiseXOR(f.shiftrightunsigned(state, shift)), factor)
    return frame.withColumn(_HASH, state)


def _signed_hash() -> Column:
    """The hash code, from what `_hashed` leaves, as a number with a sign."""
    last = named(_HASH).bitwiseXOR(f.shiftrightunsigned(named(_HASH), 16))
    return last.cast("long") - f.shiftleft(f.shiftrightunsigned(named(_HASH), 31), 32)


def _mixed(state: Column, word: Column | None) -> Column:
    """The state after one more word; None is a word of zeros."""
    once = state if word is None else state.bitwiseXOR(_times(_rotated(_times(word, _C1), 15), _C2))
    return (_rotated(once, 13) * 5 + _N).bitwiseAND(_MASK)


def _mixed_number(state: int) -> int:
    """The state after a word of zeros."""
    return ((state << 13 | state >> 19) & _MASK) * 5 + _N & _MASK


def _times(value: Column, factor: int) -> Column:
    """The low 32 bits of a product; a factor with a sign is small enough for a long, and Spark raises on overflow."""
    return (value * factor).bitwiseAND(_MASK)


def _rotated(value: Column, bits: int) -> Column:
    return f.shiftleft(value, bits).bitwiseOR(f.shiftrightunsigned(value, 32 - bits)).bitwiseAND(_MASK)
