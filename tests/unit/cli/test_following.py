"""Changes on the command line: between two snapshots, and as they come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tidelake as tl
from kit.command_line import run


@pytest.fixture
def lake(tmp_path: Path) -> str:
    table = tl.connect(tmp_path).create_table(
        "shop.stock",
        {"item": "STRING NOT NULL", "pieces": "INT"},
        primary_key=["item"],
        options={"bucket": "1", "changelog-producer": "lookup"},
    )
    table.write([{"item": "pear", "pieces": 1}, {"item": "plum", "pieces": 1}])
    table.write([{"item": "pear", "pieces": 2}])
    table.delete("item = 'plum'")
    return str(tmp_path)


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_stream_tells_every_change_with_its_snapshot(lake: str) -> None:
    found = run("-w", lake, "follow", "shop.stock", "--start", "earliest", "--until", "latest", "--json")
    assert found.exit_code == 0, found.output
    told = [(row["rowkind"], row["item"], row["pieces"]) for row in lines(found.stdout)]
    assert told == [("+I", "pear", 1), ("+I", "plum", 1), ("-U", "pear", 1), ("+U", "pear", 2), ("-D", "plum", 1)]
    assert sorted({row["snapshot"] for row in lines(found.stdout)}) == [2, 4, 6]


def test_a_consumer_goes_on_where_it_stopped(lake: str) -> None:
    asked = ("-w", lake, "follow", "shop.stock", "--consumer", "report", "--start", "earliest", "--until", "latest")
    assert len(lines(run(*asked, "--json").stdout)) == 5
    assert lines(run(*asked, "--json").stdout) == []
    tl.connect(lake).table("shop.stock").write([{"item": "fig", "pieces": 3}])
    assert [row["item"] for row in lines(run(*asked, "--json").stdout)] == ["fig"]
    assert "nothing changed" in run(*asked).output


def test_a_difference_is_of_two_states(lake: str) -> None:
    found = lines(run("-w", lake, "diff", "shop.stock", "2", "6", "--json").stdout)
    told = {(row["rowkind"], row["item"], row["pieces"]) for row in found}
    assert told == {("-U", "pear", 1), ("+U", "pear", 2), ("-D", "plum", 1)}
    path = f"{lake}/shop.db/stock"
    assert lines(run("--table-path", path, "diff", "2", "6", "--json").stdout) == found
    assert "pear" in run("-w", lake, "diff", "shop.stock", "2", "6").output
    assert run("-w", lake, "diff", "shop.stock").exit_code == 2
