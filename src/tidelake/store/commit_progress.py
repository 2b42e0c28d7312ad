"""Commit progress in storage: one document for each user with numbered commits, in the folder of the branch."""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.errors import NotFoundError
from tidelake.io.fileio import FileIO
from tidelake.spec.documents.progress import (
    DIRECTORY,
    FILE_PREFIXES,
    CommitProgress,
    progress_file_name,
    progress_from_json,
    progress_to_json,
)
from tidelake.spec.layout import TableLayout

_BYTES_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class ProgressStore:
    """The commit progress documents of one branch."""

    io: FileIO
    layout: TableLayout

    def path(self, user: str) -> str:
        """The path of the document of a user."""
        return f"{self.layout.branch_root}{DIRECTORY}/{progress_file_name(user)}"

    def read(self, user: str) -> CommitProgress:
        """The commit progress of a user, empty if it has no document.

        Raises:
            FormatError: the document is damaged.
        """
        path = self.path(user)
        try:
            progress = progress_from_json(self.io.read(path, limit=_BYTES_MAX), path=path)
        except NotFoundError:
            return CommitProgress(user=user)
        # Two users share a file only after a collision of digests; then the document belongs to the other user.
        return progress if progress.user == user else CommitProgress(user=user)

    def has(self, user: str) -> bool:
        """Whether the user has a document.

        Raises:
            FormatError: the document is damaged.
        """
        return self.read(user) != CommitProgress(user=user)

    def users(self) -> list[str]:
        """The users that have a document.

        Raises:
            FormatError: a document is damaged.
        """
        return sorted(each.user for each in self.all())

    def all(self) -> list[CommitProgress]:
        """The commit progress of every user that has a document.

        Raises:
            FormatError: a document is damaged.
            StorageError: the storage failed.
        """
        found = []
        for file in self.io.list(f"{self.layout.branch_root}{DIRECTORY}"):
            if file.is_dir or not file.name.startswith(FILE_PREFIXES):
                continue
            try:
                progress = progress_from_json(self.io.read(file.path, limit=_BYTES_MAX), path=file.path)
            except NotFoundError:
                continue  # deleted since
            if self.path(progress.user) == file.path:
                found.append(progress)
        return found

    def write(self, progress: CommitProgress) -> None:
        """Replace the document; on return it is durable."""
        self.io.overwrite(self.path(progress.user), progress_to_json(progress))
