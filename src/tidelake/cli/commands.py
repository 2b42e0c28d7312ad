"""The commands. Each opens what it is told, calls one verb and prints the answer as a table or as JSON."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

import tidelake
from tidelake.cli.source import FORMATS, STDIN

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelake.catalog.filesystem import Lake
    from tidelake.ops.commit.messages import CommitResult
    from tidelake.table import Table

F = TypeVar("F", bound=Callable[..., Any])

_WAREHOUSE = "TIDELAKE_WAREHOUSE"
_HOW_LAKE = f"use -w LAKE, set {_WAREHOUSE}, or write warehouse = … into tidelake.toml"
_HOW_TABLE = "use -w LAKE and TABLE as database.table, or --table-path PATH"


class _InOrder(click.Group):
    """Lists commands in the order in which they are declared: first look, then write, then care."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)


@dataclass(slots=True)
class _Place:
    """Where to work and how to answer, told before or after the name of the command."""

    warehouse: str | None = None
    table_path: str | None = None
    as_json: bool = False


_pass_place = click.make_pass_decorator(_Place, ensure=True)


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
    if value and parameter.name:
        setattr(context.ensure_object(_Place), parameter.name, value)


def _with_place(function: F) -> F:
    """Give a command the options that say where, and how to answer."""
    for names, text, flag in (
        (("--json", "as_json"), "Print JSON instead of a table.", True),
        (("--table-path",), "One table by its folder or URL; then TABLE is left out.", False),
        (("-w", "--warehouse"), f"The lake: a folder or a URL. Also {_WAREHOUSE} or tidelake.toml.", False),
    ):
        option = click.option(*names, help=text, is_flag=flag, callback=_keep, expose_value=False)
        function = option(function)
    return function


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(tidelake.__version__, prog_name="tidelake")
@_with_place
def cli() -> None:
    """Streaming lakehouse tables in the Apache Paimon format.

    Exit codes: 0 done, 1 your mistake, 2 the table's or the storage's fault, 3 a bug of ours.
    """


# ------------------------------------------------------------------------------------------------ opening


def _location(place: _Place) -> tuple[str | None, dict[str, object]]:
    """The lake that is meant, with its storage options."""
    from tidelake.cli.config import find_settings

    settings = find_settings()
    location = place.table_path or place.warehouse or os.environ.get(_WAREHOUSE) or settings.warehouse
    remote = "://" in (location or "") and not (location or "").startswith(("file:", "memory:"))
    return location, dict(settings.storage) if remote or location == settings.warehouse else {}


def _lake(place: _Place) -> Lake:
    if place.table_path:
        raise tidelake.InvalidInputError("this command looks at a lake, not at one table", hint=_HOW_LAKE)
    location, storage = _location(place)
    if not location:
        raise tidelake.InvalidInputError("no lake given", hint=_HOW_LAKE)
    return tidelake.connect(location, storage=storage)


def _table(place: _Place, name: str | None) -> Table:
    if place.table_path:
        if name:
            raise tidelake.InvalidInputError(
                "a table is given twice", table=name, hint="leave TABLE or --table-path out"
            )
        location, storage = _location(place)
        return tidelake.open_table(location or place.table_path, storage=storage)
    if not name:
        raise tidelake.InvalidInputError("no table given", hint=_HOW_TABLE)
    lake = _lake(place)
    if name.count(".") != 1:
        raise tidelake.InvalidInputError("table name must be database.table", name=name, hint=_known(lake, ""))
    try:
        return lake.table(name)
    except tidelake.NotFoundError as cause:
        raise tidelake.NotFoundError(
            "table does not exist",
            code="table-not-found",
            table=name,
            lake=lake.location,
            hint=_known(lake, name),
        ) from cause


def _known(lake: Lake, name: str) -> str:
    """What the user may have meant."""
    import difflib

    databases = lake.databases()
    if not databases:
        return "there is no table in this lake yet; check the lake, or write with --create"
    database = name.partition(".")[0]
    if database not in databases:
        return f"databases are {', '.join(databases[:20])}"
    tables = [f"{database}.{table}" for table in lake.tables(database)]
    near = difflib.get_close_matches(name, tables, n=1)
    return f"did you mean {near[0]}?" if near else f"tables are {', '.join(tables[:20]) or 'none yet'}"


