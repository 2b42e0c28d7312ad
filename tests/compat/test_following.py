"""Changes of tables that the real Paimon wrote, read by both: per snapshot, row by row and kind by kind.

Every changelog producer meets every merge engine that takes it. What a stream delivers is compared step by step with
Paimon's own streaming read, what lies between two snapshots with its incremental batch reads, views with its own.
"""

from __future__ import annotations

from collections import Counter
from random import Random  # noqa: TID251 - drawn from fixed seeds
from typing import Any

import pytest

import oracle
import tidelake as tl
from compat.actors import encoded

pytestmark = pytest.mark.oracle

COLUMNS = {"id": "INT NOT NULL", "v": "STRING", "n": "BIGINT", "tags": "ARRAY<INT>"}
ANY, ADDS = ("+I", "+I", "-U", "+U", "-D"), ("+I", "+U")
SUM = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "fields.v.aggregate-function": "max"}
ENGINES = {
    "deduplicate": ({}, ANY),
    "deduplicate by sequence": ({"sequence.field": "n"}, ANY),
    "partial-update": ({"merge-engine": "partial-update"}, ADDS),
    "aggregation": (SUM, ADDS),
    "first-row": ({"merge-engine": "first-row"}, ("+I",)),
}
PRODUCERS = ("none", "input", "lookup", "full-compaction")
CELLS = [
    (engine, producer)
    for engine in ENGINES
    for producer in PRODUCERS
    if engine != "first-row" or producer in ("none", "lookup")
]


def some_rows(rng: Random, kinds: tuple[str, ...]) -> list[tuple[str, tuple[Any, ...]]]:
    return [
        (
            rng.choice(kinds),
            (
                rng.randint(0, 12),
                rng.choice([None, "a", "b", "cc"]),
                rng.choice([None, 1, 2, 3]),
                rng.choice([None, [], [1, 2]]),
            ),
        )
        for _ in range(rng.randint(1, 12))
    ]


def written(
    catalog: oracle.Catalog, engine: str, producer: str, *, buckets: int = 2, seed: str = "", without: str = ""
) -> oracle.Table:
    """A table with some life behind it: writes by streams and batches, compactions, an overwrite."""
    options, kinds = ENGINES[engine]
    kinds = tuple(kind for kind in kinds if kind != without)
    table = catalog.create_table(
        "d.t", COLUMNS, ["id"], (), {"bucket": buckets, "changelog-producer": producer, **options}
    )
    rng = Random(f"{engine} {producer} {seed}")
    for step in range(9):
        match rng.choice(["write", "write", "write", "compact", "lift", "job"]) if step else "write":
            case "write":
                table.write(some_rows(rng, kinds))
            case "compact":
                table.compact()
            case "lift":
                table.compact(full=False, options={"compaction.force-up-level-0": True})
            case "job":
                with table.writer(user=f"job-{step}", options={"write-only": rng.choice([True, False])}) as writer:
                    for commit in (1, 2):
                        writer.write(some_rows(rng, kinds))
                        writer.commit(commit)
        if step == 4:
            table.write(some_rows(rng, ("+I",)), overwrite={})
    table.compact()
    return table


def kinds_and_rows(rows: list[tuple[str, dict[str, Any]]]) -> Counter[str]:
    return Counter(encoded({"rowkind": kind, **row} for kind, row in rows))


def our(table: Any) -> Counter[str]:
    return Counter(encoded(table.to_arrow().to_pylist()))


def steps_of(table: tl.Table, **how: Any) -> list[tuple[int, Counter[str]]]:
    return [(change.snapshot_id + 1, our(change)) for change in table.follow(timeout=0, **how)]


def their_steps(stream: oracle.Stream) -> list[tuple[int, Counter[str]]]:
    return [(position, kinds_and_rows(rows)) for position, rows in stream.drain()]


def in_order(rows: list[dict[str, Any]]) -> dict[int, list[str]]:
    """The changes of each key, in their order."""
    found: dict[int, list[str]] = {}
    for row in rows:
        found.setdefault(row["id"], []).append(repr(row))
    return found


