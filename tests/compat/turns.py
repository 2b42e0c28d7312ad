"""Rows that both implementations write in turns, and the changes that followed."""

from __future__ import annotations

from random import Random  # noqa: TID251 - drawn from fixed seeds
from typing import Any

import pyarrow as pa

import oracle
from compat.keyed_engines import WORDS
from kit.changelogs import numbered_changelog
from tidelake.table import Table

COLUMNS = {"k": "INT NOT NULL", "v": "STRING", "n": "BIGINT", "s": "INT"}


Rows = list[tuple[str, tuple[Any, ...]]]


def draw(rng: Random, kinds: tuple[int, ...], most: int = 12) -> Rows:
    return [
        (
            WORDS[rng.choice(kinds)],
            (
                rng.randint(0, 11),
                rng.choice([None, "a", "b", ""]),
                rng.choice([None, 1, 2, 3, 4]),
                rng.choice([None, 5, 6, 7]),
            ),
        )
        for _ in range(rng.randint(1, most))
    ]


def we_write(table: Table, rows: Rows) -> None:
    values = [dict(zip(COLUMNS, row, strict=True)) for _, row in rows]
    data = pa.Table.from_pylist(values, schema=table.schema.to_arrow())
    table.write(data.append_column("rowkind", pa.array([kind for kind, _ in rows])))


def they_write(table: oracle.Table, rows: Rows, producer: str) -> None:
    """As an engine does: one that tells of full compactions makes one with every commit."""
    table.write(rows)
    if producer == "full-compaction":
        table.compact(full=True)


def told_since(table: Table, snapshot_id: int) -> list[Any]:
    latest = table.latest_snapshot()
    assert latest is not None
    return [each for number in range(snapshot_id + 1, latest.id + 1) for each in numbered_changelog(table, number)]
