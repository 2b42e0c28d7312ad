"""Shortcuts of repeated and selective reads give what the long way gives."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import tidelake as tl


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