@pytest.mark.parametrize(("engine", "producer"), CELLS)
def test_a_stream_delivers_what_theirs_delivers_snapshot_by_snapshot(engine, producer, catalog, tmp_path):
    theirs = written(catalog, engine, producer)
    ours = tl.connect(tmp_path).table("d.t")
    begin = {"scan.mode": "from-snapshot", "scan.snapshot-id": 1}
    expected = theirs.stream(begin).drain()
    assert steps_of(ours, start="earliest") == [(at, kinds_and_rows(rows)) for at, rows in expected]
    assert steps_of(ours.with_options(begin)) == steps_of(ours, start=1)
    # Also the order of a key's changes is theirs.
    for change, (_, rows) in zip(ours.follow(start=1, timeout=0), expected, strict=True):
        plain = [{"rowkind": kind, **row} for kind, row in rows]
        assert in_order(change.to_arrow().to_pylist()) == in_order(plain)
    latest = ours.latest_snapshot().id
    for since, until in ((0, latest), (1, latest), (2, 5), (latest - 1, latest), (3, 3)):
        between = {"incremental-between": f"{since},{until}"}
        rows = theirs.read(options=between, kinds=True)
        assert our(ours.changes(since, until)) == kinds_and_rows(rows), between
        assert ours.changes(since, until).count() == len(rows)
        assert our(ours.with_options(between).changes()) == kinds_and_rows(rows)
        # A read that shows no kinds shows no row that went.
        kept = Counter(encoded(row for kind, row in rows if kind in ("+I", "+U")))
        assert our(ours.with_options(between).scan()) == kept
        assert ours.with_options(between).count() == sum(kept.values())


@pytest.mark.parametrize(("engine", "producer"), CELLS)
def test_every_place_to_begin_is_theirs(engine, producer, catalog, tmp_path):
    theirs = written(catalog, engine, producer, seed="begin")
    ours = tl.connect(tmp_path).table("d.t")
    times = [each["timeMillis"] for each in theirs.snapshots()]
    for begin in (
        {"scan.mode": "latest"},
        {"scan.mode": "from-snapshot", "scan.snapshot-id": 3},
        {"scan.mode": "from-snapshot-full", "scan.snapshot-id": 4},
        {"scan.timestamp-millis": times[3]},
        {"scan.timestamp-millis": times[3] + 1},
        {"scan.timestamp-millis": times[0] - 5},
        {"scan.timestamp-millis": times[-1] + 5},
        {"scan.mode": "compacted-full"},
        {"scan.mode": "from-creation-timestamp", "scan.creation-time-millis": times[2]},
    ):
        expected = theirs.stream(begin).drain()
        full = "full" in begin.get("scan.mode", "")
        found = [each for each in ours.with_options(begin).follow(timeout=0) if not each.full or each.rows.count()]
        assert [each.snapshot_id + 1 for each in found] == [at for at, _ in expected], begin
        for change, (_, rows) in zip(found, expected, strict=True):
            # Theirs lets a state keep the kinds of its last versions; what a stream begins with is all new to it.
            fresh = full and change.full
            assert our(change) == kinds_and_rows([("+I", row) if fresh else (kind, row) for kind, row in rows]), begin


@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_full_start_and_what_follows_miss_nothing_and_repeat_nothing(producer, catalog, tmp_path):
    """Level 0 is not empty when the stream begins: what it holds comes with a later changelog, or has come already."""
    theirs = catalog.create_table("d.t", COLUMNS, ["id"], (), {"bucket": 1, "changelog-producer": producer})
    theirs.write([(1, "a", 1, None), (2, "b", 2, None)])
    theirs.compact()
    theirs.write([(2, "c", 3, None), (3, "d", 4, None)], options={"write-only": True})
    ours = tl.connect(tmp_path).table("d.t")
    with ours.follow(timeout=0, poll=0) as stream:
        reference = theirs.stream()
        first = next(stream)
        assert first.full
        state = {row["id"]: row for row in first.to_arrow().to_pylist()}
        assert encoded({k: v for k, v in row.items() if k != "rowkind"} for row in state.values()) == encoded(
            row for _, row in reference.plan()
        )
        theirs.write([(3, "e", 5, None)])
        theirs.compact()
        for change in stream:
            for row in change.to_arrow().to_pylist():
                if row["rowkind"] in ("-U", "-D"):
                    assert state.pop(row["id"])["v"] == row["v"]
                else:
                    assert producer in ("none", "input") or row["rowkind"] == "+U" or row["id"] not in state
                    state[row["id"]] = row
    now = {row["id"]: row["v"] for row in ours.to_arrow().to_pylist()}
    assert {key: row["v"] for key, row in state.items()} == now == {1: "a", 2: "c", 3: "e"}


