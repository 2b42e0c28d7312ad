"""Primary-key tables with deletion vectors in turns with the real Paimon: each marks rows in files of the other.

After every step both read the same rows, level 0 left out by both, and each key lies once above level 0.
"""

from __future__ import annotations

from collections import Counter
from random import Random  # noqa: TID251 - drawn from fixed seeds

import pytest

import oracle
import tidelake as tl
from compat.keyed_engines import ENGINES
from compat.turns import COLUMNS, draw, they_write, told_since, we_write
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.scan.deletion_vectors import snapshot_vectors
from tidelake.ops.scan.split import bucket_splits
from tidelake.table import Table

pytestmark = pytest.mark.oracle

VARIANTS = {
    "": {},
    "64 bits": {"deletion-vectors.bitmap64": "true"},
    "with changes": {"changelog-producer": "lookup"},
    "input told": {"changelog-producer": "input", "file.format": "orc"},
    "merged on read": {"deletion-vectors.merge-on-read": "true"},
    "middle levels": {"num-sorted-run.compaction-trigger": "3", "file.format": "avro"},
}


def cases():
    engines = [engine for engine in ENGINES if not engine.startswith("first-row")]
    return [
        (engine, list(VARIANTS)[(number + turn) % len(VARIANTS)])
        for number, engine in enumerate(engines)
        for turn in range(3)
    ]


@pytest.mark.parametrize(("engine", "variant"), cases())
def test_both_mark_rows_in_files_of_the_other(engine, variant, catalog, tmp_path):
    options, kinds = ENGINES[engine]
    options = {"bucket": "1", "deletion-vectors.enabled": "true", **options, **VARIANTS[variant]}
    table = tl.connect(tmp_path).create_table("d.t", COLUMNS, primary_key=["k"], options=options)
    theirs = catalog.table("d.t")
    rng = Random(f"{engine} {variant}")
    state: dict[int, tuple[object, ...]] = {}
    seen = 0
    for step in range(12):
        who = (
            rng.choice(["we", "they", "we", "they", "we compact", "they compact"])
            if step
            else rng.choice(["we", "they"])
        )
        rows = draw(rng, kinds, most=25 if step < 2 else 6)
        if who == "we":
            we_write(table, rows)
        elif who == "they":
            they_write(theirs, rows, "")
        elif who == "we compact":
            table.compact(full=rng.choice([True, False]))
        else:
            theirs.compact(full=rng.choice([True, False]))
        found = sorted(repr(tuple(row.values())) for row in table.to_arrow().to_pylist())
        assert found == sorted(repr(tuple(row.values())) for row in theirs.read()), (step, who)
        assert table.scan().count() == len(found)
        assert_each_key_once(table)
        if "changes" in variant:
            for _, kind, row in told_since(table, seen):
                if kind in ("-U", "-D"):
                    assert state.pop(row["k"]) == tuple(row.values()), (step, who, kind)
                else:
                    state[row["k"]] = tuple(row.values())
            seen = table.latest_snapshot().id
            assert found == sorted(map(repr, state.values())), (step, who)
    for snapshot in range(1, table.latest_snapshot().id + 1):
        found = sorted(repr(tuple(row.values())) for row in table.at(snapshot=snapshot).to_arrow().to_pylist())
        assert found == sorted(repr(tuple(row.values())) for row in theirs.read(snapshot=snapshot)), snapshot
    report = table.check(deep=True)
    assert report.ok, report


def assert_each_key_once(table: Table) -> None:
    """Above level 0 every key has one live row."""
    store, snapshot = table.store, table.latest_snapshot()
    vectors = snapshot_vectors(store.manifests, snapshot)
    request = ReadRequest(schema=store.schema, columns=("k",))
    keys: Counter[int] = Counter()
    for split in bucket_splits(table.files(), snapshot.id, table.paths, vectors):
        for file in split.files:
            if file.level > 0:
                for batch in read_data_file(store, split, file, request):
                    keys.update(batch.column("k").to_pylist())
    assert not keys or keys.most_common(1)[0][1] == 1


def test_a_late_row_comes_back_to_life_after_a_deletion_as_with_them(tmp_path, jvm):
    """With vectors a deletion is not kept, so that nothing tells any more that an older row is late."""
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "sequence.field": "n"}
    ours = tl.connect(tmp_path / "ours").create_table("d.t", COLUMNS, primary_key=["k"], options=options)
    theirs = oracle.Catalog(tmp_path / "theirs").create_table("d.t", COLUMNS, ("k",), (), dict(options))
    for rows in ([("+I", (1, "a", 5, 0))], [("-D", (1, "a", 9, 0))], [("+I", (1, "late", 3, 0))]):
        we_write(ours, rows)
        they_write(theirs, rows, "")
        assert ours.to_arrow().to_pylist() == theirs.read()
    assert ours.to_arrow().num_rows == 1
