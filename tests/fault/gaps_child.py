"""One process under a hard limit of memory that tries every verb on tables with one document far above the others.

    python gaps_child.py FOLDER KIND PLANT ...

Prints a line of JSON for every verb: the document that was planted, the verb, and what came of it.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import tidelake as tl
from fault.memory_child import limit_memory
from tidelake.ops.maintain.check import CheckReport
from tidelake.table import Table

FAR = 10**9
BEYOND = 2**62
HEADROOM_MB = 200
SECONDS_MAX = 10
COLUMNS = {"id": "BIGINT NOT NULL", "x": "BIGINT"}
KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "keyed": {"primary_key": ["id"], "options": {"bucket": "1", "changelog-producer": "input"}},
    "moving": {"primary_key": ["id"], "partition_by": ["p"]},
}


def make(location: Path, kind: str) -> None:
    columns = {**COLUMNS, "p": "INT NOT NULL"} if kind == "moving" else COLUMNS
    table = tl.connect(str(location)).create_table("d.t", columns, **KINDS[kind])
    for number in range(1, 5):
        table.write(rows(table, number), commit_user="job", identifier=number)
    table.create_tag("kept", snapshot=2)
    table.create_branch("side", tag="kept")
    table.reset_consumer("reader", 2)


def rows(table: Table, number: int) -> list[dict[str, int]]:
    return [dict.fromkeys(table.schema.names, number)]


# ------------------------------------------------------------------------------------------------ planting


def copied(source: Path, target: Path, **changes: object) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({**json.loads(source.read_text()), **changes}))


def hint(folder: Path, latest: int, earliest: int) -> None:
    for name, number in (("LATEST", latest), ("EARLIEST", earliest)):
        (folder / name).write_text(str(number))


def far_snapshot(table: Path) -> None:
    copied(table / "snapshot/snapshot-4", table / f"snapshot/snapshot-{FAR}", id=FAR)


def unhinted_snapshot(table: Path) -> None:
    far_snapshot(table)
    for name in ("LATEST", "EARLIEST"):
        (table / "snapshot" / name).unlink()


def hinted_snapshot(table: Path) -> None:
    far_snapshot(table)
    hint(table / "snapshot", FAR, 1)


def last_snapshot(table: Path) -> None:
    copied(table / "snapshot/snapshot-4", table / f"snapshot/snapshot-{2**63 - 1}", id=2**63 - 1)
    hint(table / "snapshot", 2**63 - 1, 1)


def hints_to_nowhere(table: Path) -> None:
    hint(table / "snapshot", BEYOND, BEYOND)
    (table / "consumer/consumer-reader").write_text(json.dumps({"nextSnapshot": BEYOND}))


def far_others(table: Path) -> None:
    """Everything else that has a number: changelogs, tags, schemas, branches, consumers."""
    copied(table / "snapshot/snapshot-1", table / "changelog/changelog-1")
    copied(table / "snapshot/snapshot-4", table / f"changelog/changelog-{FAR}", id=FAR)
    hint(table / "changelog", FAR, 1)
    copied(table / "snapshot/snapshot-4", table / "tag/tag-far", id=FAR)
    copied(table / "snapshot/snapshot-2", table / f"branch/branch-side/snapshot/snapshot-{FAR}", id=FAR)
    hint(table / "branch/branch-side/snapshot", FAR, 2)
    copied(table / "schema/schema-0", table / f"schema/schema-{FAR}", id=FAR)
    (table / "consumer/consumer-reader").write_text(json.dumps({"nextSnapshot": FAR}))


PLANTS = {
    each.__name__: each
    for each in (far_snapshot, unhinted_snapshot, hinted_snapshot, last_snapshot, hints_to_nowhere, far_others)
}


# ------------------------------------------------------------------------------------------------ verbs


def verbs(kind: str) -> Iterator[tuple[str, Callable[[Table], object]]]:
    everything: dict[str, Any] = {"older_than": timedelta(0), "retain_min": 1, "max_deletes": FAR}
    yield "read", lambda t: t.to_arrow().num_rows
    yield "count", lambda t: t.count()
    yield "at", lambda t: t.at(timestamp=2**42).count()
    yield "explain", lambda t: str(t.scan().explain())
    yield "changes", lambda t: t.changes(since=1).to_arrow().num_rows
    yield "changes of all", lambda t: t.changes(since=0).to_arrow().num_rows
    yield "changes until", lambda t: t.changes(since=1, until=FAR).to_arrow().num_rows
    yield "difference", lambda t: t.with_options({"incremental-between": f"1,{FAR}"}).to_arrow().num_rows
    yield "tags apart", lambda t: t.with_options({"incremental-between": "kept,far"}).to_arrow().num_rows
    yield "follow", lambda t: sum(1 for _ in t.follow(start="earliest", timeout=0, poll=0))
    yield "follow from", lambda t: sum(1 for _ in t.follow(start=3, until="latest", timeout=0, poll=0))
    yield "consume", lambda t: sum(1 for _ in t.follow("reader", until="latest", timeout=0, poll=0))
    for name in ("branches", "buckets", "consumers", "files", "lsm", "manifests", "partitions", "ro", "schemas",
                 "snapshots", "table_indexes", "tags"):  # fmt: skip
        if kind != "append" or name not in ("lsm", "ro"):
            yield f"inspect {name}", lambda t, name=name: getattr(t.inspect, name)().num_rows
    yield "check", lambda t: t.check()
    yield "check deep", lambda t: t.check(deep=True)
    yield "write", lambda t: t.write(rows(t, 9)).rows
    yield "write numbered", lambda t: t.write(rows(t, 9), commit_user="job", identifier=5).rows
    yield "write again", lambda t: t.write(rows(t, 4), commit_user="job", identifier=4).repeated
    yield "write as another", lambda t: t.write(rows(t, 9), commit_user="other", identifier=1).rows
    yield "overwrite", lambda t: t.write(rows(t, 9), mode="overwrite").rows
    yield "write late", write_late
    yield "delete", lambda t: t.delete("id = 1").rows
    yield "update", lambda t: t.update({"x": "x + 1"}, "id = 2").rows
    yield "merge", lambda t: t.merge(rows(t, 1), on=["id"]).when_matched_delete().run()
    yield "compact", lambda t: t.compact(full=True).rows
    if kind == "keyed":
        yield "keep compacted", lambda t: t.keep_compacted(max_rounds=1)
        yield "rescale", lambda t: t.rescale(2).rows
        yield "why", lambda t: t.why({"id": 1}).versions.num_rows
    yield "alter", lambda t: t.alter(add={"more": "INT"}).count()
    yield "expire", lambda t: len(t.expire_snapshots(**everything).snapshot_ids)
    yield "expire most", lambda t: len(t.expire_snapshots(retain_min=1, retain_max=1, max_deletes=FAR).snapshot_ids)
    yield "expire as usual", lambda t: len(t.expire_snapshots().snapshot_ids)
    yield "expire changelogs", lambda t: len(t.expire_changelogs(**everything).changelog_ids)
    yield "expire all changelogs", lambda t: len(t.expire_changelogs(delete_all=True).changelog_ids)
    yield "tag", lambda t: t.create_tag("new")
    yield "untag", lambda t: str(t.delete_tag("kept"))
    yield "expire tags", lambda t: t.expire_tags(older_than=timedelta(0))
    yield "branch", lambda t: t.create_branch("other").count()
    yield "read a branch", lambda t: t.branch("side").count()
    yield "fast forward", lambda t: str(t.fast_forward("side"))
    yield "drop a branch", lambda t: t.delete_branch("side")
    yield "roll back", lambda t: len(t.rollback_to(snapshot=2).snapshot_ids)
    yield "roll back to a tag", lambda t: len(t.rollback_to(tag="kept").snapshot_ids)
    yield "return", lambda t: t.rollback_to(snapshot=2, as_latest=True).snapshot_id
    yield "return to a watermark", lambda t: t.rollback_to(watermark=5, as_latest=True).snapshot_id
    yield "repair the oldest", lambda t: t.repair_earliest_snapshot(2)
    yield "roll the schema back", lambda t: t.rollback_schema(0).removed
    yield "rename a branch", lambda t: t.rename_branch("side", "other")
    yield "merge a branch", lambda t: t.merge_branch("side").files
    yield "forget all", lambda t: t.clear_consumers()
    yield "orphans", lambda t: str(t.remove_orphans(plan_only=False))
    yield "reset", lambda t: t.reset_consumer("reader", FAR)
    yield "truncate", lambda t: str(t.truncate())


def write_late(table: Table) -> object:
    """Prepare a commit, and see a snapshot with a far id come before it is published."""
    writer = table.new_write(commit_user="late")
    writer.write(rows(table, 7))
    messages = writer.prepare_commit(1)
    hinted_snapshot(Path(table.location))
    return table.new_commit("late").commit(messages, identifier=1).repeated


class TookTooLongError(BaseException):
    """Raised by the alarm; nothing catches it by accident."""


def ring(*_: object) -> None:
    raise TookTooLongError


def tried(table: Table, verb: Callable[[Table], object]) -> str:
    signal.alarm(SECONDS_MAX)
    try:
        answer = verb(table)
    except tl.TidelakeError as error:
        return f"{type(error).__name__} {error.code}"
    except BaseException as error:  # noqa: BLE001 - what must not happen is what is looked for
        return f"UNTYPED {type(error).__name__} {str(error)[:200]}"
    finally:
        signal.alarm(0)
    if isinstance(answer, CheckReport):
        return f"checked {[finding.message for finding in answer.findings]}"
    return f"done {answer}"


def main(folder: Path, kind: str, plants: Sequence[str]) -> None:
    make(folder / "made", kind)
    shutil.copytree(folder / "made", folder / "warm")
    for warm in (Table.to_arrow, Table.check, lambda t: t.write(rows(t, 8)), lambda t: t.compact(full=True)):
        open_and_try(folder / "warm", warm)
    signal.signal(signal.SIGALRM, ring)
    limit_memory(HEADROOM_MB)
    for plant in plants:
        for name, verb in verbs(kind):
            lake = folder / "lake"
            shutil.rmtree(lake, ignore_errors=True)
            shutil.copytree(folder / "made", lake)
            PLANTS[plant](lake / "d.db/t")
            print(json.dumps([plant, name, open_and_try(lake, verb)]), flush=True)


def open_and_try(lake: Path, verb: Callable[[Table], object]) -> str:
    table = tl.connect(str(lake)).table("d.t")
    try:
        return tried(table, verb)
    finally:
        table.store.env.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
