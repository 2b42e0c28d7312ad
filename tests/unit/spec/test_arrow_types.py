from __future__ import annotations

import pyarrow as pa
import pytest

from tidelake.errors import InvalidInputError
from tidelake.spec.types.arrow_types import arrow_field, from_arrow, row_to_arrow, to_arrow
from tidelake.spec.types.data_types import (
    BIGINT,
    BLOB,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TINYINT,
    VARIANT,
    DataType,
    DecimalType,
    ElementType,
    Field,
    GeoType,
    LengthType,
    MapType,
    Root,
    RowType,
    TimeType,
    VectorType,
    with_nullable,
)


def array(element: DataType) -> ElementType:
    return ElementType(Root.ARRAY, element=element)


CANONICAL = [
    (BOOLEAN, pa.bool_()),
    (TINYINT, pa.int8()),
    (SMALLINT, pa.int16()),
    (INT, pa.int32()),
    (BIGINT, pa.int64()),
    (FLOAT, pa.float32()),
    (DOUBLE, pa.float64()),
    (DATE, pa.date32()),
    (STRING, pa.string()),
    (LengthType(Root.CHAR, length=5), pa.string()),
    (LengthType(Root.VARCHAR, length=5), pa.string()),
    (LengthType(Root.BINARY, length=3), pa.binary()),
    (BYTES, pa.binary()),
    (BLOB, pa.binary()),
    (GeoType(Root.GEOMETRY), pa.binary()),
    (GeoType(Root.GEOGRAPHY, algorithm="spherical"), pa.binary()),
    (DecimalType(precision=9, scale=2), pa.decimal128(9, 2)),
    (DecimalType(precision=38, scale=38), pa.decimal128(38, 38)),
    *[(TimeType(Root.TIME, precision=p), pa.time32("ms")) for p in range(10)],
    *[
        (TimeType(Root.TIMESTAMP, precision=p), pa.timestamp(u))
        for p, u in enumerate(["ms"] * 4 + ["us"] * 3 + ["ns"] * 3)
    ],
    *[
        (TimeType(Root.TIMESTAMP_LTZ, precision=p), pa.timestamp(u, tz="UTC"))
        for p, u in enumerate(["ms"] * 4 + ["us"] * 3 + ["ns"] * 3)
    ],
    (array(with_nullable(INT, False)), pa.list_(pa.field("element", pa.int32(), nullable=False))),
    (array(array(STRING)), pa.list_(pa.field("element", pa.list_(pa.field("element", pa.string()))))),
    (MapType(key=STRING, value=INT), pa.map_(pa.string(), pa.int32())),
    (
        MapType(key=STRING, value=with_nullable(INT, False)),
        pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
    ),
    (
        ElementType(Root.MULTISET, element=STRING),
        pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
    ),
    (VectorType(element=FLOAT, length=4), pa.list_(pa.field("element", pa.float32()), 4)),
    (
        VARIANT,
        pa.struct([pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False)]),
    ),
    (
        RowType(fields=(Field(3, "a", with_nullable(INT, False)), Field(4, "b", STRING))),
        pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())]),
    ),
]


@pytest.mark.parametrize(("dtype", "arrow_type"), CANONICAL)
def test_every_type_has_one_arrow_type(dtype: DataType, arrow_type: pa.DataType) -> None:
    assert to_arrow(dtype) == arrow_type
    assert to_arrow(with_nullable(dtype, False)) == arrow_type


def test_every_family_of_types_is_covered() -> None:
    assert {dtype.root for dtype, _ in CANONICAL} == set(Root)


def test_a_field_carries_nullability_id_and_comment() -> None:
    field = arrow_field(Field(7, "a", with_nullable(INT, False), "what it is"))
    assert field.name == "a"
    assert not field.nullable
    assert field.metadata == {b"PARQUET:field_id": b"7", b"comment": b"what it is"}
    assert arrow_field(Field(0, "b", INT)).metadata == {b"PARQUET:field_id": b"0"}


def test_columns_become_a_schema_in_their_order() -> None:
    schema = row_to_arrow([Field(1, "b", STRING), Field(0, "a", with_nullable(INT, False))])
    assert schema == pa.schema([pa.field("b", pa.string()), pa.field("a", pa.int32(), nullable=False)])
    inner = row_to_arrow([Field(0, "r", RowType(fields=(Field(5, "x", INT),)))]).field("r").type.field("x")
    assert inner.metadata == {b"PARQUET:field_id": b"5"}


