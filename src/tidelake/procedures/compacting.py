"""Procedures that rewrite files without changing a row: compact, compact_manifest, rescale."""

from __future__ import annotations

from typing import Any, Final

from tidelake.ops.compact.table import CompactionPlan
from tidelake.ops.write.rescale import RescalePlan
from tidelake.procedures.arguments import BOOLEAN, BUCKETS, INTEGER, SPAN, TEXT, Argument, Values, choice
from tidelake.procedures.procedure import (
    CHOSEN_PARTITIONS,
    DONE,
    RESULT,
    TABLE,
    USE_OPTIONS,
    WHERE,
    Preview,
    Procedure,
    Rows,
    Tables,
    open_table,
    partitions_of,
    refuse,
)

_NONE: Final = "none"


def _compact(tables: Tables, values: Values) -> Rows:
    _compact_table(tables, values, plan_only=False)
    return DONE


def _preview_compact(tables: Tables, values: Values) -> Preview:
    plan = _compact_table(tables, values, plan_only=True)
    assert isinstance(plan, CompactionPlan)
    if not plan.rewrites:
        return Preview(f"{values['table']} has nothing to compact", is_empty=True)
    return Preview(f"compacts {values['table']}: {plan}")


def _compact_table(tables: Tables, values: Values, *, plan_only: bool) -> object:
    order = {**values, "order_strategy": None if values["order_strategy"] == _NONE else values["order_strategy"]}
    refuse(
        "compact", order, "order_strategy", "order_by", hint="leave it out: rows are not sorted by other columns yet"
    )
    table = open_table(tables, values)
    return table.compact(
        values["compact_strategy"] == "full",
        values["where"],
        partitions=partitions_of(table, values),
        buckets=values["buckets"],
        partition_idle_time=values["partition_idle_time"],
        plan_only=plan_only,
    )


def _compact_manifest(tables: Tables, values: Values) -> Rows:
    refuse("compact_manifest", values, "dry_run", hint="leave it out: the call changes no row and no data file")
    sorting = [name for name in values if name.startswith("manifest_sort_")]
    refuse("compact_manifest", values, *sorting, hint="leave it out: manifests are not sorted yet")
    open_table(tables, values).new_commit().compact_manifests()
    return DONE


def _rescale(tables: Tables, values: Values) -> Rows:
    _rescale_table(tables, values, plan_only=False)
    return DONE


def _preview_rescale(tables: Tables, values: Values) -> Preview:
    plan = _rescale_table(tables, values, plan_only=True)
    assert isinstance(plan, RescalePlan)
    if not plan.partitions:
        return Preview(f"every chosen partition of {values['table']} has {plan.bucket_num} buckets", is_empty=True)
    return Preview(f"rescales {values['table']}: {plan}")


def _rescale_table(tables: Tables, values: Values, *, plan_only: bool) -> Any:
    table = open_table(tables, values)
    chosen = partitions_of(table, values)
    return table.rescale(values["bucket_num"], values["where"], partitions=chosen, plan_only=plan_only)


PROCEDURES: Final = (
    Procedure(
        name="compact",
        doc="Merge the files of a table: the levels of a primary-key table, or small files of an append table.",
        arguments=(
            TABLE,
            CHOSEN_PARTITIONS,
            Argument(
                "compact_strategy",
                choice("full", "minor"),
                "`full` takes every file, `minor` those that are due by the table's options.",
                default="full",
            ),
            Argument(
                "order_strategy",
                choice(_NONE, "order", "zorder", "hilbert"),
                "How rows are ordered; only `none` is supported.",
                default=_NONE,
            ),
            Argument("order_by", TEXT, "The columns to order by; not supported yet."),
            WHERE,
            USE_OPTIONS,
            Argument("partition_idle_time", SPAN, "Only partitions without a write for so long, such as 1 h."),
            Argument("buckets", BUCKETS, "Only these buckets, such as 0,2-5; their number must be fixed."),
        ),
        columns=RESULT,
        run=_compact,
        preview=_preview_compact,
    ),
    Procedure(
        name="compact_manifest",
        doc="Merge all manifests of a table fully.",
        arguments=(
            TABLE,
            USE_OPTIONS,
            Argument("dry_run", BOOLEAN, "Only say what would be done; not supported yet.", default=False),
            Argument("manifest_sort_enabled", BOOLEAN, "Sort entries by partition; not supported yet.", default=False),
            Argument("manifest_sort_partition_field", TEXT, "The column to sort by; not supported yet."),
            Argument("manifest_sort_max_rewrite_size", TEXT, "How much is sorted at most; not supported yet."),
        ),
        columns=RESULT,
        run=_compact_manifest,
    ),
    Procedure(
        name="rescale",
        doc="Rewrite partitions with another number of fixed buckets. Set the option bucket too.",
        arguments=(
            TABLE,
            Argument("bucket_num", INTEGER, "The new number; by default what the table's option bucket says."),
            CHOSEN_PARTITIONS,
            WHERE,
        ),
        columns=RESULT,
        run=_rescale,
        preview=_preview_rescale,
    ),
)
