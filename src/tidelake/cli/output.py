"""How results are printed: tables on a terminal, aligned plain text in a pipe, JSON for programs.

Invariant: text stored in a table never controls the terminal. All of it passes `plain`, and none is read as markup.
JSON is strict: numbers that JSON does not have (NaN, infinities) are written as texts.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tidelake.cli import warnings_seen
from tidelake.io.secrets import redact
from tidelake.notebook import plain, pluralize

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from tidelake.ops.commit.messages import CommitResult
    from tidelake.ops.compact.table import CompactionPlan
    from tidelake.ops.maintain.check import CheckReport
    from tidelake.table import Table
    from tidelake.table.system import SystemTable

BRIEF = {
    "snapshots": [
        "snapshot_id",
        "schema_id",
        "commit_kind",
        "operation",
        "commit_time",
        "commit_user",
        "total_record_count",
        "delta_record_count",
        "watermark",
    ],
    "metrics": [
        "snapshot_id",
        "commit_kind",
        "since_previous",
        "rows_added",
        "bytes_added",
        "rows_deleted",
        "attempts",
    ],
    "files": ["partition", "bucket", "file_path", "level", "record_count", "file_size_in_bytes", "creation_time"],
    "file_key_ranges": ["partition", "bucket", "file_path", "level", "record_count", "min_key", "max_key"],
    "sys.partitions": [
        "database_name",
        "table_name",
        "partition_name",
        "record_count",
        "file_size_in_bytes",
        "file_count",
    ],
    "partitions": ["partition", "record_count", "file_size_in_bytes", "file_count", "last_update_time"],
    "buckets": ["partition", "bucket", "record_count", "file_size_in_bytes", "file_count", "last_update_time"],
    "lsm": [
        "partition",
        "bucket",
        "level",
        "files",
        "runs",
        "rows",
        "deletes",
        "bytes",
        "read_amplification",
    ],
}
"""Columns of the wide system tables that are shown to people unless they ask for all."""

_SHORT = {
    "snapshot_id": "id",
    "schema_id": "schema",
    "commit_kind": "kind",
    "commit_time": "time",
    "commit_user": "user",
    "total_record_count": "rows",
    "delta_record_count": "change",
    "file_path": "file",
    "record_count": "rows",
    "file_size_in_bytes": "bytes",
    "file_count": "files",
    "creation_time": "created",
    "last_update_time": "updated",
    "database_name": "database",
    "table_name": "table",
    "partition_name": "partition",
}
"""Headings where a terminal is too narrow for the names of the format."""
_LEAST = ("schema_id", "watermark", "commit_user", "creation_time", "last_update_time", "operation", "level")
"""Columns that are left out where a terminal is still too narrow, the least important first."""
_UUID = re.compile(r"([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?")
_WIDTH = 160
_FOLDED = 8
"""Letters that a column of a box keeps at least: narrower ones cannot be read."""


def console() -> Console:
    """A console for tables and trees; of a fixed width if the output is not a terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False, markup=False, emoji=False)


def say(text: str) -> None:
    """A line on standard output."""
    sys.stdout.write(f"{plain(text)}\n")


def note(text: str) -> None:
    """A line for people on standard error, so that it is never part of a result."""
    sys.stderr.write(f"{plain(text)}\n")


def print_json(value: Any) -> None:
    """One JSON document on standard output; an object also has the warnings of this run."""
    if isinstance(value, Mapping) and warnings_seen:
        value = {**value, "warnings": [*value.get("warnings", ()), *warnings_seen]}
    sys.stdout.write(json.dumps(strict_json(value), ensure_ascii=False, allow_nan=False) + "\n")


