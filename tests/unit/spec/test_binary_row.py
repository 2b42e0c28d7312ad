"""The worked examples of the specification, as the reference implementation wrote them, and the edges around them."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.rows.binary_row import EMPTY_ROW, decode_rows, encode_rows, hash_bytes, hash_rows
from tidelake.spec.rows.binary_row_layout import array_header_size, null_bits_size, round_to_eight
from tidelake.spec.rows.binary_row_scalar import decode_row, encode_row, unscaled_value
from tidelake.spec.rows.bucket_function import bucket_default
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import (
    BIGINT,
    BLOB,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TINYINT,
    VARIANT,
    DataType,
    DecimalType,
    ElementType,
    Field,
    GeoType,
    MapType,
    Root,
    RowType,
    TimeType,
    VectorType,
)
from tidelake.testing.binary_row import slow_bucket, slow_decode, slow_encode, slow_hash

TIME = TimeType(Root.TIME, precision=3)
DECIMAL_10_2 = DecimalType(precision=10, scale=2)
DECIMAL_20_3 = DecimalType(precision=20, scale=3)
DECIMAL_38_10 = DecimalType(precision=38, scale=10)
INTS = ElementType(Root.ARRAY, element=INT)
STRINGS = ElementType(Root.ARRAY, element=STRING)
COUNTS = MapType(key=STRING, value=INT)
PAIR = RowType(fields=(Field(0, "a", INT), Field(1, "b", STRING)))
MILLIS = 1_700_000_000_123
LONG_STRINGS = ("first long string", "second long one")
SMALL_NUMBERS = [BOOLEAN, TINYINT, SMALLINT, FLOAT, DOUBLE]


def timestamp(precision: int) -> TimeType:
    return TimeType(Root.TIMESTAMP, precision=precision)


def ltz(precision: int) -> TimeType:
    return TimeType(Root.TIMESTAMP_LTZ, precision=precision)


ROWS: list[tuple[list[DataType], tuple[Any, ...], str]] = [
    ([INT], (1,), "00000001 0000000000000000 0100000000000000"),
    ([INT], (-1,), "00000001 0000000000000000 ffffffff00000000"),
    ([INT], (None,), "00000001 0001000000000000 0000000000000000"),
    ([BIGINT], (-7,), "00000001 0000000000000000 f9ffffffffffffff"),
    ([STRING], ("",), "00000001 0000000000000000 0000000000000080"),
    ([STRING], ("abcdefg",), "00000001 0000000000000000 6162636465666787"),
    ([STRING], ("abcdefgh",), "00000001 0000000000000000 0800000010000000 6162636465666768"),
    (
        [STRING],
        ("hello world paimon",),
        "00000001 0000000000000000 1200000010000000 68656c6c6f20776f 726c64207061696d 6f6e000000000000",
    ),
    ([INT, STRING], (1, "abc"), "00000002 0000000000000000 0100000000000000 6162630000000083"),
    (
        [STRING, INT],
        ("2024-01-01", 7),
        "00000002 0000000000000000 0a00000018000000 0700000000000000 323032342d30312d 3031000000000000",
    ),
    (
        [INT, STRING, BIGINT],
        (5, None, 9),
        "00000003 0002000000000000 0500000000000000 0000000000000000 0900000000000000",
    ),
    (
        [STRING, STRING],
        LONG_STRINGS,
        "00000002 0000000000000000 1100000018000000 0f00000030000000 6669727374206c6f 6e6720737472696e"
        "6700000000000000 7365636f6e64206c 6f6e67206f6e6500",
    ),
    ([DECIMAL_10_2], (Decimal("12.34"),), "00000001 0000000000000000 d204000000000000"),
    (
        [DECIMAL_20_3],
        (Decimal("12345678901234567.890"),),
        "00000001 0000000000000000 0900000010000000 00ab54a98ceb1f0a d200000000000000",
    ),
    (
        [DECIMAL_20_3],
        (Decimal("-1.500"),),
        "00000001 0000000000000000 0200000010000000 fa24000000000000 0000000000000000",
    ),
    ([DECIMAL_20_3], (None,), "00000001 0001000000000000 0000000010000000 0000000000000000 0000000000000000"),
    ([timestamp(3)], ((MILLIS, 0),), "00000001 0000000000000000 7b68e5cf8b010000"),
    ([timestamp(6)], ((MILLIS, 456_000),), "00000001 0000000000000000 40f5060010000000 7b68e5cf8b010000"),
    ([timestamp(6)], ((-1, 999_000),), "00000001 0000000000000000 583e0f0010000000 ffffffffffffffff"),
    ([timestamp(6)], (None,), "00000001 0001000000000000 0000000010000000 0000000000000000"),
    ([ltz(9)], ((MILLIS, 456_789),), "00000001 0000000000000000 55f8060010000000 7b68e5cf8b010000"),
    ([DATE], (19_723,), "00000001 0000000000000000 0b4d000000000000"),
    (
        SMALL_NUMBERS,
        (False, -1, -2, 1.5, -2.25),
        "00000005 0000000000000000 0000000000000000 ff00000000000000 feff000000000000 0000c03f0000000000000000000002c0",
    ),
    ([BYTES], (b"\x01\x02\xff",), "00000001 0000000000000000 0102ff0000000083"),
    (
        [BYTES],
        (bytes(range(1, 10)),),
        "00000001 0000000000000000 0900000010000000 0102030405060708 0900000000000000",
    ),
    (
        [INT, timestamp(6), DECIMAL_38_10, STRING],
        (None, None, None, "zz"),
        "00000004 0007000000000000 0000000000000000 0000000028000000 0000000030000000 7a7a000000000082" + "00" * 24,
    ),
    (
        [INTS],
        ([1, 2, 3],),
        "00000001 0000000000000000 1800000010000000 03000000 00000000 01000000 02000000 03000000 00000000",
    ),
    (
        [INTS],
        ([1, None, 3],),
        "00000001 0000000000000000 1800000010000000 03000000 02000000 01000000 00000000 03000000 00000000",
    ),
    (
        [STRINGS],
        (["a", "longer than seven"],),
        "00000001 0000000000000000 3000000010000000 02000000 00000000 6100000000000081 1100000018000000"
        "6c6f6e6765722074 68616e2073657665 6e00000000000000",
    ),
    (
        [COUNTS],
        ([("k", 5)],),
        "00000001 0000000000000000 2400000010000000 10000000 01000000 00000000 6b00000000000081 01000000 00000000"
        "0500000000000000 00000000",
    ),
    (
        [PAIR],
        ((7, "yy"),),
        "00000001 0000000000000000 1800000010000000 0000000000000000 0700000000000000 7979000000000082",
    ),
    ([], (), "00000000 0000000000000000"),
]

# Seen from the reference implementation, beyond the examples of the specification.
MORE_ROWS: list[tuple[list[DataType], tuple[Any, ...], str]] = [
    (
        [ElementType(Root.ARRAY, element=timestamp(6))],
        ([None, (1_577_836_800_000, 0)],),
        "00000001 0000000000000000 2000000010000000 0200000001000000 00000000000000000000000018000000 00e8665e6f010000",
    ),
    (
        [ElementType(Root.ARRAY, element=DECIMAL_20_3)],
        ([None, Decimal("1.500")],),
        "00000001 0000000000000000 2800000010000000 0200000001000000 0000000000000000 0200000018000000"
        "05dc000000000000 0000000000000000",
    ),
    ([INTS], ([],), "00000001 0000000000000000 0800000010000000 0000000000000000"),
    (
        [ElementType(Root.ARRAY, element=TINYINT)],
        ([1, None, 3],),
        "00000001 0000000000000000 1000000010000000 0300000002000000 0100030000000000",
    ),
    (
        [VectorType(element=FLOAT, length=3)],
        ([1.0, 2.0, 3.0],),
        "00000001 0000000000000000 1400000010000000 030000000000803f 0000004000004040 0000000000000000",
    ),
    (
        [VARIANT],
        ((b"\x02\x01\x00\x00\x02\x0c\x01", b"\x01\x01\x00\x01a"),),
        "00000001 0000000000000000 1000000010000000 0700000002010000 020c010101000161",
    ),
    ([VARIANT, INT], (None, 1), "00000002 0001000000000000 0000000000000000 0100000000000000"),
    (
        [ElementType(Root.MULTISET, element=STRING)],
        ([("k", 4)],),
        "00000001 0000000000000000 2400000010000000 1000000001000000 000000006b000000 0000008101000000"
        "0000000004000000 0000000000000000",
    ),
    (
        [DECIMAL_20_3],
        (Decimal("0.000"),),
        "00000001 0000000000000000 0100000010000000 0000000000000000 0000000000000000",
    ),
]

BUCKET_COUNTS = (2, 3, 4, 5, 8, 10, 16, 100, 128)
HASHES: list[tuple[list[DataType], tuple[Any, ...], int, tuple[int, ...]]] = [
    ([INT], (0,), -300363099, (1, 0, 3, 4, 3, 9, 11, 99, 91)),
    ([INT], (1,), 1465514398, (0, 1, 2, 3, 6, 8, 14, 98, 30)),
    ([INT], (-1,), 1133687267, (1, 2, 3, 2, 3, 7, 3, 67, 99)),
    ([INT], (42,), 907821237, (1, 0, 1, 2, 5, 7, 5, 37, 53)),
    ([INT], (None,), -1748325344, (0, 2, 0, 4, 0, 4, 0, 44, 96)),
    ([BIGINT], (1,), 1465514398, (0, 1, 2, 3, 6, 8, 14, 98, 30)),
    ([BIGINT], (1234567890123,), -1873221036, (0, 0, 0, 1, 4, 6, 12, 36, 44)),
    ([BIGINT], (-7,), 1145478327, (1, 0, 3, 2, 7, 7, 7, 27, 55)),
    ([STRING], ("",), 302122119, (1, 0, 3, 4, 7, 9, 7, 19, 7)),
    ([STRING], ("a",), 943281246, (0, 0, 2, 1, 6, 6, 14, 46, 94)),
    ([STRING], ("abcdefg",), -1431907323, (1, 0, 3, 3, 3, 3, 11, 23, 123)),
    ([STRING], ("abcdefgh",), -843760178, (0, 2, 2, 3, 2, 8, 2, 78, 50)),
    ([STRING], ("hello world paimon",), -1778215262, (0, 2, 2, 2, 6, 2, 14, 62, 94)),
    ([STRING], ("测试",), -721899320, (0, 2, 0, 0, 0, 0, 8, 20, 56)),
    ([INT, STRING], (1, "abc"), 261371745, (1, 0, 1, 0, 1, 5, 1, 45, 97)),
    ([STRING, INT], ("2024-01-01", 7), 1755510402, (0, 0, 2, 2, 2, 2, 2, 2, 2)),
    ([INT, STRING, BIGINT], (5, None, 9), -2129060243, (1, 2, 3, 3, 3, 3, 3, 43, 19)),
    ([STRING, STRING], LONG_STRINGS, 1841261584, (0, 1, 0, 4, 0, 4, 0, 84, 16)),
    ([DECIMAL_10_2], (Decimal("12.34"),), -1096042293, (1, 0, 1, 3, 5, 3, 5, 93, 53)),
    ([DECIMAL_20_3], (Decimal("12345678901234567.890"),), 1279091141, (1, 2, 1, 1, 5, 1, 5, 41, 69)),
    ([DECIMAL_20_3], (None,), -1380280760, (0, 2, 0, 0, 0, 0, 8, 60, 56)),
    ([timestamp(3)], ((MILLIS, 0),), -1285420957, (1, 1, 1, 2, 5, 7, 13, 57, 29)),
    ([timestamp(6)], ((MILLIS, 456_000),), 1196670069, (1, 0, 1, 4, 5, 9, 5, 69, 117)),
    ([timestamp(6)], (None,), -340882661, (1, 2, 1, 1, 5, 1, 5, 61, 101)),
    ([DATE], (19_723,), -1439008885, (1, 1, 1, 0, 5, 5, 5, 85, 117)),
    ([TIME], (3_600_000,), -2060102702, (0, 2, 2, 2, 6, 2, 14, 2, 46)),
    ([BOOLEAN], (True,), 1465514398, (0, 1, 2, 3, 6, 8, 14, 98, 30)),
    (SMALL_NUMBERS, (False, -1, -2, 1.5, -2.25), 1486165714, (0, 1, 2, 4, 2, 4, 2, 14, 82)),
    ([BYTES], (b"\x01\x02\xff",), 2036400951, (1, 0, 3, 1, 7, 1, 7, 51, 55)),
    ([BYTES], (bytes(range(1, 10)),), -171399545, (1, 2, 1, 0, 1, 5, 9, 45, 121)),
    ([], (), -1670924195, (1, 2, 3, 0, 3, 5, 3, 95, 35)),
]


def to_columns(types: list[DataType], *rows: tuple[Any, ...]) -> list[pa.Array]:
    return [
        pa.array([plain(value, dtype) for value in column], to_arrow(dtype))
        for dtype, column in zip(types, zip(*rows, strict=True), strict=True)
    ]


def plain(value: Any, dtype: DataType) -> Any:
    """A value of the internal domain as Arrow's builder takes it."""
    if value is None:
        return None
    if isinstance(dtype, TimeType) and dtype.root is not Root.TIME:
        unit = 1 if dtype.precision <= 3 else 1_000 if dtype.precision <= 6 else 1_000_000
        return value[0] * unit + value[1] // (1_000_000 // unit)
    if isinstance(dtype, ElementType) and dtype.root is Root.ARRAY:
        return [plain(item, dtype.element) for item in value]
    if isinstance(dtype, RowType):
        return {field.name: plain(item, field.type) for field, item in zip(dtype.fields, value, strict=True)}
    if dtype is VARIANT:
        return {"value": value[0], "metadata": value[1]}
    return value


