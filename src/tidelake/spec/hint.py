"""Hint files `LATEST` and `EARLIEST`: the decimal text of an id, nothing else.

A hint is only a hint. It is overwritten in place and may be torn, stale or rubbish, so reading one never fails: what is
no positive 64-bit number counts as absent, and the caller lists the folder instead.
"""

from __future__ import annotations

from tidelake.errors import InvalidInputError
from tidelake.spec.json_doc import INT64_MAX

_BYTES_MAX = 64


def parse_hint(data: bytes) -> int | None:
    """The id in a hint file, or None if it holds no positive 64-bit number. Never raises."""
    text = data.strip() if len(data) <= _BYTES_MAX else b""
    if not text.isdigit():
        return None
    number = int(text)
    return number if 0 < number <= INT64_MAX else None


def hint_bytes(number: int) -> bytes:
    """The content of a hint file.

    Raises:
        InvalidInputError: If the id is not a positive 64-bit number.
    """
    if not 0 < number <= INT64_MAX:
        raise InvalidInputError("a hint holds a positive id", id=number)
    return str(number).encode("ascii")
