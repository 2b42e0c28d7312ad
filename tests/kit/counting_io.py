"""A storage that knows which bytes of which files were read, for tests of what work may cost."""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.io.fileio import BytesFile, FileIO, InputFile
from tidelake.testing import TracingFileIO


@dataclass(frozen=True, slots=True)
class Read:
    path: str
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class CountedFileIO(TracingFileIO):
    """Writes down every read of an open file; paths are those of the folder that was opened."""

    def __init__(self, inner: FileIO) -> None:
        super().__init__(inner)
        self.reads: list[Read] = []

    def sub(self, path: str) -> CountedFileIO:
        below = CountedFileIO(self.inner.sub(path))
        below.ops, below._lock, below.reads = self.ops, self._lock, self.reads
        return below

    def open_input(self, path: str) -> InputFile:
        return _Counted(self.inner.read(path), path, self.reads)

    @property
    def bytes_read(self) -> int:
        return sum(read.size for read in self.reads)

    def bytes_of(self, name: str) -> int:
        """Bytes that were read of the files whose path ends so."""
        return sum(read.size for read in self.reads if read.path.endswith(name))

    def twice(self, name: str, *, until: int) -> int:
        """Bytes of a file before a place that were read more than once, counted once for each further time."""
        seen = bytearray(until)
        again = 0
        for read in self.reads:
            if read.path.endswith(name) and read.start < until:
                end = min(read.end, until)
                again += sum(seen[read.start : end])
                seen[read.start : end] = b"\x01" * (end - read.start)
        return again


class _Counted(BytesFile):
    def __init__(self, data: bytes, path: str, reads: list[Read]) -> None:
        super().__init__(data)
        self._path, self._reads = path, reads

    def read(self, size: int | None = -1, /) -> bytes:
        start = self.tell()
        data = super().read(size)
        self._reads.append(Read(self._path, start, start + len(data)))
        return data
