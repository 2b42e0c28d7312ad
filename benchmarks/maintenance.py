"""Maintenance of large tables: expiry of 1,000 snapshots, orphans of 100,000 files, system tables of 100,000 files."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import tidelake as tl
from benchmarks.lakes import fill, make_table
from benchmarks.timing import Result, interleaved, result

FEW, MANY = 100, 1_000
FILES = 100_000
WEEK_S = 7 * 86_400
SYSTEM_TABLES = ("files", "file_key_ranges", "partitions", "buckets", "manifests")


def run(repeat: int = 7) -> list[Result]:
    return [*_expiry(repeat), *_orphans(repeat), *_system_tables(repeat)]


# ------------------------------------------------------------------------------------------------ expiry


def _expiry(repeat: int) -> list[Result]:
    """Each snapshot replaces the file of the one before, so that an expiry deletes data files and manifests."""
    with tempfile.TemporaryDirectory() as scratch:
        made = {count: _overwritten(Path(scratch) / f"made-{count}", count) for count in (FEW, MANY)}

        def expire(count: int) -> Callable[[], float]:
            def once() -> float:
                folder = Path(scratch) / "copy"
                shutil.copytree(made[count], folder)
                try:
                    started = time.perf_counter()
                    _expire(folder)
                    return time.perf_counter() - started
                finally:
                    shutil.rmtree(folder)

            return once

        times = interleaved({"tidelake": expire(MANY), f"{FEW} snapshots": expire(FEW)}, repeat)
        grown = {count: _memory(made[count], Path(scratch) / f"measured-{count}") for count in (FEW, MANY)}
    more = grown[MANY] - grown[FEW]
    return [
        result(f"expire {MANY:,} snapshots", times, f"{FEW} snapshots", 12),
        Result(
            "memory of that expiry",
            0.0,
            f"{FEW} snapshots",
            None,
            None,
            "+ < 200 MB",
            more < 200,
            f"{more:.0f} MB more, {grown[MANY]:.0f} MB over imports",
        ),
    ]


def _overwritten(folder: Path, count: int) -> Path:
    lake = tl.connect(folder, storage={"durability": "none"})
    table = lake.create_table("bench.t", {"id": "BIGINT"}, options={"write-only": True})
    for number in range(count + 1):
        table.write([{"id": number}], mode="overwrite")
    return folder


def _expire(folder: Path) -> None:
    table = tl.connect(folder).table("bench.t")
    table.expire_snapshots("0 s", retain_max=1, retain_min=1, max_deletes=10 * MANY)
    assert len(table.inspect.snapshots()) == 1


_MEMORY = """
import sys
from pathlib import Path
import pyarrow.compute, polars, polars_avro, fastavro, tidelake as tl
import tidelake.table, tidelake.catalog.lake
from benchmarks.maintenance import _expire, peak_mb
before = peak_mb()
_expire(Path(sys.argv[1]))
print(peak_mb() - before)
"""


def peak_mb() -> float:
    # VmHWM starts from zero with the program; ru_maxrss is inherited from the process that started it.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def _memory(made: Path, folder: Path) -> float:
    shutil.copytree(made, folder)
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    return float(done.stdout)


# ------------------------------------------------------------------------------------------------ orphans


def _orphans(repeat: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as scratch:
        table = tl.connect(Path(scratch)).create_table("bench.t", {"id": "BIGINT", "dt": "STRING"}, partition_by=["dt"])
        table.write([{"id": number, "dt": f"d{number:03d}"} for number in range(100)])
        root = Path(table.location)
        old = time.time() - WEEK_S
        for day in range(100):
            folder = root / f"dt=d{day:03d}" / "bucket-0"
            for number in range(FILES // 100):
                path = folder / f"data-{day}-{number}.parquet"
                path.touch()
                os.utime(path, (old, old))

        def find() -> None:
            assert len(table.remove_orphans("1 d").paths) == FILES

        def walk() -> None:
            assert sum(1 for _ in _walk(str(root))) > FILES

        times = interleaved({"tidelake": find, "os.scandir": walk}, repeat)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [result(f"find {FILES:,} orphans", times, "os.scandir", 2, f"process {peak:.0f} MB at its peak")]


def _walk(folder: str) -> Iterator[tuple[str, int, float]]:
    """Every file with what decides whether it is an orphan: its path, size and time."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path)
            else:
                found = entry.stat(follow_symlinks=False)
                yield entry.path, found.st_size, found.st_mtime


# ------------------------------------------------------------------------------------------------ system tables


def _system_tables(repeat: int) -> list[Result]:
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        fill(make_table(folder), files=FILES, commits=100, days=100, scattered=False)

        def read(name: str) -> Callable[[], object]:
            return lambda: tl.connect(folder).table(f"bench.t${name}").to_arrow()

        for name in SYSTEM_TABLES:
            times = interleaved({"tidelake": read(name)}, repeat)["tidelake"]
            median = sorted(times)[repeat // 2]
            results.append(Result(f"${name} of {FILES:,} files", median, "-", None, None, "< 2 s", median < 2))
    return results
