from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.rows.binary_row_scalar import encode_row
from tidelake.spec.rows.partition_path import escape_name, partition_path, partition_paths, unescape_name, value_text
from tidelake.spec.types.data_types import (
    BIGINT,
    BLOB,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TINYINT,
    DataType,
    DecimalType,
    ElementType,
    Root,
    TimeType,
)

DEFAULT = "__DEFAULT_PARTITION__"
MILLIS = 1_700_000_000_000  # 2023-11-14 22:13:20
NEW_YEAR = 1_704_067_200_000  # 2024-01-01 00:00:00


def timestamp(precision: int) -> TimeType:
    return TimeType(Root.TIMESTAMP, precision=precision)


def ltz(precision: int) -> TimeType:
    return TimeType(Root.TIMESTAMP_LTZ, precision=precision)


def time(precision: int) -> TimeType:
    return TimeType(Root.TIME, precision=precision)


# value, type, legacy text, other text; None where there is none
TEXTS: list[tuple[Any, DataType, str | None, str]] = [
    ("a/b c", STRING, "a/b c", "a/b c"),
    (True, BOOLEAN, "true", "true"),
    (False, BOOLEAN, "false", "false"),
    (-128, TINYINT, "-128", "-128"),
    (2**63 - 1, BIGINT, "9223372036854775807", "9223372036854775807"),
    (1.5, DOUBLE, "1.5", "1.5"),
    (Decimal("12.30"), DecimalType(precision=10, scale=2), "12.30", "12.30"),
    (Decimal("12.3"), DecimalType(precision=10, scale=2), "12.30", "12.30"),
    (Decimal("1E-8"), DecimalType(precision=20, scale=8), "0.00000001", "0.00000001"),
    (Decimal(-5), DecimalType(precision=38, scale=0), "-5", "-5"),
    (19_723, DATE, "19723", "2024-01-01"),
    (-1, DATE, "-1", "1969-12-31"),
    (3_661_001, time(0), "3661001", "01:01:01"),
    (3_661_001, time(3), "3661001", "01:01:01.001"),
    ((MILLIS, 0), timestamp(0), "2023-11-14T22:13:20", "2023-11-14 22:13:20"),
    ((MILLIS, 0), timestamp(3), "2023-11-14T22:13:20", "2023-11-14 22:13:20.000"),
    ((MILLIS + 120, 0), timestamp(3), "2023-11-14T22:13:20.120", "2023-11-14 22:13:20.120"),
    ((MILLIS + 123, 456_000), timestamp(6), "2023-11-14T22:13:20.123456", "2023-11-14 22:13:20.123456"),
    ((MILLIS + 123, 456_789), timestamp(9), "2023-11-14T22:13:20.123456789", "2023-11-14 22:13:20.123456789"),
    ((NEW_YEAR, 0), timestamp(6), "2024-01-01T00:00", "2024-01-01 00:00:00.000000"),
    ((-1, 999_000), timestamp(6), "1969-12-31T23:59:59.999999", "1969-12-31 23:59:59.999999"),
    ((MILLIS, 0), ltz(3), "2023-11-14T22:13:20", "2023-11-14 22:13:20.000"),
    (b"abc", BYTES, None, "abc"),
]


@pytest.mark.parametrize(("value", "dtype", "legacy", "other"), TEXTS)
def test_a_value_has_the_text_of_the_reference_implementation(
    value: Any, dtype: DataType, legacy: str | None, other: str
) -> None:
    assert value_text(value, dtype, legacy=False) == other
    if legacy is None:
        with pytest.raises(InvalidInputError, match="legacy partition name"):
            value_text(value, dtype, legacy=True)
    else:
        assert value_text(value, dtype, legacy=True) == legacy


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (1e10, "1.0E10"),
        (1e-7, "1.0E-7"),
        (123456789.125, "1.23456789125E8"),
        (0.001, "0.001"),
        (9.999e-4, "9.999E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (100.0, "100.0"),
        (4.35, "4.35"),
        (-12.5, "-12.5"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_a_double_looks_as_java_prints_it(value: float, text: str) -> None:
    for legacy in (True, False):
        assert value_text(value, DOUBLE, legacy=legacy) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1.1, "1.1"),
        (1e10, "1.0E10"),
        (16777216.0, "1.6777216E7"),
        (3.4028234663852886e38, "3.4028235E38"),
        (1.401298464324817e-45, "1.4E-45"),
        (2.802596928649634e-45, "2.8E-45"),
        (8.5e-3, "0.0085"),
        (1e39, "Infinity"),
    ],
)
def test_a_float_looks_as_java_prints_it(value: float, text: str) -> None:
    assert value_text(value, FLOAT, legacy=True) == text


