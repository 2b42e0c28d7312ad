"""What counts as a read of a disk."""

from __future__ import annotations

READS = frozenset({"lstat", "open_read", "scandir"})
"""Calls that change nothing: dying before one of them is dying before the next that does."""
