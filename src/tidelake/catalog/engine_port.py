"""What a lake needs from an engine: a session that finds its tables. Sessions are the engine's own type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tidelake.catalog.lake import Lake


class LakeEngine(Protocol):
    """Starts sessions, and makes a lake known to running ones."""

    def start(self, lake: Lake, *, master: str, app: str, conf: Mapping[str, object]) -> Any:
        """A session that knows the lake."""

    def attach(self, session: Any, lake: Lake) -> None:
        """Make the lake known to a running session."""
