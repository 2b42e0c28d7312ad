"""Numbers for equal values, however deeply nested."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidelake.lsm.aggregate.lists import occurrences
from tidelake.lsm.aggregate.structure import value_codes

ROW = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float64()))])


@pytest.mark.parametrize(
    ("kind", "values", "codes"),
    [
        (pa.int32(), [5, None, 5, None, 0], [0, 1, 0, 1, 2]),
        (pa.float64(), [math.nan, 0.0, -0.0, math.nan, None], [0, 1, 2, 0, 3]),
        (pa.float32(), [0.0, -0.0, 0.0], [0, 1, 0]),
        (pa.bool_(), [True, False, None, True], [0, 1, 2, 0]),
        (pa.decimal128(30, 2), [Decimal("1.00"), Decimal("1.01"), Decimal("1.00")], [0, 1, 0]),
        (pa.list_(pa.int32()), [[1], [], None, [1, None], [1], [None, 1], [1, None]], [0, 1, 2, 3, 0, 4, 3]),
        (pa.list_(pa.list_(pa.string())), [[["a"], ["b"]], [["a", "b"]], [["a"], ["b"]]], [0, 1, 0]),
        (pa.list_(pa.float32(), 2), [[1.0, 2.0], None, [1.0, 2.0]], [0, 1, 0]),
        (pa.map_(pa.string(), pa.int32()), [[("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", 1)], []], [0, 0, 1, 2]),
        (ROW, [{"a": 1, "b": [math.nan]}, {"a": 1, "b": [math.nan]}, None, {"a": None, "b": None}], [0, 0, 1, 2]),
        (pa.struct([]), [{}, None, {}], [0, 1, 0]),
    ],
)
def test_equal_values_have_equal_numbers(kind: pa.DataType, values: list[Any], codes: list[int]) -> None:
    assert value_codes(pa.array(values, kind)).tolist() == codes
    longer = pa.array([None, *values, None], kind).slice(1, len(values))
    assert value_codes(longer).tolist() == codes


def test_occurrences_count_equal_keys_before() -> None:
    assert occurrences(value_codes(pa.array(["a", "b", "a", "a", "b"]))).tolist() == [0, 0, 1, 2, 1]
