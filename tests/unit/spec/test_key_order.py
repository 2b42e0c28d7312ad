"""The order of stored keys, and finding ranges that overlap."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from tidelake.errors import FormatError
from tidelake.spec.rows.binary_row_scalar import encode_row
from tidelake.spec.rows.key_order import decode_keys, overlapping_neighbours
from tidelake.spec.types.data_types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, FLOAT, INT, STRING, DecimalType

SORTED = [
    (INT, [-(2**31), -1, 0, 5, 2**31 - 1]),
    (BIGINT, [-(2**63), 0, 2**63 - 1]),
    (BOOLEAN, [False, True]),
    (STRING, ["", "a", "a\x00", "b", "é", "\uffff", "\U0001f40b"]),
    (BYTES, [b"", b"\x00", b"\x7f", b"\x80", b"\xff"]),
    (DATE, [-5, 0, 20_000]),
    (DecimalType(precision=5, scale=2), [Decimal("-1.10"), Decimal("0.00"), Decimal("2.00")]),
    (DecimalType(precision=30, scale=0), [Decimal(-(10**25)), Decimal(0), Decimal(10**25)]),
    (DOUBLE, [-math.inf, -1.5, -0.0, 0.0, 5e-324, 2.0, math.inf, math.nan]),
    (FLOAT, [-math.inf, -1.5, -0.0, 0.0, 2.0, math.inf, math.nan]),
]


def rows(values, types) -> pa.Array:
    return pa.array([encode_row(list(value), types) for value in values], pa.large_binary())


@pytest.mark.parametrize(("dtype", "values"), SORTED, ids=[str(dtype) for dtype, _ in SORTED])
def test_each_type_has_the_order_of_the_format(dtype, values):
    pairs = list(itertools.product(range(len(values)), repeat=2))
    left = decode_keys(rows([(values[a],) for a, _ in pairs], [dtype]), [dtype])
    right = decode_keys(rows([(values[b],) for _, b in pairs], [dtype]), [dtype])
    assert left.less(right).to_pylist() == [a < b for a, b in pairs]


def test_later_parts_decide_only_where_earlier_ones_are_equal():
    types = (INT, STRING)
    values = [(1, "b"), (2, "a"), (2, "b"), (3, "")]
    pairs = list(itertools.product(range(len(values)), repeat=2))
    left = decode_keys(rows([values[a] for a, _ in pairs], types), types)
    right = decode_keys(pa.chunked_array([rows([values[b] for _, b in pairs], types)]), types)
    assert left.less(right).to_pylist() == [a < b for a, b in pairs]


def overlaps(ranges, groups=()):
    low, high = rows([(a,) for a, _ in ranges], (INT,)), rows([(b,) for _, b in ranges], (INT,))
    return overlapping_neighbours(low, high, (INT,), groups=[pa.array(group) for group in groups])


def test_ranges_that_are_apart_are_one_sorted_run_in_any_order():
    assert overlaps([(7, 9), (1, 3), (4, 6)]) == []


@pytest.mark.parametrize("ranges", [[(1, 5), (5, 9)], [(1, 9), (3, 4)], [(3, 4), (1, 9)], [(1, 1), (1, 1)]])
def test_ranges_that_touch_or_overlap_are_found(ranges):
    ((a, b),) = overlaps(ranges)
    assert ranges[a][1] >= ranges[b][0]


def test_ranges_of_two_groups_never_clash():
    assert overlaps([(1, 9), (2, 3)], [["p", "q"]]) == []
    assert overlaps([(1, 9), (2, 3)], [["p", "p"], [1, 2]]) == []
    assert overlaps([(1, 9), (2, 3)], [["p", "p"], [1, 1]]) == [(0, 1)]


def test_every_group_is_looked_at():
    found = overlaps([(1, 9), (50, 60), (2, 3), (55, 70)], [["p", "q", "p", "q"]])
    assert sorted(map(sorted, found)) == [[0, 2], [1, 3]]


@pytest.mark.parametrize("ranges", [[], [(1, 2)]])
def test_fewer_than_two_ranges_cannot_clash(ranges):
    assert overlaps(ranges) == []


def test_without_key_columns_every_two_files_of_a_group_clash():
    empty = pa.array([bytes(12)] * 2, pa.large_binary())
    group = pa.array(["p", "p"])
    assert overlapping_neighbours(empty, empty, (), groups=[group]) == [(0, 1)]


def test_bytes_that_are_no_key_are_refused():
    with pytest.raises(FormatError):
        decode_keys(pa.array([b"xx"], pa.large_binary()), (INT,))
