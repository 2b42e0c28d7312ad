from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelake.errors import InvalidInputError
from tidelake.spec.rows.bucket_function import BucketFunction, assign_buckets, bucket_default, bucket_hive, bucket_mod
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import (
    BIGINT,
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
    MapType,
    Root,
    RowType,
    TimeType,
)
from tidelake.testing.binary_row import slow_bucket

DECIMAL_10_2 = DecimalType(precision=10, scale=2)
DECIMAL_20_3 = DecimalType(precision=20, scale=3)

# types, row, mod 10, mod 7, hive 10, hive 7: as the reference implementation computes them
VECTORS: list[tuple[list[DataType], tuple[Any, ...], int | None, int | None, int, int]] = [
    ([INT], (1,), 1, 1, 1, 1),
    ([INT], (-1,), 9, 6, 7, 1),
    ([INT], (42,), 2, 0, 2, 0),
    ([BIGINT], (1234567890123,), 3, 1, 6, 0),
    ([BIGINT], (-7,), 3, 0, 6, 6),
    ([STRING], ("a",), None, None, 7, 6),
    ([STRING], ("abcdefgh",), None, None, 2, 2),
    ([INT, STRING], (1, "abc"), None, None, 5, 2),
    ([STRING, INT], ("2024-01-01", 7), None, None, 7, 1),
    ([INT, STRING, BIGINT], (5, None, 9), None, None, 4, 5),
    ([DECIMAL_10_2], (Decimal("12.34"),), None, None, 6, 1),
    ([DECIMAL_20_3], (Decimal("-1.500"),), None, None, 4, 0),
    ([BOOLEAN, TINYINT, SMALLINT, FLOAT, DOUBLE], (False, -1, -2, 1.5, -2.25), None, None, 3, 4),
    ([BYTES], (b"\x01\x02\xff",), None, None, 2, 0),
    ([DATE], (19_723,), None, None, 3, 4),
]


def to_columns(types: list[DataType], *rows: tuple[Any, ...]) -> list[pa.Array]:
    return [pa.array(column, to_arrow(dtype)) for dtype, column in zip(types, zip(*rows, strict=True), strict=True)]


@pytest.mark.parametrize(("types", "row", "mod_10", "mod_7", "hive_10", "hive_7"), VECTORS)
def test_mod_and_hive_give_the_buckets_of_the_reference_implementation(
    types: list[DataType], row: tuple[Any, ...], mod_10: int | None, mod_7: int | None, hive_10: int, hive_7: int
) -> None:
    columns = to_columns(types, row, row)
    for count, expected in ((10, hive_10), (7, hive_7)):
        buckets = assign_buckets(columns, types, function=BucketFunction.HIVE, count=count)
        assert buckets.dtype == np.int32
        assert buckets.tolist() == [expected] * 2
    for count, expected in ((10, mod_10), (7, mod_7)):
        if expected is None:
            with pytest.raises(InvalidInputError, match="mod"):
                assign_buckets(columns, types, function=BucketFunction.MOD, count=count)
        else:
            buckets = assign_buckets(columns, types, function=BucketFunction.MOD, count=count)
            assert buckets.dtype == np.int32
            assert buckets.tolist() == [expected] * 2


def test_the_default_bucket_is_the_absolute_value_of_the_truncating_remainder() -> None:
    hashes = np.array([0, 1, -1, 7, -7, 2**31 - 1, -(2**31), -(2**31) + 1], np.int32)
    for count in (1, 2, 3, 7, 128, 1000, 2**31 - 1):
        assert bucket_default(hashes, count).tolist() == [abs(int(h)) % count for h in hashes]


def test_default_buckets_of_many_rows_equal_those_of_each() -> None:
    rows = [(None if n % 11 == 0 else n * 10**12, None if n % 7 == 0 else "v" * (n % 13)) for n in range(500)]
    types: list[DataType] = [BIGINT, STRING]
    expected = [slow_bucket(row, types, 17) for row in rows]
    columns = to_columns(types, *rows)
    with ThreadPoolExecutor(2) as executor:
        for given in (None, executor):
            found = assign_buckets(columns, types, function=BucketFunction.DEFAULT, count=17, executor=given)
            assert found.tolist() == expected


def test_mod_reads_null_as_zero_and_takes_the_extremes() -> None:
    values = [None, -(2**63), 2**63 - 1, -1]
    assert bucket_mod(pa.array(values, pa.int64()), BIGINT, 10).tolist() == [0, 2, 7, 9]
    assert bucket_mod(pa.chunked_array([[1], [None, -8]], pa.int32()), INT, 5).tolist() == [1, 0, 2]


def hive_hash(value: Any, dtype: DataType) -> int:
    """The hash of one value, from the bucket of a count that loses nothing but the sign."""
    return int(
        bucket_hive([pa.array(["x", value] if dtype is STRING else [value], to_arrow(dtype))], [dtype], 2**31 - 1)[-1]
    )


