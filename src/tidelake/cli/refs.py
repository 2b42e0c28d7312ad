"""Commands for tags, branches and consumers, which keep snapshots from expiring."""

from __future__ import annotations

import click

import tidelake
from tidelake.cli.place import (
    CommonOptions,
    InOrder,
    Proposal,
    confirm_proposal,
    example,
    open_named,
    pairs,
    pass_common_options,
    table_and,
    with_common_options,
    with_consent,
)
from tidelake.notebook import pluralize


def _show(common: CommonOptions, table: str | None, name: str, *, title: str | None = None) -> None:
    from tidelake.cli.output import show_table

    handle = open_named(common, table)
    shown = getattr(handle.inspect, name)()
    show_table(shown, title=f"{handle.name}${title or name}", as_json=common.as_json)


# ------------------------------------------------------------------------------------------------ tags


@click.group(cls=InOrder, epilog=example("-w lake tag create shop.users before-the-sale"))
@with_common_options
def tag() -> None:
    """Name snapshots, so that they are kept: list, create, replace, rename, delete, expire, automatic."""


@tag.command("list", epilog=example("-w lake tag list shop.users"))
@click.argument("table", required=False)
@with_common_options
@pass_common_options
def tag_list(common: CommonOptions, table: str | None) -> None:
    """List the tags with their snapshots."""
    _show(common, table, "tags")


@tag.command("create", epilog=example("-w lake tag create shop.users monthly --at 12 --keep '90 d'"))
@click.argument("names", nargs=-1, metavar="[TABLE] NAME")
@click.option("--at", "snapshot", type=int, help="The snapshot to name; the newest by default.")
@click.option("--timestamp", help="Name the first snapshot committed at or after this time.")
@click.option("--keep", help="How long the tag is kept, such as '90 d'; by default until it is deleted.")
@with_common_options
@pass_common_options
def tag_create(
    common: CommonOptions, names: tuple[str, ...], snapshot: int | None, timestamp: str | None, keep: str | None
) -> None:
    """Give a snapshot a name."""
    from tidelake.cli.output import print_json, say

    table, (name,) = table_and(common, names, "NAME")
    handle = open_named(common, table)
    made = handle.create_tag(name, snapshot, keep, timestamp=timestamp)
    at = handle.tags()[made]
    if common.as_json:
        print_json({"table": handle.name, "tag": made, "snapshot_id": at})
    else:
        say(f"tag {made} is snapshot {at}")


@tag.command("replace", epilog=example("-w lake tag replace shop.users monthly --at 40"))
@click.argument("names", nargs=-1, metavar="[TABLE] NAME")
@click.option("--at", "snapshot", type=int, help="The snapshot to name; the newest by default.")
@click.option("--keep", help="How long the tag is kept, such as '90 d'; by default until it is deleted.")
@with_consent
@with_common_options
@pass_common_options
def tag_replace(
    common: CommonOptions, names: tuple[str, ...], snapshot: int | None, keep: str | None, plan_only: bool, yes: bool
) -> None:
    """Give a tag to another snapshot; files that only the former one used become orphans."""
    from tidelake.cli.output import print_json, say

    table, (name,) = table_and(common, names, "NAME")
    handle = open_named(common, table)
    plan = handle.replace_tag(name, snapshot, keep, plan_only=True)
    undo = f"`tidelake tag replace … {name} --at {plan.before.id}` takes it back as long as the snapshot exists"
    proposal = Proposal(
        {"table": handle.name, "tag": name, "was": plan.before.id, "snapshot_id": plan.after.id},
        f"moves {plan}",
        f"this cannot be undone: nothing else keeps snapshot {plan.before.id}" if plan.is_lost else undo,
    )
    if not confirm_proposal(common, proposal, question="go ahead?", plan_only=plan_only, yes=yes):
        return
    done = handle.replace_tag(name, snapshot, keep)
    if common.as_json:
        print_json({**proposal.facts, "snapshot_id": done.after.id, "done": True})
    else:
        say(f"tag {name} is snapshot {done.after.id} now")


