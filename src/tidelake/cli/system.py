"""Commands that print a system table: snapshots, schemas, files, levels, options and others."""

from __future__ import annotations

import click

import tidelake
from tidelake.cli.place import (
    CommonOptions,
    example,
    open_at,
    open_named,
    pairs,
    pass_common_options,
    with_common_options,
    with_point,
)

_POINTLESS = (
    ("snapshots", "List the snapshots that are kept."),
    ("schemas", "List the schemas."),
    ("metrics", "Show what each snapshot added and deleted, and how its commit went."),
)
_AT_A_POINT = (
    ("files", "List the live data files."),
    ("manifests", "List the manifests of a snapshot, the newest by default."),
    ("partitions", "List the partitions with rows, bytes and files."),
    ("buckets", "List the buckets with rows, bytes and files."),
    ("lsm", "Show the levels of a primary-key table: runs, overlap, compaction debt, cost of reads."),
)


def _show(common: CommonOptions, table: str | None, name: str, *, everything: bool) -> None:
    from tidelake.cli.output import BRIEF, show_debt, show_table, without_secrets

    handle = open_at(common, table)
    rows = without_secrets(getattr(handle.inspect, name)())
    columns = () if everything else BRIEF.get(name, ())
    title = f"{handle.name}${name}"
    show_table(rows, title=title, as_json=common.as_json, whole=everything, columns=columns, wraps=everything)
    if name == "lsm" and not common.as_json:
        show_debt(rows)


def _command(name: str, text: str, *, travels: bool) -> click.Command:
    def run(common: CommonOptions, table: str | None, everything: bool) -> None:
        _show(common, table, name, everything=everything)

    function = with_common_options(pass_common_options(run))
    if travels:
        function = with_point(function)
    function = click.option("--all", "everything", is_flag=True, help="Show every column.")(function)
    function = click.argument("table", required=False)(function)
    return click.command(name=name, help=text, epilog=example(f"-w lake {name} shop.users"))(function)


@click.command(epilog=example("-w lake options shop.users --set num-sorted-run.compaction-trigger=8"))
@click.argument("table", required=False)
@click.option("--set", "given", multiple=True, metavar="KEY=VALUE", help="Set an option of the table.")
@click.option("--unset", multiple=True, metavar="KEY", help="Remove an option, so that its default applies.")
@click.option("--all", "everything", is_flag=True, help="Show every column.")
@with_common_options
@pass_common_options
def options(
    common: CommonOptions, table: str | None, given: tuple[str, ...], unset: tuple[str, ...], everything: bool
) -> None:
    """List the options that are set, or change them; the reference is docs/options.md."""
    if given or unset:
        handle = open_named(common, table)
        unknown = [key for key in unset if key not in handle.options]
        if unknown:
            raise tidelake.NotFoundError(
                "option is not set",
                option=unknown[0],
                hint=f"the options that are set: {', '.join(sorted(handle.options)) or 'none'}",
            )
        handle.alter(set_options=pairs(given, "option"), unset_options=unset)
    _show(common, table, "options", everything=everything)


COMMANDS = (
    *(_command(name, text, travels=False) for name, text in _POINTLESS),
    options,
    *(_command(name, text, travels=True) for name, text in _AT_A_POINT),
)
"""The commands, in the order of `--help`."""
