"""Commands that only read: databases, tables, columns, rows, what a read would do, why a key has its row."""

from __future__ import annotations

import click

import tidelake
from tidelake.cli.place import (
    CommonOptions,
    example,
    open_at,
    open_lake,
    open_named,
    pairs,
    pass_common_options,
    require_lake,
    split_names,
    system_table_or_none,
    with_common_options,
    with_point,
)


@click.command(epilog=example("-w lake ls shop"))
@click.argument("database", required=False)
@with_common_options
@pass_common_options
def ls(common: CommonOptions, database: str | None) -> None:
    """List databases, or the tables of one; `ls sys` lists the system tables of the lake."""
    from tidelake.cli.output import note, show_names

    lake = open_lake(common)
    require_lake(lake)
    try:
        names = lake.tables(database) if database else lake.databases()
    except tidelake.NotFoundError as cause:
        known = lake.databases()
        hint = f"databases are {', '.join(known[:20])}" if known else "this lake has no database yet"
        raise tidelake.NotFoundError(
            "database does not exist", code="database-not-found", database=database, lake=lake.location, hint=hint
        ) from cause
    show_names(names, as_json=common.as_json)
    if not names:
        note(f"no table in database {database}" if database else f"no database in {lake.location}")


@click.command(epilog=example("-w lake show shop.sales"))
@click.argument("table", required=False)
@with_common_options
@pass_common_options
def show(common: CommonOptions, table: str | None) -> None:
    """Show a table at a glance: columns, keys, size and last commit."""
    from tidelake.cli.output import show_overview, show_system_overview

    handle = open_named(common, table)
    if (system := system_table_or_none(handle)) is not None:
        show_system_overview(system, as_json=common.as_json)
    else:
        show_overview(handle, as_json=common.as_json)


@click.command(epilog=example("-w lake schema shop.sales"))
@click.argument("table", required=False)
@with_common_options
@pass_common_options
def schema(common: CommonOptions, table: str | None) -> None:
    """Show columns, keys and options."""
    from tidelake.cli.output import show_schema

    show_schema(open_named(common, table), as_json=common.as_json)


@click.command(epilog=example("-w lake head shop.sales -n 5 --where \"status = 'new'\" --at 3"))
@click.argument("table", required=False)
@click.option("-n", "--limit", type=click.IntRange(min=0), default=10, show_default=True, help="How many rows.")
@click.option("--columns", help="Names, separated by commas.")
@click.option("--where", help="A SQL condition.")
@click.option("--order-by", help='Columns, separated by commas; "amount desc" is descending.')
@click.option("--all", "everything", is_flag=True, help="Show every column of a system table.")
@with_point
@with_common_options
@pass_common_options
def head(
    common: CommonOptions,
    table: str | None,
    limit: int,
    columns: str | None,
    where: str | None,
    order_by: str | None,
    everything: bool,
) -> None:
    """Print the first rows of a table, or of a system table such as shop.sales$files."""
    from tidelake.cli.output import BRIEF, show_table, without_secrets

    handle = open_at(common, table)
    rows = handle.to_arrow(columns=split_names(columns), where=where, limit=limit, order_by=split_names(order_by))
    if system_table_or_none(handle) is not None:
        shown = () if columns or everything else BRIEF.get(handle.name.rpartition("$")[2], ())
        title, whole = handle.name, everything
        show_table(
            without_secrets(rows), title=title, as_json=common.as_json, whole=whole, columns=shown, wraps=everything
        )
    else:
        show_table(rows, title=handle.name, as_json=common.as_json, whole=True)


@click.command(epilog=example('-w lake explain shop.sales --where "id = 7"'))
@click.argument("table", required=False)
@click.option("--columns", help="Names, separated by commas.")
@click.option("--where", help="A SQL condition.")
@with_point
@with_common_options
@pass_common_options
def explain(common: CommonOptions, table: str | None, columns: str | None, where: str | None) -> None:
    """Show which files a read would open and skip, and whether it has to merge. Reads no rows."""
    from tidelake.cli.output import print_json, say

    scan = open_at(common, table).scan(columns=split_names(columns), where=where)
    if not common.as_json:
        for line in scan.explain().splitlines():
            say(line)
        return
    plan = scan.plan()
    print_json(
        {
            "table": scan.name,
            "snapshot_id": plan.snapshot.id if plan.snapshot else None,
            "manifests": plan.manifests,
            "manifests_read": plan.manifests_read,
            "files": plan.files_live,
            "files_kept": plan.files_kept,
            "bytes": plan.size,
            "rows": plan.row_count,
            "splits": len(plan.splits),
            "merges": sum(not split.raw_convertible for split in plan.splits),
        }
    )


@click.command(epilog=example("-w lake why shop.users --key id=7"))
@click.argument("table", required=False)
@click.option("--key", "given", multiple=True, metavar="COLUMN=VALUE", help="One for each column of the primary key.")
@with_point
@with_common_options
@pass_common_options
def why(common: CommonOptions, table: str | None, given: tuple[str, ...]) -> None:
    """Show every version of one key, the file it is stored in, and the row that they merge to."""
    from tidelake.cli.output import print_json, say, showable

    handle = open_at(common, table)
    found = handle.why(pairs(given, "key", "COLUMN=VALUE"))
    if common.as_json:
        print_json(
            {
                "key": dict(found.key),
                "rule": found.rule,
                "versions": showable(found.versions).to_pylist(),
                "row": found.row,
            }
        )
        return
    for line in str(found).splitlines():
        say(line)
