"""What Spark's own Parquet reader is given, what it is not, and that nothing is lost on the way."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kit.spark_rows import assert_same, is_native
from tidelake.catalog.lake import Lake
from tidelake.engines.spark.read import native
from tidelake.errors import FormatError
from tidelake.spec.schemas.evolution import First
from tidelake.table import Table


def data_files(table: Table) -> list[Path]:
    return sorted(Path(table.location).glob("**/*data-*.*"))


def test_an_append_table_is_read_by_spark_itself_and_pruned_by_it(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "INT", "s": "STRING"})
    table.write([{"id": 1, "s": "a"}, {"id": 2, "s": None}])
    frame = assert_same(spark, table.scan())
    assert is_native(frame)
    assert frame.filter("id = 2").select("id").count() == 1
    assert frame.count() == 2
    assert is_native(assert_same(spark, table.scan(["id"], "s is null")))


def test_columns_are_found_by_id_whatever_they_were_called(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"a": "INT", "b": "STRING", "gone": "INT", "w": "TINYINT", "f": "FLOAT"})
    table.write([{"a": 1, "b": "x", "gone": 9, "w": 3, "f": 1.5}])
    table = table.alter(drop=["gone"], rename={"a": "z", "b": "a"}).alter(add={"gone": "STRING"})
    table.write([{"z": 2, "a": "y", "gone": "here", "w": 4, "f": 2.5}])
    table = table.alter(types={"w": "BIGINT", "f": "DOUBLE", "z": "BIGINT"})
    table.write([{"z": 1 << 40, "a": "w", "gone": None, "w": 1 << 50, "f": 0.1}])
    table = table.alter(move={"f": First()}, add={"late": "ARRAY<INT>"})
    assert is_native(assert_same(spark, table.scan()))
    assert is_native(assert_same(spark, table.scan(["late"])))
    assert is_native(assert_same(spark, table.scan(["gone", "z"], "w > 3 and late is null")))
    assert is_native(assert_same(spark, table.scan(["a"], "z >= 2")))
    assert table.to_spark(["late"], spark=spark).count() == 3
    narrowed = table.alter(types={"z": "STRING"})
    assert not is_native(assert_same(spark, narrowed.scan(["z"]))), "a cast that Spark may do otherwise"


def test_members_that_changed_are_read_through_arrow(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "INT", "r": "ROW<`a` INT, `b` STRING>"})
    table.write([{"id": 1, "r": {"a": 1, "b": "x"}}])
    assert is_native(assert_same(spark, table.scan()))
    table = table.alter(rename={"r.a": "c"}, add={"r.d": "INT"})
    table.write([{"id": 2, "r": {"c": 2, "b": "y", "d": 3}}])
    frame = assert_same(spark, table.scan())
    assert len(frame.inputFiles()) == 1, "the new file is still read by Spark"
    assert len(table.to_spark(["id"], spark=spark).inputFiles()) == 2


def test_partitions_of_any_name_are_read(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"p": "STRING", "q": "INT", "v": "INT"}, partition_by=["p", "q"])
    names = ["plain", "with space", "100%", "a=b", "x:y", "ü", "#", "a+b", "a,b", "%20", "'", '"', "~", None]
    table.write([{"p": name, "q": number % 3, "v": number} for number, name in enumerate(names)])
    frame = assert_same(spark, table.scan())
    assert len(frame.inputFiles()) == len(names)
    assert is_native(assert_same(spark, table.scan(["v"], "p = '100%'")))
    table.write([{"p": name, "q": None, "v": -1} for name in ("[x]", "{y}", "a*", "b?", "c\\d")])
    assert_same(spark, table.scan())


def test_a_lake_in_a_folder_with_glob_characters_is_read_through_arrow(spark: Any, tmp_path: Path) -> None:
    import tidelake as tl

    lake = tl.connect(tmp_path / "a[b]{c}*", storage={"durability": "none"})
    table = lake.create_table("db.t", {"id": "INT"})
    table.write([{"id": 1}])
    assert not is_native(assert_same(spark, table.scan()))


@pytest.mark.parametrize("prefix", ["_hidden-", "a:b-", "c*d-"])
def test_files_that_spark_would_skip_in_silence_are_read_through_arrow(spark: Any, lake: Lake, prefix: str) -> None:
    table = lake.create_table("db.t", {"id": "INT"}, options={"data-file.prefix": prefix})
    table.write([{"id": 1}])
    assert not is_native(assert_same(spark, table.scan()))


@pytest.mark.parametrize("form", ["orc", "avro"])
def test_other_formats_are_read_through_arrow(spark: Any, lake: Lake, form: str) -> None:
    table = lake.create_table("db.t", {"id": "INT", "s": "STRING"}, options={"file.format": form})
    table.write([{"id": 1, "s": None}, {"id": 2, "s": "b"}])
    assert not is_native(assert_same(spark, table.scan(where="id > 1")))


@pytest.mark.parametrize("options", [{}, {"data-file.thin-mode": "true"}], ids=["keys", "thin"])
def test_compacted_files_of_a_keyed_table_are_read_by_spark_and_newer_ones_merged(
    spark: Any, lake: Lake, options: dict[str, str]
) -> None:
    columns = {"k": "INT", "v": "STRING"}
    table = lake.create_table("db.t", columns, primary_key=["k"], options={"bucket": "2", **options})
    table.write([{"k": number, "v": f"a{number}"} for number in range(20)])
    table.write([{"k": number, "v": f"b{number}"} for number in range(5, 15)])
    table.compact(full=True)
    frame = assert_same(spark, table.scan())
    assert is_native(frame)
    assert len(frame.inputFiles()) == 2
    table.write([{"k": 3, "v": "new"}])
    mixed = assert_same(spark, table.scan())
    assert len(mixed.inputFiles()) == 1, "only the bucket that was written to is merged"
    assert mixed.filter("k = 3").collect()[0].v == "new"
    assert len(assert_same(spark, table.scan().read_optimized()).inputFiles()) == 2


def test_names_that_differ_by_case_alone_are_kept_apart(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "INT", "ID": "STRING", "r": "INT"})
    table.write([{"id": 1, "ID": "x", "r": 5}])
    assert not is_native(assert_same(spark, table.scan()))
    assert table.to_spark(["ID"], spark=spark).collect()[0][0] == "x"
    inner = lake.create_table("db.u", {"r": "ROW<`a` INT, `A` INT>"})
    inner.write([{"r": {"a": 1, "A": 2}}])
    assert not is_native(assert_same(spark, inner.scan()))


def test_odd_names_of_columns_are_read_natively(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"a.b": "INT", "with space": "INT", "tick`": "STRING", "(x);": "INT"})
    table.write([{"a.b": 1, "with space": 2, "tick`": "t", "(x);": 4}])
    assert is_native(assert_same(spark, table.scan()))
    assert is_native(assert_same(spark, table.scan(["tick`"], where="`a.b` = 1")))


def test_nan_and_negative_zero_are_found_whatever_the_bounds_of_the_file_say(spark: Any, lake: Lake) -> None:
    nan = float("nan")
    table = lake.create_table("db.t", {"id": "INT", "d": "DOUBLE", "f": "FLOAT"})
    values = [nan, -0.0, 1.0, None, -5.0]
    table.write([{"id": number, "d": value, "f": value} for number, value in enumerate(values)])
    table.write([{"id": 10, "d": -0.0, "f": -0.0}, {"id": 11, "d": -0.0, "f": -0.0}])
    tests = ["= 0.0", "!= 1.0", "> 3.0", "in (0.0, 7.0)", "<= 1.0"]
    texts = [f"{name} {test}" for name in ("d", "f") for test in tests]
    texts += [f"not ({text})" for text in texts]
    tagged = [table.to_spark(where=text, spark=spark).select(f.lit(text), "id") for text in texts]
    assert all(map(is_native, tagged))
    found = [tuple(row) for row in reduce(DataFrame.union, tagged).collect()]
    expected = [(text, row) for text in texts for row in table.to_arrow(["id"], text).column(0).to_pylist()]
    assert sorted(found) == sorted(expected)
    frame = table.to_spark(spark=spark)
    assert frame.filter("d > 3").count() == 1, "Spark's own filter: NaN is the greatest number to it"
    assert frame.filter("d = 0.0").count() == 3


def test_members_with_fractions_are_not_filtered_by_bounds_either(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"r": "ROW<`d` DOUBLE>"})
    table.write([{"r": {"d": -0.0}}] * 10)
    assert table.to_spark(spark=spark).filter("r.d = 0.0").count() == 10


def damage(path: Path, needle: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(needle)] ^= 1
    path.write_bytes(content)


def test_a_flipped_bit_in_a_page_fails_the_read_by_both_ways(spark: Any, lake: Lake) -> None:
    options = {"file.compression": "none", "parquet.enable.dictionary": "false"}
    table = lake.create_table("db.t", {"id": "INT", "s": "STRING"}, options=options)
    table.write([{"id": number, "s": f"some text {number}"} for number in range(100)])
    (path,) = data_files(table)
    assert is_native(table.to_spark(spark=spark))
    damage(path, b"some text 50")
    with pytest.raises(Exception, match=r"(?i)crc|checksum|corrupt"):
        table.to_spark(spark=spark).collect()
    with pytest.raises(FormatError):
        table.to_arrow()
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        with pytest.raises(Exception, match=r"(?i)crc|checksum|corrupt"):
            table.to_spark(spark=spark).collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")


def test_a_file_that_was_replaced_by_another_one_is_refused(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "INT"})
    table.write([{"id": 1}])
    table.write([{"id": number} for number in range(2, 50)])
    one, other = sorted(data_files(table), key=lambda path: path.stat().st_size)
    one.write_bytes(other.read_bytes())
    with pytest.raises(FormatError, match="another number of bytes") as caught:
        table.to_spark(spark=spark)
    assert caught.value.code == "file-replaced"
    assert one.name in str(caught.value)


def test_a_missing_file_is_named_and_never_left_out(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "INT"})
    table.write([{"id": 1}])
    table.write([{"id": 2}])
    pinned = table.to_spark(spark=spark)
    gone = data_files(table)[0]
    gone.unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(FormatError, match="data file is missing") as caught:
            table.to_spark(spark=spark)
        assert gone.name in str(caught.value)
        assert caught.value.code == "file-missing"
        with pytest.raises(Exception, match=gone.name):
            pinned.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    may_skip_files = table.with_options({"scan.ignore-lost-files": "true"})
    frame = may_skip_files.to_spark(spark=spark)
    assert not is_native(frame)
    assert frame.count() == 1


def test_more_files_than_spark_lists_quickly_are_read_through_arrow(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("db.t", {"id": "INT"})
    for number in range(3):
        table.write([{"id": number}])
    monkeypatch.setattr(native, "PATHS_FREE", 2)
    assert not is_native(assert_same(spark, table.scan())), "small files"
    monkeypatch.setattr(native, "PATH_BYTES", 1)
    assert is_native(assert_same(spark, table.scan())), "files that are worth it"
    monkeypatch.setattr(native, "PATHS_MAX", 2)
    assert not is_native(assert_same(spark, table.scan())), "too many"


def test_object_stores_are_read_by_spark_only_where_the_session_says_so() -> None:
    assert native._prefix("s3://bucket/t", "") is None
    assert native._prefix("s3://bucket/t", "gs=gs, s3=s3a") == "s3a://bucket/t"
    assert native._prefix("gs://bucket/t", "s3=s3a") is None
    assert native._prefix("/lake/t", "") == "file:///lake/t"
    assert native._prefix("/lake/[t]", "") is None


def test_a_file_outside_the_table_is_read_through_arrow(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "INT"})
    table.write([{"id": 1}])
    reader = native.NativeReader(spark, table.scan(), ["id"])
    (split,) = table.scan().splits()
    assert reader.choose_splits([split]) == [split]
    outside = tuple(replace(file, external_path="file:///elsewhere/x.parquet") for file in split.files)
    assert reader.choose_splits([replace(split, files=outside)]) == []


def test_a_count_is_exact_without_any_column(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "INT"}, options={"parquet.block.size": "1 kb"})
    table.write(pa.table({"id": pa.array(range(5000), pa.int32())}))
    assert table.to_spark(spark=spark).count() == 5000
