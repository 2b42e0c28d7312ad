"""What changes cost: tables with deletion vectors, changelogs made by looking up, following, merges.

Floors are the same work without what is measured: the same files read as they are, the same upsert without vectors or
changelog, plus the reads and writes that nothing could do without.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import tidelake as tl
from benchmarks.keyed import ROWS, RUNS, UPSERT, _bytes_read, _live_files, create, shuffled, upserts
from benchmarks.peers import Peer
from benchmarks.rows import COLUMNS, sample
from benchmarks.timing import Result, interleaved, result
from tidelake.table import Table

SLACK = 0.03
MARKED = {"deletion-vectors.enabled": "true"}
LOOKED_UP = {"changelog-producer": "lookup"}
FOLLOWED = 1_000


def run(peer: Peer | None, repeat: int = 5) -> list[Result]:
    """Every line of the table."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data = shuffled()
        for name, options in (("plain", {}), ("marked", MARKED), ("looked-up", LOOKED_UP)):
            table = create(folder / name, **options)
            table.write(data)
            table.compact(full=True)
        return [
            *_reads(folder, repeat),
            *_upserts(folder, repeat),
            *_few_keys(folder),
            *_merges(folder, data, peer, min(repeat, 3)),
            *_following(folder),
        ]


def _fresh(folder: Path, name: str) -> Table:
    target = folder / "fresh"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder / name, target, copy_function=os.link)
    return tl.connect(target).table("bench.t")


# ------------------------------------------------------------------------------------------------ deletion vectors


def _reads(folder: Path, repeat: int) -> list[Result]:
    """Four upserts over the load, all of them marked; the same files read whole beside."""
    table = _fresh(folder, "marked")
    for _, part in zip(range(RUNS), upserts(), strict=False):
        table.write(part)
    files = [str(path) for path in _live_files(table)]
    names = list(COLUMNS)
    results = []
    for work, columns in (("all columns", None), ("one column", ["m"])):
        wanted = columns or names
        runs: dict[str, Callable[[], object]] = {
            "same files": lambda wanted=wanted: _read_verified(files, wanted),
            "Polars": lambda wanted=wanted: pl.scan_parquet(files).select(wanted).collect().height,
            "tidelake": lambda columns=columns: table.to_arrow(columns=columns).num_rows,
        }
        assert runs["tidelake"]() == ROWS
        times = interleaved(runs, repeat)
        ours = statistics.median(times["tidelake"])
        line = f"read with deletion vectors, {work}"
        for against, note in (("same files", "pyarrow, checksums verified"), ("Polars", "without checksums")):
            other = statistics.median(times[against])
            met = ours <= other * 1.3 + SLACK
            results.append(Result(line, ours, against, other, ours / other, "<= 1.3 x + 30 ms", met, note))
    return results


def _read_verified(files: list[str], columns: list[str]) -> int:
    """What our own reader does to files without vectors: all threads, every page checked, all rows in one table.

    Without keeping them the same memory would be used again for each file, and most of the time is spent on new memory.
    """
    tables = [pq.read_table(path, columns=columns, page_checksum_verification=True) for path in files]
    return pa.concat_tables(tables).num_rows


def _upserts(folder: Path, repeat: int) -> list[Result]:
    """One upsert of random keys, with and without what has to be looked up for it."""
    part = next(upserts())
    base = [str(path) for path in _live_files(tl.connect(folder / "plain").table("bench.t"))]
    known = pl.scan_parquet(base).select(list(COLUMNS)).filter(pl.col("k").is_in(pl.Series(part["k"]).implode()))
    changelog = pa.concat_tables([known.collect().to_arrow().cast(part.schema), part])

    def write(name: str) -> Callable[[], float]:
        def timed() -> float:
            table = _fresh(folder, name)
            started = time.perf_counter()
            table.write(part)
            return time.perf_counter() - started

        return timed

    def reading_keys() -> None:
        pl.scan_parquet(base).select("k").collect()

    def reading_all_and_writing() -> None:
        pl.scan_parquet(base).select(list(COLUMNS)).collect()
        pq.write_table(changelog, folder / "changes.parquet", compression="zstd", compression_level=1)

    times = interleaved(
        {
            "plain": write("plain"),
            "marked": write("marked"),
            "looked up": write("looked-up"),
            "keys": reading_keys,
            "rows": reading_all_and_writing,
        },
        repeat,
    )
    results = []
    for work, ours, floor in (
        (f"upsert of {UPSERT:,} random keys, deletion vectors", "marked", "keys"),
        (f"upsert of {UPSERT:,} random keys, lookup changelog", "looked up", "rows"),
    ):
        other = [one + two for one, two in zip(times["plain"], times[floor], strict=True)]
        pair = {"tidelake": times[ours], "floor": other}
        results.append(result(work, pair, "floor", 1.3, "floor: the upsert without, and what must be read and written"))
    return results


