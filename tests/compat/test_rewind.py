"""Branches and rollbacks side by side: Apache Paimon and tidelake do the same to two copies of a table.

A table that Java wrote is copied as a folder. Java changes one copy and tidelake the other; afterwards both must agree,
and each goes on with what the other left.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import oracle
import tidelake as tl

pytestmark = pytest.mark.oracle

FIELDS = {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "INT"}
AGES_AWAY = 2**53
KINDS: dict[str, dict[str, str]] = {
    "append": {},
    "vectors": {"bucket": "1", "deletion-vectors.enabled": "true"},
    "dynamic": {"bucket": "-1"},
}


class Pair:
    """Two copies of a table: `theirs` is for Java to change, `ours` for tidelake."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.keys = () if kind == "append" else ("dt", "id")
        catalog = oracle.Catalog(folder / "theirs")
        self.made = catalog.create_table("d.t", FIELDS, self.keys, ["dt"], KINDS[kind])

    def part(self) -> None:
        shutil.rmtree(self.folder / "ours", ignore_errors=True)
        shutil.copytree(self.folder / "theirs", self.folder / "ours")

    @property
    def theirs(self) -> oracle.Table:
        return oracle.Catalog(self.folder / "theirs").table("d.t")

    @property
    def ours(self) -> tl.Table:
        return tl.connect(str(self.folder / "ours")).table("d.t")

    @property
    def ours_in_java(self) -> oracle.Table:
        return oracle.Catalog(self.folder / "ours").table("d.t")

    @property
    def theirs_in_tidelake(self) -> tl.Table:
        return tl.connect(str(self.folder / "theirs")).table("d.t")

    def path(self, side: str, name: str) -> Path:
        return self.folder / side / "d.db/t" / name

    def data(self, side: str) -> set[str]:
        root = self.folder / side / "d.db/t"
        kept = (each for each in root.rglob("*") if each.is_file() and not each.name.endswith(".crc"))
        return {str(each.relative_to(root)) for each in kept if not {"manifest", "tag", "snapshot"} & set(each.parts)}

    def newest(self, side: str) -> dict[str, Any]:
        folder = self.path(side, "snapshot")
        newest = max((each for each in folder.glob("snapshot-*")), key=lambda each: int(each.name.split("-")[1]))
        document: dict[str, Any] = json.loads(newest.read_text())
        return document


@pytest.fixture(params=KINDS)
def pair(jvm: None, tmp_path: Path, request: pytest.FixtureRequest) -> Pair:
    return Pair(tmp_path, request.param)


@pytest.fixture
def appended(jvm: None, tmp_path: Path) -> Pair:
    return Pair(tmp_path, "append")


def rows(table: oracle.Table, **options: Any) -> list[str]:
    return sorted(repr(row) for row in table.read(options=options))


