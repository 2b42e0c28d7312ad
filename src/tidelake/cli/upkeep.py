"""Commands for the files and manifests of tables, and for several tables at once."""

from __future__ import annotations

from typing import Final

import click

import tidelake
from tidelake.cli.compacting import partitions_of
from tidelake.cli.place import (
    CommonOptions,
    Proposal,
    confirm_proposal,
    example,
    open_lake,
    open_named,
    pass_common_options,
    with_common_options,
    with_consent,
)
from tidelake.notebook import pluralize

_SHOWN: Final = 20
"""Names that a plan lists for people; JSON has all."""


@click.command("materialize", epilog=example("-w lake materialize shop.users --partition dt=2026-11-15 --plan"))
@click.argument("table", required=False)
@click.option("--where", help="A condition on partition columns.")
@click.option("--partition", "chosen", multiple=True, metavar="KEY=VALUE", help="Only this partition.")
@with_consent
@with_common_options
@pass_common_options
def materialize(
    common: CommonOptions, table: str | None, where: str | None, chosen: tuple[str, ...], plan_only: bool, yes: bool
) -> None:
    """Rewrite the files that have deletion vectors without their deleted rows. No row changes."""
    from tidelake.cli.output import compaction_facts, progress_bar, show_result
    from tidelake.ops.commit.messages import CommitResult
    from tidelake.ops.compact.table import CompactionPlan

    handle = open_named(common, table)
    partitions = partitions_of(handle, chosen)
    plan = handle.materialize_deletion_vectors(partitions, where, plan_only=True)
    assert isinstance(plan, CompactionPlan)
    proposal = Proposal(
        compaction_facts(plan),
        f"rewrites {pluralize(plan.files, 'file')} of {plan.size:,} bytes"
        if plan.rewrites
        else "nothing to do: no file has a deletion vector",
        empty=not plan.rewrites,
    )
    if not confirm_proposal(common, proposal, question="rewrite them?", plan_only=plan_only, yes=yes):
        return
    with progress_bar("materializing", "files") as progress:
        result = handle.materialize_deletion_vectors(partitions, where, progress=progress)
    assert isinstance(result, CommitResult)
    show_result(result, as_json=common.as_json)


@click.command("compact-manifests", epilog=example("-w lake compact-manifests shop.users --sort --plan"))
@click.argument("table", required=False)
@click.option("--sort/--no-sort", default=None, help="Sort entries; by default as the table's options say.")
@click.option("--sort-field", metavar="COLUMN", help="The partition column to sort by first.")
@click.option("--max-rewrite-size", metavar="SIZE", help="Bytes of manifests to sort, such as '256 mb'.")
@with_consent
@with_common_options
@pass_common_options
def compact_manifests(
    common: CommonOptions,
    table: str | None,
    sort: bool | None,
    sort_field: str | None,
    max_rewrite_size: str | None,
    plan_only: bool,
    yes: bool,
) -> None:
    """Merge all manifests, and sort them by partition and bucket. No row and no data file changes.

    After sorting, a query of few partitions reads few manifests.
    """
    from tidelake.cli.output import progress_bar, show_result
    from tidelake.ops.commit.messages import CommitResult
    from tidelake.ops.maintain.manifests import ManifestPlan

    handle = open_named(common, table)
    plan = handle.compact_manifests(sort, sort_field, max_rewrite_size, plan_only=True)
    assert isinstance(plan, ManifestPlan)
    facts = {
        "table": handle.name,
        "manifests": plan.manifests,
        "bytes": plan.size,
        "deleted_entries": plan.deleted_entries,
        "undersized": plan.undersized,
        "rewritten": plan.rewritten,
        "rewritten_bytes": plan.rewritten_size,
        "sorts": plan.sorts,
    }
    text = "nothing to do: the manifests are merged already" if plan.is_empty else str(plan)
    proposal = Proposal(facts, text, empty=plan.is_empty)
    if not confirm_proposal(common, proposal, question="rewrite them?", plan_only=plan_only, yes=yes):
        return
    with progress_bar("merging manifests"):
        result = handle.compact_manifests(sort, sort_field, max_rewrite_size)
    assert isinstance(result, CommitResult)
    show_result(result, as_json=common.as_json)


