"""What tasks do for a merge: find partners and say what becomes of rows, write that, and take old rows out of files.

Rows of both sides whose keys are equal are sent to one task, those of the source first. A task holds its part of the
source in memory and sees the target a piece at a time, as a merge in process does with the whole of it; the work is
done by the same `Matcher`, so that every clause and every refusal is the same.

Invariant: nothing here knows the table's newest state. Every task works on the files that the driver planned.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, ByteType, IntegerType, LongType, StringType, StructField, StructType

from tidelake.engines.spark.batches import KIND, fitted_rows, joined
from tidelake.engines.spark.failures import CarriedError, carrying, outcome
from tidelake.engines.spark.remote import TableRef
from tidelake.engines.spark.types import as_nullable, from_spark_column, spark_arrow, struct_of, to_spark_batch
from tidelake.engines.spark.write import _Write
from tidelake.errors import InternalError, InvalidInputError, StorageError, TidelakeError
from tidelake.expr.evaluate import evaluate_scalar
from tidelake.expr.node import Scalar
from tidelake.expr.sides import SOURCE, TARGET, column_of, full_name
from tidelake.index.deletion_vectors import bitmap_of
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.scan.split import Split
from tidelake.ops.write.keyed_verbs import CopyOnWrite, LiveBuckets, watched
from tidelake.ops.write.kinds import KINDS
from tidelake.ops.write.merge_join import Columns, Ints, Matcher, key_hashes, refuse_repeated_keys
from tidelake.ops.write.merge_keyed import MergeEdit, by_rule, is_older
from tidelake.ops.write.merge_parts import named, pieces, taken_at
from tidelake.ops.write.merge_rules import Action, Clause, Equal, Merge, Rule, When, resolve_merge
from tidelake.ops.write.rowlevel import CopiedFiles
from tidelake.ops.write.verbs import Target
from tidelake.query import HIDDEN_COLUMNS
from tidelake.spec.arrow_types import row_to_arrow
from tidelake.spec.binary_row import EMPTY_ROW, encode_rows
from tidelake.spec.data_file import DataFile
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import Snapshot
from tidelake.spec.types import INT, Field, with_nullable

_, BUCKET, FILE, POSITION = HIDDEN_COLUMNS
TAG: Final = "__tidelake_tag"
"""The column that says of which side a row is: 0 for the source, which comes first, 1 for the target."""
OF_SOURCE, OF_TARGET = "__tidelake_source", "__tidelake_target"
ERROR: Final = "__tidelake_error"
"""The column in which an error is sent on to who writes, where he has begun: he removes what he wrote."""
LOSES: Final = "version-loses"
"""Code of the error of a new version that would lose against the row that it replaces."""
KIND_OF: Final = {Action.UPDATE: KINDS["+U"], Action.DELETE: KINDS["-D"], Action.INSERT: KINDS["+I"]}
_PLACES: Final = {FILE: StringType(), POSITION: LongType(), BUCKET: IntegerType()}
_PLACE_TYPES: Final = {FILE: pa.string(), POSITION: pa.int64(), BUCKET: pa.int32()}

Batches = Iterator[pa.RecordBatch]


def canonical(columns: Sequence[pa.Array], fields: Sequence[Field]) -> list[pa.Array]:
    """Columns as Spark hands them out, in the types that expressions know."""
    return [from_spark_column(column, each.type) for column, each in zip(columns, fields, strict=True)]


@dataclass(frozen=True, slots=True)
class Dealt:
    """Says which task looks for the partners of rows of one side: equal keys meet in one."""

    equals: tuple[Equal, ...]
    side: str
    fields: tuple[Field, ...]
    """The columns that the keys are computed from."""
    tasks: int

    @classmethod
    def of(cls, equals: Sequence[Equal], side: str, fields: Iterable[Field], tasks: int) -> Dealt:
        """For one side with these columns, of which it takes those that it needs."""
        looked_at = {column_of(name) for each in equals for name in _key(each, side).columns()}
        return cls(tuple(equals), side, tuple(each for each in fields if each.name in looked_at), tasks)

    def run(self, *columns: pa.Array) -> pa.Array:
        """The number of the task, for each row."""
        names = [full_name(self.side, each.name) for each in self.fields]
        given = dict(zip(names, canonical(columns, self.fields), strict=True))
        count = len(columns[0])
        with carrying():
            keys = [evaluate_scalar(_key(each, self.side), given, count) for each in self.equals]
            hashes = key_hashes(self.equals, keys)
        return pa.array(np.mod(hashes, self.tasks), pa.int32())


def _key(equal: Equal, side: str) -> Scalar:
    return equal.target if side == TARGET else equal.source


# ------------------------------------------------------------------------------------------------ finding partners


@dataclass(frozen=True, slots=True)
class Match:
    """Finds the pairs among the rows that reach a task; what comes out are rows to write and places to clear."""

    schema: Schema
    options: Mapping[str, str]
    merge: Merge
    source: tuple[Field, ...]
    target: tuple[Field, ...]
    places: tuple[str, ...] = ()
    """What is told of the place where a changed row lies."""
    order: tuple[str, ...] = ()
    """Columns that say which version is newer, where versions have to win."""
    versions: bool = False

    @property
    def struct(self) -> StructType:
        """What comes out: rows of the table with their kinds, and where the row lies that they replace."""
        fields = as_nullable(struct_of(self.schema.fields)).fields
        return StructType(
            [
                *fields,
                StructField(KIND, ByteType(), nullable=False),
                *(StructField(name, _PLACES[name]) for name in self.places),
                *([StructField(ERROR, BinaryType())] if self.tells else []),
            ]
        )

    @property
    def tells(self) -> bool:
        """Whether rows are written while others are still looked for, so that an error must not be raised."""
        return not self.schema.primary_keys

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Rows to write, each with its kind."""
        batches = iter(batches)
        try:
            yield from self._found(batches)
        except TidelakeError as error:
            if not self.tells or isinstance(error, StorageError):
                raise CarriedError(error) from error
            failed = self._out(None, Action.INSERT, 1)
            place = failed.schema.get_field_index(ERROR)
            yield failed.set_column(place, ERROR, pa.array([pickle.dumps(error)], pa.binary()))
            for _ in batches:  # or Spark waits for ever to hand them over
                pass

    def _found(self, batches: Batches) -> Batches:
        source, target = self._sides(batches)
        matcher = Matcher(source, self.merge)
        for rows in pieces(target, matcher.count):
            columns = named(rows)
            hits = matcher.hits(columns, rows.num_rows)
            for rule, own in by_rule(self.merge, hits):
                yield self._changed(matcher, rule, taken_at(columns, own.rows), own)
        new = [matcher.inserted(rule.values, self.schema, places) for rule, places in matcher.unmet()]
        if self.schema.primary_keys and new:
            refuse_repeated_keys(pa.concat_batches(new), self.schema.primary_keys)
        for rows in new:
            yield self._out(rows, Action.INSERT, rows.num_rows)

    def _sides(self, batches: Batches) -> tuple[pa.Table, Batches]:
        """The source, whole, and the target as it comes."""
        found: list[pa.RecordBatch] = []
        rest: list[pa.RecordBatch] = []
        for batch in batches:
            count = int(np.searchsorted(batch.column(TAG).to_numpy(), 1))
            if count:
                found.append(_unpacked(batch.slice(0, count).column(OF_SOURCE), self.source))
            if count < batch.num_rows:
                rest.append(batch.slice(count))
                break
        source = pa.Table.from_batches(found, row_to_arrow(self.source))
        return source, map(self._target, chain(rest, batches))

    def _target(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.column(OF_TARGET).flatten()
        columns = canonical(rows[: len(self.target)], self.target)
        return pa.RecordBatch.from_arrays(
            [*columns, *rows[len(self.target) :]], names=[*(each.name for each in self.target), *self.places]
        )

    def _changed(self, matcher: Matcher, rule: Rule, old: Columns, own: Any) -> pa.RecordBatch:
        if rule.action is Action.DELETE and not self.schema.primary_keys:
            return self._out(None, rule.action, len(own), old)
        new = matcher.updated(rule, self.schema, old, own)
        if self.versions:
            self._refuse_losing(rule, old, new)
        return self._out(new, rule.action, len(own), old)

    def _refuse_losing(self, rule: Rule, old: Columns, new: pa.RecordBatch) -> None:
        update = rule.action is Action.UPDATE
        watch = watched(self.options, "+U", self.merge.assigned) if update else watched(self.options, "-D")
        older = update and is_older(self.options, self.order, old, new)
        if older or any(new.column(name).null_count for name in watch):
            raise InvalidInputError("a new version would lose against the row that it replaces", code=LOSES)

    def _out(
        self, rows: pa.RecordBatch | None, action: Action, count: int, old: Columns | None = None
    ) -> pa.RecordBatch:
        fields = self.schema.fields
        if rows is None:
            columns = [pa.nulls(count, spark_arrow(each.type)) for each in fields]
        else:
            columns = to_spark_batch(rows, fields).columns
        kinds = pa.repeat(pa.scalar(KIND_OF[action], pa.int8()), count)
        where = [
            pa.nulls(count, _PLACE_TYPES[name])
            if old is None
            else old[full_name(TARGET, name)].cast(_PLACE_TYPES[name])
            for name in self.places
        ]
        names = [*(each.name for each in fields), KIND, *self.places]
        found = pa.RecordBatch.from_arrays([*columns, kinds, *where], names=names)
        return found.append_column(ERROR, pa.nulls(count, pa.binary())) if self.tells else found


def _unpacked(rows: pa.StructArray, fields: Sequence[Field]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(canonical(rows.flatten(), fields), schema=row_to_arrow(fields))


@dataclass(frozen=True, slots=True)
class Inserts:
    """The rows that source rows become where the target does not matter."""

    schema: Schema
    merge: Merge
    source: tuple[Field, ...]
    values: Mapping[str, Scalar]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Rows of the table."""
        with carrying():
            for batch in joined(batches):
                rows = pa.RecordBatch.from_arrays(
                    canonical(batch.columns, self.source), schema=row_to_arrow(self.source)
                )
                matcher = Matcher(pa.Table.from_batches([rows]), self.merge)
                yield to_spark_batch(matcher.inserted(self.values, self.schema, None), self.schema.fields)


@dataclass(frozen=True, slots=True)
class Listed:
    """Lists the values of the source that partition columns of the target are equal to."""

    keys: tuple[tuple[Scalar, pa.DataType], ...]
    """What each column is equal to; whole numbers are listed in 64 bits."""
    source: tuple[Field, ...]

    @property
    def struct(self) -> StructType:
        """A column for each, by its number."""
        return StructType(
            [StructField(str(number), from_arrow_type(dtype)) for number, (_, dtype) in enumerate(self.keys)]
        )

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Those of each part of the source, once."""
        names = [full_name(SOURCE, each.name) for each in self.source]
        with carrying():
            for batch in joined(batches):
                given = dict(zip(names, canonical(batch.columns, self.source), strict=True))
                found = {
                    str(number): evaluate_scalar(key, given, batch.num_rows).cast(dtype)
                    for number, (key, dtype) in enumerate(self.keys)
                }
                once = pa.table(found).group_by(list(found), use_threads=False).aggregate([])
                yield from once.select(list(found)).to_batches()


@dataclass(frozen=True, slots=True)
class Meets:
    """Tells whether target rows that others brought meanwhile have a partner in the source."""

    merge: Merge
    source: tuple[Field, ...]
    rows: bytes
    """The target rows, as an Arrow stream, with the names that the condition knows."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """True for each part of the source that has one."""
        with pa.ipc.open_stream(self.rows) as stream:
            target = stream.read_all().combine_chunks()
        columns = {name: target.column(name).combine_chunks() for name in target.schema.names}
        for batch in joined(batches):
            rows = pa.RecordBatch.from_arrays(canonical(batch.columns, self.source), schema=row_to_arrow(self.source))
            met = Matcher(pa.Table.from_batches([rows]), self.merge).meets(columns, target.num_rows)
            yield pa.RecordBatch.from_pydict({"met": pa.array([met])})


# ------------------------------------------------------------------------------------------------ writing


@dataclass(slots=True)
class Taken:
    """What tasks did that write a merge: new files, and rows to be taken out of others."""

    messages: tuple[CommitMessage, ...] = ()
    kinds: tuple[int, ...] = (0, 0, 0, 0)
    """How many rows of each kind there were."""
    positions: dict[str, Any] = field(default_factory=dict)
    """Bitmaps of positions by the addresses of the files."""
    marks: tuple[int, ...] = ()
    """Who assigned dynamic buckets."""

    def add(self, other: Taken) -> None:
        """Count in what another task did."""
        self.messages += other.messages
        self.kinds = tuple(a + b for a, b in zip(self.kinds, other.kinds, strict=True))
        self.marks += other.marks
        for name, found in other.positions.items():
            known = self.positions.get(name)
            self.positions[name] = found if known is None else known | found


def _counted(kinds: pa.Array) -> tuple[int, ...]:
    return tuple(np.bincount(kinds.to_numpy(), minlength=len(KINDS)).tolist())


@dataclass(frozen=True, slots=True)
class WriteVersions(_Write):
    """Writes rows of a primary-key table as they are, and counts them: nothing is merged before."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """What was done, or the error that trying again would not help."""
        whole = Taken()

        def counting() -> Batches:
            for batch in joined(batches):
                whole.add(Taken((), _counted(batch.column(KIND))))
                yield batch

        done = outcome(lambda: self._done(counting()))
        for _ in batches:  # or Spark waits for ever to hand them over
            pass
        if not isinstance(done, TidelakeError):
            whole.add(Taken(done.messages, marks=done.marks))
        found = done if isinstance(done, TidelakeError) else whole
        yield pa.RecordBatch.from_pydict({"done": pa.array([pickle.dumps(found)], pa.binary())})


# ------------------------------------------------------------------------------------------------ append tables


@dataclass(frozen=True, slots=True)
class WriteAndTake:
    """Writes new rows of an append table, and gathers the places of those that they replace."""

    ref: TableRef

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """What was done, or the error that trying again would not help."""
        done = outcome(lambda: self._done(joined(batches)))
        for _ in batches:  # or Spark waits for ever to hand them over
            pass
        yield pa.RecordBatch.from_pydict({"done": pa.array([pickle.dumps(done)], pa.binary())})

    def _done(self, batches: Batches) -> Taken:
        table = self.ref.open()
        writer = Target(table.name, table.store, table.paths, table.options).writer()
        whole = Taken()
        try:
            for batch in batches:
                told = batch.column(ERROR).drop_null()
                if len(told):
                    raise pickle.loads(told[0].as_py())
                kinds = batch.column(KIND).to_numpy()
                new = batch.filter(pa.array(kinds != KIND_OF[Action.DELETE]))
                if new.num_rows:
                    writer.write(fitted_rows(new, table.schema))
                old = batch.filter(pa.array(kinds != KIND_OF[Action.INSERT]))
                whole.add(Taken((), _counted(batch.column(KIND)), dict(_positions(old))))
            whole.messages = tuple(writer.prepare(wait=True))
        except BaseException:
            with suppress(StorageError):
                writer.abort()
            raise
        return whole


def _positions(rows: pa.RecordBatch) -> Iterator[tuple[str, Any]]:
    files = pc.dictionary_encode(rows.column(FILE))
    numbers, positions = files.indices.to_numpy(), rows.column(POSITION).to_numpy()
    order = np.lexsort((positions, numbers))
    bounds = np.searchsorted(numbers[order], np.arange(len(files.dictionary) + 1))
    for number, name in enumerate(files.dictionary.to_pylist()):
        yield name, bitmap_of(positions[order[bounds[number] : bounds[number + 1]]])


@dataclass(frozen=True, slots=True)
class Copy:
    """Copies files without some of their rows; each task takes the bin of its number."""

    ref: TableRef
    bins: tuple[bytes, ...]
    """Splits with one file each, and the positions to leave out; pickled apart."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """The messages, or the error that trying again would not help."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                done = outcome(lambda number=number: self._copied(pickle.loads(self.bins[number])))  # type: ignore[misc]
                yield pa.RecordBatch.from_pydict({"done": pa.array([pickle.dumps(done)], pa.binary())})

    def _copied(self, parts: Sequence[tuple[Split, DataFile, Any]]) -> Taken:
        table = self.ref.open()
        target = Target(table.name, table.store, table.paths, table.options)
        files = CopiedFiles(table.store, table.paths, target.files)
        try:
            for split, file, positions in parts:
                files.take(split, file, np.asarray(positions.to_array(), np.int64))
            return Taken(files.finish())
        except BaseException:
            files.abort()
            raise


# ------------------------------------------------------------------------------------------------ sections anew


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Writes sections of buckets anew, with the rows that reach a task in the place of those with their keys."""

    ref: TableRef
    snapshot: Snapshot
    splits: Mapping[tuple[bytes, int], bytes]
    """The buckets with all their files, pickled apart."""
    likely: frozenset[str]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """The messages, or the error that trying again would not help."""
        done = outcome(lambda: self._rewritten(list(joined(batches))))
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"done": pa.array([pickle.dumps(done)], pa.binary())})

    def _rewritten(self, batches: Sequence[pa.RecordBatch]) -> Taken:
        if not batches:
            return Taken()
        table = self.ref.open()
        target = Target(table.name, table.store, table.paths, table.options)
        whole = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        rows, kinds = fitted_rows(whole, table.schema), whole.column(KIND)
        changes = rows.append_column(KIND, kinds.cast(pa.int32()))
        made: list[tuple[CopyOnWrite, tuple[CommitMessage, ...]]] = []
        try:
            for place, numbers in _by_place(rows, whole.column(BUCKET), table.schema):
                here = changes.take(pa.array(numbers))
                edit = MergeEdit(target, Matcher(pa.Table.from_batches([here]), replacing(table.schema)))
                copied = CopyOnWrite(table.store, table.paths, table.options, edit, target.thin)
                made.append((copied, ()))
                found = copied.prepare(LiveBuckets(self.snapshot, (pickle.loads(self.splits[place]),), self.likely))
                made[-1] = (copied, found.messages)
                if found.rows != here.num_rows:
                    raise InternalError(
                        "rows to replace were not found by their keys", wanted=here.num_rows, found=found.rows
                    )
        except BaseException:
            for copied, messages in made:
                copied.abort(messages)
            raise
        return Taken(tuple(each for _, messages in made for each in messages), _counted(kinds))


def replacing(schema: Schema) -> Merge:
    """The merge that puts rows of the table, with their kinds, in the place of those with the same key."""
    kind = Field(len(schema.fields), KIND, INT)
    values = {name: f"s.`{name}`" for name in schema.names if name not in schema.primary_keys}
    clauses = [Clause(When.MATCHED, Action.DELETE, f"s.`{KIND}` = {KIND_OF[Action.DELETE]}")]
    clauses += [Clause(When.MATCHED, Action.UPDATE, None, values)] if values else []
    return resolve_merge(schema, (*schema.fields, kind), list(schema.primary_keys), clauses)


def _by_place(rows: pa.RecordBatch, buckets: pa.Array, schema: Schema) -> Iterator[tuple[tuple[bytes, int], Ints]]:
    """The rows of each bucket, by the bytes of its partition and its number."""
    numbers = buckets.to_numpy().astype(np.int64)
    names = [EMPTY_ROW]
    places = np.zeros(rows.num_rows, np.int64)
    if schema.partition_keys:
        types = [with_nullable(each, True) for each in schema.partition_types]
        encoded = encode_rows([rows.column(name) for name in schema.partition_keys], types).dictionary_encode()
        names, places = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
    for place, bucket in sorted(set(zip(places.tolist(), numbers.tolist(), strict=True))):
        yield (names[place], bucket), np.flatnonzero((places == place) & (numbers == bucket))
