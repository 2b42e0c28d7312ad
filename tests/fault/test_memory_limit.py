"""Memory is bounded: ten times the data is written and read as a stream within the same hard limit.

The limit is far below the size of the data, and it is a real one: who gathers all rows in memory dies of it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fault import memory_child
from fault.memory_child import BATCH_BYTES, ROWS

HEADROOM_MB = {"parquet": 64, "orc": 64, "avro": 160}
"""Avro is decoded in pieces of 32 MB, of which several copies live at a time."""
FEW, MANY = 6, 60


def run(what: str, kind: str, count: int, location: Path) -> subprocess.CompletedProcess[str]:
    # Memory is asked of the system as it is needed: pools that reserve a gigabyte ahead would hide what is used.
    calm = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2", "POLARS_MAX_THREADS": "2"}
    return subprocess.run(
        [sys.executable, memory_child.__file__, what, kind, str(count), str(HEADROOM_MB[kind]), str(location)],
        capture_output=True,
        text=True,
        env={**os.environ, **calm},
        check=False,
        timeout=120,
        preexec_fn=_small_stacks,
    )


def _small_stacks() -> None:
    # The stack of a thread counts whole, used or not; how large it is was decided when the process began.
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))


@pytest.mark.parametrize("kind", HEADROOM_MB)
def test_ten_times_the_data_is_written_and_read_within_the_same_limit(kind: str, tmp_path: Path) -> None:
    assert 1.4 * (HEADROOM_MB[kind] << 20) < MANY * BATCH_BYTES
    for count in (FEW, MANY):
        done = run("stream", kind, count, tmp_path / str(count))
        assert done.returncode == 0, (count, done.stderr[-2000:])
        assert int(done.stdout) == count * ROWS
    gathered = run("gather", kind, MANY, tmp_path / str(MANY))
    assert gathered.returncode != 0
    assert any(word in gathered.stderr for word in ("MemoryError", "alloc"))
