"""How answers look: rich tables for people, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.write.verbs import CompactionPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from tidelake.ops.maintain.check import CheckReport
    from tidelake.table import Table


def console() -> Console:
    """A console that is plain when the output is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, default=_plain, ensure_ascii=False) + "\n")


def show_table(table: pa.Table, *, title: str, as_json: bool, whole: bool = False) -> None:
    """Rows of an Arrow table; columns that are all null are left out of the picture unless the `whole` is wanted."""
    if as_json:
        print_json(table.to_pylist())
        return
    from rich.table import Table as RichTable

    names = [n for n in table.column_names if whole or table.column(n).null_count < max(table.num_rows, 1)]
    picture = RichTable(title=title, title_justify="left")
    for name in names or table.column_names:
        picture.add_column(name, overflow="fold")
    for row in table.select(names or table.column_names).to_pylist():
        picture.add_row(*("" if value is None else str(value) for value in row.values()))
    console().print(picture)


def show_names(names: Sequence[str], *, as_json: bool) -> None:
    """A list of names, one a line."""
    if as_json:
        print_json(list(names))
    else:
        sys.stdout.write("".join(f"{name}\n" for name in names))


def show_schema(table: Table, *, as_json: bool) -> None:
    """Columns, keys and options of a table."""
    schema = table.schema
    if as_json:
        from tidelake.spec.schema import schema_to_json

        print_json(json.loads(schema_to_json(schema)))
        return
    from rich.table import Table as RichTable

    picture = RichTable(title=f"{table.name} (schema {schema.id})", title_justify="left")
    for heading in ("id", "column", "type", "comment", "default"):
        picture.add_column(heading)
    for column in schema.fields:
        cells = (str(column.id), column.name, str(column.type), column.description or "", column.default or "")
        picture.add_row(*cells)
    out = console()
    out.print(picture)
    for title, values in (("primary key", table.primary_key), ("partitioned by", table.partition_by)):
        if values:
            out.print(f"{title}: {', '.join(values)}")
    for key, value in sorted(table.options.items()):
        out.print(f"{key} = {value}")


def show_overview(table: Table, *, as_json: bool) -> None:
    """What a table is, how large it is and what happened last."""
    latest = table.latest_snapshot()
    files = table.files(columns=["file_size", "row_count"])
    size = sum(files.column("file_size").to_pylist())
    facts: dict[str, object] = {
        "table": table.name,
        "location": table.location,
        "columns": {field.name: str(field.type) for field in table.schema.fields},
        "primary key": list(table.primary_key),
        "partitioned by": list(table.partition_by),
        "options": dict(table.options),
        "comment": table.comment,
        "schema": table.schema.id,
        "snapshot": latest.id if latest else None,
        "last commit": None if latest is None else f"{latest.commit_kind.value} by {latest.commit_user}",
        "rows": latest.total_record_count if latest else 0,
        "files": files.num_rows,
        "bytes": size,
    }
    if as_json:
        print_json(facts)
        return
    out = console()
    for name, value in facts.items():
        if value not in (None, [], {}):
            text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
            out.print(f"{name:15} {', '.join(text) if isinstance(text, list) else text}", markup=False)


def show_result(result: object, *, as_json: bool) -> None:
    """What a commit did."""
    assert isinstance(result, CommitResult)
    if as_json:
        print_json(dataclasses.asdict(result))
    elif result.repeated:
        sys.stdout.write("already committed, nothing was done\n")
    elif not result.snapshot_ids:
        sys.stdout.write("nothing to do\n")
    else:
        ids = ", ".join(map(str, result.snapshot_ids))
        sys.stdout.write(f"snapshot {ids}: {result.rows:,} rows in {result.files} files, {result.bytes:,} bytes\n")


def show_plan(plan: object, *, as_json: bool) -> None:
    """What a rewrite would do."""
    assert isinstance(plan, CompactionPlan)
    if as_json:
        print_json({"rewrites": len(plan.rewrites), "files": plan.files, "bytes": plan.size})
    else:
        sys.stdout.write(f"{plan}\n")


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stdout.isatty():
        yield None
        return
    from rich.progress import Progress

    with Progress() as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def show_report(report: CheckReport, *, as_json: bool) -> None:
    """The findings of a check."""
    if as_json:
        findings = [
            {"invariant": f.invariant, "severity": f.severity.value, "place": f.place, "message": f.message}
            for f in report.findings
        ]
        print_json(
            {
                "table": report.table,
                "ok": report.ok,
                "snapshots": report.snapshots,
                "files": report.files,
                "orphans": list(report.orphans),
                "findings": findings,
            }
        )
    else:
        sys.stdout.write(f"{report}\n")


def _plain(value: object) -> object:
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
