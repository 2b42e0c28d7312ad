"""Column statistics: modes, collecting, the stored form, reading many files, older schemas."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.rows.binary_row_scalar import EMPTY_ROW, decode_row, encode_row
from tidelake.spec.stats.column_stats import (
    UNKNOWN,
    ColumnStats,
    SimpleStats,
    collect,
    decode_bounds,
    decode_stats,
    encode_stats,
    is_comparable,
    partition_stats,
)
from tidelake.spec.stats.stats_evolution import bounds_under, widens
from tidelake.spec.stats.stats_modes import (
    COUNTS,
    FULL,
    KEY_MODE,
    NONE,
    StatsKind,
    StatsMode,
    parse_stats_mode,
    truncate_max_bytes,
    truncate_max_text,
    truncate_min_text,
)
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
    LengthType,
    Root,
    TimeType,
    with_nullable,
)

SIXTEEN = StatsMode(StatsKind.TRUNCATE, 16)
NAN = float("nan")
TIMESTAMP6 = TimeType(Root.TIMESTAMP, precision=6)


def cut(length: int) -> StatsMode:
    return StatsMode(StatsKind.TRUNCATE, length)


# ------------------------------------------------------------------------------------------------ modes


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("none", NONE),
        ("counts", COUNTS),
        ("Full", FULL),
        ("truncate(16)", SIXTEEN),
        ("TRUNCATE(2)", cut(2)),
        ("truncate(128)", KEY_MODE),
    ],
)
def test_modes_are_read_in_any_case(text: str, mode: StatsMode) -> None:
    assert parse_stats_mode(text) == mode
    assert parse_stats_mode(str(mode)) == mode


@pytest.mark.parametrize(
    "text", ["", "x", " full ", "truncate", "truncate()", "truncate(0)", "truncate( 2 )", "truncate(-1)", "full(3)",
             "truncate(2147483648)", "truncate(99999999999999)", "truncate(١)"]
)  # fmt: skip
def test_other_modes_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_stats_mode(text)


def test_only_truncate_has_a_length() -> None:
    with pytest.raises(InvalidInputError, match="only truncate"):
        StatsMode(StatsKind.FULL, 3)
    with pytest.raises(InvalidInputError, match="only truncate"):
        StatsMode(StatsKind.TRUNCATE)


@pytest.mark.parametrize(
    ("value", "length", "raised"),
    [
        ("hello world this is longer than sixteen", 16, "hello world thit"),
        ("ééézz", 3, "ééê"),
        ("abc", 3, "abc"),
        ("", 1, ""),
        ("a\U0010ffffx", 2, "b"),
        ("\U0010ffffx", 1, None),
        ("\U0010ffff", 1, "\U0010ffff"),
        ("\U0001f600\U0001f600x", 2, "\U0001f600\U0001f601"),
        ("\x7fb", 1, "\x80"),
        ("\uffffb", 1, "\U00010000"),
    ],
)
def test_a_cut_maximum_text_is_raised_at_its_last_code_point_that_can_be(
    value: str, length: int, raised: str | None
) -> None:
    assert truncate_max_text(value, length) == raised


@pytest.mark.parametrize(("value", "raised"), [("\ud7ffx", "\ue000"), ("a\ud7ffx", "a\ue000")])
def test_raising_the_last_code_point_before_the_surrogates_skips_them_where_java_writes_a_question_mark(
    value: str, raised: str
) -> None:
    found = truncate_max_text(value, len(raised))
    assert found == raised
    assert found.encode() > value.encode()


@pytest.mark.parametrize(
    ("value", "length", "raised"),
    [
        (b"\x01\xff\x03", 2, b"\x02"),
        (b"\xff\xff\x03", 2, None),
        (b"\xff\xff", 2, b"\xff\xff"),
        (b"\x01\x02\x03", 2, b"\x01\x03"),
        (b"", 4, b""),
    ],
)
def test_a_cut_maximum_of_bytes_is_raised_at_its_last_byte_that_can_be(
    value: bytes, length: int, raised: bytes | None
) -> None:
    assert truncate_max_bytes(value, length) == raised


def test_a_minimum_is_a_plain_prefix_of_code_points() -> None:
    assert truncate_min_text("\U0001f600\U0001f600x", 2) == "\U0001f600\U0001f600"


# ------------------------------------------------------------------------------------------------ collect


@pytest.mark.parametrize(
    ("dtype", "column", "low", "high"),
    [
        (BOOLEAN, pa.array([True, None, False]), False, True),
        (TINYINT, pa.array([3, None, -4], pa.int8()), -4, 3),
        (BIGINT, pa.array([3, None, -(2**63)]), -(2**63), 3),
        (FLOAT, pa.array([1.5, None, -2.25], pa.float32()), -2.25, 1.5),
        (DOUBLE, pa.array([math.inf, None, -math.inf]), -math.inf, math.inf),
        (DATE, pa.array([dt.date(1970, 1, 2), None, dt.date(1969, 12, 31)]), -1, 1),
        (TimeType(Root.TIME, precision=3), pa.array([5, None, 7], pa.time32("ms")), 5, 7),
        (TimeType(Root.TIMESTAMP, precision=3), pa.array([-1, None, 7], pa.timestamp("ms")), (-1, 0), (7, 0)),
        (TIMESTAMP6, pa.array([-1, None, 1_001], pa.timestamp("us")), (-1, 999_000), (1, 1_000)),
        (
            TimeType(Root.TIMESTAMP_LTZ, precision=9),
            pa.array([-1, None, 1_000_001], pa.timestamp("ns", "UTC")),
            (-1, 999_999),
            (1, 1),
        ),
        (
            DecimalType(precision=20, scale=3),
            pa.array([Decimal("1.500"), None, Decimal("-7.001")], pa.decimal128(20, 3)),
            Decimal("-7.001"),
            Decimal("1.500"),
        ),
        (STRING, pa.array(["b", None, "a" * 20]), "a" * 16, "b"),
        (STRING, pa.array(["b", None, "a"], pa.large_string()), "a", "b"),
        (STRING, pa.array(["b", None, "a"], pa.string_view()), "a", "b"),
        (STRING, pa.array(["b", None, "a"]).dictionary_encode(), "a", "b"),
        (BYTES, pa.array([b"\x80", None, b"\x7f"]), b"\x7f", b"\x80"),
        (LengthType(Root.BINARY, length=2), pa.array([b"ab", None, b"aa"], pa.binary(2)), b"aa", b"ab"),
    ],
    ids=str,
)
def test_bounds_are_values_of_the_internal_domain(dtype: DataType, column: pa.Array, low: Any, high: Any) -> None:
    stats = collect(column, dtype, SIXTEEN)
    assert stats == ColumnStats(low, high, 1)
    assert collect(pa.chunked_array([column.slice(0, 1), column.slice(1)]), dtype, SIXTEEN) == stats
    assert decode_row(encode_row([stats.min], [dtype]), [dtype]) == (low,)


def test_each_mode_keeps_what_it_says() -> None:
    column = pa.array(["abc", None])
    assert collect(column, STRING, NONE) == UNKNOWN
    assert collect(column, STRING, COUNTS) == ColumnStats(None, None, 1)
    assert collect(column, STRING, cut(2)) == ColumnStats("ab", "ac", 1)
    assert collect(column, STRING, FULL) == ColumnStats("abc", "abc", 1)


def test_texts_compare_by_code_point_and_not_by_utf16_unit() -> None:
    assert collect(pa.array(["\uffff", "\U00010000"]), STRING, FULL).max == "\U00010000"


def test_a_maximum_that_cannot_be_raised_takes_the_minimum_with_it() -> None:
    assert collect(pa.array(["a", "\U0010ffffx"]), STRING, cut(1)) == ColumnStats(None, None, 0)
    assert collect(pa.array([b"\xff\xff"]), BYTES, cut(1)) == ColumnStats(None, None, 0)


@pytest.mark.parametrize("values", [[1.0, NAN, 2.0], [NAN], [NAN, None]])
def test_a_nan_leaves_a_column_without_bounds(values: list[float | None]) -> None:
    stats = collect(pa.array(values, pa.float64()), DOUBLE, FULL)
    assert (stats.min, stats.max) == (None, None)
    assert stats.null_count == values.count(None)


@pytest.mark.parametrize("values", [[0.0], [-0.0], [0.0, -0.0]])
def test_zero_bounds_cover_both_zeros(values: list[float]) -> None:
    stats = collect(pa.array(values), DOUBLE, FULL)
    assert (math.copysign(1, stats.min), math.copysign(1, stats.max)) == (-1.0, 1.0)


def test_empty_and_all_null_columns_have_counts_only() -> None:
    assert collect(pa.array([], pa.string()), STRING, FULL) == ColumnStats(None, None, 0)
    assert collect(pa.array([None, None], pa.int32()), INT, FULL) == ColumnStats(None, None, 2)
    assert collect(pa.chunked_array([], pa.int32()), INT, FULL) == ColumnStats(None, None, 0)


@pytest.mark.parametrize(
    ("dtype", "column"),
    [
        (ElementType(Root.ARRAY, element=INT), pa.array([[1], None])),
        (BLOB, pa.array([b"a", None])),
        (VARIANT, pa.array([{"value": b"a", "metadata": b"b"}, None])),
    ],
    ids=str,
)
def test_types_without_an_order_have_counts_only(dtype: DataType, column: pa.Array) -> None:
    assert not is_comparable(dtype)
    assert collect(column, dtype, FULL) == ColumnStats(None, None, 1)


@pytest.mark.parametrize(
    ("dtype", "values"), [(INT, ["a"]), (TINYINT, [300]), (DATE, [1.5]), (INT, [[1]]), (STRING, [b"\xff"])]
)
def test_values_of_another_type_are_refused(dtype: DataType, values: list[Any]) -> None:
    with pytest.raises(InvalidInputError, match="another type"):
        collect(pa.array(values), dtype, FULL)


# ------------------------------------------------------------------------------------------------ one file

FIELDS = (
    Field(0, "a", with_nullable(INT, False)),
    Field(1, "b", STRING),
    Field(2, "c", ElementType(Root.ARRAY, element=INT)),
)
KNOWN_A, KNOWN_B = ColumnStats(1, 7, 0), ColumnStats("x", "y", 3)


def test_dense_statistics_leave_out_what_is_not_known() -> None:
    stats, names = encode_stats([KNOWN_A, KNOWN_B, UNKNOWN], FIELDS, dense=True)
    assert names == ("a", "b")
    assert stats == SimpleStats(encode_row([1, "x"], [INT, STRING]), encode_row([7, "y"], [INT, STRING]), (0, 3))
    assert decode_stats(stats, FIELDS, names) == {"a": KNOWN_A, "b": KNOWN_B, "c": UNKNOWN}


def test_dense_statistics_that_leave_out_nothing_name_nothing() -> None:
    counted = ColumnStats(None, None, 2)
    stats, names = encode_stats([KNOWN_A, KNOWN_B, counted], FIELDS, dense=True)
    assert names is None
    assert decode_stats(stats, FIELDS, names) == {"a": KNOWN_A, "b": KNOWN_B, "c": counted}


def test_dense_statistics_of_nothing_are_empty_rows_and_an_empty_list() -> None:
    stats, names = encode_stats([UNKNOWN] * 3, FIELDS, dense=True)
    assert names == ()
    assert stats == SimpleStats(EMPTY_ROW, EMPTY_ROW, ())
    assert EMPTY_ROW.hex() == "000000000000000000000000"
    assert decode_stats(stats, FIELDS, names) == dict.fromkeys("abc", UNKNOWN)


def test_statistics_that_are_not_dense_have_a_slot_for_every_column() -> None:
    stats, names = encode_stats([UNKNOWN, KNOWN_B, UNKNOWN], FIELDS, dense=False)
    assert names is None
    assert stats.null_counts == (None, 3, None)
    assert decode_stats(stats, FIELDS, names) == {"a": UNKNOWN, "b": KNOWN_B, "c": UNKNOWN}


def test_stored_bytes_are_those_that_java_writes() -> None:
    # Written by release 2.0.0: columns d DOUBLE (mode none) and s STRING, not dense, values "a" and null.
    fields = (Field(0, "d", DOUBLE), Field(1, "s", STRING))
    stats, names = encode_stats([UNKNOWN, ColumnStats("a", "a", 1)], fields, dense=False)
    row = "00000002000100000000000000000000000000006100000000000081"
    assert (stats.min_values.hex(), stats.max_values.hex(), stats.null_counts, names) == (row, row, (None, 1), None)


def test_empty_rows_that_claim_to_cover_everything_say_nothing() -> None:
    assert decode_stats(SimpleStats(), FIELDS, None) == dict.fromkeys("abc", UNKNOWN)


def test_missing_null_counts_are_unknown() -> None:
    stats = SimpleStats(encode_row([1], [INT]), encode_row([7], [INT]), ())
    assert decode_stats(stats, FIELDS, ("a",))["a"] == ColumnStats(1, 7, None)


@pytest.mark.parametrize(("low", "high"), [(1.0, NAN), (NAN, NAN), (NAN, 1.0), (2.0, 1.0)])
def test_stored_bounds_that_cannot_be_trusted_are_unknown(low: float, high: float) -> None:
    fields = (Field(0, "d", DOUBLE),)
    stats = SimpleStats(encode_row([low], [DOUBLE]), encode_row([high], [DOUBLE]), (0,))
    assert decode_stats(stats, fields, None) == {"d": ColumnStats(None, None, 0)}
    assert columnar([(stats, None)], fields)["d"] == [(None, None, 0)]


@pytest.mark.parametrize(
    ("low", "lower"), [("ab  ", "ab"), ("new york", "new"), ("a\x01  ", "a"), ("é   ", "é"), ("abcd", "abcd")]
)
def test_bounds_that_orc_fills_up_with_blanks_do_not_hide_a_row(low: str, lower: str) -> None:
    dtype = LengthType(Root.CHAR, length=4)
    fields = (Field(0, "c", dtype),)
    stats = SimpleStats(encode_row([low], [dtype]), encode_row(["ü   "], [dtype]), (0,))
    assert decode_stats(stats, fields, None) == {"c": ColumnStats(lower, "ü   ", 0)}
    assert columnar([(stats, None)], fields)["c"] == [(lower, "ü   ", 0)]


def test_the_question_mark_that_java_writes_for_a_surrogate_is_no_maximum() -> None:
    fields = (Field(0, "s", STRING),)
    stats = SimpleStats(encode_row(["\ud7ff"], [STRING]), encode_row(["?"], [STRING]), (0,))
    assert decode_stats(stats, fields, None) == {"s": ColumnStats(None, None, 0)}


BAD = [
    (SimpleStats(), ("a",)),
    (SimpleStats(encode_row([1], [INT]), encode_row([7], [INT]), (0,)), ("nope",)),
    (SimpleStats(encode_row([1], [INT]), encode_row([7], [INT]), (0,)), None),
    (SimpleStats(encode_row([1], [INT]), encode_row([7], [INT]), (0, 0)), ("a",)),
    (SimpleStats(encode_row([1, 1], [INT, INT]), encode_row([7, 7], [INT, INT]), (0, 0)), ("a", "a")),
    (SimpleStats(b"", b"", (0,)), ("a",)),
    (SimpleStats(encode_row([1], [INT])[:-3], encode_row([7], [INT]), (0,)), ("a",)),
]


@pytest.mark.parametrize(("stats", "names"), BAD)
def test_statistics_that_contradict_themselves_or_the_schema_are_format_errors(
    stats: SimpleStats, names: tuple[str, ...] | None
) -> None:
    with pytest.raises(FormatError):
        decode_stats(stats, FIELDS, names)
    with pytest.raises(FormatError):
        columnar([(stats, names)], FIELDS, wanted=["a"])


def test_a_negative_null_count_of_an_old_release_is_unknown_and_stops_nothing() -> None:
    stats = SimpleStats(encode_row([1], [INT]), encode_row([7], [INT]), (-1,))
    assert decode_stats(stats, FIELDS, ("a",))["a"] == ColumnStats(1, 7, None)
    assert columnar([(stats, ("a",))], FIELDS, wanted=["a"])["a"] == [(1, 7, None)]


def test_each_column_needs_its_statistics() -> None:
    with pytest.raises(InvalidInputError, match="each column"):
        encode_stats([KNOWN_A], FIELDS, dense=True)


# ------------------------------------------------------------------------------------------------ many files


def arrays(files: list[tuple[SimpleStats, tuple[str, ...] | None]]) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    return (
        pa.array([stats.min_values for stats, _ in files], pa.large_binary()),
        pa.array([stats.max_values for stats, _ in files], pa.large_binary()),
        pa.array([stats.null_counts for stats, _ in files], pa.large_list(pa.int64())),
        pa.array([names for _, names in files], pa.large_list(pa.string())),
    )


def columnar(
    files: list[tuple[SimpleStats, tuple[str, ...] | None]], fields: tuple[Field, ...], wanted: list[str] | None = None
) -> dict[str, list[tuple[Any, Any, int | None]]]:
    names = [field.name for field in fields] if wanted is None else wanted
    found = decode_bounds(*arrays(files), fields, names)
    return {name: list(zip(*(each.to_pylist() for each in bounds), strict=True)) for name, bounds in found.items()}


FILES = [
    encode_stats([KNOWN_A, KNOWN_B, UNKNOWN], FIELDS, dense=True),
    encode_stats([UNKNOWN] * 3, FIELDS, dense=True),
    encode_stats([UNKNOWN, ColumnStats("long enough to leave its slot", "z", 0), UNKNOWN], FIELDS, dense=True),
    encode_stats([KNOWN_A, KNOWN_B, ColumnStats(None, None, 9)], FIELDS, dense=True),
    (SimpleStats(), None),
    encode_stats([ColumnStats(2, 3, None), UNKNOWN, UNKNOWN], FIELDS, dense=False),
    (SimpleStats(encode_row(["p", 4], [STRING, INT]), encode_row(["q", 5], [STRING, INT]), (1, 2)), ("b", "a")),
    encode_stats([KNOWN_A, KNOWN_B, UNKNOWN], FIELDS, dense=True),
]


def test_files_of_all_layouts_are_read_at_once_and_stay_in_order() -> None:
    nothing = (None, None, None)
    assert columnar(FILES, FIELDS) == {
        "a": [(1, 7, 0), nothing, nothing, (1, 7, 0), nothing, (2, 3, None), (4, 5, 2), (1, 7, 0)],
        "b": [
            ("x", "y", 3),
            nothing,
            ("long enough to leave its slot", "z", 0),
            ("x", "y", 3),
            nothing,
            nothing,
            ("p", "q", 1),
            ("x", "y", 3),
        ],
        "c": [nothing, nothing, nothing, (None, None, 9), nothing, nothing, nothing, nothing],
    }


def test_arrays_may_be_sliced_chunked_or_of_the_small_types() -> None:
    whole = decode_bounds(*arrays(FILES), FIELDS, ["b", "c"])
    sliced = [each.slice(2, 5) for each in arrays(FILES)]
    chunked = [pa.chunked_array([each.slice(0, 3), each.slice(3)]) for each in arrays(FILES)]
    small = [
        each.cast(kind)
        for each, kind in zip(
            arrays(FILES), [pa.binary(), pa.binary(), pa.list_(pa.int64()), pa.list_(pa.string())], strict=True
        )
    ]
    for name, bounds in whole.items():
        for index, array in enumerate(bounds):
            assert decode_bounds(*sliced, FIELDS, [name])[name][index].equals(array.slice(2, 5))
            assert decode_bounds(*chunked, FIELDS, [name])[name][index].equals(array)
            assert decode_bounds(*small, FIELDS, [name])[name][index].equals(array)


def test_no_files_give_empty_arrays_of_the_right_types() -> None:
    found = decode_bounds(*(each.slice(0, 0) for each in arrays(FILES)), FIELDS, ["a", "b"])
    assert [array.type for array in found["a"]] == [pa.int32(), pa.int32(), pa.int64()]
    assert len(found["b"].min) == 0


def test_columns_that_are_not_wanted_are_not_looked_at() -> None:
    broken = SimpleStats(encode_row([1], [INT])[:-3], b"", (0, 0, 0))
    assert columnar([(broken, ("a",))], FIELDS, wanted=["b"]) == {"b": [(None, None, None)]}


def test_key_statistics_need_no_names() -> None:
    minima, maxima, counts, _ = arrays([encode_stats([KNOWN_A], FIELDS[:1], dense=False)])
    found = decode_bounds(minima, maxima, counts, None, FIELDS[:1], ["a"])
    assert [each.to_pylist() for each in found["a"]] == [[1], [7], [0]]


def test_a_null_list_of_counts_is_unknown_and_the_bounds_stay() -> None:
    minima, maxima, _, names = arrays(FILES[:1])
    counts = pa.array([None], pa.large_list(pa.int64()))
    assert [each.to_pylist() for each in decode_bounds(minima, maxima, counts, names, FIELDS, ["a"])["a"]] == [
        [1], [7], [None]
    ]  # fmt: skip


def test_a_missing_row_is_a_format_error() -> None:
    _, maxima, counts, names = arrays(FILES[:1])
    with pytest.raises(FormatError):
        decode_bounds(pa.nulls(1, pa.large_binary()), maxima, counts, names, FIELDS, ["a"])


def test_a_wanted_column_must_exist() -> None:
    with pytest.raises(InvalidInputError, match="does not exist"):
        decode_bounds(*arrays(FILES), FIELDS, ["nope"])


# ------------------------------------------------------------------------------------------------ partitions


def test_partition_statistics_ignore_nulls_and_count_records() -> None:
    types = [STRING, INT]
    rows = [("2024-01-02", 5), (None, 7), ("2024-01-01", None)]
    partitions = pa.array([encode_row(row, types) for row in rows])
    stats = partition_stats(partitions, pa.array([10, 20, 30]), types)
    assert decode_row(stats.min_values, types) == ("2024-01-01", 5)
    assert decode_row(stats.max_values, types) == ("2024-01-02", 7)
    assert stats.null_counts == (20, 30)
    assert partition_stats(partitions, None, types).null_counts == (1, 1)


def test_partition_statistics_are_not_cut() -> None:
    text = "x" * 300
    stats = partition_stats(pa.array([encode_row([text], [STRING])]), None, [STRING])
    assert decode_row(stats.max_values, [STRING]) == (text,)


def test_partitions_that_are_all_null_have_null_bounds() -> None:
    stats = partition_stats(pa.array([encode_row([None], [INT])] * 2), np.array([1, 4]), [INT])
    assert decode_row(stats.min_values, [INT]) == (None,)
    assert stats.null_counts == (5,)


def test_without_partition_columns_the_rows_are_empty() -> None:
    assert partition_stats(pa.array([EMPTY_ROW]), None, []) == SimpleStats(EMPTY_ROW, EMPTY_ROW, ())


def test_an_empty_manifest_has_null_bounds_and_zero_counts() -> None:
    stats = partition_stats(pa.array([], pa.large_binary()), None, [with_nullable(INT, False)])
    assert decode_row(stats.min_values, [INT]) == (None,)
    assert stats.null_counts == (0,)


def test_partition_counts_and_bytes_are_checked() -> None:
    partitions = pa.array([encode_row([1], [INT])])
    with pytest.raises(InvalidInputError, match="one count"):
        partition_stats(partitions, pa.array([1, 2]), [INT])
    with pytest.raises(FormatError):
        partition_stats(partitions, None, [INT, INT])


# ------------------------------------------------------------------------------------------------ older schemas


def decimal(precision: int, scale: int) -> DecimalType:
    return DecimalType(precision=precision, scale=scale)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (INT, INT), (INT, with_nullable(INT, False)), (TINYINT, SMALLINT), (TINYINT, BIGINT), (INT, BIGINT),
        (FLOAT, DOUBLE), (SMALLINT, FLOAT), (INT, DOUBLE), (INT, decimal(10, 0)), (BIGINT, decimal(21, 2)),
        (decimal(10, 2), decimal(12, 2)), (decimal(10, 2), decimal(11, 3)),
        (LengthType(Root.VARCHAR, length=9), STRING), (LengthType(Root.VARBINARY, length=9), BYTES),
    ],
    ids=str,
)  # fmt: skip
def test_exact_casts_that_keep_the_order_widen(source: DataType, target: DataType) -> None:
    assert widens(source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (BIGINT, INT), (INT, FLOAT), (BIGINT, DOUBLE), (DOUBLE, FLOAT), (INT, decimal(10, 1)), (BIGINT, decimal(18, 0)),
        (decimal(10, 2), decimal(10, 3)), (decimal(10, 2), decimal(12, 1)), (decimal(5, 0), DOUBLE), (INT, STRING),
        (STRING, INT), (STRING, LengthType(Root.VARCHAR, length=9)), (LengthType(Root.CHAR, length=9), STRING),
        (LengthType(Root.VARCHAR, length=3), LengthType(Root.VARCHAR, length=9)), (DATE, TIMESTAMP6), (BOOLEAN, INT),
        (TIMESTAMP6, TimeType(Root.TIMESTAMP, precision=3)), (INT, TIMESTAMP6), (STRING, BYTES),
        (ElementType(Root.ARRAY, element=INT), ElementType(Root.ARRAY, element=BIGINT)),
    ],
    ids=str,
)  # fmt: skip
def test_all_other_casts_do_not(source: DataType, target: DataType) -> None:
    assert not widens(source, target)


def test_bounds_follow_the_field_id_through_rename_drop_add_and_type_changes() -> None:
    old = (Field(0, "a", INT), Field(1, "b", STRING), Field(2, "c", INT), Field(3, "d", decimal(10, 2)))
    new = (
        Field(0, "renamed", BIGINT),
        Field(4, "b", STRING),
        Field(2, "c", STRING),
        Field(3, "d", decimal(20, 4)),
    )
    columns = [
        ColumnStats(1, 7, 0),
        ColumnStats("x", "y", 1),
        ColumnStats(2, 3, 2),
        ColumnStats(Decimal("1.25"), Decimal(2), 3),
    ]
    files = [encode_stats(columns, old, dense=True), encode_stats([UNKNOWN] * 4, old, dense=True)]
    found = bounds_under(
        *arrays(files), pa.array([10, 20]), file_fields=old, read_fields=new, wanted=["renamed", "b", "c", "d"]
    )
    assert [array.type for array in found["renamed"]] == [pa.int64()] * 3
    assert [each.to_pylist() for each in found["renamed"]] == [[1, None], [7, None], [0, None]]
    # A re-added name is another column: rows of the old file read as null there.
    assert [each.to_pylist() for each in found["b"]] == [[None, None], [None, None], [10, 20]]
    # Another type without an exact cast: nothing is known, not even the nulls, because a cast may make some.
    assert [each.to_pylist() for each in found["c"]] == [[None, None]] * 3
    assert found["c"].min.type == pa.string()
    assert found["d"].min.to_pylist() == [Decimal("1.2500"), None]
    assert found["d"].null_count.to_pylist() == [3, None]


def test_a_column_to_read_must_exist() -> None:
    with pytest.raises(InvalidInputError, match="does not exist"):
        bounds_under(
            *arrays(FILES), pa.array([1] * len(FILES)), file_fields=FIELDS, read_fields=FIELDS[:1], wanted=["b"]
        )
