"""Commands for what names or holds snapshots: tags, branches, consumers."""

from __future__ import annotations

import click

import tidelake
from tidelake.cli.place import (
    InOrder,
    Place,
    Proposal,
    agreed,
    example,
    open_named,
    pairs,
    pass_place,
    table_and,
    with_consent,
    with_place,
)
from tidelake.notebook import counted


def _show(place: Place, table: str | None, name: str) -> None:
    from tidelake.cli.output import show_table

    handle = open_named(place, table)
    title = f"{handle.name}${name}"
    show_table(getattr(handle.inspect, name)(), title=title, as_json=place.as_json)


# ------------------------------------------------------------------------------------------------ tags


@click.group(cls=InOrder, epilog=example("-w lake tag create shop.users before-the-sale"))
@with_place
def tag() -> None:
    """Name snapshots, so that they outlive their expiry: list, create, rename, delete."""


@tag.command("list", epilog=example("-w lake tag list shop.users"))
@click.argument("table", required=False)
@with_place
@pass_place
def tag_list(place: Place, table: str | None) -> None:
    """List the tags with their snapshots."""
    _show(place, table, "tags")


@tag.command("create", epilog=example("-w lake tag create shop.users monthly --at 12 --keep '90 d'"))
@click.argument("names", nargs=-1, metavar="[TABLE] NAME")
@click.option("--at", "snapshot", type=int, help="The snapshot to name; the newest by default.")
@click.option("--keep", help="How long the tag lives, such as '90 d'; without it until it is deleted.")
@with_place
@pass_place
def tag_create(place: Place, names: tuple[str, ...], snapshot: int | None, keep: str | None) -> None:
    """Give a snapshot a name."""
    from tidelake.cli.output import print_json, say

    table, (name,) = table_and(place, names, "NAME")
    handle = open_named(place, table)
    made = handle.create_tag(name, snapshot, keep)
    at = handle.tags()[made]
    if place.as_json:
        print_json({"table": handle.name, "tag": made, "snapshot_id": at})
    else:
        say(f"tag {made} is snapshot {at}")


@tag.command("rename", epilog=example("-w lake tag rename shop.users monthly november"))
@click.argument("names", nargs=-1, metavar="[TABLE] NAME NEW")
@with_place
@pass_place
def tag_rename(place: Place, names: tuple[str, ...]) -> None:
    """Give a tag another name."""
    from tidelake.cli.output import print_json, say

    table, (name, new) = table_and(place, names, "NAME", "NEW")
    handle = open_named(place, table)
    handle.rename_tag(name, new)
    if place.as_json:
        print_json({"table": handle.name, "tag": new, "was": name})
    else:
        say(f"tag {name} is called {new} now")


@tag.command("delete", epilog=example("-w lake tag delete shop.users monthly --plan"))
@click.argument("names", nargs=-1, metavar="[TABLE] NAME")
@with_consent
@with_place
@pass_place
def tag_delete(place: Place, names: tuple[str, ...], plan_only: bool, yes: bool) -> None:
    """Delete a tag, with the files that only it holds."""
    from tidelake.cli.output import print_json, say

    table, (name,) = table_and(place, names, "NAME")
    handle = open_named(place, table)
    plan = handle.delete_tag(name, plan_only=True)
    at = handle.tags()[name]
    files = {"data_files": len(plan.files.data), "metadata_files": len(plan.files.metadata)}
    undo = f"`tidelake tag create … {name} --at {at}` makes it again as long as the snapshot is kept"
    if plan.files.paths:
        undo = f"this cannot be undone: nothing else holds snapshot {at}"
    proposal = Proposal(
        {"table": handle.name, "tag": name, "snapshot_id": at, **files},
        f"deletes tag {name} of snapshot {at} with {plan.files}",
        undo,
    )
    if not agreed(place, proposal, question="delete it?", plan_only=plan_only, yes=yes):
        return
    handle.delete_tag(name)
    if place.as_json:
        print_json({**proposal.facts, "done": True})
    else:
        say(f"tag {name} is deleted")


# ------------------------------------------------------------------------------------------------ branches


@click.group(cls=InOrder, epilog=example("-w lake branch create shop.users trial --tag before-the-sale"))
@with_place
def branch() -> None:
    """Second lines of snapshots: list, create, fast-forward, delete.

    Every command reads and writes a branch as TABLE$branch_NAME.
    """


