"""Ranges of bytes of an open file, read in as few steps as their gaps allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from tidelake.errors import FormatError
from tidelake.io.fileio import InputFile

__all__ = ["Range", "join_ranges", "read_at", "read_ranges"]

Range = tuple[int, int]
"""Where bytes begin in the file, and where they end."""

GAP_BYTES: Final = 64 << 10
"""Bytes that are read in vain rather than asking the storage twice."""
_STEP_BYTES: Final = 32 << 20
"""Bytes asked for at once, so that a copy of what is read never doubles the memory of a whole row group."""


def join_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Join ranges whose gap is small; in the order of the file. Empty ones are dropped."""
    joined: list[Range] = []
    for start, end in sorted(each for each in ranges if each[1] > each[0]):
        if joined and start - joined[-1][1] <= GAP_BYTES:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


def read_ranges(file: InputFile, ranges: Iterable[Range]) -> Iterator[tuple[int, bytes]]:
    """Read ranges piece by piece: where each piece begins, and its bytes.

    Raises:
        FormatError: the file ends before a range does.
        StorageError: the storage failed.
    """
    for start, end in join_ranges(ranges):
        for at in range(start, end, _STEP_BYTES):
            yield at, read_at(file, at, min(_STEP_BYTES, end - at))


def read_at(file: InputFile, start: int, length: int) -> bytes:
    """Read exactly so many bytes.

    Raises:
        FormatError: the file ends before that.
        StorageError: the storage failed.
    """
    file.seek(start)
    data: Any = file.read(length)
    if len(data) != length:
        raise FormatError("file ends before its pages do", code="file-truncated", start=start, length=length)
    return bytes(data)
