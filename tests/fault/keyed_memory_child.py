"""One process that writes, merges or compacts a primary-key table under a hard limit, for `test_memory_limit`.

    python keyed_memory_child.py WHAT ROWS HEADROOM_MB LAKE

The limit is what the process has when everything is loaded and has been used once, and so many megabytes more. Prints
how many rows there were, what their numbers add up to, and by how many megabytes the process grew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import tidelake as tl
from fault.memory_child import limit_memory
from tidelake.table import Table

BATCH = 30_000
TEXT_BYTES = 48
ROW_BYTES = TEXT_BYTES + 24
OVERLAYS = 4
"""Runs over the base one, each with new versions of every tenth key."""
COLUMNS = {"k": "BIGINT NOT NULL", "n": "BIGINT", "s": "STRING"}
OPTIONS = {"bucket": "1", "target-file-size": "16 mb", "file.block-size": "2 mb", "write-buffer-size": "8 mb"}


def batches(keys: np.ndarray, number: int) -> Iterator[pa.RecordBatch]:
    """Rows for these keys, made as they are asked for."""
    chance = np.random.default_rng(number)
    for start in range(0, len(keys), BATCH):
        chosen = keys[start : start + BATCH]
        pool = chance.bytes(len(chosen) * TEXT_BYTES // 2).hex().encode()
        offsets = pa.array(np.arange(len(chosen) + 1) * TEXT_BYTES, pa.int32())
        texts = pa.StringArray.from_buffers(len(chosen), offsets.buffers()[1], pa.py_buffer(pool))
        yield pa.record_batch({"k": chosen, "n": np.full(len(chosen), number, np.int64), "s": texts})


def run_keys(rows: int, run: int) -> np.ndarray:
    """The keys of the base run (0), or those of one over it."""
    return np.arange(rows, dtype=np.int64) if run == 0 else np.arange(run, rows, 10, dtype=np.int64)


def total(rows: int) -> tuple[int, int]:
    """How many rows the merge has, and what their numbers add up to."""
    return rows, sum(run * len(run_keys(rows, run)) for run in range(1, OVERLAYS + 1))


def fill(lake: tl.Lake, name: str, rows: int) -> Table:
    """A table of one bucket with a base run and some over it."""
    options = {**OPTIONS, "write-only": "true", "write-buffer-size": "2 gb"}
    table = lake.create_table(name, COLUMNS, primary_key=["k"], options=options)
    for run in range(OVERLAYS + 1):
        table.write(batches(run_keys(rows, run), run))
    return table.with_options({"write-only": "false"})


def shuffled(rows: int) -> np.ndarray:
    """All keys in an order that no two neighbours keep."""
    step = 1_000_003
    return (np.arange(rows, dtype=np.int64) * step) % rows


def summed(table: Table) -> tuple[int, int]:
    """Rows and the sum of their numbers, read as a stream."""
    rows = numbers = 0
    for batch in table.to_batches():
        rows += batch.num_rows
        numbers += int(batch.column("n").to_numpy().sum())
    return rows, numbers


def act(lake: tl.Lake, what: str, name: str, rows: int) -> tuple[int, int]:
    """One thing to do with a table."""
    match what:
        case "merge":
            return summed(lake.table(name))
        case "compact":
            table = lake.table(name).with_options({"write-only": "false"})
            table.compact(full=True)
            levels = set(table.inspect.lsm()["level"].to_pylist())
            assert 0 not in levels, levels
            return total(rows)
        case "write":
            table = lake.create_table(name, COLUMNS, primary_key=["k"], options=OPTIONS)
            written = table.write(batches(shuffled(rows), 1)).rows
            assert written >= rows, written
            return rows, rows
    gathered = lake.table(name).to_arrow()
    return gathered.num_rows, 0


def peak_mb() -> float:
    """The largest resident size so far."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def main(what: str, rows: int, headroom_mb: int, location: str) -> None:
    """Do one thing to the table and print what came of it."""
    lake = tl.connect(location)
    if what == "fill":
        fill(lake, "d.t", rows)
        return
    warm = fill(lake, f"warm.{what}", 1_000)
    assert summed(warm) == total(1_000)
    warm.compact(full=True)
    act(lake, "write", f"warm.{what}_write", 1_000)
    limit_memory(headroom_mb)
    before = peak_mb()
    found = act(lake, what, "d.t" if what != "write" else "d.w", rows)
    print(*found, round(peak_mb() - before))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
