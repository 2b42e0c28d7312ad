"""The matrix of append tables, live: tidelake writes each table and the reference reads it, then both take turns.

The same steps made the golden tables, by the reference alone. So after the last step the rows must be those that are
kept there, whoever did which step; and at every snapshot on the way both read the same rows of the same types.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake as tl
from compat.actors import DATABASE, Ours, Theirs, encoded, our_rows, our_types, their_types
from compat.facts import open_branch
from compat.goldens import DATA, Golden
from compat.java_values import to_rows
from compat.tables import FORMATS, SCRIPTS, Script

NEWEST = "2.0.0"
LIVE = [script for script in SCRIPTS.values() if NEWEST in script.releases]
REFUSED = {"moments_orc": "before 1970"}
"""What tidelake does not write: the reference could not read it (spec 20, 3c)."""
VALUES = ("atoms", "nested_parquet", "nested_orc", "nested_avro", "moments", "not_null", "texts", "codecs", "variants")
"""Tables about values: taking turns with them is in `test_append_tables`."""
WRITTEN = [script for script in LIVE if script.name not in REFUSED]
SHARED = [script for script in WRITTEN if not script.name.startswith(VALUES)]


def carry_out(script: Script, warehouse: Path, *, turns: bool) -> None:
    """Make the table: tidelake does every step it has a verb for, or every other one."""
    ours, theirs = Ours(warehouse), Theirs(warehouse)
    ours.create(script)
    # Whose turn is first differs from table to table, so that each kind of step is done by each side somewhere.
    first = sum(map(ord, script.name)) % 2
    for number, step in enumerate(script.steps):
        if ours.can(step) and (not turns or (number + first) % 2 == 0):
            ours.do(script.name, step)
        else:
            theirs.do(script.name, step)


def assert_agree(script: Script, warehouse: Path, scratch: Path) -> None:
    ours, theirs = Ours(warehouse).table(script.name), Theirs(warehouse).table(script.name)
    assert our_types(ours) == their_types(theirs)
    assert [(each.id, each.name, each.description) for each in ours.schema.fields] == [
        (each["id"], each["name"], each.get("description")) for each in theirs.schema()["fields"]
    ]
    snapshots = [document["id"] for document in theirs.snapshots()]
    assert len(snapshots) >= 2
    for at in [*snapshots[:-2][:: 1 + len(snapshots) // 20], *snapshots[-2:]]:
        there = ours.at(snapshot=at)
        assert our_types(there) == their_types(theirs, {"scan.snapshot-id": at}), at
        assert encoded(our_rows(there)) == encoded(theirs.read(snapshot=at)), at
    golden = Golden(DATA / "append" / NEWEST / f"{script.name}.tar.xz", scratch)
    assert encoded(our_rows(ours)) == golden.latest_rows()
    for tag, expected in golden.expected["main"]["tags"].items():
        assert encoded(our_rows(ours.at(tag=tag))) == encoded(theirs.read(tag=tag)) == expected["rows"]
    for branch in set(golden.expected) - {"main"}:
        rows = encoded(our_rows(open_branch(warehouse / f"{DATABASE}.db" / script.name, branch)))
        last = max(golden.expected[branch]["snapshots"], key=int)
        assert rows == encoded(theirs.branch(branch).read()) == golden.expected[branch]["snapshots"][last]["rows"]
    report = ours.check(deep=True)
    assert report.ok, str(report)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:column .* changes from STRING:UserWarning")  # the texts of these tables are numbers
@pytest.mark.parametrize("script", WRITTEN, ids=lambda script: script.name)
def test_the_reference_reads_what_tidelake_wrote(jvm: None, tmp_path: Path, script: Script) -> None:
    carry_out(script, tmp_path / "w", turns=False)
    assert_agree(script, tmp_path / "w", tmp_path)


@pytest.mark.oracle
@pytest.mark.parametrize("script", SHARED, ids=lambda script: script.name)
def test_both_take_turns(jvm: None, tmp_path: Path, script: Script) -> None:
    carry_out(script, tmp_path / "w", turns=True)
    assert_agree(script, tmp_path / "w", tmp_path)


@pytest.mark.oracle
@pytest.mark.parametrize("name", REFUSED)
def test_what_the_reference_could_not_read_is_not_written(jvm: None, tmp_path: Path, name: str) -> None:
    with pytest.raises(tl.UnsupportedError, match=REFUSED[name]):
        carry_out(SCRIPTS[name], tmp_path, turns=False)
    assert Theirs(tmp_path).table(name).read() == []


# ------------------------------------------------------------------------------------------------ pypaimon

NOT_PYPAIMON: dict[str, str] = {
    **dict.fromkeys([f"{each}_{kind}" for each in ("nested", "not_null") for kind in FORMATS], "has no MULTISET"),
    "only_parquet": "has no MULTISET",
    "partition_fraction_legacy": "looks for NaN and the infinities under other names of folders",
    "partition_fraction_sql": "looks for NaN and the infinities under other names of folders",
    "partition_time_legacy": "cuts nanoseconds in names of folders",
    "partition_time_sql": "cuts nanoseconds in names of folders",
    **{f"widen_{kind}": "fills no CHAR up after a change of type, rounds days down" for kind in FORMATS},
    **{f"cast_{kind}": "casts otherwise than the reference: overflow, seconds, texts" for kind in FORMATS},
}
"""Tables that pypaimon 2.1 does not read, or not as the reference does, whoever wrote them; and why."""


@pytest.mark.peers
def test_pypaimon_reads_what_tidelake_wrote(peers: Callable[..., Any], tmp_path: Path) -> None:
    scripts = [each for each in WRITTEN if each.name not in NOT_PYPAIMON and only_ours(each)]
    ours = Ours(tmp_path / "w")
    for script in scripts:
        ours.create(script)
        for step in script.steps:
            ours.do(script.name, step)
    out = tmp_path / "out"
    out.mkdir()
    asked = {each.name: ours.table(each.name).inspect.snapshots()["snapshot_id"].to_pylist() for each in scripts}
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"warehouse": str(tmp_path / "w"), "tables": asked, "out": str(out)}))
    answer = peers(Path(__file__).with_name("pypaimon_tables.py"), str(request))
    assert answer == {}, answer
    for name, snapshots in asked.items():
        for at in snapshots:
            there = ours.table(name).at(snapshot=at)
            with pa.ipc.open_file(out / f"{name}-{at}.arrow") as file:
                table = file.read_all()
            assert encoded(to_rows(iter(table.to_batches()))) == encoded(our_rows(there)), (name, at)
    assert len(list(itertools.chain.from_iterable(asked.values()))) > 200


def only_ours(script: Script) -> bool:
    return all(step[0] not in ("tag", "branch", "branch-write", "rollback") for step in script.steps)