def _settle(question: str, *, yes: bool) -> bool:
    """Ask before something is rewritten.

    Raises:
        InvalidInputError: there is nobody to ask.
    """
    if yes:
        return True
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort as cause:
        raise tidelake.InvalidInputError(
            "nobody answered, nothing was changed", hint="say --yes to do it without a question"
        ) from cause
    if not agreed:
        click.echo("nothing was changed", err=True)
    return agreed


# ------------------------------------------------------------------------------------------------ looking


@cli.command()
@click.option("--path", help="Where to put the demo lake; a temporary folder by default.")
@_with_place
@_pass_place
def demo(place: _Place, path: str | None) -> None:
    """Make a small lake, write, change and read it, and show what is inside."""
    from tidelake.cli.demo import run_demo

    run_demo(path, as_json=place.as_json)


@cli.command()
@click.argument("database", required=False)
@_with_place
@_pass_place
def ls(place: _Place, database: str | None) -> None:
    """List databases, or the tables of one."""
    from tidelake.cli.output import note, show_names

    lake = _lake(place)
    if database and database not in (known := lake.databases()):
        hint = f"databases are {', '.join(known[:20])}" if known else "there is nothing in this lake yet"
        raise tidelake.NotFoundError(
            "database does not exist", code="database-not-found", database=database, lake=lake.location, hint=hint
        )
    names = lake.tables(database) if database else lake.databases()
    show_names(names, as_json=place.as_json)
    if not names:
        note(f"no table in database {database}" if database else f"no database in {lake.location}")


@cli.command()
@click.argument("table", required=False)
@_with_place
@_pass_place
def show(place: _Place, table: str | None) -> None:
    """Show a table at a glance: columns, keys, size and last commit."""
    from tidelake.cli.output import show_overview

    show_overview(_table(place, table), as_json=place.as_json)


@cli.command()
@click.argument("table", required=False)
@_with_place
@_pass_place
def schema(place: _Place, table: str | None) -> None:
    """Show columns, keys and options."""
    from tidelake.cli.output import show_schema

    show_schema(_table(place, table), as_json=place.as_json)


@cli.command()
@click.argument("table", required=False)
@click.option("-n", "--limit", type=click.IntRange(min=0), default=10, show_default=True, help="How many rows.")
@click.option("--columns", help="Names, separated by commas.")
@click.option("--where", help="A SQL condition.")
@click.option("--at", "snapshot", type=int, help="Read this snapshot.")
@click.option("--tag", help="Read this tag.")
@click.option("--timestamp", help="Read what was there at this time (UTC), such as '2026-11-15 12:00:00'.")
@_with_place
@_pass_place
def head(
    place: _Place,
    table: str | None,
    limit: int,
    columns: str | None,
    where: str | None,
    snapshot: int | None,
    tag: str | None,
    timestamp: str | None,
) -> None:
    """Print the first rows."""
    from tidelake.cli.output import show_table

    handle = _table(place, table)
    given = [
        name for name, value in (("--at", snapshot), ("--tag", tag), ("--timestamp", timestamp)) if value is not None
    ]
    if len(given) > 1:
        raise tidelake.InvalidInputError("only one point in time can be read", given=" ".join(given))
    if given:
        handle = handle.at(snapshot=snapshot, tag=tag, timestamp=timestamp)
    rows = handle.to_arrow(columns=_split(columns), where=where, limit=limit)
    show_table(rows, title=handle.name, as_json=place.as_json, whole=True)


def _split(names: str | None) -> list[str] | None:
    return [name.strip() for name in names.split(",")] if names else None


def _system_table(name: str, text: str) -> None:
    @cli.command(name=name, help=text)
    @click.argument("table", required=False)
    @click.option("--all", "everything", is_flag=True, help="Show every column.")
    @_with_place
    @_pass_place
    def command(place: _Place, table: str | None, everything: bool) -> None:
        from tidelake.cli.output import BRIEF, show_table, without_secrets

        handle = _table(place, table)
        rows = without_secrets(getattr(handle.inspect, name)())
        columns = () if everything else BRIEF.get(name, ())
        title = f"{handle.name}${name}"
        show_table(rows, title=title, as_json=place.as_json, whole=everything, columns=columns)


