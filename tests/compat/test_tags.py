"""Tags side by side: Apache Paimon and tidelake do the same to copies of a table, and leave the same tags.

The commit times and watermarks of the copies are set by hand, so that a test holds days, gaps and midnights. Snapshots
appear one after the other, and after each of them both look for the tags that are due.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import oracle
import tidelake as tl
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.ops.maintain.auto_tags import tag_batch
from tidelake.ops.maintain.tag_schedule import make_schedule, needs_snapshot
from tidelake.table import Table

pytestmark = pytest.mark.oracle

COUNT = 9
DAY_MS = 86_400_000


def ms(text: str, zone: str = "UTC") -> int:
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


TIMES = [
    ms("2024-04-30 16:30"),
    ms("2024-05-01 23:59:59.999"),
    ms("2024-05-02 00:00"),
    ms("2024-05-02 00:12"),
    ms("2024-05-02 01:59:59"),
    ms("2024-05-02 02:00"),
    ms("2024-05-05 13:31"),  # after a gap
    ms("2024-05-05 13:30"),  # a clock that was set back
    ms("2024-05-06 16:05"),
]
DST = [ms("2024-10-26 22:30") + number * 30 * 60_000 for number in range(COUNT)]
MARKS = [None, -(2**63), *TIMES[:4], None, *TIMES[6:8]]
assert len(TIMES) == len(DST) == len(MARKS) == COUNT

SCHEDULES: dict[str, dict[str, str]] = {
    "daily": {},
    "without dashes": {"tag.period-formatter": "without_dashes"},
    "hourly": {"tag.creation-period": "hourly"},
    "hourly without dashes": {"tag.creation-period": "hourly", "tag.period-formatter": "without_dashes"},
    "hourly in one word": {"tag.creation-period": "hourly", "tag.period-formatter": "without_dashes_and_spaces"},
    "two hours": {"tag.creation-period": "two-hours", "tag.period-formatter": "without_dashes"},
    "90 minutes": {"tag.creation-period-duration": "90 min"},
    "five days": {"tag.creation-period-duration": "5 d", "tag.creation-delay": "3 d"},
    "delayed": {"tag.creation-delay": "10 min"},
    "completed": {"tag.automatic-completion": "true"},
    "completed hours, delayed": {
        "tag.creation-period": "hourly",
        "tag.automatic-completion": "true",
        "tag.creation-delay": "15 min",
    },
    "two kept": {"tag.num-retained-max": "2", "tag.creation-period": "two-hours"},
    "in Shanghai": {"sink.process-time-zone": "Asia/Shanghai", "sink.watermark-time-zone": "Asia/Shanghai"},
    "hours in Berlin": {
        "sink.process-time-zone": "Europe/Berlin",
        "sink.watermark-time-zone": "Europe/Berlin",
        "tag.creation-period": "hourly",
    },
    "for a day": {"tag.default-time-retained": "36500 d"},
}
CASES = [
    *(("process-time", "days", name) for name in SCHEDULES),
    *(("watermark", "days", name) for name in ("daily", "hourly", "completed", "two kept", "in Shanghai")),
    ("process-time", "dst", "hours in Berlin"),
    ("watermark", "dst", "hours in Berlin"),
]


class Copy:
    """A copy of a table whose snapshots appear one after the other."""

    def __init__(self, folder: Path, source: Path) -> None:
        self.folder = folder
        shutil.copytree(source, folder)
        self.root = folder / "d.db/t"
        self.hidden = {}
        for number in range(1, COUNT + 1):
            path = self.root / f"snapshot/snapshot-{number}"
            self.hidden[number] = path.read_bytes()
            path.unlink()
        for hint in ("LATEST", "EARLIEST"):
            (self.root / "snapshot" / hint).unlink(missing_ok=True)

    def show(self, number: int, time_ms: int | None = None, watermark: int | None = None) -> None:
        document = json.loads(self.hidden[number])
        if time_ms is not None:
            document["timeMillis"] = time_ms
        if watermark is not None:
            document["watermark"] = watermark
        (self.root / f"snapshot/snapshot-{number}").write_text(json.dumps(document))

    @property
    def theirs(self) -> oracle.Table:
        return oracle.Catalog(self.folder).table("d.t")

    @property
    def ours(self) -> Table:
        return tl.connect(str(self.folder)).table("d.t")

    def tag_as_paimon(self, options: dict[str, str]) -> None:
        table = self.theirs.load(options)
        manager = oracle.java("tag.TagAutoManager").create(
            table.coreOptions(),
            table.snapshotManager(),
            table.tagManager(),
            table.store().newTagDeletion(),
            oracle.java("java.util.ArrayList")(),
        )
        manager.run()

    def tag_as_tidelake(self, options: dict[str, str]) -> None:
        table = self.ours.with_options(options)
        plan = table.create_automatic_tags(plan_only=True)
        assert table.create_automatic_tags() == plan
        assert table.create_automatic_tags().is_empty

    def tags(self) -> dict[str, tuple[int, bool]]:
        """The snapshot of each tag, and whether it has a lifetime."""
        found = {}
        for path in sorted((self.root / "tag").glob("tag-*")) if (self.root / "tag").exists() else ():
            document = json.loads(path.read_text())
            found[path.name.removeprefix("tag-")] = (document["id"], "tagTimeRetained" in document)
        return found


@pytest.fixture(scope="module")
def source(jvm: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with some snapshots, whose commits create no tags."""
    folder = tmp_path_factory.mktemp("source")
    table = oracle.Catalog(folder).create_table("d.t", {"id": "INT"}, options={"write-only": "true"})
    for number in range(COUNT):
        table.write([(number,)])
    for path in folder.rglob("*.crc"):
        path.unlink()
    return folder


