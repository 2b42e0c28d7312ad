"""Where a command works: the lake, the table, the point in time; and how it asks before it changes something.

Every command takes the same options for that, before or after its name. Invariant: what deletes or rewrites shows its
plan first and is done only after a yes, given as an answer or as `--yes`; with nobody to ask, nothing is done.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

import tidelake

if TYPE_CHECKING:
    from tidelake.catalog.filesystem import Lake
    from tidelake.table import Table

F = TypeVar("F", bound=Callable[..., Any])

_WAREHOUSE = "TIDELAKE_WAREHOUSE"
_HOW_LAKE = f"use -w LAKE, set {_WAREHOUSE}, or write warehouse = … into tidelake.toml"
_HOW_TABLE = "use -w LAKE and TABLE as database.table, or --table-path PATH"


@dataclass(slots=True)
class Place:
    """Where to work and how to answer, told before or after the name of the command."""

    warehouse: str | None = None
    table_path: str | None = None
    as_json: bool = False
    snapshot: int | None = None
    tag: str | None = None
    timestamp: str | None = None


pass_place = click.make_pass_decorator(Place, ensure=True)


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
    if value is not None and value is not False and parameter.name:
        setattr(context.ensure_object(Place), parameter.name, value)


class InOrder(click.Group):
    """Lists commands in the order in which they are added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names."""
        del ctx
        return list(self.commands)


def with_place(function: F) -> F:
    """Give a command the options that say where, and how to answer."""
    for names, text, flag in (
        (("--json", "as_json"), "Print JSON instead of a table.", True),
        (("--table-path",), "One table by its folder or URL; then TABLE is left out.", False),
        (("-w", "--warehouse"), f"The lake: a folder or a URL. Also {_WAREHOUSE} or tidelake.toml.", False),
    ):
        option = click.option(*names, help=text, is_flag=flag, callback=_keep, expose_value=False)
        function = option(function)
    return function


def with_point(function: F) -> F:
    """Give a command the options that choose a point in time; `open_at` obeys them."""
    texts = "Look at what was there at this local time, such as '2026-11-15 12:00:00'."
    function = click.option("--timestamp", help=texts, callback=_keep, expose_value=False)(function)
    function = click.option("--tag", help="Look at this tag.", callback=_keep, expose_value=False)(function)
    snapshot = click.option(
        "--at", "snapshot", type=int, help="Look at this snapshot.", callback=_keep, expose_value=False
    )
    return snapshot(function)


def with_consent(function: F) -> F:
    """Give a command the options that say whether its plan is carried out."""
    function = click.option("--yes", is_flag=True, help="Do it without a question.")(function)
    return click.option("--plan", "plan_only", is_flag=True, help="Only say what would be done.")(function)


def example(text: str) -> str:
    """The last lines of a command's help."""
    return f"\b\nExample:\n  tidelake {text}"


# ------------------------------------------------------------------------------------------------ opening


def location(place: Place) -> tuple[str | None, dict[str, object]]:
    """The lake that is meant, with its storage options.

    Raises:
        InvalidInputError: the file of settings is wrong.
    """
    from tidelake.cli.config import find_settings

    settings = find_settings()
    found = place.table_path or place.warehouse or os.environ.get(_WAREHOUSE) or settings.warehouse
    remote = "://" in (found or "") and not (found or "").lower().startswith(("file:", "memory:"))
    return found, dict(settings.storage) if remote or found == settings.warehouse else {}


def open_lake(place: Place) -> Lake:
    """The lake.

    Raises:
        InvalidInputError: none is given.
    """
    if place.table_path:
        raise tidelake.InvalidInputError("this command looks at a lake, not at one table", hint=_HOW_LAKE)
    found, storage = location(place)
    if not found:
        raise tidelake.InvalidInputError("no lake given", hint=_HOW_LAKE)
    return tidelake.connect(found, storage=storage)


def require_lake(lake: Lake) -> None:
    """Tell a lake that is not there from one without tables.

    Raises:
        NotFoundError: there is no such folder.
    """
    if not lake.env.io.exists(""):
        raise tidelake.NotFoundError(
            "lake does not exist",
            code="lake-not-found",
            lake=lake.location,
            hint="check the folder; `tidelake write --create` makes a lake with its first table",
        )


def open_named(place: Place, name: str | None) -> Table:
    """The table, as it is now.

    Raises:
        InvalidInputError: none is given, or two.
        NotFoundError: it does not exist; the hint names what does.
    """
    if place.table_path:
        if name:
            raise tidelake.InvalidInputError(
                "a table is given twice", table=name, hint="leave TABLE or --table-path out"
            )
        found, storage = location(place)
        return tidelake.open_table(found or place.table_path, storage=storage)
    if not name:
        raise tidelake.InvalidInputError("no table given", hint=_HOW_TABLE)
    lake = open_lake(place)
    if name.count(".") != 1:
        raise tidelake.InvalidInputError("table name must be database.table", name=name, hint=_known(lake, ""))
    try:
        return lake.table(name)
    except tidelake.NotFoundError as cause:
        if cause.code == "branch-not-found":
            raise
        require_lake(lake)
        raise tidelake.NotFoundError(
            "table does not exist",
            code="table-not-found",
            table=name,
            lake=lake.location,
            hint=_known(lake, name),
        ) from cause


