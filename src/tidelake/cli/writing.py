"""Commands that change rows: write, delete, update."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

import tidelake
from tidelake.cli.place import (
    Place,
    Proposal,
    agreed,
    called,
    example,
    location,
    open_lake,
    open_named,
    pairs,
    pass_place,
    settle,
    split_names,
    table_and,
    with_consent,
    with_place,
)
from tidelake.cli.source import FORMATS, STDIN
from tidelake.notebook import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelake.ops.commit.messages import CommitResult
    from tidelake.table import Table


@click.command(epilog=example("-w lake write shop.users users.csv --create --primary-key id"))
@click.argument("names", nargs=-1, metavar="[TABLE] FILE")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="Format of FILE, where its ending does not tell.")
@click.option("--mode", type=click.Choice(["append", "overwrite", "overwrite-dynamic"]), default="append")
@click.option("--partition", "chosen", multiple=True, metavar="KEY=VALUE", help="Overwrite only this partition.")
@click.option("--row-kind", help="Column of FILE with the kind of each row: +I, -U, +U or -D.")
@click.option("--create", is_flag=True, help="Make the table from the columns of FILE if it is not there.")
@click.option("--primary-key", help="With --create: key columns, separated by commas.")
@click.option("--partition-by", help="With --create: partition columns, separated by commas.")
@click.option("--option", "given", multiple=True, metavar="KEY=VALUE", help="With --create: an option of the table.")
@click.option("--commit-user", help="With --identifier: who writes.")
@click.option("--identifier", type=int, help="Number of this write; sent a second time it does nothing.")
@click.option("--yes", is_flag=True, help="Overwrite without a question.")
@with_place
@pass_place
def write(
    place: Place,
    names: tuple[str, ...],
    kind: str | None,
    mode: str,
    chosen: tuple[str, ...],
    row_kind: str | None,
    create: bool,
    primary_key: str | None,
    partition_by: str | None,
    given: tuple[str, ...],
    commit_user: str | None,
    identifier: int | None,
    yes: bool,
) -> None:
    """Write the rows of FILE: Parquet, CSV, TSV, JSON lines or Arrow; `-` is standard input.

    A table with a primary key keeps one row per key: rows with a known key replace or change the row it has.
    """
    from tidelake.cli.output import show_result
    from tidelake.cli.source import format_of

    table, (file,) = table_and(place, names, "FILE")
    format_of(file, kind)
    shape = _Shape(split_names(primary_key) or [], split_names(partition_by) or [], pairs(given, "option"))
    handle = _created(place, table, file, kind, shape) if create else _existing(place, table, shape)
    partition: dict[str, object] | None = {**pairs(chosen, "partition")} if chosen else None
    if mode != "append" and not _agreed_overwrite(place, handle, file, mode, partition, yes=yes):
        return

    def run(rows: Iterable[pa.RecordBatch]) -> CommitResult:
        return handle.write(
            rows, mode=mode, partition=partition, row_kind=row_kind, commit_user=commit_user, identifier=identifier
        )

    show_result(_run_write(handle, file, kind, run), as_json=place.as_json)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a new table is like, apart from its columns."""

    primary_key: list[str]
    partition_by: list[str]
    options: dict[str, str]


def _existing(place: Place, table: str | None, shape: _Shape) -> Table:
    if shape.primary_key or shape.partition_by or shape.options:
        raise tidelake.InvalidInputError(
            "keys, partitions and options are for a new table", hint="say --create too, or leave them out"
        )
    return open_named(place, table)


