"""Keys that move between partitions, in turns: their assigner and ours keep one row per key, whoever wrote before.

The reference's own index of keys runs in this process. Both sides start from what the other left, in all four engines,
with compactions of either in between.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oracle
from compat.facts import open_branch
from compat.moving_keys import COLUMNS, ENGINES, Row, TheirUpsert, create, our_rows, ours_shown, theirs_shown, upsert

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("engine", list(ENGINES))
def test_both_sides_move_each_others_keys_in_turns(catalog: oracle.Catalog, tmp_path: Path, engine: str) -> None:
    theirs = create(catalog, engine)
    model: dict[tuple[int, int], list[Any]] = {}
    lot = np.random.default_rng(len(engine))
    for turn in range(8):
        rows: list[tuple[str, Row]] = []
        for _ in range(25):
            kind = "-D" if engine == "deduplicate" and lot.random() < 0.1 else "+I"
            v = None if lot.random() < 0.2 else int(lot.integers(0, 100))
            rows.append((kind, (int(lot.integers(0, 2)), "xyz"[lot.integers(0, 3)], int(lot.integers(0, 15)), v)))
        if turn % 2:
            TheirUpsert(theirs, f"job{turn}").upsert(rows)
        else:
            open_branch(tmp_path / "d.db/t").write(our_rows(rows))
        upsert(model, rows, engine)
        if turn == 3:
            open_branch(tmp_path / "d.db/t").compact(full=True)
        if turn == 4 or engine == "first-row":
            theirs.compact()
        wanted = sorted(tuple(str(value) for value in row) for row in model.values())
        assert ours_shown(open_branch(tmp_path / "d.db/t")) == wanted
        assert theirs_shown(theirs) == wanted
    assert not open_branch(tmp_path / "d.db/t").check(rows=True).findings


def test_a_batch_goes_to_the_buckets_that_they_would_choose(catalog: oracle.Catalog, tmp_path: Path) -> None:
    theirs = create(catalog, "deduplicate")
    TheirUpsert(theirs, "first").upsert([("+I", (0, "x", n, n)) for n in range(7)])
    ours = open_branch(tmp_path / "d.db/t")
    fresh = [(0, "y" if n % 3 else "x", n, 100 + n) for n in range(20, 40)]
    ours.write(our_rows(("+I", row) for row in fresh))
    names = ("partition", "bucket", "row_count")
    entries = open_branch(tmp_path / "d.db/t").files()
    found = sorted(zip(*(entries.column(name).to_pylist() for name in names), strict=True))
    again = catalog.create_table(
        "d.u", COLUMNS, ["c", "id"], ["c", "dt"], {"bucket": -1, "dynamic-bucket.target-row-num": 3}
    )
    TheirUpsert(again, "first").upsert([("+I", (0, "x", n, n)) for n in range(7)])
    TheirUpsert(again, "second").upsert([("+I", row) for row in fresh])
    other = open_branch(tmp_path / "d.db/u").files()
    assert found == sorted(zip(*(other.column(name).to_pylist() for name in names), strict=True))


def test_they_find_no_key_twice_after_two_of_our_writers_raced(catalog: oracle.Catalog, tmp_path: Path) -> None:
    theirs = create(catalog, "deduplicate")
    one, two = open_branch(tmp_path / "d.db/t"), open_branch(tmp_path / "d.db/t")
    first, second = one.new_write("one"), two.new_write("two")
    first.write(our_rows([("+I", (0, "x", 1, 1)), ("+I", (0, "x", 2, 1))]))
    second.write(our_rows([("+I", (0, "y", 3, 1))]))
    late = second.prepare_commit(1)
    one.new_commit("one").commit(first.prepare_commit(1), identifier=1)
    two.new_commit("two").commit(late, identifier=1)
    TheirUpsert(theirs, "job").upsert([("+I", (0, "z", n, 2)) for n in (1, 2, 3)])
    assert [row["dt"] for row in theirs.read()] == ["z"] * 3
