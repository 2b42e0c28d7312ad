"""Hypothesis strategies for the values of the format: names, types, schemas, snapshots, tags.

All drawn values are valid: they pass the checks of `tidelake.spec` and survive a round trip through its codecs.
Building a strategy costs far more than drawing from it, so each is built once. Needs the extra `tidelake[testing]`.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.documents.tag import Tag
from tidelake.spec.limits import INT64_MAX, INT64_MIN
from tidelake.spec.schemas.schema import KEY_COLUMN_PREFIX, SYSTEM_COLUMNS, Column, Schema, new_schema
from tidelake.spec.types.data_types import (
    LENGTH_MAX,
    DataType,
    DecimalType,
    ElementType,
    Field,
    GeoType,
    LengthType,
    MapType,
    Root,
    RowType,
    SimpleType,
    TimeType,
    VectorType,
    walk,
)
from tidelake.spec.types.type_codec import VECTOR_ELEMENTS, number_nested

_SIMPLE = (
    Root.BOOLEAN,
    Root.TINYINT,
    Root.SMALLINT,
    Root.INT,
    Root.BIGINT,
    Root.FLOAT,
    Root.DOUBLE,
    Root.DATE,
    Root.VARIANT,
    Root.BLOB,
)
_KEY_TYPES = (Root.BOOLEAN, Root.INT, Root.BIGINT, Root.DATE)


@functools.cache
def int64s() -> st.SearchStrategy[int]:
    """Any 64-bit integer."""
    return st.integers(INT64_MIN, INT64_MAX)


@functools.cache
def texts(max_size: int = 20) -> st.SearchStrategy[str]:
    """Any text that UTF-8 can encode."""
    return st.text(st.characters(exclude_categories=("Cs",)), max_size=max_size)


@functools.cache
def file_names() -> st.SearchStrategy[str]:
    """Names that are valid path components, with any Unicode characters, also blanks."""
    alphabet = st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\\")
    return st.text(alphabet, min_size=1, max_size=40).filter(lambda name: bool(name.strip()) and name[0] != ".")


@functools.cache
def column_names() -> st.SearchStrategy[str]:
    """Names of columns and nested fields, without backquotes, which type texts do not escape."""
    plain = st.text(string.ascii_letters + "_", min_size=1, max_size=8)
    alphabet = st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="`")
    wild = st.text(alphabet, min_size=1, max_size=8).filter(lambda name: bool(name.strip()))
    return st.one_of(plain, wild).filter(
        lambda name: name not in SYSTEM_COLUMNS and not name.startswith(KEY_COLUMN_PREFIX)
    )


@functools.cache
def atomic_types() -> st.SearchStrategy[DataType]:
    """Every type without members, with any parameters and nullability."""
    nullable = st.booleans()
    return st.one_of(
        st.builds(SimpleType, st.sampled_from(_SIMPLE), nullable),
        st.builds(
            LengthType,
            st.sampled_from((Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY)),
            nullable,
            st.one_of(st.integers(1, 100), st.just(LENGTH_MAX)),
        ),
        st.integers(1, 38).flatmap(
            lambda precision: st.builds(
                DecimalType, nullable=nullable, precision=st.just(precision), scale=st.integers(0, precision)
            )
        ),
        st.builds(
            TimeType, st.sampled_from((Root.TIME, Root.TIMESTAMP, Root.TIMESTAMP_LTZ)), nullable, st.integers(0, 9)
        ),
        st.builds(GeoType, st.just(Root.GEOMETRY), nullable),
        st.builds(GeoType, st.just(Root.GEOGRAPHY), nullable, algorithm=st.just("spherical")),
    )


@functools.cache
def types(max_leaves: int = 8) -> st.SearchStrategy[DataType]:
    """Every type, also nested ones; the ids of ROW members count from 0, as in a parsed type text."""
    return st.recursive(atomic_types(), _nested_types, max_leaves=max_leaves).map(
        lambda dtype: number_nested(dtype, 0)[0]
    )


def _nested_types(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    nullable = st.booleans()
    fields = st.lists(st.builds(Field, st.just(0), column_names(), inner), max_size=4, unique_by=lambda f: f.name)
    elements = st.builds(SimpleType, st.sampled_from(sorted(VECTOR_ELEMENTS, key=lambda root: root.value)), nullable)
    return st.one_of(
        st.builds(ElementType, st.sampled_from((Root.ARRAY, Root.MULTISET)), nullable, inner),
        st.builds(MapType, nullable=nullable, key=inner, value=inner),
        st.builds(RowType, nullable=nullable, fields=fields.map(tuple)),
        st.builds(VectorType, nullable=nullable, element=elements, length=st.integers(1, LENGTH_MAX)),
    )


@st.composite  # type: ignore[untyped-decorator]
def schemas(draw: Callable[[st.SearchStrategy[Any]], Any], max_columns: int = 6) -> Schema:
    """Initial schemas of tables with and without keys, partitions, comments and options."""
    names: list[str] = draw(_name_lists(max_columns))
    partitioned = len(names) > 2 and draw(st.booleans())
    keyed = draw(st.booleans())
    partition_keys = names[:1] if partitioned else []
    primary_keys = names[: 2 if partitioned else 1] if keyed else []
    columns = []
    for name in names:
        in_key = name in primary_keys or name in partition_keys
        dtype = draw(_key_types() if in_key else _value_types(keyed))
        columns.append(Column(name, dtype, draw(_comments())))
    options = {"bucket": draw(st.sampled_from(("1", "4", "-1", "-2")))} if keyed else {}
    options |= draw(_notes())
    return new_schema(
        columns,
        primary_keys=primary_keys,
        partition_keys=partition_keys,
        options=options,
        comment=draw(_comments()),
        time_ms=draw(st.integers(0, 2**45)),
    )


@functools.cache
def _name_lists(max_columns: int) -> st.SearchStrategy[list[str]]:
    return st.lists(column_names(), min_size=2, max_size=max_columns, unique=True)


@functools.cache
def _key_types() -> st.SearchStrategy[DataType]:
    return st.builds(SimpleType, st.sampled_from(_KEY_TYPES))


@functools.cache
def _value_types(keyed: bool) -> st.SearchStrategy[DataType]:
    """Types of columns outside of keys; BLOBs only as top-level columns of tables with a key."""
    return types(max_leaves=4).filter(
        lambda dtype: (keyed and dtype.root is Root.BLOB) or all(each.root is not Root.BLOB for each in walk(dtype))
    )


@functools.cache
def _comments() -> st.SearchStrategy[str | None]:
    return st.none() | texts()


@functools.cache
def _notes() -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(("note", "target-file-size", "é\u2028")), texts(), max_size=2)


@functools.cache
def snapshots() -> st.SearchStrategy[Snapshot]:
    """Snapshots of the current version, with and without every optional member."""
    size = st.none() | st.integers(0, INT64_MAX)
    number = st.none() | int64s()
    return st.builds(
        Snapshot,
        id=st.integers(1, INT64_MAX),
        schema_id=st.integers(0, INT64_MAX),
        base_manifest_list=file_names(),
        delta_manifest_list=file_names(),
        commit_user=texts(),
        commit_identifier=int64s(),
        commit_kind=st.sampled_from(CommitKind),
        time_ms=int64s(),
        total_record_count=int64s(),
        delta_record_count=int64s(),
        base_manifest_list_size_bytes=size,
        delta_manifest_list_size_bytes=size,
        changelog_manifest_list=st.none() | file_names(),
        changelog_manifest_list_size_bytes=size,
        index_manifest=st.none() | file_names(),
        changelog_record_count=number,
        watermark=number,
        statistics=st.none() | file_names(),
        properties=st.dictionaries(texts(), texts(), max_size=3),
        next_row_id=size,
        operation=st.none() | st.sampled_from(("WRITE", "MERGE", "SOMETHING_NEW")),
        writer_version=st.none() | texts(),
        uuid=st.none() | st.uuids().map(str),
        unknown=st.dictionaries(st.sampled_from(("logOffsets", "futureKey")), json_values(), max_size=2),
    )


@functools.cache
def tags() -> st.SearchStrategy[Tag]:
    """Tags with and without a lifetime."""
    return st.builds(
        Tag,
        snapshot=snapshots(),
        create_time_ns=st.none() | st.integers(-(10**18), 10**19),
        time_retained_ns=st.none() | st.integers(0, INT64_MAX),
    )


@functools.cache
def json_values() -> st.SearchStrategy[Any]:
    """JSON values of members that a document preserves without knowing them."""
    atoms = st.none() | st.booleans() | int64s() | texts()
    return st.recursive(
        atoms, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3), max_leaves=6
    )
