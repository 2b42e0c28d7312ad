"""The tasks of a merge: find matched pairs, write the rows that the clauses make of them, and delete the old rows.

Rows of both sides with equal keys are sent to one task, source rows first. A task holds its part of the source in
memory and streams the target, like a merge in process. The same `Matcher` does the work in both cases, so that every
clause and every error is the same.

Invariant: no task looks at the table's newest snapshot. All tasks work on the files that the driver planned.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, ByteType, IntegerType, LongType, StringType, StructField, StructType

from tidelake.cleanup import undo_on_error
from tidelake.engines.spark.bridge.failures import wrap_task_errors
from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.bridge.output import TaskOutput, add_positions, report_each, report_output
from tidelake.engines.spark.bridge.types import as_nullable, from_spark_column, spark_arrow, struct_of, to_spark_batch
from tidelake.engines.spark.write.batches import KIND, cast_rows, join_batches
from tidelake.engines.spark.write.job import WriteRows
from tidelake.errors import InternalError, InvalidInputError, StorageError, TidelakeError
from tidelake.expr.evaluate import evaluate_scalar
from tidelake.expr.node import Scalar
from tidelake.expr.sides import SOURCE, TARGET, column_of, full_name
from tidelake.files.options import FileOptions
from tidelake.index.vector_codec import bitmap_of
from tidelake.ops.change.copy_on_write import CopiedFiles
from tidelake.ops.change.keyed import CopyOnWrite, LiveBuckets, find_null_sensitive_columns
from tidelake.ops.change.merge_join import Columns, Ints, Matcher, key_hashes, refuse_repeated_keys
from tidelake.ops.change.merge_keyed import MergeEdit, by_rule, is_older
from tidelake.ops.change.merge_parts import pieces, qualify_columns, take_rows
from tidelake.ops.change.merge_rules import Action, Clause, Equal, Merge, Rule, When, resolve_merge
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.scan.split import Split
from tidelake.ops.write.opening import open_writer
from tidelake.options import TableOptions
from tidelake.query import HIDDEN_COLUMNS
from tidelake.spec.data_file import DataFile
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.rows.binary_row import EMPTY_ROW, encode_rows
from tidelake.spec.rows.row_kind import KINDS
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import row_to_arrow
from tidelake.spec.types.data_types import INT, Field, with_nullable

_, BUCKET, FILE, POSITION = HIDDEN_COLUMNS
SIDE: Final = "__tidelake_tag"
"""The column with the side of a row: 0 for the source, which is sorted first, 1 for the target."""
OF_SOURCE, OF_TARGET = "__tidelake_source", "__tidelake_target"
ERROR: Final = "__tidelake_error"
"""The column in which a matching task sends its error to the task that writes, so that this one removes its files."""
VERSION_LOSES: Final = "version-loses"
"""The code of the error if a new version would lose against the row that it replaces."""
KIND_OF: Final = {Action.UPDATE: KINDS["+U"], Action.DELETE: KINDS["-D"], Action.INSERT: KINDS["+I"]}
_LOCATION_COLUMNS: Final = {FILE: StringType(), POSITION: LongType(), BUCKET: IntegerType()}
_LOCATION_TYPES: Final = {FILE: pa.string(), POSITION: pa.int64(), BUCKET: pa.int32()}

Batches = Iterator[pa.RecordBatch]


def to_table_types(columns: Sequence[pa.Array], fields: Sequence[Field]) -> list[pa.Array]:
    """Convert columns from the types of Spark to those in which expressions are evaluated."""
    return [from_spark_column(column, each.type) for column, each in zip(columns, fields, strict=True)]


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Computes the task that matches a row of one side. Rows with equal keys get the same task."""

    equals: tuple[Equal, ...]
    side: str
    fields: tuple[Field, ...]
    """The columns that the keys are computed from."""
    tasks: int

    @classmethod
    def of(cls, equals: Sequence[Equal], side: str, fields: Iterable[Field], tasks: int) -> Shuffle:
        """Plan for one side with these columns, and keep those that the keys are computed from."""
        used = {column_of(name) for each in equals for name in _key(each, side).columns()}
        return cls(tuple(equals), side, tuple(each for each in fields if each.name in used), tasks)

    def run(self, *columns: pa.Array) -> pa.Array:
        """The number of the task, for each row."""
        names = [full_name(self.side, each.name) for each in self.fields]
        given = dict(zip(names, to_table_types(columns, self.fields), strict=True))
        count = len(columns[0])
        with wrap_task_errors():
            keys = [evaluate_scalar(_key(each, self.side), given, count) for each in self.equals]
            hashes = key_hashes(self.equals, keys)
        return pa.array(np.mod(hashes, self.tasks), pa.int32())