for _name, _text in (
    ("snapshots", "List the snapshots that are kept."),
    ("files", "List the live data files."),
    ("manifests", "List the manifests of the newest snapshot."),
    ("partitions", "List the partitions with rows, bytes and files."),
    ("schemas", "List the schemas."),
    ("options", "List the options that are set."),
):
    _system_table(_name, _text)


# ------------------------------------------------------------------------------------------------ writing


@cli.command()
@click.argument("names", nargs=-1, metavar="[TABLE] FILE")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="Format of FILE, where its ending does not tell.")
@click.option("--mode", type=click.Choice(["append", "overwrite", "overwrite-dynamic"]), default="append")
@click.option("--partition", "pairs", multiple=True, metavar="KEY=VALUE", help="Overwrite only this partition.")
@click.option("--create", is_flag=True, help="Make the table from the columns of FILE if it is not there.")
@click.option("--partition-by", help="With --create: partition columns, separated by commas.")
@click.option("--commit-user", help="With --identifier: who writes.")
@click.option("--identifier", type=int, help="Number of this write; sent a second time it does nothing.")
@click.option("--yes", is_flag=True, help="Overwrite without a question.")
@_with_place
@_pass_place
def write(
    place: _Place,
    names: tuple[str, ...],
    kind: str | None,
    mode: str,
    pairs: tuple[str, ...],
    create: bool,
    partition_by: str | None,
    commit_user: str | None,
    identifier: int | None,
    yes: bool,
) -> None:
    """Write the rows of FILE: Parquet, CSV, TSV, JSON lines or Arrow; `-` is standard input."""
    from tidelake.cli.output import show_result
    from tidelake.cli.source import format_of

    table, file = _target(place, names)
    format_of(file, kind)
    handle = _created(place, table, file, kind, partition_by) if create else _table(place, table)
    partition = _partition(pairs) if pairs else None
    if mode != "append" and not _agreed_overwrite(place, handle, file, mode, partition, yes=yes):
        return

    def run(rows: Iterable[pa.RecordBatch]) -> CommitResult:
        return handle.write(rows, mode=mode, partition=partition, commit_user=commit_user, identifier=identifier)

    show_result(_run_write(handle, file, kind, run), as_json=place.as_json)


def _target(place: _Place, names: tuple[str, ...]) -> tuple[str | None, str]:
    """The table, if it is named, and the file."""
    wanted = 1 if place.table_path else 2
    if len(names) != wanted:
        form = "FILE" if place.table_path else "TABLE FILE"
        raise tidelake.InvalidInputError(
            f"write takes {form}", given=" ".join(names) or "nothing", hint=f"for example: tidelake write {form}"
        )
    return (names[0] if wanted == 2 else None), names[-1]


def _created(place: _Place, table: str | None, file: str, kind: str | None, partition_by: str | None) -> Table:
    """The table; made from the first rows of the file where it is missing."""
    from tidelake.cli.source import read_rows

    try:
        return _table(place, table)
    except tidelake.NotFoundError:
        if file == STDIN:
            raise tidelake.InvalidInputError(
                "a table cannot be made from standard input, which is read only once", hint="put the rows into a file"
            ) from None
        first = next(iter(read_rows(file, None, given=kind)), None)
        if first is None:
            raise tidelake.InvalidInputError("a table cannot be made from no rows", path=file) from None
        keys = _split(partition_by) or []
        if table is None:
            import pyarrow as pa

            location, storage = _location(place)
            none = pa.Table.from_batches([first.slice(0, 0)])
            tidelake.write_table(location or "", none, partition_by=keys, storage=storage)
            return _table(place, None)
        return _lake(place).create_table(table, first.schema, partition_by=keys, if_not_exists=True)


def _partition(pairs: tuple[str, ...]) -> dict[str, object]:
    """`dt=2026-11-15` as names and values."""
    found: dict[str, object] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise tidelake.InvalidInputError("partition must be KEY=VALUE", given=pair)
        found[key] = value
    return found


