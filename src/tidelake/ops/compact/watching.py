"""What a compaction watches while it merges: which rows are new, what lies below them, and whether changes are told.

Four kinds of tables ask for it. Where the first row of a key wins, keys are looked up below the output level, and
those that exist there are left out. Where compactions look up (`changelog-producer=lookup`, `force-lookup`), rows of
level 0 are merged with the version that lies below, so that every level holds whole rows. With deletion vectors that
version is also marked as deleted, so that sorted levels hold each key once. Where full compactions produce the
changelog, what comes to the lowest level is compared with what was there; with `force-lookup` too, the compactions to
the levels above it look up and tell nothing.

A version below that is past its record-level expiry counts as none: it is neither folded in nor told of, as if a
compaction had met it before. It is marked all the same, or its key would have two rows; and it still comes first where
the first row wins.

Invariant: the changes of a compaction lead from what its inputs and the levels below showed without the new rows to
what they show with them. Keys without a new row are not told of.
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
from tidelake.ops.compact.lookup import LevelLookup
from tidelake.ops.compact.marks import Marks
from tidelake.ops.read.keyed import Ages, Merging, ages_of
from tidelake.ops.scan.split import Split
from tidelake.spec.types import Field
from tidelake.store.table_store import TableStore

__all__ = ["Watching", "watch_compaction"]

Expired = Callable[[pa.Table], Mask]
"""Which rows are past their record-level expiry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """How one compaction watches."""

    watch: Watch
    ages: Ages
    """Of its files and of those below."""
    rules: LookupRules | None = None
    """How files leave level 0; None where compactions do not look up."""
    tells_bottom: bool = False
    """Whether rows are told of as new when they reach the lowest level."""
    reads_moved: bool = False
    """Whether the rows of files that are only moved matter."""

    @property
    def only_marks(self) -> bool:
        """Whether of rows that are only moved nothing matters but what they supersede, so that keys are enough."""
        watch = self.watch
        return self.reads_moved and watch.below is not None and not (watch.tells or watch.first_wins)

    def watches(self, files: Sequence[RunFile]) -> bool:
        """Whether a rewrite of these files is watched: all of it or nothing."""
        if self.rules is not None:
            return any(file.level == 0 for file in files)
        return self.tells_bottom


def watch_compaction(
    store: TableStore,
    split: Split,
    merging: Merging,
    files: FileOptions,
    levels: Levels,
    compaction: Compaction,
    marks: Marks,
    *,
    tells: bool,
) -> Watching:
    """What a compaction of these levels has to watch; no file is opened yet.

    Where the table has deletion vectors, rows that it supersedes are added to `marks`. `tells` is False where changes
    are not told, whatever the table says.

    Raises:
        InvalidInputError: an option is wrong, or rows expire by a column that tells no time.
    """
    merge = MergeOptions.parse(merging.options)
    output = compaction.output_level
    compared = _compared(merging, merge)
    fully = merge.changelog_producer is ChangelogProducer.FULL_COMPACTION
    to_bottom = output == levels.max_level
    if not merge.needs_lookup or (fully and to_bottom):
        # The producer comes first: below the lowest level there is nothing to look up, but there is something to tell.
        told = fully and to_bottom and tells
        watch = Watch(top=levels.max_level, compared=compared)
        return Watching(watch=watch, ages=ages_of(compaction.files), tells_bottom=told, reads_moved=told)
    below = levels.upper[output:]
    last_wins = merge.engine is MergeEngine.DEDUPLICATE and not merge.sequence
    told = tells and merge.changelog_producer is ChangelogProducer.LOOKUP
    first_wins = merge.engine is MergeEngine.FIRST_ROW
    values = not first_wins and (told or not last_wins)
    ages = ages_of((*compaction.files, *(file for level in below for file in level)))
    level0 = [file for file in compaction.files if file.level == 0]
    lookup: _Below | None = None
    if level0 and any(below) and (values or first_wins or merge.deletion_vectors):
        columns = (*merging.schema.names, SEQUENCE, KIND) if values else ()
        found = LevelLookup(store, split, merging, below, new=level0, columns=columns, places=merge.deletion_vectors)
        lookup = _Below(found, ages)
        if merge.deletion_vectors:
            lookup.marks = marks
        expiry = expiry_for(merging.schema, merging.options) if values else None
        if expiry is not None:
            lookup.expired = _past(expiry, store.env.clock.now_ms())
    return Watching(
        watch=Watch(
            below=lookup,
            tells=told,
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
        reads_moved=told or (merge.deletion_vectors and lookup is not None),
    )


def _compared(merging: Merging, merge: MergeOptions) -> tuple[Field, ...] | None:
    """The columns in which an update must differ to be told."""
    if not merge.deduplicates_changes:
        return None
    return tuple(field for field in merging.schema.fields if field.name not in merge.uncompared)


def _past(expiry: RecordExpiry, now_ms: int) -> Expired:
    return lambda rows: expiry.expired(rows.column(expiry.field.name), now_ms)


class _Below:
    """The versions that lie below the output level."""

    def __init__(self, lookup: LevelLookup, ages: Ages) -> None:
        self._lookup = lookup
        self.marks: Marks | None = None
        self.expired: Expired | None = None
        self._levels = np.array([file.level for file in lookup.files], np.int64)
        self._ages = np.array([ages.by_name[file.name] for file in lookup.files], np.int64)

    def find(self, rows: pa.Table) -> Older:
        """The older versions of the keys of rows."""
        found = self._lookup.find(rows)
        places = np.flatnonzero(found.hits)
        files = found.files[places]
        if self.marks is not None:
            for number in np.unique(files).tolist():
                self.marks.add(self._lookup.files[number].name, found.positions[places[files == number]])
        values = found.values
        if self.expired is not None and values is not None:
            past = self.expired(values)
            if past.any():
                places, files, values = places[~past], files[~past], values.filter(pa.array(~past))
        return Older(places, values, self._levels[files], self._ages[files])
