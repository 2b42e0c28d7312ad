"""`tidelake demo`: the main job on a local lake, from an empty folder to a checked table.

It makes a partitioned table, writes small data files, commits them (appends, an overwrite, a schema change, enough
commits for manifests to be merged) and prints what a reader of the format finds there.
"""

from __future__ import annotations

import shutil
import sys
import tempfile

import tidelake
from tidelake.cli.output import console, print_json, show_report, show_table
from tidelake.ops.commit.messages import CommitMessage, CommitResult, DataIncrement
from tidelake.spec.binary_row_scalar import encode_row
from tidelake.spec.data_file import DataFile
from tidelake.spec.evolution import AddColumn
from tidelake.spec.partition_path import partition_path
from tidelake.spec.type_codec import parse_type
from tidelake.table import Table

_DAYS = ("2026-11-13", "2026-11-14", "2026-11-15")


def run_demo(path: str | None, *, as_json: bool) -> None:
    """Run the demo in a folder, or in a temporary one that is removed afterwards."""
    folder = path or tempfile.mkdtemp(prefix="tidelake-demo-")
    try:
        _run(folder, as_json=as_json)
    finally:
        if path is None:
            shutil.rmtree(folder, ignore_errors=True)


def _run(folder: str, *, as_json: bool) -> None:
    lake = tidelake.connect(folder)
    table = lake.create_table(
        "shop.orders",
        {"id": "BIGINT NOT NULL", "status": "STRING", "amount": "DECIMAL(10,2)", "dt": "STRING"},
        partition_by=["dt"],
        options={"manifest.merge-min-count": "5"},
        comment="what people ordered",
    )
    commit = table.new_commit("demo")
    messages = [_file(table, _DAYS[i % 3]) for i in range(7)]
    results = [commit.commit([m], identifier=i, watermark=i) for i, m in enumerate(messages, start=1)]
    again = commit.commit([messages[-1]], identifier=7)
    results.append(commit.overwrite([_file(table, _DAYS[0])], {"dt": _DAYS[0]}, dynamic=False))
    table = table.alter(AddColumn("note", parse_type("STRING")))
    results.append(table.new_commit("demo").commit([_file(table, _DAYS[2])], identifier=8))
    _show(lake, table, results, again, as_json=as_json)


def _show(
    lake: tidelake.Lake, table: Table, results: list[CommitResult], again: CommitResult, *, as_json: bool
) -> None:
    report = table.check(deep=True)
    if as_json:
        print_json(
            {
                "lake": lake.location,
                "snapshots": table.inspect.snapshots().to_pylist(),
                "manifests": table.inspect.manifests().to_pylist(),
                "partitions": table.inspect.partitions().to_pylist(),
                "ok": report.ok,
            }
        )
        return
    out = console()
    out.print(f"[bold]{table!r}[/bold]")
    out.print(f"{len(results)} commits made snapshots {[r.snapshot_ids[0] for r in results]}")
    out.print(f"commit 7 sent a second time: repeated={again.repeated}, nothing was added\n")
    columns = ["snapshot_id", "schema_id", "commit_identifier", "commit_kind", "total_record_count", "watermark"]
    show_table(table.inspect.snapshots().select(columns), title="snapshots", as_json=False)
    show_table(table.inspect.manifests(), title="manifests of the newest snapshot", as_json=False)
    show_table(table.inspect.partitions(), title="partitions", as_json=False)
    kept = table.files(where=tidelake.col("dt") >= _DAYS[1]).num_rows
    out.print(f"files with dt >= {_DAYS[1]}: {kept} of {table.files().num_rows}, found without listing a folder\n")
    show_report(report, as_json=False)
    if not report.ok:
        sys.exit(2)


def _file(table: Table, day: str) -> CommitMessage:
    """A message with one new file of ten rows; its bytes stand in for a data file."""
    store = table.store
    types = table.schema.partition_types
    folder = partition_path(
        table.schema.partition_keys, [day], types, legacy=True, default_name="__DEFAULT_PARTITION__"
    ).rstrip("/")
    name = f"data-{store.env.ids.uuid()}-0.parquet"
    content = b"PAR1 stands in for rows PAR1"
    store.env.io.write(store.layout.data_path(folder, 0, name), content)
    new = DataFile(
        file_name=name,
        file_size=len(content),
        row_count=10,
        max_sequence=9,
        schema_id=table.schema.id,
        creation_time_ms=store.env.clock.now_ms(),
    )
    return CommitMessage(
        partition=encode_row([day], types), bucket=0, total_buckets=-1, data=DataIncrement(new_files=(new,))
    )
