"""Shortcuts of repeated and selective reads give what the long way gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake as tl
from tidelake.index.vector_codec import decode_vector


def test_reads_through_one_handle_see_every_commit_whatever_was_read_before(tmp_path: Path) -> None:
    table = tl.connect(tmp_path).create_table("d.t", {"id": "INT"})
    for number in range(4):
        table.write([{"id": number}])
        for _ in range(2):
            assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(number + 1))
    assert table.at(snapshot=2).to_arrow().sort_by("id")["id"].to_pylist() == [0, 1]


def test_decoding_stops_behind_the_last_match_and_not_before_it(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(range(200_000), pa.int32()), "v": [f"v{n}" for n in range(200_000)]})
    table = tl.connect(tmp_path).create_table("d.t", rows.schema)
    table.write(rows)
    for wanted in ([5], [5, 70_000], [5, 131_072], [199_999]):
        found = table.to_arrow(where=f"id IN ({', '.join(map(str, wanted))})")
        assert found.to_pylist() == [{"id": n, "v": f"v{n}"} for n in wanted]


def test_a_vector_is_decoded_once_and_newer_marks_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []

    def counted(block: bytes, **facts: Any) -> Any:
        decoded.append(facts["range"].data_file)
        return decode_vector(block, **facts)

    monkeypatch.setattr("tidelake.store.deletion_vectors.decode_vector", counted)
    table = tl.connect(tmp_path).create_table("d.t", {"id": "INT"}, options={"deletion-vectors.enabled": "true"})
    table.write([{"id": number} for number in range(100)])
    for bound in (10, 20):
        table.delete(f"id < {bound}")
        decoded.clear()
        for _ in range(3):
            assert table.to_arrow()["id"].to_pylist() == list(range(bound, 100))
        assert len(decoded) == 1
    assert table.at(snapshot=2).count() == 90
    assert table.at(snapshot=2).to_arrow().num_rows == 90
