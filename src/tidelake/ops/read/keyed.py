"""Rows of primary-key splits: raw reads of files that need no merge, and merge on read of the others.

Only necessary columns are read: no sequence numbers if the files are ordered by age, no row kinds if no file contains
deletions, and only the columns that the requested ones depend on. A condition on key columns drops all versions of a
key or none and is pushed down to the files; other conditions are applied to the merged rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.expr.evaluate import matches
from tidelake.expr.simplify import restrict
from tidelake.expr.tree import Predicate
from tidelake.files.read.request import Delivery
from tidelake.files.write.keyed import KIND_FIELD, SEQUENCE_FIELD
from tidelake.lsm.engines.build import MergeOptions, engine_for, merge_columns
from tidelake.lsm.files import RunFile, run_files
from tidelake.lsm.kernel import MergePlan, Piece, Reduced, Watch, merge, merge_watched
from tidelake.lsm.keys import KeyCodec
from tidelake.lsm.sections import Section, partition_files
from tidelake.ops.read.append import live_rows, read_data_file
from tidelake.ops.read.staged import staged_runs
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.split import Split
from tidelake.options import TableOptions
from tidelake.spec.data_file import DataFile
from tidelake.spec.schemas.bucket_mode import BucketOptions
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import row_to_arrow, to_arrow
from tidelake.spec.types.data_types import Field
from tidelake.store.table_store import TableStore

BATCH_ROWS = 1 << 17
"""Rows that are looked through at a time."""
HAND_ROWS = 1 << 20
"""Rows of a run that a merge holds in memory at most."""
_HAND_BYTES, _TEXT_BYTES, _FEW_ROWS = 24 << 20, 32, 1 << 12
"""About how much of a run is in hand, what a value without a fixed width is taken for, and rows that are worth it."""
_HANDS_MAX = 8
"""Runs that may have so much in hand; more of them share it."""


@dataclass(frozen=True, slots=True)
class Merging:
    """How the versions of a table's keys become rows."""

    schema: Schema
    options: TableOptions

    @property
    def key_types(self) -> tuple[pa.DataType, ...]:
        """The Arrow types of the key columns."""
        return tuple(to_arrow(self.schema.field(name).type) for name in self.schema.trimmed_primary_keys)

    def files(self, files: Sequence[DataFile]) -> tuple[RunFile, ...]:
        """Files with their key ranges."""
        keys = [self.schema.field(name).type for name in self.schema.trimmed_primary_keys]
        return tuple(run_files(files, keys))

    def plan(
        self, *, by_age: bool, ordered: bool, drop_retracts: bool, output: tuple[str, ...] | None = None
    ) -> MergePlan:
        """How versions are merged, and which columns come out; `by_age`: newer files have newer versions."""
        chosen = self.options.of(MergeOptions)
        return MergePlan(
            KeyCodec(self.schema.trimmed_primary_keys, self.key_types),
            engine_for(self.schema, self.options),
            sequence=chosen.sequence,
            descending=chosen.is_descending,
            by_age=by_age,
            newest_level_only=chosen.needs_lookup,
            ordered=ordered,
            drop_retracts=drop_retracts,
            output=output,
        )

    def buffer_plan(self) -> MergePlan:
        """How rows that were just written are merged: the later row is the newer one."""
        chosen = self.options.of(MergeOptions)
        return MergePlan(
            KeyCodec(self.schema.trimmed_primary_keys, self.key_types),
            engine_for(self.schema, self.options),
            sequence=chosen.sequence,
            descending=chosen.is_descending,
            by_age=True,
            ordered=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """What a merge of versions reads, and what comes out of it."""

    columns: Sequence[str]
    """What is read of each version."""
    where: Predicate | None = None
    """A condition on key columns, which drops all versions of a key alike."""
    ordered: bool = False
    """Whether rows come out by key."""
    drop_retracts: bool = False
    """Whether keys that end in a deletion are left out."""
    whole: bool = False
    """Whether sequence numbers and kinds are read whatever the merge needs."""
    keep: Callable[[pa.Table], pa.Table] | None = None
    """Leaves out versions before they are merged."""
    output: tuple[str, ...] | None = None
    """The columns that come out; all that are read if None."""


@dataclass(frozen=True, slots=True)
class Ages:
    """How old files are compared to each other, by their names; larger is newer."""

    by_name: Mapping[str, int]
    ordered: bool
    """Whether sequence ranges of files of different age are disjoint, so that newer files have newer versions."""


def ages_of(files: Sequence[RunFile]) -> Ages:
    """The ages of files. Those of one sorted level share no key, and so are as one."""
    units: dict[object, list[RunFile]] = {}
    for file in files:
        units.setdefault(file.level if file.level > 0 else file.name, []).append(file)
    ranges = [
        (min(file.meta.min_sequence for file in unit), max(file.meta.max_sequence for file in unit), unit)
        for unit in units.values()
    ]
    ranges.sort(key=lambda each: each[:2])
    ordered = all(older[1] < newer[0] for older, newer in pairwise(ranges))
    return Ages({file.name: age for age, (_, _, unit) in enumerate(ranges) for file in unit}, ordered)


def read_keyed_split(store: TableStore, split: Split, request: ReadRequest, merging: Merging) -> Iterator[pa.Table]:
    """The rows of one split of a primary-key table.

    Raises:
        FormatError: a file is missing or damaged.
        InvalidInputError: a version is one that the merge engine does not accept, or a merge gives a null where the
            table has none.
    """
    required = [field.name for field in request.fields if not field.type.nullable]
    for rows in _rows_of(store, split, request, merging):
        _refuse_nulls(rows, required)
        yield rows


def count_keyed_split(store: TableStore, split: Split, merging: Merging) -> int:
    """How many rows a split has: by the metadata where files are alone, by a merge of their keys where they overlap.

    Raises:
        FormatError: a file is missing or damaged.
        InvalidInputError: a version is one that the merge engine does not accept.
    """
    if split.raw_convertible:
        return live_rows(store, split, split.files)
    if split.staged:
        keys = ReadRequest(schema=merging.schema, columns=merging.schema.trimmed_primary_keys[-1:])
        return sum(rows.num_rows for rows in _with_staged(store, split, keys, merging))
    columns = merge_columns(merging.schema, merging.options, ())
    count = 0
    for section in partition_files(merging.files(split.files)):
        if _needs_no_merge(section):
            count += live_rows(store, split, (file.meta for file in section.files))
        else:
            one = (merging.schema.trimmed_primary_keys[-1],)  # enough to count by
            only_keys = MergeRequest(columns=columns, drop_retracts=True, output=one)
            merged = merge_section(store, split, section, merging, only_keys)
            count += sum(rows.num_rows for rows in merged)
    return count


def _refuse_nulls(rows: pa.Table, required: Sequence[str]) -> None:
    wrong = next((name for name in required if rows.column(name).null_count), None)
    if wrong is not None:
        raise InvalidInputError(
            "column declared NOT NULL holds a null once its versions are merged",
            code="null-in-not-null",
            column=wrong,
            hint=f'retractions and overflows leave nulls: alter(nullable={{"{wrong}": True}}) lets them be read',
        )


def _rows_of(store: TableStore, split: Split, request: ReadRequest, merging: Merging) -> Iterator[pa.Table]:
    if split.raw_convertible:
        for file in split.files:
            yield from _plain(store, split, file, request)
        return
    if split.staged:
        yield from _with_staged(store, split, request, merging)
        return
    for section in partition_files(merging.files(split.files)):
        yield from _section(store, split, section, request, merging)


def _with_staged(store: TableStore, split: Split, request: ReadRequest, merging: Merging) -> Iterator[pa.Table]:
    """The rows of a bucket merged with its staged rows; the condition is applied after the merge."""
    where = request.where
    wanted = request.looks_at
    columns = merge_columns(merging.schema, merging.options, wanted)
    fields = [merging.schema.field(name) for name in columns]
    files = merging.files(split.files)
    ages = ages_of(files)
    plan = merging.plan(by_age=ages.ordered, ordered=False, drop_retracts=True, output=wanted)
    sections = zip_longest(*(section.runs for section in partition_files(files)), fillvalue=())
    whole = Section(tuple(map(_one_after_the_other, sections)))
    runs = _read_runs(store, split, whole, merging, [*fields, KIND_FIELD, SEQUENCE_FIELD], ages)
    waiting = ReadRequest(
        schema=merging.schema,
        columns=tuple(columns),
        stored=(*fields, KIND_FIELD),
        delivery=Delivery(stream=True),
    )
    buckets = merging.options.of(BucketOptions)
    runs += staged_runs(store, split, waiting, buckets, merging.buffer_plan(), len(files))
    for rows in merge(runs, plan):
        kept = keep_matching(where, rows)
        if kept.num_rows:
            yield pa.Table.from_arrays([kept.column(name) for name in request.columns], schema=request.arrow_schema)


def _one_after_the_other(runs: Iterable[Sequence[RunFile]]) -> tuple[RunFile, ...]:
    """Runs of sections, which do not overlap, as one run."""
    return tuple(file for run in runs for file in run)


def _section(
    store: TableStore, split: Split, section: Section, request: ReadRequest, merging: Merging
) -> Iterator[pa.Table]:
    if _needs_no_merge(section):
        for file in section.files:
            yield from _plain(store, split, file.meta, request)
        return
    where = request.where
    keys_only = restrict(where, frozenset(merging.schema.trimmed_primary_keys)) if where is not None else None
    versions = MergeRequest(
        columns=merge_columns(merging.schema, merging.options, request.looks_at),
        where=keys_only if keys_only is not None and keys_only.columns() else None,
        drop_retracts=True,
        output=request.looks_at,
    )
    for rows in merge_section(store, split, section, merging, versions):
        kept = keep_matching(where, rows)
        if kept.num_rows:
            yield pa.Table.from_arrays([kept.column(name) for name in request.columns], schema=request.arrow_schema)


def _needs_no_merge(section: Section) -> bool:
    return len(section.runs) == 1 and not any(file.may_hold_deletes for file in section.files)


def merge_section(
    store: TableStore, split: Split, section: Section, merging: Merging, request: MergeRequest
) -> Iterator[pa.Table]:
    """The merged rows of a section.

    Args:
        store: The table.
        split: The bucket of the files.
        section: The files, as runs.
        merging: How versions are merged.
        request: What is read of them, and what comes out.
    """
    ages = ages_of(section.files)
    plan = merging.plan(
        by_age=ages.ordered, ordered=request.ordered, drop_retracts=request.drop_retracts, output=request.output
    )
    fields: list[Field] = [merging.schema.field(name) for name in request.columns]
    if request.whole or not plan.by_age:
        fields.append(SEQUENCE_FIELD)
    if request.whole or any(file.may_hold_deletes for file in section.files):
        fields.append(KIND_FIELD)
    runs = _read_runs(store, split, section, merging, fields, ages, where=request.where, keep=request.keep)
    yield from merge(runs, plan)


def watch_section(
    store: TableStore,
    split: Split,
    section: Section,
    merging: Merging,
    watch: Watch,
    ages: Ages,
    *,
    drop_retracts: bool,
    keep: Callable[[pa.Table], pa.Table] | None = None,
) -> Iterator[Reduced]:
    """The merged rows of a section by key, with all columns, sequence numbers and kinds, and what changed.

    Args:
        store: The table.
        split: The bucket of the files.
        section: The files, as runs.
        merging: How versions are merged.
        watch: What is new, and what is wanted of it.
        ages: Of the files of the section and of those that `watch` looks into.
        drop_retracts: Whether keys that end in a deletion are left out of the rows.
        keep: Leaves out versions before they are merged.
    """
    plan = merging.plan(by_age=ages.ordered, ordered=True, drop_retracts=drop_retracts)
    fields = [*merging.schema.fields, SEQUENCE_FIELD, KIND_FIELD]
    yield from merge_watched(_read_runs(store, split, section, merging, fields, ages, keep=keep), plan, watch)


def _read_runs(
    store: TableStore,
    split: Split,
    section: Section,
    merging: Merging,
    fields: Sequence[Field],
    ages: Ages,
    *,
    where: Predicate | None = None,
    keep: Callable[[pa.Table], pa.Table] | None = None,
) -> list[Iterator[Piece]]:
    columns = tuple(field.name for field in fields if field not in (SEQUENCE_FIELD, KIND_FIELD))
    texts = frozenset(merging.schema.trimmed_primary_keys[:1] if len(merging.key_types) > 1 else ())
    request = ReadRequest(schema=merging.schema, columns=columns, where=where, stored=tuple(fields))
    hands = hand_rows([sum(file.meta.row_count for file in run) for run in section.runs], row_to_arrow(fields).types)
    runs = zip(section.runs, hands, strict=True)
    return [
        _pieces(
            store,
            split,
            run,
            replace(request, delivery=Delivery(batch_rows=rows, stream=True, dictionaries=texts)),
            ages.by_name,
            keep,
        )
        for run, rows in runs
    ]


def hand_rows(runs: Sequence[int], types: Sequence[pa.DataType]) -> list[int]:
    """Rows that a merge has in hand of each run, for the rows that the runs have and the types of their columns.

    A window ends where the first of the pieces in hand does. Pieces in proportion to their runs end about together; of
    a smaller run a little more is taken, so that it seldom is the first.
    """
    width = sum(dtype.bit_width // 8 if pa.types.is_primitive(dtype) else _TEXT_BYTES for dtype in types)
    share = _HANDS_MAX / max(_HANDS_MAX, len(runs))
    most = min(HAND_ROWS, max(_FEW_ROWS, int(_HAND_BYTES * share) // max(width, 1)))
    largest = max([1, *runs])
    return [max(most * 2 * rows // largest, most // 4) if rows * 2 < largest else most for rows in runs]


def _pieces(
    store: TableStore,
    split: Split,
    run: Sequence[RunFile],
    request: ReadRequest,
    ages: Mapping[str, int],
    keep: Callable[[pa.Table], pa.Table] | None,
) -> Iterator[Piece]:
    for file in run:
        for batch in read_data_file(store, split, file.meta, request):
            rows = pa.Table.from_batches([batch])
            yield Piece(rows if keep is None else keep(rows), ages[file.name], file.level)


def _plain(store: TableStore, split: Split, file: DataFile, request: ReadRequest) -> Iterator[pa.Table]:
    for batch in read_data_file(store, split, file, replace(request, limit=None)):
        yield pa.Table.from_batches([batch])


def keep_matching(where: Predicate | None, rows: pa.Table) -> pa.Table:
    """The rows that a condition keeps."""
    if where is None:
        return rows
    columns = {name: rows.column(name).combine_chunks() for name in where.columns()}
    return rows.filter(pc.fill_null(matches(where, columns, rows.num_rows), False))
