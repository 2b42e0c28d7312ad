"""The JSON gate: what it refuses, how it names the fault, and how documents look when written."""

import pickle
import time
from decimal import Decimal

import pytest

from tidelake.errors import FormatError, InternalError
from tidelake.spec.documents.json_doc import (
    dump,
    get_int,
    get_list,
    get_object,
    get_str,
    get_str_list,
    get_str_map,
    parse_object,
    unknown_members,
)
from tidelake.spec.limits import INT64_MAX, INT64_MIN, LIMITS, Limits


def parse(data: bytes, **limits: int) -> dict:
    return parse_object(data, path="t/schema/schema-0", **limits)


def test_an_object_comes_back_as_it_was_written():
    assert parse(b' {"a": [1, {"b": null}], "c": "\\u00e9\\ud83d\\ude00", "d": true} ') == {
        "a": [1, {"b": None}],
        "c": "é😀",
        "d": True,
    }


def test_fractions_keep_their_digits():
    assert str(parse(b'{"a": 86400.000000000}')["a"]) == "86400.000000000"
    assert parse(b'{"a": 12345678901234567890.123456789}')["a"] == Decimal("12345678901234567890.123456789")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"   ",
        b"{",
        b'{"a": 1',
        b'{"a": 1} x',
        b'{"a": 1}{"a": 1}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 01}',
        b'{"a": 1.}',
        b'{"a": +1}',
        b"{'a': 1}",
        b'{"a": 1,}',
        b'{"a": "\x01"}',
        b'{"a": "\\x"}',
        b'{"a": "\\ud800"}',
        b"\xef\xbb\xbf{}",
        '{"a": 1}'.encode("utf-16"),
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": 1e99999999999999999999999}',
        b'{"a": // no comments\n 1}',
    ],
)
def test_what_is_not_exactly_one_json_object_is_refused(data):
    with pytest.raises(FormatError) as error:
        parse(data)
    assert error.value.facts["path"] == "t/schema/schema-0"


@pytest.mark.parametrize(("data", "kind"), [(b"[]", "array"), (b"3", "number"), (b"null", "null"), (b'"a"', "string")])
def test_a_top_level_that_is_no_object_is_named(data, kind):
    with pytest.raises(FormatError, match="not a JSON object") as error:
        parse(data)
    assert error.value.facts["found"] == kind


def test_the_offset_of_the_fault_is_reported():
    with pytest.raises(FormatError) as error:
        parse(b'{"a": 1, "b": ?}')
    assert error.value.facts["offset"] == "14"


@pytest.mark.parametrize(
    ("data", "offset"), [(b'{"a": "x\xff"}', "8"), (b'{"\xc3": 1}', "2"), (b'{"a": "\xed\xa0\x80"}', "7")]
)
def test_bad_utf8_is_refused_with_its_place(data, offset):
    with pytest.raises(FormatError, match="UTF-8") as error:
        parse(data)
    assert error.value.facts["offset"] == offset


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b'{"a": 1, "a": 1}', "a"),
        (b'{"x": [{"b": 1, "c": 2, "b": 3}]}', "b"),
        (b'{"\\u0061": 1, "a": 2}', "a"),
        (b'{"q\\"": 1, "q\\"": 2}', 'q"'),
        (b'{"": 1, "": 2}', ""),
    ],
)
def test_a_key_given_twice_is_refused_by_name(data, key):
    with pytest.raises(FormatError, match="more than once") as error:
        parse(data)
    assert error.value.facts["key"] == key


def test_equal_keys_of_different_objects_are_no_duplicates():
    assert parse(b'{"a": {"a": {"a": [{"a": 1}, {"a": 2}]}}}')["a"]["a"]["a"][1] == {"a": 2}


def test_text_that_looks_like_structure_is_only_text():
    data = b'{"a": "{[\\\\\\"{[:\\\\", "b:": "}]:\\\\\\\\\\"{"}'
    assert parse(data, limit_depth=1) == {"a": '{[\\"{[:\\', "b:": '}]:\\\\"{'}


def test_an_oversized_document_is_refused_before_it_is_parsed():
    with pytest.raises(FormatError, match="too large"):
        parse(b"x" * 101, limit_bytes=100)
    with pytest.raises(FormatError, match="too large"):
        parse(b" " * (LIMITS.json_bytes + 1))


def test_the_depth_limit_counts_objects_and_arrays():
    assert parse(b'{"a":' + b"[" * 63 + b"]" * 63 + b"}")
    with pytest.raises(FormatError, match="too deeply"):
        parse(b'{"a":' + b"[" * 64 + b"]" * 64 + b"}")


