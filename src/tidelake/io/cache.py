"""What was read and never changes, kept for the next time, up to so many bytes. The least used goes first.

Only for files whose name is theirs alone for ever, as those of manifests are. Shared between threads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from tidelake.io.executor import mutex


class Cache:
    """Values by key, with the bytes each takes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._lock = mutex()

    def __reduce__(self) -> tuple[Any, ...]:
        return Cache, (self._bytes_max,)  # a copy reads for itself

    def get(self, key: Hashable) -> Any | None:
        """The value of a key, if it is still here."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value; one that is larger than all the room is not kept."""
        if size > self._bytes_max:
            return
        with self._lock:
            _, before = self._kept.pop(key, (None, 0))
            self._kept[key] = value, size
            self._bytes += size - before
            while self._bytes > self._bytes_max:
                self._bytes -= self._kept.popitem(last=False)[1][1]
