"""Commands for files and manifests: the plan first, then a yes; a purge needs the name of the table."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelake as tl
from kit.command_line import answer, run


@pytest.fixture
def where(users: tl.Table, tmp_path: Path) -> tuple[str, str]:
    return "-w", str(tmp_path / "small")


@pytest.fixture
def lake(where: tuple[str, str]) -> tl.Lake:
    return tl.connect(where[1])


def test_manifests_are_sorted_after_a_yes(users: tl.Table, where: tuple[str, str]) -> None:
    arguments = (*where, "compact-manifests", "shop.users", "--sort", "--sort-field", "dt")
    plan = answer(*arguments)
    assert (plan["sorts"], plan["manifests"], plan["done"]) == (True, 3, False)
    assert "sorts 3 of 3 manifests" in run(*arguments, typed="n\n").stderr
    assert users.store.snapshots.latest_id() == 3
    assert run(*arguments, "--yes").exit_code == 0
    assert users.store.snapshots.latest_id() == 4
    assert "nothing to do" in run(*arguments).stdout


def test_deletion_vectors_are_materialized(lake: tl.Lake, where: tuple[str, str]) -> None:
    table = lake.create_table("shop.marked", {"id": "INT"}, options={"deletion-vectors.enabled": True})
    table.write([{"id": n} for n in range(4)])
    arguments = (*where, "materialize", "shop.marked")
    assert "no file has a deletion vector" in run(*arguments).stdout
    table.delete("id = 2")
    assert answer(*arguments, "--plan")["files"] == 1
    assert "rewrites 1 file" in run(*arguments, typed="y\n").stderr
    assert "no file has a deletion vector" in run(*arguments).stdout
    assert table.count() == 3


def test_missing_files_are_listed_and_dropped(users: tl.Table, where: tuple[str, str]) -> None:
    arguments = (*where, "remove-unexisting-files", "shop.users")
    assert "is missing" in run(*arguments).stdout
    split = users.scan().splits()[0]
    lost = f"{split.bucket_path}/{split.files[0].file_name}"
    (Path(users.location) / lost).unlink()
    assert answer(*arguments)["paths"] == [lost]
    refused = run(*arguments, typed="n\n")
    assert lost in refused.stderr
    assert "restore it instead" in refused.stderr
    assert "dropped 1 file" in run(*arguments, "--yes").stdout
    assert answer(*arguments)["files"] == 0


def test_a_purge_needs_the_name_of_the_table(users: tl.Table, where: tuple[str, str]) -> None:
    arguments = (*where, "purge", "shop.users")
    assert answer(*arguments)["done"] is False
    assert "all 3 snapshots" in run(*arguments, "--plan").stdout
    assert run(*arguments, "--yes").exit_code == 2  # click: no such option
    for result in (run(*arguments, typed="yes\n"), run(*arguments, "--confirm", "users")):
        assert result.exit_code == 1
        assert isinstance(result.exception, tl.InvalidInputError)
    unanswered = run(*arguments, typed="").exception
    assert isinstance(unanswered, tl.InvalidInputError)
    assert "--confirm shop.users" in (unanswered.hint or "")
    assert users.count() == 10
    assert "shop.users is empty now" in run(*arguments, typed="shop.users\n").stdout
    assert users.count() == 0
    assert "nothing to remove" in run(*arguments).stdout
    users.write([{"id": 1, "name": "x", "dt": "mon"}])
    assert answer(*arguments, "--confirm", "shop.users")["done"] is True


def test_a_table_is_copied_after_a_yes(users: tl.Table, lake: tl.Lake, where: tuple[str, str]) -> None:
    arguments = (*where, "copy", "shop.users", "backup.users")
    assert answer(*arguments)["done"] is False
    assert "backup.users" not in lake
    assert "of shop.users to backup.users" in run(*arguments, typed="n\n").stderr
    assert run(*arguments, "--yes").exit_code == 0
    assert lake.table("backup.users").count() == users.count()


def test_tables_that_match_are_compacted(users: tl.Table, lake: tl.Lake, where: tuple[str, str]) -> None:
    arguments = (*where, "compact-database", "--databases", "shop", "--tables", ".*users", "--full")
    assert answer(*arguments) == {"tables": ["shop.users"], "done": False}
    assert "compacted 1 table" in run(*arguments, "--yes").stdout
    assert "no table matches" in run(*where, "compact-database", "--tables", "users").stdout
    users.write([{"id": 1, "name": "x", "dt": "mon"}])
    split = users.scan().splits()[0]
    for file in split.files:
        (Path(users.location) / split.bucket_path / file.file_name).unlink()
    failed = run(*arguments, "--yes")
    assert failed.exit_code == 2
    assert "shop.users: " in failed.stderr


def test_hints_are_repaired_after_a_yes(users: tl.Table, where: tuple[str, str]) -> None:
    hint = Path(users.location) / "snapshot" / "LATEST"
    hint.write_text("1")
    arguments = (*where, "repair", "shop.users")
    (wrong,) = answer(*arguments)["hints"]
    assert (wrong["path"], wrong["before"], wrong["after"]) == ("snapshot/LATEST", 1, 3)
    assert "shop.users: snapshot/LATEST 1 -> 3" in run(*arguments, typed="n\n").stderr
    assert "wrote 1 hint" in run(*arguments, "--yes").stdout
    assert hint.read_text() == "3"
    assert "every hint is right" in run(*where, "repair").stdout
