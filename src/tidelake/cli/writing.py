"""Commands that change rows: write, delete, update."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

import tidelake
from tidelake.cli.place import (
    CommonOptions,
    Proposal,
    ask,
    confirm_proposal,
    example,
    location,
    name_for_command,
    open_lake,
    open_named,
    pairs,
    pass_common_options,
    split_names,
    table_and,
    with_common_options,
    with_consent,
)
from tidelake.cli.source import FORMATS, STDIN
from tidelake.notebook import pluralize

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelake.ops.commit.messages import CommitResult
    from tidelake.table import Table


@click.command(epilog=example("-w lake write shop.users users.csv --create --primary-key id"))
@click.argument("names", nargs=-1, metavar="[TABLE] FILE")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="Format of FILE, if its extension does not show it.")
@click.option("--mode", type=click.Choice(["append", "overwrite", "overwrite-dynamic"]), default="append")
@click.option("--partition", "chosen", multiple=True, metavar="KEY=VALUE", help="Overwrite only this partition.")
@click.option("--row-kind", help="Column of FILE with the kind of each row: +I, -U, +U or -D.")
@click.option("--create", is_flag=True, help="Create the table with the columns of FILE if it does not exist.")
@click.option("--primary-key", help="With --create: key columns, separated by commas.")
@click.option("--partition-by", help="With --create: partition columns, separated by commas.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="With --create: an option of the table.")
@click.option("--commit-user", help="With --identifier: the commit user.")
@click.option(
    "--identifier", type=int, help="Number of this write. A second write with the same user and number does nothing."
)
@click.option("--yes", is_flag=True, help="Overwrite without asking.")
@with_common_options
@pass_common_options
def write(common: CommonOptions, /, names: tuple[str, ...], **given: Any) -> None:
    """Write the rows of FILE: Parquet, CSV, TSV, JSON lines or Arrow; `-` is standard input.

    A table with a primary key keeps one row per key: a row with an existing key replaces or changes that key's row.
    """
    from tidelake.cli.output import show_result
    from tidelake.cli.source import format_of

    asked = _WriteOptions(**given)
    table, (file,) = table_and(common, names, "FILE")
    format_of(file, asked.kind)
    shape = _Shape(
        split_names(asked.primary_key) or [], split_names(asked.partition_by) or [], pairs(asked.options, "option")
    )
    handle = (
        _open_or_create(common, table, file, asked.kind, shape)
        if asked.create
        else _open_existing(common, table, shape)
    )
    partition: dict[str, object] | None = {**pairs(asked.chosen, "partition")} if asked.chosen else None
    if asked.mode != "append" and not _confirm_overwrite(common, handle, file, asked.mode, partition, yes=asked.yes):
        return

    def run(rows: Iterable[pa.RecordBatch]) -> CommitResult:
        return handle.write(
            rows,
            mode=asked.mode,
            partition=partition,
            row_kind=asked.row_kind,
            commit_user=asked.commit_user,
            identifier=asked.identifier,
        )

    show_result(_run_write(handle, file, asked.kind, run), as_json=common.as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WriteOptions:
    """The options of the command `write`, under the names that click gives them."""

    kind: str | None
    mode: str
    chosen: tuple[str, ...]
    row_kind: str | None
    create: bool
    primary_key: str | None
    partition_by: str | None
    options: tuple[str, ...]
    commit_user: str | None
    identifier: int | None
    yes: bool


@dataclass(frozen=True, slots=True)
class _Shape:
    """Keys, partitions and options of a new table."""

    primary_key: list[str]
    partition_by: list[str]
    options: dict[str, str]


def _open_existing(common: CommonOptions, table: str | None, shape: _Shape) -> Table:
    if shape.primary_key or shape.partition_by or shape.options:
        raise tidelake.InvalidInputError(
            "keys, partitions and options can only be given for a new table", hint="add --create, or leave them out"
        )
    return open_named(common, table)


def _open_or_create(common: CommonOptions, table: str | None, file: str, kind: str | None, shape: _Shape) -> Table:
    """Open the table; if it does not exist, create it with the columns of the file's first rows."""
    from tidelake.cli.source import read_rows

    try:
        return open_named(common, table)
    except tidelake.NotFoundError:
        if file == STDIN:
            raise tidelake.InvalidInputError(
                "a table cannot be created from standard input, which can be read only once",
                hint="put the rows into a file",
            ) from None
        first = next(iter(read_rows(file, None, given=kind)), None)
        if first is None:
            raise tidelake.InvalidInputError("a table cannot be created from a file without rows", path=file) from None
    if table is None:
        import pyarrow as pa

        found, storage = location(common)
        none = pa.Table.from_batches([first.slice(0, 0)])
        tidelake.write_table(
            found or "",
            none,
            primary_key=shape.primary_key,
            partition_by=shape.partition_by,
            options=shape.options,
            storage=storage,
        )
        return open_named(common, None)
    return open_lake(common).create_table(
        table,
        first.schema,
        primary_key=shape.primary_key,
        partition_by=shape.partition_by,
        options=shape.options,
        if_not_exists=True,
    )


