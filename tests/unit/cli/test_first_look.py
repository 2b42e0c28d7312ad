"""What a person sees first: a typo is told, and tables fit a terminal of eighty columns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import tidelake as tl
from kit.command_line import main_code
from tidelake.cli import commands, output, run


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


def test_a_wide_table_shows_the_columns_that_fit_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was an empty box: three hundred columns without a letter each."""
    made = tl.connect(tmp_path / "lake").create_table("d.wide", {f"column{n}": "INT" for n in range(300)})
    made.write([{f"column{n}": n for n in range(300)}])
    be_a_terminal(monkeypatch)
    code, out, err = main_code(capsys, "-w", str(tmp_path / "lake"), "head", "d.wide")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "column0" in out
    assert "column5" in out
    assert "of 300 columns fit here" in err


def test_every_column_that_was_asked_for_is_shown_however_narrow_the_terminal_is(
    lake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    be_a_terminal(monkeypatch)
    code, out, _ = main_code(capsys, "-w", lake, "snapshots", "shop.sales", "--all")
    assert code == 0
    for name in tl.connect(lake).table("shop.sales").inspect.snapshots().column_names:
        assert name in out


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["head", "shop.nope"], "table-not-found"),
        (["nosuch"], "usage"),
        (["head", "shop.sales", "--limit", "x"], "usage"),
    ],
)
def test_a_failure_is_a_document_where_programs_ask_for_one(
    lake: str, capsys: pytest.CaptureFixture[str], command: list[str], code: str
) -> None:
    answer, out, err = main_code(capsys, "-w", lake, *command, "--json")
    told = json.loads(out)["error"]
    assert (answer, told["code"]) == (1, code)
    assert told["message"] in err


@pytest.mark.filterwarnings("default")
def test_a_warning_about_an_option_is_in_the_document(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("id\n1\n")
    made = ["write", "shop.new", str(tmp_path / "rows.csv"), "--create", "--option", "bukcet=1", "--json"]
    code, out, err = main_code(capsys, "-w", lake, *made)
    assert code == 0
    assert "bukcet" in err
    assert "bukcet" in json.loads(out)["warnings"][0]


def test_doctor_finds_a_lake_that_is_not_there_and_makes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = main_code(capsys, "-w", str(tmp_path / "typo"), "doctor")
    assert code != 0
    assert "lake does not exist" in out
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("wrap", [RuntimeError, SystemError])
def test_an_interrupt_that_something_wrapped_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrap: type[Exception]
) -> None:
    """While modules load, Python 3.11 wraps it in a RuntimeError, which was reported as a bug."""
    interrupt = KeyboardInterrupt()
    interrupt.add_note("the commit is published as snapshot 3: do not repeat it")

    def fail(*_: object, **__: object) -> None:
        raise wrap("Error calling __set_name__") from interrupt

    monkeypatch.setattr(commands.cli, "main", fail)
    assert run(["ls"]) == 130
    assert capsys.readouterr().err.splitlines() == [*interrupt.__notes__, "stopped"]


def test_a_pipe_that_breaks_is_not_an_error(lake: str) -> None:
    command = f'"{sys.executable}" -m tidelake -w "{lake}" head shop.sales -n 200000'
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_names_with_commas_and_equals_signs_stand_in_backticks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tl.connect(tmp_path / "lake").create_table("d.t", {"e,f": "INT", "g=h": "INT", "i": "INT"})
    made.write([{"e,f": 1, "g=h": 2, "i": 3}])
    where = ["-w", str(tmp_path / "lake")]
    code, out, _ = main_code(capsys, *where, "head", "d.t", "--columns", "`e,f`, i", "--json")
    assert (code, json.loads(out)) == (0, [{"e,f": 1, "i": 3}])
    code, _, _ = main_code(capsys, *where, "update", "d.t", "--set", "`g=h`=7", "--where", "i = 3", "--yes")
    assert code == 0
    assert made.to_arrow().to_pylist() == [{"e,f": 1, "g=h": 7, "i": 3}]
    code, _, err = main_code(capsys, *where, "head", "d.t", "--columns", "`e")
    assert code == 1
    assert "backticks" in err