def open_at(place: Place, name: str | None) -> Table:
    """The table at the point in time that the options name, or as it is now.

    Raises:
        InvalidInputError: two points are given.
        NotFoundError: there is no such table, snapshot or tag.
    """
    handle = open_named(place, name)
    points = {"--at": place.snapshot, "--tag": place.tag, "--timestamp": place.timestamp}
    given = [option for option, value in points.items() if value is not None]
    if len(given) > 1:
        raise tidelake.InvalidInputError(
            "only one point in time can be read", given=" ".join(given), hint=f"leave {given[1]} out"
        )
    return handle.at(snapshot=place.snapshot, tag=place.tag, timestamp=place.timestamp) if given else handle


def called(place: Place, handle: Table) -> str:
    """How a further command names the same table."""
    return f"--table-path {place.table_path}" if place.table_path else handle.name


def _known(lake: Lake, name: str) -> str:
    """What the user may have meant."""
    import difflib

    databases = lake.databases()
    if not databases:
        return "there is no table in this lake yet; check the lake, or write with --create"
    database = name.partition(".")[0]
    if database not in databases:
        return f"databases are {', '.join(databases[:20])}"
    tables = [f"{database}.{table}" for table in lake.tables(database)]
    near = difflib.get_close_matches(name, tables, n=1)
    return f"did you mean {near[0]}?" if near else f"tables are {', '.join(tables[:20]) or 'none yet'}"


# ------------------------------------------------------------------------------------------------ arguments


def table_and(place: Place, given: tuple[str, ...], *wanted: str) -> tuple[str | None, tuple[str, ...]]:
    """The table, unless its path is given, and the other arguments of a command.

    Raises:
        InvalidInputError: there are too many or too few.
    """
    words = wanted if place.table_path else ("TABLE", *wanted)
    if len(given) != len(words):
        command = click.get_current_context().command_path
        raise tidelake.InvalidInputError(
            f"{command.partition(' ')[2]} takes {' '.join(words)}",
            given=" ".join(given) or "nothing",
            hint=f"for example: {command} {' '.join(words)}",
        )
    return (None, given) if place.table_path else (given[0], given[1:])


_NAME = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^,`]*))\s*(?:,|$)")


def split_names(names: str | None) -> list[str] | None:
    """`a, b` as a list; a name with a comma stands in backticks, as in conditions.

    Raises:
        InvalidInputError: a backtick is not closed.
    """
    if not names:
        return None
    found, at = [], 0
    while at < len(names):
        matched = _NAME.match(names, at)
        if matched is None:
            raise tidelake.InvalidInputError(
                "names cannot be told apart", names=names, hint="put names with a comma or a backtick into backticks"
            )
        found.append(matched[2].strip() if matched[1] is None else matched[1].replace("``", "`"))
        at = matched.end()
    return found


def pairs(given: tuple[str, ...], what: str, form: str = "KEY=VALUE") -> dict[str, str]:
    """`dt=2026-11-15` as names and values.

    Raises:
        InvalidInputError: one has no value, or a name comes twice.
    """
    found: dict[str, str] = {}
    for pair in given:
        quoted = re.match(r"\s*`((?:[^`]|``)*)`\s*=", pair)  # a name with = in it, as in conditions
        if quoted:
            key, equals, value = quoted[1].replace("``", "`"), "=", pair[quoted.end() :]
        else:
            key, equals, value = pair.partition("=")
            key = key.strip()
        if not equals or not key:
            hint = "write the name, = and the value; in quotes where there are blanks"
            raise tidelake.InvalidInputError(f"{what} must be {form}", given=pair, hint=hint)
        if key in found:
            raise tidelake.InvalidInputError(f"{what} is given twice", name=key, hint="give each name once")
        found[key] = value
    return found


# ------------------------------------------------------------------------------------------------ asking


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a command would do: for programs, for people, and how to take it back."""

    facts: Mapping[str, object]
    text: str
    undo: str = ""
    empty: bool = False


def agreed(place: Place, proposal: Proposal, *, question: str, plan_only: bool, yes: bool) -> bool:
    """Show what would be done, and ask; True if it is to be done.

    Raises:
        InvalidInputError: there is nobody to ask.
    """
    from tidelake.cli.output import note, print_json, say

    if place.as_json and (plan_only or proposal.empty or not yes):
        print_json({**proposal.facts, "done": False})
        return False
    if plan_only or proposal.empty:
        say(proposal.text)
        return False
    if yes:
        return True
    note(proposal.text)
    if proposal.undo:
        note(proposal.undo)
    return settle(question, yes=False)


def settle(question: str, *, yes: bool) -> bool:
    """Ask before something is changed.

    Raises:
        InvalidInputError: there is nobody to ask.
    """
    if yes:
        return True
    try:
        answer = click.confirm(question, err=True)
    except click.Abort as cause:
        if isinstance(cause.__context__, KeyboardInterrupt):
            raise  # Ctrl-C at the question stops the command; only the end of the input is nobody's answer
        raise tidelake.InvalidInputError(
            "nobody answered, nothing was changed", hint="say --yes to do it without a question"
        ) from cause
    if not answer:
        click.echo("nothing was changed", err=True)
    return answer
