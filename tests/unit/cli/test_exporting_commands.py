"""Rows are counted and written to files; what was exported is read back as the same rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake as tl
from kit.command_line import answer, main_code, run, shell

FLAT: dict[str, tuple[str, list[Any]]] = {
    "i": ("INT", [1, -5, None]),
    "t": ("STRING", ['a "quoted", text\n', "", None]),
    "b": ("BOOLEAN", [True, False, None]),
    "d": ("DOUBLE", [1.5, -0.0, None]),
    "m": ("DECIMAL(10, 2)", [Decimal("1.10"), Decimal("-0.01"), None]),
    "day": ("DATE", [dt.date(2026, 11, 15), dt.date(1969, 12, 31), None]),
    "ts": ("TIMESTAMP(6)", [dt.datetime(2026, 11, 15, 1, 2, 3, 4), dt.datetime(1969, 12, 31, 23, 59, 59), None]),
    "z": (
        "TIMESTAMP_LTZ(6)",
        [dt.datetime(2026, 11, 15, 1, 2, 3, 4, dt.UTC), dt.datetime(1969, 1, 1, 0, 0, 0, 5, dt.UTC), None],
    ),
}  # fmt: skip
NESTED: dict[str, tuple[str, list[Any]]] = {
    "r": ("ROW<x INT, y STRING>", [{"x": 1, "y": "q"}, {"x": None, "y": ""}, None]),
    "l": ("ARRAY<STRING>", [["a", None], [], None]),
}
DEEP: dict[str, tuple[str, list[Any]]] = {
    "map": ("MAP<STRING, INT>", [{"a": 1}, {}, None]),
    "raw": ("BYTES", [b"\x00\xff,\n", b"", None]),
    "n": ("TIMESTAMP(9)", [None, None, None]),
}
HELD = {
    "csv": FLAT,
    "tsv": FLAT,
    "jsonl": {**FLAT, **NESTED},
    "arrow": {**FLAT, **NESTED, **DEEP},
    "parquet": {**FLAT, **NESTED, **DEEP},
}


@pytest.fixture
def where(tmp_path: Path) -> tuple[str, str]:
    return "-w", str(tmp_path / "small")


def make(lake: tl.Lake, columns: dict[str, tuple[str, list[Any]]], name: str = "shop.all") -> tl.Table:
    return lake.create_table(name, {name: kind for name, (kind, _) in columns.items()})


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz", "tsv", "jsonl", "jsonl.zst", "arrow"])
def test_an_exported_file_is_read_back_as_the_same_rows(tmp_path: Path, where: tuple[str, str], ending: str) -> None:
    lake = tl.connect(where[1])
    columns = HELD[ending.partition(".")[0]]
    table, twin = make(lake, columns), make(lake, columns, "shop.twin")
    table.write(
        [dict(zip(columns, row, strict=True)) for row in zip(*(each for _, each in columns.values()), strict=True)]
    )
    file = str(tmp_path / f"rows.{ending}")
    done = answer(*where, "export", "shop.all", file)
    assert (done["rows"], done["bytes"]) == (3, Path(file).stat().st_size)
    assert run(*where, "write", "shop.twin", file).exit_code == 0
    assert twin.reload().to_arrow().equals(table.to_arrow())
    assert list(tmp_path.glob(".part-*")) == []


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl", "arrow"])
def test_a_table_without_rows_is_exported_with_its_columns(tmp_path: Path, where: tuple[str, str], ending: str) -> None:
    table = make(tl.connect(where[1]), FLAT)
    file = str(tmp_path / f"rows.{ending}")
    assert answer(*where, "export", "shop.all", file)["rows"] == 0
    assert Path(file).exists()
    assert run(*where, "write", "shop.all", file).exit_code == 0
    assert table.count() == 0


@pytest.mark.parametrize(("ending", "column"), [("csv", "r"), ("csv", "raw"), ("jsonl", "map"), ("jsonl", "raw")])
def test_a_column_that_a_format_cannot_hold_is_refused(
    tmp_path: Path, where: tuple[str, str], capsys: pytest.CaptureFixture[str], ending: str, column: str
) -> None:
    make(tl.connect(where[1]), {"i": FLAT["i"], column: {**NESTED, **DEEP}[column]})
    file = tmp_path / f"rows.{ending}"
    code, _, err = main_code(capsys, *where, "export", "shop.all", str(file))
    assert (code, f"`{column}`" in err, "--columns" in err) == (1, True, True)
    assert not file.exists()
    assert run(*where, "export", "shop.all", str(file), "--columns", "i").exit_code == 0


def test_rows_columns_and_a_point_in_time_are_chosen(users: tl.Table, tmp_path: Path, where: tuple[str, str]) -> None:
    file = tmp_path / "rows.csv"
    chosen = ("--columns", "id,name", "--where", "dt = 'mon'", "--order-by", "id desc", "-n", "2", "--at", "1")
    assert answer(*where, "export", "shop.users", str(file), *chosen)["rows"] == 2
    assert file.read_text() == '"id","name"\n4,"ann"\n3,"ann"\n'


def test_a_file_is_replaced_only_if_that_is_said(
    users: tl.Table, tmp_path: Path, where: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("mine")
    code, _, err = main_code(capsys, *where, "export", "shop.users", str(file))
    assert (code, "--overwrite" in err, file.read_text()) == (1, True, "mine")
    assert run(*where, "export", "shop.users", str(file), "--overwrite", "--columns", "id").exit_code == 0
    assert file.read_text().startswith('"id"\n')


def test_an_export_that_fails_leaves_no_file_and_the_former_one(
    users: tl.Table, tmp_path: Path, where: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.parquet"
    file.write_text("mine")
    split = users.scan().splits()[-1]
    (Path(users.location) / split.bucket_path / split.files[0].file_name).write_bytes(b"damaged")
    assert main_code(capsys, *where, "export", "shop.users", str(file), "--overwrite")[0] == 2
    assert file.read_text() == "mine"
    assert list(tmp_path.glob(".part-*")) == []
    assert main_code(capsys, *where, "export", "shop.users", str(tmp_path / "nowhere" / "rows.csv"))[0] == 1


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "arrow"])
def test_rows_go_through_a_pipe(users: tl.Table, tmp_path: Path, where: tuple[str, str], kind: str) -> None:
    out = run(*where, "export", "shop.users", "-", "--format", kind, "--where", "id = 1")
    assert out.exit_code == 0, out.output
    assert "wrote 2 rows of shop.users" in out.stderr
    if kind == "arrow":
        assert pa.ipc.open_stream(out.stdout_bytes).read_all().num_rows == 2
        return
    twin = tl.connect(where[1]).create_table("shop.twin", users.schema.to_arrow())
    again = shell(*where, "write", "shop.twin", "-", "--format", kind, cwd=tmp_path, text=out.stdout)
    assert again.returncode == 0, again.stderr
    assert sorted(twin.reload().to_arrow().to_pylist(), key=str) == sorted(
        users.to_arrow(where="id = 1").to_pylist(), key=str
    )


@pytest.mark.parametrize(
    "arguments", [("-",), ("-", "--format", "parquet"), ("-", "--format", "csv", "--json"), ("x",)]
)
def test_a_target_that_cannot_be_written_is_a_mistake(
    users: tl.Table, where: tuple[str, str], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert main_code(capsys, *where, "export", "shop.users", *arguments)[0] == 1


def test_rows_are_counted(users: tl.Table, where: tuple[str, str]) -> None:
    users.delete("id = 1")
    assert run(*where, "count", "shop.users").stdout == "8\n"
    assert run(*where, "count", "shop.users", "--at", "3", "--where", "dt = 'mon'").stdout == "5\n"
    assert answer(*where, "count", "shop.users", "--where", "id > 2") == {
        "table": "shop.users",
        "where": "id > 2",
        "rows": 4,
    }
