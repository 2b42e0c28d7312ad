"""The door for identity and chance: uuids for file names, random numbers for back-off.

Every file name holds a uuid, so two writers never choose the same one; a seed makes a whole run repeatable.
"""

from __future__ import annotations

import random
import uuid
from typing import Protocol


class Ids(Protocol):
    """Where identifiers and random numbers come from."""

    def uuid(self) -> str:
        """A fresh uuid in its 36-character form."""

    def random(self) -> float:
        """A number from 0 up to, not including, 1."""


class SystemIds:
    """Identifiers from the operating system's entropy, so that forked processes never repeat each other."""

    def uuid(self) -> str:
        """A fresh uuid."""
        return str(uuid.uuid4())

    def random(self) -> float:
        """A number from 0 up to, not including, 1."""
        return _SYSTEM.random()


class SeededIds:
    """A repeatable sequence of identifiers for tests and simulations."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> str:
        """The next uuid of the sequence."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def random(self) -> float:
        """The next number of the sequence."""
        return self._random.random()


_SYSTEM = random.SystemRandom()
