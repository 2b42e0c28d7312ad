"""The port for locks: a committer holds one while it publishes, if the catalog offers a lock.

A lock is only an additional guard. Commits are safe because a snapshot is a file that is created exclusively, so a lock
that is lost in between loses no commit.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Lock(Protocol):
    """Keeps others out."""

    def hold(self, name: str) -> AbstractContextManager[object]:
        """Wait until no other process holds this name, and hold it until the block ends.

        Raises:
            StorageError: the lock could not be had; certain, the block was not entered.
        """


class NoLock:
    """Keeps none out: creating a file exclusively is enough."""

    def hold(self, name: str) -> AbstractContextManager[object]:
        """Enter the block at once."""
        del name
        return nullcontext()
