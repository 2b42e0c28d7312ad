"""T9: whatever bytes a metadata file holds, its parser answers with a value or with `FormatError`, and quickly.

Every parser gets several hundred damaged documents: flipped bits, cut ends, spliced pieces, lengths and counts that
lie, doubled keys, numbers beyond 64 bits, texts that are no UTF-8, values of the wrong type. Manifests of ours carry a
checksum in each block, so for them a damaged file is refused or decodes to exactly the same table: never to another.
Seeds are fixed; a failure names the document and the number of the mutation.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelake.errors import FormatError
from tidelake.spec.avro import decode as avro_decode
from tidelake.spec.avro.container import Container, encode_long, parse_container, write_container
from tidelake.spec.data_file import DataFile, SimpleStats
from tidelake.spec.documents.consumer import Consumer, consumer_from_json, consumer_to_json
from tidelake.spec.documents.hint import hint_bytes, parse_hint
from tidelake.spec.documents.progress import CommitProgress, progress_from_json, progress_to_json
from tidelake.spec.documents.snapshot import CommitKind, Snapshot, snapshot_from_json, snapshot_to_json
from tidelake.spec.documents.statistics import ColumnStatistics, Statistics, statistics_from_json, statistics_to_json
from tidelake.spec.documents.success import Success, success_from_json, success_to_json
from tidelake.spec.documents.tag import Tag, tag_from_json, tag_to_json
from tidelake.spec.layout import TableLayout
from tidelake.spec.limits import INT64_MAX
from tidelake.spec.manifests.index_manifest import (
    DeletionVectorRange,
    GlobalIndexMeta,
    IndexEntry,
    IndexFile,
    decode_index_manifest,
    encode_index_manifest,
)
from tidelake.spec.manifests.manifest import decode_manifest, encode_manifest, entries_table
from tidelake.spec.manifests.manifest_list import ManifestMeta, decode_manifest_list, encode_manifest_list
from tidelake.spec.names import check_file_name
from tidelake.spec.schemas.schema import new_schema, schema_from_json, schema_to_json
from tidelake.store.manifests import ManifestNames, ManifestStore
from tidelake.testing import MemoryFileIO

SECONDS_MAX = 2.0
COUNT = 600

# ------------------------------------------------------------------------------------------------ good documents

SNAPSHOT = Snapshot(
    id=7,
    schema_id=1,
    base_manifest_list="manifest-list-0a-0",
    base_manifest_list_size_bytes=900,
    delta_manifest_list="manifest-list-0a-1",
    delta_manifest_list_size_bytes=901,
    changelog_manifest_list="manifest-list-0a-2",
    index_manifest="index-manifest-0a-0",
    commit_user="job é",
    commit_identifier=5,
    commit_kind=CommitKind.APPEND,
    time_ms=1_700_000_000_000,
    total_record_count=12,
    delta_record_count=3,
    watermark=-4,
    statistics="statistics-0a-0",
    properties={"a": "b", "progress.u": "9"},
    next_row_id=0,
    uuid="8b7e",
)
SCHEMA = new_schema(
    {
        "id": "BIGINT NOT NULL",
        "dt": "STRING NOT NULL",
        "m": "MAP<STRING, ARRAY<ROW<a INT, b DECIMAL(10, 2)>>>",
        "t": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    },
    primary_keys=["dt", "id"],
    partition_keys=["dt"],
    options={"bucket": "4", "note": "x"},
    comment="a table",
    time_ms=5,
)
TAG = Tag(snapshot=SNAPSHOT, create_time_ns=1_700_000_000_123_456_789, time_retained_ns=10**12)
STATISTICS = Statistics(
    snapshot_id=3,
    schema_id=0,
    merged_record_count=10,
    merged_record_size_bytes=99,
    columns={"id": ColumnStatistics(column_id=0, distinct_count=4, min="1", max="9", null_count=0, average_length=8)},
)

Parse = Callable[[bytes], Any]

JSON_DOCUMENTS: dict[str, tuple[bytes, Parse, Callable[[Any], bytes]]] = {
    "snapshot": (snapshot_to_json(SNAPSHOT), lambda d: snapshot_from_json(d, path="p"), snapshot_to_json),
    "schema": (schema_to_json(SCHEMA), lambda d: schema_from_json(d, path="p"), schema_to_json),
    "tag": (tag_to_json(TAG), lambda d: tag_from_json(d, path="p"), tag_to_json),
    "consumer": (
        consumer_to_json(Consumer(next_snapshot=4)),
        lambda d: consumer_from_json(d, path="p"),
        consumer_to_json,
    ),
    "statistics": (
        statistics_to_json(STATISTICS),
        lambda d: statistics_from_json(d, path="p"),
        statistics_to_json,
    ),
    "progress": (
        progress_to_json(CommitProgress(user="u", committed=3, pending=4, after=2)),
        lambda d: progress_from_json(d, path="p"),
        progress_to_json,
    ),
    "success": (
        success_to_json(Success(creation_time_ms=1, modification_time_ms=2)),
        lambda d: success_from_json(d, path="p"),
        success_to_json,
    ),
}


def entries(count: int = 40) -> pa.Table:
    return entries_table(
        [
            (
                i % 2,
                bytes(12),
                i,
                4,
                DataFile(
                    file_name=f"data-{i}.parquet",
                    file_size=i * 1000,
                    row_count=i,
                    extra_files=("x.index",) * (i % 3),
                    external_path="s3://b/x" if i % 4 == 0 else None,
                    value_stats=SimpleStats(b"a" * 12, b"b" * 12, (1, None, 2)),
                    value_stats_cols=("a", "b"),
                    creation_time_ms=123_456_789,
                ),
            )
            for i in range(count)
        ]
    )


METAS = tuple(
    ManifestMeta(
        file_name=f"manifest-{i}",
        file_size=500 + i,
        num_added=i,
        num_deleted=2,
        partition_stats=SimpleStats(bytes(12), bytes(12), (0, i)),
        schema_id=0,
        min_bucket=0,
        max_bucket=i,
    )
    for i in range(20)
)
INDEX = tuple(
    IndexEntry(
        bytes(12),
        i,
        IndexFile(
            index_type="DELETION_VECTORS",
            file_name=f"index-{i}",
            file_size=40,
            row_count=3,
            deletion_vectors=(DeletionVectorRange(f"data-{i}", 1, 22, 3), DeletionVectorRange("data-x", 23, 22, None)),
            global_index=GlobalIndexMeta(
                row_range_start=0, row_range_end=9, index_field_id=1, extra_field_ids=(2, 3), index_meta=b"z"
            ),
        ),
    )
    for i in range(15)
)
AVRO_DOCUMENTS: dict[str, tuple[Callable[[str], bytes], Parse]] = {
    "manifest": (lambda codec: encode_manifest(entries(), codec=codec), lambda d: decode_manifest(d, path="p")),
    "manifest list": (
        lambda codec: encode_manifest_list(METAS, codec=codec),
        lambda d: decode_manifest_list(d, path="p"),
    ),
    "index manifest": (
        lambda codec: encode_index_manifest(INDEX, codec=codec),
        lambda d: decode_index_manifest(d, path="p"),
    ),
}

# ------------------------------------------------------------------------------------------------ damage

BOMBS = (
    b"\xff" * 9 + b"\x01",  # 64 bits all set
    b"\xfe" + b"\xff" * 8 + b"\x01",
    b"\x80" * 12,  # a number without an end
    b"\x80" * 5 + b"\x20",  # 2^40
    b"\xff\xff\xff\xff\x0f",  # -2^31
    bytes(16),
    b"\x01",
)
JSON_PIECES = (
    b"NaN",
    b"Infinity",
    str(2**70).encode(),
    b"1e400",
    b"-0.5",
    b"9" * 400,
    b'"\\ud800"',
    b'"\xff\xfe"',
    b'"\\u0000"',
    b'"../../x"',
    b"null",
    b"true",
    b"[" * 200,
    b"{}",
    b"[]",
    b'"' + b"x" * 300 + b'"',
    b"\x00",
    b"\xef\xbb\xbf",
)
JSON_VALUES = (None, True, -1, 0, 2**63, 2**70, 0.5, "", "..", "a/b", "x" * 300, "\x00", [], {}, [[]], {"a": None})


class Damage:
    """Draws one damaged copy after the other, from a seed."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def pick(self, count: int) -> int:
        return int(self._rng.integers(0, count))

    def any_of(self, items: Any) -> Any:
        return items[self.pick(len(items))]

    def span(self, size: int) -> tuple[int, int]:
        a, b = sorted((self.pick(size + 1), self.pick(size + 1)))
        return a, b

    def bytes(self, good: bytes, pieces: tuple[bytes, ...]) -> bytes:
        data = bytearray(good)
        kind = self.pick(7)
        if kind == 0:
            for _ in range(1 + self.pick(3)):
                data[self.pick(len(data))] ^= 1 << self.pick(8)
        elif kind == 1:
            del data[self.pick(len(data)) :]
        elif kind == 2:
            data[self.pick(len(data))] = self.any_of((0, 1, 2, 0x22, 0x7F, 0x80, 0xFF))
        elif kind == 3:
            start, end = self.span(len(data))
            del data[start:end]
        elif kind == 4:
            start, end = self.span(len(data))
            place = self.pick(len(data))
            data[place:place] = data[start:end]
        elif kind == 5:
            place = self.pick(len(data))
            data[place:place] = self.any_of(pieces)
        else:
            place = self.pick(len(data))
            piece = self.any_of(pieces)
            data[place : place + len(piece)] = piece
        return bytes(data)

    def json(self, good: bytes) -> bytes:
        """A document of the right syntax with something wrong inside; or a key given twice."""
        doc = json.loads(good)
        if self.pick(5) == 0:
            key = self.any_of(sorted(doc))
            return good.rstrip()[:-1] + f', "{key}" : {json.dumps(doc[key])}}}'.encode()
        node, key = self.any_of(list(_places(doc)))
        action = self.pick(4)
        if action == 0 and isinstance(node, dict):
            del node[key]
        elif action == 1 and isinstance(node, dict):
            node[f"{key}?"] = node.pop(key)
        else:
            node[key] = copy.deepcopy(self.any_of(JSON_VALUES))
        return json.dumps(doc).encode()


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a document that holds a value, as (container, key)."""
    members = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in list(members):
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)


def answer(parse: Parse, data: bytes, what: str) -> Any:
    """The value, or None when the document was refused as it should be."""
    started = time.process_time()
    refusal: FormatError | None = None
    value = None
    try:
        value = parse(data)
    except FormatError as error:
        refusal = error
    except BaseException as error:
        raise AssertionError(f"{what}: {type(error).__name__} came out") from error
    assert time.process_time() - started < SECONDS_MAX, what
    assert refusal is None or 0 < len(str(refusal)) < 2_000, what
    return value


# ------------------------------------------------------------------------------------------------ JSON


@pytest.mark.parametrize("kind", JSON_DOCUMENTS)
def test_a_damaged_json_document_is_refused_or_still_obeys_the_gates(kind):
    good, parse, write = JSON_DOCUMENTS[kind]
    damage = Damage(1)
    refused = 0
    for number in range(COUNT):
        data = damage.json(good) if number % 2 else damage.bytes(good, JSON_PIECES)
        what = f"{kind} {number}"
        value = answer(parse, data, what)
        refused += value is None
        if value is None:
            continue
        check_gates(value)
        assert parse(write(value)) == value, what  # whatever is accepted can be written again
    assert refused > COUNT // 6


def check_gates(value: Any) -> None:
    if isinstance(value, Tag):
        value = value.snapshot
    if isinstance(value, Snapshot):
        assert 1 <= value.id <= INT64_MAX
        lists = (value.base_manifest_list, value.delta_manifest_list, value.changelog_manifest_list)
        for name in (*lists, value.index_manifest, value.statistics):
            if name is not None:
                check_file_name(name, path="p")
    if isinstance(value, Consumer):
        assert 0 <= value.next_snapshot <= INT64_MAX


@pytest.mark.parametrize("kind", JSON_DOCUMENTS)
def test_the_undamaged_documents_are_accepted(kind):
    good, parse, write = JSON_DOCUMENTS[kind]
    assert write(parse(good)) == good


@pytest.mark.parametrize("kind", JSON_DOCUMENTS)
@pytest.mark.parametrize("data", [b"", b"null", b"[]", b'"x"', b"{", b"\xff\xff", b"{}" * 2, b"7", b"\x00" * 100])
def test_what_is_no_json_object_is_refused(kind, data):
    with pytest.raises(FormatError):
        JSON_DOCUMENTS[kind][1](data)


def test_a_damaged_hint_is_a_positive_number_or_nothing():
    damage = Damage(2)
    for _ in range(COUNT):
        hint = parse_hint(damage.bytes(hint_bytes(1234567), (*JSON_PIECES, *BOMBS, "٣".encode(), b"+5", b" 7\n")))
        assert hint is None or 0 < hint <= INT64_MAX


# ------------------------------------------------------------------------------------------------ Avro


@pytest.fixture(params=["few", "bulk"])
def _reader(request, monkeypatch):
    monkeypatch.setattr(avro_decode, "BULK_COUNT", 0 if request.param == "bulk" else 10**9)


def block_ends(data: bytes) -> set[int]:
    """Where a file may be cut so that it is a shorter container; only the recorded size tells then."""
    container = parse_container(data, path="p")
    header = container.blocks[0].start - len(encode_long(container.blocks[0].count))
    header -= len(encode_long(container.blocks[0].size))
    return {header, *(block.start + block.size + 16 for block in container.blocks)}


@pytest.mark.usefixtures("_reader")
@pytest.mark.parametrize("kind", AVRO_DOCUMENTS)
def test_a_damaged_manifest_of_ours_is_refused_or_decodes_to_the_same(kind):
    make, parse = AVRO_DOCUMENTS[kind]
    good = make("zstandard")
    wanted = parse(good)
    ends = block_ends(good)
    damage = Damage(3)
    refused = 0
    for number in range(COUNT):
        data = damage.bytes(good, BOMBS)
        if len(data) in ends and data == good[: len(data)]:
            continue
        value = answer(parse, data, f"{kind} {number}")
        refused += value is None
        assert value is None or value == wanted, f"{kind} {number} decodes to something else"
    assert refused > COUNT * 0.9


@pytest.mark.usefixtures("_reader")
@pytest.mark.parametrize("codec", ["null", "snappy", "deflate", "bzip2", "xz"])
@pytest.mark.parametrize("kind", AVRO_DOCUMENTS)
def test_a_damaged_manifest_of_any_codec_gives_a_typed_answer(kind, codec):
    make, parse = AVRO_DOCUMENTS[kind]
    good = make(codec)
    damage = Damage(4)
    for number in range(COUNT // 2 if codec == "null" else COUNT // 6):
        answer(parse, damage.bytes(good, BOMBS), f"{kind} {codec} {number}")


AVRO_TYPES = (
    "null",
    "int",
    "long",
    "string",
    "bytes",
    "boolean",
    "float",
    "double",
    "record",
    "nothing",
    7,
    None,
    [],
    {},
    ["null", "null"],
    ["null", "string"],
    ["string", "null"],
    ["null", "int", "string"],
    {"type": "array", "items": "null"},
    {"type": "array", "items": {"type": "record", "name": "e", "fields": []}},
    {"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}},
    {"type": "map", "values": "null"},
    {"type": "array", "items": "long"},
    {"type": "record", "name": "r", "fields": [{"name": "x", "type": "r"}]},
    {"type": "enum", "name": "e2", "symbols": ["A"]},
    {"type": {"type": {"type": "int"}}},
)


@pytest.mark.usefixtures("_reader")
@pytest.mark.parametrize("kind", AVRO_DOCUMENTS)
def test_a_writer_schema_that_lies_gives_a_typed_answer(kind):
    make, parse = AVRO_DOCUMENTS[kind]
    container = parse_container(make("null"), path="p")
    damage = Damage(5)
    for number in range(COUNT):
        schema = copy.deepcopy(container.schema)
        node, key = damage.any_of([place for place in _places(schema) if place[1] != "namespace"])
        action = damage.pick(3)
        if action == 0 and isinstance(node, list) and node:
            node.insert(damage.pick(len(node)), copy.deepcopy(node[damage.pick(len(node))]))
        elif action == 1 and isinstance(node, dict):
            del node[key]
        else:
            node[key] = copy.deepcopy(damage.any_of(AVRO_TYPES))
        answer(parse, with_schema(container, schema), f"{kind} schema {number} at {key}: {node}"[:300])


def with_schema(container: Container, schema: Any) -> bytes:
    frames = [
        encode_long(block.count) + encode_long(block.size) + container.data[block.start : block.start + block.size]
        for block in container.blocks
    ]
    return write_container(json.dumps(schema), "null", frames)


@pytest.mark.usefixtures("_reader")
@pytest.mark.parametrize("off", [-40, -2, -1, 1, 2, 1000, 2**40, 2**62])
@pytest.mark.parametrize("kind", AVRO_DOCUMENTS)
def test_a_block_that_lies_about_its_count_is_refused(kind, off):
    make, parse = AVRO_DOCUMENTS[kind]
    container = parse_container(make("null"), path="p")
    (block,) = container.blocks
    payload = container.data[block.start : block.start + block.size]
    frame = encode_long(max(0, block.count + off)) + encode_long(block.size) + payload
    data = write_container(json.dumps(container.schema), "null", [frame])
    started = time.process_time()
    with pytest.raises(FormatError):
        parse(data)
    assert time.process_time() - started < SECONDS_MAX


def test_the_size_and_count_in_the_list_catch_a_manifest_cut_between_blocks():
    store = ManifestStore(MemoryFileIO(), TableLayout(), ())
    wide = entries_table(
        [(0, bytes(12), 0, 1, DataFile(file_name=f"f{i}", file_size=1, row_count=1)) for i in range(3000)]
    )
    (meta,) = store.write_entries(ManifestNames("u"), wide, schema_id=0)
    path = store.layout.manifest_path(meta.file_name)
    data = store.io.read(path)
    ends = sorted(block_ends(data))
    assert len(ends) > 3
    for end in ends[:-1]:
        store.io.overwrite(path, data[:end])
        with pytest.raises(FormatError, match="another size"):
            store.read_entries([meta])
        with pytest.raises(FormatError, match="another number of entries"):
            store.read_entries([replace(meta, file_size=end)])
