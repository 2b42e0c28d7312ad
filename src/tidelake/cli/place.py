"""Which lake, table and point in time a command works on, and how it asks before it changes anything.

Every command takes the same options for that, before or after its name. Invariant: a command that deletes or rewrites
shows its plan first and runs only after a yes, given as an answer or as `--yes`; without a terminal to ask, it stops.
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
    from tidelake.catalog.lake import Lake
    from tidelake.table import Table
    from tidelake.table.system import SystemTable

F = TypeVar("F", bound=Callable[..., Any])

_WAREHOUSE = "TIDELAKE_WAREHOUSE"
_HOW_LAKE = f"use -w LAKE, set {_WAREHOUSE}, or write warehouse = … into tidelake.toml"
_HOW_TABLE = "use -w LAKE and TABLE as database.table, or --table-path PATH"


@dataclass(slots=True)
class CommonOptions:
    """The options that every command takes, given before or after the name of the command."""

    warehouse: str | None = None
    table_path: str | None = None
    as_json: bool = False
    snapshot: int | None = None
    tag: str | None = None
    timestamp: str | None = None


pass_common_options = click.make_pass_decorator(CommonOptions, ensure=True)


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
    if value is not None and value is not False and parameter.name:
        setattr(context.ensure_object(CommonOptions), parameter.name, value)


class InOrder(click.Group):
    """Lists commands in the order in which they are added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names."""
        del ctx
        return list(self.commands)


def with_common_options(function: F) -> F:
    """Add the options that name the lake or table, and the form of the output."""
    for names, text, flag in (
        (("--json", "as_json"), "Print JSON instead of a table.", True),
        (("--table-path",), "One table by its folder or URL; leave out TABLE then.", False),
        (("-w", "--warehouse"), f"The lake: a folder or a URL. Also {_WAREHOUSE} or tidelake.toml.", False),
    ):
        option = click.option(*names, help=text, is_flag=flag, callback=_keep, expose_value=False)
        function = option(function)
    return function


def with_point(function: F) -> F:
    """Add the options that choose a point in time; `open_at` uses them."""
    texts = "Look at the table as it was at this local time, such as '2026-11-15 12:00:00'."
    function = click.option("--timestamp", help=texts, callback=_keep, expose_value=False)(function)
    function = click.option("--tag", help="Look at this tag.", callback=_keep, expose_value=False)(function)
    snapshot = click.option(
        "--at", "snapshot", type=int, help="Look at this snapshot.", callback=_keep, expose_value=False
    )
    return snapshot(function)


def with_consent(function: F) -> F:
    """Add the options that say whether to run the plan, to print it, or to ask."""
    function = click.option("--yes", is_flag=True, help="Go ahead without asking.")(function)
    return click.option("--plan", "plan_only", is_flag=True, help="Only print what would be done.")(function)


def example(text: str) -> str:
    """The last lines of a command's help."""
    return f"\b\nExample:\n  tidelake {text}"


# ------------------------------------------------------------------------------------------------ opening


def location(common: CommonOptions) -> tuple[str | None, dict[str, object]]:
    """The location of the lake or table, with its storage options.

    Raises:
        InvalidInputError: the settings file is wrong.
    """
    from tidelake.cli.config import find_settings

    settings = find_settings()
    found = common.table_path or common.warehouse or os.environ.get(_WAREHOUSE) or settings.warehouse
    remote = "://" in (found or "") and not (found or "").lower().startswith(("file:", "memory:"))
    return found, dict(settings.storage) if remote or found == settings.warehouse else {}


def open_lake(common: CommonOptions) -> Lake:
    """The lake.

    Raises:
        InvalidInputError: none is given.
    """
    if common.table_path:
        raise tidelake.InvalidInputError("this command needs a lake, not one table", hint=_HOW_LAKE)
    found, storage = location(common)
    if not found:
        raise tidelake.InvalidInputError("no lake given", hint=_HOW_LAKE)
    return tidelake.connect(found, storage=storage)


def require_lake(lake: Lake) -> None:
    """Refuse a lake whose folder does not exist, which would look like one without tables.

    Raises:
        NotFoundError: the folder does not exist.
    """
    if not lake.env.io.exists(""):
        raise tidelake.NotFoundError(
            "lake does not exist",
            code="lake-not-found",
            lake=lake.location,
            hint="check the path; `tidelake write --create` creates a lake with its first table",
        )


def open_named(common: CommonOptions, name: str | None) -> Table:
    """The table, as it is now.

    Raises:
        InvalidInputError: none is given, or two.
        NotFoundError: it does not exist; the hint names similar ones.
    """
    if common.table_path:
        if name:
            raise tidelake.InvalidInputError(
                "a table is given twice", table=name, hint="leave TABLE or --table-path out"
            )
        found, storage = location(common)
        return tidelake.open_table(found or common.table_path, storage=storage)
    if not name:
        raise tidelake.InvalidInputError("no table given", hint=_HOW_TABLE)
    lake = open_lake(common)
    if name.count(".") != 1:
        raise tidelake.InvalidInputError("table name must be database.table", name=name, hint=_suggest_names(lake, ""))
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
            hint=_suggest_names(lake, name),
        ) from cause


