"""Numbered versions in a folder, each created once: `snapshot-1, snapshot-2, …` and `schema-0, schema-1, …`.

"Create version N if absent" is implemented here and nowhere else; its users add only the codec of the document. A
version is committed if and only if it exists, and versions are never edited.

`LATEST` and `EARLIEST` are hints. A hint is used only after a check: its version exists and the next one does not. A
stale, empty, broken or missing hint makes an answer slower, never wrong. Versions are deleted from the lowest on: if a
version exists after the check of those above it, it was the highest at that moment, whatever was created or deleted
while the check ran.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TypeVar

from tidelake.errors import FormatError, InvalidInputError, TidelakeError
from tidelake.io.clock import Clock, SystemClock
from tidelake.io.fileio import FileIO, Outcome, file_path, join

LATEST = "LATEST"
EARLIEST = "EARLIEST"
DOCUMENT_BYTES_MAX = 16 << 20

Found = TypeVar("Found")

_ID_MAX = 2**63 - 1
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_HINT_BYTES_MAX = 64
_HINT_TRIES = 3
_HINT_PAUSE_S = 0.001
_STEPS_MAX = 8
_LISTINGS_MAX = 8
"""How often to list the folder again if the highest listed version was deleted in between."""


class SequencedStore:
    """The versions of one kind of document in one folder."""

    def __init__(self, io: FileIO, directory: str, prefix: str, hints: bool, *, clock: Clock | None = None) -> None:
        """Open the store of `directory/prefix{id}`.

        Args:
            io: the storage.
            directory: the folder, relative to the root of `io`.
            prefix: the start of file names, such as `snapshot-`.
            hints: whether to read and write `LATEST` and `EARLIEST`.
            clock: used to wait between tries to read a hint.
        """
        self._io = io
        self._directory = directory
        self._prefix = prefix
        self._hints = hints
        self._clock = clock or SystemClock()

    def path(self, version: int) -> str:
        """Return the path of a version, relative to the root of the storage.

        Raises:
            InvalidInputError: the number is negative or too large.
        """
        if not 0 <= version <= _ID_MAX:
            raise InvalidInputError("version number is out of range", id=version)
        return file_path(join(self._directory, f"{self._prefix}{version}"))

    def exists(self, version: int) -> bool:
        """Return whether the version was committed and not deleted.

        Raises:
            StorageError: the storage failed.
        """
        return 0 <= version <= _ID_MAX and self._io.exists(self.path(version), folder=False)

    def ids(self) -> list[int]:
        """Return all versions in ascending order; names that are not the prefix and a number are ignored.

        Raises:
            StorageError: the storage failed.
        """
        found = (
            _number(child.name.removeprefix(self._prefix))
            for child in self._io.list(self._directory)
            if not child.is_dir and child.name.startswith(self._prefix)
        )
        return sorted(version for version in found if version is not None)

    def latest_id(self) -> int | None:
        """Return the highest version, or None if no version exists.

        Raises:
            StorageError: the storage failed.
        """
        hinted = self._read_hint(LATEST)
        if hinted is not None:
            # The hint is a little behind if a writer crashed, or if two writers wrote their hints in the wrong order.
            for version in range(hinted, hinted + _STEPS_MAX):
                if not self.exists(version + 1):
                    if self.exists(version):
                        return version
                    break
        for _ in range(_LISTINGS_MAX):
            newest = max(self.ids(), default=None)
            if newest is None or not self._hints or self.exists(newest):  # documents without hints are never deleted
                break
        return newest

    def earliest_id(self) -> int | None:
        """Return the lowest version, or None if no version exists.

        Raises:
            StorageError: the storage failed.
        """
        hinted = self._read_hint(EARLIEST)
        if hinted is not None and self.exists(hinted) and (hinted == 0 or not self.exists(hinted - 1)):
            return hinted
        return min(self.ids(), default=None)

    def walk(self, first: int, last: int, find: Callable[[int], Found | None]) -> Iterator[tuple[int, Found | None]]:
        """Yield the versions from `first` up to `last`, as `find` reads them; of a gap only the first, as None.

        A gap can be very long if one document has a number far above the others, so when a version is missing, the
        folder is listed once and the walk continues with the listed versions.

        Raises:
            StorageError: the storage failed.
        """
        version, listed = first, None
        while version <= last:
            found = find(version)
            yield version, found
            if found is None and listed is None:
                listed = self.ids()
            if listed is None:
                version += 1
            else:
                place = bisect_right(listed, version)
                version = listed[place] if place < len(listed) else last + 1

    def read(self, version: int) -> bytes:
        """Read the document of a version, a JSON object.

        An incomplete document is an error and never skipped: skipping the newest version would silently undo a commit.

        Raises:
            NotFoundError: the version does not exist.
            FormatError: the document is empty, incomplete or too large.
            StorageError: the storage failed.
        """
        path = self.path(version)
        data = self._io.read(path, limit=DOCUMENT_BYTES_MAX)
        text = data.strip(b" \t\r\n")
        if not (text.startswith(b"{") and text.endswith(b"}")):
            raise FormatError(
                "document is empty or incomplete",
                code="torn-document",
                path=join(self._io.root, path),
                size=len(data),
                hint="the storage lost written bytes; check the previous version and repair the table",
            )
        return data

    def publish(self, version: int, data: bytes) -> Outcome:
        """Create the version unless it exists.

        Raises:
            InvalidInputError: the document is empty.
            StorageError: the storage failed, and it is certain that nothing was written.
        """
        if not data:
            raise InvalidInputError("document to publish is empty", id=version)
        return self._io.create_exclusive(self.path(version), data)

    def delete(self, version: int) -> None:
        """Delete a version; do nothing if it does not exist.

        Raises:
            StorageError: the storage failed.
        """
        self._io.delete(self.path(version))

    def write_hint_latest(self, version: int) -> None:
        """Write the hint to the newest version. Best effort: an error must not fail a commit that is already done."""
        self._write_hint(LATEST, version)

    def write_hint_earliest(self, version: int) -> None:
        """Write the hint to the oldest version. Best effort."""
        self._write_hint(EARLIEST, version)

    def _read_hint(self, name: str) -> int | None:
        if not self._hints:
            return None
        path = join(self._directory, name)
        for tries_left in reversed(range(_HINT_TRIES)):
            try:
                number = _number(self._io.read(path, limit=_HINT_BYTES_MAX).decode("ascii", errors="replace").strip())
            except TidelakeError as error:
                if error.code == "file-not-found":
                    return None
            else:
                # Other implementations may replace a hint in two steps, so an empty one may be complete a moment later.
                if number is not None:
                    return number
            if tries_left:
                self._clock.sleep(_HINT_PAUSE_S)
        return None

    def _write_hint(self, name: str, version: int) -> None:
        if not self._hints:
            return
        path = join(self._directory, name)
        for tries_left in reversed(range(_HINT_TRIES)):
            try:
                self._io.overwrite(path, str(version).encode(), durable=False)
            except TidelakeError:
                if tries_left:
                    self._clock.sleep(_HINT_PAUSE_S)
            else:
                return


def _number(text: str) -> int | None:
    if _NUMBER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if number <= _ID_MAX else None
