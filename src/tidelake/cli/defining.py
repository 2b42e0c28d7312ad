"""Commands that define databases and tables: create, alter, drop."""

from __future__ import annotations

import re
from typing import Any

import click

import tidelake
from tidelake.cli.place import (
    CommonOptions,
    Proposal,
    confirm_proposal,
    example,
    name_for_command,
    open_lake,
    open_named,
    pairs,
    pass_common_options,
    split_names,
    with_common_options,
    with_consent,
)
from tidelake.notebook import pluralize

_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^\s`]+))\s+(\S.*)", re.DOTALL)
_FORM = "NAME TYPE"


@click.command(epilog=example("-w lake create shop.users 'id BIGINT NOT NULL' 'name STRING' --primary-key id"))
@click.argument("name")
@click.argument("columns", nargs=-1, metavar="[COLUMN TYPE]...")
@click.option("--primary-key", help="Key columns, separated by commas.")
@click.option("--partition-by", help="Partition columns, separated by commas.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of the table.")
@click.option("--comment", help="The comment of the table.")
@click.option("--if-not-exists", is_flag=True, help="Do nothing if it exists, instead of failing.")
@with_common_options
@pass_common_options
def create(common: CommonOptions, /, name: str, columns: tuple[str, ...], **given: Any) -> None:
    """Create a table with these columns, each in quotes; or a database, if NAME has no dot and no column follows.

    `tidelake write --create` creates a table with the columns of a file.
    """
    from tidelake.cli.output import print_json, say

    lake = open_lake(common)
    if "." not in name and not columns:
        lake.create_database(name, if_not_exists=given["if_not_exists"])
        print_json({"database": name}) if common.as_json else say(f"database {name} exists now")
        return
    if not columns:
        raise tidelake.InvalidInputError(
            "a table needs columns", table=name, hint=f"add them in quotes: {name} 'id BIGINT NOT NULL' 'name STRING'"
        )
    made = lake.create_table(
        name,
        _parse_columns(columns),
        primary_key=split_names(given["primary_key"]),
        partition_by=split_names(given["partition_by"]),
        options=pairs(given["options"], "option"),
        comment=given["comment"],
        if_not_exists=given["if_not_exists"],
    )
    if common.as_json:
        print_json({"table": made.name, "location": made.location, "schema_id": made.schema.id})
    else:
        say(f"table {made.name} exists now, in {made.location}")


def _parse_columns(given: tuple[str, ...]) -> dict[str, str]:
    """The columns of texts such as `id BIGINT NOT NULL`; a name with blanks is in backticks."""
    found: dict[str, str] = {}
    for text in given:
        matched = _COLUMN.fullmatch(text)
        if matched is None:
            raise tidelake.InvalidInputError(
                f"column must be {_FORM}", given=text, hint="put the name and the type into quotes: 'id BIGINT'"
            )
        name = matched[2] if matched[1] is None else matched[1].replace("``", "`")
        if name in found:
            raise tidelake.InvalidInputError("two columns share a name", column=name, hint="give each name once")
        found[name] = matched[3].strip()
    return found


# ------------------------------------------------------------------------------------------------ altering


