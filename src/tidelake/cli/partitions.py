"""Commands for whole partitions: expire-partitions, mark-done."""

from __future__ import annotations

import click

from tidelake.cli.place import (
    CommonOptions,
    Proposal,
    confirm_proposal,
    example,
    open_named,
    pairs,
    pass_common_options,
    with_common_options,
    with_consent,
)
from tidelake.notebook import pluralize

_NAMED, _SHOWN = 5, 20
"""Partitions that the text of a plan names, and that are listed for people; JSON has all."""


@click.command("expire-partitions", epilog=example("-w lake expire-partitions shop.events --older-than '30 d' --plan"))
@click.argument("table", required=False)
@click.option("--older-than", help="How old partitions may be: '30 d'.")
@click.option("--strategy", help="values-time: the time in their values; update-time: of their newest file.")
@click.option("--pattern", help="How values make a time: '$dt $hour:00:00'.")
@click.option("--formatter", help="How that text is parsed: 'yyyyMMdd'.")
@click.option("--max-expires", type=int, help="Drop at most so many partitions.")
@with_consent
@with_common_options
@pass_common_options
def expire_partitions(
    common: CommonOptions,
    table: str | None,
    older_than: str | None,
    strategy: str | None,
    pattern: str | None,
    formatter: str | None,
    max_expires: int | None,
    plan_only: bool,
    yes: bool,
) -> None:
    """Drop the partitions that are too old.

    What is not given comes from the table's options (partition.expiration-*, partition.timestamp-*). The rows stay in
    older snapshots until these expire.
    """
    from tidelake.cli.output import note, print_json, progress_bar, say
    from tidelake.ops.maintain.partition_expiry import PartitionExpiryPlan, PartitionExpiryResult

    handle = open_named(common, table)

    def run(*, only_plan: bool) -> PartitionExpiryPlan | PartitionExpiryResult:
        return handle.expire_partitions(
            older_than,
            timestamp_formatter=formatter,
            timestamp_pattern=pattern,
            strategy=strategy,
            max_expires=max_expires,
            plan_only=only_plan,
        )

    plan = run(only_plan=True)
    assert isinstance(plan, PartitionExpiryPlan)
    listed = [
        {"partition": dict(each.values), "rows": each.rows, "files": each.files, "bytes": each.size}
        for each in plan.partitions
    ]
    if len(listed) > _NAMED and not common.as_json and not yes:
        for each in plan.partitions[:_SHOWN]:
            note(f"  {each}: {pluralize(each.rows, 'row')}")
        if len(listed) > _SHOWN:
            note(f"  … and {len(listed) - _SHOWN:,} more")
    if not common.as_json:
        for warning in plan.warnings:
            note(warning)
    proposal = Proposal(
        {"table": handle.name, "partitions": listed, "left": plan.left, "warnings": list(plan.warnings)},
        f"drops {plan}" if listed else str(plan),
        "a rollback to an older snapshot brings them back, until it expires",
        empty=not listed,
    )
    if not confirm_proposal(common, proposal, question="drop them?", plan_only=plan_only, yes=yes):
        return
    with progress_bar("dropping"):
        done = run(only_plan=False)
    assert isinstance(done, PartitionExpiryResult)
    if common.as_json:
        print_json({**proposal.facts, "snapshot_ids": list(done.snapshot_ids), "done": True})
    else:
        say(str(done))


@click.command(
    "mark-done", epilog=example("-w lake mark-done shop.events --partition dt=2026-11-15 --partition hour=7")
)
@click.argument("table", required=False)
@click.option(
    "--partition", "chosen", multiple=True, required=True, metavar="KEY=VALUE", help="The partition, for each column."
)
@with_consent
@with_common_options
@pass_common_options
def mark_done(common: CommonOptions, table: str | None, chosen: tuple[str, ...], plan_only: bool, yes: bool) -> None:
    """Mark a partition as complete.

    The option partition.mark-done-action of the table says how.
    """
    from tidelake.cli.output import print_json, say
    from tidelake.procedures.procedure import with_nulls

    handle = open_named(common, table)
    named = with_nulls(handle, [pairs(chosen, "partition")])
    plan = handle.mark_partition_done(named, plan_only=True)
    facts = {"table": handle.name, "partitions": list(plan.partitions), "actions": list(plan.actions)}
    if not confirm_proposal(
        common, Proposal(facts, f"marks {plan}"), question="mark it?", plan_only=plan_only, yes=yes
    ):
        return
    handle.mark_partition_done(named)
    if common.as_json:
        print_json({**facts, "done": True})
    else:
        say(f"marked {plan}")
