"""Manifest lists: one record per manifest."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest

from tidelake.errors import FormatError
from tidelake.spec.avro.container import parse_container
from tidelake.spec.data_file import SimpleStats
from tidelake.spec.manifests.manifest import empty_entries, encode_manifest
from tidelake.spec.manifests.manifest_list import SCHEMA_TEXT, ManifestMeta, decode_manifest_list, encode_manifest_list

META = ManifestMeta(
    file_name="manifest-1",
    file_size=1_000,
    num_added=3,
    num_deleted=1,
    partition_stats=SimpleStats(b"lo", b"hi", (0, None, 2)),
    schema_id=2,
    min_bucket=0,
    max_bucket=7,
)


def test_records_come_back_with_and_without_their_ranges():
    metas = (META, replace(META, file_name="m", min_bucket=None, max_bucket=None, min_row_id=0, max_row_id=2**40))
    assert decode_manifest_list(encode_manifest_list(metas), path="l") == metas
    assert META.num_entries == 4


def test_an_empty_list_is_a_list():
    assert decode_manifest_list(encode_manifest_list([]), path="l") == ()


def test_the_schema_is_that_of_the_format():
    schema = parse_container(encode_manifest_list([META]), path="l").schema
    assert schema == json.loads(SCHEMA_TEXT)
    assert [field["name"] for field in schema["fields"]][:7] == [
        "_VERSION",
        "_FILE_NAME",
        "_FILE_SIZE",
        "_NUM_ADDED_FILES",
        "_NUM_DELETED_FILES",
        "_PARTITION_STATS",
        "_SCHEMA_ID",
    ]
    assert schema["fields"][5]["type"]["name"] == "record__PARTITION_STATS"


def test_an_independent_reader_sees_the_same():
    (record,) = fastavro.reader(io.BytesIO(encode_manifest_list([META])))
    assert record["_VERSION"] == 2
    assert record["_PARTITION_STATS"] == {"_MIN_VALUES": b"lo", "_MAX_VALUES": b"hi", "_NULL_COUNTS": [0, None, 2]}
    assert (record["_MIN_BUCKET"], record["_MIN_LEVEL"]) == (0, None)


def test_a_list_of_an_old_release_has_no_ranges():
    schema = json.loads(SCHEMA_TEXT)
    schema["fields"] = schema["fields"][:7]
    records = list(fastavro.reader(io.BytesIO(encode_manifest_list([META]))))
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), records)
    (found,) = decode_manifest_list(out.getvalue(), path="l")
    assert found == replace(META, min_bucket=None, max_bucket=None)


@pytest.mark.parametrize("name", ["../m", "a/b", "", "\x00", ".", "x" * 300])
def test_a_name_that_leads_elsewhere_is_refused(name):
    with pytest.raises(FormatError, match="file name in metadata"):
        decode_manifest_list(encode_manifest_list([META, replace(META, file_name=name)]), path="l")


@pytest.mark.parametrize("field", ["file_size", "num_added", "num_deleted"])
def test_a_negative_count_is_refused(field):
    with pytest.raises(FormatError, match="negative count"):
        decode_manifest_list(encode_manifest_list([replace(META, **{field: -1})]), path="l")


def test_another_version_is_refused_by_name():
    data = io.BytesIO()
    records = list(fastavro.reader(io.BytesIO(encode_manifest_list([META]))))
    records[0]["_VERSION"] = 1
    fastavro.writer(data, fastavro.parse_schema(json.loads(SCHEMA_TEXT)), records)
    with pytest.raises(FormatError, match="unknown version") as caught:
        decode_manifest_list(data.getvalue(), path="l")
    assert caught.value.facts["version"] == "1"


def test_a_manifest_is_no_manifest_list():
    with pytest.raises(FormatError, match="lacks a field"):
        decode_manifest_list(encode_manifest(empty_entries()), path="l")


def test_a_list_in_parquet_is_read():
    records = list(fastavro.reader(io.BytesIO(encode_manifest_list([META]))))
    out = io.BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_pylist(records), out)
    assert decode_manifest_list(out.getvalue(), path="l") == (META,)