@pytest.mark.parametrize("engine", ["deduplicate", "deduplicate by sequence", "partial-update", "aggregation"])
def test_a_difference_is_what_the_states_differ_by(engine, catalog, tmp_path):
    theirs = written(catalog, engine, "none", seed="diff")
    ours = tl.connect(tmp_path).table("d.t")
    theirs.create_tag("early", 2)
    theirs.create_tag("late")
    latest = ours.latest_snapshot().id
    states = {
        at: {row["id"]: row for row in ours.at(snapshot=at).to_arrow().to_pylist()} for at in range(1, latest + 1)
    }
    diff = ours.with_options({"incremental-between-scan-mode": "diff"})
    for since, until in ((1, latest), (2, latest), (1, 2), (4, latest - 1), (3, 3)):
        before, after = states[since], states[until]
        rows = diff.changes(since, until).to_arrow().to_pylist()
        found = {
            kind: {r["id"]: _without_kind(r) for r in rows if r["rowkind"] == kind} for kind in ("+I", "-U", "+U", "-D")
        }
        both = {key for key in before.keys() & after.keys() if before[key] != after[key]}
        assert found["+I"] == {key: after[key] for key in after.keys() - before.keys()}
        assert found["-D"] == {key: before[key] for key in before.keys() - after.keys()}
        assert found["-U"] == {key: before[key] for key in both}
        assert found["+U"] == {key: after[key] for key in both}
        assert len(rows) == sum(map(len, found.values()))
        # Theirs may show more: rows that were written anew without a change.
        between = {"incremental-between": f"{since},{until}", "incremental-between-scan-mode": "diff"}
        shown = {row["id"]: row for row in theirs.read(options=between)}
        if engine == "deduplicate":
            assert our(ours.with_options(between).scan()) <= Counter(encoded(shown.values()))
            assert all(
                before.get(key) == row for key, row in shown.items() if key not in {**found["+I"], **found["+U"]}
            )
    # The last full compaction rewrote every file, so that theirs has no file in common to pass over.
    tags = {"incremental-between": "early,late"}
    assert our(ours.with_options(tags).scan()) == Counter(encoded(theirs.read(options=tags)))
    assert our(ours.changes("early", "late")) == our(diff.changes(2, latest))
    assert ours.with_options({**tags, "incremental-between-tag-to-snapshot": True}).count() == len(
        [kind for kind, _ in theirs.read(options={"incremental-between": f"2,{latest}"}, kinds=True) if kind[0] == "+"]
    )


def _without_kind(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "rowkind"}


@pytest.mark.parametrize(("engine", "producer"), CELLS)
def test_views_show_what_theirs_show(engine, producer, catalog, tmp_path):
    # Theirs packs a row before an update with whatever row comes next, also where there is none after it.
    theirs = written(catalog, engine, producer, seed="views", without="-U")
    theirs.write([("+I", (5, "new", 9, None))])
    lake = tl.connect(tmp_path)
    latest = lake.table("d.t").latest_snapshot().id
    for view in ("audit_log", "binlog"):
        ours, other = lake.table(f"d.t${view}"), theirs.system(view)
        types = {"rowkind": "STRING", **other.fields()}
        assert ours.scan().arrow_schema.names == list(types)
        for options in ({}, {"incremental-between": f"1,{latest}"}, {"scan.snapshot-id": 3}):
            found = Counter(encoded(ours.with_options(options).to_arrow().to_pylist()))
            assert found == Counter(encoded(other.read(options=options))), (view, options)
        begin = {"scan.mode": "from-snapshot", "scan.snapshot-id": 1}
        expected = [(at, Counter(encoded(row for _, row in rows))) for at, rows in other.stream(begin).drain()]
        assert steps_of(ours, start=1) == expected
    assert our(lake.table("d.t$ro").scan()) == Counter(encoded(theirs.system("ro").read()))
    assert our(lake.table("d.t").inspect.audit_log()) == Counter(encoded(theirs.audit_log()))


