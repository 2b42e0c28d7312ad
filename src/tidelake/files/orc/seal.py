"""Checksums for ORC files, which have none: without them more than half of all flipped bits read as other values.

Our files have a seal in the footer's user metadata: the CRC-32 of every 256 KiB of the file, up to the end of the
footer as Arrow wrote it. The footer is compressed in chunks, so the seal is appended as one more chunk, and only the
length in the postscript changes. Other readers see an unknown entry of user metadata and ignore it.

Invariant: no changed byte of a sealed file reaches a reader. A file without a seal comes from another writer and is
read without this check.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import Final

from tidelake.errors import FormatError
from tidelake.files.orc.protobuf import read_message, write_field
from tidelake.io.fileio import InputFile

__all__ = ["SEAL_NAME", "CheckedFile", "Sums", "seal_tail", "sealed_file"]

SEAL_NAME: Final = b"tidelake.seal"
SEGMENT_BYTES: Final = 256 << 10
_HEAD: Final = struct.Struct("<IQ")  # bytes per segment, bytes covered by checksums
_USER_METADATA: Final = 5
_FOOTER_LENGTH: Final = 1
_COMPRESSION: Final = 2
_CHUNK_BYTES_MAX: Final = 60_000


class Sums:
    """The CRC-32 of each segment of a stream of bytes."""

    def __init__(self) -> None:
        self._done: list[int] = []
        self._current = 0
        self._filled = 0
        self.size = 0

    def update(self, data: bytes | memoryview) -> None:
        """Add the next bytes."""
        view = memoryview(data).cast("B")
        self.size += len(view)
        while view:
            part = view[: SEGMENT_BYTES - self._filled]
            self._current = zlib.crc32(part, self._current)
            self._filled += len(part)
            view = view[len(part) :]
            if self._filled == SEGMENT_BYTES:
                self._done.append(self._current)
                self._current = self._filled = 0

    def values(self) -> list[int]:
        """Return the sums so far, including that of an unfinished segment."""
        return [*self._done, self._current] if self._filled else list(self._done)


def seal_tail(tail: bytes, sums: Sums) -> bytes:
    """Return the last bytes of an ORC file with the seal added; `sums` covers everything before them.

    Raises:
        FormatError: the bytes are not the end of an ORC file.
    """
    try:
        postscript_size = tail[-1]
        before, postscript = tail[: -1 - postscript_size], tail[-1 - postscript_size : -1]
        fields = read_message(postscript)
        footer_length = fields[_FOOTER_LENGTH][0]
        compressed = fields.get(_COMPRESSION, [0])[0] != 0
    except (IndexError, ValueError, KeyError) as error:
        raise FormatError("end of the ORC file is malformed") from error
    sums.update(before)
    body = _HEAD.pack(SEGMENT_BYTES, sums.size) + struct.pack(f"<{len(sums.values())}I", *sums.values())
    value = body + zlib.crc32(body).to_bytes(4, "little")
    entry = write_field(_USER_METADATA, write_field(1, SEAL_NAME) + write_field(2, value))
    if compressed:
        # Uncompressed chunks: a header of three bytes with the length and the flag for that.
        parts = [entry[start : start + _CHUNK_BYTES_MAX] for start in range(0, len(entry), _CHUNK_BYTES_MAX)]
        entry = b"".join((len(part) << 1 | 1).to_bytes(3, "little") + part for part in parts)
    changed = b"".join(
        write_field(number, footer_length + len(entry) if number == _FOOTER_LENGTH else each)
        for number, values in fields.items()
        for each in values
    )
    if len(changed) > 255:
        raise FormatError("postscript of an ORC file is too long")
    return before + entry + changed + bytes([len(changed)])


def sealed_file(file: InputFile, user_metadata: dict[bytes, bytes], *, path: str) -> InputFile:
    """Return a file that verifies the seal of another one, or the file itself if it has no seal.

    Raises:
        FormatError: the seal is damaged.
    """
    value = user_metadata.get(SEAL_NAME)
    if value is None:
        return file
    body, checksum = value[:-4], value[-4:]
    if len(body) < _HEAD.size or zlib.crc32(body).to_bytes(4, "little") != checksum:
        raise checksum_error(path)
    segment, covered = _HEAD.unpack_from(body)
    count = (len(body) - _HEAD.size) // 4
    sums = struct.unpack_from(f"<{count}I", body, _HEAD.size)
    if segment < 1 or count != -(-covered // segment) or covered > file.size():
        raise checksum_error(path)
    return CheckedFile(file, segment, covered, sums, path=path)


def checksum_error(path: str) -> FormatError:
    """Return the error for a file that does not match its checksums."""
    return FormatError(
        "ORC file does not match its checksums",
        path=path,
        hint="the file is damaged: restore it from a copy, or remove it from the table",
    )


class CheckedFile(io.RawIOBase):
    """An `InputFile` that verifies the checksum of each segment before it returns bytes of it."""

    def __init__(self, file: InputFile, segment: int, covered: int, sums: tuple[int, ...], *, path: str) -> None:
        super().__init__()
        self._file = file
        self._segment = segment
        self._covered = covered
        self._sums = sums
        self._path = path
        self._position = 0
        # Keep the last range: Arrow reads the streams of a stripe one after the other.
        self._start = 0
        self._data = b""

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def size(self) -> int:
        """The length of the file."""
        return self._file.size()

    def tell(self) -> int:
        """The position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move the position and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size()}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes from the position; if negative or None, the rest of the file.

        Raises:
            FormatError: a segment does not match its checksum.
            StorageError: the storage failed.
        """
        rest = max(0, self.size() - self._position)
        count = rest if size is None or size < 0 else min(size, rest)
        start, end = self._position, self._position + count
        if not self._start <= start <= end <= self._start + len(self._data):
            self._load(start, end)
        self._position = end
        return self._data[start - self._start : end - self._start]

    def readall(self) -> bytes:
        """Read all bytes from the position."""
        return self.read(-1)

    def close(self) -> None:
        """Do nothing: the caller closes the underlying file."""

    def _load(self, start: int, end: int) -> None:
        first = min(start, self._covered) // self._segment
        last = -(-min(end, self._covered) // self._segment)
        low = min(start, first * self._segment)
        high = max(end, min(last * self._segment, self._covered))
        self._file.seek(low)
        data = self._file.read(high - low)
        if len(data) != high - low:
            raise checksum_error(self._path)
        view = memoryview(data)
        for number in range(first, last):
            begin = number * self._segment - low
            stop = min((number + 1) * self._segment, self._covered) - low
            if zlib.crc32(view[begin:stop]) != self._sums[number]:
                raise checksum_error(self._path)
        self._start, self._data = low, data