def _few_keys(folder: Path) -> list[Result]:
    """100 changed keys: the share of the table that is read for them."""
    rng = np.random.default_rng(3)
    kinds = {"close together": np.arange(ROWS // 2, ROWS // 2 + 100), "random": rng.choice(ROWS, 100, replace=False)}
    results = []
    for name in ("marked", "looked-up"):
        for work, keys in kinds.items():
            table = _fresh(folder, name)
            files = _live_files(table)
            total = sum(path.stat().st_size for path in files)
            key_bytes = sum(_column_bytes(path, "k") for path in files)
            before = _bytes_read()
            started = time.perf_counter()
            table.write(sample(100).set_column(0, "k", pa.array(keys)))
            seconds = time.perf_counter() - started
            share = (_bytes_read() - before) / total
            near = work == "close together"
            note = "" if near else f"the key columns are {key_bytes / total:.0%} of it"
            bar = "<= 5 %" if near else "keys and row groups hit"
            met = share <= 0.05 if near else None
            results.append(
                Result(f"100 keys {work}, {name}: share read", seconds, "the table", None, share, bar, met, note)
            )
    return results


def _column_bytes(path: Path, column: str) -> int:
    metadata = pq.ParquetFile(path).metadata
    place = metadata.schema.names.index(column)
    return sum(metadata.row_group(at).column(place).total_compressed_size for at in range(metadata.num_row_groups))


# ------------------------------------------------------------------------------------------------ merges


def _merges(folder: Path, data: pa.Table, peer: Peer | None, repeat: int) -> list[Result]:
    """One in a hundred rows merged into 10 M, by key and into an append table."""
    part = next(upserts(count=ROWS // 100))

    def timed(verb: Callable[[Table], object], name: str = "plain") -> Callable[[], float]:
        def run_once() -> float:
            table = _fresh(folder, name)
            started = time.perf_counter()
            verb(table)
            return time.perf_counter() - started

        return run_once

    def merge(table: Table) -> None:
        table.merge(part, on=["k"]).when_matched_update_all().when_not_matched_insert_all().run()

    times = interleaved({"write": timed(lambda table: table.write(part)), "tidelake": timed(merge)}, repeat)
    results = [result("merge of 1 % by key", times, "write", 1.5)]
    appended = tl.connect(folder / "appended").create_table("bench.t", dict(COLUMNS), options=MARKED)
    appended.write(data)
    runs: dict[str, Callable[[], object]] = {"tidelake": timed(merge, "appended")}
    if peer is not None:
        news, load = folder / "one", folder / "load.parquet"
        news.mkdir()
        pq.write_table(part, news / "0.parquet")
        pq.write_table(data, load)
        peer.ask("delta_load", path=str(folder / "delta"), source=str(load))
        runs["deltalake"] = lambda: peer.seconds(
            "delta_upserts", path=str(folder / "delta"), news=str(news), read=False
        )
    times = interleaved(runs, repeat)
    work = "merge of 1 % into an append table with deletion vectors"
    if peer is None:
        return [*results, Result(work, statistics.median(times["tidelake"]), "-", None, None, "", None)]
    return [*results, result(work, times, "deltalake", 1)]


# ------------------------------------------------------------------------------------------------ following


def _following(folder: Path) -> list[Result]:
    """A thousand snapshots of a row each, followed from the first, of an empty table and of a large one."""
    results = []
    for name, table in (
        ("an append table", tl.connect(folder / "small").create_table("bench.a", {"k": "BIGINT", "v": "STRING"})),
        (f"a key table of {ROWS:,} rows", _fresh(folder, "plain").with_options({"write-only": "true"})),
    ):
        first = (table.latest_snapshot().id if table.latest_snapshot() else 0) + 1
        row = sample(1) if "key" in name else pa.table({"k": pa.array([1]), "v": ["x"]})
        for _ in range(FOLLOWED):
            table.write(row)
        started = time.perf_counter()
        seen = sum(1 for change in table.follow(start=first, until="latest") if change.to_arrow().num_rows)
        seconds = time.perf_counter() - started
        assert seen == FOLLOWED, seen
        rate = FOLLOWED / seconds
        results.append(
            Result(
                f"{FOLLOWED:,} snapshots followed, {name}",
                seconds,
                "-",
                None,
                None,
                ">= 100 /s",
                rate >= 100,
                f"{rate:.0f} /s",
            )
        )
    return results