@pytest.mark.parametrize(("types", "row", "text"), ROWS + MORE_ROWS)
def test_a_row_has_the_bytes_of_the_reference_implementation(
    types: list[DataType], row: tuple[Any, ...], text: str
) -> None:
    expected = bytes.fromhex(text)
    assert encode_row(row, types) == expected
    assert slow_encode(row, types) == expected
    assert encode_rows(to_columns(types, row), types, length=1).to_pylist() == [expected]
    assert decode_row(expected, types) == row
    assert slow_decode(expected, types) == row
    decoded = decode_rows(pa.array([expected]), types)
    assert decoded == to_columns(types, row)
    assert [column.type for column in decoded] == [to_arrow(dtype) for dtype in types]


@pytest.mark.parametrize(("types", "row", "code", "buckets"), HASHES)
def test_a_row_has_the_hash_and_buckets_of_the_reference_implementation(
    types: list[DataType], row: tuple[Any, ...], code: int, buckets: tuple[int, ...]
) -> None:
    hashes = hash_rows(to_columns(types, row, row, row), types, length=3)
    assert hashes.dtype == np.int32
    assert hashes.tolist() == [code] * 3
    assert slow_hash(encode_row(row, types)[4:]) == code
    for count, bucket in zip(BUCKET_COUNTS, buckets, strict=True):
        assert bucket_default(hashes, count).tolist() == [bucket] * 3
        assert slow_bucket(row, types, count) == bucket


