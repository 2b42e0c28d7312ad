"""Builds the merge engine of a table from its schema and options, and the columns that a merge has to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from tidelake.errors import InvalidInputError
from tidelake.lsm.engine import Engine
from tidelake.lsm.engines.aggregation import Aggregation
from tidelake.lsm.engines.deduplicate import Deduplicate
from tidelake.lsm.engines.first_row import FirstRow
from tidelake.lsm.engines.partial_update import PartialUpdate, SequenceGroup
from tidelake.options import Affects, OptionGroup, TableOptions, option, same_option
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.schemas.schema_options import ChangelogProducer, MergeEngine, SchemaOptions

if TYPE_CHECKING:
    from tidelake.lsm.aggregate import Aggregate

__all__ = ["ChangelogProducer", "MergeEngine", "MergeOptions", "engine_for", "merge_columns", "sequence_groups"]

_ALL: Final = (Affects.READ, Affects.WRITE, Affects.MAINTENANCE)


class SortOrder(Enum):
    """Whether the larger or the smaller sequence value is the newer one."""

    ASCENDING = "ascending"
    DESCENDING = "is_descending"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOptions(OptionGroup):
    """How the versions of a key are merged into one row."""

    engine: MergeEngine = same_option(SchemaOptions, "merge_engine")
    ignore_delete: bool = same_option(SchemaOptions, "ignore_delete")
    ignore_update_before: bool = same_option(SchemaOptions, "ignore_update_before")
    sequence: tuple[str, ...] = option(
        "sequence.field", (), doc="Columns that order the versions of a key.", affects=_ALL
    )
    sort_order: SortOrder = option(
        "sequence.field.sort-order",
        SortOrder.ASCENDING,
        doc="Whether the larger or the smaller sequence value is newer.",
        affects=_ALL,
    )
    remove_on_delete: bool = same_option(SchemaOptions, "remove_on_delete")
    remove_on_group: tuple[str, ...] = option(
        "partial-update.remove-record-on-sequence-group",
        (),
        doc="Ordering columns of sequence groups in which a -D row removes the whole row.",
        affects=_ALL,
        immutable=True,
    )
    aggregation_remove_on_delete: bool = same_option(SchemaOptions, "aggregation_remove_on_delete")
    changelog_producer: ChangelogProducer = same_option(SchemaOptions, "changelog_producer")
    deduplicates_changes: bool = option(
        "changelog-producer.row-deduplicate",
        False,
        doc="Leave updates that change nothing out of the changelog, where compactions produce it.",
        affects=(Affects.WRITE, Affects.MAINTENANCE),
    )
    uncompared: tuple[str, ...] = option(
        "changelog-producer.row-deduplicate-ignore-fields",
        (),
        doc="Columns that do not count when updates are compared.",
        affects=(Affects.WRITE, Affects.MAINTENANCE),
    )
    deletion_vectors: bool = same_option(SchemaOptions, "deletion_vectors")
    vectors_merge_on_read: bool = option(
        "deletion-vectors.merge-on-read",
        False,
        doc="With deletion vectors, reads merge level 0 instead of leaving it out.",
        affects=(Affects.READ,),
    )
    force_lookup: bool = option(
        "force-lookup",
        False,
        doc="Compactions look up older versions on lower levels.",
        affects=_ALL,
        immutable=True,
    )

    @property
    def needs_lookup(self) -> bool:
        """Whether a compaction merges in older versions from below its output, so that upper levels have whole rows."""
        return (
            self.changelog_producer is ChangelogProducer.LOOKUP
            or self.deletion_vectors
            or self.engine is MergeEngine.FIRST_ROW
            or self.force_lookup
        )

    @property
    def level0_waits(self) -> bool:
        """Whether readers see level-0 rows only after a compaction."""
        if self.engine is MergeEngine.FIRST_ROW:
            return True
        return self.deletion_vectors and not self.vectors_merge_on_read

    @property
    def is_descending(self) -> bool:
        """Whether the smaller sequence value is the newer one."""
        return self.sort_order is SortOrder.DESCENDING


def engine_for(schema: Schema, options: TableOptions) -> Engine:
    """Return the merge engine of a primary-key table.

    Raises:
        InvalidInputError: an option is wrong.
    """
    chosen = options.of(MergeOptions)
    match chosen.engine:
        case MergeEngine.DEDUPLICATE:
            return Deduplicate(chosen.ignore_delete)
        case MergeEngine.FIRST_ROW:
            return FirstRow(chosen.ignore_delete)
        case MergeEngine.AGGREGATION:
            from tidelake.lsm.aggregate import column_functions  # slow to import, and few tables need it

            functions = {
                name: function
                for name, function in column_functions(schema, options).items()
                if name not in schema.primary_keys
            }
            return Aggregation(functions, chosen.aggregation_remove_on_delete)
        case MergeEngine.PARTIAL_UPDATE:
            return PartialUpdate(
                keys=schema.primary_keys,
                required=frozenset(
                    field.name
                    for field in schema.fields
                    if not field.type.nullable and field.name not in schema.primary_keys
                ),
                groups=sequence_groups(options),
                functions=_partial_functions(schema, options),
                ignore_delete=chosen.ignore_delete,
                remove_on_delete=chosen.remove_on_delete,
                remove_on_group=frozenset(chosen.remove_on_group),
            )


def sequence_groups(options: TableOptions) -> tuple[SequenceGroup, ...]:
    """Return the sequence groups that the options declare, in the order of their keys.

    Raises:
        InvalidInputError: a group has no columns.
    """
    groups = []
    for key, value in options.items():
        if key.startswith("fields.") and key.endswith(".sequence-group"):
            ordering = _names(key[len("fields.") : -len(".sequence-group")])
            protected = _names(value)
            if not ordering or not protected:
                raise InvalidInputError(
                    "sequence group has no columns", option=key, hint="list the columns that the group orders"
                )
            groups.append(SequenceGroup(ordering, protected))
    return tuple(groups)


def merge_columns(schema: Schema, options: TableOptions, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that a merge has to read to compute the wanted ones, in the order of the schema.

    Raises:
        InvalidInputError: an option is wrong.
    """
    chosen = options.of(MergeOptions)
    needed = {*wanted, *schema.trimmed_primary_keys, *chosen.sequence}
    for group in sequence_groups(options) if chosen.engine is MergeEngine.PARTIAL_UPDATE else ():
        # A -D row with a value in one of these columns removes the whole row, so read them whatever is wanted.
        if needed & {*group.ordering, *group.protected} or set(group.ordering) & set(chosen.remove_on_group):
            needed |= set(group.ordering)
    return tuple(name for name in schema.names if name in needed)


def _partial_functions(schema: Schema, options: TableOptions) -> dict[str, Aggregate]:
    from tidelake.lsm.aggregate import aggregate_for

    default = options.get("fields.default-aggregate-function")
    never = {*schema.primary_keys, *(name for group in sequence_groups(options) for name in group.ordering)}
    functions = {}
    for field in schema.fields:
        name = options.get(f"fields.{field.name}.aggregate-function", default)
        if name is not None and field.name not in never:
            functions[field.name] = aggregate_for(field.name, field.type, name, options)
    return functions


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()))
