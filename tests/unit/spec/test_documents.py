"""Every document is read again before it is handed out: one that nobody could open is never written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tidelake.errors import InternalError, InvalidInputError
from tidelake.spec.avro.container import RawBlock, encode_container, frame_block
from tidelake.spec.documents.consumer import Consumer, consumer_to_json
from tidelake.spec.documents.progress import CommitProgress, progress_to_json
from tidelake.spec.documents.snapshot import CommitKind, Snapshot, snapshot_to_json
from tidelake.spec.documents.statistics import Statistics, statistics_to_json
from tidelake.spec.documents.success import Success, success_to_json
from tidelake.spec.documents.tag import Tag, tag_to_json
from tidelake.spec.manifests.manifest_list import SCHEMA_TEXT
from tidelake.spec.schemas.schema import Schema, new_schema, schema_to_json

SCHEMA = new_schema({"id": "INT"}, time_ms=1)
SNAPSHOT = Snapshot(
    id=1,
    schema_id=0,
    base_manifest_list="manifest-list-a-0",
    delta_manifest_list="manifest-list-a-1",
    commit_user="u",
    commit_identifier=1,
    commit_kind=CommitKind.APPEND,
    time_ms=1,
    total_record_count=0,
    delta_record_count=0,
)


def with_field(**changes: Any) -> Schema:
    return replace(SCHEMA, fields=(replace(SCHEMA.fields[0], **changes),))


@pytest.mark.parametrize(
    ("encode", "value"),
    [
        (schema_to_json, replace(SCHEMA, comment=5)),
        (schema_to_json, replace(SCHEMA, options={"k": 5})),
        (schema_to_json, replace(SCHEMA, primary_keys=("nope",))),
        (schema_to_json, replace(SCHEMA, highest_field_id=2**40)),
        (schema_to_json, with_field(default=5)),
        (schema_to_json, with_field(description=5)),
        (schema_to_json, with_field(name=5)),
        (schema_to_json, with_field(id="1")),
        (snapshot_to_json, replace(SNAPSHOT, commit_user=5)),
        (snapshot_to_json, replace(SNAPSHOT, time_ms="1")),
        (snapshot_to_json, replace(SNAPSHOT, properties={"a": 1})),
        (snapshot_to_json, replace(SNAPSHOT, base_manifest_list="../up")),
        (tag_to_json, Tag(snapshot=replace(SNAPSHOT, watermark="x"))),
        (consumer_to_json, Consumer(next_snapshot="1")),
        (progress_to_json, CommitProgress(user="u", committed="1")),
        (statistics_to_json, Statistics(snapshot_id="1", schema_id=0)),
        (success_to_json, Success(creation_time_ms="1", modification_time_ms=1)),
    ],
    ids=lambda each: getattr(each, "__name__", None) or type(each).__name__,
)
def test_a_document_that_could_not_be_read_is_not_handed_out(encode: Callable[[Any], bytes], value: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        encode(value)
    assert caught.value.code == "document-unreadable"


@pytest.mark.parametrize(
    "frames",
    [
        [b"\x02\x04ab\x00"],
        [frame_block(RawBlock(2, b"\x00"), "null")],
        [frame_block(RawBlock(1, b"\xff" * 40), "null")],
        [frame_block(RawBlock(1, b"\x00" * 400), "null")],
    ],
)
def test_a_manifest_that_could_not_be_read_is_not_handed_out(frames: list[bytes]) -> None:
    with pytest.raises(InternalError, match="not readable"):
        encode_container(SCHEMA_TEXT, "null", frames)