@pytest.mark.parametrize(
    ("millis", "precision", "text"),
    [
        (0, 3, "00:00:00.0"),
        (100, 3, "00:00:00.1"),
        (120, 3, "00:00:00.12"),
        (1, 3, "00:00:00.001"),
        (1, 2, "00:00:00.00"),
        (1, 1, "00:00:00.0"),
        (123, 2, "00:00:00.12"),
        (123, 9, "00:00:00.123"),
        (86_399_999, 0, "23:59:59"),
    ],
)
def test_a_time_drops_trailing_zeros_before_it_is_cut_to_its_precision(millis: int, precision: int, text: str) -> None:
    assert value_text(millis, time(precision), legacy=False) == text


def test_digits_beyond_the_precision_of_a_timestamp_are_shown() -> None:
    assert value_text((0, 1), timestamp(3), legacy=False) == "1970-01-01 00:00:00.000000001"
    assert value_text((120, 0), timestamp(1), legacy=False) == "1970-01-01 00:00:00.12"


@pytest.mark.parametrize(
    ("millis", "legacy", "other"),
    [
        (253_402_300_800_000, "+10000-01-01T00:00", "0000-01-01 00:00:00.000"),
        (-62_135_596_800_001, "0000-12-31T23:59:59.999", "0000-12-31 23:59:59.999"),
        (-62_167_219_200_001, "-0001-12-31T23:59:59.999", "000/-12-31 23:59:59.999"),
        (-99_999_999_999_999, "-1199-02-15T14:13:20.001", "//''-02-15 14:13:20.001"),
        (10**16, "+318857-05-20T17:46:40", "8857-05-20 17:46:40.000"),
    ],
)
def test_years_outside_four_digits_are_named_as_the_others_name_them(millis: int, legacy: str, other: str) -> None:
    assert value_text((millis, 0), timestamp(3), legacy=True) == legacy
    assert value_text((millis, 0), timestamp(3), legacy=False) == other


def test_dates_far_away() -> None:
    assert value_text(2_932_896, DATE, legacy=False) == "9999-12-31"
    assert value_text(2_932_897, DATE, legacy=False) == "0000-01-01"
    assert value_text(-719_529, DATE, legacy=False) == "000/-12-31"
    assert value_text(2**31 - 1, DATE, legacy=True) == "2147483647"
    with pytest.raises(InvalidInputError, match="too far"):
        value_text(2**31 - 1, DATE, legacy=False)


def test_an_instant_is_shown_in_the_zone_asked_for() -> None:
    assert value_text((0, 0), ltz(0), legacy=False, zone="Asia/Shanghai") == "1970-01-01 08:00:00"
    assert value_text((1_720_000_000_000, 0), ltz(0), legacy=False, zone="Europe/Paris") == "2024-07-03 11:46:40"
    assert value_text((0, 0), timestamp(0), legacy=False, zone="Asia/Shanghai") == "1970-01-01 00:00:00"
    assert value_text((0, 0), ltz(0), legacy=True, zone="Asia/Shanghai") == "1970-01-01T00:00"
    for zone in ("Nowhere/Land", "../etc/passwd", "", "Europe"):
        with pytest.raises(InvalidInputError, match="time zone"):
            value_text((0, 0), ltz(0), legacy=False, zone=zone)
    with pytest.raises(InvalidInputError, match="time zone"):
        value_text((2**60, 0), ltz(0), legacy=False, zone="Europe/Paris")


def test_bytes_that_are_no_text_are_marked() -> None:
    assert value_text(b"\xff\xfe", BYTES, legacy=False) == "\ufffd\ufffd"
    assert value_text(b"\xed\xa0\x80", BYTES, legacy=False) == "\ufffd"


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1, STRING),
        ("1", INT),
        (True, INT),
        (86_400_000, time(0)),
        (5, timestamp(3)),
        ((1, 2), time(0)),
        (Decimal("1.234"), DecimalType(precision=10, scale=2)),
        ([1], ElementType(Root.ARRAY)),
        (b"x", BLOB),
    ],
)
def test_a_value_without_text_is_refused(value: Any, dtype: DataType) -> None:
    with pytest.raises(InvalidInputError):
        value_text(value, dtype, legacy=False)


