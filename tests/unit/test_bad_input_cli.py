"""`tidelake write` with files that do not fit: exit code 1, what is wrong and with which column; nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import tidelake as tl
from tidelake.cli import exit_code
from tidelake.cli.commands import cli

FILES: dict[str, tuple[bytes, str]] = {
    "type.csv": (b"id,s,n\nx,a,1.5\n", "invalid value 'x'"),
    "unknown.csv": (b"id,zz\n1,2\n", "zz"),
    "twice.csv": (b"id,id\n1,2\n", "id"),
    "missing.csv": (b"s\na\n", "id"),
    "empty.csv": (b"", "empty.csv"),
    "overflow.csv": (b"id,s,n\n99999999999,a,1\n", "99999999999"),
    "utf8.csv": (b"id,s,n\n1,\xff\xfe,1\n", "UTF8"),
    "decimal.csv": (b"id,s,n\n1,a,12345.678\n", "12345.678"),
    "null.csv": (b"id,s,n\n,a,1\n", "id"),
    "type.jsonl": (b'{"id": 1}\n{"id": "x"}\n', "id"),
    "unknown.jsonl": (b'{"id": 1, "zz": 2}\n', "zz"),
    "torn.jsonl": (b'{"id": 1', "torn.jsonl"),
    "bad.parquet": (b"garbage", "bad.parquet"),
    "bad.arrow": (b"garbage" * 20, "bad.arrow"),
    "rows.txt": (b"x", "rows.txt"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_does_not_fit_is_refused(name: str, tmp_path: Path) -> None:
    data, told = FILES[name]
    table = tl.connect(tmp_path / "lake").create_table(
        "d.t", {"id": "INT NOT NULL", "s": "STRING", "n": "DECIMAL(5,2)"}
    )
    (tmp_path / name).write_bytes(data)
    before = sorted(tmp_path.rglob("*"))
    result = CliRunner().invoke(cli, ["-w", str(tmp_path / "lake"), "write", "d.t", str(tmp_path / name)])
    assert isinstance(result.exception, tl.InvalidInputError), result.exception
    assert exit_code(result.exception) == 1
    assert told in str(result.exception)
    assert sorted(tmp_path.rglob("*")) == before
    assert table.latest_snapshot() is None
