"""Keys that move between partitions and postponed buckets, in turns: Spark, this process and the real Paimon agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oracle
from compat import moving_keys as moving
from compat import postponed_rows as postponed
from compat.facts import open_branch

pytestmark = pytest.mark.oracle


def framed(spark: Any, rows: list[dict[str, Any]], columns: dict[str, str]) -> Any:
    """A frame of one task, so that versions of a key keep their order."""
    types = {name: text.replace(" NOT NULL", "") for name, text in columns.items()}
    kinds = {"rowkind": "STRING"} if "rowkind" in rows[0] else {}
    struct = ", ".join(f"{name} {text}" for name, text in {**types, **kinds}.items())
    return spark.createDataFrame([tuple(row.values()) for row in rows], struct).coalesce(1)


@pytest.mark.parametrize("engine", list(moving.ENGINES))
def test_spark_and_they_move_each_others_keys(spark: Any, catalog: oracle.Catalog, tmp_path: Path, engine: str) -> None:
    theirs = moving.create(catalog, engine)
    model: dict[tuple[int, int], list[Any]] = {}
    lot = np.random.default_rng(len(engine))
    for turn in range(5):
        rows: list[tuple[str, moving.Row]] = []
        for _ in range(25):
            kind = "-D" if engine == "deduplicate" and lot.random() < 0.1 else "+I"
            v = None if lot.random() < 0.2 else int(lot.integers(0, 100))
            rows.append((kind, (int(lot.integers(0, 2)), "xyz"[lot.integers(0, 3)], int(lot.integers(0, 15)), v)))
        ours = open_branch(tmp_path / "d.db/t")
        if turn % 2:
            moving.TheirUpsert(theirs, f"job{turn}").upsert(rows)
        else:
            ours.write(framed(spark, moving.our_rows(rows), moving.COLUMNS), row_kind="rowkind")
        moving.upsert(model, rows, engine)
        if turn == 2:
            open_branch(tmp_path / "d.db/t").compact(full=True, on=spark)
        if turn == 3 or engine == "first-row":
            theirs.compact()
        wanted = sorted(tuple(str(value) for value in row) for row in model.values())
        assert moving.ours_shown(open_branch(tmp_path / "d.db/t")) == wanted
        assert moving.theirs_shown(theirs) == wanted
    assert not open_branch(tmp_path / "d.db/t").check(rows=True).findings


@pytest.mark.parametrize("engine", list(postponed.ENGINES))
def test_rows_staged_by_spark_and_by_them_get_buckets_on_spark(
    spark: Any, catalog: oracle.Catalog, tmp_path: Path, engine: str
) -> None:
    options = postponed.ENGINES[engine]
    theirs = postponed.create(catalog, **{"postpone.default-bucket-num": 3}, **options)
    plain = catalog.create_table("d.plain", postponed.COLUMNS, ["dt", "id"], ["dt"], {"bucket": 3, **options})
    lot = np.random.default_rng(len(engine))
    for turn in range(3):
        for number in (1, 2):
            rows = postponed.drawn(lot, 20)
            if number == 1:
                with theirs.writer(user=f"theirs{turn}") as writer:
                    writer.write(rows)
                    writer.commit(1)
            else:
                frame = framed(spark, postponed.as_dicts(rows), postponed.COLUMNS)
                open_branch(tmp_path / "d.db/t").write(frame, commit_user=f"ours{turn}", identifier=1)
            plain.write(rows)
        open_branch(tmp_path / "d.db/t").compact(full=turn == 1, on=spark)
        if turn == 1:
            theirs.compact(options={"bucket": 3})  # as their own jobs do for buckets that are there
            plain.compact()
        wanted = postponed.shown(plain.read())
        assert postponed.shown(theirs.read()) == wanted
        assert postponed.shown(open_branch(tmp_path / "d.db/t").to_arrow().to_pylist()) == wanted
    assert not open_branch(tmp_path / "d.db/t").check(rows=True).findings


def test_batches_of_spark_and_theirs_go_to_the_same_buckets(
    spark: Any, catalog: oracle.Catalog, tmp_path: Path
) -> None:
    theirs = postponed.create(catalog, **{"postpone.target-row-num-per-bucket": 5})
    rows = postponed.as_dicts([("a", n, "spark", None) for n in range(20)])
    open_branch(tmp_path / "d.db/t").write(framed(spark, rows, postponed.COLUMNS))
    theirs.write([("a", n, "theirs", None) for n in range(10, 30)], {"bucket": 4, "write-only": True})
    more = postponed.as_dicts([("a", n, "last", None) for n in range(25, 35)])
    ours = open_branch(tmp_path / "d.db/t")
    ours.write(framed(spark, more, postponed.COLUMNS))
    ours.compact(full=True, on=spark)
    wanted = ["spark"] * 10 + ["theirs"] * 15 + ["last"] * 10
    for found in (theirs.read(), ours.to_arrow().to_pylist()):
        assert [row["v"] for row in sorted(found, key=lambda row: row["id"])] == wanted
    assert set(ours.files().column("total_buckets").to_pylist()) == {4}
