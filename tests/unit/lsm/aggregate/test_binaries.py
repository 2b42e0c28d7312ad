"""Bitmaps and sketches: values that Java wrote, bytes that are none, and what happens without the libraries."""

from __future__ import annotations

import sys

import datasketches
import pyarrow as pa
import pyroaring
import pytest

from tidelake.errors import FormatError, UnsupportedError
from tidelake.lsm.aggregate import aggregate_for
from tidelake.options import TableOptions
from tidelake.spec.types.data_types import BYTES

NAMES = ["rbm32", "rbm64", "hll_sketch", "theta_sketch"]

# Written by Apache Paimon 2.0.0: {9 << 16, 1 << 16}, {5 << 16, 1 << 16, 0}, and their union.
ONE = (
    "0102000000000000000002000500000000000000090104000000000000000001010000000000000004000000000000000009"
    "000000000000000001000000fe020000000102010000000000010201000000000002000000000000000000000001000000"
)
TWO = (
    "0103000000000000000003000500000000000005010004000000000000000000020000000000000004000000000000000001"
    "010000000000000004000000000000000005000000000000000001000000fe030000000102010000000000010201000000000001"
    "0201000000000003000000000000000000000002000000"
)
UNION = (
    "0104000000000000000004000500000000000905010004000000000000000000020000000000000004000000000000000001"
    "010000000000000004000000000000000005030000000000000004000000000000000009000000000000000001000000fe04000000"
    "010201000000000001020100000000000102010000000000010201000000000004000000000000000000000003000000"
)


def united(name: str, one: bytes | None, other: bytes | None) -> bytes | None:
    function = aggregate_for("c", BYTES, name, TableOptions())
    result: bytes | None = function.merge(pa.array([one], pa.binary()), pa.array([other], pa.binary()))[0].as_py()
    return result


def test_64_bit_bitmaps_are_united_in_the_order_in_which_java_inserts() -> None:
    assert united("rbm64", bytes.fromhex(ONE), bytes.fromhex(TWO)) == bytes.fromhex(UNION)


def test_an_empty_64_bit_bitmap_changes_nothing() -> None:
    assert united("rbm64", bytes.fromhex(ONE), b"\0") == bytes.fromhex(ONE)
    assert united("rbm64", b"\0", b"\0") == b"\0"


def single(high: int) -> bytes:
    """The bitmap of one value, `high << 16`."""
    leaf = "0400000000" + high.to_bytes(5, "big").hex() + "00" * 8
    return bytes.fromhex("010100000000000000" + leaf + "01000000fe01000000" + "0102010000000000" + "01" + "00" * 15)


def test_the_array_of_containers_grows_by_half_as_in_java() -> None:
    state, capacities = b"\0", []
    for high in range(300, 315):
        grown = united("rbm64", state, single(high))
        assert grown is not None
        state = grown
        capacities.append(state[state.index(b"\x01\0\0\0\xfe") + 5])
    assert capacities == [1, 2, 3, 4, 6, 6, 9, 9, 9, 13, 13, 13, 13, 19, 19]


def test_32_bit_bitmaps_come_out_with_runs() -> None:
    one, two = pyroaring.BitMap(range(0, 100, 2)), pyroaring.BitMap(range(1, 100, 2))
    result = united("rbm32", one.serialize(), two.serialize())
    assert result is not None
    assert result.hex() == "3b3000000100006300010000006300"


def test_theta_sketches_have_the_header_of_java() -> None:
    parts = []
    for start in (0, 5):
        sketch = datasketches.update_theta_sketch()
        for number in range(start, start + 10):
            sketch.update(number)
        parts.append(sketch.compact().serialize())
    result = united("theta_sketch", *parts)
    assert result is not None
    assert datasketches.compact_theta_sketch.deserialize(result).get_estimate() == 15
    assert result[12:16] == b"\x00\x00\x80\x3f"


@pytest.mark.parametrize("name", NAMES)
def test_a_null_side_gives_the_other_untouched(name: str) -> None:
    assert united(name, None, b"any") == b"any"
    assert united(name, b"any", None) == b"any"
    assert united(name, None, None) is None


@pytest.mark.parametrize("junk", [b"", b"\x01", b"\x01" * 40, b"junk" * 9])
@pytest.mark.parametrize("name", NAMES)
def test_bytes_that_are_no_set_are_refused_with_the_column(name: str, junk: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        united(name, junk, junk)
    assert caught.value.facts["column"] == "c"
    assert caught.value.facts["function"] == name


def test_a_64_bit_bitmap_cut_anywhere_is_refused() -> None:
    whole = bytes.fromhex(UNION)
    for size in range(1, len(whole)):
        with pytest.raises(FormatError):
            united("rbm64", whole[:size], b"\0")


def test_a_64_bit_bitmap_with_any_byte_changed_is_refused_or_read() -> None:
    whole = bytes.fromhex(UNION)
    for place in range(len(whole)):
        for flip in (0x01, 0x80, 0xFF):
            broken = whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :]
            try:
                united("rbm64", broken, bytes.fromhex(TWO))
            except FormatError:
                continue


@pytest.mark.parametrize("name", ["hll_sketch", "theta_sketch"])
def test_a_missing_library_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(UnsupportedError, match=r"tidelake\[sketches\]"):
        united(name, bytes.fromhex(ONE), bytes.fromhex(TWO))
