"""The command that calls Paimon's procedures. It asks before it calls one that deletes or rewrites."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

import tidelake
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

if TYPE_CHECKING:
    from tidelake.ops.commit.messages import CommitResult
    from tidelake.ops.maintain.copy_files import CopyPlan
    from tidelake.table import Table

_NAMED: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables of the lake, or the one of `--table-path`."""

    common: CommonOptions

    def table(self, name: str) -> Table:
        return open_named(self.common, None if self.common.table_path else name)

    def databases(self) -> list[str]:
        return open_lake(self.common).databases()

    def tables(self, database: str) -> list[str]:
        return open_lake(self.common).tables(database)

    def copy_table(
        self, source: str, target: str, where: str | None = None, *, plan_only: bool = False
    ) -> CopyPlan | CommitResult:
        return open_lake(self.common).copy_table(source, target, where, plan_only=plan_only)


@click.command(epilog=example("-w lake call create_tag table=shop.users tag=monthly"))
@click.argument("procedure", required=False)
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@with_consent
@with_common_options
@pass_common_options
def call(common: CommonOptions, procedure: str | None, words: tuple[str, ...], plan_only: bool, yes: bool) -> None:
    """Call one of Paimon's procedures; without a name, list them all.

    Write arguments as KEY=VALUE, or values alone in the order of the list. With --table-path, leave out the argument
    table.
    """
    from tidelake.cli.output import print_json, progress_bar, show_table
    from tidelake.procedures.registry import call_procedure, find_procedure, list_procedures, preview_call

    if procedure is None:
        show_table(list_procedures(), title="procedures", as_json=common.as_json, wraps=True)
        return
    found = find_procedure(procedure)
    name = found.name
    positional, named = _split_words(name, words)
    if common.table_path and found.arguments[0].name == "table":
        # The table has no name in a lake, so its path stands for it.
        positional = [common.table_path, *positional]
    tables = _Tables(common)
    preview = preview_call(tables, name, positional, named)
    if preview is not None or plan_only:
        text = f"calls {name}, which deletes and rewrites nothing" if preview is None else preview.text
        warning, is_empty = ("", False) if preview is None else (preview.warning, preview.is_empty)
        proposal = Proposal({"procedure": name, "plan": text}, text, warning, empty=is_empty)
        if not confirm_proposal(common, proposal, question="go ahead?", plan_only=plan_only, yes=yes):
            return
    with progress_bar(f"calling {name}"):
        result = call_procedure(tables, name, positional, named)
    if common.as_json:
        print_json({"procedure": name, "result": result.to_pylist(), "done": True})
    else:
        show_table(result, title=name, as_json=False)


def _split_words(procedure: str, words: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """The values given by position and those given by name, which must come last."""
    positional: list[str] = []
    named: dict[str, str] = {}
    for word in words:
        found = _NAMED.fullmatch(word)
        if found is None and named:
            raise tidelake.InvalidInputError(
                "a value without a name comes after one with a name",
                procedure=procedure,
                value=word,
                hint="write KEY=VALUE",
            )
        if found is None:
            positional.append(word)
        elif found[1] in named:
            raise tidelake.InvalidInputError(
                "argument is given twice",
                code="argument-twice",
                procedure=procedure,
                argument=found[1],
                hint="give it once",
            )
        else:
            named[found[1]] = found[2]
    return positional, named