def _agreed_overwrite(
    place: _Place, handle: Table, file: str, mode: str, partition: dict[str, object] | None, *, yes: bool
) -> bool:
    """Tell what an overwrite replaces, and ask."""
    from tidelake.cli.output import counted, note, print_json

    latest = handle.latest_snapshot()
    rows = (latest.total_record_count if latest else None) or 0
    if place.as_json and not yes:
        print_json({"table": handle.name, "mode": mode, "partition": partition, "rows_now": rows, "done": False})
        return False
    if file == STDIN and not yes:
        raise tidelake.InvalidInputError(
            "an overwrite from standard input cannot ask", hint="say --yes to replace the rows"
        )
    what = "the partitions that the new rows are in" if mode == "overwrite-dynamic" else "every row"
    if partition:
        what = "partition " + ", ".join(f"{key}={value}" for key, value in partition.items())
    if not yes:
        note(f"replaces {what} of {handle.name} ({counted(rows, 'row')} now; older snapshots keep them)")
    return _settle("replace them?", yes=yes)


def _run_write(
    handle: Table, file: str, kind: str | None, run: Callable[[Iterable[pa.RecordBatch]], CommitResult]
) -> CommitResult:
    from tidelake.cli.output import progress_bar
    from tidelake.cli.source import read_rows

    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in batches:
            yield batch
            rows += batch.num_rows
            if tell:
                tell(rows, None)

    with progress_bar("writing", "rows") as tell:
        return run(told(read_rows(file, handle.schema.to_arrow(), given=kind)))


# ------------------------------------------------------------------------------------------------ care


@cli.command()
@click.argument("table", required=False)
@click.option("--full", is_flag=True, help="Join all small files, not only where many have gathered.")
@click.option("--where", help="A condition on partition columns.")
@click.option("--yes", is_flag=True, help="Do it; without this the plan is printed and you are asked.")
@_with_place
@_pass_place
def compact(place: _Place, table: str | None, full: bool, where: str | None, yes: bool) -> None:
    """Join small files. No row changes."""
    from tidelake.cli.output import compaction_facts, counted, note, print_json, progress_bar, say, show_result
    from tidelake.ops.commit.messages import CommitResult
    from tidelake.ops.write.verbs import CompactionPlan

    handle = _table(place, table)
    plan = handle.compact(full=full, where=where, plan_only=True)
    assert isinstance(plan, CompactionPlan)
    if place.as_json and not yes:
        print_json({**compaction_facts(plan), "done": False})
        return
    if not plan.rewrites:
        if place.as_json:
            show_result(CommitResult(), as_json=True)
        else:
            say("nothing to do" + ("" if full else "; --full joins small files even where they are few"))
        return
    if not yes:
        note(f"joins {counted(plan.files, 'file')} of {plan.size:,} bytes in {counted(len(plan.rewrites), 'rewrite')}")
    if not _settle("rewrite them?", yes=yes):
        return
    with progress_bar("compacting", "rewrites") as progress:
        result = handle.compact(full=full, where=where, progress=progress)
    assert isinstance(result, CommitResult)
    show_result(result, as_json=place.as_json)


@cli.command()
@click.argument("table", required=False)
@click.option("--deep", is_flag=True, help="Look at every snapshot, not only the newest.")
@click.option("--rows", is_flag=True, help="Read the rows of the data files too.")
@_with_place
@click.pass_context
def check(context: click.Context, table: str | None, deep: bool, rows: bool) -> None:
    """Check every invariant of a table; exit code 2 if one is broken. Changes nothing."""
    from tidelake.cli.output import show_report

    place = context.ensure_object(_Place)
    report = _table(place, table).check(deep=deep, rows=rows)
    show_report(report, as_json=place.as_json)
    if not report.ok:
        context.exit(2)


@cli.command()
@_with_place
@click.pass_context
def doctor(context: click.Context) -> None:
    """Check this machine and the storage of the lake."""
    from tidelake.cli.doctor import run_doctor

    place = context.ensure_object(_Place)
    location, storage = _location(place)
    if not run_doctor(location, storage, as_json=place.as_json):
        context.exit(2)