@click.command("remove-unexisting-files", epilog=example("-w lake remove-unexisting-files shop.users --plan"))
@click.argument("table", required=False)
@with_consent
@with_common_options
@pass_common_options
def remove_unexisting_files(common: CommonOptions, table: str | None, plan_only: bool, yes: bool) -> None:
    """Drop data files that do not exist from a table, so that the rest can be read again.

    The rows of these files are lost: restore the files instead if there is a copy.
    """
    from tidelake.cli.output import note, print_json, progress_bar, say

    handle = open_named(common, table)
    with progress_bar("looking"):
        plan = handle.remove_unexisting_files(plan_only=True)
    for path in plan.paths[:_SHOWN] if not common.as_json and not yes else ():
        note(f"  {path}")
    proposal = Proposal(
        {"table": handle.name, "files": len(plan.paths), "rows": plan.rows, "paths": list(plan.paths)},
        f"drops {plan}" if plan.paths else f"none of {pluralize(plan.files, 'file')} is missing",
        "their rows are lost; if there is a copy of the files, restore it instead",
        empty=not plan.paths,
    )
    if not confirm_proposal(common, proposal, question="drop them?", plan_only=plan_only, yes=yes):
        return
    done = handle.remove_unexisting_files()
    if common.as_json:
        print_json({**proposal.facts, "files": len(done.paths), "paths": list(done.paths), "done": True})
    else:
        say(f"dropped {pluralize(len(done.paths), 'file')} with {pluralize(done.rows, 'row')}")


@click.command("purge", epilog=example("-w lake purge shop.users --plan"))
@click.argument("table", required=False)
@click.option("--confirm", metavar="TABLE", help="The name of the table again, instead of typing it when asked.")
@click.option("--plan", "plan_only", is_flag=True, help="Only print what would be done.")
@with_common_options
@pass_common_options
def purge(common: CommonOptions, table: str | None, confirm: str | None, plan_only: bool) -> None:
    """Remove everything but the schema: rows, snapshots, tags, branches and consumers.

    It asks for the name of the table; --yes is not enough here. Stop all writers first.
    """
    from tidelake.cli.output import note, print_json, progress_bar, say

    handle = open_named(common, table)
    plan = handle.purge_files(plan_only=True)
    facts = {
        "table": handle.name,
        "rows": plan.rows,
        "files": plan.files,
        "snapshot_ids": list(plan.snapshot_ids),
        "changelog_ids": list(plan.changelog_ids),
        "tags": list(plan.tags),
        "branches": list(plan.branches),
        "consumers": list(plan.consumers),
    }
    if plan_only or plan.is_empty or (common.as_json and confirm is None):
        if common.as_json:
            print_json({**facts, "done": False})
        else:
            say("nothing to remove" if plan.is_empty else f"removes {plan}")
        return
    if confirm is None:
        note(f"removes {plan}")
        note("this cannot be undone: only the schema is left")
        try:
            confirm = click.prompt(f"type {handle.name} to go ahead", err=True, default="", show_default=False)
        except click.Abort as cause:
            if isinstance(cause.__context__, KeyboardInterrupt):
                raise
            raise tidelake.InvalidInputError(
                "the question was not answered, so nothing was changed", hint=f"use --confirm {handle.name}"
            ) from cause
    if confirm != handle.name:
        raise tidelake.InvalidInputError(
            "typed name is not that of the table, so nothing was changed",
            typed=confirm,
            table=handle.name,
            hint=f"type {handle.name}, or use --confirm {handle.name}",
        )
    with progress_bar("purging"):
        done = handle.purge_files()
    if common.as_json:
        print_json({**facts, "left": list(done.left), "done": True})
    else:
        say(f"{handle.name} is empty now")


