"""Reads byte ranges of an open file in as few steps as their gaps allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from tidelake.errors import FormatError
from tidelake.io.fileio import InputFile

__all__ = ["Range", "join_ranges", "read_at", "read_ranges"]

Range = tuple[int, int]
"""The start and the end of bytes in a file."""

GAP_BYTES: Final = 64 << 10
"""The largest gap that is read too, because a second request would be slower."""
_STEP_BYTES: Final = 32 << 20
"""The largest read, so that a copy of what was read does not double the memory of a whole row group."""


def join_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Join ranges with small gaps, sort them by position, and drop empty ones."""
    joined: list[Range] = []
    for start, end in sorted(each for each in ranges if each[1] > each[0]):
        if joined and start - joined[-1][1] <= GAP_BYTES:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


def read_ranges(file: InputFile, ranges: Iterable[Range]) -> Iterator[tuple[int, bytes]]:
    """Read ranges piece by piece; yield the start of each piece and its bytes.

    Raises:
        FormatError: the file ends before a range does.
        StorageError: the storage failed.
    """
    for start, end in join_ranges(ranges):
        for at in range(start, end, _STEP_BYTES):
            yield at, read_at(file, at, min(_STEP_BYTES, end - at))


def read_at(file: InputFile, start: int, length: int) -> bytes:
    """Read exactly `length` bytes.

    Raises:
        FormatError: the file ends before.
        StorageError: the storage failed.
    """
    file.seek(start)
    data: Any = file.read(length)
    if len(data) != length:
        raise FormatError("file ends before its pages do", code="file-truncated", start=start, length=length)
    return bytes(data)
