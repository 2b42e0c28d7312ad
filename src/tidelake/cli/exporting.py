"""The commands that take rows out of a table: count and export.

A file is written under a hidden name beside its own and gets its name at the end, so that no half of a file is left
under it. Invariant: memory is bounded by one batch, and what `write` reads back are the same rows.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import tidelake
from tidelake.cleanup import undo_on_error
from tidelake.cli.place import (
    CommonOptions,
    example,
    open_at,
    pass_common_options,
    split_names,
    table_and,
    with_common_options,
    with_point,
)
from tidelake.cli.source import FORMATS, STDIN, check_holds, format_of
from tidelake.notebook import pluralize

if TYPE_CHECKING:
    import pyarrow as pa

Write = Callable[["pa.RecordBatch"], object]
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


@click.command(epilog=example("-w lake count shop.sales --where \"status = 'new'\" --at 3"))
@click.argument("table", required=False)
@click.option("--where", help="A SQL condition.")
@with_point
@with_common_options
@pass_common_options
def count(common: CommonOptions, table: str | None, where: str | None) -> None:
    """Count the rows of a table, where possible without reading them."""
    from tidelake.cli.output import print_json, say

    handle = open_at(common, table)
    rows = handle.count(where)
    if common.as_json:
        print_json({"table": handle.name, "where": where, "rows": rows})
    else:
        say(str(rows))


@click.command(epilog=example("-w lake export shop.sales sales.parquet --where \"status = 'new'\""))
@click.argument("names", nargs=-1, metavar="[TABLE] FILE")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="Format of FILE, if its extension does not show it.")
@click.option("--columns", help="Names, separated by commas.")
@click.option("--where", help="A SQL condition.")
@click.option("--order-by", help='Columns, separated by commas; "amount desc" is descending.')
@click.option("-n", "--limit", type=click.IntRange(min=0), help="At most so many rows.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@with_point
@with_common_options
@pass_common_options
def export(common: CommonOptions, /, names: tuple[str, ...], **given: Any) -> None:
    """Write rows of a table to FILE: Parquet, CSV, TSV, JSON lines or Arrow; `-` is standard output.

    `tidelake write` reads such a file back.
    """
    from tidelake.cli.output import note, print_json, progress_bar, say

    table, (file,) = table_and(common, names, "FILE")
    kind = _format_of_target(file, given["kind"], overwrite=given["overwrite"], as_json=common.as_json)
    handle = open_at(common, table)
    scan = handle.scan(split_names(given["columns"]), given["where"], given["limit"], split_names(given["order_by"]))
    hint = "export the rows as Parquet or Arrow, or choose --columns"
    check_holds(kind, scan.arrow_schema, "written to", hint=hint, texts_only=True)
    rows = 0
    with progress_bar("writing", "rows") as report, _open_target(file, kind, scan.arrow_schema) as write:
        for batch in scan.to_batches():
            write(batch)
            rows += batch.num_rows
            if report:
                report(rows, None)
    done = f"wrote {pluralize(rows, 'row')} of {handle.name}"
    if file == STDIN:
        note(done)
    elif common.as_json:
        print_json(
            {"table": handle.name, "file": file, "format": kind, "rows": rows, "bytes": Path(file).stat().st_size}
        )
    else:
        say(f"{done} to {file}")


def _format_of_target(file: str, given: str | None, *, overwrite: bool, as_json: bool) -> str:
    if file != STDIN:
        kind = format_of(file, given)
        if Path(file).exists() and not overwrite:
            raise tidelake.InvalidInputError(
                "file exists already", path=file, hint="choose another name, or replace it with --overwrite"
            )
        return kind
    if given is None or given == "parquet":
        raise tidelake.InvalidInputError(
            "rows cannot be written to standard output in this format",
            format=given or "not given",
            hint=f"use --format with one of {', '.join(kind for kind in FORMATS if kind != 'parquet')}",
        )
    if as_json:
        raise tidelake.InvalidInputError(
            "standard output cannot hold both the rows and the result", hint="leave --json out, or name a file"
        )
    return given


# ------------------------------------------------------------------------------------------------ files


@contextmanager
def _open_target(file: str, kind: str, schema: pa.Schema) -> Iterator[Write]:
    if file == STDIN:
        with _WRITERS[kind](_StandardOutput(), schema) as write:
            yield write
        sys.stdout.buffer.flush()
        return
    import pyarrow as pa

    path = Path(file)
    hidden = path.with_name(f".part-{os.getpid()}-{path.name}")
    try:
        with undo_on_error(lambda: hidden.unlink(missing_ok=True)):
            plain = kind in ("parquet", "arrow")
            with (
                pa.OSFile(str(hidden), "wb") if plain else pa.output_stream(str(hidden)) as stream,
                _WRITERS[kind](stream, schema) as write,
            ):
                yield write
            hidden.replace(path)
    except OSError as cause:
        raise tidelake.InvalidInputError(
            "file cannot be written", path=file, cause=str(cause), hint="check the folder and the free space"
        ) from cause


class _StandardOutput:
    """Standard output as a sink: writers that need one of Arrow's would hold a Python file when the process exits."""

    def write(self, data: Any) -> None:
        """Write bytes."""
        sys.stdout.buffer.write(data)


@contextmanager
def _write_parquet(stream: Any, schema: pa.Schema) -> Iterator[Write]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetWriter(stream, schema, write_page_checksum=True) as writer:
        yield writer.write_batch


@contextmanager
def _write_arrow(stream: Any, schema: pa.Schema) -> Iterator[Write]:
    # The messages of a stream one by one, because a writer of Arrow would need a sink of Arrow.
    stream.write(schema.serialize())
    yield lambda batch: stream.write(batch.serialize())
    stream.write(_END_OF_STREAM)


@contextmanager
def _write_csv(stream: Any, schema: pa.Schema, delimiter: str = ",") -> Iterator[Write]:
    import pyarrow as pa
    import pyarrow.csv

    def write(batch: pa.RecordBatch, *, header: bool = False) -> None:
        buffer = pa.BufferOutputStream()
        options = pyarrow.csv.WriteOptions(include_header=header, delimiter=delimiter)
        pyarrow.csv.write_csv(batch, buffer, options)
        stream.write(buffer.getvalue())

    write(pa.RecordBatch.from_pylist([], schema), header=True)
    yield write


@contextmanager
def _write_tsv(stream: Any, schema: pa.Schema) -> Iterator[Write]:
    with _write_csv(stream, schema, "\t") as write:
        yield write


@contextmanager
def _write_jsonl(stream: Any, schema: pa.Schema) -> Iterator[Write]:
    import pyarrow as pa

    from tidelake.cli.output import showable, strict_json

    del schema

    def write(batch: pa.RecordBatch) -> None:
        rows = showable(pa.Table.from_batches([batch])).to_pylist()
        lines = [json.dumps(strict_json(row), ensure_ascii=False, allow_nan=False) for row in rows]
        stream.write("".join(f"{line}\n" for line in lines).encode())

    yield write


_WRITERS = {
    "parquet": _write_parquet,
    "arrow": _write_arrow,
    "csv": _write_csv,
    "tsv": _write_tsv,
    "jsonl": _write_jsonl,
}
