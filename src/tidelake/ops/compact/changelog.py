"""What a compaction watches while it merges: which rows are new, which versions are below, and which changes to report.

Four kinds of tables need it. With the first-row engine, keys are looked up below the output level, and rows whose key
exists there are dropped. Where compactions look up (`changelog-producer=lookup`, `force-lookup`), rows of level 0 are
merged with the older version below, so that every level holds whole rows. With deletion vectors that older version is
also added to the vectors, so that the sorted levels hold each key once. Where full compactions produce the changelog,
the rows that reach the lowest level are compared with the rows that were there; if `force-lookup` is set too,
compactions to the levels above look up but report nothing.

An older version that is past its record-level expiry counts as absent: it is neither merged in nor reported, as if an
earlier compaction had dropped it. Its position is added to the deletion vectors all the same, because its key would
have two rows otherwise; and with the first-row engine it still wins.

Invariant: the reported changes lead from what the inputs and the levels below showed without the new rows to what they
show with them. Keys without a new row are not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelake.files.options import FileOptions
from tidelake.lsm.engine import KIND, SEQUENCE
from tidelake.lsm.engines.build import ChangelogProducer, MergeEngine, MergeOptions
from tidelake.lsm.files import RunFile
from tidelake.lsm.kernel import Older, Watch
from tidelake.lsm.levels import Levels
from tidelake.lsm.pick import Compaction
from tidelake.lsm.record_expiry import Mask, RecordExpiry, expiry_for
from tidelake.lsm.rewrite import LookupRules
from tidelake.ops.compact.level_lookup import LevelLookup
from tidelake.ops.read.keyed import Ages, Merging, ages_of
from tidelake.ops.scan.split import Split
from tidelake.ops.vectors.superseded_rows import DeletedPositions
from tidelake.spec.types.data_types import Field
from tidelake.store.table_store import TableStore

__all__ = ["ChangelogPlan", "plan_lookup_and_changelog"]

Expired = Callable[[pa.Table], Mask]
"""Which rows are past their record-level expiry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogPlan:
    """What one compaction looks up and reports."""

    watch: Watch
    ages: Ages
    """The ages of its files and of those below."""
    rules: LookupRules | None = None
    """How files leave level 0; None if compactions do not look up."""
    reports_bottom: bool = False
    """Whether rows are reported as new when they reach the lowest level."""
    reads_moved: bool = False
    """Whether upgraded files have to be read."""

    @property
    def only_marks(self) -> bool:
        """Whether upgraded files are read only for the rows that they supersede, so that their keys are enough."""
        watch = self.watch
        return self.reads_moved and watch.below is not None and not (watch.reports_changes or watch.first_wins)

    def watches(self, files: Sequence[RunFile]) -> bool:
        """Whether a rewrite of these files is watched; it is watched whole or not at all."""
        if self.rules is not None:
            return any(file.level == 0 for file in files)
        return self.reports_bottom


def plan_lookup_and_changelog(
    store: TableStore,
    split: Split,
    merging: Merging,
    files: FileOptions,
    levels: Levels,
    compaction: Compaction,
    deleted: DeletedPositions,
    *,
    reports_changes: bool,
) -> ChangelogPlan:
    """What a compaction of these levels has to watch; no file is opened yet.

    If the table has deletion vectors, the rows that it supersedes are added to `deleted`. Without `reports_changes` no
    changes are reported, whatever the options of the table say.

    Raises:
        InvalidInputError: an option is wrong, or rows expire by a column that has no time.
    """
    merge = merging.options.of(MergeOptions)
    output = compaction.output_level
    compared = _fields_to_compare(merging, merge)
    fully = merge.changelog_producer is ChangelogProducer.FULL_COMPACTION
    to_bottom = output == levels.max_level
    if not merge.needs_lookup or (fully and to_bottom):
        # Checked before the lookup: there is nothing to look up below the lowest level, but changes must be reported.
        reports = fully and to_bottom and reports_changes
        watch = Watch(top=levels.max_level, compared=compared)
        return ChangelogPlan(watch=watch, ages=ages_of(compaction.files), reports_bottom=reports, reads_moved=reports)
    below = levels.upper[output:]
    last_wins = merge.engine is MergeEngine.DEDUPLICATE and not merge.sequence
    reports = reports_changes and merge.changelog_producer is ChangelogProducer.LOOKUP
    first_wins = merge.engine is MergeEngine.FIRST_ROW
    values = not first_wins and (reports or not last_wins)
    ages = ages_of((*compaction.files, *(file for level in below for file in level)))
    level0 = [file for file in compaction.files if file.level == 0]
    lookup: _Below | None = None
    if level0 and any(below) and (values or first_wins or merge.deletion_vectors):
        columns = (*merging.schema.names, SEQUENCE, KIND) if values else ()
        found = LevelLookup(store, split, merging, below, new=level0, columns=columns, places=merge.deletion_vectors)
        lookup = _Below(found, ages)
        if merge.deletion_vectors:
            lookup.deleted = deleted
        expiry = expiry_for(merging.schema, merging.options) if values else None
        if expiry is not None:
            lookup.expired = _past(expiry, store.env.clock.now_ms())
    return ChangelogPlan(
        watch=Watch(
            below=lookup,
            reports_changes=reports,
            compared=compared,
            first_wins=first_wins,
            folds_lone=not fully,
            columns=tuple(merging.schema.fields),
        ),
        ages=ages,
        rules=LookupRules(
            deletion_vectors=merge.deletion_vectors,
            last_wins=last_wins,
            format_changes=len({files.for_level(level).format for level in (0, output)}) > 1,
        ),
        reads_moved=reports or (merge.deletion_vectors and lookup is not None),
    )


def _fields_to_compare(merging: Merging, merge: MergeOptions) -> tuple[Field, ...] | None:
    """The columns in which an update must differ to be reported."""
    if not merge.deduplicates_changes:
        return None
    return tuple(field for field in merging.schema.fields if field.name not in merge.uncompared)


def _past(expiry: RecordExpiry, now_ms: int) -> Expired:
    return lambda rows: expiry.mask_expired(rows.column(expiry.field.name), now_ms)


class _Below:
    """Finds the older versions of keys below the output level."""

    def __init__(self, lookup: LevelLookup, ages: Ages) -> None:
        self._lookup = lookup
        self.deleted: DeletedPositions | None = None
        self.expired: Expired | None = None
        self._levels = np.array([file.level for file in lookup.files], np.int64)
        self._ages = np.array([ages.by_name[file.name] for file in lookup.files], np.int64)

    def find(self, rows: pa.Table) -> Older:
        """The older versions of the keys of rows."""
        found = self._lookup.find(rows)
        places = np.flatnonzero(found.hits)
        files = found.files[places]
        if self.deleted is not None:
            for number in np.unique(files).tolist():
                self.deleted.add(self._lookup.files[number].name, found.positions[places[files == number]])
        values = found.values
        if self.expired is not None and values is not None:
            past = self.expired(values)
            if past.any():
                places, files, values = places[~past], files[~past], values.filter(pa.array(~past))
        return Older(places, values, self._levels[files], self._ages[files])
