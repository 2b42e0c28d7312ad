"""The frame that is merged into a table: its columns as expressions know them, and what is asked about all its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark_types

from tidelake.engines.spark.conditions import column_named
from tidelake.engines.spark.merge_tasks import Listed, Meets
from tidelake.engines.spark.types import from_spark, to_spark
from tidelake.errors import InvalidInputError
from tidelake.expr.coerce import INTEGERS
from tidelake.expr.evaluate import evaluate_scalar
from tidelake.expr.node import Scalar
from tidelake.expr.scalar import ColumnRef
from tidelake.expr.sides import SOURCE, column_of, full_name, of_target
from tidelake.expr.tree import And, Predicate
from tidelake.ops.write.merge_join import LISTED, Columns, between, prunes, within
from tidelake.ops.write.merge_rules import Merge
from tidelake.spec.arrow_types import to_arrow
from tidelake.spec.schema import Schema
from tidelake.spec.types import STRING, Field, Root


def source_fields(frame: DataFrame, schema: Schema) -> tuple[Field, ...]:
    """The columns of a frame as expressions know them.

    Raises:
        InvalidInputError: a column is there twice, or of a type that no table could hold.
    """
    names = frame.columns
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(
            "data has a column twice", code="column-duplicate", column=twice, hint="rename or drop one of the two"
        )
    known = {each.name: each.type for each in schema.fields}
    found = []
    for number, each in enumerate(frame.schema.fields):
        own = known.get(each.name)
        if isinstance(each.dataType, spark_types.NullType):
            dtype = STRING if own is None else own
        elif own is not None and own.root is Root.TIME and isinstance(each.dataType, spark_types.IntegerType):
            dtype = own  # Spark sees the milliseconds of the day
        else:
            try:
                dtype = from_spark(each.dataType)
            except InvalidInputError as error:
                error.facts.setdefault("column", each.name)
                raise
        found.append(Field(number, each.name, dtype))
    return tuple(found)


def typed(frame: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """The frame with a type for columns that hold nothing but nulls."""
    bare = [isinstance(each.dataType, spark_types.NullType) for each in frame.schema.fields]
    if not any(bare):
        return frame
    return frame.select(
        *(
            f.lit(None).cast(to_spark(each.type)).alias(each.name) if empty else column_named(each.name)
            for each, empty in zip(fields, bare, strict=True)
        )
    )


@contextmanager
def kept_while(frame: DataFrame) -> Iterator[DataFrame]:
    """The frame, computed once for all jobs that look at it."""
    if frame.storageLevel != StorageLevel.NONE:
        yield frame
        return
    kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept
    finally:
        with suppress(Exception):  # what was done with it may be committed, and must not look failed
            kept.unpersist()


class Source:
    """The rows of the source, and what is asked about them as a whole."""

    def __init__(
        self, frame: DataFrame, fields: tuple[Field, ...], merge: Merge, schema: Schema, *, listed: bool = False
    ) -> None:
        """Look at the condition; `listed` tells whether the partitions in reach have to be known as in process."""
        self.frame = frame
        self.fields = fields
        self.merge = merge
        self._schema = schema
        self._ranged = tuple(dict(_ranged(merge, fields, schema)).items())
        self._keys = tuple(_partitions(merge, fields, schema)) if listed else ()

    @property
    def session(self) -> SparkSession:
        """The session of the frame."""
        return self.frame.sparkSession

    @cached_property
    def facts(self) -> Sequence[Any]:
        """How many rows there are, how many of each column are not null, and between what values keys lie."""
        asked: list[Column] = [f.count(f.lit(1))]
        asked += [f.count(column_named(each.name)) for each in self.fields]
        for _, name in self._ranged:
            asked += [f.min(column_named(name)), f.max(column_named(name))]
        return list(self.frame.agg(*(each.alias(str(number)) for number, each in enumerate(asked))).collect()[0])

    @property
    def count(self) -> int:
        """How many rows there are."""
        return int(self.facts[0])

    def has_nulls(self, column: str) -> bool:
        """Whether a column holds a null."""
        place = next(number for number, each in enumerate(self.fields) if each.name == column)
        return bool(self.facts[1 + place] < self.count)

    def reach(self, schema: Schema) -> Predicate | None:
        """A condition that every target row with a partner fulfils; None if nothing is known."""
        parts: list[Predicate] = []
        if self.merge.join.about_target is not None:
            parts.append(of_target(self.merge.join.about_target))
        if self._ranged:
            ranges = self.facts[1 + len(self.fields) :]
            for number, (column, _) in enumerate(self._ranged):
                parts += between(schema, column, ranges[2 * number], ranges[2 * number + 1])
        parts += self._listed
        return None if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))

    @cached_property
    def _listed(self) -> Sequence[Predicate]:
        """That partition columns have one of the values that they are equal to, or lie between very many."""
        if not self._keys:
            return ()
        task = Listed(tuple((key, dtype) for _, key, dtype in self._keys), self.fields)
        rows = self.frame.mapInArrow(task.run, task.struct)
        found: list[Predicate] = []
        for number, (column, _, dtype) in enumerate(self._keys):
            values = rows.select(f.col(str(number)).alias("value")).dropna().distinct()
            few = [row.value for row in values.limit(LISTED + 1).collect()]
            if len(few) > LISTED:
                found += between(self._schema, column, *values.agg(f.min("value"), f.max("value")).collect()[0])
            else:
                found += within(self._schema, column, pa.array(few, dtype))
        return found

    def meets(self, columns: Columns, count: int) -> bool:
        """Whether one of these target rows has a partner."""
        if not count:
            return False
        sink = pa.BufferOutputStream()
        rows = pa.RecordBatch.from_pydict(dict(columns))
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write(rows)
        look = Meets(self.merge, self.fields, sink.getvalue().to_pybytes())
        return bool(self.frame.mapInArrow(look.run, "met boolean").filter("met").limit(1).count())


def _ranged(merge: Merge, fields: Sequence[Field], schema: Schema) -> Iterator[tuple[str, str]]:
    """Columns of the table that are equal to a column of the source, where the range of the one prunes the other."""
    types = {each.name: to_arrow(each.type) for each in fields}
    for each in merge.join.equals:
        if isinstance(each.target, ColumnRef) and isinstance(each.source, ColumnRef) and not each.nulls:
            column, partner = column_of(each.target.column), column_of(each.source.column)
            if prunes(schema, column, types[partner]):
                yield column, partner


def _partitions(merge: Merge, fields: Sequence[Field], schema: Schema) -> Iterator[tuple[str, Scalar, pa.DataType]]:
    """Partition columns that are equal to something of the source, and the type to list its values in."""
    none = {full_name(SOURCE, each.name): pa.nulls(0, to_arrow(each.type)) for each in fields}
    for each in merge.join.equals:
        if isinstance(each.target, ColumnRef) and not each.nulls:
            column = column_of(each.target.column)
            dtype = evaluate_scalar(each.source, none, 0).type
            if column in schema.partition_keys and prunes(schema, column, dtype):
                yield column, each.source, pa.int64() if dtype in INTEGERS else dtype