def _key(equal: Equal, side: str) -> Scalar:
    return equal.target if side == TARGET else equal.source


# ------------------------------------------------------------------------------------------------ matching


@dataclass(frozen=True, slots=True)
class Match:
    """Finds the matched pairs among the rows of a task.

    It returns rows to write, with the locations of the rows that they replace.
    """

    schema: Schema
    options: TableOptions
    merge: Merge
    source: tuple[Field, ...]
    target: tuple[Field, ...]
    locations: tuple[str, ...] = ()
    """The columns that locate a changed row: file and position, or bucket."""
    order: tuple[str, ...] = ()
    """The sequence columns, with which `versions` checks that a new version wins."""
    versions: bool = False
    """Whether rows are written as new versions, which have to win against those that they replace."""

    @property
    def struct(self) -> StructType:
        """The columns of the result: those of the table, the row kind, and the location of the row to replace."""
        fields = as_nullable(struct_of(self.schema.fields)).fields
        return StructType(
            [
                *fields,
                StructField(KIND, ByteType(), nullable=False),
                *(StructField(name, _LOCATION_COLUMNS[name]) for name in self.locations),
                *([StructField(ERROR, BinaryType())] if self.sends_errors else []),
            ]
        )

    @property
    def sends_errors(self) -> bool:
        """Whether a downstream task may be writing already while this one matches.

        If this task raised, Spark would abort that task, and its files would be left behind.
        """
        return not self.schema.primary_keys

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Match the rows, and return those to write."""
        batches = iter(batches)
        with wrap_task_errors():
            try:
                yield from self._match_rows(batches)
            except TidelakeError as error:
                if not self.sends_errors or isinstance(error, StorageError):
                    raise
                failed = self._out(None, Action.INSERT, 1)
                index = failed.schema.get_field_index(ERROR)
                yield failed.set_column(index, ERROR, pa.array([pickle.dumps(error)], pa.binary()))
                for _ in batches:  # Spark would wait for ever to hand over the rest
                    pass

    def _match_rows(self, batches: Batches) -> Batches:
        source, target = self._sides(batches)
        matcher = Matcher(source, self.merge)
        for rows in pieces(target, matcher.count):
            columns = qualify_columns(rows)
            pairs = matcher.find_pairs(columns, rows.num_rows)
            for rule, own in by_rule(self.merge, pairs):
                yield self._change_rows(matcher, rule, take_rows(columns, own.rows), own)
        new = [matcher.make_inserts(rule.values, self.schema, unmatched) for rule, unmatched in matcher.unmet()]
        if self.schema.primary_keys and new:
            refuse_repeated_keys(pa.concat_batches(new), self.schema.primary_keys)
        for rows in new:
            yield self._out(rows, Action.INSERT, rows.num_rows)

    def _sides(self, batches: Batches) -> tuple[pa.Table, Batches]:
        """Collect the source rows, and return them with an iterator over the target rows."""
        found: list[pa.RecordBatch] = []
        rest: list[pa.RecordBatch] = []
        for batch in batches:
            count = int(np.searchsorted(batch.column(SIDE).to_numpy(), 1))
            if count:
                found.append(_unpack_source(batch.slice(0, count).column(OF_SOURCE), self.source))
            if count < batch.num_rows:
                rest.append(batch.slice(count))
                break
        source = pa.Table.from_batches(found, row_to_arrow(self.source))
        return source, map(self._target, chain(rest, batches))

    def _target(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.column(OF_TARGET).flatten()
        columns = to_table_types(rows[: len(self.target)], self.target)
        return pa.RecordBatch.from_arrays(
            [*columns, *rows[len(self.target) :]], names=[*(each.name for each in self.target), *self.locations]
        )

    def _change_rows(self, matcher: Matcher, rule: Rule, old: Columns, own: Any) -> pa.RecordBatch:
        if rule.action is Action.DELETE and not self.schema.primary_keys:
            return self._out(None, rule.action, len(own), old)
        new = matcher.make_updates(rule, self.schema, old, own)
        if self.versions:
            self._require_newer(rule, old, new)
        return self._out(new, rule.action, len(own), old)

    def _require_newer(self, rule: Rule, old: Columns, new: pa.RecordBatch) -> None:
        update = rule.action is Action.UPDATE
        watch = (
            find_null_sensitive_columns(self.options, "+U", self.merge.assigned_columns)
            if update
            else find_null_sensitive_columns(self.options, "-D")
        )
        older = update and is_older(self.options, self.order, old, new)
        if older or any(new.column(name).null_count for name in watch):
            raise InvalidInputError("a new version would lose against the row that it replaces", code=VERSION_LOSES)

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
            pa.nulls(count, _LOCATION_TYPES[name])
            if old is None
            else old[full_name(TARGET, name)].cast(_LOCATION_TYPES[name])
            for name in self.locations
        ]
        names = [*(each.name for each in fields), KIND, *self.locations]
        found = pa.RecordBatch.from_arrays([*columns, kinds, *where], names=names)
        return found.append_column(ERROR, pa.nulls(count, pa.binary())) if self.sends_errors else found


def _unpack_source(rows: pa.StructArray, fields: Sequence[Field]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(to_table_types(rows.flatten(), fields), schema=row_to_arrow(fields))


@dataclass(frozen=True, slots=True)
class Inserts:
    """Computes the rows that source rows become where the target does not matter."""

    schema: Schema
    merge: Merge
    source: tuple[Field, ...]
    values: Mapping[str, Scalar]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """The rows to write."""
        with wrap_task_errors():
            for batch in join_batches(batches):
                rows = pa.RecordBatch.from_arrays(
                    to_table_types(batch.columns, self.source), schema=row_to_arrow(self.source)
                )
                matcher = Matcher(pa.Table.from_batches([rows]), self.merge)
                yield to_spark_batch(matcher.make_inserts(self.values, self.schema, None), self.schema.fields)


@dataclass(frozen=True, slots=True)
class ListPartitionValues:
    """Lists the source values that the condition equates with partition columns of the target."""

    keys: tuple[tuple[Scalar, pa.DataType], ...]
    """The source expression of each column, and the type of its values: 64 bits for integers."""
    source: tuple[Field, ...]

    @property
    def struct(self) -> StructType:
        """One column for each expression, named by its number."""
        return StructType(
            [StructField(str(number), from_arrow_type(dtype)) for number, (_, dtype) in enumerate(self.keys)]
        )

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """The distinct values in each batch of the source."""
        names = [full_name(SOURCE, each.name) for each in self.source]
        with wrap_task_errors():
            for batch in join_batches(batches):
                given = dict(zip(names, to_table_types(batch.columns, self.source), strict=True))
                found = {
                    str(number): evaluate_scalar(key, given, batch.num_rows).cast(dtype)
                    for number, (key, dtype) in enumerate(self.keys)
                }
                once = pa.table(found).group_by(list(found), use_threads=False).aggregate([])
                yield from once.select(list(found)).to_batches()


@dataclass(frozen=True, slots=True)
class HasMatch:
    """Finds out whether target rows that another commit added while the merge ran match a source row."""

    merge: Merge
    source: tuple[Field, ...]
    rows: bytes
    """The target rows as an Arrow stream, with the column names of the condition."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """One row for each batch of the source: whether it has a match."""
        with pa.ipc.open_stream(self.rows) as stream:
            target = stream.read_all().combine_chunks()
        columns = {name: target.column(name).combine_chunks() for name in target.schema.names}
        for batch in join_batches(batches):
            rows = pa.RecordBatch.from_arrays(
                to_table_types(batch.columns, self.source), schema=row_to_arrow(self.source)
            )
            met = Matcher(pa.Table.from_batches([rows]), self.merge).meets(columns, target.num_rows)
            yield pa.RecordBatch.from_pydict({"met": pa.array([met])})


# ------------------------------------------------------------------------------------------------ writing


def count_kinds(kinds: pa.Array) -> Ints:
    """How many rows of each kind there are."""
    return np.bincount(kinds.to_numpy(), minlength=len(KINDS))


@dataclass(frozen=True, slots=True)
class WriteVersions(WriteRows):
    """Writes rows of a primary-key table as they are, without a local merge, and counts them by kind."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Write the rows, and report the files and the counts."""
        kinds = np.zeros(len(KINDS), np.int64)

        def count() -> Batches:
            for batch in join_batches(batches):
                kinds[:] += count_kinds(batch.column(KIND))
                yield batch

        yield from report_output(batches, lambda: replace(self._write(count()), kinds=tuple(kinds.tolist())))


