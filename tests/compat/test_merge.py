"""Merges beside the real Paimon: it reads what ours leave at every snapshot, writes on, and compacts in between."""

from __future__ import annotations

from random import Random  # noqa: TID251 - drawn from fixed seeds

import pytest

import tidelake as tl

pytestmark = pytest.mark.oracle

COLUMNS = {"k": "INT NOT NULL", "n": "BIGINT", "v": "STRING"}
TABLES = {
    "append": ([], {"bucket": "-1"}),
    "append, buckets": ([], {"bucket": "2", "bucket-key": "k"}),
    "append, vectors": ([], {"bucket": "-1", "deletion-vectors.enabled": "true"}),
    "append, wide vectors": (
        [],
        {"bucket": "-1", "deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"},
    ),
    "deduplicate": (["k"], {"bucket": "2"}),
    "deduplicate, vectors": (["k"], {"bucket": "1", "deletion-vectors.enabled": "true"}),
    "deduplicate, lookup": (["k"], {"bucket": "1", "changelog-producer": "lookup"}),
    "dynamic buckets": (["k"], {"bucket": "-1"}),
    "by sequence": (["k"], {"bucket": "1", "sequence.field": "n"}),
    "partial-update": (["k"], {"bucket": "1", "merge-engine": "partial-update"}),
    "aggregation": (["k"], {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "max"}),
    "first-row": (["k"], {"bucket": "1", "merge-engine": "first-row"}),
}


@pytest.mark.parametrize("kind", TABLES)
def test_both_see_the_same_rows_after_every_merge(kind, catalog, tmp_path):
    key, options = TABLES[kind]
    table = tl.connect(tmp_path).create_table("d.t", COLUMNS, primary_key=key, options=options)
    theirs = catalog.table("d.t")
    rng = Random(kind)

    def rows(count: int) -> list[dict[str, object]]:
        keys = rng.sample(range(30), count)
        return [{"k": k, "n": rng.choice([None, 1, 2, 3]), "v": rng.choice([None, "a", "b"])} for k in keys]

    table.write(rows(15))
    state: dict[int, tuple[object, ...]] = {}
    for step in range(6):
        if step % 3 == 2:
            theirs.compact(full=rng.choice([True, False]))
        elif step % 3 == 1:
            new = [row for row in rows(4) if row["k"] not in state]
            theirs.write([tuple(row.values()) for row in new])
        state = shown(table)
        source = rows(8)
        done = (
            table.merge(source, on=["k"])
            .when_matched_delete("s.v is null")
            .when_matched_update({"n": "coalesce(s.n, t.n)", "v": "s.v"})
            .when_not_matched_insert(condition="s.n is not null")
            .when_not_matched_by_source_update({"v": "'late'"}, condition="t.n = 3")
            .run()
        )
        state = after(state, source)
        assert shown(table) == state, step
        assert done.rows > 0
        assert table.snapshot(done.snapshot_ids[0]).operation == "MERGE"
        assert by_key(theirs.read()) == state, step
    for snapshot in range(1, table.latest_snapshot().id + 1):
        assert by_key(theirs.read(snapshot=snapshot)) == shown(table.at(snapshot=snapshot)), snapshot
    assert table.check(rows=True).ok


def after(state: dict[int, tuple[object, ...]], source: list[dict[str, object]]) -> dict[int, tuple[object, ...]]:
    """The rows after the merge of the test."""
    found = {k: (n, "late") if n == 3 else (n, v) for k, (n, v) in state.items()}
    for row in source:
        k, n, v = row["k"], row["n"], row["v"]
        if k in state:
            if v is None:
                del found[k]
            else:
                found[k] = (state[k][0] if n is None else n, v)
        elif n is not None:
            found[k] = (n, v)
    return found


def shown(table) -> dict[int, tuple[object, ...]]:
    return by_key(table.to_arrow().to_pylist())


def by_key(rows) -> dict[int, tuple[object, ...]]:
    found = {row["k"]: (row["n"], row["v"]) for row in rows}
    assert len(found) == len(list(rows)), "a key is there twice"
    return found
