"""Maintenance side by side: Apache Paimon and tidelake do the same to two copies of a table, and the same is left.

A table that Java wrote is copied as a folder. Java maintains one copy and tidelake the other; afterwards both folders
must hold the same files, and Java must read the same rows at every snapshot and tag that is left as it did before.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import oracle
import tidelake as tl
from tidelake.table import Table

pytestmark = pytest.mark.oracle

AGES_AWAY = 2**53
"""A moment before which everything was committed: age alone keeps nothing, as when Java is driven here."""
HINTS = ("LATEST", "EARLIEST")
FIELDS = {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "INT"}
KEYED = {"bucket": "2", "write-only": "true", "num-sorted-run.compaction-trigger": "3"}


def appended(catalog: oracle.Catalog) -> oracle.Table:
    options = {"bucket": "2", "bucket-key": "id", "write-only": "true", "manifest.merge-min-count": "3"}
    table = catalog.create_table("d.t", FIELDS, (), ["dt"], options)
    for number in range(3):
        table.write([(number * 10 + i, f"d{i % 2}", i) for i in range(6)])
    table.compact()
    table.write([(90, "d0", 9)], {"dynamic-partition-overwrite": False}, overwrite={"dt": "d0"})
    table.truncate([{"dt": "d1"}])
    for number in range(3):
        table.write([(100 + number, "d2", number)])
    return table


def keyed(catalog: oracle.Catalog, **options: str) -> oracle.Table:
    table = catalog.create_table("d.t", FIELDS, ["dt", "id"], ["dt"], {**KEYED, **options})
    for number in range(4):
        table.write([(i, f"d{i % 2}", number * 100 + i) for i in range(number, number + 5)])
        if number % 2:
            table.compact(full=number == 3)
    # A bucket with one run only: its file moves to the top level under the same name.
    table.write([(500, "only", 1)])
    table.compact(full=True)
    table.write([("-D", (1, "d1", 0)), (500, "only", 2)])
    table.compact(full=True)
    table.write([(501, "only", 3)])
    return table


def with_changelog(catalog: oracle.Catalog) -> oracle.Table:
    return keyed(catalog, **{"changelog-producer": "input"})


def with_vectors(catalog: oracle.Catalog) -> oracle.Table:
    return keyed(catalog, **{"deletion-vectors.enabled": "true", "bucket": "1"})


def dynamic(catalog: oracle.Catalog) -> oracle.Table:
    return keyed(catalog, bucket="-1")


TABLES: dict[str, Callable[[oracle.Catalog], oracle.Table]] = {
    "append": appended,
    "keyed": keyed,
    "changelog": with_changelog,
    "vectors": with_vectors,
    "dynamic": dynamic,
}


class Pair:
    """Two copies of a table: `theirs` is for Java to maintain, `ours` for tidelake."""

    def __init__(self, folder: Path, make: Callable[[oracle.Catalog], oracle.Table]) -> None:
        self.folder = folder
        make(oracle.Catalog(folder / "theirs"))

    def part(self) -> None:
        """From here on each has its own copy."""
        shutil.rmtree(self.folder / "ours", ignore_errors=True)
        shutil.copytree(self.folder / "theirs", self.folder / "ours")

    @property
    def theirs(self) -> oracle.Table:
        return oracle.Catalog(self.folder / "theirs").table("d.t")

    @property
    def ours(self) -> Table:
        return tl.connect(str(self.folder / "ours")).table("d.t")

    @property
    def ours_in_java(self) -> oracle.Table:
        return oracle.Catalog(self.folder / "ours").table("d.t")

    def files(self, side: str) -> set[str]:
        root = self.folder / side / "d.db/t"
        found = (each for each in root.rglob("*") if each.is_file() and not each.name.endswith(".crc"))
        return {str(each.relative_to(root)) for each in found if each.name not in HINTS}

    def compare(self, before: dict[Any, list[str]]) -> None:
        """Both hold the same files, and Java reads in ours what it read before."""
        assert self.files("ours") == self.files("theirs")
        after = views(self.ours_in_java)
        assert after == views(self.theirs)
        assert after == {point: before[point] for point in after}
        report = self.ours.check(deep=True)
        assert report.ok, str(report)
        assert len({each.place for each in report.findings if each.invariant == "I10"}) == len(report.orphans[:20])


def views(table: oracle.Table) -> dict[Any, list[str]]:
    """The rows at every snapshot and tag, as Java reads them."""
    points: list[tuple[str, Any]] = [("scan.snapshot-id", each["id"]) for each in table.snapshots()]
    points += [("scan.tag-name", name) for name in tag_names(table)]
    return {point: sorted(repr(row) for row in table.read(options={point[0]: point[1]})) for point in points}


def tag_names(table: oracle.Table) -> list[str]:
    return sorted(str(name) for name in table.load().tagManager().allTagNames())


@pytest.fixture(params=TABLES)
def pair(jvm: None, tmp_path: Path, request: pytest.FixtureRequest) -> Pair:
    return Pair(tmp_path, TABLES[request.param])


@pytest.mark.parametrize("keep", [5, 1])
def test_the_same_snapshots_and_files_expire(pair: Pair, keep: int) -> None:
    pair.part()
    before = views(pair.theirs)
    pair.theirs.expire_snapshots(retain_max=keep, retain_min=keep)
    done = pair.ours.expire_snapshots(retain_max=keep, retain_min=keep, older_than=AGES_AWAY)
    assert len(done.snapshot_ids) == len(before) - keep
    assert done.files.paths
    pair.compare(before)
    assert pair.ours.remove_orphans().paths == ()


def test_tags_and_consumers_hold_back_the_same(pair: Pair) -> None:
    latest = len(pair.theirs.snapshots())
    for name, snapshot in (("first", 1), ("middle", 4), ("again", 4), ("late", latest - 1)):
        pair.theirs.create_tag(name, snapshot)
    pair.theirs.set_consumer("reader", latest - 1)
    pair.part()
    before = views(pair.theirs)
    pair.theirs.expire_snapshots(retain_max=1)
    pair.ours.expire_snapshots(retain_max=1, retain_min=1, older_than=AGES_AWAY)
    assert pair.ours.store.snapshots.ids() == [latest - 1, latest]
    pair.compare(before)
    # Now the tags go one after the other, with what only they held.
    for name in ("again", "middle", "first", "late"):
        pair.theirs.delete_tag(name)
        pair.ours.delete_tag(name)
        pair.compare(before)
    assert tag_names(pair.ours_in_java) == []


def test_a_table_goes_back_to_the_same_snapshot(pair: Pair) -> None:
    pair.theirs.create_tag("first", 1)
    pair.theirs.create_tag("late", 6)
    pair.theirs.expire_snapshots(retain_max=5, retain_min=5)
    pair.part()
    before = views(pair.theirs)
    target = pair.theirs.snapshots()[2]["id"]
    pair.theirs.rollback(target)
    pair.ours.rollback_to(snapshot=target)
    pair.compare(before)
    before["scan.snapshot-id", 1] = before["scan.tag-name", "first"]
    pair.theirs.rollback("first")
    plan = pair.ours.rollback_to(tag="first")
    assert plan.restored
    pair.compare(before)
    # Life goes on from there, whoever writes.
    pair.ours_in_java.write([(7_000, "new", 1)])
    assert [each["id"] for each in pair.ours_in_java.snapshots()] == [1, 2]
    assert pair.ours.check(deep=True).ok


def test_a_tag_brings_a_snapshot_back_without_its_changelog(jvm: None, tmp_path: Path) -> None:
    pair = Pair(tmp_path, with_changelog)
    pair.theirs.create_tag("first", 1)
    pair.theirs.expire_snapshots(retain_max=2, retain_min=2)
    pair.part()
    # A branch that Java makes of such a tag does not stop us from expiring.
    pair.ours_in_java.create_branch("dev", "first")
    pair.ours.expire_snapshots(retain_max=1, retain_min=1, older_than=AGES_AWAY)
    pair.theirs.rollback("first")
    pair.ours.rollback_to(tag="first")
    (theirs,), (ours,) = pair.theirs.snapshots(), pair.ours_in_java.snapshots()
    named = theirs.pop("changelogManifestList")
    assert f"manifest/{named}" not in pair.files("theirs")
    assert {key: theirs[key] for key in ours} == ours
    assert "changelogManifestList" not in ours


def test_the_main_branch_moves_to_the_same_place(pair: Pair) -> None:
    pair.theirs.create_tag("fork", 3)
    pair.part()
    for table in (pair.theirs, pair.ours_in_java):
        table.create_branch("dev", "fork")
    # The same folder again, so that both move over the same snapshots.
    pair.theirs.branch("dev").write([(8_000, "branch", 1)])
    pair.theirs.branch("dev").write([(8_001, "branch", 2)])
    pair.theirs.branch("dev").load().createTag("side", 5)
    pair.part()
    pair.theirs.fast_forward("dev")
    pair.ours.fast_forward("dev")
    assert pair.files("ours") == pair.files("theirs")
    assert views(pair.ours_in_java) == views(pair.theirs)
    assert [each["id"] for each in pair.ours_in_java.snapshots()] == [1, 2, 3, 4, 5]
    assert pair.ours.check(deep=True).ok


def test_branches_of_both_look_alike(pair: Pair) -> None:
    pair.theirs.create_tag("fork", 3)
    pair.part()
    for name, tag in (("empty", None), ("dev", "fork")):
        pair.theirs.create_branch(name, tag)
        pair.ours.create_branch(name, tag=tag)
    assert pair.files("ours") == pair.files("theirs")
    for path in pair.files("ours"):
        if path.startswith("branch/"):
            one, other = (pair.folder / side / "d.db/t" / path for side in ("ours", "theirs"))
            assert one.read_bytes() == other.read_bytes(), path
    side = pair.ours_in_java.branch("dev")
    assert sorted(map(repr, side.read())) == views(pair.theirs)["scan.tag-name", "fork"]
    side.write([(9_000, "branch", 1)])
    assert pair.ours.branch("dev").latest_snapshot().id == 4
    pair.ours.delete_branch("empty")
    assert pair.ours_in_java.load().branchManager().branches().size() == 1


def test_a_branch_keeps_its_files_when_the_main_branch_expires(pair: Pair) -> None:
    pair.part()
    pair.ours.create_branch("dev", snapshot=3)
    side = pair.ours_in_java.branch("dev")
    rows = sorted(map(repr, side.read()))
    pair.ours.expire_snapshots(retain_max=1, retain_min=1, older_than=AGES_AWAY)
    assert sorted(map(repr, side.read())) == rows
    assert pair.ours.check(deep=True).ok
    assert pair.ours.remove_orphans().paths == ()


def test_tags_open_on_the_other_side(jvm: None, tmp_path: Path) -> None:
    pair = Pair(tmp_path, keyed)
    theirs = pair.theirs
    theirs.create_tag("plain-theirs", 2)
    theirs.load().createTag("kept-theirs", 3, oracle.java("java.time.Duration").ofHours(36))
    pair.part()
    ours = pair.ours
    ours.create_tag("plain-ours", snapshot=2)
    ours.create_tag("kept-ours", snapshot=3, time_retained="36 h")
    seen = pair.ours_in_java
    for kind in ("plain", "kept"):
        mine, yours = (tmp_path / "ours/d.db/t/tag" / f"tag-{kind}-{side}" for side in ("ours", "theirs"))
        if kind == "plain":
            assert mine.read_bytes() == yours.read_bytes()
        read = [
            sorted(map(repr, seen.read(options={"scan.tag-name": f"{kind}-{side}"}))) for side in ("ours", "theirs")
        ]
        assert read[0] == read[1] != []
        rows = [
            ours.inspect.tags().filter(_named(ours, f"{kind}-{side}")).to_pylist()[0] for side in ("ours", "theirs")
        ]
        assert {k: v for k, v in rows[0].items() if k not in ("tag_name", "create_time")} == {
            k: v for k, v in rows[1].items() if k not in ("tag_name", "create_time")
        }
    assert tag_names(seen) == sorted(ours.tags())
    theirs_view = {row["tag_name"]: row for row in seen.system("tags").read()}
    for row in ours.inspect.tags().to_pylist():
        assert theirs_view[row["tag_name"]]["snapshot_id"] == row["snapshot_id"]
        assert theirs_view[row["tag_name"]]["time_retained"] == row["time_retained"]
    ours.rename_tag("plain-ours", "renamed")
    seen.delete_tag("renamed")
    seen.delete_tag("kept-ours")
    assert sorted(ours.tags()) == ["kept-theirs", "plain-theirs"]


def _named(table: Table, name: str) -> Any:
    import pyarrow.compute as pc

    return pc.equal(table.inspect.tags().column("tag_name"), name)


def test_both_expire_after_a_commit_by_the_same_rule(jvm: None, tmp_path: Path) -> None:
    options = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "3", "snapshot.time-retained": "1 ms"}
    theirs = oracle.Catalog(tmp_path).create_table("d.theirs", {"id": "INT", "v": "INT"}, options=options)
    lake = tl.connect(str(tmp_path))
    ours = lake.create_table("d.ours", {"id": "INT", "v": "INT"}, options=options)
    for number in range(6):
        theirs.write([(number, number)])
        ours.write([{"id": number, "v": number}])
        seen = oracle.Catalog(tmp_path).table("d.ours")
        assert [each["id"] for each in seen.snapshots()] == [each["id"] for each in theirs.snapshots()]
    assert len(theirs.snapshots()) < 6
    assert ours.check(deep=True).orphans == ()