def test_hive_hashes_follow_java() -> None:
    nan, minus_nan = (np.array([bits], np.uint64).view(np.float64)[0] for bits in (0x7FF8 << 48, 0xFFF8000000000001))
    assert hive_hash(0.0, DOUBLE) == hive_hash(-0.0, DOUBLE) == 0
    assert hive_hash(nan, DOUBLE) == hive_hash(minus_nan, DOUBLE) == 0x7FF80000
    assert hive_hash(0.0, FLOAT) == hive_hash(-0.0, FLOAT) == 0
    assert hive_hash(float("nan"), FLOAT) == 0x7FC00000
    assert hive_hash(None, FLOAT) == hive_hash(None, DECIMAL_20_3) == hive_hash(None, BYTES) == 0
    assert hive_hash(True, BOOLEAN) == 1
    assert hive_hash(3_600_000, TimeType(Root.TIME, precision=3)) == 3_600_000
    assert hive_hash("hello", STRING) == 99162322  # the `hashCode` of this text in Java
    assert hive_hash("", STRING) == 0


def decimal_hash(value: Decimal) -> int:
    """Hive's hash of a decimal: no trailing zeros, no negative scale, then `BigDecimal.hashCode`."""
    sign, digits, exponent = value.as_tuple()
    unscaled, scale = int("".join(map(str, digits))), -int(exponent)
    while scale > 0 and unscaled % 10 == 0 and unscaled:
        unscaled, scale = unscaled // 10, scale - 1
    if not unscaled:
        return 0
    total = 0
    for shift in (96, 64, 32, 0):
        total = total * 31 + (unscaled >> shift & 0xFFFFFFFF)
    return ((-total if sign else total) * 31 + scale) & 0x7FFFFFFF


@pytest.mark.parametrize(
    "text", ["0.000", "100.000", "-1.500", "12345678901234567.890", "-99999999999999999.999", "0.001", "10.010"]
)
def test_hive_hashes_decimals_without_their_trailing_zeros(text: str) -> None:
    value = Decimal(text)
    assert hive_hash(value, DECIMAL_20_3) == decimal_hash(value) % (2**31 - 1)
    if abs(value) < 10**12:
        compact = DecimalType(precision=15, scale=3)
        assert hive_hash(value, compact) == decimal_hash(value) % (2**31 - 1)


def test_hive_hashes_decimals_of_128_bits() -> None:
    wide = DecimalType(precision=38, scale=10)
    values = [Decimal(f"{n}E-10") for n in (10**38 - 1, -(10**38) + 1, 10**37, -(2**64), 2**64 * 10**10, 2**96)]
    found = bucket_hive([pa.array([None, *values], to_arrow(wide)).slice(1)], [wide], 1000)
    assert found.tolist() == [decimal_hash(value) % 1000 for value in values]


def test_hive_strings_may_lie_anywhere_in_their_buffers() -> None:
    texts = ["", "测试", None, "abcdefgh", "x" * 1000]
    one_by_one = [int(bucket_hive([pa.array([text], pa.string())], [STRING], 997)[0]) for text in texts]
    sliced = pa.array(["before", *texts, "after"]).slice(1, len(texts))
    assert bucket_hive([sliced], [STRING], 997).tolist() == one_by_one
    assert bucket_hive([pa.array(texts, pa.large_string())], [STRING], 997).tolist() == one_by_one


@pytest.mark.parametrize(
    "dtype",
    [
        TimeType(Root.TIMESTAMP),
        TimeType(Root.TIMESTAMP_LTZ, precision=3),
        ElementType(Root.ARRAY),
        MapType(),
        RowType(fields=(Field(0, "a", INT),)),
        VARIANT,
    ],
)
def test_hive_refuses_types_by_name(dtype: DataType) -> None:
    with pytest.raises(InvalidInputError, match="hive") as error:
        assign_buckets([pa.nulls(1, to_arrow(dtype))], [dtype], function=BucketFunction.HIVE, count=2)
    assert error.value.facts["type"] == str(dtype)


@pytest.mark.parametrize("function", list(BucketFunction))
@pytest.mark.parametrize("count", [0, -1, 2**31])
def test_the_number_of_buckets_must_be_positive(function: BucketFunction, count: int) -> None:
    with pytest.raises(InvalidInputError, match="number of buckets"):
        assign_buckets([pa.array([1])], [BIGINT], function=function, count=count)


def test_a_bucket_key_has_columns_and_a_type_for_each() -> None:
    with pytest.raises(InvalidInputError, match="no columns"):
        assign_buckets([], [], function=BucketFunction.DEFAULT, count=1)
    for function in BucketFunction:
        with pytest.raises(InvalidInputError, match="number of columns"):
            assign_buckets([pa.array([1])], [], function=function, count=1)


def test_mod_takes_one_column() -> None:
    with pytest.raises(InvalidInputError, match="exactly one column"):
        assign_buckets([pa.array([1])] * 2, [BIGINT, BIGINT], function=BucketFunction.MOD, count=1)
    with pytest.raises(InvalidInputError, match="INT or BIGINT"):
        assign_buckets([pa.array([1], pa.int16())], [SMALLINT], function=BucketFunction.MOD, count=1)


def test_the_functions_carry_the_names_of_the_option() -> None:
    assert [function.value for function in BucketFunction] == ["default", "mod", "hive"]