def test_sequence_numbers_are_shown_where_the_table_says_so(catalog, tmp_path):
    theirs = written(catalog, "deduplicate", "input")
    theirs.alter(("set", "table-read.sequence-number.enabled", "true"))
    ours = tl.connect(tmp_path).table("d.t$audit_log")
    assert ours.scan().arrow_schema.names == list(theirs.system("audit_log").fields())
    assert our(ours) == Counter(encoded(theirs.audit_log()))
    assert our(ours.changes(2, 5)) == Counter(encoded(theirs.audit_log(options={"incremental-between": "2,5"})))


@pytest.mark.parametrize("keyed", [True, False])
def test_overwrites_come_as_theirs_where_the_table_says_so(keyed, catalog, tmp_path):
    key = ["id"] if keyed else []
    bucket = {"bucket": 2} if keyed else {}
    option = "streaming-read-overwrite" if keyed else "streaming-read-append-overwrite"
    theirs = catalog.create_table("d.t", COLUMNS, key, (), {**bucket, "write-only": True})
    theirs.write([(i, "a", i, None) for i in range(5)])
    theirs.write([(i, "b", i, None) for i in range(3, 8)])
    theirs.write([(i, "c", i, None) for i in range(6, 10)], overwrite={})
    theirs.write([(11, "d", 1, None)])
    ours = tl.connect(tmp_path).table("d.t")
    for seen in (True, False):
        begin = {"scan.mode": "from-snapshot", "scan.snapshot-id": 2, option: seen}
        found = steps_of(ours.with_options(begin))
        assert found == their_steps(theirs.stream(begin))
        assert len(found) == (3 if seen else 2)


def test_a_bound_of_the_watermark_ends_streams_where_theirs_end(catalog, tmp_path):
    theirs = catalog.create_table("d.t", COLUMNS, [], (), {})
    with theirs.writer(user="job") as writer:
        for number in range(1, 6):
            writer.write([(number, "a", 1, None)])
            writer.commit(number, watermark=number * 10)
    ours = tl.connect(tmp_path).table("d.t")
    for bound in (9, 10, 25, 30, 99):
        begin = {"scan.mode": "from-snapshot", "scan.snapshot-id": 1, "scan.bounded.watermark": bound}
        expected, ended = until_the_end(theirs.stream(begin))
        assert ended == (bound < 50)
        assert [rows for _, rows in steps_of(ours.with_options(begin))] == expected
        full = {"scan.bounded.watermark": bound}
        expected, _ = until_the_end(theirs.stream(full))
        assert [rows for _, rows in steps_of(ours.with_options(full))] == expected


def until_the_end(stream: oracle.Stream) -> tuple[list[Counter[str]], bool]:
    found = []
    for _ in range(10):
        try:
            rows = stream.plan()
        except oracle.java("table.source.EndOfScanException"):
            return found, True
        if rows is not None:
            found.append(kinds_and_rows(rows))
    return found, False


def test_a_consumer_of_theirs_goes_on_here_and_one_of_ours_there(catalog, tmp_path):
    theirs = written(catalog, "deduplicate", "input")
    ours = tl.connect(tmp_path).table("d.t")
    theirs.set_consumer("both", 4)
    stream = ours.follow(consumer="both", timeout=0)
    first = next(stream)
    assert first.snapshot_id >= 4
    first.ack()
    assert int(theirs.consumer_manager().consumer("both").get().nextSnapshot()) == first.snapshot_id + 1
    expected = steps_of(ours, start=first.snapshot_id + 1)
    assert their_steps(theirs.stream({"consumer-id": "both"})) == expected
    assert steps_of(ours, consumer="both") == expected
    assert ours.consumers() == {"both": ours.latest_snapshot().id + 1}
    ignoring = {"consumer-id": "both", "consumer.ignore-progress": True, "scan.snapshot-id": 1}
    assert steps_of(ours.with_options(ignoring)) == their_steps(theirs.stream(ignoring))


