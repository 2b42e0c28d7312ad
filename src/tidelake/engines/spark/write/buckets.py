"""Compute the bucket of each row inside Spark, and the task that writes it.

Keys of integers and dates are hashed by plain column expressions, which Spark compiles. Of other rows only the key
columns go to Python, where the hash function of the format runs. Both use values as the writer will see them: cast to
the type of the column, and with its default instead of null.

Invariant: a row gets the bucket that `spec.rows.bucket_function` computes, and one task gets all rows of a bucket. A
value that does not fit its column gets any bucket, because the task that writes it refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tidelake.engines.spark.bridge.conditions import column_named as named
from tidelake.engines.spark.bridge.conditions import quote_name
from tidelake.engines.spark.bridge.types import to_spark
from tidelake.errors import InvalidInputError
from tidelake.ops.placement.bucket_counts import KnownBuckets
from tidelake.ops.placement.routing import Router
from tidelake.ops.write.values import fit_column
from tidelake.spec.casts.cast_values import cast_array
from tidelake.spec.rows.bucket_function import BucketFunction, assign_buckets
from tidelake.spec.schemas.bucket_mode import BucketOptions
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import STRING, Field, Root

TASK: Final = "__tidelake_task"
_HASH: Final = "__tidelake_hash"
_LOW: Final = {
    Root.TINYINT: 0xFF,
    Root.SMALLINT: 0xFFFF,
    Root.INT: 0xFFFFFFFF,
    Root.DATE: 0xFFFFFFFF,
    Root.BIGINT: 0xFFFFFFFF,
}
"""Types that are hashed inside Spark, with the bits of a value that are in the first of the two words of its slot."""
_PLAIN_KEYS_MAX: Final = 4
"""Key columns above which Spark takes longer to compile the hash than Python takes to compute it."""
_MASK: Final = 0xFFFFFFFF
_SEED, _C1, _C2, _N = 42, 0xCC9E2D51 - (1 << 32), 0x1B873593, 0xE6546B64
_F1, _F2 = 0x85EBCA6B - (1 << 32), 0xC2B2AE35 - (1 << 32)


def add_task_column(frame: DataFrame, schema: Schema, buckets: BucketOptions, tasks: int) -> DataFrame:
    """Add a column with the number of the task that writes each row.

    Raises:
        InvalidInputError: the bucket function does not accept the bucket key.
    """
    keys = [schema.field(name) for name in schema.bucket_keys]
    columns = frame.columns
    frame, bucket = compute_bucket(frame, keys, buckets)
    frame = frame.withColumn(TASK, compute_task(columns, schema, bucket, tasks))
    return frame.drop(_HASH) if _HASH in frame.columns else frame


def add_task_column_by_partition(
    frame: DataFrame, schema: Schema, buckets: BucketOptions, known: KnownBuckets, tasks: int
) -> DataFrame:
    """Add that column where the number of buckets depends on the partition."""
    buckets_of = _PartitionBuckets(schema, buckets, known)
    columns = frame.columns
    bucket = arrow_udf(buckets_of.run, "int")(*(frame_column(columns, field) for field in buckets_of.fields))
    return frame.withColumn(TASK, compute_task(columns, schema, bucket.cast("long"), tasks))


def compute_task(columns: Sequence[str], schema: Schema, bucket: Column, tasks: int) -> Column:
    """The task of a row by its partition and bucket. Consecutive buckets of a partition go to consecutive tasks."""
    if schema.partition_keys:
        first = f.xxhash64(*(cast_column_for_write(columns, schema.field(name)) for name in schema.partition_keys))
        bucket = f.pmod(first, f.lit(tasks)) + bucket
    return f.pmod(bucket, f.lit(tasks)).cast("int")


def compute_bucket(frame: DataFrame, keys: Sequence[Field], buckets: BucketOptions) -> tuple[DataFrame, Column]:
    """Add what the bucket is computed from to a frame, and return it with the bucket of each row.

    Raises:
        InvalidInputError: the bucket function does not accept such a key.
    """
    # No rows, only to raise the error on the driver.
    none = [pa.array([], to_arrow(field.type)) for field in keys]
    assign_buckets(none, [field.type for field in keys], function=buckets.function, count=buckets.bucket)
    columns = frame.columns
    if buckets.function is BucketFunction.MOD and keys[0].default is None:
        whole = cast_column_for_write(columns, keys[0]).cast("long")
        return frame, f.coalesce(f.pmod(whole, f.lit(buckets.bucket)), f.lit(0).cast("long"))
    if buckets.function is BucketFunction.DEFAULT and _is_plain(keys):
        frame = _add_hash(frame, keys)
        return frame, f.expr(f"abs({_signed_hash()} % {buckets.bucket})")
    buckets_of = _KeyBuckets(tuple(keys), buckets.function, buckets.bucket)
    return frame, arrow_udf(buckets_of.run, "int")(*(frame_column(columns, field) for field in keys)).cast("long")


def _is_plain(keys: Sequence[Field]) -> bool:
    fits = (field.type.root in _LOW and not field.type.nullable and field.default is None for field in keys)
    return len(keys) <= _PLAIN_KEYS_MAX and all(fits)


@dataclass(frozen=True, slots=True)
class _KeyBuckets:
    """Computes buckets of keys that Spark cannot hash as the format does."""

    keys: tuple[Field, ...]
    function: BucketFunction
    count: int

    def run(self, *columns: pa.Array) -> pa.Array:
        try:
            arrays = [fit_array(column, field) for column, field in zip(columns, self.keys, strict=True)]
        except InvalidInputError:
            return pa.repeat(pa.scalar(0, pa.int32()), len(columns[0]))
        types = [field.type for field in self.keys]
        return pa.array(assign_buckets(arrays, types, function=self.function, count=self.count), pa.int32())


@dataclass(frozen=True, slots=True)
class _PartitionBuckets:
    """Computes buckets of rows where the number of buckets depends on the partition."""

    schema: Schema
    buckets: BucketOptions
    known: KnownBuckets

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that the bucket depends on."""
        names = dict.fromkeys((*self.schema.partition_keys, *self.schema.bucket_keys))
        return tuple(self.schema.field(name) for name in names)

    def run(self, *columns: pa.Array) -> pa.Array:
        try:
            found = [fit_array(column, field) for column, field in zip(columns, self.fields, strict=True)]
        except InvalidInputError:
            return pa.repeat(pa.scalar(0, pa.int32()), len(columns[0]))
        rows = pa.RecordBatch.from_arrays(found, names=[field.name for field in self.fields])
        return pa.array(Router(self.schema, self.buckets, self.known).find_buckets(rows)[2], pa.int32())


