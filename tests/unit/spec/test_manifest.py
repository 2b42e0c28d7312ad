"""Manifests as columns: the schema written, what is read, the gate for names, the net effect of entries."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from tidelake.errors import FormatError
from tidelake.spec.avro import decode as avro_decode
from tidelake.spec.avro.container import copy_block, parse_container, write_container
from tidelake.spec.data_file import DataFile, SimpleStats, data_files
from tidelake.spec.manifests.manifest import (
    ADD,
    DELETE,
    ENTRIES,
    SCHEMA,
    SCHEMA_TEXT,
    SCHEMA_TEXT_SEQUENCES,
    check_file_names,
    decode_manifest,
    empty_entries,
    encode_manifest,
    entries_table,
    identities,
    merge_entries,
    repeated_identity,
    with_kind,
)

FILE = DataFile(
    file_name="data-1.parquet",
    file_size=100,
    row_count=10,
    value_stats=SimpleStats(b"lo", b"hi", (0, None)),
    extra_files=("data-1.index",),
    creation_time_ms=1_700_000_000_000,
)


def entry(name: str = "f", kind: int = ADD, *, bucket: int = 0, **fields: Any) -> tuple[int, bytes, int, int, DataFile]:
    return kind, bytes(12), bucket, 4, replace(FILE, file_name=name, **fields)


def records_of(data: bytes) -> list[dict[str, Any]]:
    return list(fastavro.reader(io.BytesIO(data)))


@pytest.fixture(params=["few", "bulk"])
def reader(request, monkeypatch):
    monkeypatch.setattr(avro_decode, "BULK_COUNT", 0 if request.param == "bulk" else 10**9)


# ------------------------------------------------------------------------------------------------ bytes


def test_the_schema_has_the_names_and_the_order_of_the_format():
    assert SCHEMA_TEXT.startswith('{"type":"record","name":"record","namespace":"org.apache.paimon.avro.generated"')
    names = [field["name"] for field in SCHEMA["fields"]]
    assert names == ["_VERSION", "_KIND", "_PARTITION", "_BUCKET", "_TOTAL_BUCKETS", "_FILE"]
    file = SCHEMA["fields"][-1]["type"]
    assert file["name"] == "record__FILE"
    assert [field["name"] for field in file["fields"]][-3:] == ["_EXTERNAL_PATH", "_FIRST_ROW_ID", "_WRITE_COLS"]
    stats = {field["name"]: field["type"] for field in file["fields"]}["_VALUE_STATS"]
    assert stats["name"] == "record__FILE__VALUE_STATS"


def test_sequences_of_columns_are_written_only_where_a_file_has_them():
    plain = parse_container(encode_manifest(entries_table([entry()])), path="m")
    assert plain.schema == SCHEMA
    wide = encode_manifest(entries_table([entry(), entry("g", write_cols_sequences=(7, 8))]))
    assert parse_container(wide, path="m").schema == json.loads(SCHEMA_TEXT_SEQUENCES)
    assert decode_manifest(wide, path="m")["write_cols_sequences"].to_pylist() == [None, [7, 8]]


@pytest.mark.usefixtures("reader")
def test_entries_come_back_and_so_do_the_files_in_them():
    table = entries_table([entry(), entry("g", DELETE, bucket=3, level=5, external_path="s3://b/k")])
    found = decode_manifest(encode_manifest(table), path="m")
    assert found.schema == ENTRIES
    assert found.equals(table)
    assert data_files(found)[0] == replace(FILE, file_name="f")


@pytest.mark.usefixtures("reader")
def test_only_the_wanted_columns_are_decoded():
    data = encode_manifest(entries_table([entry(), entry("g")]))
    found = decode_manifest(data, path="m", columns=["file_name", "bucket"])
    assert found.column_names == ["bucket", "file_name"]
    assert found["file_name"].to_pylist() == ["f", "g"]


@pytest.mark.usefixtures("reader")
def test_a_manifest_without_entries_reads_as_none():
    assert decode_manifest(encode_manifest(empty_entries()), path="m").equals(empty_entries())


# ------------------------------------------------------------------------------------------------ other writers


def written(schema: dict[str, Any], records: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), records, codec="deflate")
    return out.getvalue()


@pytest.mark.usefixtures("reader")
def test_a_manifest_of_an_old_release_lacks_the_newer_columns():
    old = json.loads(SCHEMA_TEXT)
    file = old["fields"][-1]["type"]
    file["fields"] = [f for f in file["fields"] if f["name"] not in ("_WRITE_COLS", "_FIRST_ROW_ID", "_EXTERNAL_PATH")]
    records = records_of(encode_manifest(entries_table([entry()])))
    found = decode_manifest(written(old, records), path="m")
    assert found["external_path"].to_pylist() == [None]
    assert found["file_name"].to_pylist() == ["f"]


@pytest.mark.usefixtures("reader")
def test_a_column_of_a_newer_release_is_passed_over():
    new = json.loads(SCHEMA_TEXT)
    new["fields"][-1]["type"]["fields"].append({"name": "_NEWER", "type": ["null", "string"], "default": None})
    records = records_of(encode_manifest(entries_table([entry(), entry("g")])))
    for record in records:
        record["_FILE"]["_NEWER"] = "?"
    found = decode_manifest(written(new, records), path="m")
    assert found.equals(entries_table([entry(), entry("g")]))


@pytest.mark.usefixtures("reader")
def test_a_record_that_is_called_by_its_name_the_second_time_is_understood():
    schema = json.loads(SCHEMA_TEXT)
    for field in schema["fields"][-1]["type"]["fields"]:
        if field["name"] == "_KEY_STATS":
            field["type"]["name"] = "SimpleStats"
        if field["name"] == "_VALUE_STATS":
            field["type"] = "SimpleStats"
    records = records_of(encode_manifest(entries_table([entry()])))
    container = parse_container(written(schema, records), path="m")
    frames = [copy_block(container, block) for block in container.blocks]
    # The schema as it stands: fastavro would have written the full name.
    found = decode_manifest(write_container(json.dumps(schema), "deflate", frames), path="m")
    assert found.equals(entries_table([entry()]))


@pytest.mark.parametrize("change", ["hole", "renamed", "required", "twice", "nullable name", "version"])
def test_a_schema_that_no_writer_has_is_refused(change):
    schema = json.loads(SCHEMA_TEXT)
    records = records_of(encode_manifest(entries_table([entry()])))
    fields = schema["fields"][-1]["type"]["fields"]
    match change:
        case "hole":
            fields[:] = [field for field in fields if field["name"] != "_FILE_SOURCE"]
        case "renamed":
            fields[-1]["name"] = "_WRITE_COLT"
        case "required":
            fields[:] = [field for field in fields if field["name"] != "_LEVEL"]
        case "twice":
            schema["fields"].append({"name": "_KIND", "type": "int"})
        case "nullable name":
            fields[0]["type"] = ["null", "string"]
            records[0]["_FILE"]["_FILE_NAME"] = None
        case "version":
            records[0]["_VERSION"] = 1
    with pytest.raises(FormatError) as caught:
        decode_manifest(written(schema, records), path="manifest/m")
    assert caught.value.facts["path"] == "manifest/m"


def columnar(table: pa.Table, *, version: int = 2) -> pa.Table:
    """The entries as records of an ORC or Parquet manifest."""
    rows = [
        {"_VERSION": version, "_KIND": row["kind"], "_PARTITION": row["partition"], "_BUCKET": row["bucket"]}
        | {"_TOTAL_BUCKETS": row["total_buckets"], "_FILE": record["_FILE"]}
        for row, record in zip(table.to_pylist(), records_of(encode_manifest(table)), strict=True)
    ]
    made = pa.Table.from_pylist(rows)
    return made.cast(pa.schema([field.with_type(_typed(field.type)) for field in made.schema]))


def _typed(dtype: pa.DataType) -> pa.DataType:
    """The type with something in place of the null type, which ORC does not have."""
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(_typed(field.type)) for field in dtype])
    if pa.types.is_list(dtype):
        return pa.list_(_typed(dtype.value_type))
    return pa.string() if pa.types.is_null(dtype) else dtype


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_manifests_of_old_tables_are_read_from_parquet_and_orc(form):
    full = {"value_stats_cols": ("a",), "write_cols": ("a", "b"), "embedded_index": b"i", "first_row_id": 4}
    table = entries_table([entry(**full), entry("g", DELETE, **full)])
    out = io.BytesIO()
    module = pyarrow.parquet if form == "parquet" else pyarrow.orc
    module.write_table(columnar(table), out)
    found = decode_manifest(out.getvalue(), path="m")
    assert found.equals(table)
    assert found["creation_time_ms"].to_pylist() == [1_700_000_000_000] * 2


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_a_damaged_or_foreign_parquet_or_orc_file_is_refused(form):
    module = pyarrow.parquet if form == "parquet" else pyarrow.orc
    good, other, lacking = io.BytesIO(), io.BytesIO(), io.BytesIO()
    module.write_table(columnar(entries_table([entry()])), good)
    module.write_table(columnar(entries_table([entry()]), version=9), other)
    module.write_table(pa.table({"_VERSION": pa.array([2])}), lacking)
    for data in (good.getvalue()[:-9], good.getvalue()[:40], other.getvalue(), lacking.getvalue()):
        with pytest.raises(FormatError):
            decode_manifest(data, path="m")


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_a_columnar_manifest_without_entries_is_empty(form):
    out = io.BytesIO()
    module = pyarrow.parquet if form == "parquet" else pyarrow.orc
    full = {"value_stats_cols": ("a",), "write_cols": ("a", "b"), "embedded_index": b"i", "first_row_id": 4}
    module.write_table(columnar(entries_table([entry(**full)])).slice(0, 0), out)
    assert decode_manifest(out.getvalue(), path="m").equals(entries_table([]))


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_a_small_columnar_file_that_claims_millions_of_entries_is_refused_unread(form):
    out = io.BytesIO()
    module = pyarrow.parquet if form == "parquet" else pyarrow.orc
    module.write_table(pa.table({"_VERSION": pa.repeat(pa.scalar(2, pa.int32()), 9_000_000)}), out)
    with pytest.raises(FormatError) as caught:
        decode_manifest(out.getvalue(), path="m")
    assert caught.value.code == "too-large"


def test_a_value_stored_once_and_meant_by_every_entry_does_not_fill_the_memory():
    out = io.BytesIO()
    text = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), 15_000), ["x" * 4_000_000])
    table = pa.table({"_VERSION": pa.repeat(pa.scalar(2, pa.int32()), 15_000), "_TEXT": text})
    pyarrow.parquet.write_table(table, out, compression="zstd", store_schema=False)
    with pytest.raises(FormatError) as caught:
        decode_manifest(out.getvalue(), path="m")
    assert caught.value.code == "too-large"


def test_a_null_where_a_value_must_be_is_refused_in_columnar_files_too():
    table = columnar(entries_table([entry()]))
    out = io.BytesIO()
    pyarrow.parquet.write_table(table.set_column(1, "_KIND", pa.array([None], pa.int32())), out)
    with pytest.raises(FormatError, match="lacks a value"):
        decode_manifest(out.getvalue(), path="m")


# ------------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "a\\b", "", ".", "..", ".x", "a\x00", "a\n", "\x7f", "x" * 256, "é" * 128]
)
def test_a_name_that_leads_elsewhere_is_refused_among_good_ones(name):
    with pytest.raises(FormatError) as caught:
        check_file_names(pa.array(["good", name, "fine"], pa.large_string()), path="m")
    assert caught.value.code == "file-name"


def test_a_name_that_is_missing_is_refused():
    with pytest.raises(FormatError):
        check_file_names(pa.array(["good", None], pa.large_string()), path="m")


def test_good_names_and_no_names_pass():
    check_file_names(pa.array(["a", "data-1.parquet", "a b", "é", "x" * 255, "a..b"], pa.large_string()), path="m")
    check_file_names(pa.chunked_array([pa.array([], pa.large_string())]), path="m")


# ------------------------------------------------------------------------------------------------ net effect


def names_and_kinds(table: pa.Table) -> list[tuple[str, int]]:
    return list(zip(table["file_name"].to_pylist(), table["kind"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ([], []),
        ([entry("a"), entry("b")], [("a", ADD), ("b", ADD)]),
        ([entry("a"), entry("a", DELETE)], []),
        ([entry("a"), entry("b"), entry("a", DELETE)], [("b", ADD)]),
        ([entry("a", DELETE)], [("a", DELETE)]),
        ([entry("a"), entry("a", DELETE), entry("a")], [("a", ADD)]),
        ([entry("a", DELETE), entry("a", level=1)], [("a", DELETE), ("a", ADD)]),
        ([entry("a"), entry("a", bucket=1)], [("a", ADD), ("a", ADD)]),
        ([entry("a"), entry("a", external_path="s3://x")], [("a", ADD), ("a", ADD)]),
    ],
)
def test_additions_and_their_deletions_cancel(rows, left):
    assert names_and_kinds(merge_entries(entries_table(rows))) == left


@pytest.mark.parametrize(
    "kinds",
    [(ADD, ADD, DELETE, DELETE), (ADD, DELETE, DELETE, ADD), (DELETE, DELETE, ADD), (DELETE, ADD, ADD)],
    ids=lambda kinds: "".join("AD"[kind] for kind in kinds),
)
def test_additions_and_deletions_of_one_file_take_turns(kinds):
    with pytest.raises(FormatError) as caught:
        merge_entries(entries_table([entry("x"), *(entry("a", kind) for kind in kinds)]))
    assert caught.value.code == "double-entry"


def test_a_deletion_comes_first_only_where_something_may_lie_before():
    rows = entries_table([entry("x"), entry("a", DELETE), entry("a")])
    assert names_and_kinds(merge_entries(rows)) == [("x", ADD)]
    with pytest.raises(FormatError) as caught:
        merge_entries(rows, whole=True)
    assert caught.value.code == "delete-without-add"
    assert caught.value.facts["file"] == "a"


def test_a_file_named_twice_is_found_whatever_is_done_to_it():
    assert repeated_identity(entries_table([entry("a"), entry("b"), entry("a", level=1)])) is None
    assert repeated_identity(entries_table([entry("a"), entry("b"), entry("b", DELETE)])) == 2


@pytest.mark.parametrize("kind", [ADD, DELETE])
def test_a_file_added_or_deleted_twice_is_named(kind):
    with pytest.raises(FormatError) as caught:
        merge_entries(entries_table([entry("x"), entry("a", kind), entry("a", kind)]))
    assert caught.value.code == "double-entry"
    assert caught.value.facts["file"] == "a"


def test_the_kind_is_no_part_of_the_identity_and_neither_are_sizes():
    a, b = entry("a"), entry("a", DELETE, file_size=7, row_count=0)
    keys = identities(entries_table([a, b])).to_pylist()
    assert keys[0] == keys[1]
    assert with_kind(entries_table([a, b]), DELETE)["kind"].to_pylist() == [DELETE, DELETE]
