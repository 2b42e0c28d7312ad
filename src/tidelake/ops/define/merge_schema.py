"""Add columns, or widen their types, when rows are written that need it (`write.merge-schema`).

New columns, also those inside a ROW, are added at the end and are nullable. The type of an existing column changes only
if the options allow it and the new rows need it: values that the column can already store do not change it. The types
of keys never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.ops.write.kinds import ROWKIND
from tidelake.ops.write.rows import arrow_batches
from tidelake.options import Affects, OptionGroup, TableOptions, option
from tidelake.spec.casts.casts import CastRule, cast_rule
from tidelake.spec.schemas.evolution import AddColumn, Change, UpdateType
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import from_arrow
from tidelake.spec.types.data_types import DataType, ElementType, Field, MapType, RowType, with_nullable

_WRITE = (Affects.WRITE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSchemaOptions(OptionGroup):
    """What a write may change about the schema."""

    merge: bool = option(
        "write.merge-schema", False, doc="Add columns of the data that the table does not have.", affects=_WRITE
    )
    widen: bool = option(
        "write.merge-schema.type-widening",
        False,
        doc="Also give a column the type of the data if that can store all its values.",
        affects=_WRITE,
    )
    cast: bool = option(
        "write.merge-schema.explicit-cast",
        False,
        doc="Also give a column the type of the data if values may be lost.",
        affects=_WRITE,
    )


def plan_merge(schema: Schema, fields: Sequence[Field], options: TableOptions) -> tuple[Change, ...]:
    """The schema changes that rows with these columns need; none if the options allow none.

    Args:
        schema: The table's schema.
        fields: The columns of the rows.
        options: The options in force.

    Raises:
        InvalidInputError: an option has a wrong value.
    """
    chosen = options.of(MergeSchemaOptions)
    if not chosen.merge:
        return ()
    keys = {*schema.primary_keys, *schema.partition_keys, *schema.bucket_keys}
    found: list[Change] = []
    _row((), schema.fields, fields, chosen, keys, found)
    return tuple(found)


def typed_rows(data: Any, schema: Schema, row_kind: str | None = None) -> tuple[Any, tuple[Field, ...]]:
    """Rows in any form with their columns, without the column of row kinds; untyped values get the table's types.

    Raises:
        InvalidInputError: the data does not consist of rows, or values of a column have different types.
    """
    if not isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        tables = [pa.Table.from_batches([batch]) for batch in arrow_batches(data, schema)]
        if not tables:
            return (), ()
        try:
            data = pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException as cause:
            raise InvalidInputError(
                "batches of the data do not fit together",
                code="schema-mismatch",
                cause=str(cause).splitlines()[0][:200],
                hint="give all batches the same columns and types",
            ) from cause
    kind = row_kind or ROWKIND
    given = [each for each in data.schema if each.name != kind or each.name in schema.names]
    typed = [each for each in given if not pa.types.is_null(each.type)]
    return data, tuple(Field(number, each.name, from_arrow(each.type, True)) for number, each in enumerate(typed))


def _row(
    path: tuple[str, ...],
    known: Sequence[Field],
    given: Sequence[Field],
    chosen: MergeSchemaOptions,
    fixed: set[str],
    found: list[Change],
) -> None:
    there = {field.name: field for field in known}
    for field in given:
        if field.name not in there:
            found.append(AddColumn((*path, field.name), with_nullable(field.type, True)))
        elif path or field.name not in fixed:
            _type((*path, field.name), there[field.name].type, field.type, chosen, found)


def _type(
    path: tuple[str, ...], known: DataType, given: DataType, chosen: MergeSchemaOptions, found: list[Change]
) -> None:
    match known, given:
        case RowType(fields=ours), RowType(fields=theirs):
            return _row(path, ours, theirs, chosen, set(), found)
        case ElementType(element=ours), ElementType(element=theirs) if known.root is given.root:
            return _type((*path, "element"), ours, theirs, chosen, found)
        case MapType(key=our_key, value=ours), MapType(key=their_key, value=theirs):
            _type((*path, "key"), our_key, their_key, chosen, found)
            return _type((*path, "value"), ours, theirs, chosen, found)
    if cast_rule(given, known) in (CastRule.IDENTITY, CastRule.IMPLICIT):
        return None
    rule = cast_rule(known, given)
    if (chosen.widen and rule is CastRule.IMPLICIT) or (chosen.cast and rule is CastRule.EXPLICIT):
        found.append(UpdateType(path, given, keep_nullability=True))
    return None