def test_the_empty_row_is_twelve_zero_bytes() -> None:
    assert bytes(12) == EMPTY_ROW
    assert encode_rows([], [], length=2).to_pylist() == [EMPTY_ROW, EMPTY_ROW]
    assert encode_row((), ()) == EMPTY_ROW
    assert decode_rows(pa.array([EMPTY_ROW]), []) == []


@pytest.mark.parametrize(("arity", "size"), [(0, 8), (1, 8), (56, 8), (57, 16), (120, 16), (121, 24), (184, 24)])
def test_null_bits_share_words_with_the_header(arity: int, size: int) -> None:
    assert null_bits_size(arity) == size
    row = encode_row([None] * arity, [INT] * arity)
    assert len(row) == 4 + size + 8 * arity
    assert encode_rows([pa.nulls(1, pa.int32())] * arity, [INT] * arity, length=1).to_pylist() == [row]
    assert hash_rows([pa.nulls(1, pa.int32())] * arity, [INT] * arity, length=1).tolist() == [slow_hash(row[4:])]
    assert [c.to_pylist() for c in decode_rows(pa.array([row]), [INT] * arity)] == [[None]] * arity


def test_sizes_of_arrays_and_padding() -> None:
    assert [array_header_size(count) for count in (0, 1, 32, 33, 64, 65)] == [4, 8, 8, 12, 12, 16]
    assert [round_to_eight(size) for size in (0, 1, 8, 9)] == [0, 8, 8, 16]


