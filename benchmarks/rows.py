"""Rows of append tables against plain pyarrow on the same files: write, read whole, one column, a narrow filter."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tidelake as tl
from benchmarks.peers import Peer, cached
from benchmarks.timing import Result, interleaved, result

ROWS = 10_000_000
COLUMNS = {
    "k": "BIGINT",
    "i": "INT",
    "d": "DOUBLE",
    "m": "DECIMAL(12,2)",
    "c": "STRING",
    "s": "STRING",
}


def sample(rows: int = ROWS) -> pa.Table:
    """A key, an int, a double, a decimal, a text of few values and one of 24 characters."""
    rng = np.random.default_rng(7)
    key = np.arange(rows, dtype=np.int64)
    cents = pa.array(rng.integers(0, 10_000_000, rows)).cast(pa.decimal128(20, 0))
    amount = pc.multiply(cents, pa.scalar(1, pa.decimal128(1, 0))).cast(pa.decimal128(22, 2))
    cities = pa.array([f"city-{i}" for i in range(20)])
    texts = pc.binary_join_element_wise(
        pa.array(rng.integers(10**11, 10**12, rows)).cast(pa.string()),
        pa.array(rng.integers(10**10, 10**11, rows)).cast(pa.string()),
        "-",
    )
    return pa.table(
        {
            "k": key,
            "i": rng.integers(0, 1_000_000, rows).astype(np.int32),
            "d": rng.random(rows),
            "m": pc.divide(amount, pa.scalar(100, pa.decimal128(3, 0))).cast(pa.decimal128(12, 2), safe=False),
            "c": cities.take(pa.array(rng.integers(0, 20, rows))),
            "s": texts,
        }
    )


def run(peer: Peer | None, repeat: int = 7) -> list[Result]:
    data = sample()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _write(folder / "ours", data)
        files = sorted((folder / "ours/bench.db/t/bucket-0").glob("*.parquet"))
        counts = [
            (pq.ParquetFile(f).metadata.num_rows, pq.ParquetFile(f).metadata.row_group(0).num_rows) for f in files
        ]
        results = [*_writing(folder, data, counts, repeat), *_reading(folder, files, repeat)]
        results.append(_bounded(folder))
    return [*results, *_quick_start(peer, repeat)]


def _write(folder: Path, data: pa.Table) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    tl.connect(folder).create_table("bench.t", COLUMNS).write(data)


def _writing(folder: Path, data: pa.Table, counts: list[tuple[int, int]], repeat: int) -> list[Result]:
    def plain() -> None:
        shutil.rmtree(folder / "plain", ignore_errors=True)
        (folder / "plain").mkdir()
        start = 0
        for number, (rows, group) in enumerate(counts):
            with pq.ParquetWriter(
                folder / f"plain/{number}.parquet",
                data.schema,
                version="1.0",
                compression="zstd",
                compression_level=1,
                write_page_checksum=True,
                store_schema=False,
                store_decimal_as_integer=True,
            ) as writer:
                writer.write_table(data.slice(start, rows), row_group_size=group)
            with (folder / f"plain/{number}.parquet").open("rb") as written:
                os.fsync(written.fileno())  # ours is durable too
            start += rows

    times = interleaved({"pyarrow": plain, "tidelake": lambda: _write(folder / "again", data)}, repeat)
    return [result(f"write {ROWS:,} rows x 6 columns", times, "pyarrow", 1.15)]


def _reading(folder: Path, files: list[Path], repeat: int) -> list[Result]:
    results = []
    filtered = pc.field("k") < ROWS // 1000
    cases = {
        "all columns": (None, None, None),
        "one column": (["m"], None, None),
        "a filter that keeps 0.1 %": (None, f"k < {ROWS // 1000}", filtered),
    }
    for name, (columns, where, expression) in cases.items():

        def ours(columns: list[str] | None = columns, where: str | None = where) -> int:
            return int(tl.connect(folder / "ours").table("bench.t").to_arrow(columns=columns, where=where).num_rows)

        def plain(columns: list[str] | None = columns, expression: pc.Expression | None = expression) -> int:
            table = pq.read_table(files, columns=columns, filters=expression, page_checksum_verification=True)
            return int(table.num_rows)

        assert ours() == plain()
        times = interleaved({"pyarrow": plain, "tidelake": ours}, repeat)
        mine, theirs = statistics.median(times["tidelake"]), statistics.median(times["pyarrow"])
        met = mine <= theirs * 1.15 + 0.03
        work = f"read {ROWS:,} rows, {name}"
        results.append(Result(work, mine, "pyarrow", theirs, mine / theirs, "<= 1.15 x + 30 ms", met))
    return results


_STREAM = """
import sys
import tidelake as tl
from benchmarks.rows import COLUMNS, sample
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
part = sample(200_000)
t = tl.connect(sys.argv[1]).create_table("bench.t", COLUMNS)
t.write(part for _ in range(int(sys.argv[2])))
rows = sum(batch.num_rows for batch in t.to_batches())
print(rows, peak() / 1024)
"""


def _bounded(folder: Path) -> Result:
    """Peak memory of a streamed write and read of 1 M and of 10 M rows, each in a process of its own."""
    peaks = []
    for parts in (5, 50):
        target = folder / f"stream{parts}"
        done = subprocess.run(
            [sys.executable, "-c", _STREAM, str(target), str(parts)],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parent.parent,
        )
        rows, peak = done.stdout.split()
        assert int(rows) == parts * 200_000
        peaks.append(float(peak))
    note = f"{peaks[0]:.0f} MB for 1 M rows, {peaks[1]:.0f} MB for 10 M"
    ratio = peaks[1] / peaks[0]
    return Result("peak memory of 10 x the data", 0.0, "1 x", None, ratio, "<= 1.5 x", ratio <= 1.5, note)


_QUICK = """
import sys
class NoPandas:
    # As `pip install tidelake` leaves it: where pandas is installed, pyarrow loads it with the first array.
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ImportError(name)
sys.meta_path.insert(0, NoPandas())
import tidelake as tl
tl.write_table(sys.argv[1] + "/db.db/t", [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}])
assert tl.open_table(sys.argv[1] + "/db.db/t").to_arrow().num_rows == 3
"""


def _quick_start(peer: Peer | None, repeat: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as scratch:

        def ours() -> None:
            target = tempfile.mkdtemp(dir=scratch)
            subprocess.run([sys.executable, "-c", _QUICK, target], check=True, env=cached())

        runs = {"tidelake": ours}
        if peer is not None:
            for name, script in (("deltalake", "quick_delta"), ("pypaimon", "quick_paimon")):
                runs[name] = lambda s=script: peer.run_script(s, tempfile.mkdtemp(dir=scratch))
        for run in runs.values():
            run()  # compiled modules are there from now on
        times = interleaved(runs, repeat)
    work = "quick start in a fresh process"
    if peer is None:
        return [Result(work, statistics.median(times["tidelake"]), "-", None, None, "", None)]
    return [result(work, times, "deltalake", 1.2), result(work, times, "pypaimon", 1 / 3)]
