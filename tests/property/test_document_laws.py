"""Laws of the JSON documents: round trips, refusal of every damage with a typed error, and schema evolution."""

import contextlib
import functools
import json
import string
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.casts.casts import CastRule, cast_rule, same_type
from tidelake.spec.documents.consumer import consumer_from_json
from tidelake.spec.documents.hint import hint_bytes, parse_hint
from tidelake.spec.documents.json_doc import dump, parse_object
from tidelake.spec.documents.snapshot import snapshot_from_json, snapshot_to_json
from tidelake.spec.documents.statistics import statistics_from_json
from tidelake.spec.documents.success import success_from_json
from tidelake.spec.documents.tag import tag_from_json, tag_to_json
from tidelake.spec.layout import TableLayout, parse_numbered
from tidelake.spec.names import check_file_name, check_name
from tidelake.spec.schemas.evolution import (
    AddColumn,
    After,
    DropColumn,
    First,
    Last,
    MoveColumn,
    RemoveOption,
    RenameColumn,
    SetOption,
    UpdateComment,
    UpdateDefault,
    UpdateNullability,
    UpdateTableComment,
    UpdateType,
    apply,
)
from tidelake.spec.schemas.schema import schema_from_json, schema_to_json
from tidelake.spec.types.data_types import RowType, walk
from tidelake.spec.types.type_codec import number_nested, parse_type, type_from_json, type_to_json
from tidelake.testing import strategies as tl

few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
many = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])

READERS = {
    "schema": lambda data: schema_from_json(data, path="p"),
    "snapshot": lambda data: snapshot_from_json(data, path="p"),
    "tag": lambda data: tag_from_json(data, path="p"),
    "consumer": lambda data: consumer_from_json(data, path="p"),
    "statistics": lambda data: statistics_from_json(data, path="p"),
    "success": lambda data: success_from_json(data, path="p"),
}


# --------------------------------------------------------------------------------------------------- round trips


@few
@given(tl.types())
def test_a_type_survives_its_text_and_its_json(dtype):
    assert parse_type(str(dtype)) == dtype
    value = type_to_json(dtype)
    assert type_from_json(json.loads(json.dumps(value)), path="p") == dtype
    assert number_nested(dtype, 0)[0] == dtype


@few
@given(tl.types())
def test_a_type_is_itself_whatever_its_nullability(dtype):
    assert cast_rule(dtype, replace(dtype, nullable=not dtype.nullable)) is CastRule.IDENTITY


@few
@given(tl.types(), tl.types())
def test_a_type_change_is_allowed_only_between_known_types(source, target):
    rule = cast_rule(source, target)
    assert (rule is CastRule.IDENTITY) == same_type(source, target)


@few
@given(tl.schemas())
def test_a_schema_survives_its_file(schema):
    data = schema_to_json(schema)
    assert schema_from_json(data, path="p", expected_id=0) == schema
    assert json.loads(data)["highestFieldId"] == schema.highest_field_id


@few
@given(tl.snapshots())
def test_a_snapshot_survives_its_file(snapshot):
    data = snapshot_to_json(snapshot)
    assert snapshot_from_json(data, path="p", expected_id=snapshot.id) == snapshot
    assert snapshot_to_json(snapshot_from_json(data, path="p")) == data


@few
@given(tl.tags())
def test_a_tag_survives_its_file(tag):
    data = tag_to_json(tag)
    assert tag_from_json(data, path="p") == tag
    assert tag_to_json(tag_from_json(data, path="p")) == data


@few
@given(st.dictionaries(tl.texts(), tl.json_values(), max_size=5))
def test_what_is_dumped_is_json_to_everyone(doc):
    assert parse_object(dump(doc), path="p") == doc == json.loads(dump(doc))


@few
@given(st.integers(1, 2**63 - 1))
def test_a_hint_and_a_path_give_their_number_back(number):
    assert parse_hint(hint_bytes(number)) == number
    name = TableLayout().snapshot_path(number).removeprefix("snapshot/")
    assert parse_numbered(name, "snapshot-") == number


@many
@given(st.text(max_size=40), st.sampled_from(["database", "table", "branch", "tag", "consumer"]))
def test_a_name_that_passes_is_one_plain_component(name, kind):
    try:
        check_name(kind, name)
    except InvalidInputError:
        return
    assert check_file_name(name, path="p") == name
    assert name.strip()
    assert not name.startswith(".")
    assert not set(name) & set("/\\\0\n\r")
    assert len(name.encode()) <= 255


@few
@given(tl.file_names())
def test_file_names_of_any_script_pass_the_gate(name):
    assert check_file_name(name, path="p") == name


# --------------------------------------------------------------------------------------------------------- fuzz


def read_or_refuse(kind: str, data: bytes) -> None:
    """Nothing but a typed error may come out; anything else fails the test by itself."""
    with contextlib.suppress(FormatError):
        READERS[kind](data)