@click.command(epilog=example("-w lake alter shop.users --add 'age INT' --rename name=full_name --drop fax"))
@click.argument("table", required=False)
@click.option("--add", multiple=True, metavar="'COLUMN TYPE'", help="Add a column; older rows have null.")
@click.option("--drop", multiple=True, metavar="COLUMN", help="Drop a column.")
@click.option("--rename", multiple=True, metavar="OLD=NEW", help="Rename a column.")
@click.option("--type", "types", multiple=True, metavar="COLUMN=TYPE", help="Change the type of a column.")
@click.option("--nullable", multiple=True, metavar="COLUMN", help="Allow nulls in a column.")
@click.option("--not-null", "required", multiple=True, metavar="COLUMN", help="Refuse nulls in a column from now on.")
@click.option("--move", multiple=True, metavar="COLUMN=PLACE", help="To: first, last, 'after id', 'before id'.")
@click.option("--default", "defaults", multiple=True, metavar="COLUMN=VALUE", help="What new rows without it get.")
@click.option("--column-comment", "comments", multiple=True, metavar="COLUMN=TEXT", help="Comment a column.")
@click.option("--comment", help="The comment of the table; an empty text removes it.")
@click.option("--yes", is_flag=True, help="Drop columns without asking.")
@with_common_options
@pass_common_options
def alter(common: CommonOptions, /, table: str | None, yes: bool, **given: Any) -> None:
    """Change the columns of a table, all in one step. No file is rewritten, and older snapshots keep their columns.

    Members of a ROW are named with dots. Options of a table are changed by `tidelake options`.
    """
    from tidelake.cli.output import print_json, say
    from tidelake.spec.schemas.evolution import UpdateTableComment

    handle = open_named(common, table)
    nulls = {**dict.fromkeys(given["nullable"], True), **dict.fromkeys(given["required"], False)}
    comment = given["comment"]
    for name in given["drop"]:
        handle.schema.field(name.partition(".")[0])  # a column that does not exist is an error before the question
    if given["drop"] and not _may_drop_columns(common, handle, given["drop"], yes=yes):
        return
    altered = handle.alter(
        *(() if comment is None else (UpdateTableComment(comment or None),)),
        add=_parse_columns(given["add"]),
        drop=given["drop"],
        rename=pairs(given["rename"], "new name", "OLD=NEW"),
        types=pairs(given["types"], "type", "COLUMN=TYPE"),
        nullable=nulls,
        comments={name: text or None for name, text in pairs(given["comments"], "comment", "COLUMN=TEXT").items()},
        defaults=pairs(given["defaults"], "default", "COLUMN=VALUE"),
        move=pairs(given["move"], "place", "COLUMN=PLACE"),
    )
    facts = {"table": altered.name, "schema_id": altered.schema.id, "columns": list(altered.schema.names)}
    if common.as_json:
        print_json({**facts, "done": True})
    else:
        say(f"{altered.name} has schema {altered.schema.id} now: {', '.join(altered.schema.names)}")


def _may_drop_columns(common: CommonOptions, handle: tidelake.Table, dropped: tuple[str, ...], *, yes: bool) -> bool:
    proposal = Proposal(
        {"table": handle.name, "schema_id": handle.schema.id, "dropped": list(dropped)},
        f"drops {pluralize(len(dropped), 'column')} of {handle.name}: {', '.join(dropped)}",
        "a column that is added again under its name is empty; snapshots of before show the values while they are kept",
    )
    return confirm_proposal(common, proposal, question="drop them?", plan_only=False, yes=yes)


# ------------------------------------------------------------------------------------------------ dropping


@click.command(epilog=example("-w lake drop shop.users --plan"))
@click.argument("name")
@click.option("--cascade", is_flag=True, help="Drop the tables of a database too.")
@with_consent
@with_common_options
@pass_common_options
def drop(common: CommonOptions, name: str, cascade: bool, plan_only: bool, yes: bool) -> None:
    """Drop a table with all its data, snapshots, tags and branches; or a database, if NAME has no dot."""
    from tidelake.cli.output import print_json, say

    lake = open_lake(common)
    proposal = _propose_drop(common, name) if "." in name else _propose_drop_database(lake, name, cascade=cascade)
    if not confirm_proposal(common, proposal, question="drop it?", plan_only=plan_only, yes=yes):
        return
    if "." in name:
        lake.drop_table(name)
    else:
        lake.drop_database(name, cascade=cascade)
    if common.as_json:
        print_json({**proposal.facts, "done": True})
    else:
        say(f"dropped {name}")


def _propose_drop(common: CommonOptions, name: str) -> Proposal:
    handle = open_named(common, name)
    if "$" in name:
        raise tidelake.InvalidInputError(
            "only a table can be dropped",
            name=name,
            hint=f"tidelake branch delete removes a branch; drop {name.partition('$')[0]} drops the table",
        )
    latest = handle.latest_snapshot()
    rows = (latest.total_record_count if latest else None) or 0
    tags, branches = len(handle.tags()), len(handle.branches())
    counts = [pluralize(rows, "row"), pluralize(tags, "tag"), pluralize(branches, "branch")]
    facts = {"table": handle.name, "location": handle.location, "rows": rows, "tags": tags, "branches": branches}
    text = f"drops {name_for_command(common, handle)} with all its data and history: {', '.join(counts)}"
    return Proposal(facts, text, "this cannot be undone")


def _propose_drop_database(lake: tidelake.Lake, name: str, *, cascade: bool) -> Proposal:
    from tidelake.catalog.global_tables import refuse_system_database

    refuse_system_database(name, "drop a database")
    tables = lake.tables(name)
    if tables and not cascade:
        raise tidelake.InvalidInputError(
            "database is not empty", database=name, tables=len(tables), hint="drop its tables, or add --cascade"
        )
    listed = f" with {pluralize(len(tables), 'table')}: {', '.join(tables[:20])}" if tables else ", which is empty"
    return Proposal({"database": name, "tables": tables}, f"drops database {name}{listed}", "this cannot be undone")