def test_blobs_and_geometries_are_bytes() -> None:
    for dtype in (BLOB, GeoType(Root.GEOMETRY), GeoType(Root.GEOGRAPHY, algorithm="spherical")):
        assert encode_row((b"0123456789",), [dtype]) == encode_row((b"0123456789",), [BYTES])
        assert encode_rows([pa.array([b"0123456789"])], [dtype]).to_pylist() == [encode_row((b"0123456789",), [BYTES])]


def test_chunks_slices_and_other_arrow_types_make_no_difference() -> None:
    texts = [None, "short", "a string of some length", "", "测试测试测试"]
    expected = [encode_row((text, number), [STRING, BIGINT]) for number, text in enumerate(texts)]
    numbers = pa.array(range(5), pa.int64())
    chunks = pa.chunked_array([pa.array(texts[:2]), pa.array(texts[2:])])
    for strings in (chunks, pa.array([*texts, "x"]).slice(0, 5), pa.array(texts, pa.large_string())):
        for other in (numbers, numbers.cast(pa.int8()), pa.chunked_array([numbers.slice(0, 4), numbers.slice(4)])):
            assert encode_rows([strings, other], [STRING, BIGINT]).to_pylist() == expected
            assert hash_rows([strings, other], [STRING, BIGINT]).tolist() == [slow_hash(row[4:]) for row in expected]
    assert encode_rows([pa.array(texts).dictionary_encode()], [STRING]).to_pylist() == [
        encode_row((text,), [STRING]) for text in texts
    ]
    fixed = pa.array([b"abc", b"def"], pa.binary(3))
    assert encode_rows([fixed], [BYTES]).to_pylist() == [encode_row((b,), [BYTES]) for b in (b"abc", b"def")]


