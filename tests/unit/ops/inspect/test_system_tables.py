"""What the system tables say, column by column; the live oracle compares them with the format's own."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import tidelake as tl
from kit.small_tables import committer, file, key, message, names, new_table
from kit.verb_samples import table as sample_table
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io import MemoryFileIO
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.messages import Committable
from tidelake.ops.inspect.file_tables import value_texts
from tidelake.spec.documents.tag import Tag, tag_to_json
from tidelake.spec.rows.partition_path import internal_values, value_text
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.type_codec import parse_type
from tidelake.testing import FakeClock


@pytest.fixture
def orders() -> tl.Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(86_400_000), SeededIds(1))))
    table = lake.create_table(
        "d.t", {"id": "INT", "d": "DATE", "b": "BYTES", "a": "ARRAY<INT>", "dt": "STRING"}, partition_by=["dt"]
    )
    table.write([{"id": 7, "d": dt.date(2024, 1, 2), "b": b"\xff", "a": [1], "dt": "x/y"}])
    return table


def test_the_statistics_of_a_file_are_maps_sorted_by_column(orders: tl.Table) -> None:
    (row,) = orders.inspect.files().to_pylist()
    assert row["null_value_counts"] == "{a=null, b=0, d=0, dt=0, id=0}"
    assert row["min_value_stats"] == "{a=null, b=ff, d=19724, dt=x/y, id=7}"
    assert row["partition"] == "{x/y}"
    assert (row["min_key"], row["file_source"], row["write_cols"]) == (None, "APPEND", None)


def test_the_path_of_a_file_is_its_whole_address(orders: tl.Table) -> None:
    (name,) = names(orders)
    assert orders.inspect.files()["file_path"].to_pylist() == [f"memory:///d.db/t/dt=x%2Fy/bucket-0/{name}"]


def test_statistics_follow_the_columns_as_they_are_now(orders: tl.Table) -> None:
    changed = orders.alter(add={"n": "INT"}, rename={"id": "number"}, drop=["a", "b"], types={"number": "BIGINT"})
    (row,) = changed.inspect.files().to_pylist()
    assert row["max_value_stats"] == "{d=19724, dt=x/y, n=null, number=7}"
    assert row["null_value_counts"] == "{d=0, dt=0, n=1, number=0}"


def test_system_tables_of_a_snapshot_follow_time_travel(orders: tl.Table) -> None:
    orders.write([{"id": 8, "dt": "z"}])
    first = orders.at(snapshot=1)
    assert first.inspect.files().num_rows == first.files().num_rows == 1
    assert first.inspect.partitions()["partition"].to_pylist() == ["dt=x/y"]
    assert first.inspect.buckets().num_rows == first.inspect.manifests().num_rows == 1
    assert orders.inspect.files().num_rows == 2


def test_keys_are_shown_in_brackets_and_partitions_are_summed_up() -> None:
    table = sample_table(keyed=True)
    files = (
        file("a", min_key=key(1), max_key=key(4), delete_row_count=3, file_source=1),
        file("b", min_key=key(2), max_key=key(2), delete_row_count=0, file_source=None, creation_time_ms=5),
    )
    table.new_commit("u").commit([replace(message(*files, total=1), partition=bytes(12))])
    shown = {each["min_key"]: each for each in table.inspect.files().to_pylist()}
    assert shown["[1]"]["max_key"] == "[4]"
    assert [shown[k]["file_source"] for k in ("[1]", "[2]")] == ["COMPACT", None]
    (partition,) = table.inspect.partitions().to_pylist()
    assert (partition["record_count"], partition["file_count"], partition["file_size_in_bytes"]) == (20, 2, 200)
    assert (partition["deleted_record_count"], partition["total_buckets"], partition["done"]) == (0, 1, False)
    assert partition["last_update_time"] == dt.datetime(1970, 1, 1, 0, 0, 0, 5000)


def test_buckets_are_summed_up_apart() -> None:
    table = new_table()
    messages = (message("a"), message("b", bucket=1), message("c", bucket=1), message("d", dt=None))
    committer(table).commit(Committable(messages=messages))
    shown = table.inspect.buckets()
    places = zip(*(shown[name].to_pylist() for name in ("partition", "bucket", "file_count")), strict=True)
    assert sorted(places) == [("{d1}", 0, 1), ("{d1}", 1, 2), ("{null}", 0, 1)]


def test_an_empty_table_has_empty_system_tables_with_all_columns() -> None:
    inspect = new_table().inspect
    listings = (inspect.files(), inspect.partitions(), inspect.buckets(), inspect.manifests(), inspect.tags())
    assert [listing.num_rows for listing in (*listings, inspect.branches(), inspect.consumers())] == [0] * 7
    assert [listing.num_columns for listing in listings] == [20, 12, 6, 9, 7]


@pytest.mark.parametrize(
    ("retained", "text"),
    [(None, None), (0, "PT0S"), (129_600, "PT36H"), (61.5, "PT1M1.5S")],
)
def test_tags_tell_how_long_they_are_kept(retained: float | None, text: str | None) -> None:
    table = new_table()
    committer(table).commit(Committable(messages=(message("a"),)))
    nanos = None if retained is None else int(retained * 1_000) * 1_000_000
    tag = Tag(snapshot=table.latest_snapshot(), create_time_ns=7_000_000, time_retained_ns=nanos)
    table.store.env.io.write(table.store.layout.tag_path("one"), tag_to_json(tag))
    (row,) = table.inspect.tags().to_pylist()
    assert (row["tag_name"], row["snapshot_id"], row["record_count"], row["time_retained"]) == ("one", 1, 10, text)
    assert row["create_time"] == dt.datetime(1970, 1, 1, 0, 0, 0, 7_000)


def test_consumers_and_branches_are_listed_by_name() -> None:
    table = new_table()
    io = table.store.env.io
    for name, number in (("b", 4), ("a", 2)):
        io.write(table.store.layout.consumer_path(name), b'{"nextSnapshot" : %d}' % number)
        io.write(f"branch/branch-{name}/schema/schema-0", io.read("schema/schema-0"))
    assert table.inspect.consumers().to_pydict() == {"consumer_id": ["a", "b"], "next_snapshot_id": [2, 4]}
    assert table.inspect.branches()["branch_name"].to_pylist() == ["a", "b"]


@pytest.mark.parametrize(
    ("type_text", "values"),
    [
        ("INT", [0, -7, None, 7]),
        ("BIGINT", [2**62, -(2**62)]),
        ("STRING", ["", "a, b", None, "{é}"]),
        ("BOOLEAN", [True, None, False]),
        ("DATE", [dt.date(1969, 12, 31), dt.date(2024, 1, 2)]),
        ("TIME(3)", [dt.time(0), dt.time(23, 59, 59, 1000)]),
        ("TIMESTAMP(3)", [0, None, -1, 60_000, 59_999, -86_400_000, 1_700_000_000_123, -(10**13)]),
        ("TIMESTAMP(6)", [0, 1, 1_000, 1_000_000, -1, 60_000_000, 1_700_000_000_120_000, None]),
        ("TIMESTAMP(9)", [0, 1, 1_000, 1_000_000, 10**9, -1, 60 * 10**9, 1_700_000_000_000_120_000]),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", [0, -1, 1_700_000_000_123_456]),
        ("TIMESTAMP(3)", [-(62 * 10**12), 0]),
        ("DOUBLE", [1e10, None, 0.1]),
        ("DECIMAL(10, 2)", [None, Decimal("1.50")]),
    ],
)
def test_texts_of_a_whole_column_are_those_of_its_values(type_text: str, values: list[Any]) -> None:
    dtype = parse_type(type_text)
    array = pa.array(values, to_arrow(dtype))
    one_by_one = [
        None if value is None else value_text(value, dtype, legacy=True) for value in internal_values(array, dtype)
    ]
    assert value_texts(array, dtype).to_pylist() == one_by_one
