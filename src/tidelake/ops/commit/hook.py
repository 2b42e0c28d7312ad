"""Post-commit hooks. The committer runs them itself, so that no caller can forget one.

A hook cannot make a published commit look failed: its failure becomes a warning of the result, and an interrupt is
raised again with a note that names the snapshots (`outcome`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidelake.ops.commit.messages import CommitResult

__all__ = ["Hook"]


@dataclass(frozen=True, slots=True)
class Hook:
    """One action after a commit."""

    name: str
    """Its name in warnings, such as "expiring tags"."""
    run: Callable[[CommitResult], Iterable[str]]
    """Takes the result so far; returns warnings about what it could not do."""
    always: bool = False
    """Whether it also runs after a commit without a snapshot."""
    batch_only: bool = False
    """Whether it runs after commits without an identifier only."""
