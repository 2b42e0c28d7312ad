"""Row bytes, hash codes, buckets and partition folders equal those of the Java code, for every type.

Goal: a row that both implementations write goes to the same bucket and the same folder. Method: draw values from a
fixed seed, extremes and nulls among them, and compare whole columns.
"""

from __future__ import annotations

import math
import random  # noqa: TID251 - drawn from fixed seeds
import struct
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import oracle
from oracle.types import row_to_java
from tidelake.spec.rows.binary_hash import hash_rows
from tidelake.spec.rows.binary_row import decode_rows, encode_rows
from tidelake.spec.rows.binary_row_scalar import decode_row, encode_row
from tidelake.spec.rows.bucket_function import BucketFunction, assign_buckets
from tidelake.spec.rows.partition_path import partition_path, partition_paths
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import (
    DataType,
    DecimalType,
    ElementType,
    MapType,
    Root,
    RowType,
    TimeType,
    VectorType,
)
from tidelake.spec.types.type_codec import parse_type

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("jvm")]

COUNT = 600
DAY_MS = 86_400_000

# ------------------------------------------------------------------------------------------------ values

INTS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
ALPHABET = "abcXYZ019 _-=/%:\\\"'{}[]^#?*\t\x01\x7fäß€中文😀\u2028"


def _int(bits: int) -> Callable[[random.Random], int]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    edges = (low, low + 1, -1, 0, 1, high - 1, high)
    return lambda r: r.choice(edges) if r.random() < 0.2 else r.randint(low, high) >> r.randrange(bits)


def _float(single: bool) -> Callable[[random.Random], float]:
    edges = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.5, 0.1, 5e-324, 1e-45, 3.4028234663852886e38, 1e10, 1e7)
    form, code = ("<I", "<f") if single else ("<Q", "<d")

    def draw(r: random.Random) -> float:
        raw = r.getrandbits(32 if single else 64)
        value = r.choice(edges) if r.random() < 0.3 else struct.unpack(code, struct.pack(form, raw))[0]
        if math.isnan(value):
            return math.nan  # one NaN: the way through Python does not keep the payloads
        return struct.unpack("<f", struct.pack("<f", value))[0] if single else value

    return draw


def _text(r: random.Random) -> str:
    size = r.choice((0, 1, 3, 6, 7, 8, 9, 15, 16, 17, 40)) if r.random() < 0.7 else r.randrange(200)
    return "".join(r.choice(ALPHABET) for _ in range(size))


def _bytes(r: random.Random) -> bytes:
    return r.randbytes(r.choice((0, 1, 6, 7, 8, 9, 16, 33)))


def _decimal(dtype: DecimalType) -> Callable[[random.Random], Decimal]:
    limit = 10**dtype.precision - 1
    edges = (0, 1, -1, limit, -limit)

    def draw(r: random.Random) -> Decimal:
        number = r.choice(edges) if r.random() < 0.2 else r.randint(-limit, limit) // 10 ** r.randrange(dtype.precision)
        number = number * 10 ** r.randrange(4) if abs(number) * 1000 <= limit else number
        return Decimal((number < 0, tuple(map(int, str(abs(number)))), -dtype.scale))

    return draw


def _instant(dtype: TimeType) -> Callable[[random.Random], int]:
    """Nanoseconds since the epoch, whole in the unit of the precision."""
    unit = 10 ** (9 - dtype.precision)
    span = 2**62 if dtype.precision > 6 else 9 * 10**12 * 86_400
    edges = (0, 1, -1, 999, -999, 10**6, -(10**6), 86_400 * 10**9, -1000)
    return lambda r: (r.choice(edges) if r.random() < 0.2 else r.randint(-span, span) >> r.randrange(40)) // unit * unit


def _list(draw: Callable[[random.Random], Any], size: int | None = None) -> Callable[[random.Random], list[Any]]:
    return lambda r: [draw(r) for _ in range(r.choice((0, 1, 2, 5, 31, 33)) if size is None else size)]


def _pairs(
    key: Callable[[random.Random], Any], value: Callable[[random.Random], Any]
) -> Callable[[random.Random], Any]:
    return lambda r: list({key(r): value(r) for _ in range(r.choice((0, 1, 2, 7)))}.items())


