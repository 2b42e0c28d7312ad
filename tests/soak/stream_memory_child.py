"""A driver that streams one table to another in tiny batches and measures its Python processes.

python stream_memory_child.py FOLDER BATCHES

It prints the measurements as JSON: of the process itself, where the sink is, and of the process of the source, each
after a fifth of the batches and after all of them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import tidelake as tl
from kit.spark_cluster import children, command

ROLE = "python_streaming_source_runner"


def measure(pid: int) -> dict[str, int]:
    """The resident memory in kilobytes and the number of open files of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return {"kb": int(resident.split()[1]), "files": len(list(Path(f"/proc/{pid}/fd").iterdir()))}


def find_descendants(pid: int) -> list[int]:
    """All processes below one."""
    return [each for child in children(pid) for each in (child, *find_descendants(child))]


def measure_both(pid: int) -> dict[str, Any]:
    """The measurements of the sink and of the source."""
    [source] = [each for each in find_descendants(pid) if ROLE in command(each) and "java" not in command(each)[:200]]
    return {"sink": measure(pid), "source": measure(source)}


def wait_for(query: Any, batches: int) -> None:
    """Wait until a query has done so many batches.

    Raises:
        RuntimeError: it has ended before.
    """
    while query.lastProgress is None or query.lastProgress["batchId"] + 1 < batches:
        if not query.isActive:
            raise RuntimeError(f"the query ended: {query.exception()}")
        time.sleep(0.05)  # noqa: TID251 - another process runs the batches


def main(folder: str, count: str) -> None:
    """Stream a table of so many snapshots, one in each batch."""
    batches, lake = int(count), tl.connect(Path(folder) / "lake")
    spark = tl.spark(lake, master="local[2]", conf={"spark.sql.shuffle.partitions": 1, "spark.driver.memory": "768m"})
    spark.sparkContext.setLogLevel("OFF")
    frame = lake.stream(
        "db.from", spark, **{"scan.snapshot-id": 1, "read.stream.maxFilesPerTrigger": 1, "consumer-id": "c"}
    )
    query = tl.stream_to(frame, lake.table("db.to"), checkpoint=Path(folder) / "checkpoint")
    found = []
    for mark in (batches // 5, batches):
        wait_for(query, mark)
        found.append(measure_both(os.getpid()))
    query.stop()
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
