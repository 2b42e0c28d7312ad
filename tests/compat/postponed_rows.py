"""Rows for tables with postponed buckets, and how both implementations show them."""

from __future__ import annotations

from typing import Any

import numpy as np

import oracle

COLUMNS = {"dt": "STRING NOT NULL", "id": "INT NOT NULL", "v": "STRING", "n": "DECIMAL(20, 2)"}


ENGINES: dict[str, dict[str, Any]] = {
    "deduplicate": {},
    "sequence": {"sequence.field": "n"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "max"},
    "first-row": {"merge-engine": "first-row"},
}


def create(catalog: oracle.Catalog, **options: Any) -> oracle.Table:
    return catalog.create_table("d.t", COLUMNS, ["dt", "id"], ["dt"], {"bucket": -2, **options})


def as_dicts(rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def shown(rows: Any) -> list[tuple[str, ...]]:
    return sorted(tuple(str(value) for value in row.values()) for row in rows)


def drawn(lot: np.random.Generator, count: int) -> list[tuple[Any, ...]]:
    from decimal import Decimal

    return [
        (
            "ab"[lot.integers(0, 2)],
            int(lot.integers(0, 30)),
            f"v{lot.integers(0, 50):02}",
            Decimal(int(lot.integers(0, 99))),
        )
        for _ in range(count)
    ]
