"""T12: small inputs that want much memory, time or stack are refused with a typed error within a second.

The bombs are built here and thrown at the parsers in one other process whose address space is limited: a parser that
allocates what a hostile length claims dies there, and the test with it.
"""

from __future__ import annotations

import bz2
import json
import lzma
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from backports import zstd

from tidelake.errors import InvalidInputError
from tidelake.spec.avro.container import encode_long, write_container
from tidelake.spec.manifests.index_manifest import SCHEMA_TEXT as INDEX_SCHEMA
from tidelake.spec.manifests.manifest import SCHEMA_TEXT as MANIFEST_SCHEMA
from tidelake.spec.manifests.manifest_list import SCHEMA_TEXT as LIST_SCHEMA
from tidelake.spec.types.type_codec import parse_type

ADDRESS_SPACE = 1536 << 20
SECONDS_MAX = 4.0
BIG = 48 << 20

RUNNER = """
import json, os, resource, sys, time
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
os.environ["POLARS_MAX_THREADS"] = "1"
limit = int(sys.argv[1])
import polars_avro
from tidelake.errors import TidelakeError
from tidelake.spec.avro import decode as avro_decode
from tidelake.spec.documents.consumer import consumer_from_json
from tidelake.spec.manifests.index_manifest import decode_index_manifest
from tidelake.spec.manifests.manifest import decode_manifest
from tidelake.spec.manifests.manifest_list import decode_manifest_list
from tidelake.spec.documents.progress import progress_from_json
from tidelake.spec.schemas.schema import schema_from_json
from tidelake.spec.documents.snapshot import snapshot_from_json
from tidelake.spec.documents.statistics import statistics_from_json
from tidelake.spec.documents.success import success_from_json
from tidelake.spec.documents.tag import tag_from_json
parsers = {
    "manifest": decode_manifest, "list": decode_manifest_list, "index": decode_index_manifest,
    "snapshot": snapshot_from_json, "schema": schema_from_json, "tag": tag_from_json, "consumer": consumer_from_json,
    "statistics": statistics_from_json, "progress": progress_from_json, "success": success_from_json,
}
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for line in sys.stdin:
    name, parser, bulk, path = json.loads(line)
    avro_decode.BULK_COUNT = 0 if bulk else 10**9
    with open(path, "rb") as file:
        data = file.read()
    started = time.process_time()
    try:
        parsers[parser](data, path=name)
        answer = "accepted"
    except TidelakeError as error:
        answer = type(error).__name__
        assert len(str(error)) < 2000, name
    except BaseException as error:
        answer = "UNTYPED " + type(error).__name__ + " " + str(error)[:200]
    print(json.dumps([name, answer, time.process_time() - started]), flush=True)
"""


# ------------------------------------------------------------------------------------------------ building


def container(codec: str, payload: bytes, *, count: int = 1, schema: str = MANIFEST_SCHEMA, copies: int = 1) -> bytes:
    return write_container(schema, codec, [encode_long(count) + encode_long(len(payload)) + payload] * copies)


def deflated(size: int) -> bytes:
    stream = zlib.compressobj(9, wbits=-15)
    return stream.compress(bytes(size)) + stream.flush()


def xz_with_huge_dictionary() -> bytes:
    """A small stream whose header asks the reader for 4 GiB of dictionary."""
    data = bytearray(lzma.compress(b"x" * 100, check=lzma.CHECK_NONE))
    size = (data[12] + 1) * 4
    assert data[12 + 2 : 12 + 4] == b"\x21\x01"
    data[12 + 4] = 40
    data[12 + size - 4 : 12 + size] = zlib.crc32(data[12 : 12 + size - 4]).to_bytes(4, "little")
    return bytes(data)


def zstd_with_huge_window() -> bytes:
    """A frame header that asks for a window of 2 TiB, then one stored block."""
    return b"\x28\xb5\x2f\xfd" + bytes([0x00, 0xF8]) + b"\x09\x00\x00" + b"x"


def snappy_claiming(size: int) -> bytes:
    out, rest = bytearray(), size
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out) + b"\x00x" + bytes(4)