@branch.command("list", epilog=example("-w lake branch list shop.users"))
@click.argument("table", required=False)
@with_place
@pass_place
def branch_list(place: Place, table: str | None) -> None:
    """List the branches."""
    _show(place, table, "branches")


@branch.command("create", epilog=example("-w lake branch create shop.users trial --at 12"))
@click.argument("names", nargs=-1, metavar="[TABLE] NAME")
@click.option("--tag", "origin", help="Begin with what this tag holds.")
@click.option("--at", "snapshot", type=int, help="Begin with this snapshot.")
@with_place
@pass_place
def branch_create(place: Place, names: tuple[str, ...], origin: str | None, snapshot: int | None) -> None:
    """Make a branch, empty unless --tag or --at says where it begins."""
    from tidelake.cli.output import print_json, say

    table, (name,) = table_and(place, names, "NAME")
    made = open_named(place, table).create_branch(name, tag=origin, snapshot=snapshot)
    if place.as_json:
        latest = made.latest_snapshot()
        print_json({"table": made.name, "branch": name, "snapshot_id": latest.id if latest else None})
    else:
        say(f"branch {name} is table {made.name}")


@branch.command("delete", epilog=example("-w lake branch delete shop.users trial"))
@click.argument("names", nargs=-1, metavar="[TABLE] NAME")
@with_consent
@with_place
@pass_place
def branch_delete(place: Place, names: tuple[str, ...], plan_only: bool, yes: bool) -> None:
    """Delete a branch; files that only it held become orphans."""
    from tidelake.cli.output import print_json, say

    table, (name,) = table_and(place, names, "NAME")
    handle = open_named(place, table)
    ids = handle.branch(name).inspect.snapshots().column("snapshot_id").to_pylist()
    proposal = Proposal(
        {"table": handle.name, "branch": name, "snapshot_ids": ids},
        f"deletes branch {name} with {counted(len(ids), 'snapshot')}",
        "this cannot be undone; to keep its rows, make the table equal to it first: tidelake branch fast-forward",
    )
    if not agreed(place, proposal, question="delete it?", plan_only=plan_only, yes=yes):
        return
    handle.delete_branch(name)
    if place.as_json:
        print_json({**proposal.facts, "done": True})
    else:
        say(f"branch {name} is deleted")


@branch.command("fast-forward", epilog=example("-w lake branch fast-forward shop.users trial --plan"))
@click.argument("names", nargs=-1, metavar="[TABLE] NAME")
@with_consent
@with_place
@pass_place
def branch_fast_forward(place: Place, names: tuple[str, ...], plan_only: bool, yes: bool) -> None:
    """Make the table equal to a branch from the branch's first snapshot on. Stop writers first."""
    from tidelake.cli.output import print_json, say

    table, (name,) = table_and(place, names, "NAME")
    handle = open_named(place, table)
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
        "what the table committed since the branch began is lost" if plan.removed_snapshots else "",
    )
    if not agreed(place, proposal, question="go ahead?", plan_only=plan_only, yes=yes):
        return
    handle.fast_forward(name)
    if place.as_json:
        print_json({**proposal.facts, "done": True})
    else:
        say(f"the table is what branch {name} is")


# ------------------------------------------------------------------------------------------------ consumers


@click.command(epilog=example("-w lake consumers shop.users --set nightly=12"))
@click.argument("table", required=False)
@click.option(
    "--set", "given", multiple=True, metavar="NAME=SNAPSHOT", help="Say which snapshot a consumer reads next."
)
@click.option("--forget", multiple=True, metavar="NAME", help="Forget a consumer, so that it holds nothing back.")
@with_place
@pass_place
def consumers(place: Place, table: str | None, given: tuple[str, ...], forget: tuple[str, ...]) -> None:
    """List how far consumers have come; snapshots that they have still to read do not expire."""
    handle = open_named(place, table)
    wanted = {name: _number(name, text) for name, text in pairs(given, "consumer", "NAME=SNAPSHOT").items()}
    for name, snapshot in wanted.items():
        handle.reset_consumer(name, snapshot)
    for name in forget:
        handle.reset_consumer(name)
    _show(place, table, "consumers")


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as cause:
        raise tidelake.InvalidInputError(
            "snapshot of a consumer is no number",
            consumer=name,
            got=text,
            hint="write NAME=SNAPSHOT, such as nightly=12",
        ) from cause
