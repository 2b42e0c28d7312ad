"""How work is spread: how many tasks run at a time, and which items each takes."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from pyspark.sql import SparkSession

T = TypeVar("T")
BIN_BYTES: Final = 256 << 20
"""Bytes of files that make another task worth it."""


def parallelism(session: SparkSession) -> int:
    """Tasks that run at a time, as far as the session tells."""
    told = session.conf.get("spark.sql.leafNodeDefaultParallelism", None) or session.conf.get(
        "spark.default.parallelism", None
    )
    if told:
        return max(1, int(told))
    context = getattr(session, "sparkContext", None)
    return max(1, int(context.defaultParallelism)) if context is not None else os.cpu_count() or 1


def balanced(
    items: Sequence[T], weight: Callable[[T], int], tasks: int, *, least: int = 0
) -> tuple[tuple[T, ...], ...]:
    """Items in as many bins as there are tasks, or more where that keeps them small; the heaviest first.

    There are fewer where a bin would weigh less than `least`.
    """
    total = sum(map(weight, items))
    count = max(1, min(len(items), max(tasks * 2, total // BIN_BYTES), total // least if least else len(items)))
    heap: list[tuple[int, int, list[T]]] = [(0, number, []) for number in range(count)]
    for item in sorted(items, key=weight, reverse=True):
        load, number, held = heapq.heappop(heap)
        held.append(item)
        heapq.heappush(heap, (load + weight(item), number, held))
    return tuple(tuple(held) for _, _, held in sorted(heap, key=lambda each: each[1]))