def test_nothing_comes_of_no_rows() -> None:
    for dtype in (INT, STRING, DECIMAL_20_3, timestamp(9), INTS, COUNTS, PAIR, VARIANT, VectorType(length=2)):
        empty = pa.array([], to_arrow(dtype))
        rows = encode_rows([empty], [dtype])
        assert len(rows) == 0
        assert decode_rows(rows, [dtype])[0].equals(empty)
        assert hash_rows([empty], [dtype]).tolist() == []
        assert hash_rows([pa.chunked_array([], to_arrow(dtype))], [dtype]).tolist() == []


def test_what_lies_below_a_null_does_not_reach_the_bytes() -> None:
    hidden = pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), pa.array([1, 2, 3, 4], pa.int32()))
    shown = pa.Array.from_buffers(
        hidden.type, 2, [pa.py_buffer(b"\x02"), *hidden.buffers()[1:2]], children=[hidden.values]
    )
    assert encode_rows([shown], [INTS]).to_pylist() == [encode_row((v,), [INTS]) for v in (None, [3, 4])]
    secret = pa.Array.from_buffers(pa.string(), 1, [pa.py_buffer(b"\0"), *pa.array(["a long secret"]).buffers()[1:]])
    assert encode_rows([secret], [STRING]).to_pylist() == [encode_row((None,), [STRING])]
    assert hash_rows([secret], [STRING]).tolist() == hash_rows([pa.array([None], pa.string())], [STRING]).tolist()


def test_columns_and_types_must_agree() -> None:
    one, two = pa.array([1]), pa.array([1, 2])
    for call in (encode_rows, hash_rows):
        with pytest.raises(InvalidInputError, match="number of columns and number of types"):
            call([one], [INT, INT])
        with pytest.raises(InvalidInputError, match="differ in length"):
            call([one, two], [INT, INT])
        with pytest.raises(InvalidInputError, match="differ in length"):
            call([one], [INT], length=2)
        with pytest.raises(InvalidInputError, match="differ in length"):
            call([], [])
        with pytest.raises(InvalidInputError, match="cannot be cast"):
            call([pa.array([2**40])], [INT])
        with pytest.raises(InvalidInputError, match="cannot be cast"):
            call([pa.array(["x"])], [INTS])
    with pytest.raises(InvalidInputError, match="null element"):
        encode_rows([pa.array([[1.0, None]], pa.list_(pa.float32(), 2))], [VectorType(length=2)])
    with pytest.raises(InvalidInputError, match="of this type"):
        encode_rows([pa.array([["a"]], pa.list_(pa.string(), 1))], [VectorType(element=STRING)])


