"""The options of data files and the names that tell their format."""

from __future__ import annotations

import pickle

import pytest

from kit.file_samples import make_batch, make_fields, write
from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.files.options import FileOptions, codec_of, extension_of, format_of
from tidelake.io import MemoryFileIO
from tidelake.spec.stats.stats_modes import COUNTS, FULL, KEY_MODE, NONE, parse_stats_mode


def test_defaults_are_those_of_the_format() -> None:
    options = FileOptions.parse({})
    assert (options.format, options.compression, options.zstd_level) == ("parquet", "zstd", 1)
    assert options.target_bytes(primary_key=True) == 128 << 20
    assert options.target_bytes(primary_key=False) == 256 << 20
    assert options.target_rows == 2**63 - 1
    assert options.stats_dense
    assert pickle.loads(pickle.dumps(options)) == options


def test_a_level_has_its_own_format_codec_and_statistics() -> None:
    options = FileOptions.parse(
        {
            "file.format.per.level": "0:avro,5:orc",
            "file.compression.per.level": "0:snappy",
            "metadata.stats-mode.per.level": "0:none",
        }
    )
    zero, three = options.for_level(0), options.for_level(3)
    assert (zero.format, zero.compression, zero.stats_mode) == ("avro", "snappy", "none")
    assert (three.format, three.compression, three.stats_mode) == ("parquet", "zstd", "truncate(16)")
    assert options.for_level(5).format == "orc"


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"file.compression.zstd-level": "99"}, "file.compression.zstd-level"),
        ({"target-file-size": "0"}, "target-file-size"),
        ({"metadata.stats-mode": "some"}, "metadata.stats-mode"),
        ({"parquet.enable.dictionary": "maybe"}, "parquet.enable.dictionary"),
    ],
)
def test_a_wrong_value_names_its_key(options: dict[str, str], key: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        FileOptions.parse(options)
    assert caught.value.code == "option-value"
    assert caught.value.facts["key"] == key


def test_statistics_modes_follow_column_key_and_position() -> None:
    fields = make_fields({"_KEY_id": "INT", "_SEQUENCE_NUMBER": "BIGINT", "id": "INT", "a": "STRING", "b": "STRING"})
    options = FileOptions.parse(
        {"metadata.stats-mode": "full", "metadata.stats-keep-first-n-columns": "2", "fields.a.stats-mode": "counts"}
    )
    assert options.stats_modes(fields) == (KEY_MODE, KEY_MODE, FULL, COUNTS, NONE)
    assert options.stats_modes(fields, keys={"b"})[4] == KEY_MODE
    assert FileOptions.parse({}).stats_modes(fields)[2] == parse_stats_mode("truncate(16)")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("data-1-0.parquet", "parquet"),
        ("data-1-0.zstd.parquet", "parquet"),
        ("bucket-0/data.v2-1-0.orc", "orc"),
        ("data-1-0.avro", "avro"),
        ("data-1-0.avro.gz", "avro"),
    ],
)
def test_the_name_of_a_file_shows_its_format(name: str, kind: str) -> None:
    assert format_of(name) == kind


@pytest.mark.parametrize(
    ("name", "kind"), [("a.lance", "lance"), ("a.csv.gz", "csv"), ("a.blob", "blob"), ("a", "(none)")]
)
def test_other_formats_are_refused_by_name(name: str, kind: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        format_of(name)
    assert caught.value.facts["format"] == kind


@pytest.mark.parametrize(("kind", "codec"), [("avro", "lz4"), ("orc", "gzip"), ("parquet", "zlib"), ("avro", "none")])
def test_codecs_that_the_reference_refuses_are_refused(kind: str, codec: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        codec_of(kind, codec)
    assert caught.value.code == "option-value"


def test_the_codec_can_stand_in_the_name() -> None:
    options = FileOptions.parse({"file.suffix.include.compression": "true", "file.compression": "SNAPPY"})
    assert extension_of("parquet", options) == "snappy.parquet"
    assert extension_of("parquet", FileOptions()) == "parquet"


def test_library_options_are_honoured_or_refused_by_name() -> None:
    fields = make_fields({"a": "INT"})
    batch = make_batch([{"a": 1}], fields)
    write(batch, fields, "parquet", {"parquet.page.size": "64 kb", "orc.bloom.filter.columns": "a"})
    io = MemoryFileIO()
    for kind, key in (
        ("parquet", "parquet.bloom.filter.enabled"),
        ("orc", "orc.bloom.filter.columns"),
        ("avro", "avro.x"),
    ):
        with pytest.raises(UnsupportedError) as caught:
            write(batch, fields, kind, {key: "a"}, io=io)
        assert caught.value.facts["key"] == key
    with pytest.raises(InvalidInputError, match="wrong form"):
        write(batch, fields, "parquet", {"parquet.page.size": "big"}, io=io)
    assert io.list("") == []