ACCEPTED = [
    (pa.bool_(), BOOLEAN),
    (pa.int8(), TINYINT),
    (pa.int16(), SMALLINT),
    (pa.int32(), INT),
    (pa.int64(), BIGINT),
    (pa.float32(), FLOAT),
    (pa.float64(), DOUBLE),
    (pa.date32(), DATE),
    (pa.date64(), DATE),
    (pa.string(), STRING),
    (pa.large_string(), STRING),
    (pa.string_view(), STRING),
    (pa.binary(), BYTES),
    (pa.large_binary(), BYTES),
    (pa.binary_view(), BYTES),
    (pa.binary(16), LengthType(Root.BINARY, length=16)),
    (pa.decimal128(12, 3), DecimalType(precision=12, scale=3)),
    (pa.decimal256(38, 0), DecimalType(precision=38, scale=0)),
    (pa.decimal64(18, 4), DecimalType(precision=18, scale=4)),
    (pa.time32("s"), TimeType(Root.TIME, precision=0)),
    (pa.time32("ms"), TimeType(Root.TIME, precision=3)),
    (pa.timestamp("s"), TimeType(Root.TIMESTAMP, precision=0)),
    (pa.timestamp("ms"), TimeType(Root.TIMESTAMP, precision=3)),
    (pa.timestamp("us"), TimeType(Root.TIMESTAMP, precision=6)),
    (pa.timestamp("ns"), TimeType(Root.TIMESTAMP, precision=9)),
    (pa.timestamp("us", tz="Europe/Paris"), TimeType(Root.TIMESTAMP_LTZ, precision=6)),
    (pa.dictionary(pa.int8(), pa.string()), STRING),
    (pa.run_end_encoded(pa.int32(), pa.int64()), BIGINT),
    (pa.list_(pa.int32()), array(INT)),
    (pa.large_list(pa.field("x", pa.int32(), nullable=False)), array(with_nullable(INT, False))),
    (pa.list_view(pa.int32()), array(INT)),
    (pa.list_(pa.float32(), 4), VectorType(element=FLOAT, length=4)),
    (pa.list_(pa.string(), 4), array(STRING)),
    (pa.map_(pa.string(), pa.int32()), MapType(key=with_nullable(STRING, False), value=INT)),
    (
        pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.list_(pa.string()))]),
        RowType(fields=(Field(0, "a", with_nullable(INT, False)), Field(1, "b", array(STRING)))),
    ),
]


@pytest.mark.parametrize(("arrow_type", "dtype"), ACCEPTED)
def test_an_arrow_type_with_a_counterpart_is_taken(arrow_type: pa.DataType, dtype: DataType) -> None:
    assert from_arrow(arrow_type) == dtype
    assert from_arrow(arrow_type, nullable=False) == with_nullable(dtype, False)


REFUSED = [
    (pa.uint8(), "signed"),
    (pa.uint64(), "signed"),
    (pa.float16(), "float32"),
    (pa.time64("us"), "time32"),
    (pa.time64("ns"), "time32"),
    (pa.duration("s"), "int64"),
    (pa.month_day_nano_interval(), "int64"),
    (pa.null(), "give the column a type"),
    (pa.decimal256(39, 0), "38 digits"),
    (pa.decimal128(5, -2), "38 digits"),
    (pa.decimal128(5, 7), "38 digits"),
    (pa.binary(0), "binary"),
    (pa.uuid(), "storage type"),
    (pa.dense_union([pa.field("a", pa.int32())]), "supported type"),
]


@pytest.mark.parametrize(("arrow_type", "hint"), REFUSED)
def test_an_arrow_type_without_a_counterpart_is_refused_by_name(arrow_type: pa.DataType, hint: str) -> None:
    for wrapped in (arrow_type, pa.list_(arrow_type), pa.struct([pa.field("x", arrow_type)])):
        with pytest.raises(InvalidInputError, match="no counterpart") as error:
            from_arrow(wrapped)
        assert error.value.facts["arrow_type"] == str(arrow_type)
        assert hint in (error.value.hint or "")


@pytest.mark.parametrize(("dtype", "arrow_type"), CANONICAL)
def test_what_comes_back_from_arrow_looks_the_same_in_arrow(dtype: DataType, arrow_type: pa.DataType) -> None:
    assert to_arrow(from_arrow(arrow_type)) == arrow_type
