"""Avro data files of old releases: their root is a union of null and the record, so a number precedes every record."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest

from kit.file_samples import make_fields, read
from tidelake.errors import FormatError
from tidelake.files.read.data_file import row_count_of
from tidelake.io import MemoryFileIO

RECORD = {
    "type": "record",
    "name": "org.apache.paimon.avro.generated.record",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "s", "type": ["null", "string"], "default": None},
        {"name": "n", "type": ["null", "long"], "default": None},
    ],
}
FIELDS = make_fields({"flag": "BOOLEAN NOT NULL", "s": "STRING", "n": "BIGINT"})
ROWS = [{"flag": number % 2 == 0, "s": None if number % 3 else f"s{number}", "n": number} for number in range(500)]


def stored(rows: list[Any]) -> tuple[MemoryFileIO, str]:
    target = io.BytesIO()
    fastavro.writer(target, ["null", RECORD], rows, codec="deflate", sync_interval=1000)
    files = MemoryFileIO()
    files.create_exclusive("bucket-0/data-0.avro", target.getvalue())
    return files, "bucket-0/data-0.avro"


def test_records_that_might_be_null_are_read() -> None:
    files, path = stored(ROWS)
    assert row_count_of(files, path, format="avro") == len(ROWS)
    assert read(files, path, FIELDS).to_pylist() == ROWS
    assert read(files, path, FIELDS, FIELDS[2:]).to_pylist() == [{"n": row["n"]} for row in ROWS]


def test_a_null_in_the_place_of_a_row_is_damage() -> None:
    files, path = stored([*ROWS[:3], None, *ROWS[3:6]])
    with pytest.raises(FormatError):
        read(files, path, FIELDS)
