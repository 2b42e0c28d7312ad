"""Two jobs of ours that write the same keys at once: Apache Paimon reads one row per key, and writes on."""

from __future__ import annotations

from pathlib import Path

import pytest

import oracle
from compat.facts import open_branch
from compat.moving_keys import TheirUpsert

pytestmark = pytest.mark.oracle

COLUMNS = {"dt": "STRING NOT NULL", "id": "INT NOT NULL", "v": "STRING"}
MODES = {
    "fixed": (["dt", "id"], {"bucket": "2"}),
    "hash-dynamic": (["dt", "id"], {"bucket": "-1", "dynamic-bucket.target-row-num": "7"}),
    "key-dynamic": (["id"], {"bucket": "-1", "dynamic-bucket.target-row-num": "7"}),
}


def upsert(theirs: oracle.Table, rows: list[tuple[str, int, str]], mode: str) -> None:
    if mode == "key-dynamic":
        TheirUpsert(theirs, f"job {rows[0][2]}").upsert([("+I", row) for row in rows])  # type: ignore[misc]
    else:
        theirs.write(rows)


@pytest.mark.parametrize("mode", MODES)
def test_they_read_one_row_per_key_of_two_jobs_and_write_on(mode: str, catalog: oracle.Catalog, tmp_path: Path) -> None:
    keys, options = MODES[mode]
    theirs = catalog.create_table("d.t", COLUMNS, keys, ["dt"], options)
    upsert(theirs, [("a", i, "before") for i in range(5)], mode)
    jobs = [open_branch(tmp_path / "d.db/t") for _ in range(2)]
    messages = []
    for number, job in enumerate(jobs):
        writer = job.new_write()
        ids = range(30) if number == 0 else range(39, 9, -1)
        writer.write([{"dt": "b" if number and i % 2 else "a", "id": i, "v": f"job {number}"} for i in ids])
        messages.append(writer.prepare_commit())
    for job, own in zip(jobs, messages, strict=True):
        job.new_commit().commit(own)
    wanted = dict.fromkeys(range(10), ("a", "job 0"))
    wanted |= {i: ("b" if i % 2 else "a", "job 1") for i in range(10, 40)}
    rows = sorted(tuple(row[name] for name in COLUMNS) for row in theirs.read())
    left = [("a", i, "job 0") for i in range(11, 30, 2)] if mode != "key-dynamic" else []
    assert rows == sorted([*((dt, i, v) for i, (dt, v) in wanted.items()), *left])

    upsert(theirs, [("a", i, "after") for i in range(0, 50, 2)], mode)
    found = [(row["dt"], row["id"]) for row in theirs.read()]
    unique = [i for _, i in found] if mode == "key-dynamic" else found
    assert len(set(unique)) == len(unique)
    ours = open_branch(tmp_path / "d.db/t")
    assert sorted((row["dt"], row["id"]) for row in ours.to_arrow().to_pylist()) == sorted(found)
    assert ours.check(deep=True).ok