def test_rows_of_more_than_two_gibibytes_are_refused() -> None:
    big = pa.array([bytes(1 << 25)])
    with pytest.raises(InvalidInputError, match="2 GiB"):
        encode_rows([big] * 64, [BYTES] * 64)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1, BOOLEAN),
        (200, TINYINT),
        (2**31, INT),
        (2**63, BIGINT),
        ("1", INT),
        (1.5, INT),
        ("x", DOUBLE),
        (1e300, FLOAT),
        (86_400_000, TIME),
        (-1, TIME),
        (b"x", STRING),
        ("\ud800", STRING),
        ("x", BYTES),
        (5, timestamp(3)),
        ((0, 1_000_000), timestamp(9)),
        ((2**63, 0), timestamp(3)),
        (Decimal("1.234"), DECIMAL_10_2),
        (Decimal("123456789.00"), DECIMAL_10_2),
        (Decimal("1E+999999999"), DECIMAL_20_3),
        (Decimal("1E-999999999"), DECIMAL_20_3),
        (Decimal("NaN"), DECIMAL_20_3),
        (1.5, DECIMAL_20_3),
        (5, INTS),
        ("abc", STRINGS),
        ([(None, 1)], COUNTS),
        ([1], COUNTS),
        (7, COUNTS),
        ((1,), PAIR),
        (b"x", VARIANT),
        ([1.0, None], VectorType(length=2)),
        ([1.0], VectorType(length=2)),
        (["a"], VectorType(element=STRING)),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(value: object, dtype: DataType) -> None:
    with pytest.raises(InvalidInputError, match="does not fit") as error:
        encode_row((value,), [dtype])
    assert error.value.facts["type"] == str(dtype)


def test_a_row_needs_as_many_values_as_types() -> None:
    with pytest.raises(InvalidInputError, match="number of values"):
        encode_row((1, 2), [INT])


def test_an_integer_is_a_decimal_and_zero_has_any_exponent() -> None:
    assert unscaled_value(12, DECIMAL_10_2) == 1_200
    assert unscaled_value(Decimal("0E+99"), DECIMAL_10_2) == 0
    assert unscaled_value(Decimal("-1E1"), DECIMAL_10_2) == -1_000
    assert unscaled_value(Decimal("1.5000"), DECIMAL_10_2) == 150


def test_a_mapping_is_a_map() -> None:
    assert encode_row(({"k": 5},), [COUNTS]) == encode_row(([("k", 5)],), [COUNTS])


# ------------------------------------------------------------------------------------------------ bad bytes


def stored(*slots: int, nulls: int = 0, tail: bytes = b"") -> bytes:
    """A row with the given slots."""
    body = (nulls << 8).to_bytes(8, "little") + b"".join(slot.to_bytes(8, "little") for slot in slots)
    return len(slots).to_bytes(4, "big") + body + tail


def at(offset: int, low: int) -> int:
    return offset << 32 | low


BAD: list[tuple[str, bytes, list[DataType]]] = [
    ("shorter than its arity prefix", b"\0\0", [INT]),
    ("wrong number of fields", stored(1), [INT, INT]),
    ("too short for its fields", stored(1)[:-1], [INT]),
    ("longer than its slot", stored(0x88 << 56), [STRING]),
    ("beyond its row", stored(at(16, 9), tail=bytes(8)), [STRING]),
    ("beyond its row", stored(at(0x7FFFFFFF, 9), tail=bytes(8)), [BYTES]),
    ("beyond its row", stored(at(16, 0xFFFFFFFF), tail=bytes(8)), [BYTES]),
    ("not valid UTF-8", stored(0x81 << 56 | 0xFF), [STRING]),
    ("not valid UTF-8", stored(at(16, 8), tail=b"\xe6\xb5abcdef"), [STRING]),
    ("time of day is out of range", stored(86_400_000), [TIME]),
    ("time of day is out of range", stored(0xFFFFFFFF), [TIME]),
    ("more digits than its type", stored(10**10), [DECIMAL_10_2]),
    ("impossible length", stored(at(16, 0), tail=bytes(16)), [DECIMAL_20_3]),
    ("impossible length", stored(at(16, 17), tail=bytes(24)), [DECIMAL_20_3]),
    ("more digits than its type", stored(at(16, 16), tail=b"\x7f" * 16), [DECIMAL_20_3]),
    ("beyond its row", stored(at(17, 16), tail=bytes(16)), [DECIMAL_20_3]),
    ("nanoseconds", stored(at(16, 1_000_000), tail=bytes(8)), [timestamp(6)]),
    ("beyond its row", stored(at(9, 0)), [timestamp(6)]),
    ("beyond its row", stored(at(16, 8)), [INTS]),
    ("too short for its size", stored(at(16, 3), tail=bytes(8)), [INTS]),
    ("negative size", stored(at(16, 8), tail=b"\xff" * 8), [INTS]),
    ("too short for its elements", stored(at(16, 8), tail=b"\x01" + bytes(7)), [INTS]),
    ("too short for its elements", stored(at(16, 8), tail=b"\xff\xff\xff\x7f" + bytes(4)), [INTS]),
    ("too short for its fields", stored(at(16, 8), tail=bytes(8)), [PAIR]),
    ("beyond its row", stored(at(16, 8), tail=b"\x05" + bytes(7)), [COUNTS]),
    ("beyond its row", stored(at(16, 8), tail=b"\x05" + bytes(7)), [VARIANT]),
    ("negative size", stored(at(16, 8), tail=b"\xff" * 8), [VARIANT]),
    ("length of its type", stored(at(16, 8), tail=b"\x03" + bytes(7)), [VectorType(length=2)]),
    ("length of its type", stored(at(16, 8), tail=b"\x02" + bytes(7)), [VectorType(length=2)]),
    ("not numbers", stored(at(16, 8), tail=b"\x01" + bytes(7)), [VectorType(element=STRING)]),
]


