"""Types and values between the table format and Spark, both ways."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types

from kit.spark_rows import assert_same, is_native
from tidelake.catalog.lake import Lake
from tidelake.engines.spark.bridge.types import (
    as_nullable,
    columns_of,
    from_spark,
    require_frame,
    struct_of,
    to_spark,
    to_spark_column,
)
from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.spec.types.data_types import Field
from tidelake.spec.types.type_codec import parse_type

SEEN = [
    ("BOOLEAN", "boolean"),
    ("TINYINT", "tinyint"),
    ("SMALLINT", "smallint"),
    ("INT", "int"),
    ("BIGINT", "bigint"),
    ("FLOAT", "float"),
    ("DOUBLE", "double"),
    ("DECIMAL(20, 4)", "decimal(20,4)"),
    ("CHAR(3)", "string"),
    ("VARCHAR(3)", "string"),
    ("STRING", "string"),
    ("BINARY(3)", "binary"),
    ("VARBINARY(3)", "binary"),
    ("BYTES", "binary"),
    ("BLOB", "binary"),
    ("DATE", "date"),
    ("TIME(3)", "int"),
    ("TIMESTAMP(9)", "timestamp_ntz"),
    ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "timestamp"),
    ("ARRAY<INT NOT NULL>", "array<int>"),
    ("VECTOR<FLOAT, 3>", "array<float>"),
    ("MAP<STRING, TIME(0)>", "map<string,int>"),
    ("MULTISET<STRING>", "map<string,int>"),
    ("ROW<`a` INT, `b` ARRAY<CHAR(2)>>", "struct<a:int,b:array<string>>"),
]
MADE = [
    ("boolean", "BOOLEAN"),
    ("tinyint", "TINYINT"),
    ("smallint", "SMALLINT"),
    ("int", "INT"),
    ("bigint", "BIGINT"),
    ("float", "FLOAT"),
    ("double", "DOUBLE"),
    ("decimal(20,4)", "DECIMAL(20, 4)"),
    ("string", "STRING"),
    ("char(3)", "CHAR(3)"),
    ("varchar(3)", "VARCHAR(3)"),
    ("binary", "BYTES"),
    ("date", "DATE"),
    ("timestamp_ntz", "TIMESTAMP(6)"),
    ("timestamp", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    ("array<int>", "ARRAY<INT>"),
    ("map<string,array<bigint>>", "MAP<STRING NOT NULL, ARRAY<BIGINT>>"),
    ("struct<a:int,b:string>", "ROW<`a` INT, `b` STRING>"),
]


@pytest.mark.parametrize(("ours", "theirs"), SEEN)
def test_spark_sees_each_type_as_the_format_says(ours: str, theirs: str) -> None:
    assert to_spark(parse_type(ours)).simpleString() == theirs


@pytest.mark.parametrize(("theirs", "ours"), MADE)
def test_a_table_made_for_a_frame_has_the_counterparts_of_its_types(spark: Any, theirs: str, ours: str) -> None:
    assert str(from_spark(spark_types.DataType.fromDDL(theirs))) == ours


def test_nullability_inside_and_outside_survives_both_ways() -> None:
    text = "ROW<`a` ARRAY<INT NOT NULL> NOT NULL, `m` MAP<STRING NOT NULL, INT NOT NULL>> NOT NULL"
    dtype = parse_type(text)
    assert str(from_spark(to_spark(dtype), nullable=False)) == text


def test_a_frame_that_reads_allows_nulls_everywhere_as_file_readers_of_spark_do() -> None:
    struct = struct_of([Field(0, "r", parse_type("ROW<`a` ARRAY<INT NOT NULL> NOT NULL> NOT NULL"), "why")])
    loose = as_nullable(struct)
    assert loose["r"].nullable
    assert loose["r"].dataType["a"].nullable
    assert loose["r"].dataType["a"].dataType.containsNull
    assert loose["r"].metadata == {"comment": "why"}


@pytest.mark.parametrize("text", ["VARIANT", "GEOMETRY(OGC:CRS84)", "ARRAY<GEOMETRY(OGC:CRS84)>", "ROW<`v` VARIANT>"])
def test_a_type_that_spark_cannot_see_is_refused_with_its_column(text: str) -> None:
    with pytest.raises(UnsupportedError, match="columns=") as caught:
        struct_of([Field(0, "shape", parse_type(text))])
    assert caught.value.facts["column"] == "shape"


@pytest.mark.parametrize(
    ("theirs", "hint"),
    [
        (spark_types.TimeType(6), "milliseconds"),
        (spark_types.NullType(), "string"),
        (spark_types.DayTimeIntervalType(), "bigint"),
        (spark_types.VariantType(), "to_json"),
    ],
)
def test_a_type_of_spark_without_a_counterpart_is_refused_with_what_to_do(
    theirs: spark_types.DataType, hint: str
) -> None:
    with pytest.raises(InvalidInputError, match="no counterpart") as caught:
        from_spark(spark_types.ArrayType(theirs))
    assert hint in str(caught.value.hint)


def test_a_table_is_made_from_a_frame_or_its_schema(spark: Any, lake: Lake) -> None:
    frame = spark.range(3).selectExpr("id", "cast(id as string) s", "array(id) a")
    made = lake.create_table("db.t", frame)
    assert [str(field.type) for field in made.schema.fields] == [
        "BIGINT NOT NULL",
        "STRING NOT NULL",
        "ARRAY<BIGINT NOT NULL> NOT NULL",
    ]
    again = lake.create_table("db.u", frame.schema)
    assert [field.type for field in again.schema.fields] == [field.type for field in made.schema.fields]
    with pytest.raises(InvalidInputError, match="share a name"):
        columns_of(frame.select("id", "id"))
    with pytest.raises(InvalidInputError, match="nor its schema"):
        columns_of(frame.id)


VALUES: list[tuple[str, list[Any]]] = [
    ("BOOLEAN", [True, False]),
    ("TINYINT", [-128, 127]),
    ("SMALLINT", [-(2**15), 2**15 - 1]),
    ("INT", [-(2**31), 2**31 - 1]),
    ("BIGINT", [-(2**63), 2**63 - 1]),
    ("FLOAT", [1.5, float("nan"), float("-inf"), -0.0]),
    ("DOUBLE", [0.1, float("nan"), float("inf"), -0.0]),
    ("DECIMAL(5, 2)", [Decimal("-999.99"), Decimal("0.01")]),
    ("DECIMAL(38, 10)", [Decimal("-1234567890123456789012345678.0123456789")]),
    ("CHAR(4)", ["ab", ""]),
    ("VARCHAR(4)", ["ü\U0001f300", ""]),
    ("STRING", ["", "long" * 100, "\0"]),
    ("BINARY(3)", [b"abc"]),
    ("BYTES", [b"", b"\0\xff"]),
    ("DATE", [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(9999, 12, 31)]),
    ("TIME(3)", [dt.time(0), dt.time(23, 59, 59, 999000)]),
    ("TIMESTAMP(0)", [dt.datetime(1500, 1, 1, 1, 2, 3)]),
    ("TIMESTAMP(3)", [dt.datetime(1969, 12, 31, 23, 59, 59, 999000)]),
    ("TIMESTAMP(6)", [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    ("TIMESTAMP(6) WITH LOCAL TIME ZONE", [dt.datetime(1900, 1, 1, tzinfo=dt.UTC)]),
    ("ARRAY<INT>", [[], [None, 1]]),
    ("ARRAY<TIME(3)>", [[dt.time(1), None]]),
    ("VECTOR<FLOAT, 2>", [[1.0, 2.0]]),
    ("MAP<STRING, TIMESTAMP(3)>", [[("a", None), ("b", dt.datetime(2020, 1, 1))], []]),
    ("MULTISET<STRING>", [[("a", 2)]]),
    ("ROW<`a` INT, `b` ROW<`c` ARRAY<STRING>>>", [{"a": None, "b": {"c": ["x", None]}}, {"a": 1, "b": None}]),
    ("ARRAY<ROW<`m` MAP<INT, DECIMAL(9, 3)>>>", [[{"m": [(1, Decimal("1.500"))]}, None]]),
]


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "keyed"])
def test_every_value_and_null_of_every_type_is_read_as_in_process(spark: Any, lake: Lake, keyed: bool) -> None:
    columns = {"k": "INT NOT NULL", **{f"c{number}": text for number, (text, _) in enumerate(VALUES)}}
    table = lake.create_table(
        "db.t", columns, primary_key=["k"] if keyed else None, options={"bucket": "1"} if keyed else {}
    )
    count = max(len(values) for _, values in VALUES) + 1
    schema = table.schema.to_arrow()
    data = {"k": list(range(count))}
    for number, (_, values) in enumerate(VALUES):
        data[f"c{number}"] = [*values, *[None] * (count - len(values))]
    rows = pa.table({name: pa.array(data[name], schema.field(name).type) for name in schema.names}, schema=schema)
    table.write(rows)
    if keyed:
        table.write(rows.slice(1, 2))
    assert not is_native(assert_same(spark, table.scan()))
    plain = [
        name
        for name, (text, _) in zip(table.schema.names[1:], VALUES, strict=True)
        if not any(each in text for each in ("TIME(", "MULTISET", "VECTOR"))
    ]
    frame = assert_same(spark, table.scan(["k", *plain]))
    assert is_native(frame) is not keyed


@pytest.mark.parametrize("text", ["TIMESTAMP(9)", "TIMESTAMP(9) WITH LOCAL TIME ZONE"])
def test_digits_below_a_microsecond_are_cut_off_towards_the_past(spark: Any, lake: Lake, text: str) -> None:
    nested = f"ROW<`l` ARRAY<{text}>, `m` MAP<INT, {text}>>"
    table = lake.create_table("db.t", {"t": text, "n": nested})
    kind = table.schema.to_arrow().field("t").type
    stamps = pa.array([-1500, -1, None, 0, 999, 1999], pa.int64()).cast(kind)
    inner = [
        None if each is None else {"l": [each, None], "m": [(1, each)]} for each in stamps.cast(pa.int64()).to_pylist()
    ]
    whole = pa.array(inner, pa.struct([("l", pa.list_(pa.int64())), ("m", pa.map_(pa.int32(), pa.int64()))]))
    table.write(pa.table({"t": stamps, "n": whole.cast(table.schema.to_arrow().field("n").type)}))
    frame = table.to_spark(spark=spark)
    assert not is_native(frame)
    micros = (
        "unix_micros(cast({} as timestamp))" if "LOCAL" in text else "unix_micros(cast(concat({}, 'Z') as timestamp))"
    )
    found = frame.selectExpr(*(micros.format(each) for each in ("t", "n.l[0]", "n.m[1]"))).collect()
    assert [tuple(row) for row in found] == [(each,) * 3 for each in (-2, -1, None, 0, 0, 1)]


def test_slices_of_nested_points_in_time_keep_their_rows() -> None:
    values = pa.array([[1000], None, [-1, 2999], []], pa.list_(pa.timestamp("ns")))
    found = to_spark_column(values.slice(1, 2), parse_type("ARRAY<TIMESTAMP(9)>"))
    assert found.cast(pa.list_(pa.int64())).to_pylist() == [None, [-1, 2]]


def test_a_column_of_the_same_type_is_not_copied() -> None:
    column = pa.array(["a", None])
    assert to_spark_column(column, parse_type("CHAR(3)")) is column


def test_comments_of_columns_reach_spark_by_both_ways(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"k": "INT NOT NULL", "v": "STRING"}, primary_key=["k"], options={"bucket": "1"})
    table.alter(comments={"v": "what it says"})
    table = lake.table("db.t")
    table.write([{"k": 1, "v": "a"}])
    table.write([{"k": 1, "v": "b"}])
    merged = table.to_spark(spark=spark)
    assert not is_native(merged)
    table.compact(full=True)
    native = lake.table("db.t").to_spark(spark=spark)
    assert is_native(native)
    assert merged.schema == native.schema
    assert native.schema["v"].metadata == {"comment": "what it says"}


def test_a_frame_of_pandas_on_spark_is_refused_since_its_index_would_be_lost() -> None:
    frame = type("DataFrame", (), {"__module__": "pyspark.pandas.frame"})()
    with pytest.raises(InvalidInputError, match="index_col"):
        require_frame(frame)
    with pytest.raises(InvalidInputError, match="index_col"):
        columns_of(frame)
    with pytest.raises(InvalidInputError, match="toDF"):
        columns_of(type("RDD", (), {"__module__": "pyspark.core.rdd"})())