@click.command("copy", epilog=example("-w lake copy shop.users backup.users --where \"dt = '2026-11-15'\""))
@click.argument("source")
@click.argument("target")
@click.option("--where", help="A condition on partition columns.")
@with_consent
@with_common_options
@pass_common_options
def copy(common: CommonOptions, source: str, target: str, where: str | None, plan_only: bool, yes: bool) -> None:
    """Copy the newest snapshot of a table to a new table, file by file; no row is read.

    The new table gets the schemas and options of the old one, but no tag, branch or older snapshot.
    """
    from tidelake.cli.output import progress_bar, show_result
    from tidelake.ops.commit.messages import CommitResult
    from tidelake.ops.maintain.copy_files import CopyPlan

    lake = open_lake(common)
    plan = lake.copy_table(source, target, where, plan_only=True)
    assert isinstance(plan, CopyPlan)
    facts = {"source": source, "target": target, "snapshot_id": plan.snapshot_id, "files": plan.files}
    proposal = Proposal({**facts, "rows": plan.rows, "bytes": plan.size}, str(plan))
    if not confirm_proposal(common, proposal, question="copy them?", plan_only=plan_only, yes=yes):
        return
    with progress_bar("copying", "files") as progress:
        result = lake.copy_table(source, target, where, progress=progress)
    assert isinstance(result, CommitResult)
    show_result(result, as_json=common.as_json)


@click.command("compact-database", epilog=example("-w lake compact-database --databases shop --excluding '.*_old'"))
@click.option("--databases", metavar="PATTERN", help="A regular expression of whole database names.")
@click.option("--tables", metavar="PATTERN", help="A regular expression of whole names as database.table.")
@click.option("--excluding", metavar="PATTERN", help="A regular expression of the tables to leave out.")
@click.option("--full", is_flag=True, help="Compact all files, not only those that are due.")
@with_consent
@with_common_options
@click.pass_context
def compact_database(
    context: click.Context,
    databases: str | None,
    tables: str | None,
    excluding: str | None,
    full: bool,
    plan_only: bool,
    yes: bool,
) -> None:
    """Compact the tables that match, one after another; exit code 2 if one of them fails."""
    from tidelake.cli.output import note, print_json, progress_bar, say

    common = context.ensure_object(CommonOptions)
    lake = open_lake(common)
    planned = lake.compact(databases, tables, excluding, full=full, plan_only=True)
    names = [each.table for each in planned.tables]
    proposal = Proposal(
        {"tables": names},
        f"compacts {pluralize(len(names), 'table')}: {', '.join(names)}" if names else "no table matches",
        empty=not names,
    )
    if not confirm_proposal(common, proposal, question="compact them?", plan_only=plan_only, yes=yes):
        return
    with progress_bar("compacting", "tables") as progress:
        done = lake.compact(
            databases,
            tables,
            excluding,
            full=full,
            progress=None if progress is None else lambda _, number, count: progress(number, count),
        )
    failed = {each.table: str(each.error) for each in done.failures}
    if common.as_json:
        print_json({"tables": names, "failed": failed, "done": True})
    else:
        for name, error in failed.items():
            note(f"{name}: {error}")
        say(f"compacted {pluralize(len(names) - len(failed), 'table')}")
    if failed:
        context.exit(2)


@click.command("repair", epilog=example("-w lake repair shop,web.orders --plan"))
@click.argument("names", required=False)
@with_consent
@with_common_options
@pass_common_options
def repair(common: CommonOptions, names: str | None, plan_only: bool, yes: bool) -> None:
    """Write the hints LATEST and EARLIEST of tables again where they are wrong. Nothing is deleted.

    NAMES are databases and tables, separated by commas; without them all tables are looked at.
    """
    from tidelake.cli.output import print_json, say

    lake = open_lake(common)
    wrong = [each for each in lake.repair(names, plan_only=True) if not each.is_empty]
    hints = [
        {"table": plan.table, "path": each.path, "before": each.before, "after": each.after}
        for plan in wrong
        for each in plan.hints
    ]
    text = "\n".join(map(str, wrong)) if wrong else "every hint is right"
    proposal = Proposal({"hints": hints}, text, empty=not wrong)
    if not confirm_proposal(common, proposal, question="write them again?", plan_only=plan_only, yes=yes):
        return
    lake.repair(names)
    if common.as_json:
        print_json({"hints": hints, "done": True})
    else:
        say(f"wrote {pluralize(len(hints), 'hint')}")


COMMANDS: Final = (
    materialize,
    compact_manifests,
    remove_unexisting_files,
    purge,
    copy,
    compact_database,
    repair,
)
