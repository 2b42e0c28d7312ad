"""Temporary local disk space for data that does not fit in memory: one file without a name.

The file is unlinked as soon as it is open, so an error, a kill or a power loss leaves nothing behind. Several threads
may read parts of it at the same time.
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
    """A byte range of a scratch file."""

    offset: int
    size: int


def _open() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile(prefix="tidelake-", buffering=0)
    except OSError as cause:
        raise _scratch_error(cause) from cause


def _scratch_error(cause: OSError) -> StorageError:
    return StorageError(
        "local disk for spilled rows failed",
        code="scratch-disk",
        cause=cause.strerror or str(cause),
        hint="free disk space, point TMPDIR elsewhere, or set write-buffer-spillable=false",
    )


@dataclass(slots=True)
class ScratchFile:
    """An append-only local file without a name, in the folder that `TMPDIR` names."""

    size: int = 0
    _file: IO[bytes] = field(default_factory=_open)

    def append(self, data: bytes | memoryview) -> Extent:
        """Write at the end of the file, and return where.

        Raises:
            StorageError: the disk is full or failed.
        """
        left = memoryview(data).cast("B")
        extent = Extent(self.size, left.nbytes)
        try:
            while left.nbytes:
                left = left[os.pwrite(self._file.fileno(), left, extent.offset + extent.size - left.nbytes) :]
        except OSError as cause:
            raise _scratch_error(cause) from cause
        self.size += extent.size
        return extent

    def read(self, extent: Extent) -> bytes:
        """Read the bytes of an extent.

        Raises:
            StorageError: the disk failed.
        """
        parts, offset, left = [], extent.offset, extent.size
        while left:
            try:
                part = os.pread(self._file.fileno(), left, offset)
            except OSError as cause:
                raise _scratch_error(cause) from cause
            if not part:
                raise StorageError("local file of spilled rows is shorter than what was written", offset=offset)
            parts.append(part)
            offset, left = offset + len(part), left - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def map(self, extent: Extent) -> memoryview:
        """Map the bytes of an extent into memory, so that the system reads and drops pages as needed.

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
            raise _scratch_error(cause) from cause
        return memoryview(mapped)[extent.offset - start :]

    def close(self) -> None:
        """Close the file and free its disk space; closing twice is allowed."""
        self._file.close()
