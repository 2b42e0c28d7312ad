"""MERGE: rows of a source into a table, for every kind of table, as one commit.

The source is in memory; the target is read a piece at a time, only the columns that the clauses ask for, and only the
files that can hold a partner of a source row. What comes of it is written in one of these ways:

* `UPSERT`: a primary-key table whose rows get the same values whether their key is there or not. Nothing is read.
* `VERSIONS`: a primary-key table where what is written last wins. Changed rows are new versions, streams see them.
* `REWRITE`: a primary-key table where it does not. Sections that hold a changed row are merged and written anew.
* `FILES`: a table without a key. Changed rows are taken out of their files, and new ones are added.

Invariant: what is published was computed from the newest state of the rows it changes, and no row is inserted whose
partner was committed meanwhile. A commit of others that touches either is found before publishing, and the merge is
planned again on top of it, a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.expr.node import Scalar
from tidelake.expr.scalar import ColumnRef
from tidelake.expr.sides import TARGET, full_name
from tidelake.expr.tree import ALWAYS, Predicate
from tidelake.files.read import ROW_NUMBER
from tidelake.notebook import html_card
from tidelake.ops.commit.committer import Committer, Guard
from tidelake.ops.commit.messages import CommitMessage, CommitResult
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.read.rows import read_rows
from tidelake.ops.scan.batch import BatchRead, plan_batch
from tidelake.ops.scan.plan import delta_manifests, read_changes
from tidelake.ops.scan.planner import Plan, files_that_may_match
from tidelake.ops.scan.split import Split, bucket_splits
from tidelake.ops.write.kinds import KINDS
from tidelake.ops.write.merge_join import Columns, Hits, Matcher, joined_hits, refuse_repeated_keys
from tidelake.ops.write.merge_rules import Action, Merge, Rule, When, blind_values, described
from tidelake.ops.write.rowlevel import CopiedFiles, rows_changed
from tidelake.ops.write.verbs import Target, commit_rows, made_visible, plan_rewrite, planned_again
from tidelake.spec.data_file import DataFile
from tidelake.spec.manifest import ADD
from tidelake.spec.snapshot import CommitKind, Snapshot

_PIECE_ROWS: Final = 1 << 16
"""Target rows that are looked up together at least; more, if the source has more keys."""


class Way(Enum):
    """How a merge is carried out."""

    UPSERT = "upsert without a read"
    VERSIONS = "new versions of rows"
    REWRITE = "copy on write of sorted runs"
    FILES = "copy on write of files"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """What a merge did to rows, and its commit.

    `updated` and `inserted` are None where nobody looked which of the two a row was; then `written` counts both.
    """

    commit: CommitResult
    updated: int | None = 0
    deleted: int = 0
    inserted: int | None = 0
    written: int = 0

    @property
    def snapshot_ids(self) -> tuple[int, ...]:
        """The snapshots of the merge; none if there was nothing to do."""
        return self.commit.snapshot_ids

    @property
    def rows(self) -> int:
        """How many rows were updated, deleted or inserted."""
        return self.deleted + self.written

    def _repr_html_(self) -> str:
        ids = ", ".join(map(str, self.snapshot_ids))
        known = [("updated", self.updated), ("deleted", self.deleted), ("inserted", self.inserted)]
        facts = [(name, f"{count:,}") for name, count in known if count is not None]
        if self.updated is None:
            facts.append(("updated or inserted", f"{self.written:,}"))
        return html_card(f"snapshot {ids}" if ids else "nothing to do", facts if ids else [])


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """What a merge would do: how, and which part of the table it looks at."""

    way: Way
    clauses: tuple[str, ...]
    on: str
    source_rows: int
    columns: tuple[str, ...] = ()
    """The columns that are read of every row that is looked at."""
    files: int = 0
    bytes: int = 0
    snapshot_id: int | None = None

    def __str__(self) -> str:
        read = f"{', '.join(self.columns)} of {self.files} files, {self.bytes:,} bytes" if self.files else "nothing"
        lines = [
            f"merge of {self.source_rows:,} rows: {self.way.value}",
            f"  on      {self.on}",
            *(f"  {clause}" for clause in self.clauses),
            f"  reads   {read}",
        ]
        return "\n".join(lines)


# ------------------------------------------------------------------------------------------------ which way


def plan_merge(target: Target, source: pa.Table, merge: Merge) -> MergePlan:
    """How a merge would be carried out on the newest snapshot; nothing is written.

    Raises:
        InvalidInputError: a key of the source cannot be computed.
        UnsupportedError: the table cannot be read.
    """
    way = choose_way(target, source, merge)
    on, *clauses = described(merge)
    plan = MergePlan(way=way, clauses=tuple(clauses), on=on, source_rows=source.num_rows)
    if way is Way.UPSERT:
        return plan
    found = _planned(target, _reach(target, Matcher(source, merge)))
    columns = _columns(target, merge) if way is Way.VERSIONS else _deciding(target, merge)
    files = sum(len(split.files) for split in found.splits)
    at = found.snapshot.id if found.snapshot else None
    return replace(plan, columns=columns, files=files, bytes=found.size, snapshot_id=at)


def choose_way(target: Target, source: pa.Table, merge: Merge) -> Way:
    """How a merge is carried out, as far as the clauses and the source alone tell."""
    if not target.is_keyed:
        return Way.FILES
    from tidelake.ops.write.keyed_verbs import deletions_win, versions_win

    if _upsert(target, source, merge) is not None:
        return Way.UPSERT
    options = target.options
    updates_lose = merge.does(Action.UPDATE) and not versions_win(options, merge.assigned)
    if updates_lose or (merge.does(Action.DELETE) and not deletions_win(options)):
        return Way.REWRITE
    return Way.VERSIONS


def _upsert(target: Target, source: pa.Table, merge: Merge) -> Mapping[str, Scalar] | None:
    """What to write for every source row where nothing has to be known about the target."""
    from tidelake.ops.write.keyed_verbs import keeps_the_first, versions_win, watched

    schema, options = target.store.schema, target.options
    keys = schema.primary_keys
    if keeps_the_first(options):
        return _first_only(merge, keys)
    if not versions_win(options, merge.assigned):
        return None
    watch = watched(options, "+U", merge.assigned)
    # Where nulls are passed over, a column that is not set keeps what it has.
    values = blind_values(merge, keys, () if watch else schema.names)
    if values is None:
        return None
    for name in watch:
        value = values[name]
        if not isinstance(value, ColumnRef) or source.column(value.column.partition(".")[2]).null_count:
            return None
    return values


def _first_only(merge: Merge, keys: Sequence[str]) -> Mapping[str, Scalar] | None:
    """A table that keeps the first row of a key does by itself what a merge that only inserts asks for."""
    rule = merge.rules[0]
    plain = len(merge.rules) == 1 and rule.when is When.NOT_MATCHED and rule.condition is None
    exact = merge.join.rest is None and len(merge.join.equals) == len(keys) and merge.covers(keys)
    same = all(rule.values.get(key) == merge.join.partner(key) for key in keys)
    return rule.values if plain and exact and same else None


# ------------------------------------------------------------------------------------------------ acting


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A merge that is written and not yet committed."""

    messages: tuple[CommitMessage, ...]
    counts: Mapping[Action, int]
    guard: Guard | None = None
    hidden: bool = False
    """Whether new rows wait for a compaction before they are seen."""