def test_neither_expires_what_the_others_consumer_has_still_to_read(catalog, tmp_path):
    theirs = written(catalog, "deduplicate", "input")
    ours = tl.connect(tmp_path).table("d.t")
    next(ours.follow(consumer="slow", start=3, timeout=0)).ack()
    held = ours.consumers()["slow"]
    theirs.expire_snapshots(retain_max=1)
    assert theirs.snapshots()[0]["id"] == held
    theirs.set_consumer("slow", held + 1)
    ours.expire_snapshots(retain_max=1, retain_min=1)
    assert ours.inspect.snapshots().column("snapshot_id")[0].as_py() == held + 1
    ours.reset_consumer("late", held)
    with pytest.raises(tl.NotFoundError, match="expired") as caught:
        next(ours.follow(consumer="late", timeout=0))
    assert caught.value.code == "snapshot-expired"


# ------------------------------------------------------------------------------------------------ long-lived changelogs

OUTLIVING = {"snapshot.num-retained.max": 60, "changelog.num-retained.max": 100}


def leave_changelogs(who: str, theirs: oracle.Table, ours: tl.Table, keep: int) -> None:
    if who == "they":
        theirs.expire_snapshots(keep, keep, changelog_max=100)
    else:
        ours.expire_snapshots(retain_max=keep, retain_min=keep, older_than=2**50)


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize(("first", "second"), [("they", "we"), ("we", "they"), ("we", "we")])
def test_changes_outlive_their_snapshots_whoever_expires_those(producer, first, second, catalog, tmp_path):
    options = {"bucket": 1, "changelog-producer": producer, **OUTLIVING}
    theirs = catalog.create_table("d.t", COLUMNS, ["id"], (), options)
    rng = Random(f"{producer} {first} {second}")
    begin = {"scan.mode": "from-snapshot", "scan.snapshot-id": 1}
    ours = tl.connect(tmp_path).table("d.t")
    expected: list[tuple[int, Counter[str]]] = []
    for who, keep in ((first, 2), (second, 1)):
        for _ in range(4):
            theirs.write(some_rows(rng, ("+I", "+U", "-D")))
        theirs.compact()
        known = len(expected)
        expected = their_steps(theirs.stream(begin))
        assert len(expected) > known
        leave_changelogs(who, theirs, ours, keep)
        assert len(ours.inspect.snapshots()) == keep
        assert steps_of(ours, start="earliest") == expected
        assert their_steps(theirs.stream(begin)) == expected
        assert our(ours.changes(0)) == sum((rows for _, rows in expected), Counter())
        report = ours.check(deep=True)
        assert report.ok, report
        assert report.orphans == (), report
    latest = ours.latest_snapshot().id
    assert ours.store.changelogs.ids() == list(range(1, latest))
    for who, keep in ((second, 6), (first, 3)):
        if who == "they":
            theirs.expire_changelogs(keep)
        else:
            ours.expire_changelogs(retain_max=keep, retain_min=keep, older_than=2**50)
        earliest = ours.store.changelogs.earliest_id()
        assert earliest == latest - keep + 1
        left = [step for step in expected if step[0] > earliest]
        assert steps_of(ours, start="earliest") == left
        assert their_steps(theirs.stream({"scan.mode": "from-snapshot", "scan.snapshot-id": earliest})) == left
        report = ours.check(deep=True)
        assert report.ok, report
        assert report.orphans == (), report
    with pytest.raises(tl.NotFoundError, match="not kept"):
        ours.changes(0).count()
    assert Counter(encoded(theirs.read())) == our(ours.scan())


def test_an_append_table_keeps_the_files_of_its_changes_as_theirs_does(catalog, tmp_path):
    theirs = catalog.create_table("d.t", COLUMNS, [], (), OUTLIVING)
    for number in range(8):
        theirs.write([(number, "a", number, None)])
    theirs.compact()
    ours = tl.connect(tmp_path).table("d.t")
    begin = {"scan.mode": "from-snapshot", "scan.snapshot-id": 1}
    expected = their_steps(theirs.stream(begin))
    assert len(expected) == 8
    leave_changelogs("we", theirs, ours, 1)
    assert their_steps(theirs.stream(begin)) == steps_of(ours, start=1) == expected
    assert ours.check(deep=True).orphans == ()
    ours.expire_changelogs(delete_all=True)
    assert ours.store.changelogs.ids() == []
    assert our(ours.scan()) == Counter(encoded(theirs.read()))
