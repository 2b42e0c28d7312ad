"""Commands that delete what is old or wrong: expire, orphans, rollbacks; analyze; and check, which changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import tidelake
from tidelake.cli.place import (
    CommonOptions,
    Proposal,
    confirm_proposal,
    example,
    name_for_command,
    open_named,
    pass_common_options,
    split_names,
    with_common_options,
    with_consent,
)
from tidelake.notebook import pluralize

if TYPE_CHECKING:
    from tidelake.ops.maintain.returning import ReturnPlan
    from tidelake.ops.maintain.rollback import RollbackPlan
    from tidelake.table import Table

_SHOWN = 20
"""Names that a plan lists for people; JSON has all."""


@click.command(epilog=example("-w lake expire shop.users --older-than '7 d' --retain-min 10 --plan"))
@click.argument("table", required=False)
@click.option("--older-than", help="A local time or an age: '2026-11-15 12:00:00', '7 d'.")
@click.option("--retain-min", type=int, help="Keep at least so many of the newest snapshots.")
@click.option("--retain-max", type=int, help="Keep at most so many snapshots, however new they are.")
@click.option("--max-deletes", type=int, help="Expire at most so many snapshots.")
@click.option("--changelogs", is_flag=True, help="Expire changelogs that outlived their snapshots instead.")
@with_consent
@with_common_options
@pass_common_options
def expire(
    common: CommonOptions,
    table: str | None,
    older_than: str | None,
    retain_min: int | None,
    retain_max: int | None,
    max_deletes: int | None,
    changelogs: bool,
    plan_only: bool,
    yes: bool,
) -> None:
    """Expire old snapshots, and delete the files that only they use.

    Limits that are not given come from the table's options (snapshot.num-retained.*, snapshot.time-retained). What
    tags, branches and consumers need is kept. With --changelogs, changelogs expire that outlived their snapshots.
    """
    from tidelake.cli.output import print_json, progress_bar, say
    from tidelake.ops.maintain.changelogs import ChangelogPlan
    from tidelake.ops.maintain.expire import ExpirePlan

    handle = open_named(common, table)

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
        "this cannot be undone; tag what must stay readable first",
        empty=not ids,
    )
    if not confirm_proposal(common, proposal, question="expire them?", plan_only=plan_only, yes=yes):
        return
    with progress_bar("expiring"):
        done = run(only_plan=False)
    if common.as_json:
        left = getattr(done, "left", ())
        print_json({**proposal.facts, "left": list(left), "done": True})
    else:
        say(str(done))


def _why_none(handle: Table) -> str:
    """What keeps snapshots if no limit is given."""
    kept = handle.options.get("snapshot.num-retained.min", "10")
    time = handle.options.get("snapshot.time-retained", "1 h")
    return f"; the newest {kept} are kept, and those of the last {time}: change that with --retain-min and --older-than"


@click.command(epilog=example("-w lake orphans shop.users --older-than '3 d'"))
@click.argument("table", required=False)
@click.option("--older-than", default="1 d", show_default=True, help="A local time or an age; at least a day.")
@with_consent
@with_common_options
@pass_common_options
def orphans(common: CommonOptions, table: str | None, older_than: str, plan_only: bool, yes: bool) -> None:
    """Delete files that no snapshot, changelog or tag refers to."""
    from tidelake.cli.output import note, print_json, progress_bar, say

    handle = open_named(common, table)
    with progress_bar("looking"):
        plan = handle.remove_orphans(older_than)
    listed = not common.as_json and bool(plan.paths)
    for path in plan.paths[:_SHOWN] if listed and not yes else ():
        note(f"  {path}")
    if listed and not yes and len(plan.paths) > _SHOWN:
        note(f"  … and {len(plan.paths) - _SHOWN:,} more")
    proposal = Proposal(
        {"table": handle.name, "files": len(plan.paths), "bytes": plan.size, "paths": list(plan.paths)},
        f"deletes {pluralize(len(plan.paths), 'file')} of {plan.size:,} bytes that nothing refers to"
        if plan.paths
        else f"no orphan is older than {older_than}",
        "this cannot be undone; after a rollback they are the only copy of what was rolled back",
        empty=not plan.paths,
    )
    if not confirm_proposal(common, proposal, question="delete them?", plan_only=plan_only, yes=yes):
        return
    with progress_bar("deleting"):
        done = handle.remove_orphans(older_than, plan_only=False)
    if common.as_json:
        facts = {"files": len(done.paths), "bytes": done.size, "left": list(done.left)}
        print_json({"table": handle.name, **facts, "done": True})
        return
    say(f"deleted {pluralize(len(done.paths) - len(done.left), 'file')}")
    if done.left:
        note(f"the storage kept {pluralize(len(done.left), 'file')}; try again later")


@click.command(epilog=example("-w lake rollback shop.users --to 12 --as-latest --plan"))
@click.argument("table", required=False)
@click.option("--to", "--snapshot", "snapshot", type=int, help="The snapshot that becomes the newest.")
@click.option("--tag", help="The tag whose snapshot becomes the newest.")
@click.option("--timestamp", help="The newest snapshot that is not later than this (local time).")
@click.option("--watermark", type=int, help="The newest snapshot whose watermark is not greater.")
@click.option("--as-latest", is_flag=True, help="Remove nothing: commit the older state as a new snapshot.")
@with_consent
@with_common_options
@pass_common_options
def rollback(
    common: CommonOptions,
    table: str | None,
    snapshot: int | None,
    tag: str | None,
    timestamp: str | None,
    watermark: int | None,
    as_latest: bool,
    plan_only: bool,
    yes: bool,
) -> None:
    """Go back to an older snapshot.

    Newer snapshots and their tags are removed: stop all writers first. With --as-latest nothing is removed and writers
    may go on: the older state is committed as a new snapshot.
    """
    from tidelake.cli.output import print_json, say
    from tidelake.ops.maintain.returning import ReturnPlan

    if [snapshot, tag, timestamp, watermark].count(None) != 3:
        raise tidelake.InvalidInputError(
            "a rollback needs exactly one target",
            hint="use --to SNAPSHOT, --tag NAME, --timestamp TIME or --watermark NUMBER",
        )
    handle = open_named(common, table)

    def run(*, only_plan: bool) -> RollbackPlan | ReturnPlan:
        return handle.rollback_to(
            snapshot=snapshot,
            tag=tag,
            timestamp=timestamp,
            watermark=watermark,
            as_latest=as_latest,
            plan_only=only_plan,
        )

    proposal = _propose_rollback(common, handle, run(only_plan=True))
    if not confirm_proposal(common, proposal, question="roll back?", plan_only=plan_only, yes=yes):
        return
    done = run(only_plan=False)
    if common.as_json:
        print_json({**proposal.facts, **_facts_of(done), "done": True})
    elif isinstance(done, ReturnPlan):
        say(f"snapshot {done.snapshot_id} has the state of {done.target.id} now; tag {done.tag} keeps that one")
    else:
        say(f"the newest snapshot is {done.target.id} now")


def _propose_rollback(common: CommonOptions, handle: Table, plan: RollbackPlan | ReturnPlan) -> Proposal:
    from tidelake.ops.maintain.returning import ReturnPlan

    named, target = name_for_command(common, handle), plan.target.id
    facts = {"table": handle.name, "snapshot_id": target, **_facts_of(plan)}
    nothing = f"snapshot {target} is the newest already, nothing to do"
    if isinstance(plan, ReturnPlan):
        undo = f"to undo it: tidelake rollback {named} --to {plan.newest.id} --as-latest"
        return Proposal(facts, nothing if plan.is_empty else str(plan), undo, empty=plan.is_empty)
    gone = plan.snapshot_ids or plan.tags or plan.changelog_ids or plan.restored
    branch = f"tidelake branch create {named} before-rollback --at {max(plan.snapshot_ids, default=0)}"
    undo = f"this cannot be undone; to keep a copy of what is there now: {branch}"
    return Proposal(facts, str(plan) if gone else nothing, undo, empty=not gone)


def _facts_of(plan: RollbackPlan | ReturnPlan) -> dict[str, object]:
    from tidelake.ops.maintain.returning import ReturnPlan

    if isinstance(plan, ReturnPlan):
        return {
            "new_snapshot_id": plan.snapshot_id,
            "files_added": plan.files_added,
            "files_deleted": plan.files_deleted,
            "tag": plan.tag,
        }
    return {
        "removed_snapshots": list(plan.snapshot_ids),
        "removed_tags": list(plan.tags),
        "restored": plan.restored,
    }


@click.command("rollback-schema", epilog=example("-w lake rollback-schema shop.users --to 2 --plan"))
@click.argument("table", required=False)
@click.option("--to", "schema_id", type=int, required=True, help="The schema that becomes the newest.")
@with_consent
@with_common_options
@pass_common_options
def rollback_schema(common: CommonOptions, table: str | None, schema_id: int, plan_only: bool, yes: bool) -> None:
    """Make an older schema the newest by deleting those after it, if nothing uses them. Stop all writers first."""
    from tidelake.cli.output import print_json, say

    handle = open_named(common, table)
    plan = handle.rollback_schema(schema_id, plan_only=True)
    proposal = Proposal(
        {"table": handle.name, "schema_id": schema_id, "removed_schemas": list(plan.removed)},
        str(plan),
        "this cannot be undone",
        empty=not plan.removed,
    )
    if not confirm_proposal(common, proposal, question="delete them?", plan_only=plan_only, yes=yes):
        return
    handle.rollback_schema(schema_id)
    if common.as_json:
        print_json({**proposal.facts, "done": True})
    else:
        say(f"the newest schema is {schema_id} now")


@click.command(epilog=example("-w lake analyze shop.users --columns id,country"))
@click.argument("table", required=False)
@click.option("--columns", help="Names, separated by commas, whose values are analyzed.")
@click.option("--all-columns", is_flag=True, help="Analyze every column whose type can be.")
@with_common_options
@pass_common_options
def analyze(common: CommonOptions, table: str | None, columns: str | None, all_columns: bool) -> None:
    """Publish statistics of a table for query planners: rows, bytes, and of columns distinct values and bounds.

    Without columns only rows and bytes are counted. With columns, all rows are read once.
    """
    from tidelake.cli.output import print_json, progress_bar, say, show_table

    if columns is not None and all_columns:
        raise tidelake.InvalidInputError("columns are chosen twice", hint="give --columns or --all-columns, not both")
    handle = open_named(common, table)
    with progress_bar("reading"):
        done = handle.analyze("all" if all_columns else split_names(columns))
    found = done.statistics
    if common.as_json:
        facts = {
            "table": handle.name,
            "snapshot_ids": list(done.commit.snapshot_ids),
            "analyzed_snapshot_id": found.snapshot_id if found else None,
            "rows": found.merged_record_count if found else None,
            "bytes": found.merged_record_size_bytes if found else None,
        }
        print_json({**facts, "columns": done.to_arrow().to_pylist()})
        return
    if found is None:
        say("the table has no snapshot, so there is nothing to analyze")
        return
    say(
        f"snapshot {found.snapshot_id} has {pluralize(found.merged_record_count or 0, 'row')}, "
        f"{found.merged_record_size_bytes:,} bytes"
    )
    if found.columns:
        show_table(done.to_arrow(), title=handle.name, as_json=False, whole=True)


@click.command(epilog=example("-w lake check shop.users --deep --rows"))
@click.argument("table", required=False)
@click.option("--deep", is_flag=True, help="Check every snapshot, not only the newest.")
@click.option("--rows", is_flag=True, help="Read the rows of the data files too.")
@with_common_options
@click.pass_context
def check(context: click.Context, table: str | None, deep: bool, rows: bool) -> None:
    """Check every invariant of a table; exit code 2 if one is broken. Changes nothing."""
    from tidelake.cli.output import show_report

    common = context.ensure_object(CommonOptions)
    report = open_named(common, table).check(deep=deep, rows=rows)
    show_report(report, as_json=common.as_json)
    if not report.ok:
        context.exit(2)
