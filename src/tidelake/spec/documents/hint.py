"""Hint files `LATEST` and `EARLIEST`: the decimal text of an id, nothing else.

A hint may be wrong: it is overwritten in place, so it can be torn, stale or garbage. Parsing one never fails. A text
that is not a positive 64-bit number counts as absent, and the caller lists the folder instead.
"""

from __future__ import annotations

from tidelake.errors import InvalidInputError
from tidelake.spec.limits import INT64_MAX

_BYTES_MAX = 64


def parse_hint(data: bytes) -> int | None:
    """The id in a hint file, or None if the content is not a positive 64-bit number. Never raises."""
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
        raise InvalidInputError("id in a hint file must be positive", id=number)
    return str(number).encode("ascii")
