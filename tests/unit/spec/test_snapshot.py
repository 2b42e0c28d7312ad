"""Snapshot files."""

import json
import pickle

import pytest

from tidelake.errors import FormatError
from tidelake.spec.documents.snapshot import CommitKind, Snapshot, snapshot_from_json, snapshot_to_json

# The example of the specification, which the reference implementation wrote.
JAVA = b"""{
  "version" : 3,
  "uuid" : "9e5622ce-fc64-47b1-83e0-f4c3122aa9b7",
  "id" : 3,
  "schemaId" : 0,
  "baseManifestList" : "manifest-list-dc3f23d9-c197-4e58-a1ac-f2df5f645997-0",
  "baseManifestListSize" : 1138,
  "deltaManifestList" : "manifest-list-dc3f23d9-c197-4e58-a1ac-f2df5f645997-1",
  "deltaManifestListSize" : 1108,
  "commitUser" : "7a100326-9b8b-4559-a722-b035f1eab133",
  "commitIdentifier" : 9223372036854775807,
  "commitKind" : "COMPACT",
  "timeMillis" : 1794771887787,
  "totalRecordCount" : 2,
  "deltaRecordCount" : -3,
  "nextRowId" : 0
}"""

# Every known member in the order of the specification; composed by hand.
FULL = b"""{
  "version" : 3,
  "uuid" : "x",
  "id" : 3,
  "schemaId" : 0,
  "baseManifestList" : "b",
  "baseManifestListSize" : 1,
  "deltaManifestList" : "d",
  "deltaManifestListSize" : 2,
  "changelogManifestList" : "c",
  "changelogManifestListSize" : 4,
  "indexManifest" : "i",
  "commitUser" : "u",
  "writerVersion" : "2.1",
  "commitIdentifier" : 1,
  "commitKind" : "APPEND",
  "timeMillis" : 1,
  "totalRecordCount" : 2,
  "deltaRecordCount" : -3,
  "changelogRecordCount" : 0,
  "watermark" : -9223372036854775808,
  "statistics" : "s",
  "properties" : {
    "a" : "b"
  },
  "nextRowId" : 3,
  "operation" : "WRITE"
}"""

# With the extras that the specification reports of releases 0.9 to 1.3; composed by hand.
OLD = {
    "version": 3,
    "id": 1,
    "schemaId": 0,
    "baseManifestList": "manifest-list-u-0",
    "deltaManifestList": "manifest-list-u-1",
    "changelogManifestList": None,
    "commitUser": "u",
    "commitIdentifier": 9223372036854775807,
    "commitKind": "APPEND",
    "timeMillis": 1,
    "logOffsets": {"0": 12},
    "totalRecordCount": 1,
    "deltaRecordCount": 1,
    "changelogRecordCount": 0,
    "watermark": -9223372036854775808,
}


def read(doc: dict, **how) -> Snapshot:
    return snapshot_from_json(json.dumps(doc).encode(), path="t/snapshot/snapshot-1", **how)


@pytest.mark.parametrize("data", [JAVA, FULL])
def test_a_file_with_known_members_is_written_back_byte_for_byte(data):
    assert snapshot_to_json(snapshot_from_json(data, path="p", expected_id=3)) == data


def test_every_member_lands_where_it_belongs():
    snapshot = snapshot_from_json(FULL, path="p")
    assert snapshot == Snapshot(
        version=3,
        uuid="x",
        id=3,
        schema_id=0,
        base_manifest_list="b",
        base_manifest_list_size_bytes=1,
        delta_manifest_list="d",
        delta_manifest_list_size_bytes=2,
        changelog_manifest_list="c",
        changelog_manifest_list_size_bytes=4,
        index_manifest="i",
        commit_user="u",
        writer_version="2.1",
        commit_identifier=1,
        commit_kind=CommitKind.APPEND,
        time_ms=1,
        total_record_count=2,
        delta_record_count=-3,
        changelog_record_count=0,
        watermark=-(2**63),
        statistics="s",
        properties={"a": "b"},
        next_row_id=3,
        operation="WRITE",
    )
    assert snapshot.identity == ("u", 1, CommitKind.APPEND)


def test_documents_of_old_writers_are_read_and_their_extras_survive():
    snapshot = read(OLD)
    assert snapshot.changelog_manifest_list is None
    assert snapshot.changelog_record_count == 0
    assert snapshot.unknown == {"logOffsets": {"0": 12}}
    again = json.loads(snapshot_to_json(snapshot))
    assert again == {key: value for key, value in OLD.items() if value is not None}
    assert list(again)[-1] == "logOffsets"


def test_old_versions_may_lack_the_record_counts_and_new_ones_may_not():
    without = {key: value for key, value in OLD.items() if "RecordCount" not in key}
    for version in (1, 2):
        snapshot = read(without | {"version": version})
        assert snapshot.total_record_count is None
        assert "totalRecordCount" not in json.loads(snapshot_to_json(snapshot))
    with pytest.raises(FormatError):
        read(without)
    assert read({key: value for key, value in without.items() if key != "version"}).version == 1


def test_an_operation_of_the_future_is_kept_and_empty_properties_vanish():
    snapshot = read(OLD | {"operation": "TELEPORT", "properties": {}})
    assert snapshot.operation == "TELEPORT"
    assert b"properties" not in snapshot_to_json(snapshot)


def test_the_id_must_be_the_one_of_the_file_name():
    assert read(OLD, expected_id=1).id == 1
    with pytest.raises(FormatError, match="differs from its file name"):
        read(OLD, expected_id=2)


@pytest.mark.parametrize(
    "key", ["baseManifestList", "deltaManifestList", "changelogManifestList", "indexManifest", "statistics"]
)
@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "", ".hidden", "a\\b", "a\x00", "x" * 256])
def test_a_file_name_that_could_lead_elsewhere_is_refused(key, name):
    with pytest.raises(FormatError, match="file name in metadata"):
        read(OLD | {key: name})


@pytest.mark.parametrize(
    "key",
    [
        "id",
        "schemaId",
        "baseManifestList",
        "deltaManifestList",
        "commitUser",
        "commitIdentifier",
        "commitKind",
        "timeMillis",
    ],
)
def test_required_members_are_named_when_they_are_missing_or_wrong(key):
    for doc in ({k: v for k, v in OLD.items() if k != key}, OLD | {key: None}, OLD | {key: []}):
        with pytest.raises(FormatError) as error:
            read(doc)
        assert error.value.facts["key"] == key


@pytest.mark.parametrize(
    "change",
    [
        {"id": 0},
        {"id": True},
        {"id": "1"},
        {"id": 2**70},
        {"schemaId": -1},
        {"version": -1},
        {"commitKind": "append"},
        {"commitKind": "MERGE"},
        {"baseManifestListSize": -1},
        {"totalRecordCount": 1.5},
        {"watermark": "1"},
        {"properties": {"a": 1}},
        {"nextRowId": -1},
        {"operation": 3},
        {"timeMillis": 2**63},
    ],
)
def test_malformed_members_are_format_errors(change):
    with pytest.raises(FormatError):
        read(OLD | change)


def test_snapshots_are_values():
    snapshot = snapshot_from_json(FULL, path="p")
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot
    assert len({snapshot, snapshot_from_json(FULL, path="q")}) == 1