@pytest.mark.parametrize(("creation", "clock", "schedule"), CASES, ids=lambda each: each)
def test_the_same_tags_are_due(tmp_path: Path, source: Path, creation: str, clock: str, schedule: str) -> None:
    options = {"tag.automatic-creation": creation, **SCHEDULES[schedule]}
    theirs, ours, both = (Copy(tmp_path / name, source) for name in ("theirs", "ours", "both"))
    moments = TIMES if clock == "days" else DST
    marks = MARKS if clock == "days" else DST
    turns: Iterator[Any] = itertools.cycle((both.tag_as_paimon, both.tag_as_tidelake))
    made = set()
    for number, (time_ms, watermark) in enumerate(zip(moments, marks, strict=True), start=1):
        for copy in (theirs, ours, both):
            copy.show(number, time_ms, watermark if creation == "watermark" else None)
        theirs.tag_as_paimon(options)
        ours.tag_as_tidelake(options)
        next(turns)(options)
        assert ours.tags() == theirs.tags() == both.tags()
        made |= ours.tags().keys()
    assert len(made) > 1


@pytest.mark.parametrize("schedule", ["daily", "hourly", "delayed", "five days"])
def test_an_empty_commit_is_wanted_at_the_same_times(tmp_path: Path, source: Path, schedule: str) -> None:
    options = {"tag.automatic-creation": "process-time", **SCHEDULES[schedule]}
    copy = Copy(tmp_path / "copy", source)
    copy.show(1, TIMES[0])
    schedules = make_schedule(copy.ours.with_options(options).context.options)
    assert schedules is not None
    method = oracle.java("tag.TagAutoCreation").class_.getDeclaredMethod(
        "forceCreatingSnapshotProcessTime", [oracle.java("java.time.LocalDateTime").class_]
    )
    method.setAccessible(True)
    instants, utc = oracle.java("java.time.Instant"), oracle.java("java.time.ZoneOffset").UTC
    seen = set()
    for _ in range(2):
        table = copy.theirs.load(options)
        manager = oracle.java("tag.TagAutoManager").create(
            table.coreOptions(),
            table.snapshotManager(),
            table.tagManager(),
            table.store().newTagDeletion(),
            oracle.java("java.util.ArrayList")(),
        )
        for time_ms in (*TIMES, ms("2024-04-30 17:15"), ms("2024-05-11 00:00")):
            local = oracle.java("java.time.LocalDateTime").ofInstant(instants.ofEpochMilli(time_ms), utc)
            theirs = bool(method.invoke(manager.getTagAutoCreation(), [local]))
            assert needs_snapshot(schedules, copy.ours.tags(), time_ms) is theirs
            seen.add(theirs)
        copy.tag_as_tidelake(options)
    assert len(seen) == 2


@pytest.mark.parametrize("schedule", ["daily", "two kept", "completed", "90 minutes"])
def test_a_table_that_was_never_tagged_gets_the_same_tags_at_once(tmp_path: Path, source: Path, schedule: str) -> None:
    options = {"tag.automatic-creation": "process-time", **SCHEDULES[schedule]}
    theirs, ours = (Copy(tmp_path / name, source) for name in ("theirs", "ours"))
    for copy in (theirs, ours):
        for number, time_ms in enumerate(TIMES, start=1):
            copy.show(number, time_ms)
        copy.theirs.create_tag("by hand", 5)
    theirs.tag_as_paimon(options)
    ours.tag_as_tidelake(options)
    assert ours.tags() == theirs.tags()
    assert len(ours.tags()) > 2


