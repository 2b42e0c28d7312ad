"""Deletion vectors as bytes: what Java wrote, what comes back, and what is refused."""

from __future__ import annotations

import random  # noqa: TID251 - drawn from a fixed seed
import struct
import subprocess
import sys
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from tidelake.errors import FormatError, InvalidInputError
from tidelake.index.vector_codec import (
    NARROW_MAGIC,
    WIDE_MAGIC,
    VectorRange,
    bitmap_of,
    block_bytes_max,
    check_version,
    decode_vector,
    encode_vectors,
)

BITMAP = "3a30000001000000000002001000000003000700" + "0b00"
NARROW = bytes.fromhex("01" + "0000001a" + "5e43f2d0" + BITMAP + "afbb8a39")
WIDE = bytes.fromhex("01" + "00000026" + "d1d33964" + "0100000000000000" + "00000000" + BITMAP + "06b746eb")
"""Written by Apache Paimon for the positions 3, 7 and 11."""
NARROW_RANGE = VectorRange("data-1", 1, 26, 3)
WIDE_RANGE = VectorRange("data-1", 1, 46, 3)


def positions(data: bytes, where: VectorRange, **more: int) -> list[int]:
    block = data[where.offset : where.offset + block_bytes_max(where)]
    return decode_vector(block, range=where, path="index/index-1", **more).tolist()


def block(body: bytes, *, wide: bool) -> tuple[bytes, VectorRange]:
    """A block of any content with sizes and checksum that fit."""
    whole = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    return b"\1" + whole, VectorRange("data-1", 1, len(whole) if wide else len(body), None)


@pytest.mark.parametrize(("data", "where", "wide"), [(NARROW, NARROW_RANGE, False), (WIDE, WIDE_RANGE, True)])
def test_files_of_the_reference_are_read_and_written_byte_for_byte(data: bytes, where: VectorRange, wide: bool) -> None:
    assert positions(data, where, row_count=12) == [3, 7, 11]
    assert encode_vectors([("data-1", BitMap([3, 7, 11]))], wide=wide) == (data, (where,))
    check_version(data, path="x")


@given(
    st.lists(st.sets(st.integers(0, 2**31 - 1) | st.integers(0, 300), max_size=200), max_size=5),
    st.lists(st.tuples(st.integers(0, 200_000), st.integers(1, 90_000)), max_size=3),
    st.booleans(),
)
def test_positions_come_back_whatever_their_pattern(
    sets: list[set[int]], runs: list[tuple[int, int]], wide: bool
) -> None:
    wanted = [sorted(each) for each in sets] + [list(range(at, at + count)) for at, count in runs]
    files = [(f"data-{number}", bitmap_of(np.array(each, np.int64))) for number, each in enumerate(wanted)]
    data, ranges = encode_vectors(files, wide=wide)
    assert [where.data_file for where in ranges] == [name for name, _ in files]
    assert [where.cardinality for where in ranges] == [len(each) for each in wanted]
    assert [positions(data, where) for where in ranges] == wanted


def test_a_wide_vector_may_have_gaps_and_positions_beyond_32_bits() -> None:
    empty, some = BitMap().serialize(), BitMap([5]).serialize()
    body = struct.pack("<iq", WIDE_MAGIC, 3) + b"".join(
        struct.pack("<i", key) + each for key, each in enumerate((some, empty, some))
    )
    data, where = block(body, wide=True)
    assert positions(data, where) == [5, (2 << 32) + 5]


def test_positions_are_marked_in_any_order() -> None:
    assert list(bitmap_of(np.array([9, 1, 9], np.int64))) == [1, 9]
    with pytest.raises(InvalidInputError):
        bitmap_of(np.array([1 << 32], np.int64))


def test_a_narrow_vector_reaches_as_far_as_the_reference_reads() -> None:
    with pytest.raises(InvalidInputError, match="bitmap64"):
        encode_vectors([("data-1", BitMap([1 << 31]))], wide=False)
    encode_vectors([("data-1", BitMap([1 << 31]))], wide=True)


