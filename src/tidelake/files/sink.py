"""Between a library that writes a file and the output that stores it.

Libraries take any Python file, may report its errors as their own, may write once more when they are thrown away, and
may close what is not theirs. A `Sink` keeps the first error as it was, can hold the last bytes back (`hold`), and can
swallow everything (`drop`).
"""

from __future__ import annotations

from collections.abc import Callable

from tidelake.io.fileio import OutputFile

__all__ = ["Sink"]


class Sink:
    """A Python file for a library to write to."""

    closed = False

    def __init__(self, output: OutputFile, *, watch: Callable[[bytes | memoryview], None] | None = None) -> None:
        """Write to an output; `watch` sees all bytes that are handed on."""
        self._output = output
        self._watch = watch
        self._held: list[bytes] | None = None
        self._dropping = False
        self.failure: BaseException | None = None

    def writable(self) -> bool:
        """Always."""
        return True

    def readable(self) -> bool:
        """Never."""
        return False

    def seekable(self) -> bool:
        """Never."""
        return False

    def write(self, data: bytes | memoryview, /) -> int:
        """Hand the bytes on, keep them, or let them go.

        Raises:
            StorageError: the storage failed, now or before.
        """
        size = memoryview(data).nbytes
        if self._dropping:
            return size
        if self.failure is not None:
            raise self.failure
        if self._held is not None:
            self._held.append(bytes(data))
            return size
        if self._watch is not None:
            self._watch(data)
        try:
            return self._output.write(data)
        except BaseException as error:
            self.failure = error
            raise

    def tell(self) -> int:
        """How many bytes were taken in."""
        return self._output.tell() + sum(map(len, self._held or ()))

    def flush(self) -> None:
        """Nothing: the output is complete when it is closed."""

    def close(self) -> None:
        """Nothing: the output belongs to someone else."""

    def hold(self) -> None:
        """Keep what is written from now on."""
        self._held = []

    def held(self) -> bytes:
        """What was kept."""
        return b"".join(self._held or ())

    def drop(self) -> None:
        """Let everything go from now on."""
        self._dropping = True