def strict_json(value: Any) -> Any:
    """The same value as JSON can hold it: other values as texts, as they are shown."""
    if isinstance(value, Mapping):
        return {str(key): strict_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else _text(value)


def _text(value: object) -> str:
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case Decimal():
            return format(value, "f")
        case dict() | list() | tuple():
            return json.dumps(strict_json(value), ensure_ascii=False)
        case _:
            return str(value)


# ------------------------------------------------------------------------------------------------ tables


def show_table(
    table: pa.Table,
    *,
    title: str,
    as_json: bool,
    whole: bool = False,
    columns: Sequence[str] = (),
    boxed: bool | None = None,
    wraps: bool = False,
) -> None:
    """Rows of an Arrow table.

    Args:
        table: the rows.
        title: what they are; shown on a terminal.
        as_json: as a JSON array of objects, always with every column.
        whole: show every column, and nulls by name; otherwise columns that are all null are left out of the picture.
        columns: the columns for people; all of them when empty. A terminal that is too narrow for them shows what fits.
        wraps: where the columns do not fit on a terminal, print lines that wrap instead of leaving columns out.
        boxed: draw the picture of a terminal into a pipe too, or (False) a line for each row even on a terminal.
    """
    rows = showable(table)
    if as_json:
        print_json(rows.to_pylist())
        return
    names = [name for name in rows.column_names if not columns or name in columns]
    if not whole:
        names = [name for name in names if rows.column(name).null_count < max(rows.num_rows, 1)] or names
    null = "null" if whole else ""
    cells = [
        [null if value is None else plain(_text(value)) for value in rows.column(name).to_pylist()] for name in names
    ]
    on_terminal = sys.stdout.isatty() and boxed is None
    headings = [plain(name) for name in names]
    if on_terminal and columns and _width(headings, cells) > console().width:
        names, headings, cells = _fit_width(names, cells, console().width)
    draws = boxed or (on_terminal and not _only_lines_fit(headings, cells))
    fitting = _count_fitting(headings, cells, console().width) if draws else len(names)
    if fitting < len(names) and wraps:
        draws = False  # everything was asked for: lines that wrap can be read, columns of a letter cannot
    elif fitting < len(names):
        note(f"{fitting} of {len(names)} columns fit here: --columns chooses others, --json shows all")
        names, headings, cells = names[:fitting], headings[:fitting], cells[:fitting]
    if draws:
        _show_box(plain(title), headings, cells, [_right(rows, name) for name in names])
    else:
        _show_lines(headings, cells)
    if not rows.num_rows:
        note(f"{title}: no rows")


def _show_box(title: str, names: list[str], cells: list[list[str]], right: list[bool]) -> None:
    from rich.table import Table as RichTable
    from rich.text import Text

    picture = RichTable(title=Text(title), title_justify="left")
    for name, flag in zip(names, right, strict=True):
        picture.add_column(Text(name), overflow="fold", justify="right" if flag else "left")
    for row in zip(*cells, strict=True):
        picture.add_row(*map(Text, row))
    console().print(picture)


def _count_fitting(names: list[str], cells: list[list[str]], width: int) -> int:
    """How many columns, from the left, a box holds that folds long cells, but none to less than a few letters."""
    taken = 1
    for number, (name, column) in enumerate(zip(names, cells, strict=True)):
        taken += min(max(map(len, (name, *column)), default=0), _FOLDED) + 3
        if taken > width:
            return max(number, 1)
    return len(names)


def _only_lines_fit(names: list[str], cells: list[list[str]]) -> bool:
    """Whether the terminal is too narrow for a box, which would then fold its headings, but not for aligned lines."""
    lines = _width(names, cells)
    return lines <= console().width < lines + len(names) + 3


def _width(names: list[str], cells: list[list[str]]) -> int:
    """How wide aligned lines are."""
    text = sum(max(map(len, (name, *column)), default=0) for name, column in zip(names, cells, strict=True))
    return text + 2 * (len(names) - 1)


def _fit_width(names: list[str], cells: list[list[str]], width: int) -> tuple[list[str], list[str], list[list[str]]]:
    """Shorten headings and cells, and leave columns out until the rest fits the width."""
    short = [[_shorten_cell(name, text) for text in column] for name, column in zip(names, cells, strict=True)]
    kept = dict(zip(names, short, strict=True))
    for least in (*_LEAST, None):
        headings = [_SHORT.get(name, name) for name in kept]
        if least is None or _width(headings, list(kept.values())) <= width:
            break
        kept.pop(least, None)
    if len(kept) < len(names):
        note("columns are left out on this narrow terminal: --all or --json shows them")
    return list(kept), headings, list(kept.values())


def _shorten_cell(name: str, text: str) -> str:
    if name == "file_path":
        text = text.rpartition("/")[2]
    return _UUID.sub(r"\1…", _MOMENT.sub(r"\1 \2", text))


def _show_lines(names: list[str], cells: list[list[str]]) -> None:
    """Aligned columns with two blanks between them: for grep, awk and less."""
    widths = [max(map(len, (name, *column))) for name, column in zip(names, cells, strict=True)]
    for row in (tuple(names), *zip(*cells, strict=True)):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")


def show_debt(levels: pa.Table) -> None:
    """Print how many runs a read merges, and what compactions that are due would rewrite."""
    if not levels.num_rows:
        return
    import pyarrow.compute as pc

    buckets = levels.group_by(["partition", "bucket"]).aggregate(
        [("sorted_runs", "max"), ("compaction_debt_bytes", "max")]
    )
    runs = pc.max(buckets.column("sorted_runs_max")).as_py()
    debt = pc.sum(buckets.column("compaction_debt_bytes_max")).as_py()
    due = f"compactions that are due would rewrite {debt:,} bytes" if debt else "no compaction is due"
    note(f"{pluralize(buckets.num_rows, 'bucket')}, at most {pluralize(runs, 'sorted run')} in one; {due}")


def _right(table: pa.Table, name: str) -> bool:
    import pyarrow as pa

    dtype = table.schema.field(name).type
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype))


