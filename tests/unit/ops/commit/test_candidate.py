"""The snapshot to publish, and the invariants that stop a wrong one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kit.small_tables import file, row
from tidelake.errors import InternalError
from tidelake.ops.commit.candidate import (
    INVARIANTS,
    Candidate,
    Header,
    ListFile,
    Lists,
    build_snapshot,
    carried_properties,
    check_invariants,
    header_of_return,
    row_count,
)
from tidelake.spec.data_file import SimpleStats
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.manifests.manifest import ADD, DELETE, empty_entries, entries_table
from tidelake.spec.manifests.manifest_list import ManifestMeta

DELTA = entries_table(
    [
        (ADD, row("d1"), 0, 1, file("a", row_count=10)),
        (ADD, row("d1"), 0, 1, file("b", row_count=5)),
        (DELETE, row("d1"), 0, 1, file("old", row_count=4)),
    ]
)


def built(previous: Snapshot | None = None, **given: Any) -> Snapshot:
    header: dict[str, Any] = {
        "uuid": "x",
        "schema_id": 3,
        "kind": CommitKind.APPEND,
        "user": "u",
        "identifier": 7,
        "time_ms": 100,
        "watermark": None,
        "properties": {},
        "statistics": None,
        "operation": None,
    }
    lists = Lists(
        base=ListFile("base", 10),
        delta=ListFile("delta", 11),
        changelog=given.pop("changelog_list", None),
        index_manifest=given.pop("index_manifest", None),
    )
    delta, changelog = given.pop("delta", DELTA), given.pop("changelog", empty_entries())
    assert given.keys() <= header.keys()
    return build_snapshot(previous, Header(**{**header, **given}), lists, delta=delta, changelog=changelog)


def test_the_first_snapshot_counts_its_own_rows():
    first = built()
    assert (first.id, first.total_record_count, first.delta_record_count) == (1, 11, 11)
    assert (first.base_manifest_list, first.base_manifest_list_size_bytes) == ("base", 10)
    assert first.changelog_record_count is None
    assert first.writer_version.startswith("tidelake")


def test_the_next_one_adds_to_what_was_there():
    second = built(built(), changelog_list=ListFile("log", 5), changelog=DELTA.slice(0, 2))
    assert (second.id, second.total_record_count) == (2, 22)
    assert (second.changelog_manifest_list, second.changelog_record_count) == ("log", 15)


@pytest.mark.parametrize(
    ("before", "own", "after"), [(None, None, None), (5, None, 5), (None, 7, 7), (5, 3, 5), (5, 9, 9), (-9, -20, -9)]
)
def test_a_watermark_never_falls(before, own, after):
    assert built(built(watermark=before), watermark=own).watermark == after


def test_a_state_that_comes_back_is_described_as_it_was():
    back = replace(built(), schema_id=3, watermark=1, statistics="stat", properties={"note": "x", "progress.a": "1"})
    back = replace(back, index_manifest="index", total_record_count=7, next_row_id=4)
    previous = replace(built(back), watermark=9, properties={"progress.a": "2"}, next_row_id=8)
    plain = Header(
        uuid="x", schema_id=5, kind=CommitKind.OVERWRITE, user="u", identifier=7, time_ms=100, watermark=8,
        properties={}, statistics=None, operation=None, returns_to=back,
    )  # fmt: skip
    header = header_of_return(plain, previous)
    assert (header.schema_id, header.watermark, header.statistics) == (3, 1, "stat")
    assert header.properties == {"note": "x", "progress.a": "2", "progress-since": "3"}
    lists = Lists(base=ListFile("base", 1), delta=ListFile("delta", 1), changelog=None, index_manifest="index")
    snapshot = build_snapshot(previous, header, lists, delta=DELTA, changelog=empty_entries())
    assert (snapshot.watermark, snapshot.total_record_count, snapshot.next_row_id) == (1, 7, 8)
    good = replace(GOOD, snapshot=snapshot, returns_to=back)
    with pytest.raises(InternalError, match="from before deletes files"):
        check_invariants(previous, replace(good, before=(meta(3, 1),), after=(meta(3, 1),)))
    check_invariants(previous, good)
    for wrong in ({"index_manifest": "other"}, {"total_record_count": 18}):
        with pytest.raises(InternalError):
            check_invariants(previous, replace(good, snapshot=replace(snapshot, **wrong)))


def test_only_progress_is_carried_on_and_since_when():
    previous = replace(built(), id=6, properties={"progress.a": "1", "progress.b": "2", "note": "x"})
    carried = {"progress.a": "3", "progress.b": "2", "progress-since": "7", "own": "y"}
    assert carried_properties(previous, {"progress.a": "3", "own": "y"}) == carried
    later = {"progress.a": "3", "progress.b": "2", "progress-since": "7"}
    assert carried_properties(replace(previous, id=7, properties=carried), {}) == later
    assert carried_properties(None, {"own": "y"}) == {"own": "y"}
    assert carried_properties(None, {"progress.a": "0"}) == {"progress.a": "0", "progress-since": "1"}


def test_rows_are_counted_by_kind():
    assert (row_count(DELTA, ADD), row_count(DELTA, DELETE), row_count(empty_entries(), ADD)) == (15, 4, 0)


# ------------------------------------------------------------------------------------------------ invariants


def meta(added: int, deleted: int = 0) -> ManifestMeta:
    return ManifestMeta(
        file_name="m", file_size=1, num_added=added, num_deleted=deleted, partition_stats=SimpleStats(), schema_id=0
    )


PREVIOUS = replace(built(), time_ms=50, watermark=4)
GOOD = Candidate(built(PREVIOUS), DELTA, (meta(3, 1),), (meta(2),))


def test_a_good_candidate_passes_every_invariant():
    check_invariants(PREVIOUS, GOOD)
    check_invariants(None, Candidate(built(delta=DELTA.slice(0, 2)), DELTA.slice(0, 2), (), ()))
    assert len(INVARIANTS) == 9


TWICE = entries_table([(ADD, row("d1"), 0, 1, file("a"))] * 2)
BAD = {
    "id does not follow": replace(GOOD, snapshot=replace(GOOD.snapshot, id=5)),
    "time went back": replace(GOOD, snapshot=replace(GOOD.snapshot, time_ms=49)),
    "delta record count": replace(GOOD, snapshot=replace(GOOD.snapshot, delta_record_count=12)),
    "total record count": replace(GOOD, snapshot=replace(GOOD.snapshot, total_record_count=12)),
    "in the delta twice": replace(GOOD, snapshot=built(PREVIOUS, delta=TWICE), delta=TWICE),
    "changed the number of files": replace(GOOD, after=(meta(3),)),
    "more files are deleted": replace(
        GOOD, before=(), after=(), delta=DELTA.slice(2), snapshot=built(PREVIOUS, delta=DELTA.slice(2))
    ),
    "watermark fell": replace(GOOD, snapshot=replace(GOOD.snapshot, watermark=3)),
    "watermark": replace(GOOD, snapshot=replace(GOOD.snapshot, watermark=None)),
}


@pytest.mark.parametrize("what", BAD)
def test_a_wrong_candidate_is_stopped_as_our_bug(what):
    with pytest.raises(InternalError, match=what) as caught:
        check_invariants(PREVIOUS, BAD[what])
    assert caught.value.code == "invariant"
    assert "nothing was published" in (caught.value.hint or "")
