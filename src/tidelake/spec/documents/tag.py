"""Tags: named copies of snapshots, which stay when the snapshot expires.

A tag file is the snapshot document and, for a tag with a lifetime, its creation time and how long it is kept. A tag
without them is byte for byte the snapshot. Both times are in nanoseconds, because Java writes these. The creation time
is a local date and time of the writer without a zone; here it is counted as if it were UTC.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from tidelake.errors import FormatError
from tidelake.spec.documents.json_doc import encode_document, parse_object
from tidelake.spec.documents.snapshot import SNAPSHOT_KEYS, Snapshot, snapshot_from_doc, snapshot_to_doc
from tidelake.spec.limits import INT64_MAX

_CREATE_TIME: Final = "tagCreateTime"
_TIME_RETAINED: Final = "tagTimeRetained"
_NANOS: Final = 10**9
_SECONDS_MAX: Final = INT64_MAX // _NANOS


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """A snapshot that is kept under a name."""

    snapshot: Snapshot
    create_time_ns: int | None = None
    """Local date and time of creation, in nanoseconds since 1970-01-01 of the same clock."""
    time_retained_ns: int | None = None
    """How long the tag is kept; None means forever."""


def tag_from_json(data: bytes, *, path: str) -> Tag:
    """Read a tag file.

    Raises:
        FormatError: If the bytes are not a tag.
    """
    doc = parse_object(data, path=path)
    create_time, time_retained = doc.get(_CREATE_TIME), doc.get(_TIME_RETAINED)
    return Tag(
        snapshot=snapshot_from_doc(doc, path=path, known=(*SNAPSHOT_KEYS, _CREATE_TIME, _TIME_RETAINED)),
        create_time_ns=None if create_time is None else _parse_time(create_time, path),
        time_retained_ns=None if time_retained is None else _parse_duration(time_retained, path),
    )


def tag_to_json(tag: Tag) -> bytes:
    """The content of a tag file."""
    doc = snapshot_to_doc(tag.snapshot)
    if tag.create_time_ns is not None:
        doc[_CREATE_TIME] = _time_members(tag.create_time_ns)
    if tag.time_retained_ns is not None:
        doc[_TIME_RETAINED] = Decimal(tag.time_retained_ns).scaleb(
            -9
        )  # printed with nine digits after the point, as in Java
    return encode_document(doc | dict(tag.snapshot.unknown), tag, tag_from_json)


# ------------------------------------------------------------------------------------------------- time of creation

_TIME_TEXT: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?", re.ASCII)


def _parse_time(value: object, path: str) -> int:
    match value:
        case str():
            match = _TIME_TEXT.fullmatch(value)
            if match is None:
                raise _bad(path, _CREATE_TIME)
            *members, fraction = match.groups(default="0")
            return _time_ns([*map(int, members), int(fraction.ljust(9, "0"))], path)
        case list() if 5 <= len(value) <= 7 and all(type(member) is int for member in value):
            return _time_ns([*value, 0, 0][:7], path)
    raise _bad(path, _CREATE_TIME)


def _time_ns(members: list[int], path: str) -> int:
    *date_and_time, nanos = members
    try:
        moment = dt.datetime(*date_and_time)  # type: ignore[arg-type]  # noqa: DTZ001 - the zone is not recorded
    except (ValueError, OverflowError) as error:
        raise _bad(path, _CREATE_TIME) from error
    if not 0 <= nanos < _NANOS:
        raise _bad(path, _CREATE_TIME)
    return calendar.timegm(moment.timetuple()) * _NANOS + nanos


def _time_members(time_ns: int) -> list[int]:
    """Year to minute, then seconds and nanoseconds unless they are zero, as Java writes a LocalDateTime."""
    seconds, nanos = divmod(time_ns, _NANOS)
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)
    members = [moment.year, moment.month, moment.day, moment.hour, moment.minute]
    if moment.second or nanos:
        members.append(moment.second)
    return [*members, nanos] if nanos else members


# ------------------------------------------------------------------------------------------------------- retention

_DURATION_TEXT: Final = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<days>[+-]?\d{1,15})D)?"
    r"(?:T(?:(?P<hours>[+-]?\d{1,15})H)?(?:(?P<minutes>[+-]?\d{1,15})M)?"
    r"(?:(?P<seconds>[+-]?\d{1,15}(?:\.\d{0,9})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)


def _parse_duration(value: object, path: str) -> int:
    match value:
        case str():
            seconds = _duration_seconds(value, path)
        case int() | Decimal() if not isinstance(value, bool):
            seconds = Decimal(value)
        case _:
            raise _bad(path, _TIME_RETAINED)
    # Comparing a Decimal is exact for any exponent, arithmetic is not: check the range first.
    if not -_SECONDS_MAX - 1 < seconds < _SECONDS_MAX + 1:
        raise _bad(path, _TIME_RETAINED)
    whole = int(seconds)
    nanos = whole * _NANOS + int((seconds - whole) * _NANOS)
    if not -(2**63) <= nanos < 2**63:
        raise _bad(path, _TIME_RETAINED)
    return nanos


def _duration_seconds(text: str, path: str) -> Decimal:
    match = _DURATION_TEXT.fullmatch(text)
    if match is None or text[-1:] in "PpTt":
        raise _bad(path, _TIME_RETAINED)
    units = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
    total = sum((Decimal(match[unit] or 0) * size for unit, size in units.items()), Decimal(0))
    return -total if match["sign"] == "-" else total


def _bad(path: str, key: str) -> FormatError:
    expected: dict[str, Any] = {
        _CREATE_TIME: "array from year to nanosecond, or ISO text",
        _TIME_RETAINED: "seconds, or ISO text",
    }
    return FormatError("value is not a time", path=path, key=key, expected=expected[key])
