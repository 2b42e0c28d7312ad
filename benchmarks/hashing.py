"""Hash and bucket of ten million keys, beside a sort of the same keys by Polars.

A writer must at least sort its keys, so assigning buckets may not take longer than that. Both are run in turn, so that
whatever else the machine does hits them alike; figures are medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from tidelake.spec.rows.bucket_function import BucketFunction, assign_buckets
from tidelake.spec.types.data_types import BIGINT, STRING, DataType

ROWS = 10_000_000
TEXT_SIZE = 24
BUCKETS = 64
BAR = 1.0


def run(repeat: int = 7) -> list[dict[str, Any]]:
    """Measure; one row per kind of key."""
    generator = np.random.default_rng(7)
    numbers = pa.array(generator.integers(-(2**63), 2**63 - 1, ROWS))
    letters = generator.integers(ord("a"), ord("z") + 1, ROWS * TEXT_SIZE, dtype=np.uint8)
    offsets = np.arange(ROWS + 1, dtype=np.int32) * np.int32(TEXT_SIZE)
    texts = pa.Array.from_buffers(pa.string(), ROWS, [None, pa.py_buffer(offsets), pa.py_buffer(letters)])
    with ThreadPoolExecutor(2) as executor:
        return [
            _compare("hash and bucket of 10 M BIGINT", numbers, BIGINT, executor, repeat),
            _compare("hash and bucket of 10 M strings of 24 characters", texts, STRING, executor, repeat),
        ]


def _compare(work: str, keys: pa.Array, dtype: DataType, executor: ThreadPoolExecutor, repeat: int) -> dict[str, Any]:
    series = pl.Series(keys)
    ours, floor = [], []
    for _ in range(repeat):
        ours.append(
            _seconds(
                lambda: assign_buckets(
                    [keys], [dtype], function=BucketFunction.DEFAULT, count=BUCKETS, executor=executor
                )
            )
        )
        floor.append(_seconds(series.sort))
    ours_s, floor_s = statistics.median(ours), statistics.median(floor)
    return {"work": work, "ours_s": ours_s, "floor_s": floor_s, "ratio": ours_s / floor_s, "bar": BAR}


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    for row in run():
        print(row)
