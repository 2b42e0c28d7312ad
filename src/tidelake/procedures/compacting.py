"""Procedures that rewrite files without changing a row: compactions, manifests, deletion vectors, rescale."""

from __future__ import annotations

from typing import Any, Final

from tidelake.ops.compact.table import CompactionPlan
from tidelake.ops.maintain.manifests import ManifestPlan
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
    _merge_manifests(tables, values, plan_only=values["dry_run"])
    return DONE


def _preview_compact_manifest(tables: Tables, values: Values) -> Preview | None:
    if values["dry_run"]:
        return None
    plan = _merge_manifests(tables, values, plan_only=True)
    assert isinstance(plan, ManifestPlan)
    if plan.is_empty:
        return Preview(f"{values['table']} has no manifests to merge", is_empty=True)
    return Preview(f"of {values['table']}, {plan}")


def _merge_manifests(tables: Tables, values: Values, *, plan_only: bool) -> object:
    return open_table(tables, values).compact_manifests(
        values["manifest_sort_enabled"],
        values["manifest_sort_partition_field"],
        values["manifest_sort_max_rewrite_size"],
        plan_only=plan_only,
    )


def _materialize(tables: Tables, values: Values) -> Rows:
    _materialize_vectors(tables, values, plan_only=False)
    return DONE


def _preview_materialize(tables: Tables, values: Values) -> Preview:
    plan = _materialize_vectors(tables, values, plan_only=True)
    assert isinstance(plan, CompactionPlan)
    if not plan.rewrites:
        return Preview(f"no chosen file of {values['table']} has a deletion vector", is_empty=True)
    return Preview(f"materializes deletion vectors of {values['table']}: {plan}")


def _materialize_vectors(tables: Tables, values: Values, *, plan_only: bool) -> object:
    table = open_table(tables, values)
    return table.materialize_deletion_vectors(partitions_of(table, values), values["where"], plan_only=plan_only)


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
        doc="Merge all manifests of a table fully, and sort their entries by partition and bucket if that is wanted.",
        arguments=(
            TABLE,
            USE_OPTIONS,
            Argument("dry_run", BOOLEAN, "Change nothing; the command line and the verb show the plan.", default=False),
            Argument("manifest_sort_enabled", BOOLEAN, "Sort entries; by default as the table's options say."),
            Argument("manifest_sort_partition_field", TEXT, "The partition column to sort by first."),
            Argument("manifest_sort_max_rewrite_size", TEXT, "Bytes of manifests that are sorted, such as 256 mb."),
        ),
        columns=RESULT,
        run=_compact_manifest,
        preview=_preview_compact_manifest,
    ),
    Procedure(
        name="materialize_deletion_vectors",
        doc="Rewrite the files that have deletion vectors without their deleted rows. No row changes.",
        arguments=(TABLE, CHOSEN_PARTITIONS, USE_OPTIONS, WHERE),
        columns=RESULT,
        run=_materialize,
        preview=_preview_materialize,
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
