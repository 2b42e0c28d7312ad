"""At every snapshot of tables that the real Paimon wrote and compacted, our picker chooses what Paimon chose.

The oracle writes many small commits. Each gives an APPEND snapshot and, when Paimon found something to compact, a
COMPACT snapshot on top. From the files that were live at the APPEND snapshot our plan must tell the same story:
nothing, or exactly the same files taken out, the same files moved under their old name, and the rest on the same level.
The picks are compared with `absorb=False`: taking levels 0 and 1 along is newer than release 2.0.0.
"""

from __future__ import annotations

import random  # noqa: TID251 - drawn from fixed seeds
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import oracle
from compat.facts import open_branch
from tidelake.lsm.files import RunFile, run_files
from tidelake.lsm.levels import Levels, build_levels
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import Compaction, PickState, first_state, plan_compaction, plan_full_compaction
from tidelake.lsm.rewrite import LookupRules, Upgrade, plan_steps
from tidelake.ops.scan.plan import data_manifests, delta_manifests, live_entries, read_changes
from tidelake.spec.data_file import data_files
from tidelake.spec.manifests.manifest import ADD
from tidelake.table import Table

pytestmark = pytest.mark.oracle

COLUMNS = {"id": "INT NOT NULL", "v": "STRING"}


@dataclass(frozen=True)
class Case:
    """A table, and how its commits look."""

    options: dict[str, str] = field(default_factory=dict)
    commits: int = 25
    rows_max: int = 150
    keys: int = 2000
    ordered: bool = False
    """Commits bring ranges of keys that do not overlap, so that files can be moved instead of rewritten."""
    lookup: LookupRules | None = None
    deletes: bool = True
    streaming: bool = False
    """One writer for all commits, which remembers what it did."""


CASES = {
    "defaults": Case(),
    "few runs": Case({"num-sorted-run.compaction-trigger": "3"}),
    "many runs": Case({"num-sorted-run.compaction-trigger": "8", "num-levels": "4"}),
    "two levels": Case({"num-levels": "2"}),
    "wide ratio": Case({"compaction.size-ratio": "120", "compaction.max-size-amplification-percent": "1000"}),
    "narrow ratio": Case({"compaction.size-ratio": "-99", "compaction.max-size-amplification-percent": "5000"}),
    "no amplification": Case({"compaction.max-size-amplification-percent": "20"}),
    "lift level 0": Case({"compaction.force-up-level-0": "true", "compaction.max-size-amplification-percent": "2000"}),
    "small stays whole": Case({"compaction.total-size-threshold": "60 kb"}),
    "little above the bottom": Case({"compaction.incremental-size-threshold": "20 kb"}),
    "once an hour": Case({"compaction.optimization-interval": "1 h"}),
    "disjoint ranges": Case({"target-file-size": "4 kb"}, ordered=True, keys=10_000),
    "disjoint ranges, few runs": Case(
        {"target-file-size": "3 kb", "num-sorted-run.compaction-trigger": "2"}, ordered=True, keys=10_000
    ),
    "lookup": Case({"changelog-producer": "lookup"}, lookup=LookupRules(last_wins=True)),
    "lookup by a sequence field": Case(
        {"changelog-producer": "lookup", "sequence.field": "v", "compaction.max-size-amplification-percent": "2000"},
        lookup=LookupRules(),
    ),
    "lookup of partial updates": Case(
        {
            "changelog-producer": "lookup",
            "merge-engine": "partial-update",
            "compaction.max-size-amplification-percent": "2000",
        },
        lookup=LookupRules(),
        deletes=False,
    ),
    "first row": Case(
        {"merge-engine": "first-row", "compaction.max-size-amplification-percent": "2000"},
        lookup=LookupRules(),
        deletes=False,
    ),
    "another format on level 0": Case(
        {"changelog-producer": "lookup", "file.format.per.level": "0:avro"},
        lookup=LookupRules(last_wins=True, format_changes=True),
    ),
    "lookup, gentle": Case(
        {
            "changelog-producer": "lookup",
            "lookup-compact": "gentle",
            "lookup-compact.max-interval": "4",
            "num-sorted-run.compaction-trigger": "3",
            "compaction.max-size-amplification-percent": "3000",
            "compaction.size-ratio": "-90",
        },
        lookup=LookupRules(last_wins=True),
        streaming=True,
    ),
    "deletion vectors": Case(
        {"deletion-vectors.enabled": "true"}, lookup=LookupRules(deletion_vectors=True, last_wins=True)
    ),
    "one long writer": Case({"num-sorted-run.compaction-trigger": "4"}, streaming=True),
}


