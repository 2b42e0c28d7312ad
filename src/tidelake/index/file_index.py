"""The head of a file index: which columns of a data file are indexed, by which kinds, and how large each index is.

All indexes of a data file are in one container, which is a file beside it or part of its manifest entry. Invariant: a
damaged head is a `FormatError`; no count in it makes the parser read beyond it or loop for long.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from tidelake.errors import FormatError

__all__ = ["HEAD_BYTES_MAX", "FileIndexEntry", "parse_head"]

HEAD_BYTES_MAX: Final = 16 << 20
"""Bytes of a container that are read for its head at most."""

_MAGIC: Final = 1493475289347502
_VERSION: Final = 1
_FRONT: Final = Struct(">qii")
_INT: Final = Struct(">i")
_SHORT: Final = Struct(">H")
_PLACE: Final = Struct(">ii")
_EMPTY: Final = -1


@dataclass(frozen=True, slots=True)
class FileIndexEntry:
    """One index of one column."""

    column: str
    """The column, or `column[key]` for one key of a map."""
    kind: str
    size: int
    is_empty: bool
    """Whether no row reached the index."""


def parse_head(data: bytes, *, path: str) -> tuple[FileIndexEntry, ...]:
    """The indexes that a container lists; `data` is the container, or enough of its begin.

    Raises:
        FormatError: this is not the head of a file index, or it is damaged.
    """
    reader = _Reader(data, path)
    magic, version, length = reader.take(_FRONT)
    if magic != _MAGIC or version != _VERSION:
        raise FormatError("this is not a file index of a known version", path=path, magic=magic, version=version)
    if not _FRONT.size <= length <= len(data):
        raise FormatError("head of the file index is incomplete", path=path, length=length, available=len(data))
    reader.end = length
    found: list[FileIndexEntry] = []
    for _ in range(reader.count()):
        column = reader.text()
        for _ in range(reader.count()):
            kind = reader.text()
            start, size = reader.take(_PLACE)
            if size < 0:
                raise FormatError("size of an index is negative", path=path, column=column, index_type=kind, size=size)
            found.append(FileIndexEntry(column, kind, size, start == _EMPTY))
    return tuple(found)


class _Reader:
    """Goes through the bytes of a head."""

    def __init__(self, data: bytes, path: str) -> None:
        self.data = data
        self.path = path
        self.at = 0
        self.end = len(data)

    def take(self, layout: Struct) -> tuple[int, ...]:
        after = self.at + layout.size
        if after > self.end:
            raise self._broken()
        values: tuple[int, ...] = layout.unpack_from(self.data, self.at)
        self.at = after
        return values

    def count(self) -> int:
        (number,) = self.take(_INT)
        # Each counted part takes at least the two bytes of its name's length.
        if not 0 <= number <= (self.end - self.at) // _SHORT.size:
            raise self._broken()
        return number

    def text(self) -> str:
        (length,) = self.take(_SHORT)
        raw = self.data[self.at : self.at + length]
        self.at += length
        if self.at > self.end:
            raise self._broken()
        try:
            # Java writes NUL as two bytes, and characters beyond U+FFFF as two surrogates of three bytes each.
            text = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
            return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
        except UnicodeDecodeError as cause:
            raise self._broken() from cause

    def _broken(self) -> FormatError:
        return FormatError("head of the file index is damaged", path=self.path, position=self.at)
