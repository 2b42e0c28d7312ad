"""Commands that rewrite files and change no row: compact, keep-compacted, rescale."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

import tidelake
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

if TYPE_CHECKING:
    from tidelake.ops.compact.dedicated import Round
    from tidelake.table import Table


@click.command(epilog=example("-w lake compact shop.users --full --partition dt=2026-11-15 --plan"))
@click.argument("table", required=False)
@click.option("--full", is_flag=True, help="Compact all files, not only those that are due.")
@click.option("--where", help="A condition on partition columns.")
@click.option("--partition", "chosen", multiple=True, metavar="KEY=VALUE", help="Only this partition.")
@click.option("--buckets", help="Only these fixed buckets, such as 0,2-5.")
@click.option("--idle", help="Only partitions without a write for so long, such as '1 h'.")
@with_consent
@with_common_options
@pass_common_options
def compact(
    common: CommonOptions,
    table: str | None,
    full: bool,
    where: str | None,
    chosen: tuple[str, ...],
    buckets: str | None,
    idle: str | None,
    plan_only: bool,
    yes: bool,
) -> None:
    """Merge the levels of a primary-key table, or join small files of an append table. No row changes.

    Without --full, only files are rewritten that are due by the table's options.
    """
    from tidelake.cli.output import compaction_facts, progress_bar, show_result
    from tidelake.ops.commit.messages import CommitResult
    from tidelake.ops.compact.table import CompactionPlan

    handle = open_named(common, table)
    partitions = partitions_of(handle, chosen)
    plan = handle.compact(full, where, partitions=partitions, buckets=buckets, partition_idle_time=idle, plan_only=True)
    assert isinstance(plan, CompactionPlan)
    if common.as_json and yes and not plan_only and not plan.rewrites:
        show_result(CommitResult(), as_json=True)
        return
    unit, act = ("bucket", "merges") if handle.primary_key else ("rewrite", "joins")
    more = "compacts what is not due yet" if handle.primary_key else "joins small files even if there are few"
    proposal = Proposal(
        compaction_facts(plan),
        f"{act} {pluralize(plan.files, 'file')} of {plan.size:,} bytes in {pluralize(len(plan.rewrites), unit)}"
        if plan.rewrites
        else "nothing to do" + ("" if full else f"; --full {more}"),
        empty=not plan.rewrites,
    )
    if not confirm_proposal(common, proposal, question="rewrite them?", plan_only=plan_only, yes=yes):
        return
    with progress_bar("compacting", f"{unit}s") as progress:
        result = handle.compact(
            full, where, partitions=partitions, buckets=buckets, partition_idle_time=idle, progress=progress
        )
    assert isinstance(result, CommitResult)
    show_result(result, as_json=common.as_json)


def partitions_of(handle: Table, chosen: tuple[str, ...]) -> list[dict[str, object]] | None:
    """The partition that the options name.

    Raises:
        InvalidInputError: a name is not that of a partition column.
        NotFoundError: the partition does not exist.
    """
    if not chosen:
        return None
    spec: dict[str, object] = {**pairs(chosen, "partition")}
    other = next((name for name in spec if name not in handle.partition_by), None)
    if other is not None:
        raise tidelake.InvalidInputError(
            "column is not a partition column",
            column=other,
            table=handle.name,
            hint=f"the partition columns are {', '.join(handle.partition_by)}"
            if handle.partition_by
            else "the table has no partitions: leave --partition out",
        )
    condition = None
    for name, value in spec.items():
        part = tidelake.col(name) == value
        condition = part if condition is None else condition & part
    if not handle.files(where=condition, columns=["file_name"]).num_rows:
        raise tidelake.NotFoundError(
            "partition does not exist",
            code="partition-not-found",
            partition=", ".join(chosen),
            table=handle.name,
            hint=f"list them with tidelake partitions {handle.name}",
        )
    return [spec]


@click.command("keep-compacted", epilog=example("-w lake keep-compacted shop.users --interval '30 s'"))
@click.argument("table", required=False)
@click.option("--where", help="A condition on partition columns.")
@click.option("--interval", default="10 s", show_default=True, help="How long to wait after finding nothing to do.")
@click.option(
    "--until", help="Local time to end at, such as '2026-11-15 12:00:00'; by default it runs until it is stopped."
)
@click.option("--rounds", type=int, help="End after so many rounds.")
@with_common_options
@pass_common_options
def keep_compacted(
    common: CommonOptions, table: str | None, where: str | None, interval: str, until: str | None, rounds: int | None
) -> None:
    """Compact a primary-key table while other jobs write to it, until stopped with Ctrl-C.

    Set the option write-only for the writers. Stopping at any point loses nothing.
    """
    from tidelake.cli.output import note, print_json, say

    def report_round(done: Round) -> None:
        if not common.as_json and not done.is_idle:
            note(f"snapshot {done.snapshot_id}: compacted {pluralize(done.compacted, 'bucket')}, {done.bytes:,} bytes")

    handle = open_named(common, table)
    summary = handle.keep_compacted(where, interval=interval, until=until, max_rounds=rounds, progress=report_round)
    if common.as_json:
        print_json(dataclasses.asdict(summary))
    else:
        say(
            f"{pluralize(summary.rounds, 'round')}: compacted {pluralize(summary.compacted, 'bucket')} "
            f"in {pluralize(summary.commits, 'commit')}"
        )
    for warning in summary.warnings:
        note(f"warning: {warning}")


@click.command(epilog=example("-w lake rescale shop.users --buckets 8 --plan"))
@click.argument("table", required=False)
@click.option("--buckets", type=int, help="The new number; by default that of the table's option bucket.")
@click.option("--where", help="A condition on partition columns.")
@click.option("--partition", "chosen", multiple=True, metavar="KEY=VALUE", help="Only this partition.")
@with_consent
@with_common_options
@pass_common_options
def rescale(
    common: CommonOptions,
    table: str | None,
    buckets: int | None,
    where: str | None,
    chosen: tuple[str, ...],
    plan_only: bool,
    yes: bool,
) -> None:
    """Distribute the rows of partitions over another number of fixed buckets. No row changes.

    The option bucket is not changed: set it too, so that writers use the new number.
    """
    from tidelake.cli.output import note, progress_bar, show_result
    from tidelake.ops.commit.messages import CommitResult
    from tidelake.ops.write.rescale import RescalePlan

    handle = open_named(common, table)
    partitions = partitions_of(handle, chosen)
    plan = handle.rescale(buckets, where, partitions=partitions, plan_only=True)
    assert isinstance(plan, RescalePlan)
    facts = {"partitions": len(plan.partitions), "buckets": plan.bucket_num, "files": plan.files, "bytes": plan.size}
    proposal = Proposal(
        {"table": handle.name, **facts},
        f"rescales {pluralize(len(plan.partitions), 'partition')} "
        f"({pluralize(plan.files, 'file')}, {plan.size:,} bytes) to {pluralize(plan.bucket_num, 'bucket')}"
        if plan.partitions
        else f"nothing to do: every partition has {pluralize(plan.bucket_num, 'bucket')}",
        empty=not plan.partitions,
    )
    if not confirm_proposal(common, proposal, question="rewrite them?", plan_only=plan_only, yes=yes):
        return
    with progress_bar("rescaling", "partitions") as progress:
        result = handle.rescale(buckets, where, partitions=partitions, progress=progress)
    assert isinstance(result, CommitResult)
    show_result(result, as_json=common.as_json)
    if handle.options.get("bucket") != str(plan.bucket_num):
        note(f"writers use the new number after: tidelake options {handle.name} --set bucket={plan.bucket_num}")
