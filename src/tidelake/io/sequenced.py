"""Numbered versions in a folder, each created once: `snapshot-1, snapshot-2, …` and `schema-0, schema-1, …`.

"Create version N if absent" is written here and nowhere else; who uses it adds only the codec of the document. The
existence of a version *is* its commit, and versions are never edited.

`LATEST` and `EARLIEST` are hints. A hint is believed only after looking: its version exists and its neighbour does not.
A stale, empty, broken or missing hint changes the speed of an answer, never the answer. Versions go from the lowest on:
one that is there after the look at those above it was the highest at that look, however many came and went meanwhile.
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
"""How often the folder is listed anew because the highest version of the listing went meanwhile."""


class SequencedStore:
    """The versions of one kind of document in one folder."""

    def __init__(self, io: FileIO, directory: str, prefix: str, hints: bool, *, clock: Clock | None = None) -> None:
        """A store over `directory/prefix{id}`.

        Args:
            io: the storage.
            directory: the folder, relative to the root of `io`.
            prefix: what file names start with, as `snapshot-`.
            hints: whether `LATEST` and `EARLIEST` are read and written.
            clock: waits between tries of a hint.
        """
        self._io = io
        self._directory = directory
        self._prefix = prefix
        self._hints = hints
        self._clock = clock or SystemClock()

    def path(self, version: int) -> str:
        """The path of a version relative to the root of the storage.

        Raises:
            InvalidInputError: the number is negative or too large.
        """
        if not 0 <= version <= _ID_MAX:
            raise InvalidInputError("version number is out of range", id=version)
        return file_path(join(self._directory, f"{self._prefix}{version}"))

    def exists(self, version: int) -> bool:
        """Whether the version was committed.

        Raises:
            StorageError: the storage failed.
        """
        return 0 <= version <= _ID_MAX and self._io.exists(self.path(version), folder=False)

    def ids(self) -> list[int]:
        """All versions in ascending order; names that are not a prefix and a plain number are left out.

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
        """The highest version, or None when there is none.

        Raises:
            StorageError: the storage failed.
        """
        hinted = self._read_hint(LATEST)
        if hinted is not None:
            # Commits after a crash, or two that wrote their hints in turn, leave the hint a little behind.
            for version in range(hinted, hinted + _STEPS_MAX):
                if not self.exists(version + 1):
                    if self.exists(version):
                        return version
                    break
        for _ in range(_LISTINGS_MAX):
            newest = max(self.ids(), default=None)
            if newest is None or not self._hints or self.exists(newest):  # what has no hints never goes
                break
        return newest

    def earliest_id(self) -> int | None:
        """The lowest version, or None when there is none.

        Raises:
            StorageError: the storage failed.
        """
        hinted = self._read_hint(EARLIEST)
        if hinted is not None and self.exists(hinted) and (hinted == 0 or not self.exists(hinted - 1)):
            return hinted
        return min(self.ids(), default=None)

    def walk(self, first: int, last: int, find: Callable[[int], Found | None]) -> Iterator[tuple[int, Found | None]]:
        """The versions from `first` up to `last`, as `find` reads them; of a gap only the first, as None.

        One document with a number far above the others must not make a walk a long one: where a version is missing,
        the folder is listed, once.

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
        """The document of a version, a JSON object.

        A torn document is reported and never passed over: skipping the newest version would silently undo a commit.

        Raises:
            NotFoundError: there is no such version.
            FormatError: it is empty, torn or larger than such a document may be.
            StorageError: the storage failed.
        """
        path = self.path(version)
        data = self._io.read(path, limit=DOCUMENT_BYTES_MAX)
        text = data.strip(b" \t\r\n")
        if not (text.startswith(b"{") and text.endswith(b"}")):
            raise FormatError(
                "document is empty or torn",
                code="torn-document",
                path=join(self._io.root, path),
                size=len(data),
                hint="the storage lost bytes that were written; check the version before it and repair the table",
            )
        return data

    def publish(self, version: int, data: bytes) -> Outcome:
        """Create the version unless it exists.

        Raises:
            InvalidInputError: the document is empty.
            StorageError: the storage failed; certain, nothing was written.
        """
        if not data:
            raise InvalidInputError("document to publish is empty", id=version)
        return self._io.create_exclusive(self.path(version), data)

    def delete(self, version: int) -> None:
        """Remove a version; a missing one is fine.

        Raises:
            StorageError: the storage failed.
        """
        self._io.delete(self.path(version))

    def write_hint_latest(self, version: int) -> None:
        """Say where the newest version is. Best effort: it never fails a commit that is already done."""
        self._write_hint(LATEST, version)

    def write_hint_earliest(self, version: int) -> None:
        """Say where the oldest version is. Best effort."""
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
                # Other writers replace a hint in two steps, so an empty one may be whole a moment later.
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