@tag.command("rename", epilog=example("-w lake tag rename shop.users monthly november"))
@click.argument("names", nargs=-1, metavar="[TABLE] NAME NEW")
@with_common_options
@pass_common_options
def tag_rename(common: CommonOptions, names: tuple[str, ...]) -> None:
    """Give a tag another name."""
    from tidelake.cli.output import print_json, say

    table, (name, new) = table_and(common, names, "NAME", "NEW")
    handle = open_named(common, table)
    handle.rename_tag(name, new)
    if common.as_json:
        print_json({"table": handle.name, "tag": new, "was": name})
    else:
        say(f"tag {name} is called {new} now")


@tag.command("delete", epilog=example("-w lake tag delete shop.users monthly --plan"))
@click.argument("names", nargs=-1, metavar="[TABLE] NAME")
@with_consent
@with_common_options
@pass_common_options
def tag_delete(common: CommonOptions, names: tuple[str, ...], plan_only: bool, yes: bool) -> None:
    """Delete a tag and the files that only it uses."""
    from tidelake.cli.output import print_json, say

    table, (name,) = table_and(common, names, "NAME")
    handle = open_named(common, table)
    plan = handle.delete_tag(name, plan_only=True)
    at = handle.tags()[name]
    files = {"data_files": len(plan.files.data), "metadata_files": len(plan.files.metadata)}
    undo = f"`tidelake tag create … {name} --at {at}` creates it again as long as the snapshot exists"
    if plan.files.paths:
        undo = f"this cannot be undone: nothing else keeps snapshot {at}"
    proposal = Proposal(
        {"table": handle.name, "tag": name, "snapshot_id": at, **files},
        f"deletes tag {name} of snapshot {at} with {plan.files}",
        undo,
    )
    if not confirm_proposal(common, proposal, question="delete it?", plan_only=plan_only, yes=yes):
        return
    handle.delete_tag(name)
    if common.as_json:
        print_json({**proposal.facts, "done": True})
    else:
        say(f"tag {name} is deleted")


@tag.command("expire", epilog=example("-w lake tag expire shop.users --older-than '90 d' --plan"))
@click.argument("table", required=False)
@click.option("--older-than", help="Also delete tags created before this time, or older than this age.")
@with_consent
@with_common_options
@pass_common_options
def tag_expire(common: CommonOptions, table: str | None, older_than: str | None, plan_only: bool, yes: bool) -> None:
    """Delete the tags whose time is over, and the files that only they use."""
    from tidelake.cli.output import print_json, say

    handle = open_named(common, table)
    plan = handle.expire_tags(older_than, plan_only=True)
    proposal = Proposal(
        {
            "table": handle.name,
            "tags": list(plan.tags),
            "data_files": len(plan.files.data),
            "metadata_files": len(plan.files.metadata),
        },
        f"deletes {plan}" if plan.tags else "no tag is past its time",
        "this cannot be undone: nothing else keeps one of the snapshots" if plan.files.paths else "",
        empty=not plan.tags,
    )
    if not confirm_proposal(common, proposal, question="delete them?", plan_only=plan_only, yes=yes):
        return
    gone = handle.expire_tags(older_than)
    if common.as_json:
        print_json({**proposal.facts, "tags": list(gone), "done": True})
    else:
        say(f"{pluralize(len(gone), 'tag')} deleted: {', '.join(gone)}")


@tag.command("automatic", epilog=example("-w lake tag automatic shop.users --plan"))
@click.argument("table", required=False)
@with_consent
@with_common_options
@pass_common_options
def tag_automatic(common: CommonOptions, table: str | None, plan_only: bool, yes: bool) -> None:
    """Create the tags that are due by `tag.automatic-creation`, and delete those past their time or number."""
    from tidelake.cli.output import print_json, say

    handle = open_named(common, table)
    plan = handle.create_automatic_tags(plan_only=True)
    proposal = Proposal(
        {
            "table": handle.name,
            "created": {each.name: each.snapshot.id for each in plan.created},
            "deleted": list(plan.deletes),
        },
        str(plan),
        "a deleted tag cannot be created again once its snapshot has expired" if plan.deletes else "",
        empty=plan.is_empty,
    )
    if not confirm_proposal(common, proposal, question="go ahead?", plan_only=plan_only, yes=yes):
        return
    done = handle.create_automatic_tags()
    if common.as_json:
        made = {each.name: each.snapshot.id for each in done.created}
        print_json({**proposal.facts, "created": made, "deleted": list(done.deletes), "done": True})
    else:
        say(f"{pluralize(len(done.created), 'tag')} created, {len(done.deletes)} deleted")


# ------------------------------------------------------------------------------------------------ branches