# ------------------------------------------------------------------------------------------------ append tables


@dataclass(frozen=True, slots=True)
class WriteAppend:
    """Writes new rows of an append table, and collects the positions of the rows that they replace."""

    ref: TableRef

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Write the new rows, and report the files, the counts and the positions to delete."""
        yield from report_output(batches, lambda: self._write(join_batches(batches)))

    def _write(self, batches: Batches) -> TaskOutput:
        table = self.ref.open()
        writer = open_writer(table.context)
        counts = np.zeros(len(KINDS), np.int64)
        positions: dict[str, Any] = {}
        with undo_on_error(writer.abort, ignore=(StorageError,)):
            for batch in batches:
                failed = batch.column(ERROR).drop_null()
                if len(failed):
                    raise pickle.loads(failed[0].as_py())
                kinds = batch.column(KIND).to_numpy()
                new = batch.filter(pa.array(kinds != KIND_OF[Action.DELETE]))
                if new.num_rows:
                    writer.write(cast_rows(new, table.schema))
                old = batch.filter(pa.array(kinds != KIND_OF[Action.INSERT]))
                counts += count_kinds(batch.column(KIND))
                add_positions(positions, _positions(old))
            return TaskOutput(tuple(writer.prepare(wait=True)), (), tuple(counts.tolist()), positions)


def _positions(rows: pa.RecordBatch) -> Iterator[tuple[str, Any]]:
    files = pc.dictionary_encode(rows.column(FILE))
    numbers, positions = files.indices.to_numpy(), rows.column(POSITION).to_numpy()
    order = np.lexsort((positions, numbers))
    bounds = np.searchsorted(numbers[order], np.arange(len(files.dictionary) + 1))
    for number, name in enumerate(files.dictionary.to_pylist()):
        yield name, bitmap_of(positions[order[bounds[number] : bounds[number + 1]]])


@dataclass(frozen=True, slots=True)
class Copy:
    """Copies files without their deleted rows; each task copies the bins of the numbers that it gets."""

    ref: TableRef
    bins: tuple[bytes, ...]
    """Splits with one file, and the positions to leave out. Pickled one by one: a task unpickles only its own."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Copy the files of these bins, and report the messages of each bin."""
        yield from report_each(batches, lambda number: self._copy_files(pickle.loads(self.bins[number])))

    def _copy_files(self, parts: Sequence[tuple[Split, DataFile, Any]]) -> TaskOutput:
        table = self.ref.open()
        target = table.context
        files = CopiedFiles(table.store, table.paths, target.options.of(FileOptions))
        with undo_on_error(files.abort):
            for split, file, positions in parts:
                files.take(split, file, np.asarray(positions.to_array(), np.int64))
            return TaskOutput(files.finish())