def run_merge(target: Target, committer: Committer, source: pa.Table, merge: Merge) -> MergeResult:
    """Merge a source into a table.

    Raises:
        InvalidInputError: a value does not fit, or several source rows change one row; nothing is left behind.
        CommitConflictError: others changed the same rows or files first, every time.
        CommitUnknownError: the storage did not tell whether the commit is there.
    """
    way = choose_way(target, source, merge)
    if way is Way.UPSERT:
        return _run_upsert(target, committer, source, merge)

    def attempt() -> MergeResult:
        prepared = _prepared(target, source, merge, way)
        done = commit_rows(committer, prepared.messages, "MERGE", prepared.guard)
        if target.is_keyed:
            done = made_visible(target, committer, done, waiting=prepared.hidden)
        counts = prepared.counts
        updated, inserted = counts.get(Action.UPDATE, 0), counts.get(Action.INSERT, 0)
        return MergeResult(
            commit=done,
            updated=updated,
            deleted=counts.get(Action.DELETE, 0),
            inserted=inserted,
            written=updated + inserted,
        )

    return planned_again(attempt)


def _prepared(target: Target, source: pa.Table, merge: Merge, way: Way) -> _Prepared:
    matcher = Matcher(source, merge)
    if way is Way.FILES:
        return _FileMerge(target, matcher).prepare()
    found = _versions(target, matcher) if way is Way.VERSIONS else None
    return _rewritten(target, matcher) if found is None else found


