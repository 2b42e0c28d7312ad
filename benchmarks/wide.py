"""Tables of many columns: reading and writing two rows of 5,000 columns beside two rows of 500."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

import tidelake as tl
from benchmarks.timing import Result, interleaved, result
from tidelake.table import Table

FEW, MANY = 500, 5_000
BAR = 15.0
FORMATS = ("parquet", "orc", "avro")


def run(repeat: int = 7) -> list[Result]:
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as scratch:
        for kind in ("append", "keyed"):
            for form in FORMATS:
                tables = {n: _make(Path(scratch) / f"{kind}-{form}-{n}", n, kind, form) for n in (FEW, MANY)}
                results += _compare(tables, f"{kind}, {form}", repeat)
    return results


def _compare(tables: dict[int, tuple[Table, pa.Table]], what: str, repeat: int) -> list[Result]:
    (few, few_rows), (many, many_rows) = tables[FEW], tables[MANY]
    against = f"{FEW} columns"
    reads = interleaved({"tidelake": many.to_arrow, against: few.to_arrow}, repeat)
    writes = interleaved({"tidelake": lambda: many.write(many_rows), against: lambda: few.write(few_rows)}, repeat)
    return [
        result(f"read {MANY:,} columns ({what})", reads, against, BAR),
        result(f"write {MANY:,} columns ({what})", writes, against, BAR),
    ]


def _make(folder: Path, columns: int, kind: str, form: str) -> tuple[Table, pa.Table]:
    names = [f"c{number}" for number in range(columns)]
    table = tl.connect(folder).create_table(
        "bench.t",
        {"id": "INT NOT NULL", **dict.fromkeys(names, "INT")},
        primary_key=["id"] if kind == "keyed" else [],
        options={"file.format": form, "write-only": "true", **({"bucket": "1"} if kind == "keyed" else {})},
    )
    two = pa.array([1, 2], pa.int32())
    rows = pa.table({"id": two, **dict.fromkeys(names, two)})
    table.write(rows)
    table.write(rows)
    table.to_arrow()
    return table, rows
