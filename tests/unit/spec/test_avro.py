"""Avro containers: framing, bounded decompression, copying of blocks."""

from __future__ import annotations

import io
import json
import lzma

import fastavro
import pytest

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.avro.container import (
    BLOCKS_MAX,
    COMPRESSORS,
    MAGIC,
    RawBlock,
    codec_name,
    copy_block,
    encode_long,
    frame_block,
    parse_container,
    read_block,
    read_blocks,
    write_container,
)
from tidelake.spec.limits import Limits

SCHEMA = json.dumps({"type": "record", "name": "r", "fields": [{"name": "x", "type": "long"}]})


def records(*values: int) -> RawBlock:
    return RawBlock(len(values), b"".join(encode_long(value) for value in values))


def file_of(*blocks: RawBlock, codec: str = "null") -> bytes:
    return write_container(SCHEMA, codec, [frame_block(block, codec) for block in blocks])


@pytest.mark.parametrize("value", [0, -1, 1, 63, 64, -64, -65, 2**31, -(2**31), 2**63 - 1, -(2**63)])
def test_a_long_has_the_bytes_that_any_avro_library_writes(value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", value)
    assert encode_long(value) == out.getvalue()


@pytest.mark.parametrize("codec", COMPRESSORS)
def test_blocks_come_back_from_every_codec(codec):
    blocks = [records(1, 2, 3), records(-4)]
    container = parse_container(file_of(*blocks, codec=codec), path="f")
    assert container.codec == codec
    assert container.record_count == 4
    assert read_blocks(container) == blocks


@pytest.mark.parametrize("codec", sorted(COMPRESSORS))
def test_an_independent_reader_understands_our_files(codec):
    found = list(fastavro.reader(io.BytesIO(file_of(records(1, 2), records(3), codec=codec))))
    assert [each["x"] for each in found] == [1, 2, 3]


@pytest.mark.parametrize("codec", sorted(COMPRESSORS))
def test_files_of_an_independent_writer_are_framed(codec):
    out = io.BytesIO()
    fastavro.writer(out, json.loads(SCHEMA), ({"x": i} for i in range(500)), codec=codec, sync_interval=100)
    container = parse_container(out.getvalue(), path="f")
    assert container.record_count == 500
    assert len(container.blocks) > 3
    assert b"".join(block.payload for block in read_blocks(container)) == records(*range(500)).payload


def test_the_same_content_gives_the_same_file_and_other_content_another_marker():
    assert file_of(records(1)) == file_of(records(1))
    assert file_of(records(1))[-16:] != file_of(records(2))[-16:]


def test_a_copied_block_is_byte_for_byte_the_old_one():
    container = parse_container(file_of(records(1, 2), records(3), codec="zstandard"), path="f")
    copied = write_container(SCHEMA, "zstandard", [copy_block(container, block) for block in container.blocks])
    assert read_blocks(parse_container(copied, path="g")) == read_blocks(container)


def test_a_file_without_blocks_holds_no_record():
    assert parse_container(write_container(SCHEMA, "null", []), path="f").record_count == 0


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: b"PAR1" + d[4:], "not an Avro container"),
        (lambda d: d[:3], "not an Avro container"),
        (lambda d: d[: len(MAGIC) + 3], "cut off|claims more bytes"),
        (lambda d: d[:-1], "claims more bytes"),
        (lambda d: d[:-1] + bytes([d[-1] ^ 1]), "does not end at a sync marker"),
        (lambda d: d + b"\x02", "cut-off number"),
        (lambda d: d.replace(b"avro.schema", b"avro.schemb"), "no readable schema"),
        (lambda d: d.replace(b'"type"', b"'type'"), "no readable schema"),
        (lambda d: MAGIC + encode_long(5_000) + d[5:], "too many entries"),
        (lambda d: MAGIC + b"\xff" * 20, "cut-off number"),
    ],
)
def test_a_file_that_is_not_framed_right_is_refused(spoil, message):
    with pytest.raises(FormatError, match=message) as caught:
        parse_container(spoil(file_of(records(1, 2, 3))), path="table/manifest/m")
    assert caught.value.facts["path"] == "table/manifest/m"


