"""Statistics documents."""

import json
import pickle

import pytest

from tidelake.errors import FormatError
from tidelake.spec.documents.statistics import ColumnStatistics, Statistics, statistics_from_json, statistics_to_json

SPEC = b"""{ "snapshotId" : 1, "schemaId" : 0, "mergedRecordCount" : 2, "mergedRecordSize" : 100,
  "colStats" : {
    "k" : { "colId" : 0, "distinctCount" : 2, "min" : "1", "max" : "2", "nullCount" : 0, "avgLen" : 4, "maxLen" : 4 },
    "v" : { "colId" : 1, "distinctCount" : 2, "min" : "a", "max" : "b", "nullCount" : 0, "avgLen" : 1, "maxLen" : 1 }
  } }"""

# Printed by release 2.0.0 of the reference implementation.
JAVA = [
    b"""{
  "snapshotId" : 1,
  "schemaId" : 0,
  "mergedRecordCount" : 2,
  "mergedRecordSize" : 100,
  "colStats" : {
    "k" : {
      "colId" : 0,
      "distinctCount" : 2,
      "min" : "1",
      "max" : "2",
      "nullCount" : 0,
      "avgLen" : 4,
      "maxLen" : 4
    }
  }
}""",
    b'{\n  "snapshotId" : 1,\n  "schemaId" : 0,\n  "colStats" : null\n}',
    b'{\n  "snapshotId" : 1,\n  "schemaId" : 0,\n  "colStats" : { }\n}',
    b'{\n  "snapshotId" : 1,\n  "schemaId" : 0,\n  "colStats" : {\n    "k" : {\n      "colId" : 1\n    }\n  }\n}',
]


@pytest.mark.parametrize("data", JAVA)
def test_a_document_of_the_reference_is_written_back_byte_for_byte(data):
    assert statistics_to_json(statistics_from_json(data, path="p")) == data


def test_the_example_of_the_specification():
    statistics = statistics_from_json(SPEC, path="p")
    assert statistics == Statistics(
        snapshot_id=1,
        schema_id=0,
        merged_record_count=2,
        merged_record_size_bytes=100,
        columns={
            "k": ColumnStatistics(
                column_id=0, distinct_count=2, min="1", max="2", null_count=0, average_length=4, max_length=4
            ),
            "v": ColumnStatistics(
                column_id=1, distinct_count=2, min="a", max="b", null_count=0, average_length=1, max_length=1
            ),
        },
    )
    assert json.loads(statistics_to_json(statistics)) == json.loads(SPEC)
    assert pickle.loads(pickle.dumps(statistics)) == statistics


def test_members_it_does_not_know_survive_on_both_levels():
    doc = json.loads(SPEC) | {"future": True}
    doc["colStats"]["k"]["histogram"] = [1, 2]
    assert json.loads(statistics_to_json(statistics_from_json(json.dumps(doc).encode(), path="p"))) == doc


@pytest.mark.parametrize(
    "change",
    [
        {"snapshotId": None},
        {"schemaId": -1},
        {"mergedRecordCount": "2"},
        {"colStats": []},
        {"colStats": {"k": 1}},
        {"colStats": {"k": {}}},
        {"colStats": {"k": {"colId": 0, "min": 1}}},
        {"colStats": {"k": {"colId": 2**31}}},
        {"colStats": {"k": {"colId": 0, "nullCount": True}}},
    ],
)
def test_malformed_members_are_format_errors(change):
    with pytest.raises(FormatError):
        statistics_from_json(json.dumps(json.loads(SPEC) | change).encode(), path="p")
