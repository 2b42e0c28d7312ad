"""Commands that let go of what is old or wrong: expire, orphans, rollback; and check, which only looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import tidelake
from tidelake.cli.place import (
    Place,
    Proposal,
    agreed,
    called,
    example,
    open_named,
    pass_place,
    with_consent,
    with_place,
)
from tidelake.notebook import counted

if TYPE_CHECKING:
    from tidelake.table import Table

_SHOWN = 20
"""Names that a plan lists for people; JSON has all."""


@click.command(epilog=example("-w lake expire shop.users --older-than '7 d' --retain-min 10 --plan"))
@click.argument("table", required=False)
@click.option("--older-than", help="A moment (local time), or how long ago: '2026-11-15 12:00:00', '7 d'.")
@click.option("--retain-min", type=int, help="Newest snapshots that stay in any case.")
@click.option("--retain-max", type=int, help="Snapshots beyond this number go, young or not.")
@click.option("--max-deletes", type=int, help="At most so many snapshots go.")
@click.option("--changelogs", is_flag=True, help="Expire changelogs that outlived their snapshots instead.")
@with_consent
@with_place
@pass_place
def expire(
    place: Place,
    table: str | None,
    older_than: str | None,
    retain_min: int | None,
    retain_max: int | None,
    max_deletes: int | None,
    changelogs: bool,
    plan_only: bool,
    yes: bool,
) -> None:
    """Expire old snapshots, with the files that only they hold.

    What is not said is as the table's options say (snapshot.num-retained.*, snapshot.time-retained). Tags, branches and
    consumers hold back what they need. With --changelogs the changelogs go that outlived their snapshots.
    """
    from tidelake.cli.output import print_json, progress_bar, say
    from tidelake.ops.maintain.changelogs import ChangelogPlan
    from tidelake.ops.maintain.expire import ExpirePlan

    handle = open_named(place, table)

    def run(*, only_plan: bool) -> object:
        verb = handle.expire_changelogs if changelogs else handle.expire_snapshots
        return verb(older_than, retain_max, retain_min, max_deletes, plan_only=only_plan)

    plan = run(only_plan=True)
    assert isinstance(plan, ExpirePlan | ChangelogPlan)
    ids = plan.changelog_ids if isinstance(plan, ChangelogPlan) else plan.snapshot_ids
    files = {
        "data_files": len(plan.files.data),
        "changelog_files": len(plan.files.changelog),
        "metadata_files": len(plan.files.metadata),
    }
    proposal = Proposal(
        {"table": handle.name, "changelog_ids" if changelogs else "snapshot_ids": list(ids), **files},
        f"expires {plan}"
        if ids
        else "no changelog to expire"
        if changelogs
        else "nothing to expire" + _why_none(handle),
        "this cannot be undone; what must stay readable, tag it first",
        empty=not ids,
    )
    if not agreed(place, proposal, question="expire them?", plan_only=plan_only, yes=yes):
        return
    with progress_bar("expiring"):
        done = run(only_plan=False)
    if place.as_json:
        left = getattr(done, "left", ())
        print_json({**proposal.facts, "left": list(left), "done": True})
    else:
        say(str(done))


def _why_none(handle: Table) -> str:
    """What keeps snapshots by default, where the table does not say."""
    kept = handle.options.get("snapshot.num-retained.min", "10")
    time = handle.options.get("snapshot.time-retained", "1 h")
    return f"; the newest {kept} stay, and those of the last {time}: say --retain-min and --older-than"


@click.command(epilog=example("-w lake orphans shop.users --older-than '3 d'"))
@click.argument("table", required=False)
@click.option(
    "--older-than", default="1 d", show_default=True, help="A moment (local time), or how long ago; at least a day."
)
@with_consent
@with_place
@pass_place
def orphans(place: Place, table: str | None, older_than: str, plan_only: bool, yes: bool) -> None:
    """Find files that nothing refers to, and delete them."""
    from tidelake.cli.output import note, print_json, progress_bar, say

    handle = open_named(place, table)
    with progress_bar("looking"):
        plan = handle.remove_orphans(older_than)
    listed = not place.as_json and bool(plan.paths)
    for path in plan.paths[:_SHOWN] if listed and not yes else ():
        note(f"  {path}")
    if listed and not yes and len(plan.paths) > _SHOWN:
        note(f"  … and {len(plan.paths) - _SHOWN:,} more")
    proposal = Proposal(
        {"table": handle.name, "files": len(plan.paths), "bytes": plan.size, "paths": list(plan.paths)},
        f"deletes {counted(len(plan.paths), 'file')} of {plan.size:,} bytes that nothing refers to"
        if plan.paths
        else f"no orphan is older than {older_than}",
        "this cannot be undone; after a rollback they are the only copy of what was rolled back",
        empty=not plan.paths,
    )
    if not agreed(place, proposal, question="delete them?", plan_only=plan_only, yes=yes):
        return
    with progress_bar("deleting"):
        done = handle.remove_orphans(older_than, plan_only=False)
    if place.as_json:
        facts = {"files": len(done.paths), "bytes": done.size, "left": list(done.left)}
        print_json({"table": handle.name, **facts, "done": True})
        return
    say(f"deleted {counted(len(done.paths) - len(done.left), 'file')}")
    if done.left:
        note(f"the storage kept {counted(len(done.left), 'file')}; try again later")


@click.command(epilog=example("-w lake rollback shop.users --to 12 --plan"))
@click.argument("table", required=False)
@click.option("--to", "--snapshot", "snapshot", type=int, help="The snapshot that becomes the newest.")
@click.option("--tag", help="The tag whose snapshot becomes the newest.")
@click.option("--timestamp", help="The newest snapshot that is not later than this (local time).")
@with_consent
@with_place
@pass_place
def rollback(
    place: Place,
    table: str | None,
    snapshot: int | None,
    tag: str | None,
    timestamp: str | None,
    plan_only: bool,
    yes: bool,
) -> None:
    """Go back to an older snapshot; newer ones and their tags are removed. Stop writers first."""
    from tidelake.cli.output import print_json, say

    if [snapshot, tag, timestamp].count(None) != 2:
        raise tidelake.InvalidInputError(
            "a rollback takes one target", hint="say --to SNAPSHOT, --tag NAME or --timestamp TIME"
        )
    handle = open_named(place, table)
    plan = handle.rollback_to(snapshot=snapshot, tag=tag, timestamp=timestamp, plan_only=True)
    gone = plan.snapshot_ids or plan.tags or plan.changelog_ids or plan.restored
    branch = f"tidelake branch create {called(place, handle)} before-rollback --at {max(plan.snapshot_ids, default=0)}"
    proposal = Proposal(
        {
            "table": handle.name,
            "snapshot_id": plan.target.id,
            "removed_snapshots": list(plan.snapshot_ids),
            "removed_tags": list(plan.tags),
            "restored": plan.restored,
        },
        str(plan) if gone else f"snapshot {plan.target.id} is the newest already, nothing to do",
        f"this cannot be undone; to keep a copy of what is there now: {branch}",
        empty=not gone,
    )
    if not agreed(place, proposal, question="roll back?", plan_only=plan_only, yes=yes):
        return
    done = handle.rollback_to(snapshot=snapshot, tag=tag, timestamp=timestamp)
    if place.as_json:
        print_json({**proposal.facts, "removed_snapshots": list(done.snapshot_ids), "done": True})
    else:
        say(f"the newest snapshot is {done.target.id} now")


@click.command(epilog=example("-w lake check shop.users --deep --rows"))
@click.argument("table", required=False)
@click.option("--deep", is_flag=True, help="Look at every snapshot, not only the newest.")
@click.option("--rows", is_flag=True, help="Read the rows of the data files too.")
@with_place
@click.pass_context
def check(context: click.Context, table: str | None, deep: bool, rows: bool) -> None:
    """Check every invariant of a table; exit code 2 if one is broken. Changes nothing."""
    from tidelake.cli.output import show_report

    place = context.ensure_object(Place)
    report = open_named(place, table).check(deep=deep, rows=rows)
    show_report(report, as_json=place.as_json)
    if not report.ok:
        context.exit(2)