def test_a_header_map_in_the_counted_form_is_read():
    plain = file_of(records(7))
    body = plain[len(MAGIC) + 1 :]
    counted = MAGIC + encode_long(-2) + encode_long(len(body)) + body
    assert read_blocks(parse_container(counted, path="f")) == [records(7)]


def test_an_unknown_codec_is_named():
    data = write_container(SCHEMA, "lz9", [frame_block(records(1), "null")])
    with pytest.raises(FormatError, match="codec is not known") as caught:
        read_blocks(parse_container(data, path="f"))
    assert caught.value.facts["codec"] == "lz9"
    with pytest.raises(InvalidInputError, match="codec is not known"):
        frame_block(records(1), "lz9")


@pytest.mark.parametrize("codec", [codec for codec in COMPRESSORS if codec != "null"])
def test_a_damaged_or_cut_payload_is_refused(codec):
    payload = COMPRESSORS[codec](bytes(range(200)) * 20)
    for bad in (payload[:-3], b"\x00" * 10, payload[: len(payload) // 2], b""):
        container = parse_container(
            write_container(SCHEMA, codec, [encode_long(1) + encode_long(len(bad)) + bad]), path="f"
        )
        with pytest.raises(FormatError) as caught:
            read_block(container, container.blocks[0])
        assert caught.value.facts["path"] == "f"


def test_a_zstd_block_of_ours_notices_a_flipped_bit_in_its_literals():
    noise = bytes((i * 7919) % 251 for i in range(3_000))
    data = bytearray(write_container(SCHEMA, "zstandard", [frame_block(RawBlock(1, noise), "zstandard")]))
    data[len(data) // 2] ^= 1
    container = parse_container(bytes(data), path="f")
    with pytest.raises(FormatError, match="damaged"):
        read_block(container, container.blocks[0])


@pytest.mark.parametrize("codec", ["zstandard", "deflate", "bzip2", "xz", "snappy", "null"])
def test_a_block_over_the_limit_is_refused_by_its_own_code(codec):
    limits = Limits(manifest_bytes_max=1_000)
    container = parse_container(file_of(RawBlock(1, bytes(1_001)), codec=codec), path="f")
    with pytest.raises(FormatError) as caught:
        read_block(container, container.blocks[0], limits=limits)
    assert caught.value.code == "decompression-limit"
    fits = parse_container(file_of(RawBlock(1, bytes(1_000)), codec=codec), path="f")
    assert len(read_block(fits, fits.blocks[0], limits=limits).payload) == 1_000


def test_blocks_that_fit_one_by_one_but_not_together_are_refused():
    container = parse_container(file_of(RawBlock(1, bytes(600)), RawBlock(1, bytes(600)), codec="zstandard"), path="f")
    with pytest.raises(FormatError, match="Avro file expands") as caught:
        read_blocks(container, limits=Limits(manifest_bytes_max=1_000))
    assert caught.value.code == "decompression-limit"


def test_the_ratio_bounds_what_a_block_may_become():
    container = parse_container(file_of(RawBlock(1, bytes(40 << 20)), codec="zstandard"), path="f")
    with pytest.raises(FormatError, match="expands beyond the limit"):
        read_block(container, container.blocks[0])


def test_a_file_with_too_many_blocks_is_refused():
    empty = encode_long(0) + encode_long(0)
    with pytest.raises(FormatError, match="too many blocks"):
        parse_container(write_container(SCHEMA, "null", [empty] * (BLOCKS_MAX + 1)), path="f")


def test_an_xz_header_that_asks_for_too_much_memory_is_refused():
    greedy = lzma.compress(b"x" * 100, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 256 << 20}])
    container = parse_container(
        write_container(SCHEMA, "xz", [encode_long(1) + encode_long(len(greedy)) + greedy]), path="f"
    )
    with pytest.raises(FormatError, match="damaged"):
        read_block(container, container.blocks[0])


@pytest.mark.parametrize(
    ("option", "codec"), [("zstd", "zstandard"), ("ZSTD", "zstandard"), ("null", "null"), ("Snappy", "snappy")]
)
def test_the_option_names_the_codec(option, codec):
    assert codec_name(option) == codec


def test_an_option_that_names_no_codec_says_which_there_are():
    with pytest.raises(InvalidInputError) as caught:
        codec_name("brotli")
    assert caught.value.code == "option-value"
    assert "zstd" in str(caught.value)
