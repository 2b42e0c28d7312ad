"""Memory is bounded: ten times the data is written, merged, compacted and read as a stream within the same hard limit.

The limit is far below the size of the data, and it is a real one: who gathers all rows in memory dies of it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fault import keyed_memory_child, memory_child
from fault.keyed_memory_child import OVERLAYS, ROW_BYTES, total
from fault.memory_child import BATCH_BYTES, ROWS

pytestmark = pytest.mark.long

HEADROOM_MB = {"parquet": 64, "orc": 64, "avro": 160}
"""Avro is decoded in pieces of 32 MB, of which several copies live at a time."""
FEW, MANY = 6, 60
KEYED_HEADROOM_MB = {"merge": 80, "compact": 80, "write": 120}
"""A write keeps a piece of every part that it has put aside on disk."""
FEW_ROWS, MANY_ROWS = 200_000, 2_000_000


def run(what: str, kind: str, count: int, location: Path) -> subprocess.CompletedProcess[str]:
    return child(memory_child.__file__, what, kind, str(count), str(HEADROOM_MB[kind]), str(location))


def run_keyed(what: str, rows: int, headroom_mb: int, location: Path) -> subprocess.CompletedProcess[str]:
    return child(keyed_memory_child.__file__, what, str(rows), str(headroom_mb), str(location))


def child(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Memory is asked of the system as it is needed: pools that reserve a gigabyte ahead would hide what is used.
    calm = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2", "POLARS_MAX_THREADS": "2"}
    paths = os.pathsep.join([str(Path(memory_child.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **calm, "PYTHONPATH": paths.rstrip(os.pathsep)},
        check=False,
        timeout=280,
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


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Lakes with a table of few and of many rows: one bucket, a base run and some over it."""
    lakes = {rows: tmp_path_factory.mktemp(f"keyed{rows}") for rows in (FEW_ROWS, MANY_ROWS)}
    for rows, lake in lakes.items():
        done = run_keyed("fill", rows, 0, lake)
        assert done.returncode == 0, done.stderr[-2000:]
    return lakes


@pytest.mark.parametrize("what", ["merge", "write", "compact"])
def test_ten_times_the_rows_of_a_bucket_within_the_same_limit(what: str, filled: dict[int, Path]) -> None:
    limit = KEYED_HEADROOM_MB[what]
    assert (limit << 20) < MANY_ROWS * ROW_BYTES * (1 if what == "write" else 1 + OVERLAYS / 10)
    grown = {}
    for rows, lake in filled.items():
        done = run_keyed(what, rows, limit, lake)
        assert done.returncode == 0, (rows, done.stderr[-2000:])
        found, numbers, grown[rows] = map(int, done.stdout.split())
        assert (found, numbers) == ((rows, rows) if what == "write" else total(rows))
    print(f"{what}: grew by {grown} MB within {limit} MB")


def test_who_gathers_the_rows_of_that_bucket_dies_of_the_limit(filled: dict[int, Path]) -> None:
    gathered = run_keyed("gather", MANY_ROWS, KEYED_HEADROOM_MB["merge"], filled[MANY_ROWS])
    assert gathered.returncode != 0
    assert any(word in gathered.stderr for word in ("MemoryError", "alloc"))
