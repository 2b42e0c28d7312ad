"""One process that writes and reads a table of some size under a hard limit of memory, for `test_memory_limit`.

    python memory_child.py WHAT KIND BATCHES HEADROOM_MB LAKE

The limit is what the process has when everything is loaded and has been used once, and so many megabytes more.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import tidelake as tl

ROWS = 10_000
TEXT_BYTES = 400
BATCH_BYTES = ROWS * (TEXT_BYTES + 16)
COLUMNS = {"id": "BIGINT", "x": "DOUBLE", "s": "STRING"}
OPTIONS = {"target-file-size": "4 mb", "file.block-size": "1 mb"}


def batches(count: int) -> Iterator[pa.RecordBatch]:
    """Rows, made as they are asked for."""
    chance = np.random.default_rng(1)
    for number in range(count):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        # New digits each time: what repeats itself would be small in storage, and many rows a unit of it.
        pool = chance.bytes(ROWS * TEXT_BYTES // 2).hex()
        texts = pa.array([pool[start : start + TEXT_BYTES] for start in range(0, len(pool), TEXT_BYTES)])
        yield pa.record_batch({"id": ids, "x": chance.random(ROWS), "s": texts})


def limit_memory(headroom_mb: int) -> None:
    """From now on the process may take so much more than it has."""
    status = Path("/proc/self/status").read_text().splitlines()
    now = next(int(line.split()[1]) for line in status if line.startswith("VmData")) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (now + (headroom_mb << 20),) * 2)


def main(what: str, kind: str, count: int, headroom_mb: int, location: str) -> None:
    """Do one thing to the table and print how many rows there were."""
    lake = tl.connect(location)
    options = {**OPTIONS, "file.format": kind}
    warm = lake.create_table(f"warm.{what}", COLUMNS, options=options)
    warm.write(batches(1))
    assert sum(batch.num_rows for batch in warm.to_batches()) == ROWS
    limit_memory(headroom_mb)
    name = f"d.{kind}"
    if what == "stream":
        assert lake.create_table(name, COLUMNS, options=options).write(batches(count)).rows == count * ROWS
        rows = sum(batch.num_rows for batch in lake.table(name).to_batches())
    else:
        rows = lake.table(name).to_arrow().num_rows
    print(rows)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
