"""The time of a partition from its values; that Java parses the same is shown by the compatibility suite."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.spec.rows.partition_time import NANOS_OF_DAY, TimeExtractor

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(text: str | None, formatter: str | None = None) -> datetime | None:
    found = TimeExtractor.make(["dt"], None, formatter).extract([text])
    return None if found is None else EPOCH + timedelta(microseconds=found // 1_000)


@pytest.mark.parametrize(
    ("text", "formatter", "wanted"),
    [
        ("2024-01-02", None, datetime(2024, 1, 2)),
        ("2024-1-2 3:4:5.5", None, datetime(2024, 1, 2, 3, 4, 5, 500_000)),
        ("2024-13-32 25:00:00", None, datetime(2025, 2, 2, 1)),
        ("20240102", "yyyyMMdd", datetime(2024, 1, 2)),
        ("2024010203", "yyyyMMddHH", datetime(2024, 1, 2, 3)),
        ("20240231", "yyyyMMdd", datetime(2024, 2, 29)),
        ("20240101 24:00", "yyyyMMdd HH:mm", datetime(2024, 1, 2)),
        ("day 2024/1/2", "'day' yyyy/M/d", datetime(2024, 1, 2)),
        ("2024-01-02", "yyyy-MM-dd['T'HH:mm]", datetime(2024, 1, 2)),
    ],
)
def test_a_text_is_a_time(text: str, formatter: str | None, wanted: datetime) -> None:
    assert time_of(text, formatter) == wanted.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "formatter"),
    [
        (None, None),
        ("", None),
        ("2024", None),
        ("2024-01-02T03:04:05", None),
        ("99999999999-1-1", None),
        ("202401", "yyyyMM"),
        ("20241301", "yyyyMMdd"),
        ("00000101", "yyyyMMdd"),
        ("2024-01-02 24:01", "yyyy-MM-dd HH:mm"),
        ("２０２４-01-02", None),
    ],
)
def test_what_makes_no_time_has_none(text: str | None, formatter: str | None) -> None:
    assert time_of(text, formatter) is None


def test_columns_are_put_into_the_pattern_the_longest_name_first() -> None:
    made = TimeExtractor.make(["dt", "dt_hour"], "$dt $dt_hour:00:00", None)
    assert made.extract(["2024-01-01", "7"]) == 19_723 * NANOS_OF_DAY + 7 * 3_600 * 10**9
    assert made.extract(["2024-01-01", None]) is None
    assert TimeExtractor.make(["dt", "x"], "$dt", None).extract(["2024-01-01", r"\1$0"]) == 19_723 * NANOS_OF_DAY


@pytest.mark.parametrize("formatter", ["yyyy-MMM-dd", "EEE", "hh:mm a", "yyyyDDD", "SSSSSSSSSS", "XXX"])
def test_letters_that_are_not_supported_are_named(formatter: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        TimeExtractor.make(["dt"], None, formatter)
    assert caught.value.facts["letters"] in formatter


@pytest.mark.parametrize("formatter", ["yyyy'", "yyyy]", "yyyy{", "#"])
def test_a_formatter_that_java_refuses_is_refused(formatter: str) -> None:
    with pytest.raises(InvalidInputError):
        TimeExtractor.make(["dt"], None, formatter)


@given(st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31)))
def test_every_second_is_found_again(moment: datetime) -> None:
    whole = moment.replace(microsecond=0, tzinfo=UTC)
    year = f"{whole.year:04d}"
    for text, formatter in (
        (f"{year}-{whole:%m-%d %H:%M:%S}", None),
        (f"{year}{whole:%m%d%H%M%S}", "yyyyMMddHHmmss"),
    ):
        assert time_of(text, formatter) == whole
