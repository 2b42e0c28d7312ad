"""Run by an interpreter that has pypaimon: read tables at snapshots, and leave the rows as Arrow files.

    python pypaimon_tables.py REQUEST

REQUEST names a JSON file: {"warehouse": folder, "tables": {name: [snapshots]}, "out": folder}. The answer is one line
of JSON: what went wrong, by table and snapshot.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory
from pypaimon.schema.data_types import PyarrowFieldParser


def main(request: dict[str, Any]) -> dict[str, str]:
    catalog = CatalogFactory.create({"warehouse": request["warehouse"]})
    wrong = {}
    for name, snapshots in request["tables"].items():
        for snapshot in snapshots:
            try:
                table = catalog.get_table(f"d.{name}").copy({"scan.snapshot-id": str(snapshot)})
                builder = table.new_read_builder()
                rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
                if rows is None:
                    rows = PyarrowFieldParser.from_paimon_schema(table.table_schema.fields).empty_table()
                target = str(Path(request["out"]) / f"{name}-{snapshot}.arrow")
                with pa.OSFile(target, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
                    writer.write_table(rows)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
                wrong[f"{name}-{snapshot}"] = f"{type(error).__name__}: {error}"[:300]
    return wrong


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
