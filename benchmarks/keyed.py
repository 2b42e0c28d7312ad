"""Primary-key tables: load, upserts, merge on read, look-ups, compaction.

Floors are plain Parquet: Polars scanning the rows as they are once merged, Polars hashing, sorting and writing them,
pyarrow copying the files of a compaction. Keys of the load come in random order; upserts are of random keys.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import tidelake as tl
from benchmarks.peers import Peer
from benchmarks.rows import COLUMNS, sample
from benchmarks.timing import Result, interleaved, result
from tidelake.table import Table

ROWS = int(os.environ.get("TIDELAKE_BENCH_ROWS", "10000000"))
"""Fewer are for trying things out: the bars are those of ten million."""
UPSERT, BUCKETS, RUNS = ROWS // 40, 4, 4
SLACK = 0.03
KINDS: dict[str, dict[str, str]] = {
    "int": {},
    "string": {},
    "composite": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.i.aggregate-function": "sum",
        "fields.d.aggregate-function": "max",
        "fields.m.aggregate-function": "sum",
        "fields.c.aggregate-function": "last_value",
        "fields.s.aggregate-function": "last_non_null_value",
    },
}


# ------------------------------------------------------------------------------------------------ data


def keyed(rows: pa.Table, kind: str) -> pa.Table:
    """With a key of text, or of a text and a number, in place of the number."""
    if kind == "string":
        text = pl.select(pl.lit("user-") + pl.Series(rows["k"]).cast(pl.String).str.zfill(12)).to_series()
        return rows.set_column(0, "k", text.to_arrow().cast(pa.string()))
    if kind == "composite":
        number = pl.Series(rows["k"])
        shop = pl.select(pl.lit("shop-") + (number // 1000).cast(pl.String).str.zfill(6)).to_series()
        rows = rows.set_column(0, "k", (number % 1000).cast(pl.Int32).to_arrow())
        return rows.add_column(0, "shop", shop.to_arrow().cast(pa.string()))
    return rows


def columns(kind: str) -> dict[str, str]:
    match kind:
        case "string":
            return {**COLUMNS, "k": "STRING"}
        case "composite":
            return {"shop": "STRING", **COLUMNS, "k": "INT"}
    return dict(COLUMNS)


def keys(kind: str) -> list[str]:
    return ["shop", "k"] if kind == "composite" else ["k"]


def shuffled(rows: int = ROWS) -> pa.Table:
    """The rows of a load, keys in random order."""
    order = np.random.default_rng(3).permutation(rows)
    return sample(rows).take(pa.array(order)).combine_chunks()


def upserts(rows: int = ROWS, count: int = UPSERT) -> Iterator[pa.Table]:
    """New versions of random keys, for ever."""
    rng = np.random.default_rng(1)
    fresh = sample(count)
    while True:
        yield fresh.set_column(0, "k", pa.array(rng.choice(rows, count, replace=False)))


def create(folder: Path, kind: str = "int", name: str = "bench.t", **options: str) -> Table:
    settings = {"bucket": str(BUCKETS), **KINDS[kind], **options}
    return tl.connect(folder).create_table(name, columns(kind), primary_key=keys(kind), options=settings)


def layered(folder: Path, kind: str, data: pa.Table) -> Table:
    """A compacted load with four upserts over it that nothing compacted."""
    table = create(folder, kind)
    table.write(keyed(data, kind))
    table.compact(full=True)
    quiet = table.with_options({"write-only": "true"})
    for _, rows in zip(range(RUNS), upserts(), strict=False):
        quiet.write(keyed(rows, kind))
    return tl.connect(folder).table("bench.t")


# ------------------------------------------------------------------------------------------------ the runs


def run(peer: Peer | None, repeat: int = 7) -> list[Result]:
    data = shuffled()
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        results += _load(folder, data, repeat)
        results += _merging(folder, data, peer, repeat)
        results += _upserting(folder, data, peer, min(repeat, 3))
    results.append(_bounded())
    return results


def _merging(folder: Path, data: pa.Table, peer: Peer | None, repeat: int) -> list[Result]:
    results: list[Result] = []
    plain = folder / "plain.parquet"
    tables: dict[str, Table] = {}
    for kind in KINDS:
        tables[kind] = layered(folder / kind, kind, data)
    for kind, bar in (("int", 2.2), ("string", 3.5), ("composite", 3.5)):
        pq.write_table(tables[kind].to_arrow(), plain, compression="zstd", compression_level=1)
        runs: dict[str, Callable[[], object]] = {
            "polars": lambda: pl.scan_parquet(plain).collect().height,
            "tidelake": lambda kind=kind: tables[kind].to_arrow().num_rows,
        }
        engine = _sql(peer, folder / kind, "SELECT * FROM paimon.bench.t")
        times = interleaved({**runs, **engine}, repeat)
        results += _two(f"merge on read, {kind} key, all columns", times, "polars", bar, "pypaimon SQL", 1)
        wanted = [*keys(kind), "m"]
        runs = {
            "polars": lambda wanted=wanted: pl.scan_parquet(plain).select(wanted).collect().height,
            "tidelake": lambda kind=kind: tables[kind].to_arrow(columns=["m"]).num_rows,
        }
        engine = _sql(peer, folder / kind, "SELECT m FROM paimon.bench.t")
        times = interleaved({**runs, **engine}, repeat)
        results += _two(f"merge on read, {kind} key, one column", times, "polars", 3, "pypaimon SQL", 0.5)
    runs = {
        kind: lambda kind=kind: tables[kind].to_arrow().num_rows
        for kind in KINDS
        if kind not in ("string", "composite")
    }
    times = interleaved(runs, repeat)
    for kind in ("partial-update", "aggregation"):
        pair = {"tidelake": times[kind], "deduplicate": times["int"]}
        results.append(result(f"merge on read, {kind}", pair, "deduplicate", 2))
    for kind in ("string", "composite", "partial-update", "aggregation"):
        shutil.rmtree(folder / kind)
    results += _compaction(folder, tables["int"], repeat=min(repeat, 5))
    return [*results, *_looking_up(tables["int"], repeat), *_small(folder, repeat)]


def _load(folder: Path, data: pa.Table, repeat: int) -> list[Result]:
    frame = pl.from_arrow(data)
    assert isinstance(frame, pl.DataFrame)

    def plain() -> None:
        target = folder / "floor"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        parts = frame.with_columns(bucket=pl.col("k").hash() % BUCKETS).partition_by("bucket", include_key=False)
        for number, part in enumerate(parts):
            path = target / f"{number}.parquet"
            part.sort("k").write_parquet(path, compression="zstd", compression_level=1)
            _sync(path)

    def ours() -> None:
        shutil.rmtree(folder / "load", ignore_errors=True)
        create(folder / "load").write(data)

    times = interleaved({"polars": plain, "tidelake": ours}, min(repeat, 5))
    assert tl.connect(folder / "load").table("bench.t").count() == ROWS
    shutil.rmtree(folder / "load")
    shutil.rmtree(folder / "floor")
    return [result(f"load of {ROWS:,} rows into {BUCKETS} buckets", times, "polars", 1.3)]


def _upserting(folder: Path, data: pa.Table, peer: Peer | None, repeat: int) -> list[Result]:
    """Ten upserts with the compactions that fall due, then a read of everything."""
    loaded = create(folder / "loaded")
    loaded.write(data)
    loaded.compact(full=True)
    parts = [part for part, _ in zip(upserts(), range(10), strict=False)]

    def fresh() -> Table:
        target = folder / "upserted"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder / "loaded", target, copy_function=os.link)
        return tl.connect(target).table("bench.t")

    def ours() -> float:
        table = fresh()
        started = time.perf_counter()
        for part in parts:
            table.write(part)
        assert table.to_arrow().num_rows == ROWS
        return time.perf_counter() - started

    runs: dict[str, Callable[[], object]] = {"tidelake": ours}
    results: list[Result] = []
    if peer is not None:
        load, news = folder / "load.parquet", folder / "news"
        pq.write_table(data, load)
        news.mkdir()
        for number, part in enumerate(parts):
            pq.write_table(part, news / f"{number}.parquet")
        peer.ask("delta_load", path=str(folder / "delta"), source=str(load))
        runs["deltalake"] = lambda: peer.seconds("delta_upserts", path=str(folder / "delta"), news=str(news))
        peer.ask("paimon_load", warehouse=str(folder / "theirs"), source=str(load), buckets=BUCKETS)
        runs["pypaimon native"] = lambda: peer.seconds(
            "paimon_upserts", warehouse=str(folder / "theirs"), news=str(news)
        )
    times = interleaved(runs, repeat)
    work = "ten upserts of 250,000 rows, then a full read"
    results += [result(work, times, other, 1) for other in ("deltalake", "pypaimon native") if other in times]
    if not results:
        results.append(Result(work, statistics.median(times["tidelake"]), "-", None, None, "", None))
    return [*results, *_waiting(fresh, parts, repeat)]


def _waiting(fresh: Callable[[], Table], parts: list[pa.Table], repeat: int) -> list[Result]:
    """How long the longest of ten commits takes: of a stream, whose compactions run beside, and of single writes."""
    worst: dict[str, list[float]] = {"a stream": [], "single writes": []}
    for _ in range(repeat):
        table = fresh()
        write, commit = table.new_write("bench"), table.new_commit("bench")
        single = []
        for number, part in enumerate(parts):
            before = time.perf_counter()
            write.write(part)
            commit.commit(write.prepare_commit(number), identifier=number)
            single.append(time.perf_counter() - before)
        write.close()
        worst["a stream"].append(max(single) / statistics.median(single))
        table, single = fresh(), []
        for part in parts:
            before = time.perf_counter()
            table.write(part)
            single.append(time.perf_counter() - before)
        worst["single writes"].append(max(single) / statistics.median(single))
    return [
        Result(f"longest of ten upserts, {name}", 0.0, "median", None, value, "<= 3 x", value <= 3)
        for name, value in ((name, statistics.median(values)) for name, values in worst.items())
    ]


def _compaction(folder: Path, table: Table, repeat: int) -> list[Result]:
    live = _live_files(table)
    large = [path for path in live if path.stat().st_size > 20 << 20]

    def copy_one(place: list[Path]) -> None:
        target = folder / "copy" / place[0].parent.name
        target.mkdir(parents=True)
        for path in place:  # what is new is read, what stays is read and written
            rows = pq.read_table(path, page_checksum_verification=True, use_threads=False)
            if path in large:
                new = target / path.name
                pq.write_table(
                    rows, new, compression="zstd", compression_level=1, write_page_checksum=True, store_schema=False
                )
                _sync(new)

    def plain() -> None:
        shutil.rmtree(folder / "copy", ignore_errors=True)
        places: dict[str, list[Path]] = {}
        for path in live:
            places.setdefault(path.parent.name, []).append(path)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(copy_one, places.values()))

    def ours() -> float:
        target = folder / "compacted"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder / "int", target, copy_function=os.link)
        copied = tl.connect(target).table("bench.t")
        started = time.perf_counter()
        copied.compact(full=True)
        return time.perf_counter() - started

    times = interleaved({"pyarrow": plain, "tidelake": ours}, repeat)
    shutil.rmtree(folder / "copy")
    return [result("full compaction, checksums on", times, "pyarrow", 1.7)]


def _looking_up(table: Table, repeat: int) -> list[Result]:
    """One key of a compacted table, warm, and the bytes that are read for it."""
    table.compact(full=True)
    total = sum(path.stat().st_size for path in _live_files(table))
    wanted = [int(key) for key in np.random.default_rng(5).integers(0, ROWS, 20)]
    numbers = iter(wanted * repeat)

    def ours() -> None:
        assert table.to_arrow(where=f"k = {next(numbers)}").num_rows == 1

    ours()
    times = interleaved({"tidelake": ours}, repeat)["tidelake"]
    before = _bytes_read()
    for key in wanted:
        assert table.to_arrow(where=f"k = {key}").num_rows == 1
    share = (_bytes_read() - before) / len(wanted) / total
    median = statistics.median(times)
    return [
        Result("look-up of one key, warm", median, "-", None, None, "<= 40 ms", median <= 0.04),
        Result("bytes that it reads", 0.0, "the table", None, share, "<= 2.5 %", share <= 0.025),
    ]


def _small(folder: Path, repeat: int) -> list[Result]:
    """100 rows into 10 M, and into an empty table."""
    part = next(upserts(count=100))
    times: dict[str, list[float]] = {"empty": [], "tidelake": []}
    reads = 0
    for number in range(repeat):
        empty = create(folder / f"empty{number}")
        full = folder / f"full{number}"
        shutil.copytree(folder / "int", full, copy_function=os.link)
        filled = tl.connect(full).table("bench.t")
        for warm in (empty, filled):
            warm.write(part)
        for name, target in (("empty", empty), ("tidelake", filled)):
            before = _bytes_read()
            times[name] += interleaved({name: lambda target=target: target.write(part)}, 1)[name]
            if name == "tidelake":
                reads = max(reads, _bytes_read() - before)
        shutil.rmtree(full)
    note = f"{reads:,} bytes read, all of them metadata"
    return [result("upsert of 100 rows into 10 M", times, "empty", 1.2, note)]


_STREAM = """
import sys
import tidelake as tl
from benchmarks.keyed import KINDS, columns, keys, upserts, create
from pathlib import Path
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
rows = int(sys.argv[2])
if sys.argv[3] == "write":
    from benchmarks.keyed import shuffled
    data = shuffled(rows)
    t = create(Path(sys.argv[1]), bucket="1")
    t.write(data)
    t.compact(full=True)
    quiet = t.with_options({"write-only": "true"})
    for _, part in zip(range(4), upserts(rows, rows // 40)):
        quiet.write(part)
else:
    t = tl.connect(sys.argv[1]).table("bench.t")
    if sys.argv[3] == "read":
        assert sum(batch.num_rows for batch in t.to_batches()) == rows
    else:
        t.compact(full=True)
print(peak() / 1024)
"""


def _bounded() -> Result:
    """Peak memory of a merge and of a compaction of 1 M and of 10 M rows in one bucket, each in its own process."""
    peaks: dict[str, list[float]] = {"read": [], "compact": []}
    with tempfile.TemporaryDirectory() as scratch:
        for rows in (ROWS // 10, ROWS):
            for work in ("write", "read", "compact"):
                done = subprocess.run(
                    [sys.executable, "-c", _STREAM, f"{scratch}/{rows}", str(rows), work],
                    capture_output=True,
                    text=True,
                    check=True,
                    cwd=Path(__file__).parent.parent,
                )
                if work != "write":
                    peaks[work].append(float(done.stdout))
    ratio = max(large / small for small, large in peaks.values())
    note = ", ".join(f"{work}: {small:.0f} MB, {large:.0f} MB" for work, (small, large) in peaks.items())
    return Result("peak memory of a merge of 10 x the rows", 0.0, "1 x", None, ratio, "<= 1.5 x", ratio <= 1.5, note)


# ------------------------------------------------------------------------------------------------ parts


def _sql(peer: Peer | None, folder: Path, query: str) -> dict[str, Callable[[], object]]:
    if peer is None:
        return {}
    return {"pypaimon SQL": lambda: peer.seconds("sql", warehouse=str(folder), query=query)}


def _two(
    work: str, times: dict[str, list[float]], floor: str, bar: float, other: str, other_bar: float
) -> list[Result]:
    mine, theirs = statistics.median(times["tidelake"]), statistics.median(times[floor])
    met = mine <= theirs * bar + SLACK
    found = [Result(work, mine, floor, theirs, mine / theirs, f"<= {bar:g} x + 30 ms", met)]
    if other in times:
        found.append(result(work, times, other, other_bar))
    return found


def _live_files(table: Table) -> list[Path]:
    folder = Path(table.location.removeprefix("file://"))
    return [folder / split.path_of(file) for split in table.scan().splits() for file in split.files]


def _bytes_read() -> int:
    with suppress(OSError), open("/proc/self/io") as counters:
        return next(int(line.split()[1]) for line in counters if line.startswith("rchar"))
    return 0


def _sync(path: Path) -> None:
    with path.open("rb") as written:
        os.fsync(written.fileno())