@pytest.mark.parametrize(("message", "data", "types"), BAD)
def test_bytes_that_contradict_the_types_are_refused(message: str, data: bytes, types: list[DataType]) -> None:
    with pytest.raises(FormatError, match=message):
        decode_row(data, types)
    with pytest.raises(FormatError, match=message):
        decode_rows(pa.array([data]), types)


def test_a_map_has_a_value_for_every_key_and_no_null_key() -> None:
    good = encode_row(([("k", 5)],), [COUNTS])
    for position in (28, 40):  # the null bits of the keys, the count of the values
        broken = bytearray(good)
        broken[position] = 1 if position == 28 else 0
        with pytest.raises(FormatError, match="key"):
            decode_row(bytes(broken), [COUNTS])
        with pytest.raises(FormatError, match="key"):
            decode_rows(pa.array([bytes(broken)]), [COUNTS])


def test_an_error_names_the_row_and_the_field() -> None:
    nested = RowType(fields=(Field(0, "x", ElementType(Root.ARRAY, element=STRING)),))
    good = encode_row((1, (["fine, really"],)), [INT, nested])
    bad = good.replace(b"fine", b"\xff\xff\xff\xff")
    with pytest.raises(FormatError) as error:
        decode_rows(pa.array([good, good, bad, good]), [INT, nested])
    assert error.value.facts["row"] == "2"
    assert error.value.facts["field"] == "field 1.x.element"
    with pytest.raises(FormatError) as error:
        decode_rows(pa.array([good, good[:10]]), [INT, nested])
    assert error.value.facts["row"] == "1"


def test_a_timestamp_beyond_the_nanoseconds_of_arrow_is_refused() -> None:
    limit_millis, limit_nanos = divmod(2**63 - 1, 1_000_000)
    low_millis, low_nanos = divmod(-(2**63), 1_000_000)
    for good, bad in (
        ((limit_millis, limit_nanos), (limit_millis, limit_nanos + 1)),
        ((low_millis, low_nanos), (low_millis, low_nanos - 1)),
        ((limit_millis, 0), (limit_millis + 1, 0)),
        ((low_millis, low_nanos), (low_millis - 1, 999_999)),
    ):
        decoded = decode_rows(pa.array([encode_row((good,), [timestamp(9)])]), [timestamp(9)])[0]
        assert decoded.cast(pa.int64()).to_pylist() == [good[0] * 1_000_000 + good[1]]
        with pytest.raises(FormatError, match="out of the range"):
            decode_rows(pa.array([encode_row((bad,), [timestamp(9)])]), [timestamp(9)])


def test_a_null_field_may_hold_anything_in_its_slot() -> None:
    for dtype in (INT, STRING, DECIMAL_20_3, timestamp(9), INTS, COUNTS, PAIR, VARIANT, VectorType(length=2), TIME):
        for slot in (0, 2**64 - 1, at(16, 0), at(2**31 - 1, 5)):
            data = stored(slot, nulls=1)
            assert decode_row(data, [dtype]) == (None,)
            assert decode_rows(pa.array([data]), [dtype])[0].to_pylist() == [None]