@functools.cache
def documents() -> st.SearchStrategy[tuple[str, bytes]]:
    consumer = st.just(b'{\n  "nextSnapshot" : 3\n}')
    column = '{"colId": 0, "distinctCount": 2, "min": "1", "max": "2", "nullCount": 0, "avgLen": 4, "maxLen": 4}'
    statistics = st.just(
        f'{{"snapshotId": 1, "schemaId": 0, "mergedRecordCount": 2, "colStats": {{"k": {column}}}}}'.encode()
    )
    return st.one_of(
        st.tuples(st.just("schema"), tl.schemas(4).map(schema_to_json)),
        st.tuples(st.just("snapshot"), tl.snapshots().map(snapshot_to_json)),
        st.tuples(st.just("tag"), tl.tags().map(tag_to_json)),
        st.tuples(st.just("consumer"), consumer),
        st.tuples(st.just("statistics"), statistics),
        st.tuples(st.just("success"), st.just(b'{"creationTime": 1, "modificationTime": 2}')),
    )


@many
@given(documents(), st.data())
def test_flipped_cut_and_spliced_bytes_give_a_value_or_a_format_error(document, data):
    kind, content = document
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(len(damaged) - 1, 0)))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "repeat", "structure"])):
            case "flip" if damaged:
                damaged[at] ^= 1 << data.draw(st.integers(0, 7))
            case "cut":
                del damaged[at : at + data.draw(st.integers(1, 30))]
            case "insert":
                damaged[at:at] = data.draw(st.binary(max_size=8))
            case "repeat":
                damaged[at:at] = damaged[at : at + data.draw(st.integers(1, 40))]
            case "structure":
                damaged[at:at] = data.draw(
                    st.sampled_from([b"{", b"[", b'"', b"}", b"]", b",", b":", b"\\", b"\xff", b"0"])
                )
    read_or_refuse(kind, bytes(damaged))


HOSTILE = [
    None,
    True,
    -1,
    2**31,
    2**63,
    2**70,
    -(2**70),
    1.5,
    1e300,
    "",
    "x",
    "../../x",
    "a\x00",
    "9" * 400,
    [],
    [None],
    [[[]]],
    {},
    {"": None},
    {"type": "ROW"},
    {"type": "ARRAY", "element": {"type": "MAP"}},
]


@many
@given(documents(), st.data())
def test_any_member_replaced_by_anything_gives_a_value_or_a_format_error(document, data):
    kind, content = document
    doc = json.loads(content)
    node = doc
    for _ in range(4):
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if isinstance(node[key], dict | list) and data.draw(st.booleans()):
            node = node[key]
            continue
        node[key] = data.draw(st.sampled_from(HOSTILE))
        break
    read_or_refuse(kind, json.dumps(doc).encode())


@many
@given(documents(), st.data())
def test_a_truncated_document_is_never_read(document, data):
    kind, content = document
    with pytest.raises(FormatError):
        READERS[kind](content[: data.draw(st.integers(0, len(content) - 1))])


@few
@given(documents(), st.data())
def test_a_repeated_member_is_never_read(document, data):
    kind, content = document
    doc = json.loads(content)
    key = data.draw(st.sampled_from(list(doc)))
    twice = content[: content.rindex(b"}")] + f",\n  {json.dumps(key)} : {json.dumps(doc[key])}\n}}".encode()
    with pytest.raises(FormatError, match="more than once"):
        READERS[kind](twice)


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"{}",
        b"[]",
        b"{" * 100_000,
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"fields":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"fields":[' + b"1," * 200_000 + b"1]}",
        b'{"id":' + b"1" * 100_000 + b"}",
        b'{"id": 1e400}',
        b'{"id": -0.0}',
        b'{"id": NaN}',
        b'{"id": 1180591620717411303424}',
        b'{"id": "\xff\xfe"}',
        b'{"id": 1, "id": 1}',
        b'{"options":{' + b",".join(b'"%d":"x"' % i for i in range(20_000)) + b"}}",
    ],
    ids=range(17),
)
def test_bombs_and_rubbish_are_format_errors(kind, data):
    with pytest.raises(FormatError):
        READERS[kind](data)


@many
@given(st.text(string.ascii_letters + "<>(),`' 019", max_size=60) | st.text(max_size=30))
def test_any_text_is_a_type_or_an_input_error(text):
    try:
        dtype = parse_type(text)
    except InvalidInputError:
        return
    assert type_from_json(type_to_json(dtype), path="p") == dtype


@many
@given(st.lists(st.sampled_from(
    ["ROW", "<", ">", "(", ")", ",", "ARRAY", "MAP", "INT", "NOT", "NULL", "`a`", "b", "'c'", "3", "VECTOR", "CHAR",
     "DECIMAL", "TIMESTAMP", "WITH", "LOCAL", "TIME", "ZONE", "MULTISET", "GEOGRAPHY"]), max_size=14))  # fmt: skip
