"""Plan a table of 100,000 files with a partition filter, cold: a fresh handle each time, nothing remembered.

Also how little of the manifests such a plan reads once they are sorted.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tidelake as tl
from benchmarks.lakes import fill, make_table
from benchmarks.peers import Peer
from benchmarks.timing import Result, interleaved, result
from tidelake.ops.scan.partitions import PartitionPredicate
from tidelake.ops.scan.plan import data_manifests
from tidelake.spec.data_file import data_files
from tidelake.table import Table

FILES, COMMITS, DAYS = 100_000, 100, 100
DAY = "d00042"


def plan(folder: Path) -> int:
    """What a reader needs: the surviving files as values."""
    table = tl.connect(folder).table("bench.t")
    entries = table.files(where=tl.col("dt") == DAY)
    return len(data_files(entries))


def run(peer: Peer | None, repeat: int = 7) -> list[Result]:
    results: list[Result] = []
    for shape, bar in (("clustered", 1.5), ("scattered", 2.0)):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            fill(make_table(folder), files=FILES, commits=COMMITS, days=DAYS, scattered=shape == "scattered")
            assert plan(folder) == FILES // DAYS
            work = f"plan {FILES:,} files, {shape}"
            if peer is None:
                times = interleaved({"tidelake": lambda f=folder: plan(f)}, repeat)
                median = sorted(times["tidelake"])[repeat // 2]
                results.append(Result(work, median, "-", None, None, "", None))
            else:
                results += _against(peer, work, folder, bar, repeat)
            results.append(_memory(folder, shape))
    results.append(_sorted_manifests())
    return results


def _sorted_manifests() -> Result:
    """Sort the manifests of scattered files, and measure how many bytes of them a plan of one day needs."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        options = {"manifest.target-file-size": "256 kb", "manifest.merge-min-count": "1000000"}
        fill(make_table(folder, options=options), files=FILES, commits=COMMITS, days=DAYS, scattered=True)
        table = tl.connect(folder).table("bench.t")
        before = _manifest_share(table)
        started = time.perf_counter()
        table.compact_manifests(sort=True)
        seconds = time.perf_counter() - started
        share = _manifest_share(table)
        assert plan(folder) == FILES // DAYS
    note = f"one day needs {share:.1%} of the manifest bytes, before {before:.0%}"
    return Result(f"sort the manifests of {FILES:,} files", seconds, "-", None, None, "< 5 %", share < 0.05, note)


def _manifest_share(table: Table) -> float:
    """The share of the manifest bytes that a plan of one day reads."""
    metas = data_manifests(table.store.manifests, table.latest_snapshot())
    schema = table.schema
    chosen = PartitionPredicate(tl.col("dt") == DAY, tuple(schema.partition_keys), tuple(schema.partition_types))
    return sum(each.file_size for each in chosen.prune(metas)) / sum(each.file_size for each in metas)


def _against(peer: Peer, work: str, folder: Path, bar: float, repeat: int) -> list[Result]:
    arguments = {"warehouse": str(folder), "name": "bench.t", "day": DAY}
    for native in (True, False):
        answer = peer.ask("plan", native=native, **arguments)
        assert answer["files"] == FILES // DAYS, answer
    times = interleaved(
        {
            "tidelake": lambda: plan(folder),
            "pypaimon native": lambda: peer.seconds("plan", native=True, **arguments),
        },
        repeat,
    )
    slow = interleaved({"pypaimon Python": lambda: peer.seconds("plan", native=False, **arguments)}, 2)
    return [
        result(work, times, "pypaimon native", bar),
        result(work, times | slow, "pypaimon Python", 0.1),
    ]


_MEMORY = """
import sys
import pyarrow.compute, polars, polars_avro, fastavro, tidelake as tl
import tidelake.table, tidelake.catalog.lake
from pathlib import Path
from benchmarks.planning import plan
def peak():
    # VmHWM starts anew with the program; ru_maxrss is inherited from whoever started it.
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
plan(Path(sys.argv[1]))
print((peak() - before) / 1024)
"""


def _memory(folder: Path, shape: str) -> Result:
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY, str(folder)], capture_output=True, text=True, check=True, cwd=root
    )
    peak = float(done.stdout)
    note = f"{peak:.0f} MB over imports"
    return Result(f"memory of that plan, {shape}", 0.0, "-", None, None, "< 300 MB", peak < 300, note)
