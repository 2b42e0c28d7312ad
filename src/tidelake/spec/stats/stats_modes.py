"""How much of the minimum and maximum statistics keep: none, counts, truncate(n) or full.

Invariant: a shortened bound is still a bound. A minimum is cut to a prefix, which sorts at or before the full value. A
maximum that is cut is raised to the next text or bytes of at most that length, which sorts after the full value; if it
cannot be raised, the bound is left out. Texts compare by code point, which is also the order of their UTF-8 bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidelake.errors import InvalidInputError

__all__ = [
    "COUNTS",
    "FULL",
    "KEY_MODE",
    "NONE",
    "StatsKind",
    "StatsMode",
    "parse_stats_mode",
    "truncate",
    "truncate_max_bytes",
    "truncate_max_text",
    "truncate_min_bytes",
    "truncate_min_text",
]

_LENGTH_MAX: Final = 2**31 - 1
_CODE_POINT_MAX: Final = 0x10FFFF
_SURROGATE_FIRST: Final = 0xD800
_SURROGATE_LAST: Final = 0xDFFF
_TRUNCATE: Final = re.compile(r"truncate\(([0-9]{1,10})\)", re.IGNORECASE)


class StatsKind(Enum):
    """What the statistics keep of a column."""

    NONE = "none"
    COUNTS = "counts"
    TRUNCATE = "truncate"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class StatsMode:
    """A kind and, for `truncate`, the length in code points or bytes.

    Raises:
        InvalidInputError: if `truncate` has no positive length, or another kind has a length.
    """

    kind: StatsKind
    length: int | None = None

    def __post_init__(self) -> None:
        if (self.kind is StatsKind.TRUNCATE) != (self.length is not None):
            raise InvalidInputError("only truncate takes a length", mode=self.kind.value, length=self.length)
        if self.length is not None and not 1 <= self.length <= _LENGTH_MAX:
            raise InvalidInputError(
                "length of truncated statistics is out of range",
                hint=f"use a length from 1 to {_LENGTH_MAX}, or the mode counts",
                length=self.length,
            )

    def __str__(self) -> str:
        return self.kind.value if self.length is None else f"{self.kind.value}({self.length})"


NONE: Final = StatsMode(StatsKind.NONE)
COUNTS: Final = StatsMode(StatsKind.COUNTS)
FULL: Final = StatsMode(StatsKind.FULL)
KEY_MODE: Final = StatsMode(StatsKind.TRUNCATE, 128)
"""The mode of key columns and system columns; the table's options do not change it."""


def parse_stats_mode(text: str) -> StatsMode:
    """Read ``none``, ``counts``, ``truncate(16)`` or ``full``, in any case.

    Raises:
        InvalidInputError: (``option-value``) on anything else.
    """
    if match := _TRUNCATE.fullmatch(text):
        return StatsMode(StatsKind.TRUNCATE, int(match[1]))
    for mode in (NONE, COUNTS, FULL):
        if text.lower() == mode.kind.value:
            return mode
    raise InvalidInputError(
        "statistics mode is not known",
        code="option-value",
        hint="use none, counts, truncate(16) or full",
        value=text,
    )


def truncate(low: str | bytes, high: str | bytes, length: int) -> tuple[str | bytes, str | bytes] | None:
    """Both bounds cut to `length`, or None if the maximum cannot be raised."""
    if isinstance(low, str) and isinstance(high, str):
        raised: str | bytes | None = truncate_max_text(high, length)
        return None if raised is None else (truncate_min_text(low, length), raised)
    assert isinstance(low, bytes), "bounds of one column have one type"
    assert isinstance(high, bytes), "bounds of one column have one type"
    raised = truncate_max_bytes(high, length)
    return None if raised is None else (truncate_min_bytes(low, length), raised)


def truncate_min_text(value: str, length: int) -> str:
    """The first `length` code points."""
    return value[:length]


def truncate_max_text(value: str, length: int) -> str | None:
    """The smallest text that has at most `length` code points and sorts at or after every text with this prefix.

    None if all code points of the prefix are the largest one.
    """
    if len(value) <= length:
        return value
    for last in range(length - 1, -1, -1):
        code = ord(value[last]) + 1
        if code <= _CODE_POINT_MAX:
            # Surrogates are not valid in a text: Java would write a question mark, which is not a bound. The next valid
            # code point sorts after all texts with the prefix, too.
            code = code if not _SURROGATE_FIRST <= code <= _SURROGATE_LAST else _SURROGATE_LAST + 1
            return value[:last] + chr(code)
    return None


def truncate_min_bytes(value: bytes, length: int) -> bytes:
    """The first `length` bytes."""
    return value[:length]


def truncate_max_bytes(value: bytes, length: int) -> bytes | None:
    """The smallest bytes of at most `length` that sort at or after all bytes with this prefix, None if all are 0xFF."""
    if len(value) <= length:
        return value
    prefix = value[:length].rstrip(b"\xff")
    return prefix[:-1] + bytes((prefix[-1] + 1,)) if prefix else None