def test_a_null_row_is_refused() -> None:
    with pytest.raises(FormatError, match="row is null"):
        decode_rows(pa.array([b"x", None]), [INT])
    with pytest.raises(InvalidInputError, match="row is null"):
        hash_bytes(pa.array([bytes(8), None]))


def test_columns_are_decoded_in_the_order_asked_for() -> None:
    rows = pa.array([encode_row((1, "a", 2), [INT, STRING, INT])])
    assert [c.to_pylist() for c in decode_rows(rows, [INT, STRING, INT], columns=[2, 1])] == [[2], ["a"]]
    for position in (3, -1):
        with pytest.raises(InvalidInputError, match="no field"):
            decode_rows(rows, [INT, STRING, INT], columns=[position])


def test_large_and_chunked_rows_are_decoded_too() -> None:
    rows = [encode_row((n, "x" * n), [INT, STRING]) for n in range(30)]
    for array in (
        pa.array(rows, pa.large_binary()),
        pa.chunked_array([rows[:7], rows[7:]]),
        pa.array([b"", *rows])[1:],
    ):
        numbers, texts = decode_rows(array, [INT, STRING])
        assert numbers.to_pylist() == list(range(30))
        assert texts.to_pylist() == ["x" * n for n in range(30)]


def test_long_values_are_gathered_piece_by_piece() -> None:
    texts = ["a" * 5_000_000, "b", "c" * 3_000_000, "d" * 3_000_000, None]
    rows = encode_rows([pa.array(texts)], [STRING])
    assert decode_rows(rows, [STRING])[0].to_pylist() == texts


# ------------------------------------------------------------------------------------------------ hashes


def test_the_hash_does_not_depend_on_batches_or_threads() -> None:
    count = 200_000
    numbers = pa.array(np.arange(count) * 7919 - 10**9)
    texts = pa.array([None if n % 97 == 0 else "k" * (n % 40) for n in range(count)])
    cases = [([numbers], [BIGINT]), ([texts], [STRING]), ([numbers, texts], [BIGINT, STRING])]
    with ThreadPoolExecutor(2) as executor:
        for columns, types in cases:
            whole = hash_rows(columns, types)
            cut = [pa.chunked_array([c.slice(0, 70_001), c.slice(70_001)]) for c in columns]
            assert np.array_equal(hash_rows(cut, types), whole)
            assert np.array_equal(hash_rows(columns, types, executor=executor), whole)
            row = 123_457
            value = tuple(column[row].as_py() for column in columns)
            assert whole[row] == slow_hash(slow_encode(value, types, arity_prefix=False))


def test_a_few_very_long_strings_among_short_ones() -> None:
    texts = ["x" * 100_001, "y" * 40, *["short"] * 50, "z" * 99_990, None, ""]
    expected = [slow_hash(slow_encode((text,), [STRING], arity_prefix=False)) for text in texts]
    assert hash_rows([pa.array(texts)], [STRING]).tolist() == expected


def test_hash_bytes_takes_whole_words_only() -> None:
    assert hash_bytes(pa.array([bytes(8), b"", bytes(16)])).tolist() == [
        slow_hash(bytes(8)),
        slow_hash(b""),
        slow_hash(bytes(16)),
    ]
    with pytest.raises(InvalidInputError, match="multiple of four") as error:
        hash_bytes(pa.array([bytes(8), bytes(7)]))
    assert error.value.facts["row"] == "1"


def test_signed_zeros_and_nan_hash_by_their_bits() -> None:
    for dtype in (FLOAT, DOUBLE):
        values = [0.0, -0.0, float("nan"), None]
        expected = [slow_hash(slow_encode((value,), [dtype], arity_prefix=False)) for value in values]
        assert hash_rows([pa.array(values, to_arrow(dtype))], [dtype]).tolist() == expected
        assert expected[0] != expected[1]


def test_the_scalar_codec_imports_neither_arrow_nor_numpy() -> None:
    code = (
        "import sys, tidelake.spec.rows.binary_row_scalar;"
        "sys.exit(any(name in sys.modules for name in ('pyarrow', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