@pytest.mark.parametrize("name", CASES)
def test_the_pick_is_that_of_paimon_at_every_snapshot(catalog: oracle.Catalog, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    theirs = catalog.create_table(
        "d.t", COLUMNS, ["id"], (), {"bucket": "1", "snapshot.num-retained.min": "500", **case.options}
    )
    write(theirs, case, random.Random(name))
    compared = compare(open_branch(tmp_path / "d.db/t"), case)
    assert compared >= 3, "the table was hardly ever compacted"


KEY_SAMPLES: dict[str, Any] = {
    "STRING": lambda rng: rng.choice(["", "a", "é", "zz", "\uffff", "\U0001f40b"]) + str(rng.randrange(50)),
    "DOUBLE": lambda rng: rng.choice([-0.0, 0.0, float("inf"), float("-inf"), float("nan"), rng.uniform(-9, 9)]),
    "DECIMAL(20, 2)": lambda rng: Decimal(rng.randrange(-(10**10), 10**10)).scaleb(-2),
    "BYTES": lambda rng: rng.randbytes(rng.randrange(4)),
    "BIGINT": lambda rng: rng.randrange(-(2**63), 2**63),
    "BOOLEAN": lambda rng: rng.random() < 0.5,
    "TIMESTAMP(9)": lambda rng: rng.randrange(-(10**18), 10**18),
}


@pytest.mark.parametrize("dtype", KEY_SAMPLES)
def test_sections_and_moves_are_those_of_paimon_for_every_type_of_key(
    catalog: oracle.Catalog, tmp_path: Path, dtype: str
) -> None:
    rng = random.Random(dtype)
    options = {"bucket": "1", "target-file-size": "2 kb", "num-sorted-run.compaction-trigger": "2"}
    theirs = catalog.create_table("d.t", {"k": f"{dtype} NOT NULL", "v": "STRING"}, ["k"], (), options)
    for _ in range(12):
        theirs.write([(KEY_SAMPLES[dtype](rng), rng.randbytes(40).hex()) for _ in range(rng.randrange(1, 20))])
    assert compare(open_branch(tmp_path / "d.db/t"), Case(options)) >= 3


def test_a_full_compaction_takes_what_paimon_takes(catalog: oracle.Catalog, tmp_path: Path) -> None:
    rng = random.Random(5)
    options = {"bucket": "1", "target-file-size": "3 kb"}
    theirs = catalog.create_table("d.t", COLUMNS, ["id"], (), options)
    case = Case(options, commits=3, ordered=True, keys=300)
    for _ in range(4):
        write(theirs, case, rng)
        theirs.compact(full=True)
    theirs.compact(full=True)
    table = open_branch(tmp_path / "d.db/t")
    fulls = 0
    for number in range(2, latest(table) + 1):
        if (
            table.snapshot(number).commit_kind.value == "COMPACT"
            and table.snapshot(number - 1).commit_kind.value == "APPEND"
        ):
            levels, parsed = state_of(table, number - 1)
            planned = plan_full_compaction(levels, parsed)
            assert planned is not None
            assert changes(planned, levels, parsed) == found(table, number, planned.output_level)
            fulls += 1
    assert fulls >= 4


# ------------------------------------------------------------------------------------------------ writing


def write(table: oracle.Table, case: Case, rng: random.Random) -> None:
    if case.streaming:
        with table.writer(user="job") as writer:
            for number in range(1, case.commits + 1):
                writer.write(rows(case, number, rng))
                writer.commit(number)
        return
    for number in range(1, case.commits + 1):
        table.write(rows(case, number, rng))


def rows(case: Case, number: int, rng: random.Random) -> list[Any]:
    count = rng.choice([1, 3, 10, rng.randrange(1, case.rows_max)])
    start = rng.randrange(case.keys) if case.ordered else None
    deletes = case.deletes and number > 3 and rng.random() < 0.3
    result = []
    for each in range(count):
        key = rng.randrange(case.keys) if start is None else start + each
        kind = "-D" if deletes and rng.random() < 0.2 else "+I"
        result.append((kind, (key, rng.randbytes(30).hex())))
    return result


# ------------------------------------------------------------------------------------------------ comparing


def compare(table: Table, case: Case) -> int:
    """Follow the snapshots; the number of compactions that were the same."""
    compared = 0
    state: PickState | None = None
    last = latest(table)
    for number in range(1, last + 1):
        snapshot = table.snapshot(number)
        if snapshot.commit_kind.value != "APPEND":
            continue
        levels, options = state_of(table, number)
        # A writer opens with what lay there before its own flush.
        opened = first_state(levels) if state is None or not case.streaming else state
        now = max(file.meta.creation_time_ms or 0 for file in levels.files)
        planned, state = plan_compaction(
            levels,
            options,
            now_ms=now,
            state=opened,
            needs_lookup=case.lookup is not None,
            deletion_vectors=case.lookup is not None and case.lookup.deletion_vectors,
            absorb=False,
        )
        compacted = number < last and table.snapshot(number + 1).commit_kind.value == "COMPACT"
        where = (number, [(run.level, run.size) for run in levels.runs()], planned and planned.output_level)
        if not compacted:
            assert planned is None or changes(planned, levels, options, case.lookup) == (set(), set()), where
            continue
        assert planned is not None, where
        assert changes(planned, levels, options, case.lookup) == found(table, number + 1, planned.output_level), where
        compared += 1
    return compared


def latest(table: Table) -> int:
    found = table.store.snapshots.latest()
    assert found is not None
    return found.id


def state_of(table: Table, snapshot_id: int) -> tuple[Levels, CompactionOptions]:
    store = table.store.manifests
    entries = live_entries(store, data_manifests(store, table.snapshot(snapshot_id)))
    options = CompactionOptions.parse(table.schema.options)
    return build_levels(to_runs(table, entries), num_levels=options.num_levels), options


def to_runs(table: Table, entries: Any) -> tuple[RunFile, ...]:
    types = [table.schema.field(name).type for name in table.schema.trimmed_primary_keys]
    return run_files(data_files(entries), types)


Changes = tuple[set[tuple[str, int]], set[tuple[str, int]]]
"""Names and old levels of the files taken out; names and new levels of the files that were moved."""


def changes(
    planned: Compaction, levels: Levels, options: CompactionOptions, lookup: LookupRules | None = None
) -> Changes:
    steps = plan_steps(planned, options, max_level=levels.max_level, lookup=lookup)
    moved = {(step.file.name, step.level) for step in steps if isinstance(step, Upgrade)}
    taken = {
        (file.name, file.level) for step in steps for file in ([step.file] if isinstance(step, Upgrade) else step.files)
    }
    return taken, moved


def found(table: Table, snapshot_id: int, output_level: int) -> Changes:
    store = table.store.manifests
    entries = read_changes(store, delta_manifests(store, table.snapshot(snapshot_id)))
    kinds = entries.column("kind").to_pylist()
    files = data_files(entries)
    before = {(file.file_name, file.level) for file, kind in zip(files, kinds, strict=True) if kind != ADD}
    after = {(file.file_name, file.level) for file, kind in zip(files, kinds, strict=True) if kind == ADD}
    assert {level for _, level in after} <= {output_level}
    names = {name for name, _ in before}
    return before, {(name, level) for name, level in after if name in names}
