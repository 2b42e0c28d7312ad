"""The Python file that a library writes to, in front of the output that stores the bytes.

Libraries may wrap the errors of a file in their own, may write again when they are garbage collected, and may close a
file that they did not open. A `Sink` keeps the original error, can hold back the last bytes (`hold`), and can discard
everything (`drop`).
"""

from __future__ import annotations

from collections.abc import Callable

from tidelake.io.fileio import OutputFile

__all__ = ["Sink"]


class Sink:
    """A Python file for a library to write to."""

    closed = False

    def __init__(self, output: OutputFile, *, watch: Callable[[bytes | memoryview], None] | None = None) -> None:
        """Write to an output; `watch` is called with all bytes that are passed on."""
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
        """Pass the bytes on, hold them back, or discard them.

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
        """The number of bytes written, including those held back."""
        return self._output.tell() + sum(map(len, self._held or ()))

    def flush(self) -> None:
        """Do nothing: the output is complete when it is closed."""

    def close(self) -> None:
        """Do nothing: the caller closes the output."""

    def hold(self) -> None:
        """Hold back everything that is written from now on."""
        self._held = []

    def held_bytes(self) -> bytes:
        """Return the bytes held back."""
        return b"".join(self._held or ())

    def drop(self) -> None:
        """Discard everything that is written from now on."""
        self._dropping = True
