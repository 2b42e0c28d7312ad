"""A frame merged into a table: both sides meet in tasks, tasks write what comes of it, the driver commits once.

The source stays on the cluster. It is kept there while the merge runs, so that a merge which is planned again sees the
same rows; the target is read at one snapshot, only the columns and files that matter. Where rows of a primary-key table
get the same values whether their key is there or not, nothing is read and the merge is a write.

Invariant: as in process. What is published was computed from the newest state of the rows it changes, and a commit of
others that touches one of them, or brings a partner of a row to insert, makes the merge plan again.
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

from tidelake.engines.spark.assign import check_marks
from tidelake.engines.spark.batches import KIND
from tidelake.engines.spark.buckets import TASK, arrow_udf, with_task
from tidelake.engines.spark.conditions import column_named
from tidelake.engines.spark.failures import log_warnings, told_as_it_was
from tidelake.engines.spark.merge_source import Source, kept_while, source_fields, typed
from tidelake.engines.spark.merge_tasks import (
    BUCKET,
    FILE,
    KIND_OF,
    LOSES,
    OF_SOURCE,
    OF_TARGET,
    POSITION,
    TAG,
    Copy,
    Dealt,
    Inserts,
    Match,
    Rewrite,
    Taken,
    WriteAndTake,
    WriteVersions,
)
from tidelake.engines.spark.receive import DONE
from tidelake.engines.spark.remote import TableRef
from tidelake.engines.spark.rows import address_of, frame_of
from tidelake.engines.spark.tasks import balanced, parallelism
from tidelake.engines.spark.types import as_nullable, struct_of
from tidelake.engines.spark.write import _ATTEMPTS, _Job, run_job
from tidelake.errors import CommitConflictError, InvalidInputError, TidelakeError, UnsupportedError
from tidelake.expr.node import Scalar
from tidelake.expr.sides import SOURCE, TARGET
from tidelake.expr.tree import ALWAYS, Predicate
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.define.merge_schema import MergeSchemaOptions
from tidelake.ops.scan.planner import Plan
from tidelake.ops.write.keyed_verbs import LiveBuckets, assigned_order, find_buckets
from tidelake.ops.write.kinds import KINDS
from tidelake.ops.write.merge import (
    MergePlan,
    MergeResult,
    Way,
    choose_way,
    commit_merge,
    planned_way,
)
from tidelake.ops.write.merge_keyed import keyed_guard, upsert_values
from tidelake.ops.write.merge_parts import NewPartners, Prepared, deciding, making, planned, reach
from tidelake.ops.write.merge_rules import ALL, Action, Merge, resolve_merge
from tidelake.ops.write.postpone import refuse_waiting
from tidelake.ops.write.verbs import commit_rows, marks_rows, plan_rewrite, planned_again
from tidelake.query import Scan
from tidelake.spec.types import Field, TimeType, walk
from tidelake.table import Table
from tidelake.table.merging import Merge as Asked

_MICROS: Final = 6
_TASK_ROWS: Final = 1 << 19
"""Source rows that one task holds in memory, about."""
_HINT: Final = "merge the rows in process: table.merge(frame.toArrow(), ...)"


def merge_frame(table: Table, asked: Asked, plan_only: bool) -> MergeResult | MergePlan:
    """Merge a frame into a table, or tell how that would be done.

    Raises:
        InvalidInputError: a clause is wrong, a value does not fit, or several source rows change one row of the table;
            nothing was changed.
        CommitConflictError: other jobs changed the same rows first, every time it was tried.
        CommitUnknownError: the storage did not tell whether the commit is there.
        UnsupportedError: the table is of a kind that Spark does not write, or a column is finer than Spark keeps.
    """
    frame: DataFrame = asked.source
    if frame.isStreaming:
        raise InvalidInputError("frame is a stream", hint="merge each batch of it, in foreachBatch")
    table = table._newest()
    fields = source_fields(frame, table.schema)
    lenient = MergeSchemaOptions.parse(table.options).merge
    if lenient and not plan_only and any(clause.values == ALL for clause in asked.clauses if clause.sets):
        table = table._with_columns_of(fields)
    merge = resolve_merge(table.schema, fields, asked.on, asked.clauses, lenient=lenient)
    target = table._target()
    target.writer()  # refuses tables that are not written, before a job runs
    with told_as_it_was(), kept_while(typed(frame, fields)) as kept:
        source = Source(kept, fields, merge, table.schema, listed=target.postpones)
        merging = _Merging(table, source, merge)
        if plan_only:
            return merging.plan()
        done = merging.run(table._committer(None))
    done = replace(done, commit=table._afterwards(done.commit))
    log_warnings(table.name, done.warnings)
    return done


@dataclass(frozen=True, slots=True)
class _Merging:
    """A merge that is resolved, with both its sides."""

    table: Table
    source: Source
    merge: Merge

    @property
    def _where(self) -> Predicate | None:
        return reach(self.table._target(), self.source)

    def plan(self) -> MergePlan:
        """What would be done."""
        target = self.table._target()
        way = choose_way(target, self.merge, self.source.has_nulls)
        return planned_way(target, self.merge, way, self.source.count, lambda: self._where)

    def run(self, committer: Committer) -> MergeResult:
        """Do it, again while others change the same rows first."""
        target = self.table._target()
        way = choose_way(target, self.merge, self.source.has_nulls)
        if way is Way.UPSERT:
            return planned_again(lambda: self._upserted(committer))
        self._refuse_finer()
        prepare: dict[Way, Callable[[Committer], Prepared]] = {
            Way.VERSIONS: self._versions,
            Way.REWRITE: self._sections,
            Way.FILES: self._files,
        }

        def attempt() -> MergeResult:
            if target.postpones:
                where = self._where
                refuse_waiting(target.store, ALWAYS if where is None else where)
            return commit_merge(target, committer, prepare[way](committer))

        return planned_again(attempt)

    def _refuse_finer(self) -> None:
        """Rows pass through Spark, which would cut off what it does not keep."""
        schema = self.table.schema
        writes = bool(schema.primary_keys) or self.merge.does(Action.UPDATE) or self.merge.does(Action.INSERT)
        names = schema.names if writes else deciding(self.table._target(), self.merge)
        for name in names:
            dtype = schema.field(name).type
            if any(isinstance(each, TimeType) and each.precision > _MICROS for each in walk(dtype)):
                raise UnsupportedError(
                    "column has digits below a microsecond, which Spark does not keep",
                    column=name,
                    type=str(dtype),
                    hint=_HINT,
                )

    # -------------------------------------------------------------------------------------------- without a look

    def _upserted(self, committer: Committer) -> MergeResult:
        target, schema = self.table._target(), self.table.schema
        values = upsert_values(target, self.merge, self.source.has_nulls)
        assert values is not None
        with _kept_if(self._values(values), target.moves_keys or target.postpones) as rows:
            _refuse_repeated(rows, schema.primary_keys)
            done = _written(self.table, rows, committer)
        found = commit_rows(target, committer, done.messages, "MERGE")
        return MergeResult(commit=found, updated=None, inserted=None, written=sum(done.kinds))

    def _values(self, values: Mapping[str, Scalar]) -> DataFrame:
        inserts = Inserts(self.table.schema, self.merge, self.source.fields, values)
        rows = self.source.frame.mapInArrow(inserts.run, as_nullable(struct_of(self.table.schema.fields)))
        return rows.withColumn(KIND, f.lit(KIND_OF[Action.INSERT]).cast("byte"))

    # -------------------------------------------------------------------------------------------- partners

    def _matched(self, match: Match, target: DataFrame) -> DataFrame:
        """What becomes of rows: both sides dealt out by their keys, the source first in every task."""
        source = self.source
        equals = self.merge.join.equals
        cores = parallelism(source.session)
        tasks = max(cores, -(-source.count // _TASK_ROWS)) if equals else 1
        ours = [each.name for each in source.fields]
        theirs = [*(each.name for each in match.target), *match.places]

        def packed(side: str, fields: Sequence[Field], names: Sequence[str]) -> tuple[Column, Column]:
            dealt = Dealt.of(equals, side, fields, tasks)
            task = (
                arrow_udf(dealt.run, "int")(*(column_named(each.name) for each in dealt.fields)) if equals else f.lit(0)
            )
            return task.alias(TASK), f.struct(*(column_named(name) for name in names))

        task, rows = packed(SOURCE, source.fields, ours)
        first = source.frame.select(task, f.lit(0).cast("byte").alias(TAG), rows.alias(OF_SOURCE))
        task, rows = packed(TARGET, match.target, theirs)
        second = target.select(task, f.lit(1).cast("byte").alias(TAG), rows.alias(OF_TARGET))
        both = first.unionByName(second, allowMissingColumns=True)
        dealt = both.repartitionById(tasks, f.col(TASK)).sortWithinPartitions(TAG)
        return dealt.mapInArrow(match.run, match.struct)

    def _match(self, columns: Sequence[str], **how: Any) -> Match:
        schema = self.table.schema
        fields = tuple(schema.field(name) for name in columns)
        return Match(schema, self.table.options, self.merge, self.source.fields, fields, **how)

    def _scanned(self, plan: Plan, where: Predicate | None, match: Match) -> DataFrame:
        """The part of the target that matters, as it was planned."""
        columns = tuple(each.name for each in match.target)
        table = self.table
        scan = Scan(table.name, table.store, table.paths, columns, where=where, options=table.options, planned=plan)
        return frame_of(scan, self.source.session, [*columns, *match.places])

    # -------------------------------------------------------------------------------------------- primary-key tables

    def _versions(self, committer: Committer) -> Prepared:
        """Changed rows written again; where one would lose against what it replaces, sections are written anew."""
        target, schema = self.table._target(), self.table.schema
        plan = planned(target, self._where)
        order = assigned_order(target.options, self.merge.assigned)
        wanted = {*making(target, self.merge), *order}
        match = self._match([name for name in schema.names if name in wanted], order=order, versions=True)
        rows = self._in_order(self._matched(match, self._scanned(plan, plan.where, match)))
        try:
            done = self._inserted(self.table, rows, committer)
        except TidelakeError as error:
            if error.code != LOSES:
                raise
            return self._sections(committer)
        guard = keyed_guard(target, self.source, plan.snapshot.id if plan.snapshot else 0)
        return Prepared(done.messages, _counts(done.kinds), guard)

    def _in_order(self, rows: DataFrame) -> DataFrame:
        """Where a new row may have the key of one that is changed, it comes behind that, as in process."""
        merge, keys = self.merge, self.table.schema.primary_keys
        apart = merge.by_key(keys) and merge.inserts_own(keys)
        if apart or not merge.changes or not merge.does(Action.INSERT):
            return rows
        tasks = parallelism(self.source.session)
        dealt = rows.repartition(tasks, *(column_named(name) for name in keys))
        return dealt.sortWithinPartitions(f.col(KIND) == KIND_OF[Action.INSERT])

    def _inserted(self, table: Table, rows: DataFrame, committer: Committer, *, straight: bool = False) -> Taken:
        """Rows with kinds written to their buckets, no two of them new rows of one key."""
        target, keys = table._target(), table.schema.primary_keys
        scattered = self.merge.does(Action.INSERT) and not self.merge.inserts_own(keys)
        with _kept_if(rows, scattered or target.moves_keys or (target.postpones and not straight)) as kept:
            if scattered:  # rows of one key may come from several tasks
                _refuse_repeated(kept.filter(f.col(KIND) == KIND_OF[Action.INSERT]), keys)
            return _written(table, kept, committer, straight=straight)

    def _sections(self, committer: Committer) -> Prepared:
        """Sections with changed rows written anew; new rows beside them."""
        table, target = self.table, self.table._target()
        where = self._where
        found = find_buckets(table.store, table.paths, table.options, ALWAYS if where is None else where)
        splits = () if found is None else found.splits
        plan = Plan(
            None if found is None else found.snapshot,
            tuple(replace(split, raw_convertible=False) for split in splits),
            where=where,
        )
        match = self._match(table.schema.names, places=(BUCKET,))
        with kept_while(self._matched(match, self._scanned(plan, where, match))) as rows:
            changed = rows.filter(f.col(KIND) != KIND_OF[Action.INSERT])
            replaced = self._replaced(found, changed, committer)
            # Sections that are replaced here must not be compacted by who writes the new rows.
            writing = table._with_dynamic({**table.dynamic, "write-only": "true"})
            new = rows.filter(f.col(KIND) == KIND_OF[Action.INSERT])
            try:
                done = self._inserted(writing, new, committer, straight=True)
            except BaseException:
                committer.discard(replaced.messages)
                raise
        replaced.add(done)
        counts = _counts(replaced.kinds)
        guard = keyed_guard(target, self.source, 0 if found is None else found.snapshot.id)
        return Prepared(replaced.messages, counts, guard, hidden=bool(counts[Action.INSERT]))

    def _replaced(self, found: LiveBuckets | None, rows: DataFrame, committer: Committer) -> Taken:
        if found is None:
            return Taken()
        table = self.table
        splits = {(each.partition, each.bucket): pickle.dumps(each) for each in found.splits}
        task = Rewrite(TableRef.of(table.name, table.store, table.dynamic), found.snapshot, splits, found.likely)
        tasks = min(max(1, len(splits)), parallelism(self.source.session) * 4)
        place = f.xxhash64(f.col(BUCKET), *(column_named(name) for name in table.schema.partition_keys))
        dealt = rows.repartitionById(tasks, f.pmod(place, f.lit(tasks)).cast("int"))
        return _collected(dealt.mapInArrow(task.run, DONE), committer)

    # -------------------------------------------------------------------------------------------- append tables

    def _files(self, committer: Committer) -> Prepared:
        """Rows taken out of files, by copying or marking, and new ones added."""
        table, target, schema = self.table, self.table._target(), self.table.schema
        where = self._where
        plan = plan_rewrite(target, where)
        wanted = set(deciding(target, self.merge))
        if self.merge.does(Action.UPDATE):
            wanted |= set(making(target, replace(self.merge, rules=_updates(self.merge))))
        match = self._match([name for name in schema.names if name in wanted], places=(FILE, POSITION))
        rows = self._matched(match, self._scanned(plan, where, match))
        buckets = target.buckets
        if buckets.bucket > 0:
            tasks = min(buckets.bucket, parallelism(self.source.session) * 4)
            rows = with_task(rows, schema, buckets, tasks).repartitionById(tasks, f.col(TASK)).drop(TASK)
        ref = TableRef.of(table.name, table.store, table.dynamic)
        whole = _collected(rows.mapInArrow(WriteAndTake(ref).run, DONE), committer)
        try:
            removed = self._taken(plan, whole, ref, committer)
        except BaseException:
            committer.discard(whole.messages)
            raise
        guard = NewPartners(target, self.source, plan.snapshot.id if plan.snapshot else 0)
        inserts = self.merge.does(Action.INSERT)
        return Prepared((*removed, *whole.messages), _counts(whole.kinds), guard if inserts else None)

    def _taken(self, plan: Plan, whole: Taken, ref: TableRef, committer: Committer) -> tuple[CommitMessage, ...]:
        table, target = self.table, self.table._target()
        root = table.store.env.io.root
        files = {address_of(root, split, file): (split, file) for split in plan.splits for file in split.files}
        parts = [(*files[name], positions) for name, positions in sorted(whole.positions.items())]
        if not parts:
            return ()
        if marks_rows(target, plan):
            from tidelake.ops.write.marking import MarkedFiles

            assert plan.snapshot is not None
            marked = MarkedFiles(table.store, table.paths, plan.snapshot, table.options)
            for split, file, positions in parts:
                marked.take(split, file, np.asarray(positions.to_array(), np.int64))
            return marked.finish()
        single = [(split.with_files((file,)), file, positions) for split, file, positions in parts]
        session = self.source.session
        bins = balanced(single, lambda part: part[1].file_size, parallelism(session))
        copy = Copy(ref, tuple(pickle.dumps(each) for each in bins))
        done = session.range(0, len(bins), 1, len(bins)).mapInArrow(copy.run, DONE)
        return _collected(done, committer).messages


# ------------------------------------------------------------------------------------------------ jobs


def _written(table: Table, rows: DataFrame, committer: Committer, *, straight: bool = False) -> Taken:
    """Rows with kinds written to their buckets.

    Rows whose keys may move and such as are staged first are computed twice: who keeps them does well.

    Raises:
        TidelakeError: what the first task that failed tells; what the others wrote is removed.
    """
    job = _Job.of(table, rows, overwrite=False, row_kind=KIND, identifier=None, user=committer.user, straight=straight)
    if job.moving is not None or job.staging is not None:
        kinds = _kinds_of(rows)  # rows that are written may be others, or none
        return Taken(tuple(run_job(table, job, rows, committer)), kinds)
    task = WriteVersions(job.ref, False, KIND, None, job.dynamic, job.base_id)
    for _ in range(_ATTEMPTS):
        done = _collected(job.distributed(rows).mapInArrow(task.run, DONE), committer)
        if check_marks(done.marks):
            return done
        committer.discard(done.messages)
    raise CommitConflictError(
        "tasks that assign dynamic buckets ran twice",
        code="assigned-twice",
        attempts=_ATTEMPTS,
        hint="executors were lost every time: merge again, or cache the frame first",
    )


def _kinds_of(rows: DataFrame) -> tuple[int, ...]:
    """How many rows of each kind there are.

    Raises:
        TidelakeError: what the first task that failed tells.
    """
    with told_as_it_was():
        counts = {row[0]: row[1] for row in rows.groupBy(KIND).count().collect()}
    return tuple(counts.get(number, 0) for number in KINDS.values())


def _collected(frame: DataFrame, committer: Committer) -> Taken:
    """What the tasks of a job did, together.

    Raises:
        TidelakeError: what the first task that failed tells; what the others wrote is removed.
    """
    with told_as_it_was():
        found = [pickle.loads(row.done) for row in frame.collect()]
    whole = Taken()
    for each in found:
        if not isinstance(each, TidelakeError):
            whole.add(each)
    failed = next((each for each in found if isinstance(each, TidelakeError)), None)
    if failed is not None:
        committer.discard(whole.messages)
        raise failed
    return whole


def _refuse_repeated(rows: DataFrame, keys: Sequence[str]) -> None:
    """Refuse two new rows of one key: which of them stays would depend on their order.

    Raises:
        InvalidInputError: there are.
        TidelakeError: a row could not be computed.
    """
    counted = rows.groupBy(*map(column_named, keys)).agg(f.count(f.lit(1)).alias(TAG))
    with told_as_it_was():
        twice = counted.filter(f.col(TAG) > 1).drop(TAG).limit(1).collect()
    if twice:
        raise InvalidInputError(
            "several source rows have one key",
            code="merge-ambiguous",
            row=", ".join(f"{name} = {value}" for name, value in zip(keys, twice[0], strict=True)),
            hint="give the source one row for each key",
        )


def _kept_if(frame: DataFrame, wanted: bool) -> AbstractContextManager[DataFrame]:
    return kept_while(frame) if wanted else nullcontext(frame)


def _counts(kinds: Sequence[int]) -> dict[Action, int]:
    return {action: kinds[number] for action, number in KIND_OF.items()}


def _updates(merge: Merge) -> tuple[Any, ...]:
    return tuple(rule for rule in merge.rules if rule.action is Action.UPDATE)