def array_schema(items: object) -> str:
    schema = json.loads(MANIFEST_SCHEMA)
    file = schema["fields"][-1]["type"]
    extra = next(field for field in file["fields"] if field["name"] == "_EXTRA_FILES")
    extra["type"] = {"type": "array", "items": items}
    return json.dumps(schema)


def record_with_items(count: int) -> bytes:
    """A manifest record whose list of extra files claims `count` items."""
    row = b"\x00"
    stats = row + row + row
    head = encode_long(2) + b"\x00" + row + b"\x00\x00"
    return head + b"\x02f" + b"\x00\x00" + row + row + stats + stats + bytes(4) + encode_long(count) + bytes(40)


def schema_document(fields: object) -> bytes:
    doc = {"version": 3, "id": 0, "fields": fields, "highestFieldId": 1, "partitionKeys": [], "primaryKeys": []}
    return json.dumps({**doc, "options": {}, "comment": "", "timeMillis": 0}).encode()


def nested_type(depth: int) -> object:
    inner: object = "INT"
    for _ in range(depth):
        inner = {"type": "ARRAY", "element": inner}
    return inner


JSON_PARSERS = ("snapshot", "schema", "tag", "consumer", "statistics", "progress", "success")

AVRO_BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "zstd 1:30000": ("manifest", lambda: container("zstandard", zstd.compress(bytes(BIG)))),
    "zstd within the ratio, blocks add up": (
        "manifest",
        lambda: container("zstandard", zstd.compress(bytes(1 << 20)), copies=5_000),
    ),
    "zstd window": ("manifest", lambda: container("zstandard", zstd_with_huge_window())),
    "zstd list": ("list", lambda: container("zstandard", zstd.compress(bytes(BIG)), schema=LIST_SCHEMA)),
    "zstd index": ("index", lambda: container("zstandard", zstd.compress(bytes(BIG)), schema=INDEX_SCHEMA)),
    "deflate": ("manifest", lambda: container("deflate", deflated(100 << 20))),
    "bzip2": ("manifest", lambda: container("bzip2", bz2.compress(bytes(BIG)))),
    "xz": ("manifest", lambda: container("xz", lzma.compress(bytes(BIG)))),
    "xz dictionary": ("manifest", lambda: container("xz", xz_with_huge_dictionary())),
    "snappy 4 GiB": ("manifest", lambda: container("snappy", snappy_claiming(2**32 - 1))),
    "snappy 34 bits": ("manifest", lambda: container("snappy", snappy_claiming(2**34))),
    "snappy wrong length": ("manifest", lambda: container("snappy", snappy_claiming(900_000))),
    "list of 2^40 records": ("list", lambda: container("null", bytes(100), count=2**40, schema=LIST_SCHEMA)),
    "manifest of 2^62 records": ("manifest", lambda: container("null", bytes(100), count=2**62)),
    "index of 2^40 records": ("index", lambda: container("null", bytes(100), count=2**40, schema=INDEX_SCHEMA)),
    "empty blocks": ("manifest", lambda: container("null", b"", count=0, copies=1_000_000)),
    "items without bytes": (
        "manifest",
        lambda: container("null", record_with_items(2**40), schema=array_schema("null")),
    ),
    "items that are empty records": (
        "manifest",
        lambda: container(
            "null",
            record_with_items(2**40),
            schema=array_schema({"type": "record", "name": "e", "fields": []}),
        ),
    ),
    "items claimed": ("manifest", lambda: container("null", record_with_items(2**40))),
    "items claimed, counted down": ("manifest", lambda: container("null", record_with_items(-(2**62)))),
    "schema nested": (
        "manifest",
        lambda: container("null", bytes(100), schema='{"type":"array","items":' * 50_000 + '"int"' + "}" * 50_000),
    ),
    "schema that holds itself": (
        "manifest",
        lambda: container(
            "null",
            record_with_items(2),
            schema=array_schema({"type": "record", "name": "r", "fields": [{"name": "x", "type": "r"}]}),
        ),
    ),
}