@pytest.mark.parametrize("bomb", [b"[", b'{"a":', b'[{"":', b'{"a":[', b'"[', b'\\"', b"[]", b"{}:"])
def test_sixteen_megabytes_of_nesting_are_refused_at_once(bomb):
    data = bomb * (LIMITS.json_bytes // len(bomb))
    started = time.process_time()
    with pytest.raises(FormatError):
        parse(data)
    assert time.process_time() - started < 2


def test_deep_nesting_split_over_scan_pieces_is_still_counted():
    padding = b'"' + b'[{:\\"' * 20_000 + b'"'
    data = b'{"a":[' * 20 + padding + b"," + b"[" * 30 + b"]" * 30 + b"]}" * 20
    assert parse(data, limit_depth=70)
    with pytest.raises(FormatError, match="too deeply") as error:
        parse(data, limit_depth=69)
    assert error.value.facts["depth"] == "70"


# ---------------------------------------------------------------------------------------------------------- getters


def test_integers_are_integers_of_64_bits():
    doc = {"a": INT64_MAX, "b": INT64_MIN, "c": None}
    assert get_int(doc, "a", "p") == INT64_MAX
    assert get_int(doc, "b", "p") == INT64_MIN
    assert get_int(doc, "c", "p", default=7) == 7
    assert get_int(doc, "missing", "p", default=None) is None


@pytest.mark.parametrize("value", [True, "1", Decimal("1.0"), [], {}, 2**63, -(2**63) - 1, 2**70])
def test_what_is_no_64_bit_integer_is_refused(value):
    with pytest.raises(FormatError) as error:
        get_int({"k": value}, "k", "p/q", default=0)
    assert error.value.facts["path"] == "p/q"
    assert error.value.facts["key"] == "k"


def test_an_integer_outside_the_asked_range_is_refused():
    with pytest.raises(FormatError, match="out of range"):
        get_int({"k": -1}, "k", "p", minimum=0)


@pytest.mark.parametrize("getter", [get_int, get_str, get_list, get_object, get_str_list, get_str_map])
def test_a_required_key_that_is_absent_or_null_is_named(getter):
    for doc in ({}, {"k": None}):
        with pytest.raises(FormatError, match="lacks a required key") as error:
            getter(doc, "k", "p")
        assert error.value.facts["key"] == "k"


@pytest.mark.parametrize(
    ("getter", "bad"),
    [
        (get_str, 1),
        (get_list, {}),
        (get_object, []),
        (get_str_list, ["a", 1]),
        (get_str_list, "a"),
        (get_str_map, {"a": 1}),
        (get_str_map, {"a": None}),
        (get_str_map, []),
    ],
)
def test_a_value_of_another_type_is_refused(getter, bad):
    with pytest.raises(FormatError, match="wrong type"):
        getter({"k": bad}, "k", "p")


def test_unknown_members_keep_their_order():
    assert list(unknown_members({"z": 1, "id": 2, "a": 3}, ("id",)).items()) == [("z", 1), ("a", 3)]


# ---------------------------------------------------------------------------------------------------------- writing


def test_documents_look_as_java_prints_them():
    doc = {
        "a": ['x\x1f\x7fé\u2028/"\\', "y"],
        "e": {},
        "d": Decimal("1.5"),
        "n": None,
        "b": True,
        "ll": [[1], []],
        "o": [{"k": 1}, {"k": [{"q": "\t\n\r\b\f"}]}],
    }
    assert dump(doc).decode() == (
        '{\n  "a" : [ "x\\u001F\x7fé\u2028/\\"\\\\", "y" ],\n  "e" : { },\n  "d" : 1.5,\n  "n" : null,\n  "b" : true,\n'
        '  "ll" : [ [ 1 ], [ ] ],\n  "o" : [ {\n    "k" : 1\n  }, {\n    "k" : [ {\n'
        '      "q" : "\\t\\n\\r\\b\\f"\n    } ]\n  } ]\n}'
    )


def test_an_empty_document_is_written_as_java_does():
    assert dump({}) == b"{ }"


def test_fractions_are_written_in_plain_digits_unless_that_would_explode():
    assert dump({"a": Decimal("0.000000000")}) == b'{\n  "a" : 0.000000000\n}'
    assert parse(dump({"a": Decimal("1e999999")}))["a"] == Decimal("1e999999")


def test_what_json_cannot_hold_is_our_own_mistake():
    for value in (object(), Decimal("NaN"), b"bytes", {1}):
        with pytest.raises(InternalError):
            dump({"a": value})


def test_limits_are_values_with_the_published_defaults():
    assert Limits() == LIMITS == pickle.loads(pickle.dumps(LIMITS))
    assert (LIMITS.json_bytes, LIMITS.json_depth) == (16 * 2**20, 64)
    assert (LIMITS.manifest_bytes_max, LIMITS.manifest_ratio_max) == (512 * 2**20, 2000)
    assert (LIMITS.fields_max, LIMITS.type_depth_max) == (10_000, 32)
