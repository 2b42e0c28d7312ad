"""Moments and durations as a person gives them to a maintenance verb."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

import numpy as np
import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.expr.moments import plain_value
from tidelake.io import clock
from tidelake.ops.scan.travel import parse_time
from tidelake.options import parse_duration

Moment = str | datetime | date | int
"""A text such as `2026-11-15 12:00:00`, a datetime (both local without a zone), the beginning of a day, or milliseconds
since the epoch; also the points in time of numpy, pandas and Arrow."""
Span = str | timedelta | int
"""A text such as `1 d`, a timedelta, or milliseconds."""

_DIGITS: Final = re.compile(r"\s*[0-9]+\s*")


def moment_ms(value: Moment) -> int:
    """Milliseconds since the epoch.

    Raises:
        InvalidInputError: it is not a moment.
    """
    match plain_value(value):
        case str() as text:
            return parse_time(text)
        case datetime() as moment:
            return clock.moment_ms(moment)
        case date() as day:
            return clock.moment_ms(datetime.combine(day, time()))
        case pa.TimestampScalar() as finer:  # it has nanoseconds
            seconds, nanos = divmod(int(finer.value), 1_000_000_000)
            whole = datetime.fromtimestamp(seconds, UTC)
            return clock.moment_ms(whole if finer.type.tz else whole.replace(tzinfo=None)) + nanos // 1_000_000
        case int() | np.integer() as number if not isinstance(number, bool):
            return int(number)
    raise InvalidInputError(
        "moment is not understood",
        value=repr(value)[:80],
        hint='give a text such as "2026-11-15 12:00:00", a datetime, or milliseconds since 1970',
    )


def span_ms(value: Span) -> int:
    """A duration in milliseconds; a plain number is one already, but a text needs a unit.

    Raises:
        InvalidInputError: it is not a duration.
    """
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1_000)
    if isinstance(value, int):
        return value
    if _DIGITS.fullmatch(value):
        # Milliseconds to the format, days to most people: what expires must not depend on it.
        raise InvalidInputError(
            "number without a unit is not a duration", value=value, hint=f"write it with a unit, such as `{value} d`"
        )
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
        if _DIGITS.fullmatch(value):
            # A duration in milliseconds to one reader, a date to another: what is deleted must not depend on it.
            raise InvalidInputError(
                "number without a unit is neither a moment nor a duration",
                value=value,
                hint="write a moment as 2026-11-15, or how long ago as `7 d`",
            )
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