def test_exactly_these_characters_are_escaped() -> None:
    escaped = [chr(code) for code in range(0x3000) if escape_name(chr(code)) != chr(code)]
    assert escaped == sorted([*map(chr, range(0x20)), "\x7f", *"\"#%'*/:=?\\{}[]^"])
    assert escape_name("a:b/c") == "a%3Ab%2Fc"
    assert escape_name("\n") == "%0A"
    assert escape_name("& +,~|<>@é😀") == "& +,~|<>@é😀"


def test_unescaping_turns_escapes_back_and_nothing_else() -> None:
    hostile = "".join(map(chr, range(0x180))) + "😀%zz%4"
    assert unescape_name(escape_name(hostile)) == hostile
    assert unescape_name("%3a%2F%41") == ":/A"
    assert unescape_name("%zz%4%") == "%zz%4%"
    assert unescape_name("%+1") == "%+1"


def test_a_path_has_a_segment_per_key_and_ends_in_a_slash() -> None:
    assert (
        partition_path(["dt", "h"], ["2024-01-01", 1], [STRING, INT], legacy=True, default_name=DEFAULT)
        == "dt=2024-01-01/h=1/"
    )
    assert partition_path([], [], [], legacy=True, default_name=DEFAULT) == ""
    path = partition_path(["a=b"], [(MILLIS, 0)], [timestamp(3)], legacy=True, default_name=DEFAULT)
    assert path == "a%3Db=2023-11-14T22%3A13%3A20/"
    with pytest.raises(InvalidInputError, match="number of keys"):
        partition_path(["dt"], [], [STRING], legacy=True, default_name=DEFAULT)


@pytest.mark.parametrize("value", [None, "", " ", "\t \n", "\u3000\u2003", "\x1c"])
def test_null_and_blank_values_share_the_default_directory(value: str | None) -> None:
    assert partition_path(["dt"], [value], [STRING], legacy=True, default_name=DEFAULT) == f"dt={DEFAULT}/"


@pytest.mark.parametrize("value", ["\u00a0", "\u2007", "\u202f", "\u0085", "\u200b"])
def test_no_break_spaces_are_not_blank(value: str) -> None:
    assert partition_path(["dt"], [value], [STRING], legacy=True, default_name=DEFAULT) == f"dt={value}/"


@pytest.mark.parametrize("value", ["..", ".", "../..", "/etc", "a/../b", "\\..\\", "x\0y", "%2e%2e"])
def test_no_value_climbs_out_of_its_segment(value: str) -> None:
    path = partition_path(["dt"], [value], [STRING], legacy=True, default_name=DEFAULT)
    assert path.count("/") == 1
    assert path.startswith("dt=")
    assert "\0" not in path
    assert unescape_name(path[3:-1]) == value


def test_the_default_name_is_escaped_too() -> None:
    assert partition_path(["dt"], [None], [STRING], legacy=True, default_name="a/b") == "dt=a%2Fb/"


@pytest.mark.parametrize("legacy", [True, False])
def test_stored_partitions_have_the_paths_of_their_values(legacy: bool) -> None:
    types = [
        STRING,
        DATE,
        time(3),
        timestamp(3),
        timestamp(6),
        ltz(9),
        DOUBLE,
        FLOAT,
        DecimalType(precision=20, scale=2),
    ]
    rows = [
        ("a", 19_723, 1, (MILLIS, 0), (-1, 999_000), (MILLIS, 123_456), 0.0, 0.1, Decimal("1.50")),
        ("a", 19_723, 1, (MILLIS, 0), (-1, 999_000), (MILLIS, 123_456), -0.0, float("nan"), Decimal("-1.50")),
        ("b/", -1, 0, (-1, 0), (0, 0), (0, 1), 1e22, 1.5, Decimal("0.00")),
        (None,) * 9,
    ]
    keys = [f"k{index}" for index in range(len(types))]
    stored = pa.array([encode_row(row, types) for row in rows])
    expected = [partition_path(keys, row, types, legacy=legacy, default_name=DEFAULT) for row in rows]
    assert partition_paths(stored, keys, types, legacy=legacy, default_name=DEFAULT) == expected
    assert len(set(expected)) == len(rows)


def test_stored_partitions_without_keys_have_no_path() -> None:
    rows = pa.array([encode_row((), ())] * 2)
    assert partition_paths(rows, [], [], legacy=True, default_name=DEFAULT) == ["", ""]


def test_bad_stored_partitions_are_refused() -> None:
    with pytest.raises(FormatError):
        partition_paths(pa.array([b"rubbish"]), ["dt"], [STRING], legacy=True, default_name=DEFAULT)
    with pytest.raises(InvalidInputError, match="number of keys"):
        partition_paths(pa.array([b"rubbish"]), [], [STRING], legacy=True, default_name=DEFAULT)
