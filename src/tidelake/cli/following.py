"""Commands that show changes: past commits, the difference of two snapshots, and changes as they are committed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from tidelake.cli.place import CommonOptions, example, open_named, pass_common_options, split_names, with_common_options

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelake.spec.documents.snapshot import Snapshot


@click.command(epilog=example("-w lake log shop.users -n 5"))
@click.argument("table", required=False)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many snapshots.")
@with_common_options
@pass_common_options
def log(common: CommonOptions, table: str | None, limit: int) -> None:
    """List the commits, newest first, including expired ones whose changelog is kept."""
    from tidelake.cli.output import note, print_json, say
    from tidelake.ops.scan.changes import find_change

    handle = open_named(common, table)
    store = handle.store
    ids = sorted({*store.snapshots.ids(), *store.changelogs.ids()}, reverse=True)[:limit]
    found = [each for each in (find_change(store, number) for number in ids) if each is not None]
    kept = store.snapshots.earliest_id() or 1
    if common.as_json:
        print_json([_facts(each, is_snapshot=each.id >= kept) for each in found])
        return
    for each in found:
        facts = _facts(each, is_snapshot=each.id >= kept)
        added = facts["delta_record_count"]
        rows = "" if added is None else f"  {added:+,} rows"
        changes = "" if each.changelog_record_count is None else f", {each.changelog_record_count:,} changes"
        gone = "" if each.id >= kept else "  (changelog)"
        say(f"{each.id:>6}  {facts['time']}  {each.commit_kind.value:<9}{rows}{changes}  by {each.commit_user}{gone}")
    if not found:
        note(f"{handle.name} has no commit yet")


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
@click.option("--consumer", help="Save the progress under this name, and resume where it stopped.")
@click.option(
    "--start",
    default="latest-full",
    show_default=True,
    help="latest-full, latest, earliest, compacted-full, a snapshot id, or a local time.",
)
@click.option("--until", help='Stop after this snapshot; "latest" is the newest one at the start.')
@click.option("--timeout", type=click.FloatRange(min=0), help="Stop after so many seconds without a change.")
@click.option(
    "--poll",
    type=click.FloatRange(min=0),
    help="Seconds between two looks for a new snapshot; 1 by default, unless the table's options say otherwise.",
)
@click.option("--columns", help="Names, separated by commas.")
@click.option("--where", help="A SQL condition.")
@with_common_options
@pass_common_options
def follow(
    common: CommonOptions,
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

    stream = open_named(common, table).follow(
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
                    _show(common, pa.Table.from_batches([batch]).add_column(0, "snapshot", number), title)
                sys.stdout.flush()
        except KeyboardInterrupt:
            note("stopped")
    if not seen and not common.as_json:
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
    help="Compare the two states (diff), or show what the snapshots between them wrote.",
)
@click.option("-n", "--limit", type=click.IntRange(min=0), help="Print at most so many rows.")
@click.option("--columns", help="Names, separated by commas.")
@click.option("--where", help="A SQL condition.")
@with_common_options
@pass_common_options
def diff(
    common: CommonOptions,
    table_or_since: str,
    since_or_until: str | None,
    until: str | None,
    mode: str,
    limit: int | None,
    columns: str | None,
    where: str | None,
) -> None:
    """Show the rows in which two snapshots (ids, or names of tags) differ: [TABLE] SINCE [UNTIL]."""
    from tidelake.query import with_request

    given = [each for each in (table_or_since, since_or_until, until) if each is not None]
    name = None if common.table_path else given.pop(0)
    if not 1 <= len(given) <= 2:
        raise click.UsageError("name the two snapshots: diff [TABLE] SINCE [UNTIL]")
    since, end = (
        int(each) if each and each.isdecimal() else each for each in (given[0], given[1] if given[1:] else None)
    )
    handle = open_named(common, name).with_options({"incremental-between-scan-mode": mode})
    scan = with_request(handle.changes(since, end, columns=split_names(columns), where=where), limit=limit)
    _show(common, scan.to_arrow(), f"what changed in {handle.name}")


def _show(common: CommonOptions, rows: pa.Table, title: str) -> None:
    from tidelake.cli.output import print_json, show_table, showable

    if not common.as_json:
        show_table(rows, title=title, as_json=False, whole=True)
        return
    for row in showable(rows).to_pylist():
        print_json(row)
