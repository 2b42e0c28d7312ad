"""Commands for primary-key tables, and those that change rows: levels, versions of a key, delete, update, compact."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import tidelake as tl
from kit.command_line import answer, main_code, run
from tidelake.cli.commands import cli


def every_command(
    group: click.Group = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize(
    ("path", "command"), list(every_command()), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_every_command_has_an_example_that_it_understands(path: tuple[str, ...], command: click.Command) -> None:
    line = (command.epilog or "").rpartition("tidelake ")[2]
    words = shlex.split(line)
    assert words, path
    place = words.index(path[0])
    assert tuple(words[place : place + len(path)]) == path
    with command.make_context("x", words[place + len(path) :], parent=click.Context(cli)) as context:
        assert "--json" in {option for each in command.params for option in each.opts}
        assert context.params is not None


# ------------------------------------------------------------------------------------------------ looking


def test_lsm_shows_the_levels_now_and_as_they_were(lake: Path) -> None:
    arguments = ("-w", str(lake), "lsm", "shop.customers")
    assert [row["level"] for row in answer(*arguments)] == [5]
    before = answer(*arguments, "--at", "8")
    assert [(row["level"], row["runs"]) for row in before] == [(0, 6), (5, 1)]
    lines = run(*arguments).stdout.splitlines()
    assert "read_amplification" in lines[0]
    assert "full_compaction_bytes" not in lines[0]
    assert "full_compaction_bytes" in run(*arguments, "--all").stdout


def test_lsm_of_an_append_table_says_that_it_has_no_levels(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = main_code(capsys, "-w", str(lake), "lsm", "shop.orders")
    assert (code, out) == (1, "")
    assert "no levels" in err


def test_why_shows_every_version_of_a_key_given_as_text(lake: Path) -> None:
    arguments = ("-w", str(lake), "why", "shop.customers", "--key", "id=42")
    told = answer(*arguments, "--at", "8")
    assert told["key"] == {"id": 42}
    assert [version["visits"] for version in told["versions"]] == [1, 2, 3, 4, 5]
    assert told["row"] == {"id": 42, "name": "customer 42", "visits": 5}
    assert "1 version;" in run(*arguments).stdout


def test_why_of_a_deleted_and_of_an_unknown_key_shows_no_row(lake: Path) -> None:
    deleted = answer("-w", str(lake), "why", "shop.customers", "--key", "id=1", "--at", "8")
    assert [version["kind"] for version in deleted["versions"]] == ["+I", "-D"]
    assert deleted["row"] is None
    assert "no file holds" in run("-w", str(lake), "why", "shop.customers", "--key", "id=77777").stdout


def test_why_takes_keys_of_several_columns(users: tl.Table, tmp_path: Path) -> None:
    arguments = ("-w", str(tmp_path / "small"), "why", "shop.users", "--key", "id=3")
    assert answer(*arguments, "--key", "dt=tue")["row"]["name"] == "cy"
    assert isinstance(run(*arguments).exception, tl.InvalidInputError)


def test_explain_tells_what_is_skipped_and_what_is_merged(users: tl.Table, tmp_path: Path) -> None:
    arguments = ("-w", str(tmp_path / "small"), "explain", "shop.users", "--where", "dt = 'mon'")
    told = answer(*arguments)
    assert (told["files_kept"], told["merges"], told["snapshot_id"]) == (3, 1, 3)
    assert "needs a merge" in run(*arguments).stdout


def test_show_tells_levels_and_versions_of_a_primary_key_table(users: tl.Table, tmp_path: Path) -> None:
    facts = answer("-w", str(tmp_path / "small"), "show", "shop.users")
    assert (facts["row_versions"], facts["levels"]) == (30, {"0": 6})
    assert "rows" not in facts
    assert "6 files on level 0" in run("-w", str(tmp_path / "small"), "show", "shop.users").stdout


def test_buckets_and_files_follow_a_point_in_time(users: tl.Table, tmp_path: Path) -> None:
    for name, now, then in (("buckets", 2, 2), ("files", 6, 2), ("partitions", 2, 2)):
        arguments = ("-w", str(tmp_path / "small"), name, "shop.users")
        assert len(answer(*arguments)) == now
        assert len(answer(*arguments, "--at", "1")) == then


def test_head_orders_rows(users: tl.Table, tmp_path: Path) -> None:
    rows = answer("-w", str(tmp_path / "small"), "head", "shop.users", "--order-by", "id desc, dt", "-n", "2")
    assert [(row["id"], row["dt"]) for row in rows] == [(4, "mon"), (4, "tue")]


# ------------------------------------------------------------------------------------------------ writing


def test_write_makes_a_primary_key_table_and_upserts(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    (tmp_path / "a.csv").write_text("id,name\n1,ann\n2,bob\n")
    (tmp_path / "b.csv").write_text("id,name,rowkind\n1,amy,+I\n2,bob,-D\n")
    made = ("--create", "--primary-key", "id", "--option", "bucket=1")
    answer("-w", lake, "write", "shop.users", str(tmp_path / "a.csv"), *made)
    answer("-w", lake, "write", "shop.users", str(tmp_path / "b.csv"))
    table = tl.connect(lake).table("shop.users")
    assert (table.primary_key, table.options["bucket"]) == (("id",), "1")
    assert table.to_arrow().to_pylist() == [{"id": 1, "name": "amy"}]


def test_write_by_path_makes_a_primary_key_table_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name,op\n1,ann,+I\n1,ann,-D\n2,bob,+I\n")
    table = str(tmp_path / "t")
    (tmp_path / "none.csv").write_text("id,name\n9,x\n")
    answer("--table-path", table, "write", str(tmp_path / "none.csv"), "--create", "--primary-key", "id")
    answer("--table-path", table, "write", str(tmp_path / "a.csv"), "--row-kind", "op")
    assert sorted(row["id"] for row in tl.open_table(table).to_arrow().to_pylist()) == [2, 9]


def test_keys_without_create_are_a_mistake(users: tl.Table, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name,dt\n1,ann,mon\n")
    result = run("-w", str(tmp_path / "small"), "write", "shop.users", str(tmp_path / "a.csv"), "--primary-key", "id")
    assert isinstance(result.exception, tl.InvalidInputError)
    assert "--create" in str(result.exception)


def test_delete_tells_how_many_rows_and_asks(users: tl.Table, tmp_path: Path) -> None:
    arguments = ("-w", str(tmp_path / "small"), "delete", "shop.users", "--where", "id < 2")
    refused = run(*arguments, typed="n\n")
    assert "deletes 4 rows of shop.users" in refused.stderr
    assert "tidelake rollback shop.users --to 3" in refused.stderr
    assert "nothing was changed" in refused.stderr
    assert run(*arguments, "--plan").stdout == "deletes 4 rows of shop.users\n"
    plan = answer(*arguments)
    assert (plan["rows"], plan["done"]) == (4, False)
    assert isinstance(run(*arguments, typed="").exception, tl.InvalidInputError)
    assert users.count() == 10
    assert "deleted 4 rows" in run(*arguments, typed="y\n").stdout
    assert users.count() == 6
    assert "no row matches" in run(*arguments).stdout


def test_update_changes_rows_by_sql(users: tl.Table, tmp_path: Path) -> None:
    arguments = ("-w", str(tmp_path / "small"), "update", "shop.users", "--set", "name = concat(name, '!')")
    assert run(*arguments, "--where", "id = 1", "--plan").stdout == "updates 2 rows of shop.users\n"
    done = answer(*arguments, "--where", "id = 1 and dt = 'mon'", "--yes")
    assert done["rows"] == 1
    assert users.to_arrow(where="id = 1 and dt = 'mon'").column("name").to_pylist() == ["cy!"]
    assert users.count("name = 'cy'") == 9


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("delete", "shop.users"), "--where"),
        (("delete", "shop.users", "--where", "nope = 1", "--plan"), "column does not exist"),
        (("update", "shop.users", "--where", "id = 1"), "--set"),
        (("update", "shop.users", "--set", "name", "--where", "id = 1", "--yes"), "COLUMN=EXPRESSION"),
        (("update", "shop.users", "--set", "name=gone", "--where", "id = 1", "--yes"), "single quotes: 'gone'"),
        (("update", "shop.users", "--set", "id=7", "--where", "id = 1", "--yes"), "primary key cannot be changed"),
        (("update", "shop.users", "--set", "name='a'", "--set", "name='b'", "--where", "id = 1"), "given twice"),
        (("compact", "shop.users", "--partition", "dt=wed"), "partition does not exist"),
        (("compact", "shop.users", "--partition", "id=1"), "not a partition column"),
        (("compact", "shop.users", "--partition", "dt=mon", "--where", "dt = 'mon'"), "chosen twice"),
        (("compact", "shop.users", "--where", "id = 1"), "partition column"),
        (("why", "shop.users", "--key", "id"), "COLUMN=VALUE"),
        (("why", "shop.users", "--key", "id=x", "--key", "dt=mon"), "does not fit"),
        (("why", "shop.users"), "id, dt"),
    ],
)
def test_mistakes_exit_with_1_and_name_the_fix(
    users: tl.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    code, out, err = main_code(capsys, "-w", str(tmp_path / "small"), *arguments)
    assert (code, out) == (1, "")
    assert told in err
    assert "Traceback" not in err
    assert users.store.snapshots.latest_id() == 3


# ------------------------------------------------------------------------------------------------ compacting


def test_compact_of_append_tables_shows_its_plan_and_asks_before_it_rewrites(lake: Path) -> None:
    table = tl.connect(lake).table("shop.orders")
    for number in range(6):
        table.write([{"id": 1000 + number, "dt": "2026-11-15"}])
    before = table.files().num_rows
    arguments = ("-w", str(lake), "compact", "shop.orders")
    assert "joins 7 files" in run(*arguments, typed="n\n").output
    assert "joins 7 files" in run(*arguments, "--plan").stdout
    assert table.files().num_rows == before
    assert answer(*arguments)["files"] == 7
    done = run(*arguments, "--yes")
    assert done.exit_code == 0, done.output
    assert table.files().num_rows == before - 6
    assert table.count() == 195


def test_compact_of_primary_key_tables_is_minor_unless_full_and_may_take_one_partition(
    users: tl.Table, tmp_path: Path
) -> None:
    arguments = ("-w", str(tmp_path / "small"), "compact", "shop.users")
    assert "nothing to do; --full" in run(*arguments).stdout
    plan = answer(*arguments, "--full", "--plan")
    assert (plan["rewrites"], plan["files"], plan["done"]) == (2, 6, False)
    assert "merges 6 files" in run(*arguments, "--full", typed="n\n").stderr
    one = answer(*arguments, "--full", "--partition", "dt=mon", "--yes")
    assert (one["rows"], one["files"]) == (5, 1)
    levels = {(row["partition"], row["level"]) for row in users.inspect.lsm().to_pylist()}
    assert {level for partition, level in levels if "mon" in partition} == {5}
    assert {level for partition, level in levels if "tue" in partition} == {0}
    assert users.count() == 10


def test_a_compaction_with_nothing_to_do_does_not_ask(lake: Path) -> None:
    done = run("-w", str(lake), "compact", "shop.orders")
    assert done.exit_code == 0
    assert "nothing to do" in done.stdout
    assert answer("-w", str(lake), "compact", "shop.orders", "--yes")["snapshot_ids"] == []


def test_json_of_a_compaction_is_one_document(lake: Path) -> None:
    table = tl.connect(lake).table("shop.orders")
    for number in range(6):
        table.write([{"id": 1000 + number, "dt": "2026-11-15"}])
    assert answer("-w", str(lake), "compact", "shop.orders", "--yes")["files"] == 1


def test_compact_may_take_some_buckets_or_idle_partitions(lake: Path, tmp_path: Path) -> None:
    table = tl.connect(tmp_path / "own").create_table(
        "a.b", {"id": "INT NOT NULL"}, primary_key=["id"], options={"bucket": "4"}
    )
    for _ in range(2):
        table.write([{"id": number} for number in range(50)])
    arguments = ("-w", str(tmp_path / "own"), "compact", "a.b", "--full", "--plan")
    assert answer(*arguments)["rewrites"] == 4
    assert answer(*arguments, "--buckets", "0,2-3")["rewrites"] == 3
    assert answer(*arguments, "--idle", "1 h")["rewrites"] == 0


def test_keep_compacted_tends_the_table_and_tells_what_it_did(users: tl.Table, tmp_path: Path) -> None:
    users = users.alter(set_options={"write-only": "true", "num-sorted-run.compaction-trigger": "3"})
    users.write([{"id": 1, "name": "di", "dt": "mon"}])
    arguments = ("-w", str(tmp_path / "small"), "keep-compacted", "shop.users", "--rounds", "1", "--interval", "1 ms")
    done = run(*arguments)
    assert "1 round: compacted 2 buckets" in done.stdout
    assert "compacted 2 buckets" in done.stderr
    assert {row["level"] for row in users.inspect.lsm().to_pylist()} == {3}
    assert answer(*arguments)["compacted"] == 0
    assert users.count("name = 'di'") == 1


def test_rescale_deals_rows_to_more_buckets_and_says_how_writers_follow(users: tl.Table, tmp_path: Path) -> None:
    arguments = ("-w", str(tmp_path / "small"), "rescale", "shop.users")
    assert run(*arguments).stdout == "nothing to do: every partition has 1 bucket\n"
    plan = answer(*arguments, "--buckets", "3", "--plan")
    assert (plan["partitions"], plan["files"], plan["done"]) == (2, 6, False)
    asked = run(*arguments, "--buckets", "3", "--partition", "dt=mon", typed="n\n")
    assert "rescales 1 partition (3 files" in asked.stderr
    rows = users.to_arrow(order_by=["id", "dt"])
    done = run(*arguments, "--buckets", "3", "--yes")
    assert done.exit_code == 0, done.exception
    follow = done.stderr.rpartition("tidelake ")[2].split()
    assert run("-w", str(tmp_path / "small"), *follow).exit_code == 0
    users = users.reload()
    assert users.options["bucket"] == "3"
    assert users.to_arrow(order_by=["id", "dt"]) == rows
    users.write([{"id": 77, "name": "new", "dt": "mon"}])
    assert users.count() == 11
