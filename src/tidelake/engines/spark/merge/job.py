"""Merge a frame into a table: tasks match the rows of both sides and write the results, and the driver commits once.

The source stays on the cluster. It is persisted there while the merge runs, so that a merge that is planned again uses
the same rows. The target is read at one snapshot, and only the columns and files that matter. If rows of a primary-key
table get the same values whether or not their key exists, nothing is read and the merge becomes a write.

Invariant: the same as in process. The published rows were computed from the newest version of the rows they replace.
The merge is planned again if another commit changes one of these, or adds a match for a row to insert.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tidelake.cleanup import undo_on_error
from tidelake.engines.spark.bridge.conditions import column_named
from tidelake.engines.spark.bridge.failures import log_warnings, unwrap_task_errors
from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.bridge.output import DONE, TaskOutput, combine_outputs
from tidelake.engines.spark.bridge.tasks import balance, parallelism
from tidelake.engines.spark.bridge.types import as_nullable, struct_of
from tidelake.engines.spark.merge.source import Source, keep_frame, source_fields, with_null_types
from tidelake.engines.spark.merge.tasks import (
    BUCKET,
    FILE,
    KIND_OF,
    OF_SOURCE,
    OF_TARGET,
    POSITION,
    SIDE,
    VERSION_LOSES,
    Copy,
    Inserts,
    Match,
    Rewrite,
    Shuffle,
    WriteAppend,
    WriteVersions,
)
from tidelake.engines.spark.read.frames import frame_of
from tidelake.engines.spark.write.batches import KIND
from tidelake.engines.spark.write.buckets import TASK, add_task_column, arrow_udf
from tidelake.engines.spark.write.evolve import add_columns
from tidelake.engines.spark.write.job import WriteJob, collect_outputs, collect_single_runs, run_job
from tidelake.errors import InvalidInputError, TidelakeError, UnsupportedError
from tidelake.expr.node import Scalar
from tidelake.expr.sides import SOURCE, TARGET
from tidelake.expr.tree import ALWAYS, Predicate
from tidelake.ops.change.keyed import LiveBuckets, assigned_order, find_buckets
from tidelake.ops.change.merge import (
    MergePlan,
    MergeResult,
    Way,
    choose_way,
    commit_merge,
    describe_plan,
)
from tidelake.ops.change.merge_keyed import keyed_guards, upsert_values
from tidelake.ops.change.merge_parts import (
    NoNewMatches,
    Prepared,
    find_deciding_columns,
    find_needed_columns,
    plan_target_read,
    reach,
)
from tidelake.ops.change.merge_rules import ALL, Action, Merge, resolve_merge
from tidelake.ops.change.verbs import commit_rows, marks_rows, plan_rewrite
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.commit.replan import replan
from tidelake.ops.define.merge_schema import MergeSchemaOptions
from tidelake.ops.hooks.committers import open_committer
from tidelake.ops.read.placed import address_of
from tidelake.ops.scan.planner import Plan
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.write.opening import open_writer
from tidelake.ops.write.postpone import refuse_waiting
from tidelake.query import Scan
from tidelake.spec.rows.row_kind import KINDS
from tidelake.spec.schemas.bucket_mode import BucketMode, BucketOptions
from tidelake.spec.types.data_types import Field, TimeType, walk
from tidelake.table import Table
from tidelake.table.merge_builder import Merge as Asked

_MICROS: Final = 6
_READ_TWICE: Final = (BucketMode.CROSS_PARTITION, BucketMode.POSTPONED)
"""Bucket modes whose writes compute a frame twice, so that it should be persisted."""
_TASK_ROWS: Final = 1 << 19
"""About how many source rows one task holds in memory."""
_HINT: Final = "merge the rows in process: table.merge(frame.toArrow(), ...)"


def merge_frame(table: Table, asked: Asked, plan_only: bool) -> MergeResult | MergePlan:
    """Merge a frame into a table, or only plan it.

    Raises:
        InvalidInputError: a clause is wrong, a value does not fit, or several source rows change one row of the table;
            nothing was changed.
        CommitConflictError: other jobs changed the same rows first at every attempt.
        CommitUnknownError: the storage did not answer whether the commit succeeded.
        UnsupportedError: Spark cannot write tables of this kind, or a column has a precision that Spark does not keep.
    """
    frame: DataFrame = asked.source
    if frame.isStreaming:
        raise InvalidInputError("frame is a stream", hint="merge each batch of it, in foreachBatch")
    fields = source_fields(frame, table.schema)
    lenient = table.context.options.of(MergeSchemaOptions).merge
    if lenient and not plan_only and any(clause.values == ALL for clause in asked.clauses if clause.sets):
        table = add_columns(table, fields)
    merge = resolve_merge(table.schema, fields, asked.on, asked.clauses, lenient=lenient)
    target = table.context_to_write()
    open_writer(target)  # refuses tables that cannot be written, before a job runs
    with unwrap_task_errors(), keep_frame(with_null_types(frame, fields)) as kept:
        source = Source(kept, fields, merge, table.schema, listed=target.bucket_mode is BucketMode.POSTPONED)
        merging = MergeJob(table, source, merge)
        if plan_only:
            return merging.plan()
        done = merging.run(open_committer(target))
    log_warnings(table.name, done.warnings)
    return done


@dataclass(frozen=True, slots=True)
class MergeJob:
    """A resolved merge with both of its sides."""

    table: Table
    source: Source
    merge: Merge

    @property
    def _where(self) -> Predicate | None:
        return reach(self.table.context_to_write(), self.source)

    def plan(self) -> MergePlan:
        """Describe what the merge would do."""
        target = self.table.context_to_write()
        way = choose_way(target, self.merge, self.source.has_nulls)
        return describe_plan(target, self.merge, way, self.source.count, lambda: self._where)

    def run(self, committer: Committer) -> MergeResult:
        """Run the merge; plan it again while other commits change the same rows first."""
        target = self.table.context_to_write()
        way = choose_way(target, self.merge, self.source.has_nulls)
        if way is Way.UPSERT:
            return replan(lambda: self._upsert(committer))
        self._refuse_nanos()
        prepare: dict[Way, Callable[[Committer], Prepared]] = {
            Way.VERSIONS: self._prepare_versions,
            Way.REWRITE: self._prepare_sections,
            Way.FILES: self._prepare_files,
        }

        def attempt() -> MergeResult:
            if target.bucket_mode is BucketMode.POSTPONED:
                where = self._where
                refuse_waiting(target.store, ALWAYS if where is None else where)
            return commit_merge(target, committer, prepare[way](committer))

        return replan(attempt)

    def _refuse_nanos(self) -> None:
        """Refuse columns below a microsecond: their rows go through Spark, which would cut these digits off."""
        schema = self.table.schema
        writes = bool(schema.primary_keys) or self.merge.does(Action.UPDATE) or self.merge.does(Action.INSERT)
        names = schema.names if writes else find_deciding_columns(self.table.context_to_write(), self.merge)
        for name in names:
            dtype = schema.field(name).type
            if any(isinstance(each, TimeType) and each.precision > _MICROS for each in walk(dtype)):
                raise UnsupportedError(
                    "column has digits below a microsecond, which Spark does not keep",
                    column=name,
                    type=str(dtype),
                    hint=_HINT,
                )

    # -------------------------------------------------------------------------------------------- upsert

    def _upsert(self, committer: Committer) -> MergeResult:
        target, schema = self.table.context_to_write(), self.table.schema
        values = upsert_values(target, self.merge, self.source.has_nulls)
        assert values is not None
        with _keep_if(self._values(values), target.bucket_mode in _READ_TWICE) as rows:
            _require_unique(rows, schema.primary_keys)
            done = _write_rows(self.table, rows, committer)
        found = commit_rows(target, committer, done.messages, "MERGE")
        return MergeResult(commit=found, updated=None, inserted=None, written=sum(done.kinds))

    def _values(self, values: Mapping[str, Scalar]) -> DataFrame:
        inserts = Inserts(self.table.schema, self.merge, self.source.fields, values)
        rows = self.source.frame.mapInArrow(inserts.run, as_nullable(struct_of(self.table.schema.fields)))
        return rows.withColumn(KIND, f.lit(KIND_OF[Action.INSERT]).cast("byte"))

    # -------------------------------------------------------------------------------------------- matching

    def _match_sides(self, match: Match, target: DataFrame) -> DataFrame:
        """Shuffle both sides by their keys, source rows first in every task, and match them."""
        source = self.source
        equals = self.merge.join.equals
        cores = parallelism(source.session)
        tasks = max(cores, -(-source.count // _TASK_ROWS)) if equals else 1
        ours = [each.name for each in source.fields]
        theirs = [*(each.name for each in match.target), *match.locations]

        def assign_side(side: str, fields: Sequence[Field], names: Sequence[str]) -> tuple[Column, Column]:
            shuffle = Shuffle.of(equals, side, fields, tasks)
            keys = (column_named(each.name) for each in shuffle.fields)
            task = arrow_udf(shuffle.run, "int")(*keys) if equals else f.lit(0)
            return task.alias(TASK), f.struct(*(column_named(name) for name in names))

        task, rows = assign_side(SOURCE, source.fields, ours)
        first = source.frame.select(task, f.lit(0).cast("byte").alias(SIDE), rows.alias(OF_SOURCE))
        task, rows = assign_side(TARGET, match.target, theirs)
        second = target.select(task, f.lit(1).cast("byte").alias(SIDE), rows.alias(OF_TARGET))
        both = first.unionByName(second, allowMissingColumns=True)
        shuffled = both.repartitionById(tasks, f.col(TASK)).sortWithinPartitions(SIDE)
        return shuffled.mapInArrow(match.run, match.struct)

    def _plan_match(self, columns: Sequence[str], **how: Any) -> Match:
        schema = self.table.schema
        fields = tuple(schema.field(name) for name in columns)
        return Match(schema, self.table.context.options, self.merge, self.source.fields, fields, **how)

    def _scan_target(self, plan: Plan, where: Predicate | None, match: Match) -> DataFrame:
        """Read the planned files of the target, and the columns that the merge uses."""
        columns = tuple(each.name for each in match.target)
        request = ReadRequest(schema=self.table.schema, columns=columns, where=where)
        scan = Scan(self.table.context, request, planned=plan)
        return frame_of(scan, self.source.session, [*columns, *match.locations])

    # -------------------------------------------------------------------------------------------- primary-key tables

    def _prepare_versions(self, committer: Committer) -> Prepared:
        """Write changed rows as new versions; rewrite sections if one would lose against the row it replaces."""
        target, schema = self.table.context_to_write(), self.table.schema
        plan = plan_target_read(target, self._where)
        order = assigned_order(target.options, self.merge.assigned_columns)
        wanted = {*find_needed_columns(target, self.merge), *order}
        match = self._plan_match([name for name in schema.names if name in wanted], order=order, versions=True)
        rows = self._order_inserts(self._match_sides(match, self._scan_target(plan, plan.where, match)))
        try:
            done = self._write_changes(rows, committer)
        except TidelakeError as error:
            if error.code != VERSION_LOSES:
                raise
            return self._prepare_sections(committer)
        guards = keyed_guards(target, self.source, plan.snapshot.id if plan.snapshot else 0)
        return Prepared(done.messages, _counts(done.kinds), guards)

    def _order_inserts(self, rows: DataFrame) -> DataFrame:
        """Sort inserted rows behind changed rows if both may have the same key, as a merge in process does."""
        merge, keys = self.merge, self.table.schema.primary_keys
        apart = merge.by_key(keys) and merge.inserts_own(keys)
        if apart or not merge.changes or not merge.does(Action.INSERT):
            return rows
        tasks = parallelism(self.source.session)
        shuffled = rows.repartition(tasks, *(column_named(name) for name in keys))
        return shuffled.sortWithinPartitions(f.col(KIND) == KIND_OF[Action.INSERT])

    def _write_changes(
        self, rows: DataFrame, committer: Committer, *, unstaged: bool = False, compacts: bool | None = None
    ) -> TaskOutput:
        """Write rows with kinds to their buckets; refuse two inserted rows with one key."""
        table, target, keys = self.table, self.table.context_to_write(), self.table.schema.primary_keys
        scattered = self.merge.does(Action.INSERT) and not self.merge.inserts_own(keys)
        staged = target.bucket_mode is BucketMode.POSTPONED and not unstaged
        with _keep_if(rows, scattered or staged or target.bucket_mode is BucketMode.CROSS_PARTITION) as kept:
            if scattered:  # inserted rows with one key may come from several tasks, so none of them can check it
                _require_unique(kept.filter(f.col(KIND) == KIND_OF[Action.INSERT]), keys)
            return _write_rows(table, kept, committer, unstaged=unstaged, compacts=compacts)

    def _prepare_sections(self, committer: Committer) -> Prepared:
        """Rewrite the sections with changed rows, and write inserted rows beside them."""
        table, target = self.table, self.table.context_to_write()
        where = self._where
        found = find_buckets(table.store, table.paths, table.context.options, ALWAYS if where is None else where)
        splits = () if found is None else found.splits
        plan = Plan(
            None if found is None else found.snapshot,
            tuple(replace(split, raw_convertible=False) for split in splits),
            where=where,
        )
        match = self._plan_match(table.schema.names, locations=(BUCKET,))
        with keep_frame(self._match_sides(match, self._scan_target(plan, where, match))) as rows:
            changed = rows.filter(f.col(KIND) != KIND_OF[Action.INSERT])
            replaced = self._rewrite_sections(found, changed, committer)
            new = rows.filter(f.col(KIND) == KIND_OF[Action.INSERT])
            with undo_on_error(lambda: committer.discard(replaced.messages)):
                # The tasks that write the new rows must not compact sections that are replaced here.
                done = self._write_changes(new, committer, unstaged=True, compacts=False)
        both = combine_outputs((replaced, done))
        counts = _counts(both.kinds)
        guards = keyed_guards(target, self.source, 0 if found is None else found.snapshot.id)
        return Prepared(both.messages, counts, guards, hidden=bool(counts[Action.INSERT]))

    def _rewrite_sections(self, found: LiveBuckets | None, rows: DataFrame, committer: Committer) -> TaskOutput:
        if found is None:
            return TaskOutput()
        table = self.table
        splits = {(each.partition, each.bucket): pickle.dumps(each) for each in found.splits}
        task = Rewrite(TableRef.of(table.name, table.store, table.dynamic), found.snapshot, splits, found.likely)
        tasks = min(max(1, len(splits)), parallelism(self.source.session) * 4)
        hashed = f.xxhash64(f.col(BUCKET), *(column_named(name) for name in table.schema.partition_keys))
        shuffled = rows.repartitionById(tasks, f.pmod(hashed, f.lit(tasks)).cast("int"))
        return collect_outputs(shuffled.mapInArrow(task.run, DONE), committer)

    # -------------------------------------------------------------------------------------------- append tables

    def _prepare_files(self, committer: Committer) -> Prepared:
        """Delete the old rows, by copying files or by deletion vectors, and write the new ones."""
        table, target, schema = self.table, self.table.context_to_write(), self.table.schema
        where = self._where
        plan = plan_rewrite(target, where)
        wanted = set(find_deciding_columns(target, self.merge))
        if self.merge.does(Action.UPDATE):
            wanted |= set(find_needed_columns(target, replace(self.merge, rules=_updates(self.merge))))
        match = self._plan_match([name for name in schema.names if name in wanted], locations=(FILE, POSITION))
        rows = self._match_sides(match, self._scan_target(plan, where, match))
        buckets = target.options.of(BucketOptions)
        if buckets.bucket > 0:
            tasks = min(buckets.bucket, parallelism(self.source.session) * 4)
            rows = add_task_column(rows, schema, buckets, tasks).repartitionById(tasks, f.col(TASK)).drop(TASK)
        ref = TableRef.of(table.name, table.store, table.dynamic)
        written = collect_outputs(rows.mapInArrow(WriteAppend(ref).run, DONE), committer)
        with undo_on_error(lambda: committer.discard(written.messages)):
            removed = self._delete_positions(plan, written, ref, committer)
        guard = NoNewMatches(target, self.source, plan.snapshot.id if plan.snapshot else 0)
        inserts = self.merge.does(Action.INSERT)
        return Prepared((*removed, *written.messages), _counts(written.kinds), (guard,) if inserts else ())

    def _delete_positions(
        self, plan: Plan, written: TaskOutput, ref: TableRef, committer: Committer
    ) -> tuple[CommitMessage, ...]:
        table, target = self.table, self.table.context_to_write()
        root = table.store.env.io.root
        files = {address_of(root, split, file): (split, file) for split in plan.splits for file in split.files}
        parts = [(*files[name], positions) for name, positions in sorted(written.positions.items())]
        if not parts:
            return ()
        if marks_rows(target, plan):
            from tidelake.ops.change.merge_on_write import MarkedFiles

            assert plan.snapshot is not None
            marked = MarkedFiles(table.store, table.paths, plan.snapshot, table.context.options)
            for split, file, positions in parts:
                marked.take(split, file, np.asarray(positions.to_array(), np.int64))
            return marked.finish()
        single = [(split.with_files((file,)), file, positions) for split, file, positions in parts]
        session = self.source.session
        bins = balance(single, lambda part: part[1].file_size, parallelism(session))
        copy = Copy(ref, tuple(pickle.dumps(each) for each in bins))
        done = session.range(0, len(bins), 1, len(bins)).mapInArrow(copy.run, DONE)
        return collect_outputs(done, committer).messages


# ------------------------------------------------------------------------------------------------ jobs


def _write_rows(
    table: Table, rows: DataFrame, committer: Committer, *, unstaged: bool = False, compacts: bool | None = None
) -> TaskOutput:
    """Write rows with kinds to their buckets.

    Where keys may move or rows are staged first, the frame is computed twice: the caller should keep it.

    Raises:
        TidelakeError: the error of the first task that failed; the files of the others are removed.
    """
    job = WriteJob.of(
        table,
        rows,
        overwrite=False,
        row_kind=KIND,
        identifier=None,
        user=committer.user,
        unstaged=unstaged,
        compacts=compacts,
    )
    if job.moving is not None or job.staging is not None:
        # Counted before they are written: moving a key may add a deletion or drop a row.
        kinds = _count_kinds(rows)
        return TaskOutput(tuple(run_job(table, job, rows, committer)), kinds=kinds)
    task = WriteVersions(job.ref, False, KIND, None, job.dynamic, job.base_id, job.compacts)
    return collect_single_runs(lambda: job.shuffle_rows(rows).mapInArrow(task.run, DONE), committer)


def _count_kinds(rows: DataFrame) -> tuple[int, ...]:
    """Count the rows of each kind.

    Raises:
        TidelakeError: the error of the first task that failed.
    """
    with unwrap_task_errors():
        counts = {row[0]: row[1] for row in rows.groupBy(KIND).count().collect()}
    return tuple(counts.get(number, 0) for number in KINDS.values())


def _require_unique(rows: DataFrame, keys: Sequence[str]) -> None:
    """Refuse two inserted rows with one key, because the result would depend on their order.

    Raises:
        InvalidInputError: two rows have the same key.
        TidelakeError: a row could not be computed.
    """
    counted = rows.groupBy(*map(column_named, keys)).agg(f.count(f.lit(1)).alias(SIDE))
    with unwrap_task_errors():
        twice = counted.filter(f.col(SIDE) > 1).drop(SIDE).limit(1).collect()
    if twice:
        raise InvalidInputError(
            "several source rows have one key",
            code="merge-ambiguous",
            row=", ".join(f"{name} = {value}" for name, value in zip(keys, twice[0], strict=True)),
            hint="give the source one row for each key",
        )


def _keep_if(frame: DataFrame, wanted: bool) -> AbstractContextManager[DataFrame]:
    return keep_frame(frame) if wanted else nullcontext(frame)


def _counts(kinds: Sequence[int]) -> dict[Action, int]:
    return {action: kinds[number] for action, number in KIND_OF.items()}


def _updates(merge: Merge) -> tuple[Any, ...]:
    return tuple(rule for rule in merge.rules if rule.action is Action.UPDATE)