def _created(place: Place, table: str | None, file: str, kind: str | None, shape: _Shape) -> Table:
    """The table; made from the first rows of the file where it is missing."""
    from tidelake.cli.source import read_rows

    try:
        return open_named(place, table)
    except tidelake.NotFoundError:
        if file == STDIN:
            raise tidelake.InvalidInputError(
                "a table cannot be made from standard input, which is read only once", hint="put the rows into a file"
            ) from None
        first = next(iter(read_rows(file, None, given=kind)), None)
        if first is None:
            raise tidelake.InvalidInputError("a table cannot be made from no rows", path=file) from None
    if table is None:
        import pyarrow as pa

        found, storage = location(place)
        none = pa.Table.from_batches([first.slice(0, 0)])
        tidelake.write_table(
            found or "",
            none,
            primary_key=shape.primary_key,
            partition_by=shape.partition_by,
            options=shape.options,
            storage=storage,
        )
        return open_named(place, None)
    return open_lake(place).create_table(
        table,
        first.schema,
        primary_key=shape.primary_key,
        partition_by=shape.partition_by,
        options=shape.options,
        if_not_exists=True,
    )


def _agreed_overwrite(
    place: Place, handle: Table, file: str, mode: str, partition: dict[str, object] | None, *, yes: bool
) -> bool:
    """Tell what an overwrite replaces, and ask."""
    from tidelake.cli.output import note, print_json

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
    return settle("replace them?", yes=yes)


def _run_write(
    handle: Table,
    file: str,
    kind: str | None,
    run: Callable[[Iterable[pa.RecordBatch]], CommitResult],
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


# ------------------------------------------------------------------------------------------------ delete, update


@click.command(epilog=example("-w lake delete shop.users --where \"status = 'gone'\" --plan"))
@click.argument("table", required=False)
@click.option("--where", required=True, help="A SQL condition; true stands for every row.")
@with_consent
@with_place
@pass_place
def delete(place: Place, table: str | None, where: str, plan_only: bool, yes: bool) -> None:
    """Delete the rows that a condition keeps."""
    from tidelake.cli.output import progress_bar

    handle = open_named(place, table)
    if not _may_change(place, handle, "deletes", where, plan_only=plan_only, yes=yes):
        return
    with progress_bar("deleting"):
        result = handle.delete(where)
    _show_change(place, result, "deleted")


@click.command(epilog=example("-w lake update shop.users --set \"status = 'gone'\" --set 'n = n + 1' --where 'id = 7'"))
@click.argument("table", required=False)
@click.option(
    "--set", "given", multiple=True, required=True, metavar="COLUMN=EXPRESSION", help="Texts stand in quotes: n='x'."
)
@click.option("--where", required=True, help="A SQL condition; true stands for every row.")
@with_consent
@with_place
@pass_place
def update(place: Place, table: str | None, given: tuple[str, ...], where: str, plan_only: bool, yes: bool) -> None:
    """Give columns of the rows that a condition keeps new values: SQL over the old row."""
    from tidelake.cli.output import progress_bar

    assignments = {name: text.strip() for name, text in pairs(given, "new value", "COLUMN=EXPRESSION").items()}
    handle = open_named(place, table)
    handle.check_update(assignments)
    if not _may_change(place, handle, "updates", where, plan_only=plan_only, yes=yes):
        return
    with progress_bar("updating"):
        result = handle.update(assignments, where)
    _show_change(place, result, "updated")


def _may_change(place: Place, handle: Table, verb: str, where: str, *, plan_only: bool, yes: bool) -> bool:
    if yes and not plan_only:
        return True

    latest = handle.latest_snapshot()
    rows = handle.count(where)
    at = latest.id if latest else None
    proposal = Proposal(
        {"table": handle.name, "where": where, "rows": rows, "snapshot_id": at},
        f"{verb} {counted(rows, 'row')} of {handle.name}" if rows else "no row matches, nothing to do",
        f"the rows as they are stay readable with --at {at}; `tidelake rollback {called(place, handle)} --to {at}` "
        "takes it back, with everything after it",
        empty=not rows,
    )
    return agreed(place, proposal, question="go ahead?", plan_only=plan_only, yes=yes)


def _show_change(place: Place, result: CommitResult, verb: str) -> None:
    from tidelake.cli.output import show_result

    done = f"snapshot {', '.join(map(str, result.snapshot_ids))}: {verb} {counted(result.rows, 'row')}"
    show_result(result, as_json=place.as_json, text=done)
