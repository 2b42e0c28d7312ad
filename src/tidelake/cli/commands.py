"""The commands. Each opens what it is told, calls one verb and prints the answer as a table or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import tidelake

if TYPE_CHECKING:
    from tidelake.table import Table

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(tidelake.__version__, prog_name="tidelake")
@click.option("-w", "--warehouse", envvar="TIDELAKE_WAREHOUSE", help="The lake: a folder or a URL.")
@click.option("--table-path", help="One table by its folder or URL; then TABLE is left out.")
@click.pass_context
def cli(context: click.Context, warehouse: str | None, table_path: str | None) -> None:
    """Streaming lakehouse tables in the Apache Paimon format."""
    context.obj = (warehouse, table_path)


def _table(context: click.Context, name: str | None) -> Table:
    warehouse, table_path = context.obj
    if table_path:
        return tidelake.open_table(table_path)
    if not warehouse or not name:
        raise tidelake.InvalidInputError(
            "no table given", hint="use -w LAKE and TABLE as database.table, or --table-path PATH"
        )
    return tidelake.connect(warehouse).table(name)


@cli.command()
@click.option("--path", help="Where to put the demo lake; a temporary folder by default.")
@_JSON
def demo(path: str | None, as_json: bool) -> None:
    """Make a small lake, commit to it and show what is inside."""
    from tidelake.cli.demo import run_demo

    run_demo(path, as_json=as_json)


@cli.command()
@click.argument("database", required=False)
@_JSON
@click.pass_context
def ls(context: click.Context, database: str | None, as_json: bool) -> None:
    """List databases, or the tables of one."""
    from tidelake.cli.output import show_names

    warehouse, _ = context.obj
    if not warehouse:
        raise tidelake.InvalidInputError("no lake given", hint="use -w LAKE or set TIDELAKE_WAREHOUSE")
    lake = tidelake.connect(warehouse)
    show_names(lake.tables(database) if database else lake.databases(), as_json=as_json)


@cli.command()
@click.argument("table", required=False)
@_JSON
@click.pass_context
def schema(context: click.Context, table: str | None, as_json: bool) -> None:
    """Show columns, keys and options."""
    from tidelake.cli.output import show_schema

    show_schema(_table(context, table), as_json=as_json)


def _system_table(name: str, text: str) -> None:
    @cli.command(name=name, help=text)
    @click.argument("table", required=False)
    @_JSON
    @click.pass_context
    def command(context: click.Context, table: str | None, as_json: bool) -> None:
        from tidelake.cli.output import show_table

        handle = _table(context, table)
        show_table(getattr(handle.inspect, name)(), title=f"{handle.name}${name}", as_json=as_json)


for _name, _text in (
    ("snapshots", "List the snapshots that are kept."),
    ("schemas", "List the schemas."),
    ("options", "List the options that are set."),
    ("manifests", "List the manifests of the newest snapshot."),
    ("files", "List the live data files."),
    ("partitions", "List the partitions with rows, bytes and files."),
):
    _system_table(_name, _text)


@cli.command()
@click.argument("table", required=False)
@_JSON
@click.pass_context
def show(context: click.Context, table: str | None, as_json: bool) -> None:
    """Show a table at a glance: schema, keys, size and last commit."""
    from tidelake.cli.output import show_overview

    show_overview(_table(context, table), as_json=as_json)


@cli.command()
@click.argument("table", required=False)
@click.option("-n", "--limit", default=10, show_default=True, help="How many rows.")
@click.option("--columns", help="Names, separated by commas.")
@click.option("--where", help="A SQL condition.")
@click.option("--at", "snapshot", type=int, help="Read this snapshot.")
@_JSON
@click.pass_context
def head(
    context: click.Context,
    table: str | None,
    limit: int,
    columns: str | None,
    where: str | None,
    snapshot: int | None,
    as_json: bool,
) -> None:
    """Print the first rows."""
    from tidelake.cli.output import show_table

    handle = _table(context, table)
    handle = handle if snapshot is None else handle.at(snapshot=snapshot)
    names = [name.strip() for name in columns.split(",")] if columns else None
    rows = handle.to_arrow(columns=names, where=where, limit=limit)
    show_table(rows, title=handle.name, as_json=as_json, whole=True)


@cli.command()
@click.argument("table", required=False)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--mode", type=click.Choice(["append", "overwrite", "overwrite-dynamic"]), default="append")
@_JSON
@click.pass_context
def write(context: click.Context, table: str | None, file: str, mode: str, as_json: bool) -> None:
    """Write the rows of a Parquet, CSV, JSON-lines or Arrow file."""
    from tidelake.cli.output import show_result
    from tidelake.cli.source import read_rows

    handle = _table(context, table)
    show_result(handle.write(read_rows(file, handle.schema.to_arrow()), mode=mode), as_json=as_json)


@cli.command()
@click.argument("table", required=False)
@click.option("--full", is_flag=True, help="Join all small files, not only where many have gathered.")
@click.option("--where", help="A condition on partition columns.")
@click.option("--yes", is_flag=True, help="Do it; without this the plan is printed and you are asked.")
@_JSON
@click.pass_context
def compact(context: click.Context, table: str | None, full: bool, where: str | None, yes: bool, as_json: bool) -> None:
    """Join small files. No row changes."""
    from tidelake.cli.output import progress_bar, show_plan, show_result

    handle = _table(context, table)
    plan = handle.compact(full=full, where=where, plan_only=True)
    show_plan(plan, as_json=as_json and not yes)
    if not yes and (as_json or not click.confirm("rewrite them?")):
        return
    with progress_bar("compacting") as progress:
        result = handle.compact(full=full, where=where, progress=progress)
    show_result(result, as_json=as_json)


@cli.command()
@click.argument("table", required=False)
@click.option("--deep", is_flag=True, help="Look at every snapshot, not only the newest.")
@_JSON
@click.pass_context
def check(context: click.Context, table: str | None, deep: bool, as_json: bool) -> None:
    """Check every invariant of a table; exit code 2 if one is broken."""
    from tidelake.cli.output import show_report

    report = _table(context, table).check(deep=deep)
    show_report(report, as_json=as_json)
    if not report.ok:
        context.exit(2)


@cli.command()
@_JSON
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Check this machine and the storage of the lake."""
    from tidelake.cli.doctor import run_doctor

    warehouse, table_path = context.obj
    if not run_doctor(warehouse or table_path, as_json=as_json):
        context.exit(2)
