"""Casts between types, as observed in release 2.0.0 (`tests/compat` compares with the release itself)."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.spec.casts.cast_values import cast_array
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.type_codec import parse_type

DAY_MS = 86_400_000
LTZ = " WITH LOCAL TIME ZONE"


def cast(value: Any, source: str, target: str, zone: str = "UTC") -> Any:
    """One value among nulls; temporal results as their count."""
    source_type, target_type = parse_type(source), parse_type(target)
    array = pa.array([None, value, None, value], to_arrow(source_type)).slice(1, 2)
    found = cast_array(array, source_type, target_type, zone)
    assert found.type == to_arrow(target_type)
    assert len(found) == 2
    assert not found[1].is_valid
    scalar = found[0]
    if scalar.is_valid and pa.types.is_temporal(found.type):
        return scalar.value
    return scalar.as_py()


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        # Integers wrap, floats are cut and saturate at 32 or 64 bits before they wrap.
        (5_000_000_000, "BIGINT", "INT", 705_032_704),
        (300, "INT", "TINYINT", 44),
        (-129, "SMALLINT", "TINYINT", 127),
        (127, "TINYINT", "BIGINT", 127),
        (2**53 + 1, "BIGINT", "DOUBLE", 2.0**53),
        (1e20, "DOUBLE", "INT", 2**31 - 1),
        (-1e20, "DOUBLE", "BIGINT", -(2**63)),
        (2.0**63, "DOUBLE", "BIGINT", 2**63 - 1),
        (1e20, "DOUBLE", "TINYINT", -1),
        (300.7, "FLOAT", "TINYINT", 44),
        (-1.9, "DOUBLE", "SMALLINT", -1),
        (math.nan, "FLOAT", "BIGINT", 0),
        (1.7e308, "DOUBLE", "FLOAT", math.inf),
        (True, "BOOLEAN", "DOUBLE", 1.0),
        (False, "BOOLEAN", "DECIMAL(2, 1)", Decimal("0.0")),
        (-5, "INT", "BOOLEAN", True),
        (0, "TINYINT", "BOOLEAN", False),
        # Decimals round half up and are null where they do not fit.
        (Decimal("12.35"), "DECIMAL(10, 2)", "DECIMAL(10, 1)", Decimal("12.4")),
        (Decimal("-12.35"), "DECIMAL(10, 2)", "DECIMAL(10, 1)", Decimal("-12.4")),
        (Decimal("99.99"), "DECIMAL(4, 2)", "DECIMAL(4, 1)", Decimal("100.0")),
        (Decimal("12345.67"), "DECIMAL(10, 2)", "DECIMAL(4, 2)", None),
        (Decimal("9" * 38), "DECIMAL(38, 0)", "DECIMAL(38, 1)", None),
        (Decimal("0.5"), "DECIMAL(2, 1)", "DECIMAL(38, 38)", Decimal("0.5")),
        (12345, "INT", "DECIMAL(4, 2)", None),
        (12, "INT", "DECIMAL(4, 2)", Decimal("12.00")),
        (0.1, "DOUBLE", "DECIMAL(38, 10)", Decimal("0.1000000000")),
        (0.1, "FLOAT", "DECIMAL(38, 10)", Decimal("0.1000000015")),
        (1e38, "DOUBLE", "DECIMAL(38, 0)", None),
        (Decimal("12.99"), "DECIMAL(10, 2)", "INT", 12),
        (Decimal("-12.99"), "DECIMAL(10, 2)", "TINYINT", -12),
        (Decimal(2**64 + 5), "DECIMAL(38, 0)", "BIGINT", 5),
        (Decimal("12.35"), "DECIMAL(10, 2)", "DOUBLE", 12.35),
        (Decimal("1.234567890123456789"), "DECIMAL(38, 18)", "DOUBLE", 1.2345678901234567),
        # Text: cut and filled up, read without trimming.
        ("ab", "STRING", "CHAR(5)", "ab   "),
        ("abcdef", "STRING", "VARCHAR(3)", "abc"),
        ("😀é😀", "STRING", "VARCHAR(2)", "😀é"),
        ("é", "STRING", "BINARY(3)", b"\xc3\xa9\x00"),
        ("abc", "STRING", "VARBINARY(2)", b"ab"),
        (b"ab", "BYTES", "STRING", "ab"),
        (b"\xff", "BYTES", "STRING", "\ufffd"),
        (b"ab", "BYTES", "BINARY(4)", b"ab\x00\x00"),
        ("+1", "STRING", "INT", 1),
        ("-1.9", "STRING", "TINYINT", -1),
        (".", "STRING", "INT", 0),
        (" 1.5 ", "STRING", "DOUBLE", 1.5),
        ("1e3", "STRING", "DECIMAL(10, 2)", Decimal("1000.00")),
        ("0.005", "STRING", "DECIMAL(10, 2)", Decimal("0.01")),
        ("99999999.995", "STRING", "DECIMAL(10, 2)", None),
        ("1e999999999", "STRING", "DECIMAL(10, 2)", None),
        ("1e-999999999", "STRING", "DECIMAL(10, 2)", Decimal("0.00")),
        ("Infinity", "STRING", "FLOAT", math.inf),
        ("YES", "STRING", "BOOLEAN", True),
        ("f", "STRING", "BOOLEAN", False),
        ("2024-1-1", "STRING", "DATE", 19_723),
        ("300", "STRING", "DATE", 300),
        ("10:11", "STRING", "TIME(3)", 36_660_000),
        ("2024-02-30", "STRING", "TIMESTAMP(3)", 1_709_164_800_000),
        ("1969-12-31 23:59:59.999", "STRING", "TIMESTAMP(0)", -1000),
        ("300", "STRING", "TIMESTAMP(6)", 300),
        # To text.
        (True, "BOOLEAN", "STRING", "true"),
        (-5, "INT", "CHAR(4)", "-5  "),
        (1e10, "DOUBLE", "STRING", "1.0E10"),
        (-0.0, "DOUBLE", "STRING", "-0.0"),
        (0.0, "DOUBLE", "STRING", "0.0"),
        (0.1, "FLOAT", "STRING", "0.1"),
        (Decimal("-0.05"), "DECIMAL(10, 2)", "STRING", "-0.05"),
        (19_723, "DATE", "STRING", "2024-01-01"),
        (3_661_120, "TIME(3)", "STRING", "01:01:01.12"),
        (-1, "TIMESTAMP(6)", "STRING", "1969-12-31 23:59:59.999999"),
        ([1, None], "ARRAY<INT>", "STRING", "[1, null]"),
        ([], "ARRAY<INT>", "STRING", "[]"),
        ([("a", 1), ("b", None)], "MAP<STRING, INT>", "VARCHAR(3)", "{a -> 1, b -> null}"),
        ({"x": 1, "y": [0]}, "ROW<x INT, y ARRAY<DATE>>", "STRING", "{1, [1970-01-01]}"),
        # Moments: seconds, and cut towards 1970.
        (10, "INT", "TIMESTAMP(3)", 10_000),
        (-1, "TIMESTAMP(3)", "BIGINT", 0),
        (10_500, "TIMESTAMP(3)", "INT", 10),
        (-1, "TIMESTAMP(3)", "DATE", 0),
        (-DAY_MS - 1, "TIMESTAMP(3)", "DATE", -1),
        (-1, f"TIMESTAMP(3){LTZ}", "DATE", -1),
        (-1, "TIMESTAMP(3)", "TIME(3)", DAY_MS - 1),
        (-1, "TIMESTAMP(3)", "TIMESTAMP(0)", 0),
        (-1, "TIMESTAMP(6)", "TIMESTAMP(3)", -1),
        (1_999, "TIMESTAMP(3)", "TIMESTAMP(1)", 1_900),
        (123_456_789, "TIMESTAMP(9)", "TIMESTAMP(6)", 123_456),
        (5, "TIMESTAMP(3)", "TIMESTAMP(9)", 5_000_000),
        (-1, "DATE", "TIMESTAMP(6)", -DAY_MS * 1000),
        (5, "TIME(3)", "TIMESTAMP(6)", 5_000),
    ],
)  # fmt: skip
def test_a_value_is_cast(value: Any, source: str, target: str, expected: Any) -> None:
    found = cast(value, source, target)
    assert found == expected
    assert str(found) == str(expected) or isinstance(expected, Decimal)


@pytest.mark.parametrize(
    ("value", "source", "target", "zone", "expected"),
    [
        (0, "TIMESTAMP(3)", f"TIMESTAMP(3){LTZ}", "Asia/Shanghai", -28_800_000),
        (0, f"TIMESTAMP(3){LTZ}", "TIMESTAMP(3)", "Asia/Shanghai", 28_800_000),
        (0, "DATE", f"TIMESTAMP(3){LTZ}", "Asia/Shanghai", -28_800_000),
        (0, "TIME(3)", f"TIMESTAMP(3){LTZ}", "Asia/Shanghai", 0),
        (10, "INT", f"TIMESTAMP(3){LTZ}", "Asia/Shanghai", 28_810_000),
        (10_000, f"TIMESTAMP(3){LTZ}", "INT", "Asia/Shanghai", 10),
        (0, f"TIMESTAMP(3){LTZ}", "STRING", "Asia/Shanghai", "1970-01-01 08:00:00.000"),
        ("1970-01-01", "STRING", f"TIMESTAMP(3){LTZ}", "Asia/Shanghai", -28_800_000),
        (0, f"TIMESTAMP(3){LTZ}", "TIME(3)", "Asia/Shanghai", 28_800_000),
        # Skipped and repeated hours: 2024-03-10 02:30 and 2024-11-03 01:30 in New York.
        (1_710_037_800_000, "TIMESTAMP(3)", f"TIMESTAMP(3){LTZ}", "America/New_York", 1_710_055_800_000),
        (1_730_597_400_000, "TIMESTAMP(3)", f"TIMESTAMP(3){LTZ}", "America/New_York", 1_730_611_800_000),
    ],
)
def test_the_zone_stands_between_wall_clocks_and_instants(
    value: Any, source: str, target: str, zone: str, expected: Any
) -> None:
    assert cast(value, source, target, zone) == expected


@pytest.mark.parametrize(
    ("value", "source", "target"),
    [
        ("", "STRING", "INT"),
        (" 1", "STRING", "INT"),
        ("1e3", "STRING", "INT"),
        ("300", "STRING", "TINYINT"),
        ("9" * 500, "STRING", "BIGINT"),
        ("abc", "STRING", "DOUBLE"),
        ("1_0", "STRING", "DOUBLE"),
        (" 1", "STRING", "DECIMAL(10, 2)"),
        ("on", "STRING", "BOOLEAN"),
        ("2024-13-01", "STRING", "DATE"),
        ("99999999999", "STRING", "DATE"),
        ("24:00:00", "STRING", "TIME(3)"),
        ("2024-01-01T10:11:12", "STRING", "TIMESTAMP(3)"),
        ("2024-01-01 10:11:60", "STRING", "TIMESTAMP(3)"),
        ("9" * 30, "STRING", "TIMESTAMP(3)"),
        (math.nan, "DOUBLE", "DECIMAL(10, 2)"),
        (math.inf, "FLOAT", "DECIMAL(10, 2)"),
        (2_932_896, "DATE", "TIMESTAMP(9)"),
    ],
)
def test_a_value_without_counterpart_raises_and_is_not_dropped(value: Any, source: str, target: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        cast(value, source, target)
    assert caught.value.code == "cast-value"
    assert caught.value.facts["type"] == str(parse_type(target))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("ARRAY<INT>", "ARRAY<BIGINT>"),
        ("DOUBLE", "BOOLEAN"),
        ("DATE", "INT"),
        ("VARIANT", "STRING"),
        ("DATE", "VARCHAR(5)"),
    ],
)
def test_types_without_a_cast_are_refused(source: str, target: str) -> None:
    with pytest.raises(UnsupportedError):
        cast(None, source, target)


def test_an_unknown_zone_is_refused() -> None:
    for source, target in (("TIMESTAMP(3)", f"TIMESTAMP(3){LTZ}"), (f"TIMESTAMP(3){LTZ}", "TIMESTAMP(3)")):
        with pytest.raises(InvalidInputError, match="zone"):
            cast(0, source, target, "Nowhere/Land")


@pytest.mark.parametrize("target", ["CHAR(3)", "BINARY(3)", "INT", "DECIMAL(5, 1)", "DATE", "TIMESTAMP(6)", "BOOLEAN"])
def test_empty_and_null_arrays_are_cast(target: str) -> None:
    source, target_type = parse_type("STRING"), parse_type(target)
    for array in (pa.array([], pa.string()), pa.nulls(3, pa.string())):
        found = cast_array(array, source, target_type)
        assert found.type == to_arrow(target_type)
        assert len(found) == len(array) == found.null_count


def test_the_same_type_is_given_back_as_it_is() -> None:
    array = pa.array(["abc"])
    assert cast_array(array, parse_type("CHAR(5)"), parse_type("CHAR(5) NOT NULL")) is array