def test_tags_of_batch_jobs_are_the_same(tmp_path: Path, source: Path) -> None:
    theirs, ours = (Copy(tmp_path / name, source) for name in ("theirs", "ours"))
    for number, (time_ms, extra) in enumerate(
        zip(
            TIMES,
            [{}, {}, {"tag.batch.customized-name": "job"}, {"tag.num-retained-max": "3"}, {}, {}, {}, {}, {}],
            strict=True,
        ),
        start=1,
    ):
        options = {"tag.automatic-creation": "batch", "sink.process-time-zone": "Asia/Shanghai", **extra}
        for copy in (theirs, ours):
            copy.show(number, time_ms)
            if number == 4:
                for name, snapshot in (("b", 1), ("a", 1), ("c", 2)):
                    copy.theirs.create_tag(name, snapshot)
        oracle.java("tag.TagBatchCreation")(theirs.theirs.load(options)).createTag()
        tag_batch(ours.ours.with_options(options).context)
        tag_batch(ours.ours.with_options(options).context)
        assert ours.tags() == theirs.tags()
    assert {"c", "job"} <= ours.tags().keys()
    assert not {"a", "b"} & ours.tags().keys()


def test_commits_create_tags_in_the_same_cases(jvm: None, tmp_path: Path) -> None:
    catalog, lake = oracle.Catalog(tmp_path), tl.connect(str(tmp_path))
    past = ms("2024-05-02 00:12")
    seen: dict[str, list[Any]] = {"theirs": [], "ours": []}
    for creation, write_only in itertools.product(("process-time", "watermark", "batch"), ("false", "true")):
        options = {"tag.automatic-creation": creation, "write-only": write_only}
        options["tag.creation-period-duration"] = "3650 d"  # no midnight ends it while the test runs
        theirs = catalog.create_table(f"d.theirs_{creation[:3]}_{write_only}", {"id": "INT"}, options=options)
        theirs.write([(1,)])
        seen["theirs"].append((creation, write_only, "batch", len(their_tags(theirs))))
        with theirs.writer(user="job") as writer:
            writer.write([(2,)])
            writer.commit(1, watermark=past)
        seen["theirs"].append((creation, write_only, "stream", len(their_tags(theirs))))
        ours = lake.create_table(f"d.ours_{creation[:3]}_{write_only}", {"id": "INT"}, options=options)
        ours.write([{"id": 1}])
        job = {} if creation != "batch" else {ours.snapshot(1).time_ms: 1}
        assert (len(ours.tags()) == 1) is (creation == "batch" or (creation, write_only) == ("process-time", "false"))
        # Java leaves the tag of a batch job to the engine, which is here the same process.
        seen["ours"].append((creation, write_only, "batch", len(ours.tags()) - len(job)))
        writer = ours.new_write()
        writer.write([{"id": 2}])
        ours.new_commit("job").commit(writer.prepare_commit(), identifier=1, watermark=past)
        seen["ours"].append((creation, write_only, "stream", len(ours.tags()) - len(job)))
    assert seen["ours"] == seen["theirs"]
    assert len({each[3] for each in seen["ours"]}) == 2


def their_tags(table: oracle.Table) -> list[str]:
    return sorted(str(name) for name in table.load().tagManager().allTagNames())


def test_a_second_automatic_tag_of_a_snapshot_is_refused_by_both(tmp_path: Path, source: Path) -> None:
    copy = Copy(tmp_path / "copy", source)
    for number, time_ms in enumerate(TIMES, start=1):
        copy.show(number, time_ms)
    long = oracle.java("java.lang.Long").valueOf
    for creation, refused in (("process-time", True), ("watermark", True), ("batch", False), ("none", False)):
        options = {"tag.automatic-creation": creation}
        for name in copy.ours.tags():
            copy.ours.delete_tag(name)
        theirs, ours = copy.theirs.load(options), copy.ours.with_options(options)
        ours.create_tag("2024-05-01", 1)
        theirs.createTag("2024-05-02", long(2))
        ours.create_tag("plain", 1)
        theirs.createTag("2024-05-02-x", long(2))
        if not refused:
            ours.create_tag("2024-05-03", 2)
            theirs.createTag("2024-05-04 rest", long(1))
            continue
        with pytest.raises(InvalidInputError, match="automatic tag already"):
            ours.create_tag("2024-05-03 rest", 2)
        with pytest.raises(Exception, match="already auto-tagged"):
            theirs.createTag("2024-05-04 rest", long(1))
        with pytest.raises(InvalidInputError, match="automatic tag already"):
            ours.replace_tag("2024-05-01", 2)
        with pytest.raises(Exception, match="already auto-tagged"):
            theirs.replaceTag("2024-05-02", long(1), None)


