"""Commands that print a system table: what the format says of snapshots, files, levels and options."""

from __future__ import annotations

import click

import tidelake
from tidelake.cli.place import Place, example, open_at, open_named, pairs, pass_place, with_place, with_point

_POINTLESS = (
    ("snapshots", "List the snapshots that are kept."),
    ("schemas", "List the schemas."),
)
_AT_A_POINT = (
    ("files", "List the live data files."),
    ("manifests", "List the manifests of a snapshot, the newest by default."),
    ("partitions", "List the partitions with rows, bytes and files."),
    ("buckets", "List the buckets with rows, bytes and files."),
    ("lsm", "Show the levels of a primary-key table: runs, overlap, what compaction owes, what reads cost."),
)


def _show(place: Place, table: str | None, name: str, *, everything: bool) -> None:
    from tidelake.cli.output import BRIEF, show_table, tell_debt, without_secrets

    handle = open_at(place, table)
    rows = without_secrets(getattr(handle.inspect, name)())
    columns = () if everything else BRIEF.get(name, ())
    title = f"{handle.name}${name}"
    show_table(rows, title=title, as_json=place.as_json, whole=everything, columns=columns, wraps=everything)
    if name == "lsm" and not place.as_json:
        tell_debt(rows)


def _command(name: str, text: str, *, travels: bool) -> click.Command:
    def run(place: Place, table: str | None, everything: bool) -> None:
        _show(place, table, name, everything=everything)

    function = with_place(pass_place(run))
    if travels:
        function = with_point(function)
    function = click.option("--all", "everything", is_flag=True, help="Show every column.")(function)
    function = click.argument("table", required=False)(function)
    return click.command(name=name, help=text, epilog=example(f"-w lake {name} shop.users"))(function)


@click.command(epilog=example("-w lake options shop.users --set num-sorted-run.compaction-trigger=8"))
@click.argument("table", required=False)
@click.option("--set", "given", multiple=True, metavar="KEY=VALUE", help="Set an option of the table.")
@click.option("--unset", multiple=True, metavar="KEY", help="Take an option away, so that its default holds.")
@click.option("--all", "everything", is_flag=True, help="Show every column.")
@with_place
@pass_place
def options(place: Place, table: str | None, given: tuple[str, ...], unset: tuple[str, ...], everything: bool) -> None:
    """List the options that are set, or change them; the reference is docs/options.md."""
    if given or unset:
        handle = open_named(place, table)
        unknown = [key for key in unset if key not in handle.options]
        if unknown:
            raise tidelake.NotFoundError(
                "option is not set", option=unknown[0], hint=f"set are {', '.join(sorted(handle.options)) or 'none'}"
            )
        handle.alter(set_options=pairs(given, "option"), unset_options=unset)
    _show(place, table, "options", everything=everything)


COMMANDS = (
    *(_command(name, text, travels=False) for name, text in _POINTLESS),
    options,
    *(_command(name, text, travels=True) for name, text in _AT_A_POINT),
)
"""In the order in which they are listed."""
