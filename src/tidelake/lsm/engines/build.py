"""From a schema and its options to the engine that merges its versions, and to the columns a merge has to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from tidelake.errors import InvalidInputError
from tidelake.lsm.engine import Engine
from tidelake.lsm.engines.aggregation import Aggregation
from tidelake.lsm.engines.deduplicate import Deduplicate
from tidelake.lsm.engines.first_row import FirstRow
from tidelake.lsm.engines.partial_update import PartialUpdate, SequenceGroup
from tidelake.options import Affects, OptionGroup, option
from tidelake.spec.schema import Schema

if TYPE_CHECKING:
    from tidelake.lsm.aggregate import Aggregate

__all__ = ["ChangelogProducer", "MergeEngine", "MergeOptions", "engine_for", "merge_columns", "sequence_groups"]

_ALL: Final = (Affects.READ, Affects.WRITE, Affects.MAINTENANCE)


class MergeEngine(Enum):
    """What becomes of the versions of a key."""

    DEDUPLICATE = "deduplicate"
    PARTIAL_UPDATE = "partial-update"
    AGGREGATION = "aggregation"
    FIRST_ROW = "first-row"


class SortOrder(Enum):
    """Whether the larger or the smaller sequence value is the newer one."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


class ChangelogProducer(Enum):
    """Where the changes of a table come from."""

    NONE = "none"
    INPUT = "input"
    FULL_COMPACTION = "full-compaction"
    LOOKUP = "lookup"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOptions(OptionGroup):
    """How versions of a key become one row."""

    engine: MergeEngine = option(
        "merge-engine",
        MergeEngine.DEDUPLICATE,
        doc="What becomes of several versions of one key.",
        affects=_ALL,
        immutable=True,
    )
    ignore_delete: bool = option(
        "ignore-delete",
        False,
        doc="Rows that delete or take back are left out.",
        affects=_ALL,
        fallback=("first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"),
    )
    ignore_update_before: bool = option(
        "ignore-update-before", False, doc="Rows of the kind -U are left out when written.", affects=(Affects.WRITE,)
    )
    sequence: tuple[str, ...] = option(
        "sequence.field", (), doc="Columns that say which version is newer.", affects=_ALL
    )
    sort_order: SortOrder = option(
        "sequence.field.sort-order",
        SortOrder.ASCENDING,
        doc="Which sequence value is the newer one.",
        affects=_ALL,
    )
    remove_on_delete: bool = option(
        "partial-update.remove-record-on-delete",
        False,
        doc="In a partial-update table a deletion removes the whole row.",
        affects=_ALL,
        immutable=True,
    )
    remove_on_group: tuple[str, ...] = option(
        "partial-update.remove-record-on-sequence-group",
        (),
        doc="Ordering columns with which a deletion removes the whole row.",
        affects=_ALL,
        immutable=True,
    )
    aggregation_remove_on_delete: bool = option(
        "aggregation.remove-record-on-delete",
        False,
        doc="In an aggregation table a deletion removes the whole row.",
        affects=_ALL,
        immutable=True,
    )
    changelog_producer: ChangelogProducer = option(
        "changelog-producer",
        ChangelogProducer.NONE,
        doc="Where the changes of the table come from.",
        affects=_ALL,
    )
    deduplicates_changes: bool = option(
        "changelog-producer.row-deduplicate",
        False,
        doc="Updates that change nothing are not told, where compactions produce the changes.",
        affects=(Affects.WRITE, Affects.MAINTENANCE),
    )
    uncompared: tuple[str, ...] = option(
        "changelog-producer.row-deduplicate-ignore-fields",
        (),
        doc="Columns that do not count when updates are compared.",
        affects=(Affects.WRITE, Affects.MAINTENANCE),
    )
    deletion_vectors: bool = option(
        "deletion-vectors.enabled", False, doc="Mark rows that were replaced or deleted.", affects=_ALL
    )
    vectors_merge_on_read: bool = option(
        "deletion-vectors.merge-on-read",
        False,
        doc="With deletion vectors, reads merge level 0 instead of leaving it out.",
        affects=(Affects.READ,),
    )
    force_lookup: bool = option(
        "force-lookup", False, doc="Compactions look up what lies below.", affects=_ALL, immutable=True
    )

    @property
    def needs_lookup(self) -> bool:
        """Whether a compaction folds in what lies below its output, so that upper levels hold whole rows."""
        return (
            self.changelog_producer is ChangelogProducer.LOOKUP
            or self.deletion_vectors
            or self.engine is MergeEngine.FIRST_ROW
            or self.force_lookup
        )

    @property
    def level0_waits(self) -> bool:
        """Whether rows of level 0 are seen only once a compaction has lifted them."""
        if self.engine is MergeEngine.FIRST_ROW:
            return True
        return self.deletion_vectors and not self.vectors_merge_on_read

    @property
    def descending(self) -> bool:
        """Whether the smaller sequence value is the newer one."""
        return self.sort_order is SortOrder.DESCENDING


def engine_for(schema: Schema, options: Mapping[str, str]) -> Engine:
    """The engine of a primary-key table.

    Raises:
        InvalidInputError: an option is wrong.
    """
    chosen = MergeOptions.parse(options)
    match chosen.engine:
        case MergeEngine.DEDUPLICATE:
            return Deduplicate(chosen.ignore_delete)
        case MergeEngine.FIRST_ROW:
            return FirstRow(chosen.ignore_delete)
        case MergeEngine.AGGREGATION:
            from tidelake.lsm.aggregate import column_functions  # many functions, which few tables need

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


def sequence_groups(options: Mapping[str, str]) -> tuple[SequenceGroup, ...]:
    """The sequence groups that options declare, in the order of their keys.

    Raises:
        InvalidInputError: a group protects no column.
    """
    groups = []
    for key, value in options.items():
        if key.startswith("fields.") and key.endswith(".sequence-group"):
            ordering = _names(key[len("fields.") : -len(".sequence-group")])
            protected = _names(value)
            if not ordering or not protected:
                raise InvalidInputError("sequence group has no columns", option=key, hint="list the columns it decides")
            groups.append(SequenceGroup(ordering, protected))
    return tuple(groups)


def merge_columns(schema: Schema, options: Mapping[str, str], wanted: Sequence[str]) -> tuple[str, ...]:
    """The columns that a merge has to read so that the wanted ones come out right, in the order of the schema.

    Raises:
        InvalidInputError: an option is wrong.
    """
    chosen = MergeOptions.parse(options)
    needed = {*wanted, *schema.trimmed_primary_keys, *chosen.sequence}
    for group in sequence_groups(options) if chosen.engine is MergeEngine.PARTIAL_UPDATE else ():
        # A deletion by one of these columns removes the whole row, whatever is read of it.
        if needed & {*group.ordering, *group.protected} or set(group.ordering) & set(chosen.remove_on_group):
            needed |= set(group.ordering)
    return tuple(name for name in schema.names if name in needed)


def _partial_functions(schema: Schema, options: Mapping[str, str]) -> dict[str, Aggregate]:
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
