"""pypaimon reads what tidelake commits, with its Python planner and its native one, and tidelake reads on.

Data files come from a scratch table that Java writes (see `mirror`); pypaimon runs in an interpreter of its own,
because it caps the version of pyarrow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat.facts import by_name, entry_facts
from compat.mirror import Mirror, java_files
from compat.write_tables import VALUES, value_row
from tidelake.spec.rows.binary_row_scalar import decode_row

pytestmark = [pytest.mark.oracle, pytest.mark.peers, pytest.mark.usefixtures("jvm")]

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(peers: Callable[..., Any], tmp_path: Path) -> Ask:
    """Let pypaimon look at (and append to) our table."""
    script = Path(__file__).with_name("pypaimon_script.py")

    def run(snapshots: list[int], append: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        request = {"warehouse": str(tmp_path / "ours"), "table": "d.t", "snapshots": snapshots, "append": append}
        answer: dict[str, Any] = peers(script, json.dumps(request))
        return answer

    return run


def our_files(m: Mirror, snapshot_id: int) -> list[str]:
    types = m.table.schema.partition_types
    return sorted(
        json.dumps(
            {
                "partition": [str(value) for value in decode_row(row["partition"], types)],
                "bucket": row["bucket"],
                "file": row["file_name"],
                "level": row["level"],
                "rows": row["row_count"],
                "size": row["file_size"],
            }
        )
        for row in m.table.files(snapshot=snapshot_id).to_pylist()
    )


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)


def check(
    m: Mirror, answer: dict[str, Any], snapshots: list[int], pick: Callable[[dict[str, Any]], Any] = dict
) -> None:
    for snapshot_id in snapshots:
        rows = texts([pick(row) for row in m.theirs.read(snapshot=snapshot_id)])
        for planner in ("python", "native"):
            seen = answer[planner][str(snapshot_id)]
            assert seen["files"] is not None, f"the {planner} planner was not used"
            assert sorted(map(json.dumps, seen["files"])) == our_files(m, snapshot_id), (planner, snapshot_id)
            assert texts([pick(row) for row in seen["rows"]]) == rows, (planner, snapshot_id)


def test_partitions_overwrites_and_merged_manifests_are_read(tmp_path: Path, ask: Ask) -> None:
    m = Mirror(
        tmp_path,
        {"id": "INT", "dt": "STRING", "hr": "INT", "v": "STRING"},
        partition_by=["dt", "hr"],
        ours_only={"manifest.merge-min-count": "3"},
    )
    for number in range(6):
        m.write([(10 * number + i, f"d{i % 3}", i % 2, "v") for i in range(4)])
    m.overwrite([(70, "d0", 0, "static")], {"dt": "d0"}, dynamic=False)
    m.overwrite([(80, "d1", 1, "dynamic")], {}, dynamic=True)
    m.committer.compact_manifests()
    snapshots = [1, 6, 7, 8, 9]
    check(m, ask(snapshots), snapshots)


def test_primary_key_tables_are_read_and_continued(tmp_path: Path, ask: Ask) -> None:
    options = {"bucket": "2", "write-only": "true"}
    fields = {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "STRING"}
    m = Mirror(tmp_path, fields, primary_key=["dt", "id"], partition_by=["dt"], options=options)
    m.write([(i, f"d{i % 2}", "a") for i in range(20)])
    m.compact()
    m.write([("+U", (i, f"d{i % 2}", "b")) for i in range(6)])
    m.write([("-D", (1, "d1", "b"))])
    # pypaimon appends a fifth snapshot on top of ours; then all three see the same state.
    answer = ask([2, 4, 5], append=[{"id": 3, "dt": "d1", "v": "from pypaimon"}])
    check(m, answer, [2, 4, 5])
    assert by_name(entry_facts(m.table.files())) == java_files(m.theirs.load())
    assert {"id": 3, "dt": "d1", "v": "from pypaimon"} in m.theirs.read()
    m.write([(9, "d1", "ours again")])
    assert {"id": 9, "dt": "d1", "v": "ours again"} in m.theirs.read()
    report = m.table.check(deep=True)
    assert report.ok, str(report)


def test_every_type_is_read(tmp_path: Path, ask: Ask) -> None:
    m = Mirror(tmp_path, VALUES)
    m.write([value_row(i) for i in range(12)])
    answer = ask([1])
    assert list(answer["fields"]) == list(VALUES)

    def pick(row: dict[str, Any]) -> dict[str, Any]:
        pairs = row["mp"]
        return {**row, "mp": sorted(map(list, pairs.items() if isinstance(pairs, dict) else pairs or ()))}

    check(m, answer, [1], pick)