def _confirm_overwrite(
    common: CommonOptions, handle: Table, file: str, mode: str, partition: dict[str, object] | None, *, yes: bool
) -> bool:
    """Show what an overwrite replaces, and ask."""
    from tidelake.cli.output import note, print_json

    latest = handle.latest_snapshot()
    rows = (latest.total_record_count if latest else None) or 0
    if common.as_json and not yes:
        print_json({"table": handle.name, "mode": mode, "partition": partition, "rows_now": rows, "done": False})
        return False
    if file == STDIN and not yes:
        raise tidelake.InvalidInputError(
            "a question cannot be asked while rows come from standard input", hint="use --yes to replace the rows"
        )
    what = "the partitions that the new rows are in" if mode == "overwrite-dynamic" else "every row"
    if partition:
        what = "partition " + ", ".join(f"{key}={value}" for key, value in partition.items())
    if not yes:
        note(f"replaces {what} of {handle.name} ({pluralize(rows, 'row')} now; older snapshots keep them)")
    return ask("replace them?", yes=yes)


def _run_write(
    handle: Table,
    file: str,
    kind: str | None,
    run: Callable[[Iterable[pa.RecordBatch]], CommitResult],
) -> CommitResult:
    from tidelake.cli.output import progress_bar
    from tidelake.cli.source import read_rows

    def report_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in batches:
            yield batch
            rows += batch.num_rows
            if report:
                report(rows, None)

    with progress_bar("writing", "rows") as report:
        return run(report_rows(read_rows(file, handle.schema.to_arrow(), given=kind)))


# ------------------------------------------------------------------------------------------------ delete, update


@click.command(epilog=example("-w lake delete shop.users --where \"status = 'gone'\" --plan"))
@click.argument("table", required=False)
@click.option("--where", required=True, help="A SQL condition; true matches every row.")
@with_consent
@with_common_options
@pass_common_options
def delete(common: CommonOptions, table: str | None, where: str, plan_only: bool, yes: bool) -> None:
    """Delete the rows that match a condition."""
    from tidelake.cli.output import progress_bar

    handle = open_named(common, table)
    if not _may_change(common, handle, "deletes", where, plan_only=plan_only, yes=yes):
        return
    with progress_bar("deleting"):
        result = handle.delete(where)
    _show_change(common, result, "deleted")


@click.command(epilog=example("-w lake update shop.users --set \"status = 'gone'\" --set 'n = n + 1' --where 'id = 7'"))
@click.argument("table", required=False)
@click.option(
    "--set", "given", multiple=True, required=True, metavar="COLUMN=EXPRESSION", help="Put texts into quotes: n='x'."
)
@click.option("--where", required=True, help="A SQL condition; true matches every row.")
@with_consent
@with_common_options
@pass_common_options
def update(
    common: CommonOptions, table: str | None, given: tuple[str, ...], where: str, plan_only: bool, yes: bool
) -> None:
    """Set columns of the rows that match a condition. New values are SQL expressions over the old row."""
    from tidelake.cli.output import progress_bar

    assignments = {name: text.strip() for name, text in pairs(given, "new value", "COLUMN=EXPRESSION").items()}
    handle = open_named(common, table)
    handle.check_update(assignments)
    if not _may_change(common, handle, "updates", where, plan_only=plan_only, yes=yes):
        return
    with progress_bar("updating"):
        result = handle.update(assignments, where)
    _show_change(common, result, "updated")


def _may_change(common: CommonOptions, handle: Table, verb: str, where: str, *, plan_only: bool, yes: bool) -> bool:
    if yes and not plan_only:
        return True

    latest = handle.latest_snapshot()
    rows = handle.count(where)
    at = latest.id if latest else None
    rollback = f"tidelake rollback {name_for_command(common, handle)} --to {at}"
    proposal = Proposal(
        {"table": handle.name, "where": where, "rows": rows, "snapshot_id": at},
        f"{verb} {pluralize(rows, 'row')} of {handle.name}" if rows else "no row matches, nothing to do",
        f"the rows as they are now stay readable with --at {at}; `{rollback}` undoes this change and every later one",
        empty=not rows,
    )
    return confirm_proposal(common, proposal, question="go ahead?", plan_only=plan_only, yes=yes)


def _show_change(common: CommonOptions, result: CommitResult, verb: str) -> None:
    from tidelake.cli.output import show_result

    done = f"snapshot {', '.join(map(str, result.snapshot_ids))}: {verb} {pluralize(result.rows, 'row')}"
    show_result(result, as_json=common.as_json, text=done)
