"""Commands that tell what changed: what was committed, what is chosen of it, and what cannot be told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tidelake as tl
from kit.command_line import answer, main_code, run


@pytest.fixture
def table(tmp_path: Path) -> tl.Table:
    options = {"bucket": "1", "write-only": "true"}
    made = tl.connect(tmp_path).create_table(
        "d.t", {"id": "INT NOT NULL", "v": "STRING"}, primary_key=["id"], options=options
    )
    made.write([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    made.write([{"id": 1, "v": "x", "rowkind": "+U"}, {"id": 2, "v": "b", "rowkind": "-D"}])
    made.create_tag("two")
    made.write([{"id": 3, "v": "\u001b[31mred"}])
    return made


@pytest.fixture
def where(table: tl.Table, tmp_path: Path) -> tuple[str, str]:
    return "-w", str(tmp_path)


def lines(*arguments: str) -> list[dict]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_log_tells_the_newest_first_and_what_only_a_changelog_is_left_of(table: tl.Table, where) -> None:
    found = answer(*where, "log", "d.t")
    assert [each["snapshot_id"] for each in found] == [3, 2, 1]
    assert found[0]["delta_record_count"] == 1
    assert len(run(*where, "log", "d.t", "-n", "2").stdout.splitlines()) == 2
    leaving = table.with_options({"changelog.time-retained": "2 h"})
    leaving.expire_snapshots(retain_max=1, retain_min=1)
    told = run(*where, "log", "d.t").stdout.splitlines()
    assert ["(changelog)" in line for line in told] == [False, True, True]
    assert [each["is_snapshot"] for each in answer(*where, "log", "d.t")] == [True, False, False]


def test_log_of_an_empty_table_says_so(tmp_path: Path) -> None:
    tl.connect(tmp_path).create_table("d.e", {"a": "INT"})
    done = run("-w", str(tmp_path), "log", "d.e")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "has no commit yet" in done.stderr


def test_a_difference_may_be_cut_short_or_be_taken_from_what_was_written(table: tl.Table, where) -> None:
    assert [row["id"] for row in lines(*where, "diff", "d.t", "two")] == [3]
    assert len(lines(*where, "diff", "d.t", "0", "--mode", "delta", "-n", "3")) == 3
    assert len(lines(*where, "diff", "d.t", "0", "--mode", "delta")) == 5
    path = ("--table-path", table.location)
    assert lines(*path, "diff", "1", "2", "--columns", "id", "--where", "id = 2") == [{"rowkind": "-D", "id": 2}]


def test_a_stream_begins_at_a_moment_and_steers_no_terminal(table: tl.Table, where) -> None:
    assert len(lines(*where, "follow", "d.t", "--timeout", "0", "--start", "2001-01-01 12:00:00")) == 5
    assert lines(*where, "follow", "d.t", "--timeout", "0", "--start", "2100-01-01") == []
    assert "\u001b" not in run(*where, "follow", "d.t", "--timeout", "0").stdout


def test_follow_tells_what_it_cannot_do(table: tl.Table, where, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, told = main_code(capsys, *where, "follow", "d.t", "--start", "nowhere", "--timeout", "0")
    assert (code, "cannot begin there" in told) == (1, True)
    table.reset_consumer("old", 1)
    table.reset_consumer("old", 3)
    table.expire_snapshots(retain_max=1, retain_min=1)
    table.reset_consumer("old", 1)
    code, _, told = main_code(capsys, *where, "follow", "d.t", "--consumer", "old", "--timeout", "0")
    assert (code, "expired" in told) == (1, True)


def test_changelogs_expire_after_a_yes(table: tl.Table, where) -> None:
    assert "no changelog to expire" in run(*where, "expire", "d.t", "--changelogs").stdout
    table.with_options({"changelog.time-retained": "2 h"}).expire_snapshots(retain_max=1, retain_min=1)
    arguments = (
        *where,
        "expire",
        "d.t",
        "--changelogs",
        "--retain-min",
        "1",
        "--retain-max",
        "1",
        "--older-than",
        "0 s",
    )
    plan = answer(*arguments)
    assert (plan["changelog_ids"], plan["done"]) == ([1], False)
    assert answer(*arguments, "--yes")["done"] is True
    assert table.store.changelogs.ids() == [2]
