"""`tidelake demo`: the main job on a local lake, from an empty folder to a checked table.

It makes a partitioned table, writes, changes the schema, deletes, updates, compacts, reads and travels in time, and
shows what a reader of the format finds there. Every figure it prints is read back from the table.
"""

from __future__ import annotations

import sys
import tempfile
from decimal import Decimal
from pathlib import Path

import tidelake
from tidelake.cli.output import print_json, result_text, say, show_report, show_table
from tidelake.ops.commit.messages import CommitResult
from tidelake.table import Table

_DAYS = ("2026-11-13", "2026-11-14", "2026-11-15")
_WRITES = 7
_ROWS = 30


def run_demo(path: str | None, *, as_json: bool) -> None:
    """Run the demo in a folder, or in a temporary one that is removed afterwards.

    Raises:
        InvalidInputError: the folder holds something already.
    """
    if path is None:
        with tempfile.TemporaryDirectory(prefix="tidelake-demo-") as folder:
            _run(folder, as_json=as_json)
        return
    if Path(path).is_dir() and any(Path(path).iterdir()):
        raise tidelake.InvalidInputError("folder of the demo is not empty", path=path, hint="name a new folder")
    _run(path, as_json=as_json)
    if not as_json:
        say(f"the lake is kept: tidelake -w {path} show shop.orders")


def _run(folder: str, *, as_json: bool) -> None:
    told: list[tuple[str, str]] = []
    lake = tidelake.connect(folder)
    orders = lake.create_table(
        "shop.orders",
        {"id": "BIGINT NOT NULL", "status": "STRING", "amount": "DECIMAL(10,2)", "dt": "STRING"},
        partition_by=["dt"],
        options={"manifest.merge-min-count": "5"},
        comment="what people ordered",
    )
    told.append(("create", f"{orders.name}, partitioned by {', '.join(orders.partition_by)}"))
    for number in range(_WRITES):
        orders.write(_rows(number), commit_user="demo", identifier=number + 1)
    told.append(("write", f"{_WRITES} commits, {orders.count()} rows"))
    again = orders.write(_rows(_WRITES - 1), commit_user="demo", identifier=_WRITES)
    told.append(("write again", f"commit {_WRITES} a second time: repeated={again.repeated}, {orders.count()} rows"))
    orders = orders.alter(add={"note": "STRING"})
    told.append(("alter", f"column note added, schema {orders.schema.id}"))
    deleted = orders.delete("id % 10 = 0")
    told.append(("delete", f"{deleted.rows} rows, {orders.count()} left"))
    updated = orders.update({"status": "'paid'", "note": "concat('order ', cast(id as string))"}, "id < 5")
    told.append(("update", f"{updated.rows} rows"))
    before = orders.files().num_rows
    compacted = orders.compact()
    assert isinstance(compacted, CommitResult)
    told.append(("compact", f"{before} files became {orders.files().num_rows}, {orders.count()} rows as before"))
    told.append(("travel", f"{orders.at(snapshot=1).count()} rows at snapshot 1, {orders.count()} now"))
    if as_json:
        _as_json(orders, folder=lake.location)
    else:
        _as_pictures(orders, told, compacted)


def _as_json(orders: Table, *, folder: str) -> None:
    report = orders.check(deep=True)
    print_json(
        {
            "lake": folder,
            "snapshots": orders.inspect.snapshots().to_pylist(),
            "manifests": orders.inspect.manifests().to_pylist(),
            "partitions": orders.inspect.partitions().to_pylist(),
            "rows": orders.count(),
            "ok": report.ok,
        }
    )


def _as_pictures(orders: Table, told: list[tuple[str, str]], compacted: CommitResult) -> None:
    import pyarrow as pa

    steps = pa.table({"step": [step for step, _ in told], "what happened": [text for _, text in told]})
    show_table(steps, title="what was done", as_json=False, boxed=True)
    columns = ["snapshot_id", "schema_id", "commit_kind", "operation", "total_record_count", "delta_record_count"]
    show_table(orders.inspect.snapshots(), title="snapshots", as_json=False, columns=columns, boxed=True)
    columns = ["partition", "record_count", "file_size_in_bytes", "file_count"]
    show_table(orders.inspect.partitions(), title="partitions", as_json=False, columns=columns, boxed=True)
    where = f"dt = '{_DAYS[0]}' AND id < 12"
    show_table(orders.to_arrow(where=where, limit=5), title=f"rows with {where}", as_json=False, whole=True, boxed=True)
    old = orders.at(snapshot=1).to_arrow(where=where, limit=5)
    show_table(old, title="the same at snapshot 1", as_json=False, whole=True, boxed=True)
    say(f"last commit: {result_text(compacted)}")
    report = orders.check(deep=True)
    show_report(report, as_json=False)
    if not report.ok:
        sys.exit(2)


def _rows(number: int) -> list[dict[str, object]]:
    """The orders of one commit."""
    return [
        {"id": i, "status": "new", "amount": Decimal(i).scaleb(-1), "dt": _DAYS[i % 3]}
        for i in range(number * _ROWS, number * _ROWS + _ROWS)
    ]