def open_at(common: CommonOptions, name: str | None) -> Table:
    """The table at the point in time that the options name, or as it is now.

    Raises:
        InvalidInputError: two points are given.
        NotFoundError: the table, snapshot or tag does not exist.
    """
    handle = open_named(common, name)
    points = {"--at": common.snapshot, "--tag": common.tag, "--timestamp": common.timestamp}
    given = [option for option, value in points.items() if value is not None]
    if len(given) > 1:
        raise tidelake.InvalidInputError(
            "only one point in time can be read", given=" ".join(given), hint=f"leave {given[1]} out"
        )
    return handle.at(snapshot=common.snapshot, tag=common.tag, timestamp=common.timestamp) if given else handle


def system_table_or_none(handle: object) -> SystemTable | None:
    """The handle if it is that of a system table, which `open_named` returns too if the name is that of one."""
    from tidelake.table.system import SystemTable

    return handle if isinstance(handle, SystemTable) else None


def name_for_command(common: CommonOptions, handle: Table) -> str:
    """How to name the same table in another command."""
    return f"--table-path {common.table_path}" if common.table_path else handle.name


def _suggest_names(lake: Lake, name: str) -> str:
    """A hint with the name that the user may have meant, or the names that exist."""
    import difflib

    databases = lake.databases()
    if not databases:
        return "this lake has no tables yet; check its path, or create one with write --create"
    database = name.partition(".")[0]
    if database not in databases and database != "sys":
        return f"the databases are {', '.join(databases[:20])}"
    tables = [f"{database}.{table}" for table in lake.tables(database)]
    near = difflib.get_close_matches(name, tables, n=1)
    return (
        f"did you mean {near[0]}?"
        if near
        else f"the tables are {', '.join(tables[:20])}"
        if tables
        else f"database {database} has no tables yet"
    )


# ------------------------------------------------------------------------------------------------ arguments


def table_and(common: CommonOptions, given: tuple[str, ...], *wanted: str) -> tuple[str | None, tuple[str, ...]]:
    """The table, unless its path is given, and the other arguments of a command.

    Raises:
        InvalidInputError: there are too many or too few.
    """
    words = wanted if common.table_path else ("TABLE", *wanted)
    if len(given) != len(words):
        command = click.get_current_context().command_path
        raise tidelake.InvalidInputError(
            f"{command.partition(' ')[2]} takes {' '.join(words)}",
            given=" ".join(given) or "nothing",
            hint=f"for example: {command} {' '.join(words)}",
        )
    return (None, given) if common.table_path else (given[0], given[1:])


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
                "list of names is malformed", names=names, hint="put names with a comma or a backtick into backticks"
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
        quoted = re.match(r"\s*`((?:[^`]|``)*)`\s*=", pair)  # backticks, as in conditions, allow a name with = in it
        if quoted:
            key, equals, value = quoted[1].replace("``", "`"), "=", pair[quoted.end() :]
        else:
            key, equals, value = pair.partition("=")
            key = key.strip()
        if not equals or not key:
            hint = "write the name, = and the value; put blanks into quotes"
            raise tidelake.InvalidInputError(f"{what} must be {form}", given=pair, hint=hint)
        if key in found:
            raise tidelake.InvalidInputError(f"{what} is given twice", name=key, hint="give each name once")
        found[key] = value
    return found


# ------------------------------------------------------------------------------------------------ asking


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a command would do: facts for programs, a text for people, and how to undo it."""

    facts: Mapping[str, object]
    text: str
    undo: str = ""
    empty: bool = False


def confirm_proposal(common: CommonOptions, proposal: Proposal, *, question: str, plan_only: bool, yes: bool) -> bool:
    """Show the proposal and ask; return whether to go ahead.

    Raises:
        InvalidInputError: standard input ended before an answer.
    """
    from tidelake.cli.output import note, print_json, say

    if common.as_json and (plan_only or proposal.empty or not yes):
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
    return ask(question, yes=False)


def ask(question: str, *, yes: bool) -> bool:
    """Ask a question; return whether the answer is yes.

    Raises:
        InvalidInputError: standard input ended before an answer.
    """
    if yes:
        return True
    try:
        answer = click.confirm(question, err=True)
    except click.Abort as cause:
        if isinstance(cause.__context__, KeyboardInterrupt):
            raise  # Ctrl-C stops the command; only the end of the input means that no one can answer
        raise tidelake.InvalidInputError(
            "the question was not answered, so nothing was changed", hint="use --yes to go ahead without a question"
        ) from cause
    if not answer:
        click.echo("nothing was changed", err=True)
    return answer
