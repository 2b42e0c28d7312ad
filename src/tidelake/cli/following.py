"""Commands that show changes: what came between two snapshots, and what comes while one waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelake.cli.place import Place, example, open_named, pass_place, split_names, with_place

if TYPE_CHECKING:
    import pyarrow as pa

_DIFF = {"incremental-between-scan-mode": "diff"}


@click.command(epilog=example("-w lake follow shop.stock --consumer report --until latest"))
@click.argument("table", required=False)
@click.option("--consumer", help="Keep the progress under this name, and go on where it stopped.")
@click.option(
    "--start",
    default="latest-full",
    show_default=True,
    help="latest-full, latest, earliest, compacted-full, or the id of a snapshot.",
)
@click.option("--until", help='Stop behind this snapshot; "latest" is the newest one now.')
@click.option("--timeout", type=click.FloatRange(min=0), help="Stop when nothing came for so many seconds.")
@click.option("--poll", type=click.FloatRange(min=0), default=1.0, show_default=True, help="Seconds between looks.")
@click.option("--columns", help="Names, separated by commas.")
@click.option("--where", help="A SQL condition.")
@with_place
@pass_place
def follow(
    place: Place,
    table: str | None,
    consumer: str | None,
    start: str,
    until: str | None,
    timeout: float | None,
    poll: float,
    columns: str | None,
    where: str | None,
) -> None:
    """Print changes as they are committed; with --json one line for each row. Stops with Ctrl-C."""
    import pyarrow as pa

    from tidelake.cli.output import note

    stream = open_named(place, table).follow(
        consumer,
        int(start) if start.isdecimal() else start,
        poll,
        columns=split_names(columns),
        where=where,
        timeout=timeout,
        until=int(until) if until is not None and until.isdecimal() else until,
    )
    seen = 0
    with stream:
        try:
            for change in stream:
                seen += 1
                word = "state at" if change.full else "changes of"
                rows = change.to_arrow()
                number = pa.array([change.snapshot_id] * rows.num_rows, pa.int64())
                _show(place, rows.add_column(0, "snapshot", number), f"{word} snapshot {change.snapshot_id}")
        except KeyboardInterrupt:
            note("stopped")
    if not seen and not place.as_json:
        note("nothing changed")


@click.command(epilog=example("-w lake diff shop.stock 3 7"))
@click.argument("table_or_since")
@click.argument("since_or_until", required=False)
@click.argument("until", required=False)
@click.option("--columns", help="Names, separated by commas.")
@click.option("--where", help="A SQL condition.")
@with_place
@pass_place
def diff(
    place: Place,
    table_or_since: str,
    since_or_until: str | None,
    until: str | None,
    columns: str | None,
    where: str | None,
) -> None:
    """Show the rows in which two snapshots (ids, or names of tags) differ: [TABLE] SINCE [UNTIL]."""
    given = [each for each in (table_or_since, since_or_until, until) if each is not None]
    name = None if place.table_path else given.pop(0)
    if not 1 <= len(given) <= 2:
        raise click.UsageError("name the two snapshots: diff [TABLE] SINCE [UNTIL]")
    since, end = (
        int(each) if each and each.isdecimal() else each for each in (given[0], given[1] if given[1:] else None)
    )
    handle = open_named(place, name).with_options(_DIFF)
    rows = handle.changes(since, end, columns=split_names(columns), where=where).to_arrow()
    _show(place, rows, f"what changed in {handle.name}")


def _show(place: Place, rows: pa.Table, title: str) -> None:
    from tidelake.cli.output import print_json, show_table, showable

    if not place.as_json:
        show_table(rows, title=title, as_json=False, whole=True)
        return
    for row in showable(rows).to_pylist():
        print_json(row)