def our_rows(table: tl.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


def java_time_travel_back(table: oracle.Table, snapshot_id: int) -> str:
    """What the procedure `rollback_to_as_latest` does: a tag of the snapshot, then the commit."""
    loaded = table.load()
    name = f"rollback-to-as-latest-{snapshot_id}-java"
    tags = loaded.tagManager()
    empty = oracle.java("utils.Preconditions")  # any class starts the JVM's loader
    del empty
    import jpype

    tags.createTag(
        loaded.snapshotManager().snapshot(snapshot_id), name, None, jpype.JClass("java.util.ArrayList")(), False
    )
    commit = loaded.newCommit("java-back")
    assert commit.rollbackToAsLatest(tags.getOrThrow(name))
    commit.close()
    return name


def fill(pair: Pair) -> None:
    table = pair.made
    with table.writer(user="job") as writer:
        for number, watermark in ((1, 10), (2, 20)):
            writer.write([(i, f"d{i % 2}", number * 100 + i) for i in range(number, number + 5)])
            writer.commit(number, watermark=watermark)
    if pair.keys:
        table.write([("-D", (2, "d0", 0)), ("+I", (7, "d2", 7))])
        table.compact(full=True)
    else:
        table.write([(9, "d9", 9)], overwrite={"dt": "d1"})
    table.alter(("add", "w", "INT"))
    table = pair.theirs
    table.write([(1, "d1", -1, 5), (50, "d5", 50, 6)])


SAME = (
    "schemaId", "commitKind", "commitIdentifier", "totalRecordCount", "deltaRecordCount", "watermark", "statistics",
    "indexManifest", "properties", "nextRowId", "changelogManifestList", "id",
)  # fmt: skip


def test_a_return_to_an_older_state_is_the_same_commit(pair: Pair) -> None:
    fill(pair)
    pair.part()
    wanted = rows(pair.theirs, **{"scan.snapshot-id": 2})
    before = pair.data("theirs")
    java_time_travel_back(pair.theirs, 2)
    done = pair.ours.rollback_to(snapshot=2, as_latest=True)
    assert isinstance(done.tag, str)  # type: ignore[union-attr]
    ours, theirs = pair.newest("ours"), pair.newest("theirs")
    assert {key: ours.get(key) for key in SAME} == {key: theirs.get(key) for key in SAME}
    assert pair.data("ours") == pair.data("theirs") == before
    assert rows(pair.ours_in_java, **{"scan.snapshot-id": ours["id"]}) == wanted
    assert rows(pair.theirs, **{"scan.snapshot-id": ours["id"]}) == wanted
    assert rows(pair.ours_in_java) == rows(pair.theirs)
    assert our_rows(pair.ours) == our_rows(pair.theirs_in_tidelake)
    for table in (pair.ours, pair.theirs_in_tidelake):
        report = table.check(deep=True, rows=True)
        assert report.ok, str(report)
    kept = [(each["file"], each["level"]) for each in pair.theirs.files()]
    assert sorted(kept) == sorted((each["file"], each["level"]) for each in pair.ours_in_java.files())


def test_each_goes_on_after_the_return_of_the_other(pair: Pair) -> None:
    fill(pair)
    pair.part()
    java_time_travel_back(pair.theirs, 1)
    pair.ours.rollback_to(snapshot=1, as_latest=True)
    pair.ours_in_java.write([(77, "d7", 7, 7), (3, "d1", 3, 3)])
    mine = pair.theirs_in_tidelake
    mine.write([{"id": 77, "dt": "d7", "v": 7, "w": 7}, {"id": 3, "dt": "d1", "v": 3, "w": 3}])
    wanted = rows(pair.ours_in_java)
    assert rows(pair.theirs) == wanted
    # The expiry of each side, on what the other one left; the tag of the return keeps the files that came back.
    pair.ours_in_java.expire_snapshots(retain_max=1, retain_min=1)
    mine.expire_snapshots(retain_max=1, retain_min=1, older_than=AGES_AWAY)
    assert rows(pair.ours_in_java) == rows(pair.theirs) == wanted
    for table in (pair.ours, mine):
        report = table.check(deep=True, rows=True)
        assert report.ok, str(report)


def test_watermarks_choose_the_same_snapshot(appended: Pair) -> None:
    fill(appended)
    appended.part()
    manager = appended.theirs.load().snapshotManager()
    for watermark in (9, 10, 15, 20, 99):
        found = manager.earlierOrEqualWatermark(watermark)
        theirs = None if found is None or int(found.watermark()) > watermark else found
        try:
            plan = appended.ours.rollback_to(watermark=watermark, plan_only=True)
        except tl.NotFoundError:
            assert theirs is None
        else:
            assert theirs is not None
            assert plan.target.watermark == int(theirs.watermark())
            # Where several have this very watermark Java takes the first that its search meets; the newest is due.
            assert watermark == plan.target.watermark or plan.target.id == int(theirs.id())


def test_a_merge_appends_the_same_files_once(appended: Pair) -> None:
    for number in (1, 2):
        appended.made.write([(number, "d1", number)])
    appended.made.create_branch("side")
    for number in (11, 12, 13):
        appended.theirs.branch("side").write([(number, f"d{number}", number)])
    appended.part()
    appended.theirs.load().mergeBranch("side", "main")
    assert appended.ours.merge_branch("side").files == 3
    assert {each["file"] for each in appended.theirs.files()} == {
        each["file"] for each in appended.ours_in_java.files()
    }
    ours, theirs = appended.newest("ours"), appended.newest("theirs")
    same = set(SAME) - {"commitIdentifier"}  # Java commits as number 0 of a new user, we as a batch
    assert {key: ours.get(key) for key in same} == {key: theirs.get(key) for key in same}
    assert len(appended.theirs.read()) == 5
    # Again, each on what the other one merged; then one more file.
    assert appended.theirs_in_tidelake.merge_branch("side").files == 0
    appended.ours_in_java.load().mergeBranch("side", "main")
    assert appended.newest("ours")["id"] == ours["id"]
    appended.ours_in_java.branch("side").write([(14, "d14", 14)])
    appended.theirs_in_tidelake.branch("side").write([{"id": 14, "dt": "d14", "v": 14}])
    appended.ours_in_java.load().mergeBranch("side", "main")
    assert appended.theirs_in_tidelake.merge_branch("side").files == 1
    assert rows(appended.ours_in_java) == rows(appended.theirs)
    # The other way round.
    appended.ours.merge_branch("main", "side")
    appended.theirs.load().mergeBranch("main", "side")
    assert rows(appended.ours_in_java.branch("side")) == rows(appended.theirs.branch("side"))
    assert appended.ours.check(deep=True, rows=True).ok


def by_overwrite(pair: Pair) -> None:
    pair.theirs.write([(9, "d1", 9)], overwrite={"dt": "d1"})


def by_overwrite_of_the_branch(pair: Pair) -> None:
    pair.theirs.branch("side").write([(9, "d1", 9)], overwrite={"dt": "d1"})


def by_expiry(pair: Pair) -> None:
    pair.theirs.write([(3, "d1", 3)])
    pair.theirs.expire_snapshots(retain_max=1, retain_min=1)


def by_columns(pair: Pair) -> None:
    pair.theirs.alter(("add", "w", "INT"))


def by_emptiness(pair: Pair) -> None:
    pair.theirs.load().deleteBranch("side")
    pair.theirs.create_branch("side")


def by_absence(pair: Pair) -> None:
    pair.theirs.load().deleteBranch("side")


@pytest.mark.parametrize(
    "make", [by_overwrite, by_overwrite_of_the_branch, by_expiry, by_columns, by_emptiness, by_absence]
)
def test_both_refuse_the_same_merges(appended: Pair, make: Callable[[Pair], None]) -> None:
    appended.made.write([(1, "d1", 1)])
    appended.made.create_branch("side")
    appended.theirs.branch("side").write([(2, "d1", 2)])
    make(appended)
    appended.part()
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - what Java throws
        appended.theirs.load().mergeBranch("side", "main")
    with pytest.raises(tl.TidelakeError):
        appended.ours.merge_branch("side")
    assert "IllegalArgument" in str(theirs.type)


def test_a_renamed_branch_is_there_for_both(appended: Pair) -> None:
    appended.made.write([(1, "d1", 1)])
    appended.made.create_tag("t", 1)
    appended.made.create_branch("old", "t")
    appended.part()
    appended.theirs.load().renameBranch("old", "new")
    appended.ours.rename_branch("old", "new")
    assert appended.ours.branches() == appended.theirs_in_tidelake.branches() == ["new"]
    assert appended.data("ours") == appended.data("theirs")
    appended.ours_in_java.branch("new").write([(2, "d1", 2)])
    appended.theirs_in_tidelake.branch("new").write([{"id": 2, "dt": "d1", "v": 2}])
    assert rows(appended.ours_in_java.branch("new")) == rows(appended.theirs.branch("new"))


def test_schemas_are_rolled_back_by_the_same_rule(appended: Pair) -> None:
    appended.made.write([(1, "d1", 1)])
    for name in ("a", "b", "c"):
        appended.theirs.alter(("add", name, "INT"))
    appended.part()
    appended.theirs.load().rollbackSchema(1)
    appended.ours.rollback_schema(1)
    assert appended.data("ours") == appended.data("theirs")
    assert appended.path("ours", "schema/schema-1").exists()
    assert not appended.path("ours", "schema/schema-2").exists()
    for table in (appended.ours_in_java, appended.theirs):
        table.write([(2, "d1", 2, 3)])
        with pytest.raises(Exception, match="still referenced"):
            table.load().rollbackSchema(0)
    for mine in (appended.ours, appended.theirs_in_tidelake):
        with pytest.raises(tl.InvalidInputError, match="in use"):
            mine.rollback_schema(0)
    assert our_rows(appended.ours) == our_rows(appended.theirs_in_tidelake)


@pytest.mark.parametrize(
    ("including", "excluding"),
    [(".*", None), ("a.*", None), ("a", None), (".*", "a[0-9]"), ("(a|b)[12]", ".*2"), ("A1", None)],
)
def test_the_same_consumers_are_forgotten(appended: Pair, including: str, excluding: str | None) -> None:
    import jpype

    appended.made.write([(1, "d1", 1)])
    for name in ("a1", "a2", "b1", "b-long.name", "a"):
        appended.made.set_consumer(name, 1)
    appended.part()
    pattern = jpype.JClass("java.util.regex.Pattern")
    appended.theirs.consumer_manager().clearConsumers(
        pattern.compile(including), None if excluding is None else pattern.compile(excluding)
    )
    appended.ours.clear_consumers(including, excluding)
    assert appended.data("ours") == appended.data("theirs")


def test_the_oldest_snapshot_is_repaired_by_the_same_rule(appended: Pair) -> None:
    for number in range(1, 7):
        appended.made.write([(number, "d1", number)])
    for lost in (2, 4):
        appended.path("theirs", f"snapshot/snapshot-{lost}").unlink()
    for wanted in (1, 2, 3, 4, 5, 6, 7):
        appended.part()
        manager = appended.theirs.load().snapshotManager()
        try:
            theirs = int(manager.repairEarliestSnapshot(wanted))
        except Exception:  # noqa: BLE001 - what Java throws
            with pytest.raises(tl.TidelakeError):
                appended.ours.repair_earliest_snapshot(wanted)
        else:
            assert appended.ours.repair_earliest_snapshot(wanted) == theirs
        hints = [appended.path(side, "snapshot/EARLIEST").read_text() for side in ("ours", "theirs")]
        assert hints[0] == hints[1]
        appended.path("theirs", "snapshot/EARLIEST").write_text("1")
