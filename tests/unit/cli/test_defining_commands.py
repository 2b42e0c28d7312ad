"""Databases and tables are created, altered and dropped from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelake as tl
from kit.command_line import answer, main_code, run


@pytest.fixture
def where(tmp_path: Path) -> tuple[str, str]:
    return "-w", str(tmp_path / "small")


def columns(table: tl.Table) -> dict[str, str]:
    return {field.name: str(field.type) for field in table.schema.fields}


def test_a_database_and_a_table_are_created(where: tuple[str, str]) -> None:
    assert answer(*where, "create", "shop") == {"database": "shop"}
    made = run(
        *where, "create", "shop.users", "id BIGINT NOT NULL", "`full name` STRING", "at ROW<x INT, y ARRAY<INT>>",
        *("--primary-key", "id", "--option", "bucket=2", "--comment", "who buys"),
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    assert "table shop.users exists now" in made.stdout
    table = tl.connect(where[1]).table("shop.users")
    assert columns(table) == {"id": "BIGINT NOT NULL", "full name": "STRING", "at": "ROW<`x` INT, `y` ARRAY<INT>>"}
    assert (table.primary_key, table.options["bucket"], table.comment) == (("id",), "2", "who buys")


def test_what_exists_is_created_again_only_if_that_is_allowed(
    where: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (("shop",), ("shop.users", "id INT")):
        assert run(*where, "create", *name).exit_code == 0
        assert main_code(capsys, *where, "create", *name)[0] == 1
        assert run(*where, "create", *name, "--if-not-exists").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("shop.users",), "a table needs columns"),
        (("shop.users", "id"), "column must be NAME TYPE"),
        (("shop.users", "id INT", "id INT"), "two columns share a name"),
        (("shop.users", "id NUMBERS"), "NUMBERS"),
        (("sys",), "sys"),
    ],
)
def test_a_mistake_in_a_definition_creates_nothing(
    where: tuple[str, str], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    code, _, err = main_code(capsys, *where, "create", *arguments)
    assert (code, text in err) == (1, True), err
    assert not Path(where[1], "shop.db", "users").exists()


def test_columns_are_changed_in_one_step(users: tl.Table, where: tuple[str, str]) -> None:
    changed = answer(
        *where, "alter", "shop.users", "--add", "age SMALLINT", "--rename", "name=called", "--column-comment",
        *("age=in years", "--default", "age=1", "--comment", "people", "--move", "age=first"),
    )  # fmt: skip
    assert changed == {
        "table": "shop.users",
        "schema_id": 1,
        "columns": ["age", "id", "called", "dt"],
        "done": True,
    }
    table = users.reload()
    assert (table.comment, table.schema.field("age").description) == ("people", "in years")
    assert run(*where, "alter", "shop.users", "--type", "age=INT", "--not-null", "age").exit_code == 1
    assert users.reload().schema.id == 1
    assert run(*where, "alter", "shop.users", "--type", "age=INT", "--comment", "").exit_code == 0
    assert (columns(users.reload())["age"], users.reload().comment) == ("INT", None)


def test_columns_are_dropped_after_a_yes(users: tl.Table, where: tuple[str, str]) -> None:
    arguments = (*where, "alter", "shop.users", "--drop", "name")
    assert answer(*arguments) == {"table": "shop.users", "schema_id": 0, "dropped": ["name"], "done": False}
    asked = run(*arguments, typed="n\n")
    assert "drops 1 column of shop.users: name" in asked.stderr
    assert users.reload().schema.id == 0
    assert run(*arguments, typed="y\n").exit_code == 0
    assert "name" not in users.reload().schema.names
    assert users.at(snapshot=3).to_arrow(columns=["name"]).num_rows == 10


def test_a_column_that_does_not_exist_is_not_asked_about(
    users: tl.Table, where: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = main_code(capsys, *where, "alter", "shop.users", "--drop", "nope")
    assert (code, "drops" in err, "nope" in err) == (1, False, True)


def test_an_alter_without_a_change_is_a_mistake(users: tl.Table, where: tuple[str, str]) -> None:
    assert run(*where, "alter", "shop.users").exit_code == 1


def test_a_table_is_dropped_after_a_yes(users: tl.Table, where: tuple[str, str]) -> None:
    users.create_tag("kept")
    plan = answer(*where, "drop", "shop.users", "--plan")
    assert (plan["rows"], plan["tags"], plan["branches"], plan["done"]) == (30, 1, 0, False)
    asked = run(*where, "drop", "shop.users", typed="n\n")
    assert "this cannot be undone" in asked.stderr
    assert users.count() == 10
    assert "dropped shop.users" in run(*where, "drop", "shop.users", "--yes").stdout
    assert "shop.users" not in tl.connect(where[1])


def test_only_an_empty_database_is_dropped_unless_its_tables_go_too(
    users: tl.Table, where: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = main_code(capsys, *where, "drop", "shop", "--yes")
    assert (code, "--cascade" in err) == (1, True)
    assert answer(*where, "drop", "shop", "--cascade", "--plan")["tables"] == ["users"]
    assert run(*where, "drop", "shop", "--cascade", "--yes").exit_code == 0
    assert tl.connect(where[1]).databases() == []


@pytest.mark.parametrize("name", ["shop.users$branch_b", "shop.users$files", "shop.nothing", "sys.tables", "sys"])
def test_what_is_not_a_table_is_not_dropped(
    users: tl.Table, where: tuple[str, str], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    users.create_branch("b")
    assert main_code(capsys, *where, "drop", name, "--yes")[0] == 1
    assert users.reload().count() == 10
    assert users.branches() == ["b"]
