"""The head of a file index says what is indexed; a damaged one is refused."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.errors import FormatError
from tidelake.index.file_index import FileIndexEntry, parse_head

MAGIC = 1493475289347502


def text(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


def container(columns: dict[bytes, list[tuple[bytes, int, int]]], *, magic: int = MAGIC, version: int = 1) -> bytes:
    """A container whose bodies are left out."""
    rest = struct.pack(">i", len(columns))
    for column, indexes in columns.items():
        rest += text(column) + struct.pack(">i", len(indexes))
        for kind, start, size in indexes:
            rest += text(kind) + struct.pack(">ii", start, size)
    rest += struct.pack(">i", 0)
    return struct.pack(">qii", magic, version, 16 + len(rest)) + rest


SMALL = container({b"id": [(b"bloom-filter", 90, 12), (b"bitmap", -1, 0)], b"m[k]": [(b"bitmap", 102, 7)]})


def test_a_head_lists_the_indexes_of_each_column() -> None:
    assert parse_head(SMALL + b"body", path="p") == (
        FileIndexEntry("id", "bloom-filter", 12, False),
        FileIndexEntry("id", "bitmap", 0, True),
        FileIndexEntry("m[k]", "bitmap", 7, False),
    )


def test_names_are_those_that_java_wrote() -> None:
    (entry,) = parse_head(container({b"a\xc0\x80\xed\xa0\xbd\xed\xb8\x80": [(b"bitmap", 9, 1)]}), path="p")
    assert entry.column == "a\0\N{GRINNING FACE}"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        SMALL[:40],
        container({}, magic=1),
        container({}, version=2),
        container({b"\xff": [(b"bitmap", 1, 1)]}),
        container({b"id": [(b"bitmap", 1, -1)]}),
        SMALL[:16] + struct.pack(">i", 2**31 - 1) + SMALL[20:],
        SMALL[:12] + struct.pack(">i", -1) + SMALL[16:],
    ],
)
def test_a_damaged_head_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        parse_head(data, path="p")


@given(st.binary(max_size=64), st.integers(0, len(SMALL)))
def test_any_bytes_are_parsed_or_refused(noise: bytes, place: int) -> None:
    with suppress(FormatError):
        parse_head(SMALL[:place] + noise + SMALL[place + len(noise) :], path="p")
