"""Options that decide which schemas are valid and which changes are allowed; other layers read many of them too.

Each key is declared once, in the lowest layer that reads it: groups of higher layers take these over with
`same_option`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidelake.errors import InvalidInputError
from tidelake.options import INT32_MAX, Affects, OptionGroup, option

__all__ = ["BUCKETS_OPEN", "ChangelogProducer", "MergeEngine", "SchemaOptions", "restate_problem"]

BUCKETS_OPEN: Final = -1
"""The value of `bucket` that leaves the number of buckets open."""

_ALL: Final = (Affects.READ, Affects.WRITE, Affects.MAINTENANCE)
_WRITE: Final = (Affects.WRITE,)
_ALTER: Final = (Affects.ALTER,)
_MAINTENANCE: Final = (Affects.MAINTENANCE,)


class MergeEngine(Enum):
    """What becomes of the versions of a key."""

    DEDUPLICATE = "deduplicate"
    PARTIAL_UPDATE = "partial-update"
    AGGREGATION = "aggregation"
    FIRST_ROW = "first-row"


class ChangelogProducer(Enum):
    """Where the changes of a table come from."""

    NONE = "none"
    INPUT = "input"
    FULL_COMPACTION = "full-compaction"
    LOOKUP = "lookup"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaOptions(OptionGroup):
    """Options that rules about schemas and about changes of options compare."""

    bucket: int = option(
        "bucket",
        BUCKETS_OPEN,
        doc="Buckets: > 0 fixed, -1 dynamic or none, -2 postponed.",
        affects=(Affects.READ, Affects.WRITE),
    )
    merge_engine: MergeEngine = option(
        "merge-engine",
        MergeEngine.DEDUPLICATE,
        doc="What becomes of several versions of one key.",
        affects=_ALL,
        immutable=True,
    )
    changelog_producer: ChangelogProducer = option(
        "changelog-producer",
        ChangelogProducer.NONE,
        doc="Where the changes of the table come from.",
        affects=_ALL,
    )
    ignore_delete: bool = option(
        "ignore-delete",
        False,
        doc="Rows that delete or take back are left out.",
        affects=_ALL,
        fallback=("first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"),
    )
    ignore_update_before: bool = option(
        "ignore-update-before", False, doc="Rows of the kind -U are left out when written.", affects=_WRITE
    )
    remove_on_delete: bool = option(
        "partial-update.remove-record-on-delete",
        False,
        doc="In a partial-update table a deletion removes the whole row.",
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
    deletion_vectors: bool = option(
        "deletion-vectors.enabled", False, doc="Mark rows that were replaced or deleted.", affects=_ALL
    )
    vectors_modifiable: bool = option(
        "deletion-vectors.modifiable",
        False,
        doc="Whether deletion vectors may be switched on or off in a table that has snapshots.",
        affects=_ALTER,
    )
    streaming_read_overwrite: bool = option(
        "streaming-read-overwrite",
        False,
        doc="Streams of primary-key tables see overwrites.",
        affects=(Affects.READ,),
    )
    write_only: bool = option(
        "write-only",
        False,
        doc="Writers neither compact nor expire.",
        affects=_WRITE,
        fallback=("write.compaction-skip",),
    )
    snapshots_min: int = option(
        "snapshot.num-retained.min", 10, doc="Newest snapshots that stay.", affects=_MAINTENANCE
    )
    snapshots_max: int = option(
        "snapshot.num-retained.max",
        INT32_MAX,
        doc="Snapshots beyond this number go, young or not.",
        affects=_MAINTENANCE,
    )
    changelogs_min: int | None = option(
        "changelog.num-retained.min", None, doc="Long-lived changelogs that stay.", affects=_MAINTENANCE
    )
    changelogs_max: int | None = option(
        "changelog.num-retained.max", None, doc="Long-lived changelogs beyond this go.", affects=_MAINTENANCE
    )
    nullable_keys: bool = option(
        "primary-key.nullable",
        False,
        doc="Columns of the primary key may be null.",
        affects=(Affects.CREATE, Affects.ALTER),
        immutable=True,
    )
    keeps_nullable: bool = option(
        "alter-column-null-to-not-null.disabled",
        True,
        doc="Whether a nullable column may not become NOT NULL.",
        affects=_ALTER,
    )
    casts_implicitly: bool = option(
        "disable-explicit-type-casting",
        False,
        doc="Whether a column may only get a type that loses nothing.",
        affects=_ALTER,
    )
    adds_before_partition: bool = option(
        "add-column-before-partition",
        False,
        doc="A new column goes before the first partition column.",
        affects=_ALTER,
    )
    snapshot_ordering: bool = option(
        "sequence.snapshot-ordering",
        False,
        doc="Order versions by the committing snapshot.",
        affects=_WRITE,
        immutable=True,
    )
    row_tracking: bool = option(
        "row-tracking.enabled", False, doc="Give rows stable ids.", affects=_WRITE, immutable=True
    )
    data_evolution: bool = option(
        "data-evolution.enabled", False, doc="Column-wise updates by row id.", affects=_WRITE, immutable=True
    )
    shows_sequence_numbers: bool = option(
        "table-read.sequence-number.enabled",
        False,
        doc="Audit log and binlog of a primary-key table show sequence numbers.",
        affects=(Affects.READ,),
    )
    clusters_incrementally: bool = option(
        "clustering.incremental", False, doc="Cluster append tables bit by bit.", affects=_MAINTENANCE
    )
    clusters_keys: bool = option(
        "pk-clustering-override",
        False,
        doc="Sort files of primary-key tables by clustering columns.",
        affects=_WRITE,
        immutable=True,
    )


def restate_problem(error: InvalidInputError) -> InvalidInputError:
    """The problem of a value as a rule about schemas reports it, without the code of a value that is set."""
    facts = error.facts
    return InvalidInputError(error.message, hint=error.hint, option=facts["key"], value=str(facts["value"])[:80])
