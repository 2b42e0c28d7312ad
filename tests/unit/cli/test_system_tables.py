"""System tables on the command line: by name, with the columns that matter, at 80 columns, without credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelake as tl
from kit.command_line import answer, run


@pytest.fixture
def where(tmp_path: Path) -> tuple[str, str]:
    lake = tl.connect(tmp_path, storage={"durability": "none"})
    options = {"bucket": "1", "write-only": "true", "fs.s3a.secret.key": "hush"}
    with pytest.warns(UserWarning, match="secret"):
        table = lake.create_table(
            "db.t", {"id": "INT", "dt": "STRING"}, primary_key=["dt", "id"], partition_by=["dt"], options=options
        )
    table.write([{"id": 1, "dt": "a"}])
    table.write([{"id": 2, "dt": "b"}])
    return "-w", str(tmp_path)


def test_the_first_rows_of_a_system_table_are_shown_with_the_columns_that_matter(where: tuple[str, str]) -> None:
    shown = run(*where, "head", "db.t$files", "-n", "1")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines()[0].split() == [
        *("partition", "bucket", "file_path", "level", "record_count", "file_size_in_bytes", "creation_time")
    ]
    assert len(shown.stdout.splitlines()) == 2
    rows = answer(*where, "head", "db.t$files", "--columns", "partition,level", "--where", "partition = '{b}'")
    assert rows == [{"partition": "{b}", "level": 0}]
    assert "max_value_stats" in run(*where, "head", "db.t$files", "--all").stdout
    assert len(answer(*where, "head", "db.t$files", "--at", "1")) == 1


def test_a_system_table_is_shown_at_a_glance(where: tuple[str, str]) -> None:
    facts = answer(*where, "show", "db.t$partitions")
    assert facts["table"] == "db.t$partitions"
    assert facts["columns"]["record_count"] == "BIGINT NOT NULL"
    assert facts["rows"] == 2
    text = run(*where, "show", "sys.tables").stdout
    assert "primary key   database_name, table_name" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_system_tables_of_the_lake_are_listed_and_read(where: tuple[str, str]) -> None:
    assert answer(*where, "ls", "sys") == ["tables", "partitions", "all_table_options"]
    assert answer(*where, "ls") == ["db"]
    assert [row["table_name"] for row in answer(*where, "head", "sys.tables")] == ["t"]
    missing = run(*where, "ls", "nope")
    assert missing.exit_code != 0


@pytest.mark.parametrize("name", ["db.t$options", "db.t$schemas", "sys.all_table_options"])
def test_credentials_are_masked(where: tuple[str, str], name: str) -> None:
    shown = run(*where, "head", name).stdout + run(*where, "head", name, "--json").stdout
    assert "***" in shown
    assert "hush" not in shown
