"""The demo: what it promises to show is there, with figures that are read back, and it ends with what to try next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

import tidelake as tl
from kit.command_line import run
from tidelake.cli import demo


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A lake that the demo made, and what it drew."""
    folder = tmp_path_factory.mktemp("kept") / "my-lake"
    return folder, run("demo", "--no-spark", "--path", str(folder)).stdout


@pytest.fixture
def drawn(kept: tuple[Path, str]) -> str:
    return kept[1]


@pytest.mark.parametrize(
    "line",
    [
        "7 commits, 210 rows",
        "repeated=True",
        "column note added, schema 1",
        "21 rows, 189 left",
        "21 files became 3, 189 rows as before",
        "30 rows at snapshot 1, 189 now",
        "order 3",
        "ok (10 snapshots, 3 files, 0 orphans)",
    ],
)
def test_the_demo_shows_what_an_append_table_does(drawn: str, line: str) -> None:
    assert line in drawn


@pytest.mark.parametrize(
    "line",
    [
        "shop.customers, primary key id, 1 bucket",
        "4 commits with known keys, still 2,000 rows",
        "rows of the kind -D for 2 keys, 1,998 left",
        "10 rows, 1,988 left",
        "200 customers came back",
        "key {'id': 42}: 5 versions; the newest version wins",
        "key {'id': 42}: 1 version; the newest version wins",
        "7 files became 1 file",
        "rows before and after are the same: True",
        "2,000 rows at snapshot 1, 1,988 now",
    ],
)
def test_the_demo_shows_what_a_primary_key_table_does(drawn: str, line: str) -> None:
    assert line in drawn


def test_the_demo_shows_the_levels_before_and_after_the_compaction(drawn: str) -> None:
    before, _, rest = drawn.partition("levels before the compaction")[2].partition("A read merges")
    after = rest.partition("levels after the compaction")[2].partition("key {")[0]

    def levels(picture: str) -> list[str]:
        return [line.split("│")[1].strip() for line in picture.splitlines() if line.startswith("│")]

    assert levels(before) == ["0", "5"]
    assert levels(after) == ["5"]


def test_the_demo_ends_with_commands_that_work(drawn: str) -> None:
    commands = [line.strip() for line in drawn.rpartition("Try next:")[2].splitlines()]
    commands = [line for line in commands if line.startswith("tidelake ")]
    assert len(commands) >= 5
    for command in commands:
        done = run(*shlex.split(command, comments=True)[1:])
        assert done.exit_code == 0, (command, done.output, done.exception)
        assert done.stdout.strip()


def test_the_demo_tells_programs_the_same(demo_told: dict[str, Any]) -> None:
    assert demo_told["ok"]
    assert demo_told["rows"] == 189
    customers = demo_told["customers"]
    assert customers["ok"]
    assert customers["same_rows"]
    assert customers["rows"] == 1_988
    assert [each["level"] for each in customers["levels_before"]] == [0, 5]
    assert [each["runs"] for each in customers["levels_before"]] == [6, 1]
    assert [(each["level"], each["rows"]) for each in customers["levels_after"]] == [(5, 1_988)]


def test_the_demo_keeps_its_lake_where_it_is_told_and_never_mixes_with_others(kept: tuple[Path, str]) -> None:
    folder, drawn = kept
    assert f"The lake is kept in {folder}" in drawn
    lake = tl.connect(folder)
    assert lake.table("shop.orders").count() == 189
    assert lake.table("shop.customers").count() == 1_988
    assert isinstance(run("demo", "--path", str(folder)).exception, tl.InvalidInputError)


def test_the_demo_says_how_to_keep_a_lake_that_it_has_removed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_run", lambda folder, *, as_json, spark: None)
    demo.run_demo(None, as_json=False)
    assert "tidelake demo --path my-lake" in capsys.readouterr().out


def test_the_demo_runs_in_this_process_where_spark_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise tl.InvalidInputError(
            "engine is not installed", code="extra-missing", hint="pip install 'tidelake[spark]'"
        )

    monkeypatch.setattr(tl, "spark", missing)
    done = run("demo", "--path", str(tmp_path / "lake"))
    assert done.exit_code == 0, done.exception
    assert "pip install 'tidelake[spark]'" in done.stdout
    assert "1,988 now" in done.stdout


def test_the_demo_does_not_hide_what_else_keeps_spark_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise tl.InvalidInputError("a Spark session with another master runs already", code="session-runs")

    monkeypatch.setattr(tl, "spark", broken)
    assert isinstance(run("demo", "--path", str(tmp_path / "lake")).exception, tl.InvalidInputError)
