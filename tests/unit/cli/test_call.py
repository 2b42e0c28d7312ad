"""The command `call`: Paimon's procedures by name; what deletes or rewrites is asked about first."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelake as tl
from kit.command_line import answer, main_code, run
from tidelake.procedures.registry import PROCEDURES


@pytest.fixture
def where(users: tl.Table, tmp_path: Path) -> tuple[str, str]:
    return "-w", str(tmp_path / "small")


def test_without_a_name_procedures_are_listed(where: tuple[str, str]) -> None:
    assert [each["name"] for each in answer(*where, "call")] == list(PROCEDURES)
    shown = run(*where, "call")
    assert shown.exit_code == 0
    assert "expire_snapshots" in shown.stdout


def test_a_procedure_takes_arguments_by_name_and_by_position(users: tl.Table, where: tuple[str, str]) -> None:
    done = answer(*where, "call", "create_tag", "table=shop.users", "tag=first", "snapshot=1")
    assert done == {"procedure": "create_tag", "result": [{"result": True}], "done": True}
    assert run(*where, "call", "sys.CREATE_TAG", "shop.users", "second", "snapshot=2").exit_code == 0
    assert users.tags() == {"first": 1, "second": 2}


def test_the_result_is_shown_as_a_table(where: tuple[str, str]) -> None:
    shown = run(*where, "call", "rollback", "shop.users", "version=2", "--yes")
    assert shown.stdout.split() == ["previous_snapshot_id", "current_snapshot_id", "3", "2"]


def test_what_deletes_shows_its_plan_and_asks(users: tl.Table, where: tuple[str, str]) -> None:
    arguments = (*where, "call", "expire_snapshots", "table=shop.users", "retain_min=1", "older_than=0 s")
    refused = run(*arguments, typed="n\n")
    assert "expires shop.users: 2 snapshots (1 to 2)" in refused.stderr
    assert "cannot be undone" in refused.stderr
    assert "expires shop.users" in run(*arguments, "--plan").stdout
    assert answer(*arguments)["done"] is False
    assert users.store.snapshots.ids() == [1, 2, 3]
    assert answer(*arguments, "--yes")["result"] == [{"deleted_snapshots_count": 2}]
    assert users.store.snapshots.ids() == [3]
    assert "nothing to expire" in run(*arguments).stdout


def test_what_rewrites_shows_its_plan_and_asks(users: tl.Table, where: tuple[str, str]) -> None:
    arguments = (*where, "call", "compact", "table=shop.users", "partitions=dt=mon")
    assert "compacts shop.users: 1 rewrites" in run(*arguments, typed="n\n").stderr
    assert users.store.snapshots.ids() == [1, 2, 3]
    assert run(*arguments, "--yes").exit_code == 0
    assert users.store.snapshots.ids() == [1, 2, 3, 4]


def test_the_plan_of_a_harmless_procedure_runs_nothing(users: tl.Table, where: tuple[str, str]) -> None:
    shown = run(*where, "call", "create_tag", "shop.users", "x", "--plan")
    assert "deletes and rewrites nothing" in shown.stdout
    dry = answer(*where, "call", "remove_orphan_files", "shop.users", "dry_run=true")
    assert dry["result"] == [{"deletedFileCount": 0, "deletedFileTotalLenInBytes": 0}]
    assert users.tags() == {}


def test_a_table_path_stands_for_the_table(users: tl.Table, tmp_path: Path) -> None:
    path = str(tmp_path / "small" / "shop.db" / "users")
    assert run("--table-path", path, "call", "create_tag", "tag=first").exit_code == 0
    assert run("--table-path", path, "call", "create_tag", "second").exit_code == 0
    assert users.tags() == {"first": 3, "second": 3}


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["compcat"], "procedure-not-found", "did you mean compact?"),
        (["create_tag", "shop.users", "snapsht=1"], "argument-unknown", "did you mean snapshot?"),
        (["create_tag", "tag=x"], "argument-missing", "create_tag takes table, tag, [snapshot], [time_retained]"),
        (["expire_snapshots", "shop.users", "retain_mni=1"], "argument-unknown", "did you mean retain_min?"),
        (["expire_snapshots", "table=shop.users", "retain_min=few"], "argument-type", "argument is not a whole number"),
        (["create_tag", "tag=x", "tag=y"], "argument-twice", "argument=`tag`"),
        (["create_tag", "tag=x", "shop.users"], "invalid-input", "a value without a name comes after"),
        (["create_tag", "shop.usrs", "x"], "table-not-found", "did you mean shop.users?"),
        (
            ["compact", "shop.users", "where=dt='x'", "partitions=dt=mon"],
            "invalid-input",
            "give either where or partitions",
        ),
    ],
)
def test_a_mistake_is_explained_in_the_words_of_procedures(
    where: tuple[str, str], capsys: pytest.CaptureFixture[str], words: list[str], code: str, text: str
) -> None:
    exit_code, out, err = main_code(capsys, *where, "call", *words, "--json")
    assert exit_code == 1
    assert text in err
    assert f'"code": "{code}"' in out
    assert "--retain" not in err
