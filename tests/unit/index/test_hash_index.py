"""The hash index file of a dynamic bucket."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.errors import FormatError
from tidelake.index.hash_index import decode_hash_index, encode_hash_index
from tidelake.spec.rows.binary_hash import hash_rows
from tidelake.spec.types.data_types import INT

JAVA = bytes.fromhex("5759f99ed206e547564770caee18d2a54fe4bbf0")
"""Written by Apache Paimon for the INT keys 0 to 4."""


def test_a_file_of_the_reference_holds_the_hashes_of_its_keys() -> None:
    wanted = np.sort(hash_rows([pa.array(range(5), pa.int32())], [INT]))
    assert decode_hash_index(JAVA, path="x", row_count=5).tolist() == wanted.tolist()
    assert -300363099 in wanted


@given(st.sets(st.integers(-(2**31), 2**31 - 1)))
def test_hashes_come_back(hashes: set[int]) -> None:
    data = encode_hash_index(np.array(list(hashes), np.int32))
    assert len(data) == 4 * len(hashes)
    assert decode_hash_index(data, path="x").tolist() == sorted(hashes)


def test_numbers_are_big_endian_and_written_once() -> None:
    assert encode_hash_index(np.array([1, -1, 1], np.int32)) == b"\xff\xff\xff\xff\x00\x00\x00\x01"


@pytest.mark.parametrize(("data", "count"), [(JAVA[:-1], None), (JAVA, 4), (JAVA[:-4], 5), (b"", 1)])
def test_a_cut_file_is_refused_by_its_path(data: bytes, count: int | None) -> None:
    with pytest.raises(FormatError) as caught:
        decode_hash_index(data, path="index/index-1", row_count=count)
    assert caught.value.facts["path"] == "index/index-1"


def test_a_hash_written_twice_by_another_writer_counts_once() -> None:
    assert decode_hash_index(JAVA + JAVA, path="x", row_count=10).size == 5