@pytest.mark.parametrize(("data", "where"), [(NARROW, NARROW_RANGE), (WIDE, WIDE_RANGE)])
def test_every_flipped_bit_and_every_cut_is_refused(data: bytes, where: VectorRange) -> None:
    for place in range(1, len(data)):
        for bit in range(8):
            broken = data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]
            with pytest.raises(FormatError):
                positions(broken, where)
        with pytest.raises(FormatError):
            positions(data[:place], where)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(NARROW_RANGE, length=25),
        replace(NARROW_RANGE, length=27),
        replace(NARROW_RANGE, length=-5),
        replace(NARROW_RANGE, length=0),
        replace(NARROW_RANGE, offset=0),
        replace(NARROW_RANGE, offset=2),
        replace(NARROW_RANGE, cardinality=2),
        replace(NARROW_RANGE, cardinality=4),
    ],
)
def test_a_range_that_does_not_fit_is_refused_by_the_file_it_names(wrong: VectorRange) -> None:
    with pytest.raises(FormatError) as caught:
        positions(NARROW, wrong)
    assert caught.value.facts["data_file"] == "data-1"
    assert caught.value.facts["path"] == "index/index-1"


def test_positions_beyond_the_rows_of_the_file_are_refused() -> None:
    assert positions(NARROW, NARROW_RANGE, row_count=12) == [3, 7, 11]
    for rows in (11, 3, 0):
        with pytest.raises(FormatError, match="does not have"):
            positions(NARROW, NARROW_RANGE, row_count=rows)


@pytest.mark.parametrize("first", [b"", b"\0", b"\2", b"\xff\1"])
def test_another_version_is_refused(first: bytes) -> None:
    with pytest.raises(FormatError, match="version"):
        check_version(first, path="index/index-1")


def test_any_bytes_behind_a_right_checksum_give_positions_or_a_typed_error() -> None:
    """T9: the checksum is no protection against whoever computes it."""
    draw = random.Random(7)
    good = [BitMap([3, 7, 70_000]).serialize(), encode_vectors([("x", BitMap(range(99_999)))], wide=False)[0][9:-4]]
    seen = {"read": 0, "refused": 0}
    for number in range(4_000):
        body = bytearray(draw.choice(good))
        for _ in range(draw.randint(0, 3)):
            body[draw.randrange(len(body))] = draw.randrange(256)
        body = (
            body[: draw.randrange(len(body) + 1)] if draw.random() < 0.2 else body + draw.randbytes(draw.randint(0, 1))
        )
        wide = bool(number % 2)
        head = struct.pack("<iqi", WIDE_MAGIC, draw.choice((1, 1, 1, 2, -1, 2**62)), 0)
        data, where = block((head if wide else struct.pack(">i", NARROW_MAGIC)) + bytes(body), wide=wide)
        try:
            found = positions(data, where, row_count=100_000)
        except FormatError:
            seen["refused"] += 1
        else:
            seen["read"] += 1
            assert found == sorted(set(found))
            assert not found or 0 <= found[0] <= found[-1] < 100_000
    assert min(seen.values()) > 200, seen


def test_a_small_block_that_stands_for_four_billion_rows_takes_no_memory() -> None:
    """T12: 2^32 positions of 8 bytes would be 32 GiB."""
    full = BitMap()
    full.add_range(0, 1 << 32)
    full.run_optimize()
    data, where = block(struct.pack(">i", NARROW_MAGIC) + full.serialize(), wide=False)
    for rows in (None, 1 << 40, 10):
        with pytest.raises(FormatError):
            decode_vector(data[1:], range=where, row_count=rows)
    many = struct.pack("<iq", WIDE_MAGIC, 170_000) + (struct.pack("<i", 0) + BitMap().serialize()) * 170_000
    data, where = block(many, wide=True)
    with pytest.raises(FormatError):
        decode_vector(data[1:], range=where)


def test_importing_tidelake_loads_no_bitmaps() -> None:
    code = "import tidelake, tidelake.index.vector_codec, sys; assert 'pyroaring' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