def drawer(dtype: DataType) -> Callable[[random.Random], Any]:
    """Draws values of a type: numbers for dates, times and instants; lists of pairs for maps; dicts for rows."""
    root = dtype.root
    inner: Callable[[random.Random], Any]
    if root.value in INTS:
        inner = _int(INTS[root.value])
    elif root is Root.DATE:
        inner = lambda r: r.choice((0, -1, 1, -719_162, 2_932_896, r.randint(-800_000, 3_000_000)))  # noqa: E731
    elif root is Root.TIME:
        inner = lambda r: r.choice((0, 1, 10, 100, 120, 1000, DAY_MS - 1, r.randrange(DAY_MS)))  # noqa: E731
    elif isinstance(dtype, TimeType):
        inner = _instant(dtype)
    elif root is Root.BOOLEAN:
        inner = lambda r: r.random() < 0.5  # noqa: E731
    elif root in (Root.FLOAT, Root.DOUBLE):
        inner = _float(root is Root.FLOAT)
    elif root in (Root.CHAR, Root.VARCHAR):
        inner = _text
    elif root in (Root.BINARY, Root.VARBINARY):
        inner = _bytes
    elif isinstance(dtype, DecimalType):
        inner = _decimal(dtype)
    elif isinstance(dtype, RowType):
        members = {field.name: drawer(field.type) for field in dtype.fields}
        inner = lambda r: {name: draw(r) for name, draw in members.items()}  # noqa: E731
    elif isinstance(dtype, MapType):
        inner = _pairs(drawer(dtype.key), drawer(dtype.value))
    elif isinstance(dtype, VectorType):
        inner = _list(drawer(dtype.element), dtype.length)
    elif isinstance(dtype, ElementType):
        inner = _pairs(drawer(dtype.element), _int(32)) if root is Root.MULTISET else _list(drawer(dtype.element))
    else:
        raise AssertionError(dtype)
    return inner if not dtype.nullable else lambda r: None if r.random() < 0.08 else inner(r)


def arrow_value(value: Any, dtype: DataType) -> Any:
    """A drawn value as Arrow takes it."""
    match value, dtype:
        case None, _:
            return None
        case int(), TimeType(root=Root.TIMESTAMP | Root.TIMESTAMP_LTZ, precision=precision):
            return value // (10**6 if precision <= 3 else 10**3 if precision <= 6 else 1)
        case dict(), RowType(fields=fields):
            return {field.name: arrow_value(value[field.name], field.type) for field in fields}
        case list(), MapType(key=key, value=item):
            return [(arrow_value(k, key), arrow_value(v, item)) for k, v in value]
        case list(), ElementType(root=Root.ARRAY, element=element):
            return [arrow_value(each, element) for each in value]
    return value


def internal_value(value: Any, dtype: DataType) -> Any:
    """A drawn value as the codec of single rows takes it."""
    match value, dtype:
        case None, _:
            return None
        case int(), TimeType(root=Root.TIMESTAMP | Root.TIMESTAMP_LTZ):
            return divmod(value, 10**6)
        case dict(), RowType(fields=fields):
            return tuple(internal_value(value[field.name], field.type) for field in fields)
        case list(), MapType(key=key, value=item):
            return [(internal_value(k, key), internal_value(v, item)) for k, v in value]
        case list(), ElementType(root=Root.ARRAY, element=element):
            return [internal_value(each, element) for each in value]
    return value


def draw_columns(texts: Sequence[str], count: int = COUNT) -> tuple[list[DataType], list[list[Any]]]:
    random_source = random.Random(repr(texts))
    types = [parse_type(text) for text in texts]
    draws = [drawer(dtype) for dtype in types]
    rows = [[None] * len(types), *([draw(random_source) for draw in draws] for _ in range(count - 1))]
    if not all(dtype.nullable for dtype in types):
        rows = rows[1:]
    return types, rows


def arrow_columns(types: Sequence[DataType], rows: Sequence[Sequence[Any]]) -> list[pa.Array]:
    return [pa.array([arrow_value(row[i], dtype) for row in rows], to_arrow(dtype)) for i, dtype in enumerate(types)]


class JavaRows:
    """BinaryRows that Java makes of drawn values."""

    def __init__(self, texts: Sequence[str]) -> None:
        fields = ", ".join(f"f{i} {text}" for i, text in enumerate(texts))
        self.type = oracle.data_type(f"ROW<{fields}>")
        self.convert = row_to_java(self.type)
        self.serializer = oracle.java("data.serializer.InternalRowSerializer")(self.type)

    def __call__(self, row: Sequence[Any]) -> Any:
        return self.serializer.toBinaryRow(self.convert(row))


