"""Run by an interpreter that has pypaimon: read, and on demand write, tables; the answer is one line of JSON.

    python pypaimon_script.py REQUEST

REQUEST is JSON: {"warehouse": folder, "table": "d.t", "snapshots": [ids], "append": [rows] or null}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory
from pypaimon.schema.data_types import PyarrowFieldParser


def plan(table: Any, *, native: bool) -> dict[str, Any]:
    if native:
        table = table.copy({"scan.native-plan.enabled": "true"})
    builder = table.new_read_builder()
    scan = builder.new_scan()
    # The public call falls back to Python without a word; this test is about the native planner.
    chosen = scan._try_native_plan() if native else scan.plan()
    if chosen is None:
        return {"files": None, "rows": None}
    splits = chosen.splits()
    files = [
        {
            "partition": [str(value) for value in split.partition.values],
            "bucket": split.bucket,
            "file": file.file_name,
            "level": file.level,
            "rows": file.row_count,
            "size": file.file_size,
        }
        for split in splits
        for file in split.files
    ]
    rows = builder.new_read().to_arrow(splits)
    return {"files": files, "rows": rows.to_pylist() if rows is not None else []}


def append(table: Any, rows: list[dict[str, Any]]) -> None:
    builder = table.new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    schema = PyarrowFieldParser.from_paimon_schema(table.table_schema.fields)
    write.write_arrow(pa.Table.from_pylist(rows, schema=schema))
    commit.commit(write.prepare_commit())
    write.close()
    commit.close()


def main(request: dict[str, Any]) -> dict[str, Any]:
    catalog = CatalogFactory.create({"warehouse": request["warehouse"]})
    table = catalog.get_table(request["table"])
    if request.get("append"):
        append(table, request["append"])
        table = catalog.get_table(request["table"])
    travelled = {snapshot: table.copy({"scan.snapshot-id": str(snapshot)}) for snapshot in request["snapshots"]}
    return {
        "fields": {field.name: str(field.type) for field in table.fields},
        "python": {snapshot: plan(each, native=False) for snapshot, each in travelled.items()},
        "native": {snapshot: plan(each, native=True) for snapshot, each in travelled.items()},
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1])), default=str))
