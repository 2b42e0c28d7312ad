"""The command line: every command answers as a table and as JSON, and exit codes tell whose fault it is."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import date, time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

import tidelake as tl
from kit.command_line import answer, main_code, run, shell
from tidelake.cli import exit_code, source
from tidelake.cli.commands import cli


def test_ls_names_databases_and_tables(lake: Path) -> None:
    assert answer("-w", str(lake), "ls") == ["shop"]
    assert answer("-w", str(lake), "ls", "shop") == ["customers", "orders", "stock"]
    assert run("-w", str(lake), "ls", "shop").output == "customers\norders\nstock\n"


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
    assert answer("-w", str(lake), "check", "shop.orders", "--deep")["ok"] is True
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
    assert (facts["rows"], facts["files"], facts["partition_by"]) == (189, 3, ["dt"])
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


# ------------------------------------------------------------------------------------------------ where and how


def test_the_lake_may_be_named_before_or_after_the_command(lake: Path) -> None:
    assert answer("-w", str(lake), "ls") == answer("ls", "-w", str(lake)) == ["shop"]
    assert json.loads(run("--json", "-w", str(lake), "ls").stdout) == ["shop"]


def test_the_lake_comes_from_the_environment_or_a_file_the_nearest_wins(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tl.connect(tmp_path / "other").create_database("elsewhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    (tmp_path / "settings" / "tidelake").mkdir(parents=True)
    (tmp_path / "settings" / "tidelake" / "config.toml").write_text(f'warehouse = "{tmp_path}/other"')
    assert answer("ls") == ["elsewhere"]
    (tmp_path / "tidelake.toml").write_text('warehouse = "lake"')
    assert answer("ls") == ["shop"]
    monkeypatch.setenv("TIDELAKE_WAREHOUSE", str(tmp_path / "other"))
    assert answer("ls") == ["elsewhere"]
    assert answer("ls", "-w", str(lake)) == ["shop"]
    monkeypatch.delenv("TIDELAKE_WAREHOUSE")
    monkeypatch.setenv("TIDELAKE_CONFIG", str(tmp_path / "settings" / "tidelake" / "config.toml"))
    assert answer("ls") == ["elsewhere"]


@pytest.mark.parametrize(
    "text", ["warehouse = ", "warehouse = 3", 'warehose = "x"', "storage = 3", '[storage]\nsecret_key = "hush"\n[x]']
)
def test_a_bad_file_of_settings_is_named_and_its_values_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tidelake.toml").write_text(text)
    result = run("ls")
    assert isinstance(result.exception, tl.InvalidInputError)
    assert "tidelake.toml" in str(result.exception)
    assert "hush" not in str(result.exception)


def test_a_named_file_of_settings_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELAKE_CONFIG", str(tmp_path / "nothing.toml"))
    assert isinstance(run("ls").exception, tl.InvalidInputError)


def test_storage_options_of_the_file_do_not_reach_a_folder_that_was_named_otherwise(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tidelake.toml").write_text('warehouse = "s3://bucket/lake"\n[storage]\nregion = "x"')
    assert answer("-w", str(lake), "ls") == ["shop"]


def test_one_table_is_opened_by_its_folder(lake: Path) -> None:
    path = str(lake / "shop.db" / "orders")
    facts = answer("--table-path", path, "show")
    assert isinstance(facts, dict)
    assert facts["rows"] == 189
    assert isinstance(run("--table-path", path, "show", "shop.orders").exception, tl.InvalidInputError)
    assert isinstance(run("--table-path", path, "ls").exception, tl.InvalidInputError)


# ------------------------------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("show", "shop.order"), "did you mean shop.orders?"),
        (("show", "shop.nothing"), "tables are shop.customers, shop.orders"),
        (("show", "nothing.x"), "databases are shop"),
        (("show", "orders"), "table name must be database.table"),
        (("show",), "no table given"),
        (("ls", "nothing"), "databases are shop"),
        (("head", "shop.orders", "--at", "99"), "snapshot does not exist"),
        (("head", "shop.orders", "--at", "1", "--tag", "x"), "only one point in time"),
        (("head", "shop.orders", "--columns", "nothing"), "nothing"),
        (("head", "shop.orders", "-n", "-1"), "-1"),
        (("head", "shop.orders", "-n", "x"), "not a valid integer"),
        (("write", "shop.orders"), "write takes TABLE FILE"),
        (("write", "shop.orders", "nothing.csv"), "file does not exist"),
        (("write", "shop.orders", "rows.xyz"), "not known from its extension"),
        (("write", "shop.orders", "-"), "--format"),
        (("write", "shop.orders", "x.csv", "--mode", "overwrite", "--yes", "--partition", "dt"), "KEY=VALUE"),
        (("nothing",), "No such command"),
        (("ls", "--nothing"), "No such option"),
    ],
)
def test_a_mistake_exits_with_1_and_says_what_to_do(
    lake: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    code, out, err = main_code(capsys, "-w", str(lake), *arguments)
    assert (code, out) == (1, "")
    assert told in err
    assert "Traceback" not in err


def test_damage_exits_with_2_and_a_bug_with_3(
    lake: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelake.table import Table

    for path in (lake / "shop.db" / "orders").rglob("data-*.parquet"):
        path.write_bytes(path.read_bytes()[:-9])
    assert main_code(capsys, "-w", str(lake), "head", "shop.orders")[0] == 2
    assert main_code(capsys, "-w", str(lake), "check", "shop.orders")[0] == 2
    monkeypatch.setattr(Table, "to_arrow", lambda *_, **__: 1 / 0)
    code, out, err = main_code(capsys, "-w", str(lake), "head", "shop.orders")
    assert (code, out) == (3, "")
    assert "ZeroDivisionError" in err
    assert "bug in tidelake" in err


def test_ctrl_c_stops_with_the_code_of_a_stopped_command(
    lake: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelake.table import Table

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Table, "to_arrow", stop)
    assert main_code(capsys, "-w", str(lake), "head", "shop.orders")[0] == 130


def test_a_reader_that_has_seen_enough_is_no_error(lake: Path) -> None:
    code = "from tidelake.cli import main; main()"
    command = f"{sys.executable} -c '{code}' -w {lake} snapshots shop.orders | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("snapshot_id")
    assert done.stderr == ""


# ------------------------------------------------------------------------------------------------ looking


def test_an_empty_lake_says_so_without_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = main_code(capsys, "-w", str(tmp_path), "ls")
    assert (code, out) == (0, "")
    assert "no database in" in err


@pytest.mark.parametrize(
    "command", ["show", "schema", "head", "snapshots", "files", "manifests", "partitions", "compact", "check"]
)
def test_every_command_takes_an_empty_table(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    tl.connect(tmp_path).create_table("a.b", {"id": "INT", "v": "STRING"})
    for more in ((), ("--json",)):
        code, out, _ = main_code(capsys, "-w", str(tmp_path), command, "a.b", *more)
        assert code == 0
        assert json.loads(out) is not None if more else out


def test_text_in_a_pipe_is_aligned_and_has_no_frames(lake: Path) -> None:
    lines = run("-w", str(lake), "partitions", "shop.orders").stdout.splitlines()
    assert lines[0].split()[:2] == ["partition", "record_count"]
    assert sorted(line.split()[:2] for line in lines[1:]) == [[f"dt=2026-11-{day}", "63"] for day in (13, 14, 15)]


def test_wide_system_tables_are_brief_unless_all_is_asked_for(lake: Path) -> None:
    brief = run("-w", str(lake), "snapshots", "shop.orders").stdout
    every = run("-w", str(lake), "snapshots", "shop.orders", "--all").stdout
    assert "base_manifest_list" not in brief
    assert "base_manifest_list" in every


def test_values_and_names_cannot_steer_the_terminal_or_break_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tidelake.cli.output import show_table

    hostile = "[/red]\x1b[2J[bold]\nnew line"
    table = tl.connect(tmp_path).create_table("a.b", {hostile: "STRING", "n": "INT"}, comment=hostile)
    table.write([{hostile: hostile, "n": 1}])
    for command in ("show", "schema", "head", "files", "schemas"):
        code, out, _ = main_code(capsys, "-w", str(tmp_path), command, "a.b")
        assert code == 0
        assert "\x1b" not in out
    show_table(table.to_arrow(), title=hostile, as_json=False, whole=True, boxed=True)
    drawn = capsys.readouterr().out
    assert "\x1b" not in drawn
    assert "[/red]" in drawn


def test_json_is_strict_for_values_that_json_does_not_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"f": "DOUBLE", "t": "TIMESTAMP(9)", "b": "BYTES", "m": "MAP<STRING, INT>", "r": "ROW<t TIMESTAMP(9)>"}
    table = tl.connect(tmp_path).create_table("a.b", columns)
    nanos = pa.array([1_794_795_263_123_456_789], pa.timestamp("ns"))
    rows = pa.table(
        {
            "f": [float("nan")],
            "t": nanos,
            "b": [b"\x01\xff"],
            "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
            "r": pa.StructArray.from_arrays([nanos], ["t"]),
        }
    )
    table.write(rows)
    [row] = json.loads(main_code(capsys, "-w", str(tmp_path), "head", "a.b", "--json")[1], parse_constant=pytest.fail)
    assert row["f"] == "nan"
    assert row["t"].endswith("23.123456789")
    assert row["r"]["t"].endswith("23.123456789")
    assert row["b"] == "01ff"
    assert row["m"] == [["k", 1]]
    assert "123456789" in main_code(capsys, "-w", str(tmp_path), "head", "a.b")[1]


def test_secrets_among_the_options_are_not_printed(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="not known"):
        tl.connect(tmp_path).create_table("a.b", {"id": "INT"}, options={"fs.s3.secret-key": "hush"})
    for command in ("show", "schema", "options", "schemas"):
        for more in ((), ("--json",)):
            shown = run("-w", str(tmp_path), command, "a.b", *more).output
            assert "hush" not in shown
            assert "***" in shown


# ------------------------------------------------------------------------------------------------ writing

ROWS = pa.table({"id": pa.array([900, 901], pa.int64()), "status": ["new", None], "dt": ["2026-11-15"] * 2})


def put(path: Path, kind: str) -> bytes:
    """The same two rows in a format."""
    if kind == "parquet":
        pa.parquet.write_table(ROWS, path)
    elif kind == "arrow-file":
        with pa.ipc.new_file(path, ROWS.schema) as sink:
            sink.write_table(ROWS)
    elif kind == "arrow":
        with pa.ipc.new_stream(path, ROWS.schema) as sink:
            sink.write_table(ROWS)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS.to_pylist()))
    else:
        cut = "\t" if kind == "tsv" else ","
        path.write_text(cut.join(("id", "status", "dt")) + f"\n900{cut}new{cut}2026-11-15\n901{cut}{cut}2026-11-15\n")
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrow-file", "jsonl", "csv", "tsv"])
def test_write_reads_every_format_from_a_file_and_from_standard_input(lake: Path, tmp_path: Path, kind: str) -> None:
    ending = "arrow" if kind == "arrow-file" else kind
    content = put(tmp_path / f"rows.{ending}", kind)
    assert answer("-w", str(lake), "write", "shop.orders", str(tmp_path / f"rows.{ending}"))["rows"] == 2
    table = tl.connect(lake).table("shop.orders")
    wanted = [(900, "new"), (901, None)]
    found = table.to_arrow(columns=["id", "status"], where="id >= 900").to_pylist()
    assert sorted((row["id"], row["status"]) for row in found) == wanted
    if kind == "arrow-file":
        return  # the form with an index at its end cannot come through a pipe
    piped = CliRunner().invoke(cli, ["-w", str(lake), "write", "shop.orders", "-", "--format", ending], input=content)
    assert piped.exit_code == 0, piped.exception
    assert table.count(where="id >= 900") == 4


def test_write_unpacks_compressed_texts(lake: Path, tmp_path: Path) -> None:
    import gzip

    for kind in ("csv", "jsonl"):
        content = put(tmp_path / f"rows.{kind}", kind)
        (tmp_path / f"rows.{kind}.gz").write_bytes(gzip.compress(content))
        done = answer("-w", str(lake), "write", "shop.orders", str(tmp_path / f"rows.{kind}.gz"))
        assert done["rows"] == 2


def test_nothing_between_commas_is_null_and_quotes_are_the_empty_text(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('id,status,dt\n1000,,x\n1001,"",x\n1002,NA,x\n1003,"a\nb",x\n')
    answer("-w", str(lake), "write", "shop.orders", str(tmp_path / "rows.csv"))
    rows = tl.connect(lake).table("shop.orders").to_arrow(columns=["id", "status"], where="id >= 1000").to_pylist()
    assert {row["id"]: row["status"] for row in rows} == {1000: None, 1001: "", 1002: "NA", 1003: "a\nb"}


def test_json_lines_hold_dates_times_and_rows_and_blank_lines(tmp_path: Path) -> None:
    columns = {"d": "DATE", "t": "TIME(3)", "r": "ROW<d DATE, n INT>", "a": "ARRAY<DATE>"}
    table = tl.connect(tmp_path / "lake").create_table("a.b", columns)
    (tmp_path / "rows.jsonl").write_text(
        '{"d": "2026-11-15", "t": "10:20:30", "r": {"d": "1969-12-31", "n": 1}, "a": ["2026-01-01"]}\n\n{"d": null}\n'
    )
    answer("-w", str(tmp_path / "lake"), "write", "a.b", str(tmp_path / "rows.jsonl"))
    first, second = sorted(table.to_arrow().to_pylist(), key=lambda row: row["d"] is None)
    assert first["d"] == date(2026, 11, 15)
    assert first["t"] == time(10, 20, 30)
    assert first["r"] == {"d": date(1969, 12, 31), "n": 1}
    assert first["a"] == [date(2026, 1, 1)]
    assert second["d"] is None


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("rows.csv", "id,dt\n1,x\ny,x\n", "Row #3"),
        ("rows.csv", "id,nothing\n1,x\n", "column=`nothing`"),
        ("rows.csv", "id,dt\n1\n", "Expected 2 columns"),
        ("rows.csv", "dt\nx\n", "column=`id`"),
        ("rows.csv", "", "Empty CSV"),
        ("rows.jsonl", '{"id": 1}\n{"id": "x"}\n', "row 1"),
        ("rows.jsonl", '{"id": 1', "line 1"),
        ("rows.jsonl", '{"id": 1, "nothing": 2}', "column=`nothing`"),
        ("rows.parquet", "PAR1 not at all", "rows.parquet"),
        ("rows.arrow", "ARROW1 not at all", "rows.arrow"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_nothing_is_written(
    lake: Path, tmp_path: Path, name: str, text: str, told: str
) -> None:
    (tmp_path / name).write_text(text)
    before = tl.connect(lake).table("shop.orders").latest_snapshot()
    result = run("-w", str(lake), "write", "shop.orders", str(tmp_path / name))
    assert isinstance(result.exception, tl.InvalidInputError)
    assert told in str(result.exception)
    table = tl.connect(lake).table("shop.orders")
    assert table.latest_snapshot() == before
    assert table.check().orphans == ()


@pytest.mark.parametrize(
    ("name", "dtype"), [("x.csv", "ARRAY<INT>"), ("x.jsonl", "MAP<STRING, INT>"), ("x.jsonl", "ROW<t TIME>")]
)
def test_a_format_that_cannot_hold_a_column_is_refused_by_name(tmp_path: Path, name: str, dtype: str) -> None:
    tl.connect(tmp_path / "lake").create_table("a.b", {"c": dtype})
    (tmp_path / name).write_text("c\n1\n")
    result = run("-w", str(tmp_path / "lake"), "write", "a.b", str(tmp_path / name))
    assert isinstance(result.exception, tl.UnsupportedError)
    assert "column=`c`" in str(result.exception)


def test_json_lines_are_read_in_blocks_of_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BLOCK_BYTES", 7)
    text = b'{"a": 1}\n{"a": 22222222222}\n\n{"a": 3}'
    found = list(source._line_blocks(io.BytesIO(text)))
    assert b"".join(block for block, _ in found).replace(b"\n", b"") == text.replace(b"\n", b"")
    assert all(block.count(b"{") == block.count(b"}") for block, _ in found)
    assert sum(lines for _, lines in found) == 4


def test_create_makes_the_table_from_the_file_once(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    put(tmp_path / "rows.csv", "csv")
    for expected in (1, 2):
        done = answer("-w", lake, "write", "a.b", str(tmp_path / "rows.csv"), "--create", "--partition-by", "dt")
        assert done["snapshot_ids"] == [expected]
    table = tl.connect(lake).table("a.b")
    assert (table.partition_by, table.count()) == (("dt",), 4)
    path = str(tmp_path / "lake" / "a.db" / "by-path")
    assert answer("--table-path", path, "write", str(tmp_path / "rows.csv"), "--create")["rows"] == 2
    assert tl.open_table(path).latest_snapshot().id == 1  # type: ignore[union-attr]


def test_a_numbered_write_sent_twice_does_nothing(lake: Path, tmp_path: Path) -> None:
    put(tmp_path / "rows.csv", "csv")
    arguments = ("-w", str(lake), "write", "shop.orders", str(tmp_path / "rows.csv"), "--commit-user", "me")
    assert answer(*arguments, "--identifier", "3")["repeated"] is False
    assert answer(*arguments, "--identifier", "3")["repeated"] is True
    assert "already committed" in run(*arguments, "--identifier", "3").stdout


def test_an_overwrite_tells_what_it_replaces_and_asks(lake: Path, tmp_path: Path) -> None:
    put(tmp_path / "rows.csv", "csv")
    arguments = ["-w", str(lake), "write", "shop.orders", str(tmp_path / "rows.csv"), "--mode", "overwrite"]
    table = tl.connect(lake).table("shop.orders")
    refused = CliRunner().invoke(cli, arguments, input="n\n")
    assert "replaces every row of shop.orders (189 rows now" in refused.stderr
    assert refused.exit_code == 0
    assert isinstance(CliRunner().invoke(cli, arguments, input="").exception, tl.InvalidInputError)
    assert answer(*arguments)["done"] is False
    assert table.count() == 189
    only = [*arguments, "--partition", "dt=2026-11-15"]
    assert CliRunner().invoke(cli, only, input="y\n").exit_code == 0
    assert table.count() == 128
    assert run(*arguments, "--yes").exit_code == 0
    assert table.count() == 2


def test_an_overwrite_from_standard_input_needs_yes(lake: Path) -> None:
    arguments = ["-w", str(lake), "write", "shop.orders", "-", "--format", "csv", "--mode", "overwrite"]
    refused = CliRunner().invoke(cli, arguments, input="id,dt\n1,x\n")
    assert isinstance(refused.exception, tl.InvalidInputError)
    assert CliRunner().invoke(cli, [*arguments, "--yes"], input="id,dt\n1,x\n").exit_code == 0
    assert tl.connect(lake).table("shop.orders").count() == 1


def test_no_progress_bar_is_drawn_without_a_terminal(lake: Path, tmp_path: Path) -> None:
    put(tmp_path / "rows.csv", "csv")
    done = shell("-w", str(lake), "write", "shop.orders", str(tmp_path / "rows.csv"), cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize(("width", "boxed"), [(200, True), (12, False), (4, True)])
def test_a_box_that_would_fold_its_headings_gives_way_to_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, boxed: bool
) -> None:
    from rich.console import Console

    from tidelake.cli import output

    monkeypatch.setattr(output, "console", lambda: Console(width=width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output.show_table(pa.table({"abcde": [1], "fghij": [2]}), title="t", as_json=False)
    drawn = capsys.readouterr().out
    assert ("┃" in drawn) is boxed
    assert ("abcde  fghij" in drawn) is not boxed


@pytest.mark.parametrize(("given", "said"), [("nope = 1", "column does not exist"), ("id = 'many'", "id")])
def test_the_plan_of_an_update_refuses_what_the_update_would(lake: Path, given: str, said: str) -> None:
    for how in ("--plan", "--yes"):
        done = run("-w", str(lake), "update", "shop.orders", "--set", given, "--where", "id = 1", how)
        assert isinstance(done.exception, tl.InvalidInputError)
        assert said in str(done.exception)


def test_explain_counts_the_files_that_partitions_pruned(tmp_path: Path) -> None:
    table = tl.connect(tmp_path).create_table("db.t", {"id": "INT", "p": "INT"}, partition_by=["p"])
    table.write([{"id": number, "p": number} for number in range(10)])
    table.delete("p = 9")
    place = ("--table-path", table.location)
    assert "files      1 of 9 kept" in run(*place, "explain", "--where", "p = 3").output
    assert answer(*place, "explain", "--where", "p = 3")["files"] == 9
    assert "files      9 of 9 kept" in run(*place, "explain").output
