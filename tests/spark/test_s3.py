"""A lake in an object store, through Spark: tasks reach it with the lake's own credentials, and show them to nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tidelake as tl
from kit.s3_server import BUCKET, moto_s3
from tidelake.catalog.lake import Lake

pytestmark = pytest.mark.s3
SECRET = "test-secret-key"


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    with moto_s3() as options:
        yield options


@pytest.fixture
def lake(store: dict[str, str], request: pytest.FixtureRequest) -> Lake:
    made = tl.connect(f"s3://{BUCKET}/{request.node.name}", storage=store)
    made.create_database("db")
    return made


def test_a_keyed_table_in_s3_is_written_upserted_compacted_and_read_by_spark(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "BIGINT", "v": "STRING"}, primary_key=["id"], options={"bucket": "2"})
    table.write(spark.range(0, 200).selectExpr("id", "concat('a', id) v"))
    table.write(spark.range(100, 300).selectExpr("id", "concat('b', id) v"))
    expected = [(number, f"{'a' if number < 100 else 'b'}{number}") for number in range(300)]
    merged = table.to_spark(spark=spark)
    assert sorted(map(tuple, merged.collect())) == expected
    table.compact(full=True, on=spark)
    compacted = table.to_spark(spark=spark)
    assert sorted(map(tuple, compacted.collect())) == expected
    assert table.check(deep=True, rows=True).ok
    for frame in (merged, compacted):
        assert SECRET not in frame._jdf.queryExecution().toString()


def test_an_append_table_in_s3_is_written_by_the_data_source_and_read_with_a_filter(
    spark: Any, lake: Lake, store: dict[str, str]
) -> None:
    table = lake.create_table("db.t", {"day": "STRING", "id": "INT"}, partition_by=["day"])
    rows = spark.range(0, 40).selectExpr("concat('d', id % 2) day", "cast(id as int) id")
    storage = {f"storage.{key}": value for key, value in store.items()}
    rows.write.format("tidelake").options(path=table.location, **storage).mode("append").save()
    found = table.scan(where="day = 'd1' AND id > 30").to_spark(spark=spark)
    assert sorted(row.id for row in found.collect()) == [31, 33, 35, 37, 39]
    assert table.count() == 40