SCALARS = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "CHAR(5)", "VARCHAR(20)", "STRING",
    "BINARY(4)", "VARBINARY(9)", "BYTES", "DECIMAL(1, 0)", "DECIMAL(9, 2)", "DECIMAL(18, 18)", "DECIMAL(19, 0)",
    "DECIMAL(38, 10)", "DATE", "TIME(0)", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(4)", "TIMESTAMP(6)",
    "TIMESTAMP(9)", "TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "TIMESTAMP(9) WITH LOCAL TIME ZONE",
)  # fmt: skip
KEYS = [
    *((text,) for text in SCALARS),
    ("INT NOT NULL", "STRING NOT NULL"),
    ("STRING", "STRING", "STRING"),
    ("BOOLEAN", "TINYINT", "SMALLINT", "FLOAT", "DOUBLE"),
    ("TIMESTAMP(6)", "DECIMAL(38, 10)", "STRING", "BIGINT"),
    tuple(["INT"] * 60),  # more columns than one word of null bits
    SCALARS,
]
NESTED = [
    ("ARRAY<INT>",), ("ARRAY<STRING>",), ("ARRAY<BOOLEAN>", "ARRAY<TINYINT>", "ARRAY<SMALLINT>", "ARRAY<DOUBLE>"),
    ("ARRAY<DECIMAL(38, 3)>",), ("ARRAY<TIMESTAMP(6)>",), ("ARRAY<ARRAY<BIGINT>>",),
    ("MAP<STRING NOT NULL, INT>",), ("MAP<BIGINT NOT NULL, ARRAY<STRING>>",), ("MULTISET<STRING NOT NULL>",),
    ("ROW<a INT, b STRING>",), ("ROW<a ROW<x TIMESTAMP(9), y DECIMAL(20, 2)>, b ARRAY<ROW<z STRING>>>", "INT"),
    ("MAP<INT NOT NULL, ROW<m MAP<STRING NOT NULL, DATE>>>",), ("VECTOR<FLOAT NOT NULL, 5>",),
]  # fmt: skip


def _label(texts: Sequence[str]) -> str:
    return "+".join(texts) if len(texts) < 6 else f"{len(texts)} columns"


# ------------------------------------------------------------------------------------------------ rows and hashes


@pytest.mark.parametrize("texts", [*KEYS, *NESTED], ids=_label)
def test_rows_and_hashes_are_those_of_java(texts: Sequence[str]) -> None:
    types, rows = draw_columns(texts)
    java_rows = JavaRows(texts)
    expected, hashes = [], []
    for row in rows:
        binary = java_rows(row)
        expected.append(bytes(binary.toBytes()))
        hashes.append(int(binary.hashCode()))
    columns = arrow_columns(types, rows)
    assert encode_rows(columns, types, arity_prefix=False).to_pylist() == expected
    assert hash_rows(columns, types).tolist() == hashes
    stored = [struct.pack(">i", len(types)) + each for each in expected]
    single = [encode_row([internal_value(v, t) for v, t in zip(row, types, strict=True)], types) for row in rows]
    assert single == stored
    # Back again: what was decoded encodes to the same bytes, whatever floats and maps compare equal.
    decoded = decode_rows(pa.array(stored, pa.binary()), types)
    assert encode_rows(decoded, types).to_pylist() == stored
    assert [encode_row(decode_row(each, types), types) for each in stored] == stored


def _bucket_keys() -> Iterator[Any]:
    for texts in KEYS:
        yield pytest.param("default", texts, id=f"default-{_label(texts)}")
        hive = [text for text in texts if not text.startswith("TIMESTAMP")]
        if hive:
            yield pytest.param("hive", hive, id=f"hive-{_label(hive)}")


@pytest.mark.parametrize(("function", "texts"), list(_bucket_keys()))
def test_buckets_are_those_of_java(function: str, texts: Sequence[str]) -> None:
    types, rows = draw_columns(texts)
    java_rows = JavaRows(texts)
    kind = oracle.java("CoreOptions$BucketFunctionType").valueOf(function.upper())
    bucket_of = oracle.java("bucket.BucketFunction").create(kind, java_rows.type)
    columns = arrow_columns(types, rows)
    for count in (1, 2, 7, 128, 2**31 - 1):
        expected = [int(bucket_of.bucket(java_rows(row), count)) for row in rows[:: 1 if count == 7 else 5]]
        ours = assign_buckets(columns, types, function=BucketFunction(function), count=count).tolist()
        assert ours[:: 1 if count == 7 else 5] == expected, count


