"""The bucket mode of a table. Only this module derives it from the schema and the option `bucket`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidelake.options import Affects, OptionGroup, TableOptions, option, same_option
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.spec.rows.bucket_function import BucketFunction
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.schemas.schema_options import BUCKETS_OPEN, SchemaOptions

__all__ = ["BucketMode", "BucketOptions", "bucket_mode", "derive_bucket_mode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketOptions(OptionGroup):
    """How rows find their bucket."""

    bucket: int = same_option(SchemaOptions, "bucket")
    function: BucketFunction = option(
        "bucket-function.type",
        BucketFunction.DEFAULT,
        doc="How the bucket key is hashed.",
        affects=(Affects.READ, Affects.WRITE),
        immutable=True,
    )


class BucketMode(Enum):
    """How rows get their bucket."""

    UNAWARE = "unaware"
    """An append table without buckets: all files are in bucket 0."""
    FIXED = "fixed"
    """The hash of the bucket key, modulo a fixed count."""
    DYNAMIC = "dynamic"
    """Keys stay in their partition, and hash indexes record the bucket of each key."""
    CROSS_PARTITION = "cross-partition"
    """Keys may move between partitions, so that a writer has to know the partition and bucket of every key."""
    POSTPONED = "postponed"
    """Rows are staged in bucket -2, and get a bucket by the hash of their key when they are compacted."""

    @property
    def hashes_rows(self) -> bool:
        """Whether the hash of a row's bucket key decides which bucket of its partition it is in."""
        return self in (BucketMode.FIXED, BucketMode.POSTPONED)

    @property
    def is_dynamic(self) -> bool:
        """Whether writers choose the buckets of new keys."""
        return self in (BucketMode.DYNAMIC, BucketMode.CROSS_PARTITION)


def bucket_mode(schema: Schema, options: TableOptions) -> BucketMode:
    """The bucket mode of a table with these options in force.

    Raises:
        InvalidInputError: the option `bucket` has a wrong value.
    """
    return derive_bucket_mode(schema, options.of(BucketOptions).bucket)


def derive_bucket_mode(schema: Schema, bucket: int) -> BucketMode:
    """The bucket mode of a table with this value of the option `bucket`."""
    if not schema.primary_keys:
        return BucketMode.FIXED if bucket > 0 else BucketMode.UNAWARE
    if bucket == POSTPONE_BUCKET:
        return BucketMode.POSTPONED
    if bucket != BUCKETS_OPEN:
        return BucketMode.FIXED
    stays = set(schema.partition_keys) <= set(schema.primary_keys)
    return BucketMode.DYNAMIC if stays else BucketMode.CROSS_PARTITION
