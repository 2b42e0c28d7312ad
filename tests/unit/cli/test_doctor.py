"""`tidelake doctor` compares what is installed with what is declared."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import tidelake as tl
from kit.small_tables import with_foreign_options
from tidelake.cli.doctor import Needed, _refused_options, judge_version, parse_needed

DECLARED = [
    "backports.zstd>=1.0; python_version < '3.14'",
    "polars-avro>=0.13",
    "pyarrow>=23",
    'duckdb>=1.5; extra == "duckdb"',
    "tidelake[duckdb]; extra == 'all'",
]
PROJECT = Path(__file__).resolve().parents[3]


def test_declared_dependencies_are_understood() -> None:
    assert parse_needed(DECLARED, (3, 11)) == {
        "backports.zstd": Needed("backports.zstd", "1.0", optional=False),
        "polars-avro": Needed("polars-avro", "0.13", optional=False),
        "pyarrow": Needed("pyarrow", "23", optional=False),
        "duckdb": Needed("duckdb", "1.5", optional=True),
    }
    assert "backports.zstd" not in parse_needed(DECLARED, (3, 14))


@pytest.mark.parametrize(
    ("installed", "fine", "said"),
    [
        ("22.0.0", False, "22.0.0 is below 23: pip install 'pyarrow>=23'"),
        ("9.1", False, "9.1 is below 23: pip install 'pyarrow>=23'"),
        ("23", True, "23"),
        ("23.0.0", True, "23.0.0"),
        ("23.0.0rc1", True, "23.0.0rc1"),
        ("100.1", True, "100.1"),
        (None, False, "not installed"),
    ],
)
def test_a_dependency_below_its_floor_is_named(installed: str | None, fine: bool, said: str) -> None:
    assert judge_version(Needed("pyarrow", "23", optional=False), installed) == (fine, said)


def test_what_is_optional_may_be_missing_but_not_too_old() -> None:
    needed = Needed("duckdb", "1.5", optional=True)
    assert judge_version(needed, None) == (True, "not installed (optional)")
    assert judge_version(needed, "1.4.5")[0] is False


def test_every_declared_dependency_is_compared_and_its_floor_is_locked() -> None:
    """`requirements/floor.txt` holds the very releases that pyproject.toml names, so that tests run on these."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *(each for name in extras if name != "all" for each in extras[name])]
    needed = parse_needed(declared)
    assert len(needed) == len({each.split(">=")[0] for each in declared})
    # Reversed: a newer Python may need a newer release, which comes behind.
    locked = reversed((PROJECT / "requirements/floor.txt").read_text().splitlines())
    names = {line.partition(" ")[0].rpartition("==")[0]: line.partition(" ")[0] for line in locked if "==" in line}
    for each in needed.values():
        pinned = names[each.name.replace(".", "-")]
        version = pinned.rpartition("==")[2]
        assert judge_version(each, version)[0], pinned
        assert version.startswith(each.floor), f"{pinned} is not the oldest of {each.name}>={each.floor}"


def test_what_tests_run_on_is_not_below_the_floors() -> None:
    needed = parse_needed(metadata.requires("tidelake") or ())
    assert needed
    assert [each.name for each in needed.values() if not judge_version(each, metadata.version(each.name))[0]] == []


def test_options_of_tables_that_ask_for_what_is_not_done_are_named() -> None:
    lake = tl.connect("memory://")
    table = lake.create_table("db.t", {"id": "INT"})
    assert _refused_options(lake) == "none that is refused in the first 100 tables"
    with_foreign_options(table, {"commit.callbacks": "a.B", "write-only": "true"})
    assert _refused_options(lake) == "db.t: commit.callbacks (callback classes are not called after a commit)"
