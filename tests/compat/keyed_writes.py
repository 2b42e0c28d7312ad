"""The same rows written by us and by the real Paimon."""

from __future__ import annotations

import pyarrow as pa

import oracle
from compat.java_values import to_batch
from compat.keyed_cells import (
    Kinded,
)
from tidelake.table import Table


def our_write(table: Table, rows: list[Kinded]) -> None:
    data = pa.Table.from_batches([to_batch([row for _, row in rows], table.schema.fields)])
    if "rowkind.field" not in table.options:
        data = data.append_column("rowkind", pa.array([kind for kind, _ in rows]))
    table.write(data)


def their_write(table: oracle.Table, rows: list[Kinded]) -> None:
    table.write([(kind, tuple(row.values())) for kind, row in rows])