def _run_upsert(target: Target, committer: Committer, source: pa.Table, merge: Merge) -> MergeResult:
    values = _upsert(target, source, merge)
    assert values is not None
    schema = target.store.schema
    rows = Matcher(source, merge).inserted(values, schema, None)
    refuse_repeated_keys(rows, schema.primary_keys)
    writer = target.writer()
    try:
        writer.write(rows)
        messages = tuple(writer.prepare())
    except BaseException:
        writer.abort()
        raise
    done = made_visible(target, committer, commit_rows(committer, messages, "MERGE"))
    return MergeResult(commit=done, updated=None, inserted=None, written=rows.num_rows)


# ------------------------------------------------------------------------------------------------ reading


def _reach(target: Target, matcher: Matcher) -> Predicate | None:
    """What target rows that matter fulfil; None if all of them matter."""
    return None if matcher.merge.looks_at_all else matcher.reach(target.store.schema)


def _planned(target: Target, where: Predicate | None) -> Plan:
    read = BatchRead(schema=target.store.schema, paths=target.paths, where=where, options=target.options)
    return plan_batch(target.store, read)


def _deciding(target: Target, merge: Merge) -> tuple[str, ...]:
    """The columns that say which rule a row falls under; never none, since rows have to be counted."""
    names = target.store.schema.names
    return tuple(name for name in names if name in merge.decides) or names[:1]


def _columns(target: Target, merge: Merge) -> tuple[str, ...]:
    """The columns that changed rows are made from."""
    return merge.needs(target.store.schema) or target.store.schema.names[:1]


