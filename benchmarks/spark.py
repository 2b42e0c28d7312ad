"""Tables on Spark against plain Parquet on the same session: scans, merges, writes, upserts, compaction.

Floors are Spark's own reader and writer; rows go nowhere (`noop`) where they are only read. Contenders take turns.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import tidelake as tl
from benchmarks.keyed import BUCKETS, ROWS, UPSERT, create, keyed, layered, shuffled, upserts
from benchmarks.rows import COLUMNS
from benchmarks.timing import Result, interleaved
from tidelake.table import Table

SLACK = 0.3
Run = Callable[[], object]


def run(repeat: int = 5) -> list[Result]:
    """Every line of the table."""
    return _measured(_all, repeat)


def run_changes(repeat: int = 5) -> list[Result]:
    """The lines of tables with deletion vectors."""
    return _measured(_vectors, repeat)


def run_streams(repeat: int = 7) -> list[Result]:
    """The lines of streams."""
    from benchmarks.spark_streams import lines

    return _measured(lines, repeat)


def _measured(lines: Callable[[Path, Any, int], list[Result]], repeat: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        lake = tl.connect(folder / "lake")
        spark = tl.spark(lake, conf={"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": BUCKETS})
        spark.sparkContext.setLogLevel("ERROR")
        try:
            return lines(folder, spark, repeat)
        finally:
            spark.stop()


def _all(folder: Path, spark: Any, repeat: int) -> list[Result]:
    data = shuffled()
    source = folder / "source.parquet"
    pq.write_table(data, source, compression="zstd", compression_level=1, row_group_size=1 << 20)
    tables = {kind: layered(folder / kind, kind, data) for kind in ("int", "partial-update", "aggregation")}
    del data
    compacted = folder / "compacted"
    shutil.copytree(folder / "int", compacted, copy_function=os.link)
    whole = tl.connect(compacted).table("bench.t")
    whole.compact(full=True)
    plain = folder / "plain"
    _noop(spark.read.parquet(str(source)))
    whole.to_spark(spark=spark).write.parquet(str(plain), compression="zstd")
    return [
        *_scans(spark, whole, repeat),
        *_merges(spark, tables, plain, repeat),
        *_writes(folder, spark, source, repeat),
        *_upserts(folder, spark, compacted, repeat),
        *_compaction(folder, spark, tables["int"], min(repeat, 3)),
    ]


def _noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _line(work: str, runs: dict[str, Run], bar: float, repeat: int, slack: float = SLACK) -> Result:
    for each in runs.values():
        each()
    times = interleaved(runs, repeat)
    ours, other = statistics.median(times["tidelake"]), statistics.median(times["spark"])
    allowed = f"<= {bar:g} x" + (f" + {slack:g} s" if slack else "")
    return Result(work, ours, "spark", other, ours / other, allowed, ours <= other * bar + slack)


# ------------------------------------------------------------------------------------------------ reads


def _scans(spark: Any, table: Table, repeat: int) -> list[Result]:
    """A compacted table beside the very same files."""
    paths = _paths(table)
    fields = ", ".join(f"{name} {kind}" for name, kind in _ddl().items())

    def files() -> Any:
        return spark.read.schema(fields).parquet(*paths)

    def ours() -> Any:
        return table.to_spark(spark=spark)

    return [
        _line("scan, compacted, all columns", _pair(files, ours, lambda rows: rows), 1.1, repeat),
        _line("scan, compacted, one column", _pair(files, ours, lambda rows: rows.select("m")), 1.1, repeat),
        _line("scan, compacted, filter", _pair(files, ours, lambda rows: rows.filter("i < 10000")), 1.1, repeat),
    ]


def _pair(floor: Callable[[], Any], ours: Callable[[], Any], shape: Callable[[Any], Any]) -> dict[str, Run]:
    return {"spark": lambda: _noop(shape(floor())), "tidelake": lambda: _noop(shape(ours()))}


def _merges(spark: Any, tables: dict[str, Table], plain: Path, repeat: int) -> list[Result]:
    def floor() -> Any:
        return spark.read.parquet(str(plain))

    table = tables["int"]
    results = [
        _line(
            "merge on read, all columns", _pair(floor, lambda: table.to_spark(spark=spark), lambda r: r), 1.35, repeat
        ),
        _line(
            "merge on read, one column",
            {
                "spark": lambda: _noop(floor().select("m")),
                "tidelake": lambda: _noop(table.to_spark(["m"], spark=spark)),
            },
            2.5,
            repeat,
        ),
        _line(
            "point look-up",
            {
                "spark": lambda: floor().filter("k = 7654321").collect(),
                "tidelake": lambda: table.to_spark(where="k = 7654321", spark=spark).collect(),
            },
            1,
            repeat,
        ),
    ]
    for kind in ("partial-update", "aggregation"):
        ours = tables[kind]
        runs = _pair(floor, lambda ours=ours: ours.to_spark(spark=spark), lambda rows: rows)
        results.append(_line(f"merge on read, {kind}", runs, 1.6, repeat))
    return results


# ------------------------------------------------------------------------------------------------ writes


def _writes(folder: Path, spark: Any, source: Path, repeat: int) -> list[Result]:
    target = folder / "written"

    def rows() -> Any:
        return spark.read.parquet(str(source))

    def fresh() -> None:
        shutil.rmtree(target, ignore_errors=True)

    def append() -> None:
        fresh()
        table = tl.connect(target).create_table("bench.a", dict(COLUMNS))
        table.write(rows())

    def load() -> None:
        fresh()
        create(target).write(rows())

    def plain() -> None:
        fresh()
        rows().write.parquet(str(target), compression="zstd")

    def sorted_() -> None:
        fresh()
        parts = rows().repartition(BUCKETS, "k").sortWithinPartitions("k")
        parts.write.parquet(str(target), compression="zstd")

    results = [
        _line(f"append of {ROWS:,} rows", {"spark": plain, "tidelake": append}, 1.15, min(repeat, 3), 0),
        _line(f"load into {BUCKETS} buckets", {"spark": sorted_, "tidelake": load}, 1.25, min(repeat, 3), 0),
    ]
    tiny = spark.range(100).selectExpr("id AS k", "cast(id AS int) AS i")
    fresh()
    small = tl.connect(folder / "tiny").create_table("bench.t", {"k": "BIGINT", "i": "INT"})
    runs: dict[str, Run] = {
        "spark": lambda: tiny.write.mode("append").parquet(str(folder / "tiny.parquet")),
        "tidelake": lambda: small.write(tiny),
    }
    return [*results, _line("a tiny write", runs, 1, repeat)]


def _upserts(folder: Path, spark: Any, compacted: Path, repeat: int) -> list[Result]:
    """Five upserts of random keys; the floor writes the same rows as plain files, shuffled and sorted."""
    parts = folder / "news"
    parts.mkdir()
    for number, part in zip(range(5), upserts(), strict=False):
        pq.write_table(keyed(part, "int"), parts / f"{number}.parquet")
    target = folder / "upserted"

    def news(number: int) -> Any:
        return spark.read.parquet(str(parts / f"{number}.parquet"))

    def ours(options: dict[str, str]) -> float:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(compacted, target, copy_function=os.link)
        table = tl.connect(target).table("bench.t").with_options(options)
        started = time.perf_counter()
        for number in range(5):
            table.write(news(number))
        return time.perf_counter() - started

    def plain() -> float:
        shutil.rmtree(target, ignore_errors=True)
        started = time.perf_counter()
        for number in range(5):
            rows = news(number).repartition(BUCKETS, "k").sortWithinPartitions("k")
            rows.write.mode("append").parquet(str(target), compression="zstd")
        return time.perf_counter() - started

    work = f"five upserts of {UPSERT:,} rows"
    quiet = {"write-only": "true"}
    return [
        _line(work, {"spark": plain, "tidelake": lambda: ours({})}, 2.5, min(repeat, 3), 0),
        _line(f"{work}, write-only", {"spark": plain, "tidelake": lambda: ours(quiet)}, 1.3, min(repeat, 3), 0),
    ]


def _vectors(folder: Path, spark: Any, repeat: int) -> list[Result]:
    """A table with deletion vectors beside its own files, and an upsert to it beside a plain write of the same rows."""
    marked = folder / "marked"
    table = create(marked, **{"deletion-vectors.enabled": "true"})
    table.write(shuffled())
    table.compact(full=True)
    news = folder / "news.parquet"
    for number, part in zip(range(5), upserts(), strict=False):
        if number < 4:
            table.write(keyed(part, "int"))
        else:
            pq.write_table(keyed(part, "int"), news)
    table.compact()
    target = folder / "upserted"

    def ours() -> float:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(marked, target, copy_function=os.link)
        fresh = tl.connect(target).table("bench.t")
        started = time.perf_counter()
        fresh.write(spark.read.parquet(str(news)))
        return time.perf_counter() - started

    def plain() -> float:
        shutil.rmtree(target, ignore_errors=True)
        started = time.perf_counter()
        rows = spark.read.parquet(str(news)).repartition(BUCKETS, "k").sortWithinPartitions("k")
        rows.write.parquet(str(target), compression="zstd")
        return time.perf_counter() - started

    paths = _paths(table)
    fields = ", ".join(f"{name} {kind}" for name, kind in {"k": "BIGINT", **_ddl()}.items())

    def files() -> Any:
        return spark.read.schema(fields).parquet(*paths)

    def rows() -> Any:
        return table.to_spark(spark=spark)

    return [
        _line("vectors, all columns", _pair(files, rows, lambda found: found), 1.25, repeat),
        _line(
            "vectors, one column",
            {
                "spark": lambda: _noop(files().select("m")),
                "tidelake": lambda: _noop(table.to_spark(["m"], spark=spark)),
            },
            2,
            repeat,
        ),
        _line(f"vectors, upsert of {UPSERT:,} rows", {"spark": plain, "tidelake": ours}, 3, min(repeat, 3), 0),
    ]


def _compaction(folder: Path, spark: Any, table: Table, repeat: int) -> list[Result]:
    target, copied = folder / "to_compact", folder / "copied"
    live = _paths(table)

    def ours() -> float:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder / "int", target, copy_function=os.link)
        fresh = tl.connect(target).table("bench.t")
        started = time.perf_counter()
        fresh.compact(full=True, on=spark)
        return time.perf_counter() - started

    def plain() -> None:
        shutil.rmtree(copied, ignore_errors=True)
        spark.read.parquet(*live).write.parquet(str(copied), compression="zstd")

    return [_line("full compaction", {"spark": plain, "tidelake": ours}, 1.3, repeat, 0)]


def _paths(table: Table) -> list[str]:
    return [f"{table.location}/{split.path_of(file)}" for split in table.scan().splits() for file in split.files]


def _ddl() -> dict[str, str]:
    return {name: kind.replace(" NOT NULL", "") for name, kind in COLUMNS.items()}