# ------------------------------------------------------------------------------------------------ columns


def frame_column(columns: Sequence[str], field: Field) -> Column:
    """A column of the table as it is in the frame; null if the frame does not have it."""
    return named(field.name) if field.name in columns else f.lit(None).cast(to_spark(field.type))


def cast_column_for_write(columns: Sequence[str], field: Field) -> Column:
    """A column of the table as the writer will see it, so that equal values are equal here; null if it does not fit."""
    found = frame_column(columns, field).try_cast(to_spark(field.type))
    if field.default is None:
        return found
    default = cast_array(pa.array([field.default]), STRING, field.type)[0].as_py()
    return f.coalesce(found, f.lit(default).cast(to_spark(field.type)))


def fit_array(column: pa.Array, field: Field) -> pa.Array:
    """Convert a column from Spark to the type of the table, with its default and its checks.

    Raises:
        InvalidInputError: a value does not fit.
    """
    return fit_column(from_spark_time(column, field), field, to_arrow(field.type), len(column))


def from_spark_time(column: pa.Array, field: Field) -> pa.Array:
    """Convert a TIME column back from the milliseconds of the day, as which Spark holds it."""
    return column.cast(pa.time32("ms")) if field.type.root is Root.TIME and column.type == pa.int32() else column


def arrow_udf(run: Any, returns: str) -> Any:
    """Wrap a function over Arrow arrays for Spark."""
    functions: Any = f  # the type stubs of PySpark do not have `arrow_udf` yet
    return functions.arrow_udf(run, returns)


# ------------------------------------------------------------------------------------------------ hashes


# Texts, because each function of PySpark that makes a column is a call of the JVM, and a hash has hundreds of them.


def _add_hash(frame: DataFrame, keys: Sequence[Field]) -> DataFrame:
    """Add a column with the Murmur3 hash of a key, up to the last step: over the null bits, all zero, and the slots.

    Each step uses the result of the step before several times. As one expression it would double in size with every
    step, so there is one projection for each key column and one for the end.
    """
    columns = frame.columns
    number = _SEED
    header = (len(keys) + 8 + 63) // 64 * 2
    for _ in range(header):
        number = _mix_zero(number)
    state = f"CAST({number} AS BIGINT)"
    for field in keys:
        whole = _whole_number(columns, field)
        state = _mix(state, f"({whole} & {_LOW[field.type.root]})")
        state = _mix(state, f"shiftrightunsigned({whole}, 32)" if field.type.root is Root.BIGINT else None)
        frame = frame.withColumn(_HASH, f.expr(state))
        state = _HASH
    length = 4 * header + 8 * len(keys)
    for shift, factor in ((16, _F1), (13, _F2)):
        state = f"({state} ^ {length})" if shift == 16 else state
        state = _times(f"({state} ^ shiftrightunsigned({state}, {shift}))", factor)
    return frame.withColumn(_HASH, f.expr(state))


def _whole_number(columns: Sequence[str], field: Field) -> str:
    """A key column without a default as the writer will see it, as a BIGINT."""
    value = quote_name(field.name) if field.name in columns else "NULL"
    value = f"try_cast({value} AS {to_spark(field.type).simpleString()})"
    return f"CAST({f'unix_date({value})' if field.type.root is Root.DATE else value} AS BIGINT)"


def _signed_hash() -> str:
    """The last step of the hash, over the column that `_add_hash` adds, as a signed number."""
    last = f"({_HASH} ^ shiftrightunsigned({_HASH}, 16))"
    return f"({last} - shiftleft(shiftrightunsigned({_HASH}, 31), 32))"


def _mix(state: str, word: str | None) -> str:
    """Mix one more word into the state; None is a word of zeros."""
    once = state if word is None else f"({state} ^ {_times(_rotate(_times(word, _C1), 15), _C2)})"
    return f"(({_rotate(once, 13)} * 5 + {_N}) & {_MASK})"


def _mix_zero(state: int) -> int:
    """Mix a word of zeros into the state."""
    return ((state << 13 | state >> 19) & _MASK) * 5 + _N & _MASK


def _times(value: str, factor: int) -> str:
    """The low 32 bits of a product. Factors are signed, because Spark raises if the product overflows a long."""
    return f"(({value} * {factor}) & {_MASK})"


def _rotate(value: str, bits: int) -> str:
    return f"((shiftleft({value}, {bits}) | shiftrightunsigned({value}, {32 - bits})) & {_MASK})"
