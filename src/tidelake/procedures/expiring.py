"""Procedures that delete what is old or unused: expire_snapshots, expire_tags, remove_orphan_files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import pyarrow as pa

from tidelake.errors import UnsupportedError
from tidelake.notebook import pluralize
from tidelake.ops.maintain.expire import ExpirePlan, ExpireResult
from tidelake.procedures.arguments import BOOLEAN, INTEGER, PAST, TEXT, Argument, Values, choice
from tidelake.procedures.procedure import TABLE, USE_OPTIONS, Preview, Procedure, Rows, Tables, open_table
from tidelake.table import Table

_LOST: Final = "this cannot be undone; what must stay readable, tag it first"
_EVERY_TABLE: Final = ".*"


def _expire_snapshots(tables: Tables, values: Values) -> Rows:
    done = _expire(tables, values, plan_only=False)
    assert isinstance(done, ExpireResult)
    return ({"deleted_snapshots_count": len(done.snapshot_ids)},)


def _preview_expire_snapshots(tables: Tables, values: Values) -> Preview:
    plan = _expire(tables, values, plan_only=True)
    assert isinstance(plan, ExpirePlan)
    if not plan.snapshot_ids:
        return Preview(f"{values['table']} has nothing to expire", is_empty=True)
    return Preview(f"expires {values['table']}: {plan}", _LOST)


def _expire(tables: Tables, values: Values, *, plan_only: bool) -> ExpirePlan | ExpireResult:
    return open_table(tables, values).expire_snapshots(
        values["older_than"], values["retain_max"], values["retain_min"], values["max_deletes"], plan_only=plan_only
    )


def _expire_tags(tables: Tables, values: Values) -> Rows:
    return [{"expired_tags": name} for name in open_table(tables, values).expire_tags(values["older_than"])]


def _preview_expire_tags(tables: Tables, values: Values) -> Preview:
    plan = open_table(tables, values).expire_tags(values["older_than"], plan_only=True)
    if not plan.tags:
        return Preview(f"{values['table']} has no tag to expire", is_empty=True)
    return Preview(
        f"deletes from {values['table']} {plan}",
        "this cannot be undone: nothing else keeps one of the snapshots" if plan.files.paths else "",
    )


def _remove_orphan_files(tables: Tables, values: Values) -> Rows:
    _refuse_distributed(values)
    plan_only = values["dry_run"]
    found = [
        table.remove_orphans(values["older_than"], plan_only=plan_only) for table in _choose_tables(tables, values)
    ]
    count = sum(len(each.paths) - len(each.left) for each in found)
    return ({"deletedFileCount": count, "deletedFileTotalLenInBytes": sum(each.size for each in found)},)


def _preview_remove_orphan_files(tables: Tables, values: Values) -> Preview | None:
    if values["dry_run"]:
        return None
    _refuse_distributed(values)
    found = [table.remove_orphans(values["older_than"], plan_only=True) for table in _choose_tables(tables, values)]
    files, size = sum(len(each.paths) for each in found), sum(each.size for each in found)
    if not files:
        return Preview(f"{values['table']} has no orphans that are old enough", is_empty=True)
    return Preview(
        f"deletes {pluralize(files, 'file')} of {size:,} bytes that nothing in {values['table']} refers to",
        "this cannot be undone; after a rollback they are the only copy of what was rolled back",
    )


def _choose_tables(tables: Tables, values: Values) -> Iterator[Table]:
    name: str = values["table"]
    if not name.endswith(_EVERY_TABLE):
        yield tables.table(name)
        return
    database = name.removesuffix(_EVERY_TABLE)
    for each in tables.tables(database):
        yield tables.table(f"{database}.{each}")


def _refuse_distributed(values: Values) -> None:
    if values["mode"] == "distributed":
        raise UnsupportedError(
            "argument is not supported",
            procedure="remove_orphan_files",
            argument="mode",
            value="distributed",
            hint="leave it out: this process looks for orphans itself",
        )


PROCEDURES: Final = (
    Procedure(
        name="expire_snapshots",
        doc="Expire old snapshots and delete the files that only they use. Tags, branches and consumers keep theirs.",
        arguments=(
            TABLE,
            Argument("retain_max", INTEGER, "Keep at most so many snapshots, however new they are."),
            Argument("retain_min", INTEGER, "Keep at least so many of the newest snapshots."),
            Argument("older_than", PAST, "Expire only snapshots older than this local time or age."),
            Argument("max_deletes", INTEGER, "Expire at most so many snapshots."),
            USE_OPTIONS,
        ),
        columns=pa.schema([pa.field("deleted_snapshots_count", pa.int32())]),
        run=_expire_snapshots,
        preview=_preview_expire_snapshots,
    ),
    Procedure(
        name="expire_tags",
        doc="Delete the tags whose time is over, and those created before a given time. Returns one row for each tag.",
        arguments=(
            TABLE,
            Argument("older_than", PAST, "Also delete tags created before this local time, or older than this age."),
        ),
        columns=pa.schema([pa.field("expired_tags", pa.string())]),
        run=_expire_tags,
        preview=_preview_expire_tags,
    ),
    Procedure(
        name="remove_orphan_files",
        doc="Delete files that no snapshot, changelog or tag refers to.",
        arguments=(
            Argument("table", TEXT, "The table, or database.* for every table of a database.", required=True),
            Argument(
                "older_than",
                PAST,
                "Delete only files older than this local time or age; at least a day.",
                default=timedelta(days=1),
            ),
            Argument("dry_run", BOOLEAN, "Only count the files.", default=False),
            Argument(
                "parallelism", INTEGER, "Without effect: the storage decides how many files are deleted at a time."
            ),
            Argument("mode", choice("local", "distributed"), "Only `local` is supported.", default="local"),
        ),
        columns=pa.schema(
            [pa.field("deletedFileCount", pa.int64()), pa.field("deletedFileTotalLenInBytes", pa.int64())]
        ),
        run=_remove_orphan_files,
        preview=_preview_remove_orphan_files,
    ),
)