# ------------------------------------------------------------------------------------------------ rewriting sections


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Rewrites sections of buckets, in which the rows of the task replace those with the same keys."""

    ref: TableRef
    snapshot: Snapshot
    splits: Mapping[tuple[bytes, int], bytes]
    """The buckets with all their files. Pickled one by one: a task unpickles only its own."""
    likely: frozenset[str]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Rewrite the sections of these rows, and report the files."""
        yield from report_output(batches, lambda: self._rewrite_sections(list(join_batches(batches))))

    def _rewrite_sections(self, batches: Sequence[pa.RecordBatch]) -> TaskOutput:
        if not batches:
            return TaskOutput()
        table = self.ref.open()
        target = table.context
        whole = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        rows, kinds = cast_rows(whole, table.schema), whole.column(KIND)
        changes = rows.append_column(KIND, kinds.cast(pa.int32()))
        made: list[tuple[CopyOnWrite, tuple[CommitMessage, ...]]] = []
        with undo_on_error(lambda: _abort_all(made)):
            for place, numbers in _by_bucket(rows, whole.column(BUCKET), table.schema):
                here = changes.take(pa.array(numbers))
                edit = MergeEdit(target, Matcher(pa.Table.from_batches([here]), merge_by_key(table.schema)))
                copied = CopyOnWrite(table.store, table.paths, table.context.options, edit)
                made.append((copied, ()))
                found = copied.prepare(LiveBuckets(self.snapshot, (pickle.loads(self.splits[place]),), self.likely))
                made[-1] = (copied, found.messages)
                if found.rows != here.num_rows:
                    raise InternalError(
                        "rows to replace were not found by their keys", expected=here.num_rows, found=found.rows
                    )
        messages = tuple(each for _, found in made for each in found)
        return TaskOutput(messages, kinds=tuple(count_kinds(kinds).tolist()))


