"""Tag files."""

import json
import pickle
from decimal import Decimal

import pytest

from tidelake.errors import FormatError
from tidelake.spec.documents.snapshot import snapshot_from_json
from tidelake.spec.documents.tag import Tag, tag_from_json, tag_to_json

# Written by release 2.0.0 of the reference implementation.
PLAIN = b"""{
  "version" : 3,
  "uuid" : "640f3d94-b804-47b4-9629-a469321d1231",
  "id" : 1,
  "schemaId" : 0,
  "baseManifestList" : "manifest-list-7773a6c6-b12b-4c88-a725-926f66ec1a99-0",
  "baseManifestListSize" : 1006,
  "deltaManifestList" : "manifest-list-7773a6c6-b12b-4c88-a725-926f66ec1a99-1",
  "deltaManifestListSize" : 1119,
  "commitUser" : "oracle-batch-10dcb53b-540b-4852-9c36-97471472a003",
  "commitIdentifier" : 9223372036854775807,
  "commitKind" : "APPEND",
  "timeMillis" : 1794783576471,
  "totalRecordCount" : 1,
  "deltaRecordCount" : 1,
  "nextRowId" : 0
}"""
TIMED = PLAIN[:-2] + (
    b',\n  "tagCreateTime" : [ 2026, 11, 15, 22, 59, 36, 597868034 ],\n  "tagTimeRetained" : 86400.000000000\n}'
)
SECOND = 10**9
CREATED_NS = 1794783576 * SECOND + 597868034


def with_times(create: object = None, retained: object = None) -> bytes:
    doc = json.loads(PLAIN)
    text = json.dumps(doc | {"tagCreateTime": create})
    return (
        f'{text[:-1]}, "tagTimeRetained": {retained if isinstance(retained, str) else json.dumps(retained)}}}'.encode()
    )


def test_a_plain_tag_is_a_snapshot_byte_for_byte():
    tag = tag_from_json(PLAIN, path="p")
    assert tag == Tag(snapshot=snapshot_from_json(PLAIN, path="p"))
    assert tag_to_json(tag) == PLAIN


def test_a_tag_with_a_lifetime_is_written_back_byte_for_byte():
    tag = tag_from_json(TIMED, path="p")
    assert tag.create_time_ns == CREATED_NS
    assert tag.time_retained_ns == 86_400 * SECOND
    assert tag.snapshot == snapshot_from_json(PLAIN, path="p")
    assert tag_to_json(tag) == TIMED


@pytest.mark.parametrize(
    ("written", "seconds", "rewritten"),
    [
        ([2026, 11, 15, 0, 0], "1794700800", [2026, 11, 15, 0, 0]),
        ([2026, 11, 15, 19, 44, 0], "1794771840", [2026, 11, 15, 19, 44]),
        ([2026, 11, 15, 19, 44, 5], "1794771845", [2026, 11, 15, 19, 44, 5]),
        ([2026, 11, 15, 19, 44, 0, 1], "1794771840.000000001", [2026, 11, 15, 19, 44, 0, 1]),
        ([1969, 12, 31, 23, 59, 59, 999999999], "-0.000000001", [1969, 12, 31, 23, 59, 59, 999999999]),
        ("2026-11-15T19:44:05.5", "1794771845.5", [2026, 11, 15, 19, 44, 5, 500000000]),
        ("2026-11-15T19:44", "1794771840", [2026, 11, 15, 19, 44]),
    ],
)
def test_both_forms_of_the_creation_time_are_read(written, seconds, rewritten):
    tag = tag_from_json(with_times(written), path="p")
    assert tag.create_time_ns == int(Decimal(seconds) * SECOND)
    assert json.loads(tag_to_json(tag))["tagCreateTime"] == rewritten


@pytest.mark.parametrize(
    ("written", "nanoseconds"),
    [
        ("86400", 86_400 * SECOND),
        ("0.5", SECOND // 2),
        ("86400.123456789", 86_400_123_456_789),
        ("1E3", 1000 * SECOND),
        ("1e-999999", 0),
        ('"PT24H"', 86_400 * SECOND),
        ('"P1DT2H"', 93_600 * SECOND),
        ('"pt1m0.5s"', 60_500_000_000),
        ('"PT-1S"', -SECOND),
        ('"-PT1S"', -SECOND),
    ],
)
def test_both_forms_of_the_retention_are_read(written, nanoseconds):
    assert tag_from_json(with_times(None, written), path="p").time_retained_ns == nanoseconds


def test_a_short_retention_is_written_in_plain_digits():
    tag = Tag(snapshot=snapshot_from_json(PLAIN, path="p"), time_retained_ns=0)
    assert b'"tagTimeRetained" : 0.000000000\n' in tag_to_json(tag)


@pytest.mark.parametrize(
    "create",
    [
        [2026, 11, 15],
        [2026, 11, 15, 1, 1, 1, 1, 1],
        [2026, 13, 15, 0, 0],
        [0, 1, 1, 0, 0],
        [2**70, 1, 1, 0, 0],
        [2026, 11, 15, 0, 0, 0, 10**9],
        [2026, 11, 15, 0, 0, 0, -1],
        [2026, 11, 15, 0, True],
        [2026, 11, 15, 0, "0"],
        "2026-11-15",
        "2026-11-31T00:00",
        "",
        5,
        {},
        True,
    ],
)
def test_a_malformed_creation_time_is_a_format_error(create):
    with pytest.raises(FormatError) as error:
        tag_from_json(with_times(create), path="p")
    assert error.value.facts["key"] == "tagCreateTime"


@pytest.mark.parametrize(
    "retained",
    ["true", "[]", "{}", '""', '"P"', '"PT"', '"P1DT"', '"1 d"', '"PT1.5H"', "1e999999", "1e99", "-1e30", str(2**70)],
)
def test_a_malformed_retention_is_a_format_error(retained):
    with pytest.raises(FormatError) as error:
        tag_from_json(with_times(None, retained), path="p")
    assert error.value.facts["key"] == "tagTimeRetained"


def test_unknown_members_survive_behind_the_tag_members():
    doc = json.loads(TIMED) | {"future": 1}
    again = tag_to_json(tag_from_json(json.dumps(doc).encode(), path="p"))
    assert list(json.loads(again))[-3:] == ["tagCreateTime", "tagTimeRetained", "future"]


def test_tags_are_values():
    tag = tag_from_json(TIMED, path="p")
    assert pickle.loads(pickle.dumps(tag)) == tag
