"""The catalogue of option keys: complete, consistent with the value syntax, and good at hints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidelake import options
from tidelake.errors import InvalidInputError
from tidelake.options import UnknownKey, parse_bool
from tidelake.options.catalogue import (
    ENGINE_KEYS,
    FAMILIES,
    FAMILY_ENTRIES,
    KNOWN,
    OLD_SPELLINGS,
    CatalogEntry,
    check_values,
    current_spelling,
    is_immutable,
    is_known,
    nearest,
    unknown_keys,
)
from tidelake.spec.schemas.option_rules import bool_option

PARSERS: dict[str, Callable[[str], Any]] = {
    "boolean": options.parse_bool,
    "integer": options.parse_int,
    "long": lambda text: options.parse_int(text, bits=64),
    "double": options.parse_float,
    "float": options.parse_float,
    "duration": options.parse_duration,
    "memorysize": options.parse_bytes,
    "map": options.parse_map,
    "string": str,
    "enum": str,
}


def test_the_catalogue_has_every_key_of_the_format_once() -> None:
    core = [entry for entry in KNOWN.values() if entry.section != "Iceberg compatibility"]
    # 332 plain keys of the analysed line and two that only release 2.0.0 knows.
    assert len(core) == 334
    assert len(KNOWN) - len(core) == 17
    assert all(key == entry.key for key, entry in KNOWN.items())


@pytest.mark.parametrize("entry", KNOWN.values(), ids=lambda entry: entry.key)
def test_every_default_is_a_value_of_its_type(entry: CatalogEntry) -> None:
    parse = PARSERS[entry.type_name]
    if entry.default is not None:
        parse(entry.default)
    assert entry.doc
    assert entry.section
    assert entry.key == entry.key.strip()


def test_some_entries_say_what_the_format_says() -> None:
    retries = KNOWN["commit.max-retries"]
    assert (retries.type_name, retries.default, retries.immutable, retries.common) == ("integer", "10", False, True)
    assert KNOWN["commit.timeout"].default is None
    assert KNOWN["file.format.per.level"].default == ""
    assert KNOWN["merge-engine"].immutable
    assert KNOWN["metadata.stats-mode"].default == "truncate(16)"


def test_what_release_2_0_0_knows_differently_is_recorded() -> None:
    assert {key for key, entry in KNOWN.items() if entry.newer} == {
        "manifest.merge-optimize.enabled",
        "pk-multivalue.index.columns",
        "postpone.batch-write-fixed-bucket.rescale-load-factor",
        "primary-key.nullable",
    }
    assert KNOWN["manifest.format"].default == "avro"
    assert "upsert-key" in KNOWN
    assert KNOWN["postpone.default-bucket-num"].default == "1"


def test_old_spellings_point_to_current_keys_and_are_none_themselves() -> None:
    assert set(OLD_SPELLINGS.values()) <= set(KNOWN)
    assert not set(OLD_SPELLINGS) & set(KNOWN)
    assert current_spelling("write.compaction-skip") == "write-only"
    assert current_spelling("bucket") == "bucket"


def test_engine_keys_are_apart_from_the_keys_of_the_format() -> None:
    assert not ENGINE_KEYS & set(KNOWN)
    assert {"sink.parallelism", "precommit-compact", "scan.remove-normalize"} <= ENGINE_KEYS


@pytest.mark.parametrize(
    "key",
    [
        "bucket",
        "write.compaction-skip",
        "sink.parallelism",
        "fields.amount.aggregate-function",
        "fields.a,b.sequence-group",
        "fields.with.dots.ignore-retract",
        "fields.v.pk-vector.distance.metric",
        "file-index.bloom-filter.columns",
        "file-index.bloom-filter.c.fpp",
        "commit.callback.com.example.Mine.param",
        "parquet.compression.codec.zstd.level",
        "orc.dictionary.key.threshold",
        "blob-descriptor.fs.endpoint",
        "metadata.iceberg.uri",
    ],
)
def test_known_keys_are_known(key: str) -> None:
    assert is_known(key)


@pytest.mark.parametrize(
    "key", ["", "buckets", "fields.a", "fields..distinct", "fields.a.unknown", "parquet.", "Bucket"]
)
def test_other_keys_are_not(key: str) -> None:
    assert not is_known(key)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("comit.max-retries", "commit.max-retries"),
        ("commit.max_retry", "commit.max-retries"),
        ("BUCKET", "bucket"),
        ("snapshot.time-retain", "snapshot.time-retained"),
        ("fields.amount.agregate-function", "fields.amount.aggregate-function"),
        ("fields.a.b.sequence-groups", "fields.a.b.sequence-group"),
        ("fields.v.pk-vector.distance.metrics", "fields.v.pk-vector.distance.metric"),
        ("fields.a.zzz", None),
        ("fields." + "." * 10_000, None),
        ("qqqqqq", None),
    ],
)
def test_an_unknown_key_gets_the_nearest_known_one(key: str, hint: str | None) -> None:
    assert nearest(key) == hint


def test_unknown_keys_are_listed_in_order_with_their_hints() -> None:
    assert unknown_keys({"buket": "1", "bucket": "1", "mine": "x"}) == (
        UnknownKey("buket", "bucket"),
        UnknownKey("mine", None),
    )


def test_immutability_is_seen_through_old_spellings() -> None:
    assert is_immutable("bucket-key")
    assert is_immutable("blob.stored-descriptor-fields")
    assert not is_immutable("bucket")
    assert not is_immutable("no-such-key")


def test_every_family_matches_its_own_shape_and_no_plain_key_of_others() -> None:
    for entry, pattern in zip(FAMILY_ENTRIES, FAMILIES, strict=True):
        assert pattern.fullmatch(entry.shape)
        assert entry.doc
    stray = {key for key in KNOWN for pattern in FAMILIES if pattern.fullmatch(key)}
    # Known in their own right; the families they also match belong to the same libraries.
    assert stray <= {"parquet.enable.dictionary", "blob-descriptor.source-table", "file-index.read.enabled"}


@pytest.mark.parametrize("text", ["true", "TRUE", "False", "true ", " true", "\ttrue", "yes", "1", "", "TRUE\n"])
def test_one_text_is_a_boolean_for_every_reader_or_for_none(text: str) -> None:
    read = []
    for parse in (parse_bool, lambda value: bool_option({"k": value}, "k")):
        try:
            read.append(parse(text))
        except (ValueError, InvalidInputError):
            read.append(None)
    assert read[0] is read[1]
    assert (read[0] is None) == (text.lower() not in ("true", "false"))


@pytest.mark.parametrize(
    ("key", "text", "allowed"),
    [
        ("write-only", "TRUE", True),
        ("write-only", "true ", False),
        ("bucket", " 2", False),
        ("bucket", "+2", True),
        ("changelog-producer", "Full-Compaction", True),
        ("changelog-producer", "FULL_COMPACTION", False),
        ("changelog-producer", "input ", False),
        ("file.format", "ORC", True),
        ("file.format", "orc ", False),
        ("tag.period-formatter", "with_dashes", True),
        ("tag.period-formatter", "with-dashes", False),
    ],
)
def test_values_are_spelled_as_the_formats_own_readers_want_them(key: str, text: str, allowed: bool) -> None:
    """Asked of Apache Paimon 2.0.0, which cannot open a table with one that is not allowed."""
    if allowed:
        check_values({key: text})
    else:
        with pytest.raises(InvalidInputError):
            check_values({key: text})
