"""The command line: every command answers as a table and as JSON, and exit codes tell whose fault it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tidelake as tl
from tidelake.cli import exit_code
from tidelake.cli.commands import cli
from tidelake.cli.demo import run_demo


@pytest.fixture
def lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    run_demo(str(tmp_path / "lake"), as_json=True)
    capsys.readouterr()
    return tmp_path / "lake"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def answer(*arguments: str) -> object:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_ls_names_databases_and_tables(lake: Path) -> None:
    assert answer("-w", str(lake), "ls") == ["shop"]
    assert answer("-w", str(lake), "ls", "shop") == ["orders"]
    assert run("-w", str(lake), "ls", "shop").output == "orders\n"


def test_schema_tells_columns_keys_and_options(lake: Path) -> None:
    document = answer("-w", str(lake), "schema", "shop.orders")
    assert isinstance(document, dict)
    assert [field["name"] for field in document["fields"]] == ["id", "status", "amount", "dt", "note"]
    text = run("-w", str(lake), "schema", "shop.orders").output
    assert "DECIMAL(10, 2)" in text
    assert "partitioned by: dt" in text
    assert "manifest.merge-min-count = 5" in text


@pytest.mark.parametrize("name", ["snapshots", "schemas", "options", "manifests", "files", "partitions"])
def test_system_tables_answer_as_json_with_the_columns_of_the_format(lake: Path, name: str) -> None:
    rows = answer("-w", str(lake), name, "shop.orders")
    table = tl.connect(lake).table("shop.orders")
    expected = getattr(table.inspect, name)()
    assert isinstance(rows, list)
    assert len(rows) == expected.num_rows > 0
    assert list(rows[0]) == expected.column_names
    assert run("-w", str(lake), name, "shop.orders").exit_code == 0


def test_a_table_opens_by_its_path_alone(lake: Path) -> None:
    rows = answer("--table-path", str(lake / "shop.db/orders"), "snapshots")
    assert isinstance(rows, list)
    assert [row["snapshot_id"] for row in rows] == list(range(1, 11))


def test_check_is_silent_success_on_a_sound_table_and_exits_with_2_on_a_broken_one(lake: Path) -> None:
    assert answer("-w", str(lake), "check", "shop.orders", "--deep")["ok"] is True  # type: ignore[index]
    victim = next((lake / "shop.db/orders").glob("dt=2026-11-14/bucket-0/*"))
    victim.unlink()
    broken = run("-w", str(lake), "check", "shop.orders")
    assert broken.exit_code == 2
    assert victim.name in broken.output
    assert "file is missing" in broken.output


def test_doctor_probes_the_storage(lake: Path) -> None:
    found = answer("-w", str(lake), "doctor")
    assert isinstance(found, dict)
    assert found["ok"] is True
    assert "storage" in [check["name"] for check in found["checks"]]


def test_mistakes_are_told_with_the_fix_on_standard_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from tidelake.cli import main; main()", "-w", str(tmp_path), "snapshots", "a.b"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "table does not exist" in done.stderr
    assert "help:" in done.stderr


def test_exit_codes_tell_whose_fault_an_error_is() -> None:
    assert exit_code(tl.InvalidInputError("x")) == exit_code(tl.NotFoundError("x")) == 1
    assert (
        exit_code(tl.StorageError("x")) == exit_code(tl.FormatError("x")) == exit_code(tl.CommitUnknownError("x")) == 2
    )
    assert exit_code(tl.InternalError("x")) == exit_code(RuntimeError("x")) == 3


def test_a_command_without_a_table_says_how_to_name_one() -> None:
    result = run("snapshots")
    assert isinstance(result.exception, tl.InvalidInputError)
    assert "--table-path" in str(result.exception)


def test_help_imports_neither_arrow_nor_polars() -> None:
    code = (
        "import sys; sys.argv = ['tidelake', '--help']\n"
        "from tidelake.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "sys.stderr.write(','.join(m for m in ('pyarrow', 'polars', 'numpy', 'pyspark') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    assert done.stderr == ""


def test_head_prints_rows_with_columns_conditions_and_time_travel(lake: Path) -> None:
    rows = answer("-w", str(lake), "head", "shop.orders", "--columns", "id, status", "--where", "id < 4", "-n", "2")
    assert isinstance(rows, list)
    assert len(rows) == 2
    assert all(row["status"] == "paid" and row["id"] < 4 for row in rows)
    old = answer("-w", str(lake), "head", "shop.orders", "--at", "1", "-n", "100")
    assert isinstance(old, list)
    assert len(old) == 30
    assert "note" not in old[0]


def test_show_tells_a_table_at_a_glance(lake: Path) -> None:
    facts = answer("-w", str(lake), "show", "shop.orders")
    assert isinstance(facts, dict)
    assert (facts["rows"], facts["files"], facts["partitioned by"]) == (189, 3, ["dt"])
    assert "DECIMAL(10, 2)" in run("-w", str(lake), "show", "shop.orders").output


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("csv", "id,status,amount,dt,note\n900,new,1.50,2026-11-15,x\n"),
        ("jsonl", '{"id": 900, "status": "new", "amount": "1.50", "dt": "2026-11-15", "note": "x"}\n'),
    ],
)
def test_write_takes_files_and_tells_what_it_did(lake: Path, tmp_path: Path, ending: str, text: str) -> None:
    source = tmp_path / f"rows.{ending}"
    source.write_text(text)
    result = answer("-w", str(lake), "write", "shop.orders", str(source))
    assert isinstance(result, dict)
    assert result["rows"] == 1
    table = tl.connect(lake).table("shop.orders")
    assert table.count() == 190
    assert table.to_arrow(where="id = 900").column("note").to_pylist() == ["x"]


def test_compact_shows_its_plan_and_asks_before_it_rewrites(lake: Path) -> None:
    table = tl.connect(lake).table("shop.orders")
    for number in range(6):
        table.write([{"id": 1000 + number, "dt": "2026-11-15"}])
    before = table.files().num_rows
    asked = CliRunner().invoke(cli, ["-w", str(lake), "compact", "shop.orders"], input="n\n")
    assert "rewrites of" in asked.output
    assert table.files().num_rows == before
    assert answer("-w", str(lake), "compact", "shop.orders")["files"] == 7  # type: ignore[index]
    done = run("-w", str(lake), "compact", "shop.orders", "--yes")
    assert done.exit_code == 0, done.output
    assert table.files().num_rows == before - 6
    assert table.count() == 195
