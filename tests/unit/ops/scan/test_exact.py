"""Minimum and maximum from metadata: which columns need no rows, and how few files are read for the others."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidelake as tl
from kit.counting_io import CountedFileIO
from kit.file_samples import make_batch, values_of
from kit.small_tables import new_table
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.testing import FakeClock, MemoryFileIO

LEFT_OUT = ("TIMESTAMP(7)", "VARIANT", "BLOB", "GEOMETRY(OGC:CRS84)", "GEOGRAPHY(OGC:CRS84, spherical)")
NANOS = (pa.timestamp("ns"), pa.timestamp("ns", "UTC"))


def lines(scan: Any) -> list[str]:
    return [line.strip() for line in scan.explain().splitlines() if line.split()[0] in ("count", "min", "max", "min,")]


def test_explain_says_what_metadata_answers() -> None:
    table = new_table()
    table.write([{"id": 1, "dt": "a", "v": "x"}])
    assert lines(table.scan()) == ["count      from metadata", "min, max   from metadata for id, dt"]
    assert lines(table.scan(where="id > 0")) == ["count      by reading rows", "min, max   by reading rows"]
    assert lines(table.scan(limit=1)) == ["count      from metadata", "min, max   by reading rows"]


def test_explain_names_the_splits_whose_keys_are_read() -> None:
    table = new_table(keyed=True, bucket="1", write_only="true")
    table.write([{"id": 1, "dt": "a", "v": "x"}])
    table.write([{"id": 1, "dt": "a", "v": "y"}])
    assert lines(table.scan())[0] == "count      from metadata and the keys of 1 split"
    assert table.scan().min("v") == "y"


def test_a_maximum_of_floating_points_is_never_from_metadata() -> None:
    lake = tl.connect("memory://floats")
    table = lake.create_table("d.t", {"f": "DOUBLE"})
    table.write([{"f": 1.0}, {"f": 2.0}])
    assert lines(table.scan())[1:] == ["min        from metadata for f", "max        by reading rows"]
    table.write([{"f": float("nan")}])
    assert lines(table.scan())[1:] == ["min, max   by reading rows"]
    assert table.scan().min("f") == 1.0
    assert str(table.scan().max("f")) == "nan"


def data_reads(io: CountedFileIO) -> set[str]:
    return {read.path for read in io.reads if "/bucket-" in f"/{read.path}"}


def test_only_files_that_may_hold_the_answer_are_read() -> None:
    io = CountedFileIO(MemoryFileIO())
    lake = Lake(FileSystemCatalog(Env(io, FakeClock(1_000), SeededIds(1))))
    table = lake.create_table("d.t", {"id": "INT", "s": "STRING"})
    for text in ("b", "a", "c"):
        table.write([{"id": 1, "s": text * 40}])
    io.reads.clear()
    assert (table.scan().min("id"), table.scan().count()) == (1, 3)
    assert not data_reads(io)
    assert table.scan().min("s") == "a" * 40
    assert len(data_reads(io)) == 1


def test_deleted_rows_do_not_count() -> None:
    table = new_table(deletion_vectors__enabled="true")
    table.write([{"id": 1, "dt": "a", "v": "x"}, {"id": 2, "dt": "a", "v": "y"}])
    table.delete("id = 1")
    assert (table.scan().min("id"), table.scan().count()) == (2, 1)
    table.delete("id = 2")
    assert (table.scan().min("id"), table.scan().min("dt"), table.scan().count()) == (None, None, 0)


def test_a_partition_whose_rows_are_all_deleted_does_not_count() -> None:
    table = new_table(keyed=True, bucket="1", write_only="true")
    table.write([{"id": 1, "dt": "a", "v": "x"}, {"id": 1, "dt": "b", "v": "x"}])
    table.delete("dt = 'a' and id = 1")
    assert table.scan().min("dt") == "b"


def test_a_column_that_is_newer_than_a_file_is_null_in_it() -> None:
    table = new_table()
    table.write([{"id": 1, "dt": "a", "v": "x"}])
    table = table.alter(add={"n": "INT"})
    assert table.scan().max("n") is None
    table.write([{"id": 2, "dt": "a", "v": "x", "n": 5}])
    assert table.reload().scan().max("n") == 5


def test_a_column_without_an_order_is_refused() -> None:
    table = tl.connect("memory://unordered").create_table("d.t", {"a": "ARRAY<INT>"})
    with pytest.raises(tl.InvalidInputError, match="no order"):
        table.scan().min("a")
    with pytest.raises(tl.InvalidInputError, match="does not exist"):
        table.scan().max("b")


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_every_type_has_the_minimum_and_maximum_of_its_rows(kind: str) -> None:
    types = {text: values for text, values in values_of(kind).items() if "<" not in text and text not in LEFT_OUT}
    names = {f"c{number}": text for number, text in enumerate(types)}
    table = tl.connect(f"memory://{kind}").create_table("d.t", names, options={"file.format": kind})
    height = max(map(len, types.values()))
    every = [{name: dict(enumerate(types[text])).get(i) for name, text in names.items()} for i in range(height)]
    for rows in ([], every[:1], every[1:]):
        table.write(make_batch(rows, table.schema.fields))
        whole = table.to_arrow()
        for name in names:
            found = table.scan(order_by=name).to_arrow().column(name).drop_null()
            ends = (found[0], found[-1]) if len(found) else (None, None)
            if whole.schema.field(name).type in NANOS and any(str(end)[-4:-1] != "000" for end in ends if end):
                continue  # a datetime of Python has microseconds
            expected = [None if end is None else end.as_py() for end in ends]
            assert repr([table.scan().min(name), table.scan().max(name)]).replace("-0.0", "0.0") == repr(
                expected
            ).replace("-0.0", "0.0"), (name, names[name])


@pytest.mark.parametrize("keyed", [False, True])
def test_a_condition_on_no_column_counts_in_reads_of_changes_too(keyed: bool) -> None:
    table = new_table(keyed=keyed, **({"bucket": "1"} if keyed else {}))
    for number in range(3):
        table.write([{"id": number, "dt": "a", "v": "x"}])
    reads = [
        table.scan(where="1 = 0"),
        table.with_options({"incremental-between": "0,2"}).scan(where="1 = 0"),
        table.with_options({"scan.mode": "latest-delta"}).scan(where="1 = 0"),
        table.changes(1, 3, where="1 = 0"),
    ]
    for scan in reads:
        assert (scan.to_arrow().num_rows, scan.count(), scan.min("id"), scan.max("id")) == (0, 0, None, None)
