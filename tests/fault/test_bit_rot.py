"""Data that rots: flipped bits, lost sectors and missing ends of data files never read back as other values (T10).

Each of the formats carries a checksum in our files: Parquet its own of every page and ours of the footer, ORC ours of
every quarter megabyte, Avro that of its zstd frames and ours of the schema. A read of a damaged file gives the rows
that were written, or a typed error.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from kit.file_samples import make_batch, make_fields, read, write
from tidelake.errors import FormatError, UnsupportedError
from tidelake.expr import Predicate, col
from tidelake.files.options import FORMATS
from tidelake.io import MemoryFileIO, SeededIds

FLIPS = 400
FIELDS = make_fields(
    {
        "id": "INT NOT NULL", "s": "STRING", "b": "BIGINT", "d": "DOUBLE", "m": "DECIMAL(20, 2)", "a": "ARRAY<INT>",
        "t": "TIMESTAMP(6)", "f": "BOOLEAN", "r": "ROW<x INT, y STRING>",
    }
)  # fmt: skip
WHERE = col("id") >= 40


class Chance:
    """Numbers by chance that are the same in every run."""

    def __init__(self, seed: str) -> None:
        self._ids = SeededIds(zlib.crc32(seed.encode()))

    def randrange(self, end: int) -> int:
        return int(self._ids.random() * end)


Damage = Callable[[Chance, bytearray], None]


def flip(chance: Chance, data: bytearray) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def lose_sector(chance: Chance, data: bytearray) -> None:
    start = chance.randrange(len(data)) // 512 * 512
    end = min(start + 512, len(data))
    data[start:end] = bytes(end - start)


def cut(chance: Chance, data: bytearray) -> None:
    del data[chance.randrange(len(data)) :]


def swap(chance: Chance, data: bytearray) -> None:
    one, other = (chance.randrange(len(data)) for _ in range(2))
    data[one], data[other] = data[other], data[one]


def batches(count: int = 90) -> list[pa.RecordBatch]:
    rows = [
        {
            "id": n,
            "s": None if n % 4 == 0 else "abc" * (n % 5),
            "b": n * 7 if n % 3 else None,
            "d": n / 3,
            "m": Decimal(n) / 4 if n % 5 else None,
            "a": [n, None] if n % 3 else None,
            "t": n * 1_000_000,
            "f": n % 2 == 0,
            "r": {"x": n, "y": "z"} if n % 6 else None,
        }
        for n in range(count)
    ]
    return [make_batch(rows[start : start + 30], FIELDS) for start in range(0, count, 30)]


def outcome(data: bytes, path: str, expected: pa.Table, where: Predicate | None) -> str:
    io = MemoryFileIO()
    io.write(path, data)
    try:
        found = read(io, path, FIELDS, where=where)
    except (FormatError, UnsupportedError):
        return "error"
    return "equal" if found.equals(expected) else "WRONG"


@pytest.mark.parametrize("damage", [flip, lose_sector, cut, swap])
@pytest.mark.parametrize("kind", FORMATS)
def test_a_damaged_file_is_an_error_or_reads_as_it_was(kind: str, damage: Damage) -> None:
    io, path, _ = write(batches(), FIELDS, kind, flush=True)
    good = io.read(path)
    expected = {None: read(io, path, FIELDS), WHERE: read(io, path, FIELDS, where=WHERE)}
    assert expected[None].num_rows == 90
    chance = Chance(f"{kind} {damage.__name__}")
    seen: Counter[str] = Counter()
    for _ in range(FLIPS if damage is flip else FLIPS // 4):
        data = bytearray(good)
        damage(chance, data)
        for where, table in expected.items():
            seen[outcome(bytes(data), path, table, where)] += 1
    assert seen["WRONG"] == 0, seen
    assert seen["error"] > seen["equal"], seen


@pytest.mark.parametrize("damage", [flip, lose_sector, cut, swap])
def test_rows_read_by_their_pages_are_those_that_were_written_or_an_error(
    damage: Damage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.files.parquet.pages.PAGE_ROWS", 1024)  # Arrow ends no page earlier
    fields = FIELDS[:5]
    rows = [{"id": n, "s": f"{n % 7}" * (n % 3), "b": n * 7, "d": n / 3, "m": Decimal(n)} for n in range(6000)]
    io, path, _ = write([make_batch(rows, fields)], fields, "parquet", {"parquet.page.size": "1 kb"})
    good, only = io.read(path), np.array([17, 1100, 1101])
    expected = read(io, path, fields, only=only)
    assert expected["id"].to_pylist() == only.tolist()
    chance = Chance(f"pages {damage.__name__}")
    seen: Counter[str] = Counter()
    for _ in range(FLIPS if damage is flip else FLIPS // 4):
        data = bytearray(good)
        damage(chance, data)
        broken = MemoryFileIO()
        broken.write(path, bytes(data))
        try:
            found = read(broken, path, fields, only=only)
        except (FormatError, UnsupportedError):
            seen["error"] += 1
        else:
            seen["equal" if found.equals(expected) else "WRONG"] += 1
    assert seen["WRONG"] == 0, seen
    assert seen["error"], seen


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "lz4"])
def test_pages_of_every_codec_are_checked(codec: str) -> None:
    io, path, _ = write(batches(), FIELDS, "parquet", {"file.compression": codec}, flush=True)
    good, expected = io.read(path), read(io, path, FIELDS)
    chance = Chance(codec)
    seen: Counter[str] = Counter()
    for _ in range(FLIPS // 4):
        data = bytearray(good)
        flip(chance, data)
        seen[outcome(bytes(data), path, expected, None)] += 1
    assert seen["WRONG"] == 0, seen


def test_every_bit_of_a_footer_counts() -> None:
    for kind, marker in (("parquet", b"tidelake.seal"), ("orc", b"tidelake.seal"), ("avro", b"avro.schema")):
        io, path, _ = write(batches(30), FIELDS, kind)
        good, expected = io.read(path), read(io, path, FIELDS)
        place = good.index(marker)
        around = range(max(0, place - 200), min(len(good), place + 200))
        chance = Chance(kind)
        for position in around:
            data = bytearray(good)
            data[position] ^= 1 << chance.randrange(8)
            assert outcome(bytes(data), path, expected, None) != "WRONG", (kind, position)