def test_a_replaced_tag_is_the_same_document(tmp_path: Path, source: Path) -> None:
    theirs, ours = (Copy(tmp_path / name, source) for name in ("theirs", "ours"))
    duration = oracle.java("java.time.Duration")
    long = oracle.java("java.lang.Long").valueOf
    for copy in (theirs, ours):
        for number, time_ms in enumerate(TIMES, start=1):
            copy.show(number, time_ms)
        copy.theirs.create_tag("x", 1)
        copy.theirs.expire_snapshots(retain_max=4, retain_min=4)
    options = {"tag.default-time-retained": "2 d"}
    before = files(ours)
    theirs.theirs.load(options).replaceTag("x", long(7), None)
    plan = ours.ours.with_options(options).replace_tag("x", 7)
    assert (plan.before.id, plan.after.id, plan.is_lost) == (1, 7, True)
    assert files(ours) == before == files(theirs)  # what only the former snapshot used stays as orphans
    assert ours.tags() == theirs.tags() == {"x": (7, False)}
    assert json.loads((ours.root / "tag/tag-x").read_text()) == json.loads((theirs.root / "tag/tag-x").read_text())
    theirs.theirs.load().replaceTag("x", None, duration.ofHours(5))
    ours.ours.replace_tag("x", time_retained="5 h")
    assert ours.tags() == theirs.tags() == {"x": (9, True)}
    assert ours.theirs.read(tag="x") == theirs.theirs.read(tag="x")
    for act in (lambda: ours.ours.replace_tag("y"), lambda: ours.ours.replace_tag("x", 1)):
        with pytest.raises(NotFoundError):
            act()
    with pytest.raises(Exception, match="doesn't exist"):
        theirs.theirs.load().replaceTag("y", None, None)
    with pytest.raises(Exception, match="doesn't exist"):
        theirs.theirs.load().replaceTag("x", long(1), None)


def files(copy: Copy) -> set[str]:
    found = (each for each in copy.root.rglob("*") if each.is_file() and not each.name.endswith(".crc"))
    return {str(each.relative_to(copy.root)) for each in found if each.name not in ("LATEST", "EARLIEST")}


def test_tags_expire_together_with_the_same_files(tmp_path: Path, source: Path) -> None:
    theirs, ours = (Copy(tmp_path / name, source) for name in ("theirs", "ours"))
    duration = oracle.java("java.time.Duration")
    long = oracle.java("java.lang.Long").valueOf
    for copy in (theirs, ours):
        for number in range(1, COUNT + 1):
            copy.show(number)
        copy.theirs.load().createTag("one", long(1), duration.ofMillis(1))
        copy.theirs.load().createTag("two", long(2), duration.ofMillis(1))
        copy.theirs.load().createTag("kept", long(3))
        copy.theirs.expire_snapshots(retain_max=1, retain_min=1)
    before = files(ours)
    plan = ours.ours.expire_tags(plan_only=True)
    assert plan.tags == ("one", "two")
    assert files(ours) == before
    theirs.tag_as_paimon({})
    assert ours.ours.expire_tags() == plan.tags
    assert files(ours) == files(theirs) == before - set(plan.files.paths) - {"tag/tag-one", "tag/tag-two"}


def test_the_period_of_an_automatic_tag_is_read_alike(tmp_path: Path, source: Path) -> None:
    copy = Copy(tmp_path / "copy", source)
    names = ["202405010000", "202405010130", "202405010300"]
    for number, time_ms in enumerate(TIMES, start=1):
        copy.show(number, time_ms)
    for number, name in enumerate([*names, "2024-05-01", "2024-05-02 03", "2024-05-03"], start=1):
        copy.theirs.create_tag(name, number)
    for name, period in ((names[2], "90 min"), (names[0], "90 min"), ("2024-05-03", None), ("2024-05-02 03", None)):
        options = {"incremental-to-auto-tag": name}
        if period is not None:
            options["tag.creation-period-duration"] = period
        rows = copy.ours.with_options(options).to_arrow().to_pylist()
        assert rows == copy.theirs.read(options=options)
