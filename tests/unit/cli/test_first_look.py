"""What a person sees first: a typo is told, and tables fit a terminal of eighty columns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import tidelake as tl
from tidelake.cli import output
from unit.cli.kit import main_code


@pytest.fixture
def lake(tmp_path: Path) -> str:
    made = tl.connect(tmp_path / "lake", storage={"durability": "none"})
    nested = "ROW<a_rather_long_name STRING, another_long_name ARRAY<STRING>>"
    table = made.create_table(
        "shop.sales",
        {"id": "BIGINT", "nested": nested, "dt": "STRING"},
        primary_key=["id", "dt"],
        partition_by=["dt"],
        options={"bucket": 2},
    )
    table.write([{"id": number, "dt": f"2026-11-1{number % 3}"} for number in range(1_000)])
    table.delete("id = 3")
    return made.location


@pytest.mark.parametrize("command", [["ls"], ["ls", "shop"], ["head", "shop.sales"], ["snapshots", "shop.sales"]])
def test_a_lake_that_is_not_there_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    code, out, err = main_code(capsys, "-w", str(tmp_path / "typo"), *command)
    assert (code, out) == (1, "")
    assert "lake does not exist" in err
    assert not (tmp_path / "typo").exists()


def be_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int = 80) -> None:
    monkeypatch.setattr(output, "console", lambda: Console(width=width, force_terminal=False))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


@pytest.mark.parametrize("command", ["snapshots", "files", "partitions", "buckets"])
def test_a_table_of_the_format_fits_eighty_columns_without_folding(
    lake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    be_a_terminal(monkeypatch)
    code, out, err = main_code(capsys, "-w", lake, command, "shop.sales")
    lines = out.splitlines()
    assert code == 0
    assert max(map(len, lines)) <= 80
    # Each row is one line, beside the headings and what a box is drawn with.
    found = getattr(tl.connect(lake).table("shop.sales").inspect, command)().num_rows
    frame = sum(line.strip()[:1] in "┏┡└" or command in line for line in lines)
    assert len(lines) - frame - 1 == found
    if command == "files":
        assert "--all" in err  # what is left out is told


def test_a_pipe_keeps_every_column_by_its_name(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = main_code(capsys, "-w", lake, "snapshots", "shop.sales")
    assert out.split("\n")[0].split()[:2] == ["snapshot_id", "schema_id"]


def test_the_schema_is_a_line_for_each_column(
    lake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    be_a_terminal(monkeypatch)
    _, out, _ = main_code(capsys, "-w", lake, "schema", "shop.sales")
    assert [line.split()[:2] for line in out.splitlines()[:4]] == [
        ["id", "column"],
        ["0", "id"],
        ["1", "nested"],
        ["4", "dt"],
    ]
    _, out, _ = main_code(capsys, "-w", lake, "show", "shop.sales")
    assert "columns       id BIGINT NOT NULL\n              nested ROW<" in out
    text = str(tl.connect(lake).table("shop.sales").schema)
    assert text.splitlines()[0] == "id      BIGINT NOT NULL"
    assert text.splitlines()[-2:] == ["primary key (id, dt)", "partitioned by (dt)"]


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "tidelake", "--version"], capture_output=True, text=True, check=True)
    assert tl.__version__ in done.stdout