def test_any_row_of_tokens_is_a_type_or_an_input_error(tokens):
    try:
        dtype = parse_type(" ".join(tokens))
    except InvalidInputError:
        return
    assert same_type(parse_type(str(dtype)), dtype)


@few
@given(st.binary(max_size=40))
def test_a_hint_never_raises(data):
    number = parse_hint(data)
    assert number is None or 0 < number < 2**63


# ---------------------------------------------------------------------------------------------------- evolution


def all_ids(schema) -> set[int]:
    nested = {f.id for c in schema.fields for t in walk(c.type) if isinstance(t, RowType) for f in t.fields}
    return nested | {c.id for c in schema.fields}


@st.composite
def tables(draw):
    """Schemas whose columns are called a, b, c and d, so that changes can be drawn without looking at them."""
    schema = draw(tl.schemas(4))
    plain = dict(zip(schema.names, "abcd", strict=False))
    return replace(
        schema,
        fields=tuple(replace(column, name=plain[column.name]) for column in schema.fields),
        primary_keys=tuple(plain[name] for name in schema.primary_keys),
        partition_keys=tuple(plain[name] for name in schema.partition_keys),
    )


NAMES = st.sampled_from("abcdn")
POSITIONS = st.one_of(st.just(First()), st.just(Last()), st.builds(After, NAMES))
OPTIONS = st.sampled_from(["x", "y"])
CHANGES = st.one_of(
    st.builds(AddColumn, NAMES, tl.types(3).map(lambda t: replace(t, nullable=True)), position=st.none() | POSITIONS),
    st.builds(RenameColumn, NAMES, NAMES),
    st.builds(DropColumn, NAMES),
    st.builds(UpdateType, NAMES, tl.atomic_types()),
    st.builds(UpdateNullability, NAMES, st.booleans()),
    st.builds(UpdateComment, NAMES, st.none() | tl.texts()),
    st.builds(UpdateDefault, NAMES, st.none() | st.sampled_from(["1", "x"])),
    st.builds(MoveColumn, NAMES, POSITIONS),
    st.builds(SetOption, OPTIONS, st.sampled_from("12")),
    st.builds(RemoveOption, OPTIONS),
    st.builds(UpdateTableComment, st.none() | tl.texts()),
)


@many
@given(tables(), st.lists(st.tuples(CHANGES, st.booleans()), min_size=1, max_size=6))
def test_however_a_table_evolves_ids_only_grow_and_are_never_reused(schema, steps):
    ever = all_ids(schema)
    for step, (change, has_snapshots) in enumerate(steps):
        try:
            evolved = apply(schema, [change], time_ms=step, has_snapshots=has_snapshots)
        except InvalidInputError:
            continue
        assert evolved.highest_field_id >= schema.highest_field_id
        fresh = all_ids(evolved) - all_ids(schema)
        assert not fresh & ever
        assert all(schema.highest_field_id < field_id <= evolved.highest_field_id for field_id in fresh)
        ever |= fresh
        assert evolved is schema or (evolved.id, evolved.time_ms) == (schema.id + 1, step)
        assert schema_from_json(schema_to_json(evolved), path="p") == evolved
        assert set(evolved.primary_keys) | set(evolved.partition_keys) <= set(evolved.names)
        schema = evolved


@many
@given(tables(), st.lists(CHANGES, max_size=6))
def test_changes_one_by_one_end_where_changes_at_once_do(schema, drawn):
    # What is refused on its own is left out, so that most examples have something to compare.
    stepwise, batch = schema, []
    for change in drawn:
        with contextlib.suppress(InvalidInputError):
            stepwise = apply(stepwise, [change], time_ms=7, has_snapshots=False)
            batch.append(change)
    together = apply(schema, batch, time_ms=7, has_snapshots=False)
    assert replace(together, id=0, time_ms=0) == replace(stepwise, id=0, time_ms=0)
    assert together.id <= schema.id + 1


@few
@given(tables(), NAMES)
def test_a_rename_and_its_reverse_cancel_out(schema, name):
    assume(name in schema.names and name not in schema.partition_keys)
    there_and_back = [RenameColumn(name, "another"), RenameColumn("another", name)]
    try:
        there = apply(schema, there_and_back[:1], time_ms=0, has_snapshots=False)
    except InvalidInputError as error:
        assume("BLOB" not in str(error))  # the one column that cannot be renamed
        raise
    back = apply(there, there_and_back[1:], time_ms=0, has_snapshots=False)
    assert replace(back, id=0, time_ms=0) == replace(schema, id=0, time_ms=0)
    assert apply(schema, there_and_back, time_ms=0, has_snapshots=True) is schema
