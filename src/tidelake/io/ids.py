"""Identifiers and random numbers as a port: UUIDs for file names, random numbers for back-off.

Every file name has a UUID, so two writers never choose the same one; a seed makes a whole run repeatable.
"""

from __future__ import annotations

import random
import uuid
from typing import Protocol


class Ids(Protocol):
    """A source of identifiers and random numbers."""

    def uuid(self) -> str:
        """Return a new UUID in its 36-character form."""

    def random(self) -> float:
        """Return a number from 0 up to, but not including, 1."""


class SystemIds:
    """Identifiers from the operating system's entropy, so that forked processes never repeat each other's."""

    def uuid(self) -> str:
        """Return a new UUID."""
        return str(uuid.uuid4())

    def random(self) -> float:
        """Return a number from 0 up to, but not including, 1."""
        return _SYSTEM.random()


class SeededIds:
    """A repeatable sequence of identifiers for tests and simulations."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> str:
        """Return the next UUID of the sequence."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def random(self) -> float:
        """Return the next number of the sequence."""
        return self._random.random()


_SYSTEM = random.SystemRandom()
