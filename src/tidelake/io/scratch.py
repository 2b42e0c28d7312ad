"""Local disk for what does not fit in memory: one nameless file, gone with the process whatever ends it.

The file is unlinked as soon as it is open, so nothing is left behind by an error, a kill or a power loss. Parts of it
may be read by several threads at a time.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass, field
from typing import IO

from tidelake.errors import StorageError


@dataclass(frozen=True, slots=True)
class Extent:
    """Where something lies in a scratch file."""

    offset: int
    size: int


def _open() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile(prefix="tidelake-", buffering=0)
    except OSError as cause:
        raise _failed(cause) from cause


def _failed(cause: OSError) -> StorageError:
    return StorageError(
        "local disk for rows that wait failed",
        code="scratch-disk",
        cause=cause.strerror or str(cause),
        hint="make room there, point TMPDIR elsewhere, or set write-buffer-spillable=false",
    )


@dataclass(slots=True)
class ScratchFile:
    """A nameless local file that grows at its end. It lies in the folder that `TMPDIR` names."""

    size: int = 0
    _file: IO[bytes] = field(default_factory=_open)

    def append(self, data: bytes | memoryview) -> Extent:
        """Write at the end.

        Raises:
            StorageError: the disk is full, or failed.
        """
        left = memoryview(data).cast("B")
        extent = Extent(self.size, left.nbytes)
        try:
            while left.nbytes:
                left = left[os.pwrite(self._file.fileno(), left, extent.offset + extent.size - left.nbytes) :]
        except OSError as cause:
            raise _failed(cause) from cause
        self.size += extent.size
        return extent

    def read(self, extent: Extent) -> bytes:
        """What was written there.

        Raises:
            StorageError: the disk failed.
        """
        parts, offset, left = [], extent.offset, extent.size
        while left:
            try:
                part = os.pread(self._file.fileno(), left, offset)
            except OSError as cause:
                raise _failed(cause) from cause
            if not part:
                raise StorageError("local file for rows that wait is shorter than what was written", offset=offset)
            parts.append(part)
            offset, left = offset + len(part), left - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def map(self, extent: Extent) -> memoryview:
        """What was written there, read as it is looked at and dropped from memory as others need it.

        Raises:
            StorageError: the disk failed.
        """
        if not extent.size:
            return memoryview(b"")
        start = extent.offset - extent.offset % mmap.ALLOCATIONGRANULARITY
        size = extent.offset + extent.size - start
        try:
            mapped = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ, offset=start)
        except OSError as cause:
            raise _failed(cause) from cause
        return memoryview(mapped)[extent.offset - start :]

    def close(self) -> None:
        """Let go of the file and its disk space; closing twice is fine."""
        self._file.close()