@click.group(cls=InOrder, epilog=example("-w lake branch create shop.users trial --tag before-the-sale"))
@with_common_options
def branch() -> None:
    """Separate histories of a table: list, create, rename, merge, fast-forward, delete.

    Every command reads and writes a branch as TABLE$branch_NAME.
    """


@branch.command("list", epilog=example("-w lake branch list shop.users"))
@click.argument("table", required=False)
@with_common_options
@pass_common_options
def branch_list(common: CommonOptions, table: str | None) -> None:
    """List the branches."""
    _show(common, table, "branches")


@branch.command("create", epilog=example("-w lake branch create shop.users trial --at 12"))
@click.argument("names", nargs=-1, metavar="[TABLE] NAME")
@click.option("--tag", "origin", help="Begin with the snapshot of this tag.")
@click.option("--at", "snapshot", type=int, help="Begin with this snapshot.")
@with_common_options
@pass_common_options
def branch_create(common: CommonOptions, names: tuple[str, ...], origin: str | None, snapshot: int | None) -> None:
    """Create a branch, empty unless --tag or --at says where it begins."""
    from tidelake.cli.output import print_json, say

    table, (name,) = table_and(common, names, "NAME")
    made = open_named(common, table).create_branch(name, tag=origin, snapshot=snapshot)
    if common.as_json:
        latest = made.latest_snapshot()
        print_json({"table": made.name, "branch": name, "snapshot_id": latest.id if latest else None})
    else:
        say(f"branch {name} is table {made.name}")


@branch.command("delete", epilog=example("-w lake branch delete shop.users trial"))
@click.argument("names", nargs=-1, metavar="[TABLE] NAME")
@with_consent
@with_common_options
@pass_common_options
def branch_delete(common: CommonOptions, names: tuple[str, ...], plan_only: bool, yes: bool) -> None:
    """Delete a branch; files that only it used become orphans."""
    from tidelake.cli.output import print_json, say

    table, (name,) = table_and(common, names, "NAME")
    handle = open_named(common, table)
    ids = handle.branch(name).inspect.snapshots().column("snapshot_id").to_pylist()
    proposal = Proposal(
        {"table": handle.name, "branch": name, "snapshot_ids": ids},
        f"deletes branch {name} with {pluralize(len(ids), 'snapshot')}",
        "this cannot be undone; tidelake branch fast-forward puts its snapshots into the table first",
    )
    if not confirm_proposal(common, proposal, question="delete it?", plan_only=plan_only, yes=yes):
        return
    handle.delete_branch(name)
    if common.as_json:
        print_json({**proposal.facts, "done": True})
    else:
        say(f"branch {name} is deleted")


@branch.command("fast-forward", epilog=example("-w lake branch fast-forward shop.users trial --plan"))
@click.argument("names", nargs=-1, metavar="[TABLE] NAME")
@with_consent
@with_common_options
@pass_common_options
def branch_fast_forward(common: CommonOptions, names: tuple[str, ...], plan_only: bool, yes: bool) -> None:
    """Replace the table's snapshots with those of a branch, from the branch's first on. Stop all writers first."""
    from tidelake.cli.output import print_json, say

    table, (name,) = table_and(common, names, "NAME")
    handle = open_named(common, table)
    plan = handle.fast_forward(name, plan_only=True)
    proposal = Proposal(
        {
            "table": handle.name,
            "branch": name,
            "removed_snapshots": list(plan.removed_snapshots),
            "added_snapshots": list(plan.added_snapshots),
            "removed_tags": list(plan.removed_tags),
            "written_tags": list(plan.written_tags),
        },
        str(plan),
        "what was committed to the table since the branch began is lost" if plan.removed_snapshots else "",
    )
    if not confirm_proposal(common, proposal, question="go ahead?", plan_only=plan_only, yes=yes):
        return
    handle.fast_forward(name)
    if common.as_json:
        print_json({**proposal.facts, "done": True})
    else:
        say(f"the table is equal to branch {name} now")


@branch.command("rename", epilog=example("-w lake branch rename shop.users trial november"))
@click.argument("names", nargs=-1, metavar="[TABLE] NAME NEW")
@with_common_options
@pass_common_options
def branch_rename(common: CommonOptions, names: tuple[str, ...]) -> None:
    """Give a branch another name. Stop jobs that work on it first."""
    from tidelake.cli.output import print_json, say

    table, (name, new) = table_and(common, names, "NAME", "NEW")
    handle = open_named(common, table)
    handle.rename_branch(name, new)
    if common.as_json:
        print_json({"table": handle.name, "branch": new, "was": name})
    else:
        say(f"branch {name} is called {new} now")


