"""Index manifests: the live index files of a snapshot."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import fastavro
import pytest

from tidelake.errors import FormatError
from tidelake.spec.manifests.index_manifest import (
    DELETION_VECTORS,
    HASH,
    SCHEMA_TEXT,
    DeletionVectorRange,
    GlobalIndexMeta,
    IndexEntry,
    IndexFile,
    decode_index_manifest,
    encode_index_manifest,
)

VECTORS = IndexEntry(
    b"p",
    3,
    IndexFile(
        index_type=DELETION_VECTORS,
        file_name="index-1",
        file_size=99,
        row_count=2,
        deletion_vectors=(DeletionVectorRange("data-1", 1, 22, 5), DeletionVectorRange("data-2", 23, 30)),
    ),
)
HASHES = IndexEntry(b"", 0, IndexFile(index_type=HASH, file_name="index-2", file_size=8, row_count=2))
WHOLE = IndexEntry(
    b"",
    0,
    IndexFile(
        index_type="btree",
        file_name="index-3",
        file_size=8,
        row_count=2,
        external_path="s3://b/k",
        global_index=GlobalIndexMeta(
            row_range_start=0, row_range_end=9, index_field_id=1, extra_field_ids=(2,), index_meta=b"m"
        ),
    ),
)


def written(schema: dict, records: list[dict]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), records)
    return out.getvalue()


def test_every_kind_of_index_comes_back():
    entries = (VECTORS, HASHES, WHOLE)
    assert decode_index_manifest(encode_index_manifest(entries), path="i") == entries


def test_no_vectors_and_an_empty_list_of_them_are_two_things():
    empty = IndexEntry(b"", 0, replace(VECTORS.file, deletion_vectors=()))
    found = decode_index_manifest(encode_index_manifest([empty, HASHES]), path="i")
    assert [entry.file.deletion_vectors for entry in found] == [(), None]


def test_the_vectors_of_an_old_release_have_no_cardinality():
    schema = json.loads(SCHEMA_TEXT)
    ranges = next(field for field in schema["fields"] if field["name"] == "_DELETIONS_VECTORS_RANGES")
    ranges["type"][1]["items"][1]["fields"].pop()
    schema["fields"] = schema["fields"][:9]
    records = list(fastavro.reader(io.BytesIO(encode_index_manifest([VECTORS]))))
    (found,) = decode_index_manifest(written(schema, records), path="i")
    assert found.file.deletion_vectors == (DeletionVectorRange("data-1", 1, 22), DeletionVectorRange("data-2", 23, 30))


def test_a_member_with_a_changed_name_is_damage_and_not_a_missing_value():
    data = encode_index_manifest([VECTORS], codec="null").replace(b"_CARDINALITY", b"_CARDINALITZ")
    with pytest.raises(FormatError, match="lacks a field"):
        decode_index_manifest(data, path="i")


def test_an_entry_that_deletes_is_refused():
    records = list(fastavro.reader(io.BytesIO(encode_index_manifest([HASHES]))))
    records[0]["_KIND"] = 1
    with pytest.raises(FormatError, match="lists a deleted file"):
        decode_index_manifest(written(json.loads(SCHEMA_TEXT), records), path="i")


def test_a_vector_without_a_place_is_refused():
    records = list(fastavro.reader(io.BytesIO(encode_index_manifest([VECTORS]))))
    records[0]["_DELETIONS_VECTORS_RANGES"][1] = None
    with pytest.raises(FormatError, match="without a range"):
        decode_index_manifest(written(json.loads(SCHEMA_TEXT), records), path="i")


@pytest.mark.parametrize("name", ["../i", "a/b", "", "\x00"])
def test_a_name_that_leads_elsewhere_is_refused(name):
    hostile = IndexEntry(b"", 0, replace(HASHES.file, file_name=name))
    with pytest.raises(FormatError, match="file name in metadata"):
        decode_index_manifest(encode_index_manifest([hostile]), path="i")
