"""What is kept in memory: the newest used, up to a number of bytes."""

from __future__ import annotations

from tidelake.io.cache import Cache


def test_the_least_used_goes_first() -> None:
    cache = Cache(10)
    cache.put("a", 1, 4)
    cache.put("b", 2, 4)
    assert cache.get("a") == 1
    cache.put("c", 3, 4)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)


def test_a_value_larger_than_the_room_is_not_kept_and_drives_nothing_out() -> None:
    cache = Cache(10)
    cache.put("a", 1, 4)
    cache.put("b", 2, 11)
    assert (cache.get("a"), cache.get("b")) == (1, None)