def json_bombs() -> Iterator[tuple[str, str, bytes]]:
    for parser in JSON_PARSERS:
        yield f"{parser} nested arrays", parser, b"[" * 100_000 + b"]" * 100_000
        yield f"{parser} nested objects", parser, b'{"a":' * 100_000 + b"1" + b"}" * 100_000
        yield f"{parser} open brackets", parser, b"[" * (15 << 20)
        yield f"{parser} too large", parser, b'{"a":"' + b"x" * (16 << 20) + b'"}'
        yield f"{parser} long number", parser, b'{"id":' + b"9" * 1_000_000 + b"}"
        yield f"{parser} exponent", parser, b'{"id":1e999999999}'
        yield f"{parser} one key again and again", parser, b"{" + b'"id":1,' * 500_000 + b'"id":1}'
    yield (
        "schema of 10^6 fields",
        "schema",
        b'{"fields":[' + b'{"id":1,"name":"c","type":"INT"},' * 10**6 + b"{}]}",
    )
    yield (
        "schema of 10^5 fields",
        "schema",
        schema_document([{"id": i, "name": f"c{i}", "type": "INT"} for i in range(10**5)]),
    )
    yield (
        "schema nested in text",
        "schema",
        schema_document([{"id": 0, "name": "a", "type": "ARRAY<" * 10_000 + "INT" + ">" * 10_000}]),
    )
    yield "schema nested 60 deep", "schema", schema_document([{"id": 0, "name": "a", "type": nested_type(60)}])
    deep = b'{"type":"ARRAY","element":' * 10_000 + b'"INT"' + b"}" * 10_000
    yield (
        "schema nested 10^4 deep",
        "schema",
        schema_document([{"id": 0, "name": "a", "type": 0}]).replace(b'"type": 0', b'"type": ' + deep),
    )


# ------------------------------------------------------------------------------------------------ throwing


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict[str, tuple[str, float]]:
    folder: Path = tmp_path_factory.mktemp("bombs")
    orders = []
    for number, (name, (parser, build)) in enumerate(AVRO_BOMBS.items()):
        path = folder / f"avro-{number}"
        path.write_bytes(build())
        orders += [(name, parser, False, str(path)), (f"{name}, in bulk", parser, True, str(path))]
    for number, (name, parser, data) in enumerate(json_bombs()):
        path = folder / f"json-{number}"
        path.write_bytes(data)
        orders.append((name, parser, False, str(path)))
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, str(ADDRESS_SPACE)],
        input="\n".join(json.dumps(order) for order in orders),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    found = {name: (answer, seconds) for name, answer, seconds in map(json.loads, done.stdout.splitlines())}
    missing = [name for name, *_ in orders if name not in found]
    assert not missing, f"the process died at {missing[0]}: {done.stderr[-2000:]}"
    assert done.returncode == 0, done.stderr[-2000:]
    return found


@pytest.mark.parametrize("bulk", ["", ", in bulk"])
@pytest.mark.parametrize("name", AVRO_BOMBS)
def test_an_avro_bomb_is_refused_in_time_and_within_the_memory(answers, name, bulk):
    answer, seconds = answers[name + bulk]
    assert answer == "FormatError"
    assert seconds < SECONDS_MAX


def test_a_json_bomb_is_refused_in_time_and_within_the_memory(answers):
    names = [name for name in answers if name.removesuffix(", in bulk") not in AVRO_BOMBS]
    assert len(names) >= 7 * len(JSON_PARSERS)
    assert {name: answers[name][0] for name in names if answers[name][0] != "FormatError"} == {}
    assert {name: answers[name][1] for name in names if answers[name][1] >= SECONDS_MAX} == {}


@pytest.mark.parametrize(
    "text",
    [
        "ARRAY<" * 10_000 + "INT" + ">" * 10_000,
        "ROW<" + ", ".join(f"a{i} INT" for i in range(20_000)) + ">",
        "(" * 50_000,
        "DECIMAL(" + "9" * 100_000 + ")",
    ],
)
def test_a_type_text_that_is_a_bomb_is_a_wrong_argument(text):
    with pytest.raises(InvalidInputError) as caught:
        parse_type(text)
    assert len(str(caught.value)) < 2_000
