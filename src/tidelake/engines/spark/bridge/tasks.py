"""Spread work over tasks: how many run at a time, and which items each of them takes."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from pyspark.sql import SparkSession

T = TypeVar("T")
BIN_BYTES: Final = 256 << 20
"""Bytes of files above which there are more bins than tasks that run at a time, so that no task gets too long."""


def parallelism(session: SparkSession) -> int:
    """How many tasks run at a time, as far as the session knows."""
    configured = session.conf.get("spark.sql.leafNodeDefaultParallelism", None) or session.conf.get(
        "spark.default.parallelism", None
    )
    if configured:
        return max(1, int(configured))
    context = getattr(session, "sparkContext", None)  # a session of Spark Connect does not have one
    return max(1, int(context.defaultParallelism)) if context is not None else os.cpu_count() or 1


def balance(items: Sequence[T], weight: Callable[[T], int], tasks: int, *, least: int = 0) -> tuple[tuple[T, ...], ...]:
    """Pack items into bins of about equal weight, heaviest first: two bins for each task, or more if they are large.

    There are fewer bins where one would weigh less than `least`.
    """
    total = sum(map(weight, items))
    count = max(1, min(len(items), max(tasks * 2, total // BIN_BYTES), total // least if least else len(items)))
    heap: list[tuple[int, int, list[T]]] = [(0, number, []) for number in range(count)]
    for item in sorted(items, key=weight, reverse=True):
        load, number, held = heapq.heappop(heap)
        held.append(item)
        heapq.heappush(heap, (load + weight(item), number, held))
    return tuple(tuple(held) for _, _, held in sorted(heap, key=lambda each: each[1]))
