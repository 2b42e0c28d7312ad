"""Deleted rows do not come through Spark either: files with marks go through Arrow, the others through its reader."""

from __future__ import annotations

from typing import Any

import pytest

from spark.same_rows import assert_same, is_native
from tidelake.catalog.filesystem import Lake


@pytest.mark.parametrize("wide", ["false", "true"])
def test_marked_rows_are_left_out_whichever_way_a_file_is_read(lake: Lake, spark: Any, wide: str) -> None:
    options = {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": wide, "bucket": "2", "bucket-key": "id"}
    table = lake.create_table("db.t", {"id": "INT", "v": "STRING"}, options=options)
    for first in (0, 100):
        table.write([{"id": first + n, "v": str(n)} for n in range(50)])
    table.delete("id < 30 and id % 3 = 0")
    frame = assert_same(spark, table.scan())
    assert frame.count() == 90
    assert is_native(frame)
    read = {name.rpartition("/")[2] for name in frame.inputFiles()}
    marked = {each["f0"] for ranges in table.inspect.table_indexes()["dv_ranges"].to_pylist() for each in ranges}
    assert len(read) == len(marked) == 2
    assert not read & marked
    assert_same(spark, table.scan(where="id % 2 = 0"))
    assert_same(spark, table.scan(columns=["v"], where="id >= 20"))
    assert table.scan(limit=85).to_spark(spark).count() == 85
    hidden = table.scan().to_spark(spark, columns=["id", "__paimon_row_index"]).filter("id < 30").toArrow()
    assert all(number % 3 for number in hidden["id"].to_pylist())
    source = spark.read.format("tidelake").load(table.location)
    assert source.count() == 90
    table.compact(full=True)
    assert assert_same(spark, table.scan()).count() == 90


def test_marks_and_filters_over_files_of_several_row_groups(lake: Lake, spark: Any) -> None:
    options = {"deletion-vectors.enabled": "true", "file.block-size": "16 kb"}
    table = lake.create_table("db.t", {"id": "INT", "v": "STRING"}, options=options)
    table.write([{"id": n, "v": f"{n:09}"} for n in range(20_000)])
    table.delete("id % 7 = 0 and id > 3000")
    for where in (None, "id > 15000", "id = 14000", "v = '000006999'"):
        assert_same(spark, table.scan(where=where))
    frame = table.to_spark(spark=spark).filter("id >= 12000 and id < 12100")
    assert sorted(row.id for row in frame.collect()) == [n for n in range(12000, 12100) if n % 7]
