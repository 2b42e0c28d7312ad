"""The reading half of the data source: planned once on the driver, splits packed into tasks, Arrow batches out.

A filter is taken over only where it means here exactly what it means to Spark; the others are left to Spark. Invariant:
the rows are those that Spark would have kept, whichever filters are taken.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.sql import datasource as ds
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelake.engines.spark.remote import TableRef
from tidelake.engines.spark.tasks import balanced
from tidelake.engines.spark.types import from_spark, spark_arrow, to_spark, to_spark_batch
from tidelake.errors import InvalidInputError
from tidelake.expr.tree import And, Compare, In, IsNull, Not, Predicate, StartsWith
from tidelake.ops.read.rows import read_rows
from tidelake.ops.scan.planner import conjunction
from tidelake.spec.schema import Schema
from tidelake.spec.types import DataType, Root
from tidelake.table import Table

_OPERATORS: Final[Mapping[type[ds.Filter], str]] = {
    ds.EqualTo: "=",
    ds.LessThan: "<",
    ds.LessThanOrEqual: "<=",
    ds.GreaterThan: ">",
    ds.GreaterThanOrEqual: ">=",
}
_INTEGERS: Final = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}
_TEXTS: Final = frozenset({Root.CHAR, Root.VARCHAR})


@dataclass(slots=True)
class TableReader(DataSourceReader):
    """Reads columns of a table; every task takes some of the splits that were planned."""

    ref: TableRef
    struct: spark.StructType
    tasks: int | None
    where: Predicate | None = None

    @classmethod
    def of(cls, table: Table, struct: spark.StructType, tasks: int | None, where: str | None = None) -> Self:
        """A reader of columns that the table has, and of the rows that a condition keeps.

        Raises:
            InvalidInputError: no other process can reach the storage, or the condition cannot be understood.
        """
        ref = TableRef.of(table.name, table.store, table.dynamic)
        return cls(ref, struct, tasks, table.scan(where=where).where)

    def partitions(self) -> list[InputPartition]:
        """The splits of the newest snapshot, or of the one that the options name, packed by weight."""
        splits = self.ref.open().scan(self.struct.names, self.where).splits()
        bins = balanced(splits, lambda split: split.size, self.tasks or os.cpu_count() or 1)
        return [InputPartition(each) for each in bins if each]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the splits of one task."""
        table = self.ref.open()
        request = table.scan(self.struct.names, self.where).request()
        target = arrow_schema(self.struct)
        for rows in read_rows(table.store, partition.value or (), request, table.options):
            batch = to_spark_batch(rows, request.fields)
            columns = (column.cast(field.type) for column, field in zip(batch.columns, target, strict=True))
            yield pa.RecordBatch.from_arrays(list(columns), schema=target)


class PushingReader(TableReader):
    """The same with filters of Spark."""

    __slots__ = ()

    def pushFilters(self, filters: list[ds.Filter]) -> Iterable[ds.Filter]:  # noqa: N802 - PySpark's name
        """Take over the filters that mean the same here, and give the others back."""
        types = {field.name: field.type for field in self.ref.schema.fields}
        taken: list[Predicate] = []
        left: list[ds.Filter] = []
        for each in filters:
            found = to_predicate(each, types)
            if found is None:
                left.append(each)
            else:
                taken.append(found)
        if taken:
            self.where = conjunction(self.where, And(tuple(taken)))
        return left


