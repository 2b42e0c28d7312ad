"""Commands that show changes: what was committed, what came between two snapshots, what comes while one waits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from tidelake.cli.place import Place, example, open_named, pass_place, split_names, with_place

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelake.spec.snapshot import Snapshot


@click.command(epilog=example("-w lake log shop.users -n 5"))
@click.argument("table", required=False)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many snapshots.")
@with_place
@pass_place
def log(place: Place, table: str | None, limit: int) -> None:
    """Tell what was committed, the newest first; also what only a changelog is left of."""
    from tidelake.cli.output import note, print_json, say
    from tidelake.ops.scan.changes import find_change

    handle = open_named(place, table)
    store = handle.store
    ids = sorted({*store.snapshots.ids(), *store.changelogs.ids()}, reverse=True)[:limit]
    found = [each for each in (find_change(store, number) for number in ids) if each is not None]
    kept = store.snapshots.earliest_id() or 1
    if place.as_json:
        print_json([_facts(each, is_snapshot=each.id >= kept) for each in found])
        return
    for each in found:
        facts = _facts(each, is_snapshot=each.id >= kept)
        added = facts["delta_record_count"]
        rows = "" if added is None else f"  {added:+,} rows"
        told = "" if each.changelog_record_count is None else f", {each.changelog_record_count:,} changes"
        gone = "" if each.id >= kept else "  (changelog)"
        say(f"{each.id:>6}  {facts['time']}  {each.commit_kind.value:<9}{rows}{told}  by {each.commit_user}{gone}")
    if not found:
        note(f"nothing was committed to {handle.name} yet")


def _facts(snapshot: Snapshot, *, is_snapshot: bool) -> dict[str, object]:
    time = datetime.fromtimestamp(snapshot.time_ms / 1000, UTC).astimezone()
    return {
        "snapshot_id": snapshot.id,
        "time": time.isoformat(" ", "seconds"),
        "kind": snapshot.commit_kind.value,
        "user": snapshot.commit_user,
        "delta_record_count": snapshot.delta_record_count,
        "changelog_record_count": snapshot.changelog_record_count,
        "watermark": snapshot.watermark,
        "is_snapshot": is_snapshot,
    }


@click.command(epilog=example("-w lake follow shop.stock --consumer report --until latest"))
@click.argument("table", required=False)
@click.option("--consumer", help="Keep the progress under this name, and go on where it stopped.")
@click.option(
    "--start",
    default="latest-full",
    show_default=True,
    help="latest-full, latest, earliest, compacted-full, the id of a snapshot, or a moment (local time).",
)
@click.option("--until", help='Stop behind this snapshot; "latest" is the newest one now.')
@click.option("--timeout", type=click.FloatRange(min=0), help="Stop when nothing came for so many seconds.")
@click.option("--poll", type=click.FloatRange(min=0), help="Seconds between looks; 1, unless the table says otherwise.")
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
    poll: float | None,
    columns: str | None,
    where: str | None,
) -> None:
    """Print changes as they are committed; with --json one line for each row. Stops with Ctrl-C."""
    import sys

    import pyarrow as pa

    from tidelake.cli.output import note

    stream = open_named(place, table).follow(
        consumer,
        _start(start),
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
                title = f"{'state at' if change.full else 'changes of'} snapshot {change.snapshot_id}"
                for batch in change.to_batches():  # a whole state may be large
                    number = pa.repeat(pa.scalar(change.snapshot_id), batch.num_rows)
                    _show(place, pa.Table.from_batches([batch]).add_column(0, "snapshot", number), title)
                sys.stdout.flush()
        except KeyboardInterrupt:
            note("stopped")
    if not seen and not place.as_json:
        note("nothing changed")


def _start(text: str) -> int | str | datetime:
    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


@click.command(epilog=example("-w lake diff shop.stock 3 7"))
@click.argument("table_or_since")
@click.argument("since_or_until", required=False)
@click.argument("until", required=False)
@click.option(
    "--mode",
    type=click.Choice(["diff", "auto", "delta", "changelog"]),
    default="diff",
    show_default=True,
    help="What changes are taken from: two states, or what the snapshots between them wrote.",
)
@click.option("-n", "--limit", type=click.IntRange(min=0), help="At most so many rows.")
@click.option("--columns", help="Names, separated by commas.")
@click.option("--where", help="A SQL condition.")
@with_place
@pass_place
def diff(
    place: Place,
    table_or_since: str,
    since_or_until: str | None,
    until: str | None,
    mode: str,
    limit: int | None,
    columns: str | None,
    where: str | None,
) -> None:
    """Show the rows in which two snapshots (ids, or names of tags) differ: [TABLE] SINCE [UNTIL]."""
    from dataclasses import replace

    given = [each for each in (table_or_since, since_or_until, until) if each is not None]
    name = None if place.table_path else given.pop(0)
    if not 1 <= len(given) <= 2:
        raise click.UsageError("name the two snapshots: diff [TABLE] SINCE [UNTIL]")
    since, end = (
        int(each) if each and each.isdecimal() else each for each in (given[0], given[1] if given[1:] else None)
    )
    handle = open_named(place, name).with_options({"incremental-between-scan-mode": mode})
    scan = replace(handle.changes(since, end, columns=split_names(columns), where=where), limit=limit)
    _show(place, scan.to_arrow(), f"what changed in {handle.name}")


def _show(place: Place, rows: pa.Table, title: str) -> None:
    from tidelake.cli.output import print_json, show_table, showable

    if not place.as_json:
        show_table(rows, title=title, as_json=False, whole=True)
        return
    for row in showable(rows).to_pylist():
        print_json(row)
