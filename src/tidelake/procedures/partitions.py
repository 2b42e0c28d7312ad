"""Procedures for whole partitions: expire_partitions, mark_partition_done."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tidelake.ops.maintain.partition_expiry import PartitionExpiryPlan, PartitionExpiryResult
from tidelake.procedures.arguments import INTEGER, PARTITIONS, SPAN, TEXT, Argument, Values
from tidelake.procedures.procedure import (
    DONE,
    RESULT,
    TABLE,
    USE_OPTIONS,
    Preview,
    Procedure,
    Rows,
    Tables,
    open_table,
    with_nulls,
)

_NONE_EXPIRED: Final = "No expired partitions."
"""The row that Paimon returns if no partition has expired."""


def _expire_partitions(tables: Tables, values: Values) -> Rows:
    done = _expire(tables, values, plan_only=False)
    assert isinstance(done, PartitionExpiryResult)
    return [{"expired_partitions": str(each)} for each in done.partitions] or [{"expired_partitions": _NONE_EXPIRED}]


def _preview_expire_partitions(tables: Tables, values: Values) -> Preview:
    plan = _expire(tables, values, plan_only=True)
    assert isinstance(plan, PartitionExpiryPlan)
    if not plan.partitions:
        return Preview(f"{values['table']} has no expired partition", is_empty=True)
    return Preview(f"drops from {values['table']}: {plan}", "their rows stay in older snapshots until these expire")


def _expire(tables: Tables, values: Values, *, plan_only: bool) -> PartitionExpiryPlan | PartitionExpiryResult:
    return open_table(tables, values).expire_partitions(
        values["expiration_time"],
        timestamp_formatter=values["timestamp_formatter"],
        timestamp_pattern=values["timestamp_pattern"],
        strategy=values["expire_strategy"],
        max_expires=values["max_expires"],
        plan_only=plan_only,
    )


def _mark_partition_done(tables: Tables, values: Values) -> Rows:
    table = open_table(tables, values)
    table.mark_partition_done(with_nulls(table, values["partitions"]))
    return DONE


PROCEDURES: Final = (
    Procedure(
        name="expire_partitions",
        doc="Drop the partitions that are too old. Returns one row for each of them.",
        arguments=(
            TABLE,
            Argument("expiration_time", SPAN, "How old partitions may be, such as 30 d; by default as the table says."),
            Argument("timestamp_formatter", TEXT, "How the time in their values is parsed, such as yyyyMMdd."),
            Argument("timestamp_pattern", TEXT, "How their values make a time, such as $dt $hour:00:00."),
            Argument("expire_strategy", TEXT, "What is old: `values-time`, or `update-time` for their newest file."),
            Argument("max_expires", INTEGER, "Drop at most so many partitions."),
            USE_OPTIONS,
        ),
        columns=pa.schema([pa.field("expired_partitions", pa.string())]),
        run=_expire_partitions,
        preview=_preview_expire_partitions,
    ),
    Procedure(
        name="mark_partition_done",
        doc="Mark partitions as complete, in the way of the option partition.mark-done-action.",
        arguments=(
            TABLE,
            Argument(
                "partitions",
                PARTITIONS,
                "The partitions, with a value for each partition column; `;` between several.",
                required=True,
            ),
        ),
        columns=RESULT,
        run=_mark_partition_done,
    ),
)
