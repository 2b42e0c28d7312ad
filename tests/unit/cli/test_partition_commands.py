"""Commands for whole partitions: first the plan, then a yes."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelake as tl
from kit.command_line import answer, main_code, run


@pytest.fixture
def events(tmp_path: Path) -> tl.Table:
    made = tl.connect(str(tmp_path / "lake")).create_table(
        "shop.events", {"id": "INT", "dt": "STRING", "hour": "INT"}, partition_by=["dt", "hour"]
    )
    made.write(
        [{"id": n, "dt": dt, "hour": n} for n, dt in enumerate(["2020-01-01", "2020-01-02", "9999-01-01", None])]
    )
    return made


@pytest.fixture
def where(tmp_path: Path) -> tuple[str, str]:
    return "-w", str(tmp_path / "lake")


def test_partitions_expire_after_a_yes(events: tl.Table, where: tuple[str, str]) -> None:
    arguments = (*where, "expire-partitions", "shop.events", "--older-than", "30 d")
    refused = run(*arguments, typed="n\n")
    assert "drops 2 partitions (dt=2020-01-01, hour=0; dt=2020-01-02, hour=1): 2 rows in 2 files" in refused.stderr
    assert "1 partition (dt=__DEFAULT_PARTITION__, hour=3) never expire" in refused.stderr
    plan = answer(*arguments, "--max-expires", "1")
    assert (plan["done"], plan["left"]) == (False, 1)
    assert plan["partitions"][0]["partition"] == {"dt": "2020-01-01", "hour": "0"}
    assert plan["partitions"][0]["rows"] == 1
    assert events.count() == 4
    done = answer(*arguments, "--yes")
    assert (done["done"], done["snapshot_ids"]) == (True, [2])
    assert events.count() == 2
    assert run(*arguments, "--plan").stdout == "no partition has expired\n"


def test_how_old_partitions_are_is_the_users_choice(
    events: tl.Table, where: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (*where, "expire-partitions", "shop.events", "--older-than", "30 d")
    shaped = answer(*arguments, "--pattern", "$dt-$hour", "--formatter", "yyyy-MM-dd-H")
    assert len(shaped["partitions"]) == 2
    assert answer(*arguments, "--strategy", "update-time")["partitions"] == []
    assert main_code(capsys, *where, "expire-partitions", "shop.events")[0] == 1


def test_partitions_are_marked_done_after_a_yes(
    events: tl.Table, where: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = (*where, "mark-done", "shop.events")
    arguments = (*command, "--partition", "dt=2020-01-01", "--partition", "hour=0")
    marker = Path(events.location) / "dt=2020-01-01" / "hour=0" / "_SUCCESS"
    assert "marks 1 partition (dt=2020-01-01/hour=0) done by" in run(*arguments, typed="n\n").stderr
    assert answer(*arguments, "--plan")["actions"] == ["success-file"]
    assert not marker.exists()
    assert answer(*arguments, "--yes")["done"] is True
    assert marker.exists()
    null = run(*command, "--partition", "dt=__DEFAULT_PARTITION__", "--partition", "hour=3", "--yes")
    assert null.stdout == "marked 1 partition (dt=__DEFAULT_PARTITION__/hour=3) done by success-file\n"
    assert main_code(capsys, *command, "--partition", "dt", "--yes")[0] == 1
    assert main_code(capsys, *command, "--partition", "dt=2020-01-01", "--yes")[0] == 1


def test_many_partitions_are_listed_before_the_question(events: tl.Table, where: tuple[str, str]) -> None:
    events.write([{"id": n, "dt": "2021-01-01", "hour": n} for n in range(24)])
    refused = run(*where, "expire-partitions", "shop.events", "--older-than", "30 d", typed="n\n")
    assert "  dt=2020-01-02, hour=1: 1 row\n" in refused.stderr
    assert "  … and 6 more\n" in refused.stderr
