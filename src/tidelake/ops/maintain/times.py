"""Moments and durations as a person gives them to a maintenance verb."""

from __future__ import annotations

from datetime import datetime, timedelta

from tidelake.errors import InvalidInputError
from tidelake.io import clock
from tidelake.ops.scan.travel import parse_time
from tidelake.options import parse_duration

Moment = str | datetime | int
"""A text such as `2026-11-15 12:00:00`, a datetime (both local without a zone), or milliseconds since the epoch."""
Span = str | timedelta | int
"""A text such as `1 d`, a timedelta, or milliseconds."""


def moment_ms(value: Moment) -> int:
    """Milliseconds since the epoch.

    Raises:
        InvalidInputError: it is no moment.
    """
    if isinstance(value, datetime):
        return clock.moment_ms(value)
    return parse_time(value) if isinstance(value, str) else value


def span_ms(value: Span) -> int:
    """A duration in milliseconds.

    Raises:
        InvalidInputError: it is no duration.
    """
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1_000)
    if isinstance(value, int):
        return value
    try:
        return parse_duration(value)
    except ValueError as cause:
        raise InvalidInputError(
            "duration cannot be understood", value=value, hint="write it as `1 d` or `12 h`"
        ) from cause


def before_ms(value: Moment | timedelta, now_ms: int) -> int:
    """A moment, or how long ago it was: a timedelta or a text such as `1 d`.

    Raises:
        InvalidInputError: it is neither.
    """
    if isinstance(value, timedelta):
        return now_ms - span_ms(value)
    if isinstance(value, str):
        try:
            return now_ms - parse_duration(value)
        except ValueError:
            pass
        try:
            return moment_ms(value)
        except InvalidInputError as cause:
            raise InvalidInputError(
                "time cannot be understood",
                value=value,
                hint="write a moment as 2026-11-15 12:00:00, or how long ago as `7 d`",
            ) from cause
    return moment_ms(value)
