"""The bucket that Spark computes is the one that every other writer computes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, StructField, StructType

from tidelake.engines.spark.bridge.types import to_spark
from tidelake.engines.spark.write.buckets import TASK, add_task_column, compute_bucket
from tidelake.errors import InvalidInputError
from tidelake.spec.rows.bucket_function import assign_buckets
from tidelake.spec.schemas.bucket_mode import BucketOptions
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import Field
from tidelake.spec.types.type_codec import parse_type

VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [0, 1, -1, 127, -128],
    "SMALLINT": [0, -1, 32767, -32768],
    "INT": [0, 1, -1, 2**31 - 1, -(2**31), 123_456_789],
    "BIGINT": [0, 1, -1, 2**63 - 1, -(2**63), 2**32, -(2**32), 2**31, 987_654_321_987],
    "FLOAT": [0.0, -1.5, 3.25],
    "DOUBLE": [0.0, -1.5, 1e300],
    "DECIMAL(9, 2)": [Decimal("0.00"), Decimal("-1.25"), Decimal("1234567.89")],
    "DECIMAL(30, 4)": [Decimal("0.0000"), Decimal("-12345678901234567890.1234")],
    "STRING": ["", "a", "exactly7", "something longer than a slot", "smörgås"],
    "BYTES": [b"", b"\x00\xff", b"longer than eight bytes"],
    "DATE": [dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(2026, 11, 16)],
    "TIMESTAMP(3)": [dt.datetime(1970, 1, 1), dt.datetime(2026, 11, 16, 1, 2, 3, 4000)],
    "TIMESTAMP(6)": [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2026, 11, 16)],
}
PLAIN = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DATE")


def _check(spark: Any, types: list[str], options: dict[str, str]) -> None:
    """One frame with every combination by position, each column cycling through its values."""
    fields = [Field(number, f"k {number}`", parse_type(text)) for number, text in enumerate(types)]
    pools = [VALUES[text.removesuffix(" NOT NULL")] + ([] if "NOT NULL" in text else [None]) for text in types]
    rows = [tuple(pool[(at * (number + 1)) % len(pool)] for number, pool in enumerate(pools)) for at in range(12)]
    shape = StructType([StructField(each.name, to_spark(each.type), each.type.nullable) for each in fields])
    frame = spark.createDataFrame([(*row, at) for at, row in enumerate(rows)], shape.add("at", IntegerType()))
    buckets = BucketOptions.parse(options)
    found, bucket = compute_bucket(frame, fields, buckets)
    got = [row.bucket for row in found.select("at", bucket.alias("bucket")).orderBy("at").collect()]
    arrays = [
        pa.array(list(column), to_arrow(each.type))
        for column, each in zip(zip(*rows, strict=True), fields, strict=True)
    ]
    wanted = assign_buckets(
        arrays, [each.type for each in fields], function=buckets.function, count=buckets.bucket
    ).tolist()
    assert got == wanted, (types, options)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_keys_that_spark_hashes_itself_get_the_bucket_of_the_format(spark: Any, ansi: str) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for number, each in enumerate(PLAIN):
            _check(spark, [f"{each} NOT NULL"], {"bucket": str(number + 2)})
        _check(spark, ["BIGINT NOT NULL", "INT NOT NULL", "DATE NOT NULL", "SMALLINT NOT NULL"], {"bucket": "1000"})
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_keys_that_python_hashes_get_the_bucket_of_the_format_nulls_too(spark: Any) -> None:
    for first, second in zip(list(VALUES)[::2], list(VALUES)[1::2], strict=True):
        _check(spark, [first, second], {"bucket": "17"})


def test_a_key_of_more_columns_than_a_null_word_holds_is_hashed_right(spark: Any) -> None:
    _check(spark, ["INT NOT NULL"] * 57, {"bucket": "13"})


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_the_function_mod_is_the_remainder_and_zero_for_null(spark: Any, ansi: str) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for each in ("INT", "BIGINT NOT NULL"):
            _check(spark, [each], {"bucket": "5", "bucket-function.type": "mod"})
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_the_function_hive_is_that_of_hive(spark: Any) -> None:
    _check(spark, ["INT", "STRING", "BIGINT", "DECIMAL(9, 2)"], {"bucket": "7", "bucket-function.type": "hive"})


def test_a_key_that_a_function_does_not_take_is_refused_before_a_job_runs(spark: Any) -> None:
    frame = spark.createDataFrame([("a",)], "k string")
    with pytest.raises(InvalidInputError, match="takes INT or BIGINT"):
        compute_bucket(
            frame,
            [Field(0, "k", parse_type("STRING"))],
            BucketOptions.parse({"bucket": "5", "bucket-function.type": "mod"}),
        )


def test_a_wider_number_goes_where_the_column_would_put_it(spark: Any) -> None:
    field = Field(0, "k", parse_type("INT NOT NULL"))
    buckets = BucketOptions.parse({"bucket": "97"})
    wanted = assign_buckets([pa.array([-7, 7], pa.int32())], [field.type], function=buckets.function, count=97).tolist()
    for other in ("bigint", "double", "decimal(20,3)"):
        frame = spark.createDataFrame([(-7,), (7,)], "n int").select(f.col("n").cast(other).alias("k"))
        found, bucket = compute_bucket(frame, [field], buckets)
        assert [row.b for row in found.orderBy("k").select(bucket.alias("b")).collect()] == wanted


def test_all_rows_of_a_bucket_of_a_partition_go_to_one_task_and_partitions_spread(spark: Any) -> None:
    fields = tuple(
        Field(n, name, parse_type(text)) for n, (name, text) in enumerate((("p", "STRING"), ("k", "INT NOT NULL")))
    )
    schema = Schema(
        id=0, fields=fields, highest_field_id=1, partition_keys=("p",), primary_keys=(), time_ms=0,
        options={"bucket": "2", "bucket-key": "k"}, comment=None,
    )  # fmt: skip
    frame = spark.range(400).selectExpr("if(id % 11 = 0, null, concat('p', id % 10)) p", "cast(id as int) k")
    buckets = BucketOptions.parse(schema.options)
    found, bucket = compute_bucket(frame, [fields[1]], buckets)
    rows = (
        add_task_column(found.withColumn("b", bucket), schema, buckets, 8).select("p", "b", TASK).distinct().collect()
    )
    assert len(rows) == len({(row.p, row.b) for row in rows})
    assert len({row[TASK] for row in rows}) > 4


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1),
            st.integers(-(2**31), 2**31 - 1),
            st.integers(-(2**15), 2**15 - 1),
            st.integers(-(2**7), 2**7 - 1),
        ),
        min_size=50,
        max_size=200,
    ),
    count=st.integers(1, 2**31 - 1),
)
def test_any_numbers_get_the_bucket_of_the_format(spark: Any, rows: list[tuple[int, ...]], count: int) -> None:
    types = ["BIGINT NOT NULL", "INT NOT NULL", "SMALLINT NOT NULL", "TINYINT NOT NULL"]
    fields = [Field(number, f"k{number}", parse_type(text)) for number, text in enumerate(types)]
    buckets = BucketOptions.parse({"bucket": str(count)})
    shape = StructType([StructField(each.name, to_spark(each.type), False) for each in fields])
    frame = spark.createDataFrame([(*row, at) for at, row in enumerate(rows)], shape.add("at", IntegerType()))
    found, bucket = compute_bucket(frame.coalesce(1), fields, buckets)
    got = [row.b for row in found.select("at", bucket.alias("b")).orderBy("at").collect()]
    arrays = [
        pa.array(list(column), to_arrow(each.type))
        for column, each in zip(zip(*rows, strict=True), fields, strict=True)
    ]
    assert (
        got == assign_buckets(arrays, [each.type for each in fields], function=buckets.function, count=count).tolist()
    )
