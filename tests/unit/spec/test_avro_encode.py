"""Arrow columns to Avro records; the twin is fastavro."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tidelake.errors import InternalError
from tidelake.spec.avro.encode import encode_records, encode_values, split_blocks

TEXTS = {"type": "array", "items": "string"}
POINT = {
    "type": "record",
    "name": "point",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "string"]}],
}
POINT_ARROW = pa.struct([("x", pa.int32()), ("y", pa.large_string())])
CASES: list[tuple[str, Any, pa.DataType, list[Any]]] = [
    ("int", "int", pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31), 63, 64]),
    ("long", "long", pa.int64(), [0, -(2**63), 2**63 - 1, 8191, 8192, -8193]),
    ("small longs", "long", pa.int64(), [0, -1, 1, 63, -64]),
    ("no values", "long", pa.int64(), []),
    ("logical long", {"type": "long", "logicalType": "x"}, pa.int64(), [5, -5]),
    ("string", "string", pa.large_string(), ["", "a", "é\U0001f40b", "x" * 200]),
    ("bytes", "bytes", pa.large_binary(), [b"", b"\x00\xff", b"y" * 70]),
    ("small offsets", "bytes", pa.binary(), [b"", b"ab"]),
    ("nullable, none null", ["null", "long"], pa.int64(), [1, 2]),
    ("nullable, all null", ["null", "string"], pa.large_string(), [None, None]),
    ("nullable, mixed", ["null", "string"], pa.large_string(), [None, "a", "", None, "bc"]),
    ("lists", TEXTS, pa.large_list(pa.large_string()), [[], ["a"], ["b", "", "c"]]),
    ("lists, all empty", TEXTS, pa.large_list(pa.large_string()), [[], []]),
    ("plain lists", TEXTS, pa.list_(pa.string()), [["a"], []]),
    ("nullable lists", ["null", TEXTS], pa.large_list(pa.large_string()), [None, [], ["a", "b"], None]),
    (
        "lists of nullable",
        ["null", {"type": "array", "items": ["null", "long"]}],
        pa.large_list(pa.int64()),
        [[1, None, 3], None, [], [None]],
    ),
    ("records", POINT, POINT_ARROW, [{"x": 1, "y": None}, {"x": -2, "y": "b"}]),
    ("nullable records", ["null", POINT], POINT_ARROW, [None, {"x": 1, "y": "a"}, None]),
    (
        "lists of nullable records",
        ["null", {"type": "array", "items": ["null", POINT]}],
        pa.large_list(POINT_ARROW),
        [None, [{"x": 1, "y": "a"}, {"x": 2, "y": None}], []],
    ),
]


def twin(avro_type: Any, values: list[Any]) -> list[bytes]:
    schema = fastavro.parse_schema(avro_type)
    encoded = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, value)
        encoded.append(out.getvalue())
    return encoded


@pytest.mark.parametrize(
    ("avro_type", "dtype", "values"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_each_value_has_the_bytes_of_the_twin(avro_type, dtype, values):
    array = pa.array(values, dtype)
    wanted = twin(avro_type, values)
    assert encode_values(array, avro_type).to_pylist() == wanted
    assert encode_values(pa.chunked_array([array]), avro_type).to_pylist() == wanted
    assert encode_values(pa.chunked_array([array, array]), avro_type).to_pylist() == wanted * 2


@pytest.mark.parametrize(
    ("avro_type", "dtype", "values"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_slice_encodes_only_its_own_values(avro_type, dtype, values):
    array = pa.array([*values, *values, *values], dtype)
    part = array.slice(len(values), len(values))
    assert encode_values(part, avro_type).to_pylist() == twin(avro_type, values)


def test_records_join_their_fields_in_order():
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"]}, {"name": "c", "type": TEXTS}]
    columns = [
        pa.array([1, 300], pa.int32()),
        pa.array([None, "x"], pa.large_string()),
        pa.array([["p"], []], pa.large_list(pa.large_string())),
    ]
    record = {"type": "record", "name": "r", "fields": fields}
    wanted = twin(record, [{"a": 1, "b": None, "c": ["p"]}, {"a": 300, "b": "x", "c": []}])
    assert encode_records(fields, columns).to_pylist() == wanted


def test_a_type_the_format_does_not_use_is_our_bug():
    with pytest.raises(InternalError):
        encode_values(pa.array([1.0]), "double")


@pytest.mark.parametrize("block_bytes", [1, 7, 100, 10_000])
def test_blocks_hold_all_records_in_order_and_are_about_the_wanted_size(block_bytes):
    values = [bytes([i % 256]) * (i % 23 + 1) for i in range(300)]
    blocks = split_blocks(pa.array(values, pa.large_binary()), block_bytes=block_bytes)
    assert sum(block.count for block in blocks) == 300
    assert b"".join(block.payload for block in blocks) == b"".join(values)
    assert all(block.count > 0 for block in blocks)
    assert all(len(block.payload) < block_bytes + 24 for block in blocks)


def test_a_slice_of_records_is_cut_like_any_other():
    values = pa.array([b"aa", b"b", b"ccc", b"d"], pa.large_binary())
    blocks = split_blocks(values.slice(1, 2), block_bytes=100)
    assert [(block.count, block.payload) for block in blocks] == [(2, b"bccc")]


def test_no_records_make_no_block():
    assert split_blocks(pa.array([], pa.large_binary()), block_bytes=10) == []
