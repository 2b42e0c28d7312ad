"""Guards: checks, before every attempt to publish, that a plan still holds on the newest snapshot.

`conflicts` finds conflicts over files for every commit. Guards check what else a plan depends on: rows that it read,
keys that it looked up, levels that it compared. Each verb passes its own guards to the committer, and the loop runs all
of them in one place, before the changes are computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidelake.ops.commit.messages import CommitMessage
from tidelake.spec.documents.snapshot import Snapshot

__all__ = ["Guard", "Proposal"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is about to be committed on top of the newest snapshot."""

    latest: Snapshot
    messages: tuple[CommitMessage, ...]
    """The current messages: an earlier attempt may have rewritten those that the verb passed."""
    checked_id: int = 0
    """In an earlier attempt all guards accepted everything up to this snapshot."""


class Guard(Protocol):
    """One condition that a plan depends on. It keeps no state; what changes between attempts is in the proposal."""

    def check(self, proposal: Proposal) -> None:
        """Refuse the proposal by raising, if what was committed since the plan makes it wrong.

        Raises:
            CommitConflictError: the plan no longer holds.
        """
