"""`tidelake demo`: the main job on a local lake, from an empty folder to a checked table.

It makes a partitioned table, writes, changes the schema, deletes, updates, compacts, reads, travels in time, and prints
what a reader of the format finds there.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from decimal import Decimal

import tidelake
from tidelake.cli.output import console, print_json, show_report, show_table

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
    orders = lake.create_table(
        "shop.orders",
        {"id": "BIGINT NOT NULL", "status": "STRING", "amount": "DECIMAL(10,2)", "dt": "STRING"},
        partition_by=["dt"],
        options={"manifest.merge-min-count": "5"},
        comment="what people ordered",
    )
    for number in range(7):
        orders.write(_rows(number), commit_user="demo", identifier=number + 1)
    again = orders.write(_rows(6), commit_user="demo", identifier=7)
    orders = orders.alter(add={"note": "STRING"})
    deleted = orders.delete("id % 10 = 0")
    updated = orders.update({"status": "'paid'", "note": "concat('order ', cast(id as string))"}, "id < 5")
    compacted = orders.compact()
    report = orders.check(deep=True)
    if as_json:
        print_json(
            {
                "lake": lake.location,
                "snapshots": orders.inspect.snapshots().to_pylist(),
                "manifests": orders.inspect.manifests().to_pylist(),
                "partitions": orders.inspect.partitions().to_pylist(),
                "rows": orders.count(),
                "ok": report.ok,
            }
        )
        return
    out = console()
    out.print(f"[bold]{orders!r}[/bold]")
    out.print(f"write 7 sent a second time: repeated={again.repeated}, nothing was added")
    joined = compacted_files(compacted)
    out.print(f"deleted {deleted.rows} rows, updated {updated.rows}, compacted into {joined} files\n")
    columns = ["snapshot_id", "schema_id", "commit_kind", "total_record_count", "delta_record_count"]
    show_table(orders.inspect.snapshots().select(columns), title="snapshots", as_json=False)
    show_table(orders.inspect.manifests(), title="manifests of the newest snapshot", as_json=False)
    show_table(orders.inspect.partitions(), title="partitions", as_json=False)
    some = orders.to_arrow(where=f"dt = '{_DAYS[0]}' AND id < 8", limit=5)
    show_table(some, title=f"rows with dt = '{_DAYS[0]}' AND id < 8", as_json=False)
    out.print(f"rows now {orders.count()}, at snapshot 1 {orders.at(snapshot=1).count()}\n")
    show_report(report, as_json=False)
    if not report.ok:
        sys.exit(2)


def compacted_files(result: object) -> int:
    """Files that a compaction made."""
    return int(getattr(result, "files", 0))


def _rows(number: int) -> list[dict[str, object]]:
    """Thirty orders of one commit."""
    return [
        {"id": i, "status": "new", "amount": Decimal(i).scaleb(-1), "dt": _DAYS[i % 3]}
        for i in range(number * 30, number * 30 + 30)
    ]