@branch.command("merge", epilog=example("-w lake branch merge shop.events trial --plan"))
@click.argument("names", nargs=-1, metavar="[TABLE] NAME")
@click.option("--into", "target", default="main", show_default=True, help="The branch that gets the files.")
@with_consent
@with_common_options
@pass_common_options
def branch_merge(common: CommonOptions, names: tuple[str, ...], target: str, plan_only: bool, yes: bool) -> None:
    """Append the files that only this branch has to the table, or to another branch.

    Only for append tables without compactions, overwrites or expired snapshots on both branches.
    """
    from tidelake.cli.output import print_json, say

    table, (name,) = table_and(common, names, "NAME")
    handle = open_named(common, table)
    plan = handle.merge_branch(name, target, plan_only=True)
    proposal = Proposal(
        {"table": handle.name, "branch": name, "into": target, "files": plan.files, "rows": plan.rows},
        str(plan),
        "this is one new snapshot; the branch stays",
        empty=not plan.files,
    )
    if not confirm_proposal(common, proposal, question="merge it?", plan_only=plan_only, yes=yes):
        return
    done = handle.merge_branch(name, target)
    if common.as_json:
        print_json(
            {**proposal.facts, "files": done.files, "snapshot_ids": list(done.result.snapshot_ids), "done": True}
        )
    else:
        say(f"{target} got {pluralize(done.files, 'file')} of branch {name}")


# ------------------------------------------------------------------------------------------------ consumers


@click.command(epilog=example("-w lake consumers shop.users --set nightly=12"))
@click.argument("table", required=False)
@click.option(
    "--set", "given", multiple=True, metavar="NAME=SNAPSHOT", help="Set the snapshot that a consumer reads next."
)
@click.option(
    "--forget", multiple=True, metavar="NAME", help="Forget a consumer, so that it no longer keeps snapshots."
)
@with_common_options
@pass_common_options
def consumers(common: CommonOptions, table: str | None, given: tuple[str, ...], forget: tuple[str, ...]) -> None:
    """List the consumers and how far each is behind. Snapshots that a consumer has not read yet do not expire."""
    handle = open_named(common, table)
    wanted = {name: _number(name, text) for name, text in pairs(given, "consumer", "NAME=SNAPSHOT").items()}
    for name, snapshot in wanted.items():
        handle.reset_consumer(name, snapshot)
    for name in forget:
        handle.reset_consumer(name)
    _show(common, table, "consumer_lag", title="consumers")


@click.command("clear-consumers", epilog=example("-w lake clear-consumers shop.users --including 'nightly-.*' --plan"))
@click.argument("table", required=False)
@click.option("--including", metavar="REGEX", help="Only consumers whose whole name matches; all by default.")
@click.option("--excluding", metavar="REGEX", help="Keep consumers whose whole name matches.")
@with_consent
@with_common_options
@pass_common_options
def clear_consumers(
    common: CommonOptions,
    table: str | None,
    including: str | None,
    excluding: str | None,
    plan_only: bool,
    yes: bool,
) -> None:
    """Forget many consumers at once, so that they no longer keep snapshots."""
    from tidelake.cli.output import print_json, say

    handle = open_named(common, table)
    names = handle.clear_consumers(including, excluding, plan_only=True)
    proposal = Proposal(
        {"table": handle.name, "consumers": list(names)},
        f"forgets {pluralize(len(names), 'consumer')}: {', '.join(names)}" if names else "no consumer to forget",
        "snapshots that only they kept may expire",
        empty=not names,
    )
    if not confirm_proposal(common, proposal, question="forget them?", plan_only=plan_only, yes=yes):
        return
    done = handle.clear_consumers(including, excluding)
    if common.as_json:
        print_json({**proposal.facts, "consumers": list(done), "done": True})
    else:
        say(f"{pluralize(len(done), 'consumer')} forgotten")


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as cause:
        raise tidelake.InvalidInputError(
            "snapshot of a consumer is not a number",
            consumer=name,
            got=text,
            hint="write NAME=SNAPSHOT, such as nightly=12",
        ) from cause
