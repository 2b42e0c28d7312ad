"""Laws of data files, over types and values drawn at random.

What is written comes back; a filter while reading keeps what a filter afterwards keeps; reading with other columns is
choosing columns of what was read; statistics are bounds.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.file_samples import make_batch, read, same_table, write
from tidelake.expr import And, Compare, In, IsNull, Not, Or, Predicate
from tidelake.expr.evaluate import matches
from tidelake.files.options import FORMATS
from tidelake.spec.types.data_types import (
    DataType,
    DecimalType,
    ElementType,
    Field,
    LengthType,
    MapType,
    Root,
    RowType,
    TimeType,
)
from tidelake.spec.types.type_codec import number_nested, parse_type

ATOMS = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "CHAR(4)", "VARCHAR(6)", "STRING", "BYTES",
    "DECIMAL(9, 2)", "DECIMAL(18, 4)", "DECIMAL(38, 6)", "DATE", "TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(6)",
    "TIMESTAMP(3) WITH LOCAL TIME ZONE",
]  # fmt: skip
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

nullable = st.booleans()
atoms = st.sampled_from(ATOMS).map(parse_type)


def containers(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    members = st.lists(inner, min_size=1, max_size=3).map(
        lambda types: RowType(fields=tuple(Field(0, f"m{index}", dtype) for index, dtype in enumerate(types)))
    )
    keys = st.sampled_from(["STRING NOT NULL", "INT NOT NULL", "DATE NOT NULL"]).map(parse_type)
    return st.one_of(
        inner.map(lambda element: ElementType(Root.ARRAY, True, element)),
        st.builds(MapType, key=keys, value=inner),
        members,
    )


types = st.recursive(atoms, containers, max_leaves=4)


def values(dtype: DataType) -> st.SearchStrategy[Any]:
    """Values of a type as Arrow takes them; moments of which every format keeps all."""
    match dtype:
        case ElementType(element=element):
            return st.lists(optional(element), max_size=3)
        case MapType(key=key, value=value):
            return st.lists(st.tuples(values(key), optional(value)), max_size=3, unique_by=lambda entry: entry[0])
        case RowType(fields=fields):
            return st.fixed_dictionaries({field.name: optional(field.type) for field in fields})
        case DecimalType(precision=precision, scale=scale):
            bound = 10**precision - 1
            return st.integers(-bound, bound).map(lambda unscaled: Decimal(f"{unscaled}E-{scale}"))
        case TimeType(root=Root.TIME):
            return st.integers(0, 86_399_999)
        case TimeType(precision=precision):
            unit = 1 if precision <= 3 else 1000
            return st.integers(-(10**12), 10**12).map(lambda millis: millis * unit)
        case LengthType(root=Root.CHAR | Root.VARCHAR, length=length):
            # ORC forgets blanks at the end of a CHAR.
            text = st.text(st.characters(exclude_categories=("Cs",)), max_size=min(length, 8))
            return text.map(lambda value: value.rstrip(" ")) if dtype.root is Root.CHAR else text
        case LengthType():
            return st.binary(max_size=8)
    bits = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}
    if dtype.root in bits:
        bound = 1 << (bits[dtype.root] - 1)
        return st.integers(-bound, bound - 1)
    if dtype.root is Root.BOOLEAN:
        return st.booleans()
    if dtype.root is Root.DATE:
        return st.integers(-719_162, 2_932_896)
    return st.floats(width=32 if dtype.root is Root.FLOAT else 64)


def optional(dtype: DataType) -> st.SearchStrategy[Any]:
    return st.none() | values(dtype)


@st.composite
def tables(
    draw: st.DrawFn, kinds: st.SearchStrategy[DataType] = types
) -> tuple[tuple[Field, ...], list[pa.RecordBatch]]:
    fields, free = [], 0
    for index in range(draw(st.integers(1, 3))):
        dtype, after = number_nested(draw(kinds), free + 1)
        fields.append(Field(free, f"c{index}", dtype))
        free = after
    row = st.fixed_dictionaries({field.name: optional(field.type) for field in fields})
    parts = draw(st.lists(st.lists(row, min_size=1, max_size=8), min_size=1, max_size=3))
    return tuple(fields), [make_batch(part, fields) for part in parts]


@FEW
@given(tables(), st.sampled_from(FORMATS), st.booleans())
def test_what_is_written_comes_back(drawn: Any, kind: str, flush: bool) -> None:
    fields, batches = drawn
    io, path, written = write(batches, fields, kind, flush=flush)
    whole = pa.Table.from_batches(batches).combine_chunks()
    assert written.row_count == whole.num_rows
    assert same_table(read(io, path, fields), whole)


@FEW
@given(tables(), st.sampled_from(FORMATS), st.data())
def test_reading_some_columns_is_choosing_among_all(drawn: Any, kind: str, data: st.DataObject) -> None:
    fields, batches = drawn
    io, path, _ = write(batches, fields, kind, flush=True)
    chosen = data.draw(st.lists(st.sampled_from(fields), unique=True, max_size=3))
    everything = read(io, path, fields)
    if chosen:
        assert same_table(read(io, path, fields, chosen), everything.select([field.name for field in chosen]))


@FEW
@given(tables(atoms), st.sampled_from(FORMATS), st.data())
def test_a_filter_while_reading_keeps_what_a_filter_afterwards_keeps(
    drawn: Any, kind: str, data: st.DataObject
) -> None:
    fields, batches = drawn
    io, path, _ = write(batches, fields, kind, flush=True)
    everything = read(io, path, fields)
    where = data.draw(predicates(fields, everything))
    columns = {name: everything[name].combine_chunks() for name in where.columns()}
    keep = matches(where, columns, everything.num_rows)
    expected = everything.filter(keep)
    assert same_table(read(io, path, fields, where=where), expected.combine_chunks())
    alone = read(io, path, fields, fields[:1], where=where)
    assert same_table(alone, expected.select([fields[0].name]).combine_chunks())


def predicates(fields: tuple[Field, ...], table: pa.Table) -> st.SearchStrategy[Predicate]:
    """Comparisons with values that occur, and with others near them."""

    def constants(field: Field) -> st.SearchStrategy[Any]:
        known = [scalar for scalar in table[field.name] if scalar.is_valid]
        drawn = values(field.type).map(lambda value: pa.scalar(value, table.schema.field(field.name).type))
        return (
            (st.sampled_from(known) | drawn).map(lambda scalar: python_value(scalar))
            if known
            else drawn.map(python_value)
        )

    leaves = st.sampled_from(fields).flatmap(
        lambda field: st.one_of(
            st.builds(
                Compare, st.just(field.name), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), constants(field)
            ),
            st.builds(In, st.just(field.name), st.lists(constants(field), min_size=1, max_size=3).map(tuple)),
            st.just(IsNull(field.name)),
        )
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(Not, inner), st.builds(And, st.tuples(inner, inner)), st.builds(Or, st.tuples(inner, inner))
        ),
        max_leaves=4,
    )


def python_value(scalar: pa.Scalar) -> Any:
    value = scalar.as_py()
    return value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo else value


@FEW
@given(tables(atoms), st.sampled_from(FORMATS), st.sampled_from(["full", "truncate(2)"]))
def test_statistics_are_bounds_and_count_the_nulls(drawn: Any, kind: str, mode: str) -> None:
    fields, batches = drawn
    _, _, written = write(batches, fields, kind, {"metadata.stats-mode": mode}, flush=True)
    whole = pa.Table.from_batches(batches)
    for field, stats in zip(fields, written.columns, strict=True):
        column = whole[field.name]
        assert stats.null_count == column.null_count
        if stats.min is None:
            continue
        for scalar in column:
            if scalar.is_valid:
                value = internal(scalar, field.type)
                assert stats.min <= value <= stats.max


def internal(scalar: pa.Scalar, dtype: DataType) -> Any:
    if isinstance(dtype, TimeType) and dtype.root is not Root.TIME:
        per_milli = {"ms": 1, "us": 1000, "ns": 1_000_000}[scalar.type.unit]
        millis, rest = divmod(scalar.value, per_milli)
        return millis, rest * (1_000_000 // per_milli)
    return scalar.value if dtype.root in (Root.DATE, Root.TIME) else scalar.as_py()
