"""Procedures for tags, branches and consumers, and for rolling back."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.notebook import pluralize
from tidelake.ops.maintain.tags import tag_store
from tidelake.procedures.arguments import BOOLEAN, INTEGER, MOMENT, NAMES, SPAN, TEXT, Argument, Values
from tidelake.procedures.procedure import DONE, RESULT, TABLE, Preview, Procedure, Rows, Tables, open_table
from tidelake.spec.names import MAIN_BRANCH

# ------------------------------------------------------------------------------------------------ tags


def _create_tag(tables: Tables, values: Values) -> Rows:
    open_table(tables, values).create_tag(values["tag"], values["snapshot"], values["time_retained"])
    return DONE


def _replace_tag(tables: Tables, values: Values) -> Rows:
    open_table(tables, values).replace_tag(values["tag"], values["snapshot"], values["time_retained"])
    return DONE


def _preview_replace_tag(tables: Tables, values: Values) -> Preview:
    plan = open_table(tables, values).replace_tag(values["tag"], values["snapshot"], plan_only=True)
    return Preview(
        f"of {values['table']}, moves {plan}",
        f"this cannot be undone: what only the tag keeps of snapshot {plan.before.id} is lost" if plan.is_lost else "",
    )


def _create_tag_from_timestamp(tables: Tables, values: Values) -> Rows:
    if values["timestamp"] is None:
        raise InvalidInputError(
            "time is not given",
            procedure="create_tag_from_timestamp",
            argument="timestamp",
            hint="give a local time or milliseconds since 1970, or call create_tag for the newest snapshot",
        )
    table = open_table(tables, values)
    name = table.create_tag(values["tag"], time_retained=values["time_retained"], timestamp=values["timestamp"])
    snapshot = tag_store(table.store).get(name).snapshot
    return (
        {
            "tagName": name,
            "snapshot": snapshot.id,
            "commit_time": snapshot.time_ms,
            "watermark": snapshot.watermark,
        },
    )


def _trigger_automatic_tags(tables: Tables, values: Values) -> Rows:
    open_table(tables, values).create_automatic_tags()
    return DONE


def _preview_automatic_tags(tables: Tables, values: Values) -> Preview:
    plan = open_table(tables, values).create_automatic_tags(plan_only=True)
    return Preview(
        f"for {values['table']}: {plan}",
        "a deleted tag cannot be created again once its snapshot has expired" if plan.deletes else "",
        is_empty=plan.is_empty,
    )


def _rename_tag(tables: Tables, values: Values) -> Rows:
    open_table(tables, values).rename_tag(values["tag"], values["target_tag"])
    return DONE


def _delete_tag(tables: Tables, values: Values) -> Rows:
    table = open_table(tables, values)
    for name in values["tag"]:  # all of them exist before the first is deleted
        table.delete_tag(name, plan_only=True)
    for name in values["tag"]:
        table.delete_tag(name)
    return DONE


def _preview_delete_tag(tables: Tables, values: Values) -> Preview:
    table = open_table(tables, values)
    plans = [table.delete_tag(name, plan_only=True) for name in values["tag"]]
    frees = any(plan.files.paths for plan in plans)
    return Preview(
        f"deletes from {values['table']} {'; '.join(map(str, plans))}",
        "this cannot be undone: nothing else keeps one of the snapshots" if frees else "",
    )


# ------------------------------------------------------------------------------------------------ rollback


def _rollback(tables: Tables, values: Values) -> Rows:
    return _run_rollback(tables, values, **_target(values))


def _preview_rollback(tables: Tables, values: Values) -> Preview:
    return _preview(tables, values, **_target(values))


def _rollback_to_timestamp(tables: Tables, values: Values) -> Rows:
    return _run_rollback(tables, values, timestamp=values["timestamp"])


def _preview_rollback_to_timestamp(tables: Tables, values: Values) -> Preview:
    return _preview(tables, values, timestamp=values["timestamp"])


def _rollback_to_watermark(tables: Tables, values: Values) -> Rows:
    return _run_rollback(tables, values, watermark=values["watermark"])


def _preview_rollback_to_watermark(tables: Tables, values: Values) -> Preview:
    return _preview(tables, values, watermark=values["watermark"])


def _repair_earliest_snapshot(tables: Tables, values: Values) -> Rows:
    before = open_table(tables, values).repair_earliest_snapshot(values["snapshot_id"])
    return ({"previous_earliest_snapshot_id": before, "current_earliest_snapshot_id": values["snapshot_id"]},)


def _target(values: Values) -> dict[str, Any]:
    """The snapshot or the tag to go back to; `version` is either, and digits are a snapshot."""
    given = {name: values[name] for name in ("version", "snapshot", "tag") if values[name] is not None}
    if len(given) != 1:
        raise InvalidInputError(
            "give exactly one target",
            procedure="rollback",
            given=", ".join(given) or "none",
            hint="give version, snapshot or tag",
        )
    name, value = given.popitem()
    if name != "version":
        return {name: value}
    return {"snapshot": int(value)} if value.isdecimal() else {"tag": value}


def _run_rollback(tables: Tables, values: Values, **target: Any) -> Rows:
    table = open_table(tables, values)
    before = table.latest_snapshot()
    plan = table.rollback_to(**target)
    return (
        {
            "previous_snapshot_id": None if before is None else before.id,
            "current_snapshot_id": plan.target.id,
        },
    )


def _preview(tables: Tables, values: Values, **target: Any) -> Preview:
    plan = open_table(tables, values).rollback_to(**target, plan_only=True)
    return Preview(
        f"rolls {values['table']} {plan}",
        "to be able to return, create a branch or a tag of the newest snapshot first",
        is_empty=not (plan.snapshot_ids or plan.tags or plan.changelog_ids or plan.restored),
    )


# ------------------------------------------------------------------------------------------------ branches


def _create_branch(tables: Tables, values: Values) -> Rows:
    table = open_table(tables, values)
    if not (values["ignoreIfExists"] and values["branch"] in table.branches()):
        table.create_branch(values["branch"], tag=values["tag"])
    return DONE


def _delete_branch(tables: Tables, values: Values) -> Rows:
    table = open_table(tables, values)
    for name in values["branch"]:  # all of them exist before the first is deleted
        table.branch(name)
    for name in values["branch"]:
        table.delete_branch(name)
    return DONE


def _preview_delete_branch(tables: Tables, values: Values) -> Preview:
    table = open_table(tables, values)
    counts = {name: table.branch(name).inspect.snapshots().num_rows for name in values["branch"]}
    listed = ", ".join(f"{name} ({pluralize(count, 'snapshot')})" for name, count in counts.items())
    return Preview(
        f"deletes from {values['table']} the branches {listed}",
        "this cannot be undone; to keep the rows of a branch, call fast_forward first",
    )


def _rename_branch(tables: Tables, values: Values) -> Rows:
    open_table(tables, values).rename_branch(values["from_branch"], values["to_branch"])
    return DONE


def _merge_branch(tables: Tables, values: Values) -> Rows:
    open_table(tables, values).merge_branch(values["source_branch"], values["target_branch"])
    return DONE


def _fast_forward(tables: Tables, values: Values) -> Rows:
    open_table(tables, values).fast_forward(values["branch"])
    return DONE


def _preview_fast_forward(tables: Tables, values: Values) -> Preview:
    plan = open_table(tables, values).fast_forward(values["branch"], plan_only=True)
    lost = "what was committed to the table since the branch began is lost" if plan.removed_snapshots else ""
    return Preview(f"of {values['table']}, {plan}", lost)


# ------------------------------------------------------------------------------------------------ consumers


def _reset_consumer(tables: Tables, values: Values) -> Rows:
    table = open_table(tables, values)
    if values["nextSnapshotId"] is not None:
        table.snapshot(values["nextSnapshotId"])  # as in Paimon, only a snapshot that exists can be set
    table.reset_consumer(values["consumerId"], values["nextSnapshotId"])
    return DONE


def _clear_consumers(tables: Tables, values: Values) -> Rows:
    open_table(tables, values).clear_consumers(values["includingConsumers"], values["excludingConsumers"])
    return DONE


def _preview_clear_consumers(tables: Tables, values: Values) -> Preview:
    names = open_table(tables, values).clear_consumers(
        values["includingConsumers"], values["excludingConsumers"], plan_only=True
    )
    return Preview(
        f"forgets of {values['table']} {pluralize(len(names), 'consumer')}: {', '.join(names)}",
        "snapshots that only they kept may expire",
        is_empty=not names,
    )


_TAG: Final = Argument("tag", TEXT, "The name of the tag.", required=True)
_BRANCH: Final = Argument("branch", TEXT, "The name of the branch.", required=True)
_ROLLED_BACK: Final = pa.schema(
    [pa.field("previous_snapshot_id", pa.int64()), pa.field("current_snapshot_id", pa.int64())]
)
_REPAIRED: Final = pa.schema(
    [pa.field("previous_earliest_snapshot_id", pa.int64()), pa.field("current_earliest_snapshot_id", pa.int64())]
)
_TAGGED: Final = pa.schema(
    [
        pa.field("tagName", pa.string()),
        pa.field("snapshot", pa.int64()),
        pa.field("commit_time", pa.int64()),
        pa.field("watermark", pa.int64()),
    ]
)

PROCEDURES: Final = (
    Procedure(
        name="create_tag",
        doc="Name a snapshot, so that it does not expire.",
        arguments=(
            TABLE,
            _TAG,
            Argument("snapshot", INTEGER, "The snapshot to name; by default the newest."),
            Argument(
                "time_retained", SPAN, "How long the tag is kept, such as 90 d; by default as the table's options say."
            ),
        ),
        columns=RESULT,
        run=_create_tag,
    ),
    Procedure(
        name="replace_tag",
        doc="Give a tag to another snapshot; files that only the former snapshot used become orphans.",
        arguments=(
            TABLE,
            _TAG,
            Argument("snapshot", INTEGER, "The snapshot to name; by default the newest."),
            Argument("time_retained", SPAN, "How long the tag is kept, such as 90 d; by default until it is deleted."),
        ),
        columns=RESULT,
        run=_replace_tag,
        preview=_preview_replace_tag,
    ),
    Procedure(
        name="create_tag_from_timestamp",
        doc="Name the first snapshot that was committed at or after a time, also one that only a tag keeps.",
        arguments=(
            TABLE,
            _TAG,
            Argument("timestamp", MOMENT, "A local time, or milliseconds since 1970."),
            Argument(
                "time_retained", SPAN, "How long the tag is kept, such as 90 d; by default as the table's options say."
            ),
        ),
        columns=_TAGGED,
        run=_create_tag_from_timestamp,
    ),
    Procedure(
        name="trigger_tag_automatic_creation",
        doc="Create the automatic tags that are due, and delete tags past their time or number.",
        arguments=(TABLE,),
        columns=RESULT,
        run=_trigger_automatic_tags,
        preview=_preview_automatic_tags,
    ),
    Procedure(
        name="rename_tag",
        doc="Give a tag another name.",
        arguments=(TABLE, _TAG, Argument("target_tag", TEXT, "The new name.", required=True)),
        columns=RESULT,
        run=_rename_tag,
    ),
    Procedure(
        name="delete_tag",
        doc="Delete tags and the files that only they use.",
        arguments=(TABLE, Argument("tag", NAMES, "The names of the tags, separated by commas.", required=True)),
        columns=RESULT,
        run=_delete_tag,
        preview=_preview_delete_tag,
    ),
    Procedure(
        name="rollback",
        doc="Go back to a snapshot: newer snapshots and tags are removed. Stop writers first.",
        arguments=(
            TABLE,
            Argument("version", TEXT, "The id of a snapshot, or the name of a tag."),
            Argument("snapshot", INTEGER, "The id of a snapshot."),
            Argument("tag", TEXT, "The name of a tag. Give exactly one of the three."),
        ),
        columns=_ROLLED_BACK,
        run=_rollback,
        preview=_preview_rollback,
    ),
    Procedure(
        name="rollback_to_timestamp",
        doc="Go back to the newest snapshot that is not later than a given time. Stop writers first.",
        arguments=(
            TABLE,
            Argument("timestamp", MOMENT, "A local time, or milliseconds since 1970.", required=True),
        ),
        columns=_ROLLED_BACK,
        run=_rollback_to_timestamp,
        preview=_preview_rollback_to_timestamp,
    ),
    Procedure(
        name="rollback_to_watermark",
        doc="Go back to the newest snapshot whose watermark is not greater than a given one. Stop writers first.",
        arguments=(TABLE, Argument("watermark", INTEGER, "The watermark.", required=True)),
        columns=_ROLLED_BACK,
        run=_rollback_to_watermark,
        preview=_preview_rollback_to_watermark,
    ),
    Procedure(
        name="repair_earliest_snapshot",
        doc="Note that the snapshot right after a gap is the oldest that counts. Deletes nothing.",
        arguments=(
            TABLE,
            Argument("snapshot_id", INTEGER, "The first snapshot after the gap.", required=True),
        ),
        columns=_REPAIRED,
        run=_repair_earliest_snapshot,
    ),
    Procedure(
        name="create_branch",
        doc="Create a branch, empty or with the snapshot of a tag.",
        arguments=(
            TABLE,
            _BRANCH,
            Argument("tag", TEXT, "Begin with the snapshot of this tag; by default the branch is empty."),
            Argument("ignoreIfExists", BOOLEAN, "Do nothing if the branch exists, instead of failing.", default=False),
        ),
        columns=RESULT,
        run=_create_branch,
    ),
    Procedure(
        name="delete_branch",
        doc="Delete branches; files that only they used become orphans.",
        arguments=(TABLE, Argument("branch", NAMES, "The names of the branches, separated by commas.", required=True)),
        columns=RESULT,
        run=_delete_branch,
        preview=_preview_delete_branch,
    ),
    Procedure(
        name="rename_branch",
        doc="Give a branch another name. Stop jobs that work on it first.",
        arguments=(
            TABLE,
            Argument("from_branch", TEXT, "The name of the branch.", required=True),
            Argument("to_branch", TEXT, "The new name.", required=True),
        ),
        columns=RESULT,
        run=_rename_branch,
    ),
    Procedure(
        name="merge_branch",
        doc="Append the files that only one branch has to another one. For append tables without compactions.",
        arguments=(
            TABLE,
            Argument("source_branch", TEXT, "The branch whose files are appended.", required=True),
            Argument("target_branch", TEXT, "The branch that gets them.", default=MAIN_BRANCH),
        ),
        columns=RESULT,
        run=_merge_branch,
    ),
    Procedure(
        name="fast_forward",
        doc="Replace the table's snapshots with those of a branch, from the branch's first on. Stop writers first.",
        arguments=(TABLE, _BRANCH),
        columns=RESULT,
        run=_fast_forward,
        preview=_preview_fast_forward,
    ),
    Procedure(
        name="reset_consumer",
        doc="Set the snapshot that a consumer reads next, or forget the consumer.",
        arguments=(
            TABLE,
            Argument("consumerId", TEXT, "The name of the consumer.", required=True),
            Argument("nextSnapshotId", INTEGER, "The snapshot to read next; without it the consumer is forgotten."),
        ),
        columns=RESULT,
        run=_reset_consumer,
    ),
    Procedure(
        name="clear_consumers",
        doc="Forget consumers, so that they no longer keep snapshots.",
        arguments=(
            TABLE,
            Argument("includingConsumers", TEXT, "A regular expression for whole names; by default every consumer."),
            Argument("excludingConsumers", TEXT, "A regular expression for whole names of consumers that stay."),
        ),
        columns=RESULT,
        run=_clear_consumers,
        preview=_preview_clear_consumers,
    ),
)