def _abort_all(made: Iterable[tuple[CopyOnWrite, tuple[CommitMessage, ...]]]) -> None:
    for copied, messages in made:
        copied.abort(messages)


def merge_by_key(schema: Schema) -> Merge:
    """The merge in which rows, with their kinds, replace the rows of the table with the same key."""
    kind = Field(len(schema.fields), KIND, INT)
    values = {name: f"s.`{name}`" for name in schema.names if name not in schema.primary_keys}
    clauses = [Clause(When.MATCHED, Action.DELETE, f"s.`{KIND}` = {KIND_OF[Action.DELETE]}")]
    clauses += [Clause(When.MATCHED, Action.UPDATE, None, values)] if values else []
    return resolve_merge(schema, (*schema.fields, kind), list(schema.primary_keys), clauses)


def _by_bucket(rows: pa.RecordBatch, buckets: pa.Array, schema: Schema) -> Iterator[tuple[tuple[bytes, int], Ints]]:
    """The positions of the rows of each partition and bucket."""
    numbers = buckets.to_numpy().astype(np.int64)
    names = [EMPTY_ROW]
    partitions = np.zeros(rows.num_rows, np.int64)
    if schema.partition_keys:
        types = [with_nullable(each, True) for each in schema.partition_types]
        encoded = encode_rows([rows.column(name) for name in schema.partition_keys], types).dictionary_encode()
        names, partitions = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
    for partition, bucket in sorted(set(zip(partitions.tolist(), numbers.tolist(), strict=True))):
        yield (names[partition], bucket), np.flatnonzero((partitions == partition) & (numbers == bucket))