def _pieces(batches: Iterable[pa.RecordBatch], least: int) -> Iterator[pa.Table]:
    """Batches gathered until a look-up in the source is worth it."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= max(_PIECE_ROWS, least):
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, count = [], 0
    if count:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _named(rows: pa.Table | pa.RecordBatch) -> Columns:
    """The columns of target rows by their full names."""
    return {
        full_name(TARGET, name): column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }


def _taken(columns: Columns, places: np.ndarray) -> Columns:
    return {name: column.take(pa.array(places)) for name, column in columns.items()}


# ------------------------------------------------------------------------------------------------ primary-key tables


def _versions(target: Target, matcher: Matcher) -> _Prepared | None:
    """Changed rows written again; None, and nothing is left behind, if one would lose against what it replaces."""
    from tidelake.ops.write.keyed_verbs import watched

    schema, merge = target.store.schema, matcher.merge
    plan = _planned(target, _reach(target, matcher))
    request = ReadRequest(schema=schema, columns=_columns(target, merge), where=plan.where)
    watch = {
        Action.UPDATE: watched(target.options, "+U", merge.assigned),
        Action.DELETE: watched(target.options, "-D"),
    }
    counts: dict[Action, int] = {}
    writer = target.writer()
    try:
        for rows in _pieces(read_rows(target.store, plan.splits, request, target.options), matcher.count):
            columns = _named(rows)
            hits = matcher.hits(columns, rows.num_rows)
            for rule, changed in _changed(target, matcher, columns, hits):
                if any(changed.column(name).null_count for name in watch[rule.action]):
                    writer.abort()
                    return None
                kind = KINDS["+U" if rule.action is Action.UPDATE else "-D"]
                writer.write(changed, pa.repeat(pa.scalar(kind, pa.int8()), changed.num_rows))
                counts[rule.action] = counts.get(rule.action, 0) + changed.num_rows
        counts[Action.INSERT] = _insert(target, matcher, writer.write)
        messages = tuple(writer.prepare())
    except BaseException:
        writer.abort()
        raise
    return _Prepared(messages, counts, _keyed_guard(target, matcher, plan.snapshot))


def _changed(target: Target, matcher: Matcher, columns: Columns, hits: Hits) -> Iterator[tuple[Rule, pa.RecordBatch]]:
    """The rows that rules update, as they will be, and those that rules delete, as they are."""
    schema = target.store.schema
    for number, rule in enumerate(matcher.merge.rules):
        own = hits.of(number)
        if len(own):
            yield rule, matcher.updated(rule, schema, _taken(columns, own.rows), own)


def _insert(target: Target, matcher: Matcher, write: Callable[[pa.RecordBatch], None]) -> int:
    """Write the rows that source rows without a partner become."""
    schema = target.store.schema
    rows = [matcher.inserted(rule.values, schema, places) for rule, places in matcher.unmet()]
    if target.is_keyed and rows:
        refuse_repeated_keys(pa.Table.from_batches(rows).combine_chunks().to_batches()[0], schema.primary_keys)
    for batch in rows:
        write(batch)
    return sum(batch.num_rows for batch in rows)


@dataclass(slots=True)
class _Edit:
    """What a merge does to the rows of a section that is written anew."""

    target: Target
    matcher: Matcher
    counts: dict[Action, int] = field(default_factory=dict)

    @property
    def where(self) -> Predicate:
        """What rows that may change fulfil."""
        found = _reach(self.target, self.matcher)
        return ALWAYS if found is None else found

    @property
    def columns(self) -> tuple[str, ...]:
        """What says which rule a row falls under."""
        return _deciding(self.target, self.matcher.merge)

    def count(self, rows: pa.Table) -> int:
        """How many rows change; each is counted with what happens to it."""
        hits = self.matcher.hits(_named(rows), rows.num_rows)
        for number, rule in enumerate(self.matcher.merge.rules):
            self.counts[rule.action] = self.counts.get(rule.action, 0) + len(hits.of(number))
        return len(hits)

    def changed(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        """The rows with new ones in the place of those that are updated, and without those that are deleted."""
        from tidelake.ops.write.keyed_verbs import put_in_place

        columns = _named(rows.select(list(names)))
        hits = self.matcher.hits(columns, rows.num_rows)
        stays = np.ones(rows.num_rows, dtype=bool)
        for number, rule in enumerate(self.matcher.merge.rules):
            own = hits.of(number)
            if not len(own):
                continue
            if rule.action is Action.DELETE:
                stays[own.rows] = False
            else:
                new = self.matcher.updated(rule, self.target.store.schema, _taken(columns, own.rows), own)
                rows = put_in_place(rows, own.rows, new)
        return rows if stays.all() else rows.filter(pa.array(stays))


def _rewritten(target: Target, matcher: Matcher) -> _Prepared:
    """Sections with changed rows written anew; new rows beside them."""
    from tidelake.ops.write.keyed import KeyedTableWriter
    from tidelake.ops.write.keyed_verbs import CopyOnWrite

    matcher.met[:] = False
    edit = _Edit(target, matcher)
    copied = CopyOnWrite(target.store, target.paths, target.options, edit, target.thin)
    found = copied.prepare()
    # Sections that are replaced here must not be compacted by who writes the new rows.
    writer = KeyedTableWriter(target.store, target.paths, {**target.options, "write-only": "true"})
    try:
        inserted = _insert(target, matcher, writer.write)
        messages = (*found.messages, *writer.prepare())
    except BaseException:
        writer.abort()
        copied.abort()
        raise
    snapshot = target.store.snapshots.find(found.snapshot_id) if found.snapshot_id else None
    guard = _keyed_guard(target, matcher, snapshot, found.snapshot_id)
    return _Prepared(messages, {**edit.counts, Action.INSERT: inserted}, guard, hidden=bool(inserted))


def _keyed_guard(target: Target, matcher: Matcher, snapshot: Snapshot | None, snapshot_id: int | None = None) -> Guard:
    from tidelake.ops.write.keyed_verbs import Unchanged, keeps_whole_rows

    at = snapshot.id if snapshot else snapshot_id or 0
    unchanged = Unchanged(target.store, target.paths, target.options, at)
    if not matcher.merge.does(Action.INSERT) or matcher.merge.covers(target.store.schema.primary_keys):
        return unchanged
    partners = NewPartners(target, matcher, at, keeps_whole_rows(target.options))

    def guard(latest: Snapshot | None, messages: tuple[CommitMessage, ...]) -> None:
        unchanged(latest, messages)
        partners(latest, messages)

    return guard


# ------------------------------------------------------------------------------------------------ append tables


@dataclass(slots=True)
class _FileMerge:
    """A merge into a table without a key: rows are taken out of files, and new ones are added."""

    target: Target
    matcher: Matcher
    counts: dict[Action, int] = field(default_factory=dict)

    def prepare(self) -> _Prepared:
        """Write everything but the commit."""
        target, matcher = self.target, self.matcher
        snapshot = target.store.snapshots.latest()
        where = _reach(target, matcher)
        splits = plan_rewrite(target, where, snapshot)
        copied = CopiedFiles(target.store, target.paths, target.files)
        writer = target.writer()
        try:
            for split, file, hits in self._found(splits, where):
                self._take(copied, writer.write, split, file, hits)
            self.counts[Action.INSERT] = _insert(target, matcher, writer.write)
            added = writer.prepare()
        except BaseException:
            writer.abort()
            copied.abort()
            raise
        guard = NewPartners(target, matcher, snapshot.id if snapshot else 0)
        inserts = matcher.merge.does(Action.INSERT)
        return _Prepared((*copied.messages, *added), self.counts, guard if inserts else None)

    def _take(
        self,
        copied: CopiedFiles,
        write: Callable[[pa.RecordBatch], None],
        split: Split,
        file: DataFile,
        hits: Hits,
    ) -> None:
        """Take changed rows out of a file, and write what becomes of them."""
        matcher, schema = self.matcher, self.target.store.schema
        for number, rule in enumerate(matcher.merge.rules):
            self.counts[rule.action] = self.counts.get(rule.action, 0) + len(hits.of(number))

        def taken(rows: pa.RecordBatch, first: int) -> None:
            here = hits.at(np.arange(first, first + rows.num_rows))
            columns = _named(rows)
            for number, rule in enumerate(matcher.merge.rules):
                places = np.flatnonzero(here.rules == number)
                if rule.action is Action.UPDATE and len(places):
                    write(matcher.updated(rule, schema, _taken(columns, places), here.at(places)))

        copied.take(split, file, hits.rows, taken if matcher.merge.does(Action.UPDATE) else None)

    def _found(self, splits: Sequence[Split], where: Predicate | None) -> Iterator[tuple[Split, DataFile, Hits]]:
        """Files with rows that change, one after the other; hits hold positions in the file."""
        files = [(split, file) for split in splits for file in split.files]
        waiting: list[tuple[int, Hits]] = []
        for rows in _pieces(self._narrow(files, where), self.matcher.count):
            numbers = rows.column(_FILE).to_numpy()
            positions = rows.column(ROW_NUMBER).to_numpy()
            hits = self.matcher.hits(_named(rows), rows.num_rows)
            owners = numbers[hits.rows]
            for owner in np.unique(owners).tolist():
                here = hits.at(np.flatnonzero(owners == owner))
                waiting.append((owner, replace(here, rows=positions[here.rows])))
            # The last file may go on in the next piece.
            yield from self._whole(files, waiting, int(numbers[-1]))
            waiting = [each for each in waiting if each[0] == numbers[-1]]
        yield from self._whole(files, waiting, len(files))

    def _whole(
        self, files: Sequence[tuple[Split, DataFile]], waiting: Sequence[tuple[int, Hits]], until: int
    ) -> Iterator[tuple[Split, DataFile, Hits]]:
        for owner in sorted({each for each, _ in waiting if each < until}):
            yield (*files[owner], joined_hits([hits for each, hits in waiting if each == owner]))

    def _narrow(self, files: Sequence[tuple[Split, DataFile]], where: Predicate | None) -> Iterator[pa.RecordBatch]:
        """What decides about rows, with the number of their file and their place in it."""
        store, merge = self.target.store, self.matcher.merge
        request = ReadRequest(schema=store.schema, columns=_deciding(self.target, merge), where=where)
        for number, (split, file) in enumerate(files):
            for batch in read_data_file(store, split, file, request, row_numbers=True):
                if batch.num_rows:
                    owner = pa.array(np.full(batch.num_rows, number, np.int64))
                    yield batch.append_column(_FILE, owner)


_FILE: Final = "_FILE"


@dataclass(slots=True)
class NewPartners:
    """Refuses to publish rows for which others have committed a partner since the target was read.

    Whatever they add is looked at, whoever they are: of a job of another engine nobody can tell whether it read first.
    """

    target: Target
    matcher: Matcher
    snapshot_id: int
    whole_rows: bool = True
    """Whether a file holds rows as they are read; if it holds parts of them, every commit counts."""

    def __call__(self, latest: Snapshot | None, messages: tuple[CommitMessage, ...]) -> None:
        """Look at the commits since; what is to be published does not matter.

        Raises:
            CommitConflictError: one of them brought a partner, or has expired so that nobody can tell.
        """
        del messages
        store = self.target.store
        for number in range(self.snapshot_id + 1, latest.id + 1 if latest else 0):
            snapshot = store.snapshots.find(number)
            if snapshot is None:
                raise rows_changed(store, number)
            if snapshot.commit_kind in (CommitKind.APPEND, CommitKind.OVERWRITE) and self._brings(snapshot):
                raise rows_changed(store, number)
            self.snapshot_id = number  # seen, should the commit be tried again

    def _brings(self, snapshot: Snapshot) -> bool:
        store, schema = self.target.store, self.target.store.schema
        entries = read_changes(store.manifests, delta_manifests(store.manifests, snapshot))
        entries = entries.filter(pc.equal(entries.column("kind"), ADD))
        if not self.whole_rows:
            return bool(entries.num_rows)
        where = self.matcher.reach(schema)
        if where is not None and entries.num_rows:
            entries = entries.filter(pa.array(files_that_may_match(store, entries, where, schema)))
        columns = tuple(name for name in schema.names if name in self.matcher.merge.join.columns) or schema.names[:1]
        request = ReadRequest(schema=schema, columns=columns, where=where)
        for split in bucket_splits(entries, snapshot.id, self.target.paths):
            for file in split.files:
                for batch in read_data_file(store, split, file, request):
                    if self.matcher.meets(_named(batch), batch.num_rows):
                        return True
        return False


__all__ = ["MergePlan", "MergeResult", "Way", "choose_way", "plan_merge", "run_merge"]