def to_predicate(condition: ds.Filter, types: Mapping[str, DataType]) -> Predicate | None:
    """The condition that keeps exactly the rows that a filter of Spark keeps; None where there is none."""
    if isinstance(condition, ds.Not):
        inner = to_predicate(condition.child, types)
        return None if inner is None else Not(inner)
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(path) != 1 or path[0] not in types:
        return None
    name, dtype = path[0], types[path[0]]
    match condition:
        case ds.IsNull():
            return IsNull(name)
        case ds.IsNotNull():
            return Not(IsNull(name))
        case ds.StringStartsWith(value=prefix) if dtype.root in _TEXTS:
            return StartsWith(name, prefix)
        case ds.In(value=values) if values and all(_is_exact(value, dtype) for value in values):
            return In(name, tuple(values))
        case ds.EqualNullSafe(value=None):
            return IsNull(name)
        case ds.EqualNullSafe(value=value) if _is_exact(value, dtype):
            # Never null itself, so that its negation keeps the rows without a value, as Spark's does.
            return And((Not(IsNull(name)), Compare(name, "=", value)))
    op = _OPERATORS.get(type(condition))
    if op is None or not _is_exact(getattr(condition, "value", None), dtype):
        return None
    return Compare(name, op, condition.value)  # type: ignore[attr-defined]


def _is_exact(value: Any, dtype: DataType) -> bool:
    """Whether a value compares with a column of this type without a conversion, here and in Spark."""
    root = dtype.root
    if isinstance(value, bool) or root is Root.BOOLEAN:
        return isinstance(value, bool) and root is Root.BOOLEAN
    if root in _INTEGERS:
        limit = 1 << (_INTEGERS[root] - 1)
        return isinstance(value, int) and -limit <= value < limit
    if root is Root.DOUBLE:
        return isinstance(value, float)
    if root is Root.DECIMAL:
        return isinstance(value, Decimal) and value.is_finite()
    if root in _TEXTS:
        return isinstance(value, str)
    if root is Root.DATE:
        return isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    return False


def check_struct(struct: spark.StructType, schema: Schema) -> None:
    """Compare columns that Spark asks for, or remembers, with those that the table has.

    Raises:
        InvalidInputError: one is not there or is of another type, or none is asked for.
    """
    known = {field.name: field for field in schema.fields}
    if not struct.fields:
        raise InvalidInputError("read at least one column", hint="leave the schema out to read all of them")
    for column in struct.fields:
        field = known.get(column.name)
        if field is None:
            raise InvalidInputError(
                "table does not have a column of the schema that Spark reads it with",
                code="schema-mismatch",
                column=column.name,
                hint=f"columns are {', '.join(known)}; change them with alter() of the table, not with Spark's ALTER",
            )
        wanted, there = column.dataType.simpleString(), to_spark(field.type).simpleString()
        if wanted != there:
            raise InvalidInputError(
                "column is of another type than the schema that Spark reads it with",
                code="schema-mismatch",
                column=column.name,
                type=there,
                given=wanted,
                hint="leave the schema out, and cast the column afterwards",
            )


def loose(dtype: spark.DataType) -> spark.DataType:
    """The same type whose members may be null: where the whole is null, Arrow has no value for a member either."""
    match dtype:
        case spark.ArrayType():
            return spark.ArrayType(loose(dtype.elementType), containsNull=True)
        case spark.MapType():
            return spark.MapType(loose(dtype.keyType), loose(dtype.valueType), valueContainsNull=True)
        case spark.StructType():
            return spark.StructType([spark.StructField(f.name, loose(f.dataType), True, f.metadata) for f in dtype])
    return dtype


def arrow_schema(struct: spark.StructType) -> pa.Schema:
    """The Arrow schema in which Spark passes these columns, nullability of members included."""
    return pa.schema([_arrow_field(each.name, each.dataType, each.nullable) for each in struct.fields])


def _arrow_field(name: str, dtype: spark.DataType, nullable: bool) -> pa.Field:
    return pa.field(name, _arrow_type(dtype), nullable)


def _arrow_type(dtype: spark.DataType) -> pa.DataType:
    match dtype:
        case spark.ArrayType():
            return pa.list_(_arrow_field("element", dtype.elementType, dtype.containsNull))
        case spark.MapType():
            key = _arrow_field("key", dtype.keyType, nullable=False)
            return pa.map_(key, _arrow_field("value", dtype.valueType, dtype.valueContainsNull))
        case spark.StructType():
            return pa.struct(list(arrow_schema(dtype)))
    return spark_arrow(from_spark(dtype))
