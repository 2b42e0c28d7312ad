"""Laws of what lies below a null: whatever it is, the rows that can be seen come back, in every format.

Arrow lets any value stand below a null ROW and inside a null ARRAY. Here something stands there in most cases.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.file_samples import read, write
from tidelake.files.hidden import clear_hidden_values
from tidelake.files.options import FORMATS
from tidelake.files.parquet.types import parquet_schema
from tidelake.spec.types.arrow_types import row_to_arrow, to_arrow
from tidelake.spec.types.data_types import DataType, ElementType, Field, Root, RowType, with_nullable
from tidelake.spec.types.type_codec import number_nested, parse_type

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
ATOMS: dict[str, list[Any]] = {
    "INT": [0, -1, 2**31 - 1],
    "STRING": ["", "é", "text"],
    "BOOLEAN": [True, False],
    "DECIMAL(20, 3)": [Decimal("-1.500"), Decimal("0.001")],
    "TIMESTAMP(6)": [0, 1_700_000_000_000_001],
}

atoms = st.builds(with_nullable, st.sampled_from(list(ATOMS)).map(parse_type), st.booleans())


def containers(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    members = st.lists(inner, min_size=1, max_size=3).map(
        lambda types: tuple(Field(0, f"m{index}", dtype) for index, dtype in enumerate(types))
    )
    lists = st.builds(ElementType, st.just(Root.ARRAY), st.booleans(), inner)
    return lists | st.builds(RowType, nullable=st.booleans(), fields=members)


types = st.recursive(atoms, containers, max_leaves=5)


def bits(valid: np.ndarray) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def draw_array(draw: st.DrawFn, dtype: DataType, count: int) -> pa.Array:
    """Values for every place, and then nulls on top of some of them."""
    target = to_arrow(dtype)
    valid = np.ones(count, bool)
    if dtype.nullable and count:
        valid = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    match dtype:
        case RowType(fields=fields):
            members = [draw_array(draw, field.type, count) for field in fields]
            return pa.StructArray.from_arrays(members, fields=list(target), mask=pa.array(~valid))
        case ElementType(element=element):
            lengths = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
            offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
            items = draw_array(draw, element, int(offsets[-1]))
            return pa.Array.from_buffers(target, count, [bits(valid), pa.py_buffer(offsets)], -1, children=[items])
    known = ATOMS[str(with_nullable(dtype, True))]
    values = pa.array(draw(st.lists(st.sampled_from(known), min_size=count, max_size=count)), target)
    return pa.Array.from_buffers(target, count, [bits(valid), *values.buffers()[1:]], -1)


@st.composite
def columns(draw: st.DrawFn) -> tuple[tuple[Field, ...], pa.RecordBatch]:
    dtype, _ = number_nested(draw(types), 1)
    fields = (Field(0, "c", dtype),)
    batch = pa.RecordBatch.from_arrays([draw_array(draw, dtype, draw(st.integers(1, 8)))], schema=row_to_arrow(fields))
    start = draw(st.integers(0, batch.num_rows - 1))
    return fields, batch.slice(start)


@FEW
@given(columns(), st.sampled_from(FORMATS))
def test_what_can_be_seen_comes_back_whatever_is_hidden(drawn: Any, kind: str) -> None:
    fields, batch = drawn
    io, path, _ = write(batch, fields, kind)
    found = read(io, path, fields)
    found.validate(full=True)
    assert found.to_pylist() == batch.to_pylist()


@FEW
@given(columns())
def test_settling_changes_nothing_that_can_be_seen_and_settles_once(drawn: Any) -> None:
    fields, batch = drawn
    field = parquet_schema(fields).field(0)
    once = clear_hidden_values(batch.column(0), field)
    once.validate(full=True)
    assert once.to_pylist() == batch.column(0).to_pylist()
    assert clear_hidden_values(once, field).equals(once)
    assert_required(once, field)


def assert_required(array: pa.Array, field: pa.Field) -> None:
    """What is declared NOT NULL has no null, hidden ones included."""
    assert field.nullable or array.null_count == 0
    if pa.types.is_struct(array.type):
        for index in range(array.type.num_fields):
            assert_required(array.field(index), field.type.field(index))
    elif pa.types.is_list(array.type):
        assert_required(array.flatten(), field.type.value_field)