@pytest.mark.parametrize("text", ["INT", "BIGINT"])
def test_mod_buckets_are_those_of_java(text: str) -> None:
    types, rows = draw_columns([text], 2000)
    java_rows = JavaRows([text])
    bucket_of = oracle.java("bucket.ModBucketFunction")(java_rows.type)
    for count in (1, 3, 10, 2**31 - 1):
        expected = [int(bucket_of.bucket(java_rows(row), count)) for row in rows]
        ours = assign_buckets(arrow_columns(types, rows), types, function=BucketFunction.MOD, count=count)
        assert ours.tolist() == expected, count


@pytest.mark.parametrize("text", ["TIMESTAMP(3)", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "ARRAY<INT>", "ROW<a INT>"])
def test_hive_refuses_what_java_refuses(text: str) -> None:
    types, rows = draw_columns([text], 30)
    value = next(row for row in rows if row[0] is not None)
    java_rows = JavaRows([text])
    with pytest.raises(Exception, match=r"nsupported|not support"):
        oracle.java("bucket.HiveBucketFunction")(java_rows.type).bucket(java_rows(value), 7)
    with pytest.raises(ValueError, match="hive"):
        assign_buckets(arrow_columns(types, [value]), types, function=BucketFunction.HIVE, count=7)


# ------------------------------------------------------------------------------------------------ partition folders


def java_release() -> int:
    return int(str(oracle.java("java.lang.System").getProperty("java.specification.version")))


def has_shortest_digits(value: float | None, dtype: DataType, path: str) -> bool:
    """Whether Java named the folder as releases from 19 on do: older ones print some numbers with a digit too many."""
    if value is None or not math.isfinite(value):
        return True
    digits = path.partition("c=")[2].partition("/")[0].partition("E")[0].lstrip("-").replace(".", "").strip("0")
    shortest = str(np.float32(value)) if dtype.root is Root.FLOAT else repr(value)
    return len(digits) <= max(2, len(shortest.partition("e")[0].lstrip("-").replace(".", "").strip("0")))


PARTITIONS = [text for text in SCALARS if "BINARY" not in text and text != "BYTES"]


@pytest.mark.parametrize("legacy", [True, False], ids=["legacy", "cast"])
@pytest.mark.parametrize("text", PARTITIONS)
def test_partition_folders_are_those_of_java(text: str, legacy: bool) -> None:
    types, rows = draw_columns([text, "INT"], 300)
    if text.startswith(("CHAR", "VARCHAR", "STRING")):
        rows = [[value, 1] for value in ("", " ", "\t \n", "a=b/c", "%41", "x{y}", "..", ".", "null", "_é")] + rows
    java_rows = JavaRows([text, "INT"])
    names = ["a=b c", "n"]  # odd names of columns are escaped like values
    computer_class = oracle.java("utils.InternalRowPartitionComputer")
    types_of = oracle.data_type(f"ROW<f0 {text}, f1 INT>")
    computer = computer_class("__DEFAULT_PARTITION__", types_of, ["f0", "f1"], legacy)
    path_of = oracle.java("utils.PartitionPathUtils").generatePartitionPath
    expected = []
    for row in rows:
        values = computer.generatePartValues(java_rows(row).copy())
        named = oracle.java("java.util.LinkedHashMap")()
        for name, key in zip(names, ("f0", "f1"), strict=True):
            named.put(name, values.get(key))
        expected.append(str(path_of(named)))
    how: dict[str, Any] = {"legacy": legacy, "default_name": "__DEFAULT_PARTITION__"}
    if types[0].root in (Root.FLOAT, Root.DOUBLE) and java_release() < 19:
        plain = [has_shortest_digits(row[0], types[0], path) for row, path in zip(rows, expected, strict=True)]
        assert sum(plain) > 0.9 * len(rows)
        rows, expected = list(compress(rows, plain)), list(compress(expected, plain))
    stored = [encode_row([internal_value(v, t) for v, t in zip(row, types, strict=True)], types) for row in rows]
    assert partition_paths(pa.array(stored, pa.binary()), names, types, **how) == expected
    assert [partition_path(names, decode_row(each, types), types, **how) for each in stored] == expected
