"""Postponed buckets in turns: rows that they stage get buckets from us, they read what we compacted, and go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oracle
from compat.facts import open_branch
from compat.postponed_rows import COLUMNS, ENGINES, as_dicts, create, drawn, shown

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("engine", list(ENGINES))
def test_rows_staged_by_both_get_buckets_from_us_and_they_read_and_compact_them(
    catalog: oracle.Catalog, tmp_path: Path, engine: str
) -> None:
    theirs = create(catalog, **{"postpone.default-bucket-num": 3}, **ENGINES[engine])
    plain = catalog.create_table("d.plain", COLUMNS, ["dt", "id"], ["dt"], {"bucket": 3, **ENGINES[engine]})
    lot = np.random.default_rng(len(engine))
    for turn in range(5):
        for number in (1, 2):
            rows = drawn(lot, 20)
            if number == 1:
                with theirs.writer(user=f"theirs{turn}") as writer:
                    writer.write(rows)
                    writer.commit(1)
            else:
                open_branch(tmp_path / "d.db/t").write(as_dicts(rows), commit_user=f"ours{turn}", identifier=1)
            plain.write(rows)
        ours = open_branch(tmp_path / "d.db/t")
        before = shown(theirs.read())
        assert shown(ours.to_arrow().to_pylist()) == before
        merged = shown(ours.with_options({"postpone.merge-on-read": "true"}).to_arrow().to_pylist())
        ours.compact(full=turn == 2)
        if turn == 3:
            theirs.compact(options={"bucket": 3})  # as their own jobs do for buckets that are there
            plain.compact()
        wanted = shown(plain.read())
        assert shown(theirs.read()) == wanted
        assert shown(open_branch(tmp_path / "d.db/t").to_arrow().to_pylist()) == wanted
        assert merged == wanted
    assert not open_branch(tmp_path / "d.db/t").check(rows=True).findings
    assert {each["bucket"] for each in theirs.files()} >= {0, 1}


def test_our_staged_files_are_what_they_would_stage(catalog: oracle.Catalog, tmp_path: Path) -> None:
    theirs = create(catalog)
    rows = [("a", 3, "x", None), ("a", 1, "y", None), ("a", 3, "z", None)]
    with theirs.writer(user="job") as writer:
        writer.write([*rows, ("-D", rows[1])])
        writer.commit(1)
    kinds = [
        {**row, "rowkind": kind} for row, kind in zip(as_dicts([*rows, rows[1]]), ("+I", "+I", "+I", "-D"), strict=True)
    ]
    open_branch(tmp_path / "d.db/t").write(kinds, commit_user="job", identifier=9)
    one, two = open_branch(tmp_path / "d.db/t").files().to_pylist()
    for name in ("file_name", "file_size", "creation_time_ms"):
        one.pop(name), two.pop(name)
    assert one == two
    prefix = oracle.java("postpone.PostponeBucketFileStoreWrite").getWriterPrefix
    ours = open_branch(tmp_path / "d.db/t").files().column("file_name")[1].as_py()
    assert str(prefix(ours)) == ours.rpartition("-w-")[0] + "-w-"


@pytest.mark.parametrize(
    "options",
    [{}, {"postpone.default-bucket-num": 4}, {"postpone.target-row-num-per-bucket": 3},
     {"postpone.default-bucket-num": 4, "postpone.target-row-num-per-bucket": 3}],
    ids=["unset", "number", "rows", "both"],
)  # fmt: skip
def test_a_partition_gets_the_number_of_buckets_that_they_would_give_it(
    catalog: oracle.Catalog, tmp_path: Path, options: dict[str, Any]
) -> None:
    theirs = create(catalog, **options)
    with theirs.writer(user="job") as writer:
        writer.write([("a", n, "x", None) for n in range(8)])
        writer.commit(1)
    loaded = theirs.load()
    assigner = oracle.java("table.PostponeUtils").createPostponeBucketAssigner(loaded, 1, 1)
    wanted = int(assigner.assign(oracle.java("data.BinaryRow").singleColumn("a")))
    ours = open_branch(tmp_path / "d.db/t")
    ours.compact()
    assert set(ours.files().column("total_buckets").to_pylist()) == {wanted}


def test_their_batches_to_fixed_buckets_and_ours_go_to_the_same_ones(catalog: oracle.Catalog, tmp_path: Path) -> None:
    theirs = create(catalog, **{"postpone.default-bucket-num": 4})
    open_branch(tmp_path / "d.db/t").write(as_dicts([("a", n, "ours", None) for n in range(20)]))
    fixed = {"bucket": 4, "write-only": True}
    theirs.write([("a", n, "theirs", None) for n in range(10, 30)], fixed)
    ours = open_branch(tmp_path / "d.db/t")
    ours.write(as_dicts([("a", n, "last", None) for n in range(25, 35)]))
    ours.compact(full=True)
    wanted = ["ours"] * 10 + ["theirs"] * 15 + ["last"] * 10
    for rows in (theirs.read(), ours.to_arrow().to_pylist()):
        assert [row["v"] for row in sorted(rows, key=lambda row: row["id"])] == wanted
    assert set(ours.files().column("total_buckets").to_pylist()) == {4}


@pytest.mark.parametrize("producer", ["none", "input", "lookup"])
def test_streams_deliver_rows_that_wait_for_a_bucket_when_theirs_do(
    catalog: oracle.Catalog, tmp_path: Path, producer: str
) -> None:
    theirs = create(catalog, **{"changelog-producer": producer})
    late: list[tuple[oracle.Stream, Any]] = []
    for turn in range(3):
        ours = open_branch(tmp_path / "d.db/t")
        with theirs.writer(user=f"theirs{turn}") as writer:
            writer.write([("a", 1, f"t{turn}", None), ("+U", ("a", 1, f"u{turn}", None)), ("-D", ("b", 2, "x", None))])
            writer.commit(1)
        ours.write(as_dicts([("a", 7, f"o{turn}", None)]), commit_user=f"ours{turn}", identifier=1)
        stream, following = theirs.stream(), ours.follow(timeout=0, poll=0)
        first = next(following)
        assert added(first.to_arrow().to_pylist()) == added(with_kinds(stream.plan() or []))
        late.append((stream, following))
        if turn:
            ours.compact()
    late.append((theirs.stream({"scan.snapshot-id": 1}), open_branch(tmp_path / "d.db/t").follow(start=1, timeout=0)))
    for stream, following in late:
        found = [(step.snapshot_id + 1, shown(step.to_arrow().to_pylist())) for step in following]
        wanted = [(at, shown(with_kinds(rows))) for at, rows in stream.drain()]
        assert [each for each in found if each[1]] == [each for each in wanted if each[1]]


def with_kinds(rows: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [{"rowkind": kind, **row} for kind, row in rows]


def added(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Rows of a state: theirs keep the kind that they were written with."""
    return shown({**row, "rowkind": row["rowkind"].replace("+U", "+I")} for row in rows)
