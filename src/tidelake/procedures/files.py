"""Procedures for the files of tables: purge, drop missing files, copy, repair hints, compact databases."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tidelake.notebook import pluralize
from tidelake.ops.maintain.copy_files import CopyPlan
from tidelake.procedures.arguments import BOOLEAN, INTEGER, TEXT, Argument, Values
from tidelake.procedures.procedure import DONE, RESULT, TABLE, USE_OPTIONS, Preview, Procedure, Rows, Tables, open_table
from tidelake.table.several import CompactedTables, choose_tables, compact_tables, repair_tables

# ------------------------------------------------------------------------------------------------ one table


def _purge_files(tables: Tables, values: Values) -> Rows:
    open_table(tables, values).purge_files()
    return DONE


def _preview_purge_files(tables: Tables, values: Values) -> Preview:
    plan = open_table(tables, values).purge_files(plan_only=True)
    if plan.is_empty:
        return Preview(f"{values['table']} has nothing to remove", is_empty=True)
    return Preview(f"removes from {values['table']} {plan}", "this cannot be undone: only the schema is left")


def _remove_unexisting_files(tables: Tables, values: Values) -> Rows:
    table = open_table(tables, values)
    found = table.remove_unexisting_files(plan_only=values["dry_run"])
    inside = f"{table.location.rstrip('/')}/"
    return [{"fileName": path if _is_address(path) else inside + path} for path in found.paths]


def _is_address(path: str) -> bool:
    """Whether a path is that of a file outside the table."""
    return path.startswith("/") or ":" in path.partition("/")[0]


def _preview_remove_unexisting_files(tables: Tables, values: Values) -> Preview | None:
    if values["dry_run"]:
        return None
    plan = open_table(tables, values).remove_unexisting_files(plan_only=True)
    if not plan.paths:
        return Preview(f"no file of {values['table']} is missing", is_empty=True)
    return Preview(f"drops from {values['table']} {plan}", "restore the files instead if there is a copy of them")


# ------------------------------------------------------------------------------------------------ several tables


def _copy(tables: Tables, values: Values) -> Rows:
    tables.copy_table(values["source_table"], values["target_table"], values["where"])
    return DONE


def _preview_copy(tables: Tables, values: Values) -> Preview:
    plan = tables.copy_table(values["source_table"], values["target_table"], values["where"], plan_only=True)
    assert isinstance(plan, CopyPlan)
    return Preview(str(plan))


def _repair(tables: Tables, values: Values) -> Rows:
    repair_tables(tables, values["database_or_table"], plan_only=False)
    return DONE


def _preview_repair(tables: Tables, values: Values) -> Preview:
    wrong = [each for each in repair_tables(tables, values["database_or_table"], plan_only=True) if not each.is_empty]
    if not wrong:
        return Preview("every hint is right", is_empty=True)
    return Preview("; ".join(map(str, wrong)))


def _compact_database(tables: Tables, values: Values) -> Rows:
    done = _compact_tables(tables, values, plan_only=False)
    if done.failures:  # all the others are compacted
        first = done.failures[0]
        assert first.error is not None
        first.error.facts.update(table=first.table, failed=str(len(done.failures)), tables=str(len(done.tables)))
        raise first.error
    return DONE


def _preview_compact_database(tables: Tables, values: Values) -> Preview:
    chosen = [each.table for each in _compact_tables(tables, values, plan_only=True).tables]
    if not chosen:
        return Preview("no table matches", is_empty=True)
    return Preview(f"compacts {pluralize(len(chosen), 'table')}: {', '.join(chosen)}")


def _compact_tables(tables: Tables, values: Values, *, plan_only: bool) -> CompactedTables:
    patterns = (values[name] for name in ("including_databases", "including_tables", "excluding_tables"))
    names = choose_tables(tables, *patterns)
    return compact_tables(tables, names, full=True, options=values["options"], plan_only=plan_only, progress=None)


PROCEDURES: Final = (
    Procedure(
        name="purge_files",
        doc="Remove all rows, snapshots, tags, branches and consumers of a table, and keep the schema.",
        arguments=(TABLE,),
        columns=RESULT,
        run=_purge_files,
        preview=_preview_purge_files,
    ),
    Procedure(
        name="remove_unexisting_files",
        doc="Drop the data files that do not exist from a table. Returns one row for each of them.",
        arguments=(
            TABLE,
            Argument("dry_run", BOOLEAN, "Only list the files.", default=False),
            Argument(
                "parallelism", INTEGER, "Without effect: the storage decides how many files are looked for at a time."
            ),
        ),
        columns=pa.schema([pa.field("fileName", pa.string())]),
        run=_remove_unexisting_files,
        preview=_preview_remove_unexisting_files,
    ),
    Procedure(
        name="copy",
        doc="Copy the files of the newest snapshot of a table to a new table, or to one without rows.",
        arguments=(
            Argument("source_table", TEXT, "The table to copy, as database.table.", required=True),
            Argument("target_table", TEXT, "The table to copy to, as database.table.", required=True),
            Argument("where", TEXT, "A condition on partition columns, in SQL."),
        ),
        columns=RESULT,
        run=_copy,
        preview=_preview_copy,
    ),
    Procedure(
        name="repair",
        doc="Write the hints of tables again where they are wrong. Nothing is deleted.",
        arguments=(
            Argument("database_or_table", TEXT, "Databases and tables, separated by commas; by default all tables."),
        ),
        columns=RESULT,
        run=_repair,
        preview=_preview_repair,
    ),
    Procedure(
        name="compact_database",
        doc="Compact all files of the tables that match regular expressions. One that fails does not stop the others.",
        arguments=(
            Argument("including_databases", TEXT, "A pattern of whole database names; by default all."),
            Argument("including_tables", TEXT, "A pattern of whole names as database.table; by default all."),
            Argument("excluding_tables", TEXT, "A pattern of the tables to leave out."),
            USE_OPTIONS,
        ),
        columns=RESULT,
        run=_compact_database,
        preview=_preview_compact_database,
    ),
)
