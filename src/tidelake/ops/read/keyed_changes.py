"""Rows of primary-key tables with their kinds.

Rows of changes are never merged, so a condition applies to each row alone. Two states of a bucket are compared key by
key with the merge kernel: each side is merged to a sorted run, and the two runs are merged with each other. Memory is
that of a merge, whatever the size of the bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import UnsupportedError
from tidelake.expr.simplify import restrict
from tidelake.expr.tree import Predicate
from tidelake.files.write.keyed import KIND_FIELD, SEQUENCE_FIELD
from tidelake.lsm.engine import DELETE, INSERT, KIND, SEQUENCE
from tidelake.lsm.engines.build import merge_columns
from tidelake.lsm.files import RunFile
from tidelake.lsm.kernel import MergePlan, Piece, merge
from tidelake.lsm.keys import KeyCodec
from tidelake.lsm.sections import Section, partition_files
from tidelake.lsm.two_states import TwoStates
from tidelake.ops.context import TableContext
from tidelake.ops.read.append import read_data_file
from tidelake.ops.read.changes import KINDS, repeat_kind
from tidelake.ops.read.keyed import MergeRequest, Merging, keep_matching, merge_section, read_keyed_split
from tidelake.ops.scan.request import ReadRequest, Shape
from tidelake.ops.scan.split import Split, SplitMode
from tidelake.spec.data_file import DataFile
from tidelake.store.table_store import TableStore


def read_keyed_changes(context: TableContext, split: Split, request: ReadRequest) -> Iterator[pa.Table]:
    """The rows of one split with their kinds.

    Raises:
        FormatError: a file is missing or damaged.
        InvalidInputError: a version is one that the merge engine does not accept.
        UnsupportedError: sequence numbers of staged rows are requested, which have none yet.
    """
    store, merging = context.store, Merging(request.schema, context.options)
    match split.mode:
        case SplitMode.CHANGES:
            found = _read_unmerged(store, split, split.files, request)
        case SplitMode.DIFFERENCE:
            found = _read_difference(store, split, request, merging)
        case _ if split.staged and request.numbered:
            raise UnsupportedError(
                "staged rows have no sequence numbers yet",
                option="table-read.sequence-number.enabled",
                hint="compact the table first, or unset the option",
            )
        case _ if (request.shows_deletions or request.numbered) and not split.staged:
            found = _read_versions(store, split, request, merging)
        case _:
            state = replace(split, mode=SplitMode.STATE)
            kind = DELETE if split.mode is SplitMode.TAKEN_BACK else INSERT
            for rows in read_keyed_split(store, state, request.of_rows, merging):
                columns = [repeat_kind(kind, rows.num_rows), *rows.columns]
                yield pa.Table.from_arrays(columns, schema=request.arrow_schema)
            return
    taken_back = split.mode is SplitMode.TAKEN_BACK
    for rows in found:
        if rows.num_rows:
            yield _name_kinds(rows, request, taken_back=taken_back)


def read_additions(context: TableContext, split: Split, request: ReadRequest) -> Iterator[pa.Table]:
    """The rows that changes add or update, without their kinds: without kinds deletions cannot be shown.

    Raises:
        FormatError: a file is missing or damaged.
        InvalidInputError: a version is one that the merge engine does not accept.
    """
    wanted = replace(request, shape=Shape.CHANGES, limit=None)
    for rows in read_keyed_changes(context, split, wanted):
        kinds = rows.column(0)
        kept = rows.filter(pc.is_in(kinds, value_set=KINDS.take(pa.array([0, 2])))).drop_columns([rows.column_names[0]])
        if kept.num_rows:
            yield kept


def _name_kinds(rows: pa.Table, request: ReadRequest, *, taken_back: bool) -> pa.Table:
    """Rows with the names of their kinds in front."""
    kinds = repeat_kind(DELETE, rows.num_rows) if taken_back else KINDS.take(rows.column(KIND).combine_chunks())
    front = [kinds, *([rows.column(SEQUENCE)] if request.numbered else [])]
    return pa.Table.from_arrays([*front, *(rows.column(name) for name in request.columns)], schema=request.arrow_schema)


# ------------------------------------------------------------------------------------------------ without a merge


def _read_unmerged(
    store: TableStore, split: Split, files: Sequence[DataFile], request: ReadRequest
) -> Iterator[pa.Table]:
    """Every row of the files as it is stored."""
    fields = (*(request.schema.field(name) for name in request.columns), KIND_FIELD)
    wanted = replace(request.of_rows, stored=(*fields, SEQUENCE_FIELD) if request.numbered else fields)
    for file in files:
        for batch in read_data_file(store, split, file, wanted):
            yield pa.Table.from_batches([batch])


# ------------------------------------------------------------------------------------------------ with deletions


def _read_versions(store: TableStore, split: Split, request: ReadRequest, merging: Merging) -> Iterator[pa.Table]:
    """The merged rows of a state with their kinds and sequence numbers."""
    if split.raw_convertible:
        yield from _read_unmerged(store, split, split.files, request)
        return
    versions = MergeRequest(
        columns=merge_columns(merging.schema, merging.options, request.looks_at),
        where=_restrict_to_keys(request.where, merging),
        drop_retracts=not request.shows_deletions,
        whole=True,
        output=(*request.looks_at, SEQUENCE, KIND),
    )
    for section in partition_files(merging.files(split.files)):
        for rows in merge_section(store, split, section, merging, versions):
            yield keep_matching(request.where, rows)


def _restrict_to_keys(where: Predicate | None, merging: Merging) -> Predicate | None:
    """The part of a condition that drops all versions of a key alike."""
    if where is None:
        return None
    keys = restrict(where, frozenset(merging.schema.trimmed_primary_keys))
    return keys if keys.columns() else None


# ------------------------------------------------------------------------------------------------ two states


def _read_difference(store: TableStore, split: Split, request: ReadRequest, merging: Merging) -> Iterator[pa.Table]:
    """The difference between the state before and the state after, among rows that the condition keeps.

    All columns are compared, whichever are wanted. Sections whose files both states have on the same levels hold the
    same rows in both and are not read.
    """
    earlier = replace(split, files=split.before, vectors=split.before_vectors, before=(), before_vectors={})
    both = {_place(file): file for file in merging.files((*split.before, *split.files))}
    common = {place[:2] for place in split.places & split.places_before}
    changed = [
        section
        for section in partition_files(both.values())
        if not all(_place(file) in common for file in section.files)
    ]
    keys = merging.schema.trimmed_primary_keys
    plan = MergePlan(
        KeyCodec(keys, merging.key_types),
        TwoStates(tuple(merging.schema.fields)),
        by_age=True,
        output=(*request.columns, *((SEQUENCE,) if request.numbered else ()), KIND),
    )
    sides = [
        _read_side(store, state, changed, request, merging, kind)
        for state, kind in ((earlier, DELETE), (split, INSERT))
    ]
    yield from merge(sides, plan)


def _place(file: RunFile) -> tuple[str, int]:
    return file.name, file.level


def _read_side(
    store: TableStore,
    split: Split,
    sections: Sequence[Section],
    request: ReadRequest,
    merging: Merging,
    kind: int,
) -> Iterator[Piece]:
    """The merged rows of one state, sorted by key."""
    names = merging.schema.names
    versions = MergeRequest(
        columns=names,
        where=_restrict_to_keys(request.where, merging),
        ordered=True,
        drop_retracts=True,
        whole=request.numbered,
        output=(*names, SEQUENCE) if request.numbered else names,
    )
    mine = {(file.file_name, file.level) for file in split.files}
    for whole in sections:
        for section in partition_files(file for file in whole.files if _place(file) in mine):
            for rows in merge_section(store, split, section, merging, versions):
                kept = keep_matching(request.where, rows)
                kinds = pa.array(np.full(kept.num_rows, kind, np.int8))
                yield Piece(kept.append_column(KIND, kinds), age=int(kind == INSERT))
