"""The source of a merge: its columns as expressions see them, and questions about all of its rows."""

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

from tidelake.engines.spark.bridge.conditions import column_named
from tidelake.engines.spark.bridge.types import from_spark, to_spark
from tidelake.engines.spark.merge.tasks import HasMatch, ListPartitionValues
from tidelake.errors import InvalidInputError
from tidelake.expr.coerce import INTEGERS
from tidelake.expr.evaluate import evaluate_scalar
from tidelake.expr.node import Scalar
from tidelake.expr.scalar import ColumnRef
from tidelake.expr.sides import SOURCE, column_of, full_name, of_target
from tidelake.expr.tree import And, Predicate
from tidelake.ops.change.merge_join import LISTED, Columns, between, prunes, within
from tidelake.ops.change.merge_rules import Merge
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import STRING, Field, Root


def source_fields(frame: DataFrame, schema: Schema) -> tuple[Field, ...]:
    """The columns of a frame as expressions see them.

    Raises:
        InvalidInputError: two columns have the same name, or the table format does not have the type of one.
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
            dtype = own  # Spark has milliseconds of the day for TIME
        else:
            try:
                dtype = from_spark(each.dataType)
            except InvalidInputError as error:
                error.facts.setdefault("column", each.name)
                raise
        found.append(Field(number, each.name, dtype))
    return tuple(found)


def with_null_types(frame: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """Give a type to columns of Spark's type VOID, which hold only nulls."""
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
def keep_frame(frame: DataFrame) -> Iterator[DataFrame]:
    """Persist a frame while several jobs read it, unless the user has persisted it already."""
    if frame.storageLevel != StorageLevel.NONE:
        yield frame
        return
    kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept
    finally:
        with suppress(Exception):  # the merge may be committed already, and must not fail now
            kept.unpersist()


class Source:
    """The rows of the source, and questions about all of them."""

    def __init__(
        self, frame: DataFrame, fields: tuple[Field, ...], merge: Merge, schema: Schema, *, listed: bool = False
    ) -> None:
        """Prepare the questions that the merge condition raises.

        Args:
            frame: The rows.
            fields: Their columns.
            merge: The merge.
            schema: That of the target.
            listed: Whether to list the values of partition columns, as a merge in process does, instead of their range.
        """
        self.frame = frame
        self.fields = fields
        self.merge = merge
        self._schema = schema
        self._joined_columns = tuple(dict(_joined_columns(merge, fields, schema)).items())
        self._keys = tuple(_partitions(merge, fields, schema)) if listed else ()

    @property
    def session(self) -> SparkSession:
        """The session of the frame."""
        return self.frame.sparkSession

    @cached_property
    def facts(self) -> Sequence[Any]:
        """The number of rows, of values of each column that are not null, and the minimum and maximum of keys."""
        asked: list[Column] = [f.count(f.lit(1))]
        asked += [f.count(column_named(each.name)) for each in self.fields]
        for _, name in self._joined_columns:
            asked += [f.min(column_named(name)), f.max(column_named(name))]
        return list(self.frame.agg(*(each.alias(str(number)) for number, each in enumerate(asked))).collect()[0])

    @property
    def count(self) -> int:
        """The number of rows."""
        return int(self.facts[0])

    def has_nulls(self, column: str) -> bool:
        """Whether a column holds a null."""
        index = next(number for number, each in enumerate(self.fields) if each.name == column)
        return bool(self.facts[1 + index] < self.count)

    def reach(self, schema: Schema) -> Predicate | None:
        """A condition that every target row with a matching source row satisfies; None if there is none."""
        parts: list[Predicate] = []
        if self.merge.join.about_target is not None:
            parts.append(of_target(self.merge.join.about_target))
        if self._joined_columns:
            ranges = self.facts[1 + len(self.fields) :]
            for number, (column, _) in enumerate(self._joined_columns):
                parts += between(schema, column, ranges[2 * number], ranges[2 * number + 1])
        parts += self._partition_conditions
        return None if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))

    @cached_property
    def _partition_conditions(self) -> Sequence[Predicate]:
        """Conditions on partition columns: one of the source's values, or a range if there are very many of these."""
        if not self._keys:
            return ()
        task = ListPartitionValues(tuple((key, dtype) for _, key, dtype in self._keys), self.fields)
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
        """Whether one of these target rows matches a source row."""
        if not count:
            return False
        sink = pa.BufferOutputStream()
        rows = pa.RecordBatch.from_pydict(dict(columns))
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write(rows)
        look = HasMatch(self.merge, self.fields, sink.getvalue().to_pybytes())
        return bool(self.frame.mapInArrow(look.run, "met boolean").filter("met").limit(1).count())


def _joined_columns(merge: Merge, fields: Sequence[Field], schema: Schema) -> Iterator[tuple[str, str]]:
    """Columns of the table that the condition equates with a source column whose value range prunes the table."""
    types = {each.name: to_arrow(each.type) for each in fields}
    for each in merge.join.equals:
        if isinstance(each.target, ColumnRef) and isinstance(each.source, ColumnRef) and not each.nulls:
            column, partner = column_of(each.target.column), column_of(each.source.column)
            if prunes(schema, column, types[partner]):
                yield column, partner


def _partitions(merge: Merge, fields: Sequence[Field], schema: Schema) -> Iterator[tuple[str, Scalar, pa.DataType]]:
    """Partition columns that the condition equates with an expression over the source, and the type of its values."""
    none = {full_name(SOURCE, each.name): pa.nulls(0, to_arrow(each.type)) for each in fields}
    for each in merge.join.equals:
        if isinstance(each.target, ColumnRef) and not each.nulls:
            column = column_of(each.target.column)
            dtype = evaluate_scalar(each.source, none, 0).type
            if column in schema.partition_keys and prunes(schema, column, dtype):
                yield column, each.source, pa.int64() if dtype in INTEGERS else dtype
