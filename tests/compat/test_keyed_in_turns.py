"""Primary-key tables written, compacted and read in turns with the real Paimon: both see the same rows every time."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random  # noqa: TID251 - drawn from fixed seeds

import pyarrow as pa
import pytest

import oracle
import tidelake as tl
from compat.keyed_engines import ENGINES, WORDS

pytestmark = pytest.mark.oracle

KEYS = {
    "INT": lambda n: n - 20,
    "STRING": lambda n: f"key-{n:03d}" + "é" * (n % 3),
    "DECIMAL(20, 2)": lambda n: (Decimal(n - 25) / 10).quantize(Decimal("0.01")),
    "TIMESTAMP(6)": lambda n: dt.datetime(1969, 12, 31, 23, 59, n),
    "BYTES": lambda n: bytes([n, 255 - n])[: 1 + n % 2],
    "DOUBLE": lambda n: (n - 20) / 4,
}
FORMATS = ("parquet", "orc", "avro")


def cases():
    """Every engine with every format, bucket mode and key type at least once, dealt out by turns."""
    dealt = []
    for number, engine in enumerate(ENGINES):
        for turn in range(3):
            key = list(KEYS)[(number + 2 * turn) % len(KEYS)]
            dealt.append((engine, FORMATS[(number + turn) % 3], key, (2, -1, 1)[(number + turn) % 3]))
    return dealt


@pytest.mark.parametrize(("engine", "file_format", "key", "buckets"), cases())
def test_both_see_the_same_rows_whoever_writes_and_compacts(engine, file_format, key, buckets, catalog, tmp_path):
    options, kinds = ENGINES[engine]
    columns = {"k": f"{key} NOT NULL", "c": "INT", "v": "STRING", "n": "BIGINT", "s": "INT"}
    primary = ["k", "c"] if buckets == 1 else ["k"]
    table = tl.connect(tmp_path).create_table(
        "d.t",
        columns,
        primary_key=primary,
        options={"bucket": str(buckets), "file.format": file_format, **options},
    )
    theirs = catalog.table("d.t")
    rng = Random(f"{engine} {file_format} {key} {buckets}")

    def rows():
        return [
            (
                rng.choice(kinds),
                {
                    "k": KEYS[key](rng.randint(0, 25)),
                    "c": rng.randint(0, 1) if buckets == 1 else 7,
                    "v": rng.choice([None, "a", "b", "cc"]),
                    "n": rng.choice([None, 1, 2, 3, 4]),
                    "s": rng.choice([None, 5, 6, 7]),
                },
            )
            for _ in range(rng.randint(1, 25))
        ]

    for step in range(10):
        who = rng.choice(["we", "we", "they", "we compact", "they compact"]) if step else "we"
        written = rows()
        if who == "we":
            data = pa.Table.from_pylist([row for _, row in written], schema=table.schema.to_arrow())
            table.write(data.append_column("rowkind", pa.array([WORDS[kind] for kind, _ in written])))
        elif who == "they":
            theirs.write([(WORDS[kind], tuple(row.values())) for kind, row in written])
        elif who == "we compact":
            table.compact(full=rng.choice([True, False]))
        else:
            theirs.compact(full=rng.choice([True, False]))
        found = sorted(repr(tuple(row.values())) for row in table.to_arrow().to_pylist())
        expected = sorted(repr(tuple(row.values())) for row in theirs.read())
        assert found == expected, (step, who)
    for snapshot in range(1, table.latest_snapshot().id + 1):
        found = sorted(repr(tuple(row.values())) for row in table.at(snapshot=snapshot).to_arrow().to_pylist())
        expected = sorted(repr(tuple(row.values())) for row in theirs.read(snapshot=snapshot))
        assert found == expected, snapshot
    report = table.check()
    assert report.ok, report


def test_the_files_we_compact_carry_what_theirs_carry(catalog, tmp_path):
    """The metadata of a file written by each from the same rows is the same, names, sizes and times apart."""
    columns = {"k": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "STRING"}
    options = {"bucket": "1", "metadata.stats-mode": "full"}
    rows = [(1, "x", "a"), (3, "x", None), (2, "x", "c")]
    ours = tl.connect(tmp_path / "ours").create_table("d.t", columns, primary_key=["k"], options=options)
    ours.write([dict(zip(columns, row, strict=True)) for row in rows])
    ours.write([{"k": 2, "dt": "x", "v": "z", "rowkind": "-D"}])
    theirs = oracle.Catalog(tmp_path / "theirs").create_table("d.t", columns, primary_key=["k"], options=options)
    theirs.write(rows)
    theirs.write([("-D", (2, "x", "z"))])
    mine = ours.files().to_pylist()
    other = tl.open_table(str(tmp_path / "theirs/d.db/t")).files().to_pylist()
    told_apart = {"file_name", "file_size", "creation_time_ms"}
    assert len(mine) == len(other) == 2
    for left, right in zip(mine, other, strict=True):
        assert {k: v for k, v in left.items() if k not in told_apart} == {
            k: v for k, v in right.items() if k not in told_apart
        }
