"""Rows below a null ROW: readers do not see them, and writers must not fail on them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kit.file_samples import make_batch, make_fields, read, write
from tidelake.errors import InvalidInputError
from tidelake.files.hidden import clear_hidden_values
from tidelake.files.options import FORMATS
from tidelake.spec.types.arrow_types import row_to_arrow

REQUIRED = {
    "number": "ROW<x INT NOT NULL>",
    "text": "ROW<x STRING NOT NULL>",
    "truth": "ROW<x BOOLEAN NOT NULL>",
    "list": "ROW<x ARRAY<INT NOT NULL> NOT NULL>",
    "map": "ROW<x MAP<STRING, INT NOT NULL> NOT NULL>",
    "row": "ROW<x ROW<y STRING NOT NULL> NOT NULL, z INT>",
    "list of rows": "ARRAY<ROW<x INT NOT NULL>>",
    "map of rows": "MAP<STRING, ROW<x INT NOT NULL>>",
}
ONLY_PARQUET = {
    "nanoseconds": "ROW<x TIMESTAMP(9) NOT NULL>",
    "vector": "ROW<x VECTOR<FLOAT, 2> NOT NULL>",
    "variant": "VARIANT",
}
VALUES: dict[str, Any] = {
    "number": {"x": 7},
    "text": {"x": "é"},
    "truth": {"x": True},
    "list": {"x": [1, 2]},
    "map": {"x": [("k", 1)]},
    "row": {"x": {"y": "s"}, "z": None},
    "list of rows": [{"x": 1}, None, {"x": 2}],
    "map of rows": [("a", None), ("b", {"x": 3})],
    "nanoseconds": {"x": -1000},
    "vector": {"x": [1.0, 2.0]},
    "variant": {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"},
}
CASES = [(kind, name) for kind in FORMATS for name in (REQUIRED | ONLY_PARQUET if kind == "parquet" else REQUIRED)]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_null_row_with_not_null_members_is_written_as_older_rows_need_it(kind: str, name: str) -> None:
    fields = make_fields({"id": "INT", "v": (REQUIRED | ONLY_PARQUET)[name]})
    schema = row_to_arrow(fields)
    # What a column that was added later looks like in older rows: nulls all the way down.
    older = pa.RecordBatch.from_arrays(
        [pa.array([1, 2], pa.int32()), pa.nulls(2, schema.field("v").type)], schema=schema
    )
    newer = make_batch([{"id": 3}, {"id": 4, "v": VALUES[name]}, {"id": 5}], fields)
    io, path, _ = write([older, newer], fields, kind)
    found = read(io, path, fields)
    found.validate(full=True)
    expected = [*older.to_pylist(), *newer.to_pylist()]
    assert found.to_pylist() == expected


@pytest.mark.parametrize("kind", FORMATS)
def test_values_that_lie_below_a_null_row_are_neither_stored_nor_converted(kind: str) -> None:
    fields = make_fields({"v": "ROW<s STRING NOT NULL, l ARRAY<STRING NOT NULL> NOT NULL, n INT>"})
    kind_of = row_to_arrow(fields).field("v").type
    members = [
        pa.array(["1", "no number", "3"]),
        pa.array([["a"], ["hidden", "too"], []], pa.list_(kind_of.field("l").type.value_field)),
        pa.array([1, 2, None], pa.int32()),
    ]
    values = pa.StructArray.from_arrays(members, fields=list(kind_of), mask=pa.array([False, True, False]))
    io, path, _ = write(pa.RecordBatch.from_arrays([values], schema=row_to_arrow(fields)), fields, kind)
    assert b"hidden" not in io.read(path)
    # The hidden text below the null is not a number, and is not read.
    later = make_fields({"v": "ROW<s INT NOT NULL, l ARRAY<STRING NOT NULL> NOT NULL, n INT>"})
    rows = read(io, path, fields, later).to_pylist()
    assert rows == [{"v": {"s": 1, "l": ["a"], "n": 1}}, {"v": None}, {"v": {"s": 3, "l": [], "n": None}}]


def test_a_null_that_can_be_seen_is_still_refused() -> None:
    fields = make_fields({"v": "ROW<x INT NOT NULL>"})
    arrow_type = row_to_arrow(fields).field("v").type
    values = pa.StructArray.from_arrays(
        [pa.array([None, None, 3], pa.int32())], fields=list(arrow_type), mask=pa.array([True, False, False])
    )
    with pytest.raises(InvalidInputError, match="non-nullable"):
        write(pa.RecordBatch.from_arrays([values], schema=row_to_arrow(fields)), fields, "parquet")


def test_what_hides_nothing_is_not_copied() -> None:
    field = pa.field("v", pa.struct([pa.field("x", pa.list_(pa.int32()))]))
    array = pa.array([{"x": [1]}, {"x": None}], field.type)
    assert clear_hidden_values(array, field) is array
    assert clear_hidden_values(pa.array([None, {"x": [2]}], field.type), field).to_pylist() == [None, {"x": [2]}]


def test_an_avro_file_of_one_row_column_is_read() -> None:
    # Records are checked to end where they should by the value of some column; here there is no plain one.
    for text in ("ROW<x ARRAY<INT>, y ROW<z STRING NOT NULL> NOT NULL> NOT NULL", "ROW<b BOOLEAN NOT NULL> NOT NULL"):
        fields = make_fields({"v": text})
        value = {"x": [1], "y": {"z": "a"}} if "ARRAY" in text else {"b": True}
        batch = make_batch([{"v": value}, {"v": value}], fields)
        io, path, _ = write(batch, fields, "avro")
        assert read(io, path, fields).to_pylist() == batch.to_pylist()