def without_secrets(table: pa.Table) -> pa.Table:
    """The system tables of options, and `schemas`, with credentials masked; any other table as it is."""
    import pyarrow as pa

    if {"key", "value"} <= set(table.column_names):
        given = zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True)
        values = pa.array([redact({key: value})[key] for key, value in given], pa.string())
        place = table.column_names.index("value")
        return table.set_column(place, table.schema.field(place), values)
    if "options" not in table.column_names:
        return table
    given = table.column("options").to_pylist()
    texts = [text and json.dumps(redact(json.loads(text)), ensure_ascii=False) for text in given]
    return table.set_column(table.column_names.index("options"), "options", pa.array(texts, pa.string()))


def showable(table: pa.Table) -> pa.Table:
    """The same rows with nanoseconds as texts: Python's own times end at microseconds."""
    import pyarrow as pa

    return table.cast(pa.schema([field.with_type(_without_nanos(field.type)) for field in table.schema]))


def _without_nanos(dtype: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    kinds = pa.types
    if (kinds.is_timestamp(dtype) or kinds.is_time(dtype)) and dtype.unit == "ns":
        return pa.string()
    if kinds.is_struct(dtype):
        return pa.struct([field.with_type(_without_nanos(field.type)) for field in dtype])
    if kinds.is_map(dtype):
        return pa.map_(_without_nanos(dtype.key_type), _without_nanos(dtype.item_type))
    if kinds.is_list(dtype) or kinds.is_fixed_size_list(dtype):
        inner = dtype.value_field.with_type(_without_nanos(dtype.value_type))
        return pa.list_(inner, dtype.list_size) if kinds.is_fixed_size_list(dtype) else pa.list_(inner)
    return dtype


def show_names(names: Sequence[str], *, as_json: bool) -> None:
    """A list of names, one a line."""
    if as_json:
        print_json(list(names))
    else:
        sys.stdout.write("".join(f"{plain(name)}\n" for name in names))


# ------------------------------------------------------------------------------------------------ one table


def show_schema(table: Table, *, as_json: bool) -> None:
    """Columns, keys and options of a table."""
    import pyarrow as pa

    schema = table.schema
    options = redact(table.options)
    if as_json:
        from tidelake.spec.schemas.schema import schema_to_json

        print_json({**json.loads(schema_to_json(schema)), "options": options})
        return
    columns = {
        "id": pa.array([each.id for each in schema.fields], pa.int64()),
        "column": pa.array([each.name for each in schema.fields], pa.string()),
        "type": pa.array([str(each.type) for each in schema.fields], pa.string()),
        "comment": pa.array([each.description for each in schema.fields], pa.string()),
        "default": pa.array([each.default for each in schema.fields], pa.string()),
    }
    show_table(pa.table(columns), title=f"{table.name} (schema {schema.id})", as_json=False, boxed=False)
    for title, values in (("primary key", table.primary_key), ("partitioned by", table.partition_by)):
        if values:
            say(f"{title}: {', '.join(values)}")
    for key, value in sorted(options.items()):
        say(f"{key} = {value}")


def show_system_overview(table: SystemTable, *, as_json: bool) -> None:
    """What a system table shows, and how many rows it has."""
    columns = {field.name: str(field.type) for field in table.schema.fields}
    facts = {"table": table.name, "columns": columns, "primary_key": list(table.primary_key), "rows": table.count()}
    if as_json:
        print_json(facts)
        return
    _show_facts(facts)


def show_overview(table: Table, *, as_json: bool) -> None:
    """What a table is, how large it is and what happened last."""
    import pyarrow.compute as pc

    latest = table.latest_snapshot()
    files = table.files(columns=["file_size", "level"])
    counts = _level_counts(files) if table.primary_key else {}
    versions = (latest.total_record_count if latest else None) or 0
    facts: dict[str, object] = {
        "table": table.name,
        "location": table.location,
        "columns": {field.name: str(field.type) for field in table.schema.fields},
        "primary_key": list(table.primary_key),
        "partition_by": list(table.partition_by),
        "options": redact(table.options),
        "comment": table.comment,
        "schema_id": table.schema.id,
        "snapshot_id": latest.id if latest else None,
        "last_commit": None if latest is None else f"{latest.commit_kind.value} by {latest.commit_user}",
        # Of a key that several files hold every version is counted; only a merge knows how many rows they make.
        **({"row_versions": versions} if table.primary_key else {"rows": versions}),
        "files": files.num_rows,
        "bytes": pc.sum(files.column("file_size")).as_py() or 0,
        "levels": counts,
    }
    if as_json:
        print_json(facts)
        return
    levels = ", ".join(f"{pluralize(count, 'file')} on level {level}" for level, count in counts.items())
    _show_facts({**facts, "levels": levels})
    if latest is None:
        say("the table is empty: no snapshot yet")


def _show_facts(facts: Mapping[str, object]) -> None:
    for name, value in facts.items():
        if value not in (None, [], {}, ""):
            for number, line in enumerate(_overview_lines(value)):
                say(f"{'' if number else name.replace('_', ' '):13} {line}")


def _level_counts(files: pa.Table) -> dict[str, int]:
    """How many files each level has."""
    import pyarrow.compute as pc

    counts = {each["values"]: each["counts"] for each in pc.value_counts(files.column("level")).to_pylist()}
    return {str(level): counts[level] for level in sorted(counts)}


def _overview_lines(value: object) -> list[str]:
    if isinstance(value, dict):
        return [f"{key} {item}" for key, item in value.items()]
    if isinstance(value, list):
        return [", ".join(value)]
    return [f"{value:,}" if isinstance(value, int) else str(value)]


# ------------------------------------------------------------------------------------------------ work


def show_result(result: CommitResult, *, as_json: bool, text: str | None = None) -> None:
    """Print what a commit did; warnings about what failed after it go to standard error."""
    if as_json:
        print_json(dataclasses.asdict(result))
    elif result.repeated:
        say("already committed, nothing was done")
    elif not result.snapshot_ids:
        say("nothing to do")
    else:
        say(result_text(result) if text is None else text)
    for warning in result.warnings:
        note(f"warning: {warning}")


def result_text(result: CommitResult) -> str:
    """What a commit did, in one line."""
    ids = ", ".join(map(str, result.snapshot_ids))
    return (
        f"snapshot {ids}: {pluralize(result.rows, 'row')} in {pluralize(result.files, 'file')}, {result.bytes:,} bytes"
    )


def compaction_facts(plan: CompactionPlan) -> dict[str, int]:
    """What a compaction would do, for programs."""
    return {"rewrites": len(plan.rewrites), "files": plan.files, "bytes": plan.size}


@contextmanager
def progress_bar(text: str, unit: str = "") -> Iterator[Callable[[int, int | None], None] | None]:
    """A progress bar if standard error is a terminal, nothing otherwise; standard output stays clean for results."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[done]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None, done="")

        def report(done: int, total: int | None = None) -> None:
            of = f" of {total:,}" if total else ""
            bar.update(task, completed=done, total=total, done=f"{done:,}{of} {unit}")

        yield report


def show_report(report: CheckReport, *, as_json: bool) -> None:
    """The findings of a check."""
    if not as_json:
        for line in str(report).splitlines():
            say(line)
        return
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
