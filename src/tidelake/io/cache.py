"""A cache of files that never change, limited by size. The least recently used entry is dropped first.

Only for files whose names are never used again, such as manifests. Safe to share between threads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from tidelake.io.executor import mutex


class Cache:
    """Values by key, with the size of each in bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._lock = mutex()

    def __reduce__(self) -> tuple[Any, ...]:
        return Cache, (self._bytes_max,)  # a copy starts empty

    def get(self, key: Hashable) -> Any | None:
        """Return the value of a key, or None if it is not cached."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Cache a value; one that is larger than the whole cache is ignored."""
        if size > self._bytes_max:
            return
        with self._lock:
            _, before = self._kept.pop(key, (None, 0))
            self._kept[key] = value, size
            self._bytes += size - before
            while self._bytes > self._bytes_max:
                self._bytes -= self._kept.popitem(last=False)[1][1]
