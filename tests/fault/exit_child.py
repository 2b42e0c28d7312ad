"""A process that reads a table in one way and ends at once. Arguments: the lake, the way."""

from __future__ import annotations

import sys

import tidelake as tl
from tidelake.files.parquet import read as parquet_read

ROWS = 30_000
WAYS = ("parquet", "copied", "orc", "avro", "polars", "error")
"""Formats; `copied`: files that are not of the operating system; `error`: the process ends by an exception."""


def main(path: str, way: str) -> None:
    """Read and end.

    Raises:
        RuntimeError: as one of the ways asks.
    """
    if way == "copied":
        parquet_read.open_natively = lambda _: None
    table = tl.connect(path).table(f"d.{way if way in ('orc', 'avro') else 'parquet'}")
    rows = table.to_polars().height if way == "polars" else table.to_arrow().num_rows
    if rows != ROWS:
        sys.exit(f"{rows} rows")
    if way == "error":
        raise RuntimeError


if __name__ == "__main__":
    main(*sys.argv[1:])
