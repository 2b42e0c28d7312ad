"""When commits last looked for expired partitions: a number in a small file beside the commit progress.

It saves work and is never needed: if it is missing, damaged, or later than now, the next commit looks again.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.errors import NotFoundError
from tidelake.io.fileio import FileIO
from tidelake.spec.documents.hint import hint_bytes, parse_hint
from tidelake.spec.documents.progress import DIRECTORY
from tidelake.spec.layout import TableLayout

__all__ = ["ExpiryCheckStore"]

_NAME = "partition-expiry"
_BYTES_MAX = 1 << 10


@dataclass(frozen=True, slots=True)
class ExpiryCheckStore:
    """The time of the last check of one branch."""

    io: FileIO
    layout: TableLayout

    @property
    def path(self) -> str:
        """The path of the file."""
        return f"{self.layout.branch_root}{DIRECTORY}/{_NAME}"

    def read(self) -> int | None:
        """Milliseconds since 1970 of the last check, if known."""
        try:
            return parse_hint(self.io.read(self.path, limit=_BYTES_MAX))
        except NotFoundError:
            return None

    def write(self, time_ms: int) -> None:
        """Note a check."""
        self.io.overwrite(self.path, hint_bytes(max(1, time_ms)))
