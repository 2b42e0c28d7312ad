"""Progress documents of numbered commit users, one file each, beside the snapshots of their branch."""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.errors import NotFoundError
from tidelake.io.fileio import FileIO
from tidelake.spec.layout import TableLayout
from tidelake.spec.progress import DIRECTORY, Progress, progress_file_name, progress_from_json, progress_to_json


@dataclass(frozen=True, slots=True)
class ProgressStore:
    """The progress documents of one branch."""

    io: FileIO
    layout: TableLayout

    def path(self, user: str) -> str:
        """Where the document of a user lies."""
        return f"{self.layout.branch_root}{DIRECTORY}/{progress_file_name(user)}"

    def read(self, user: str) -> Progress:
        """How far a user has come, as far as its document tells.

        Raises:
            FormatError: the document is damaged.
        """
        path = self.path(user)
        try:
            progress = progress_from_json(self.io.read(path, limit=1 << 16), path=path)
        except NotFoundError:
            return Progress(user=user)
        # Two users may only share a file by a digest collision; then the document is not ours to believe.
        return progress if progress.user == user else Progress(user=user)

    def write(self, progress: Progress) -> None:
        """Replace the document; it survives a power loss on return."""
        self.io.overwrite(self.path(progress.user), progress_to_json(progress))
