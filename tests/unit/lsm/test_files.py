"""Key ranges of data files in comparable form."""

from __future__ import annotations

import itertools
import math
import pickle
from decimal import Decimal
from typing import Any

import pytest

from tidelake.errors import FormatError, InvalidInputError
from tidelake.lsm.files import comparable_key, run_files
from tidelake.spec.data_file import DataFile
from tidelake.spec.rows.binary_row_scalar import encode_row
from tidelake.spec.types.data_types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    VARIANT,
    DataType,
    DecimalType,
    Root,
    TimeType,
    with_nullable,
)

SORTED: list[tuple[DataType, list[Any]]] = [
    (INT, [-(2**31), -1, 0, 5, 2**31 - 1]),
    (BIGINT, [-(2**63), 0, 2**63 - 1]),
    (BOOLEAN, [False, True]),
    (STRING, ["", "a", "a\x00", "b", "é", "\uffff", "\U0001f40b"]),
    (BYTES, [b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\x00"]),
    (DATE, [-5, 0, 20_000]),
    (DecimalType(precision=5, scale=2), [Decimal("-1.10"), Decimal("0.00"), Decimal("2.00")]),
    (DecimalType(precision=30, scale=0), [Decimal(-(10**25)), Decimal(0), Decimal(10**25)]),
    (DOUBLE, [-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 2.0, math.inf, math.nan]),
    (FLOAT, [-math.inf, -1.5, -0.0, 0.0, 2.0, math.inf, math.nan]),
    (TimeType(Root.TIMESTAMP, precision=9), [(-1, 0), (-1, 999_999), (0, 0), (0, 1), (7, 0)]),
    (TimeType(Root.TIMESTAMP_LTZ, precision=3), [(-(2**62), 0), (0, 0), (2**62, 0)]),
]


@pytest.mark.parametrize(("dtype", "values"), SORTED, ids=[str(dtype) for dtype, _ in SORTED])
@pytest.mark.parametrize("nullable", [False, True])
def test_each_type_has_the_order_of_the_format_and_nulls_come_first(
    dtype: DataType, values: list[Any], nullable: bool
) -> None:
    types = [with_nullable(dtype, nullable)]
    keys = [comparable_key(encode_row([value], types), types) for value in ([None, *values] if nullable else values)]
    for (a, one), (b, other) in itertools.product(enumerate(keys), repeat=2):
        assert (one < other, one == other) == (a < b, a == b)


def test_later_columns_decide_only_where_earlier_ones_are_equal() -> None:
    types = [with_nullable(INT, False), with_nullable(DOUBLE, False)]
    keys = [comparable_key(encode_row(row, types), types) for row in [(1, math.nan), (2, -0.0), (2, 0.0), (3, -9.0)]]
    assert keys == sorted(keys)
    assert len(set(keys)) == 4


KEY = [with_nullable(INT, False)]


def meta(low: int, high: int, **more: Any) -> DataFile:
    how = {"file_size": 7, "row_count": 1, **more}
    return DataFile(file_name="a", min_key=encode_row([low], KEY), max_key=encode_row([high], KEY), **how)


def test_a_file_knows_its_range_and_survives_pickling() -> None:
    (file,) = run_files([meta(3, 9, level=2)], KEY)
    assert (file.min_key, file.max_key, file.name, file.level, file.size) == ((3,), (9,), "a", 2, 7)
    assert pickle.loads(pickle.dumps(file)) == file


def test_a_file_on_another_level_keeps_everything_else() -> None:
    (file,) = run_files([meta(3, 9, level=2)], KEY)
    moved = file.at(5)
    assert moved.level == 5
    assert moved.at(2) == file
    assert file.at(2) is file


@pytest.mark.parametrize(
    ("count", "may", "known"), [(0, False, False), (3, True, True), (None, True, False)], ids=["none", "some", "unsaid"]
)
def test_a_file_that_does_not_count_its_deletions_may_hold_some(count: int | None, may: bool, known: bool) -> None:
    (file,) = run_files([meta(3, 9, delete_row_count=count)], KEY)
    assert (file.may_hold_deletes, file.known_to_hold_deletes) == (may, known)


def test_a_range_that_runs_backwards_is_refused_by_name() -> None:
    with pytest.raises(FormatError, match="smallest key") as caught:
        run_files([meta(9, 3)], KEY)
    assert caught.value.facts["file"] == "a"


def test_bytes_that_are_no_key_are_refused_by_name() -> None:
    with pytest.raises(FormatError) as caught:
        run_files([DataFile(file_name="broken", file_size=1, row_count=1, min_key=b"xx")], KEY)
    assert caught.value.facts["file"] == "broken"


def test_a_null_in_a_key_that_cannot_be_null_is_refused() -> None:
    for dtype in (INT, DOUBLE):
        with pytest.raises(FormatError, match="null"):
            comparable_key(encode_row([None], [dtype]), [with_nullable(dtype, False)])


def test_a_type_without_an_order_is_not_a_key() -> None:
    with pytest.raises(InvalidInputError, match="no order"):
        comparable_key(b"", [VARIANT])
