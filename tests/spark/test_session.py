"""Sessions: what `tl.spark` and `tl.attach` promise, and what they refuse to pretend."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tidelake as tl
from tidelake import engine as port
from tidelake.catalog.lake import Lake
from tidelake.engines.spark.session import start as sessions
from tidelake.errors import InvalidInputError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def attached(spark: Any, lake: Lake) -> Any:
    """The session, with a lake more until the end of the test."""
    lake.create_table("db.t", {"id": "BIGINT"}).write([{"id": 1}])
    before = spark.table
    tl.attach(spark, lake)
    yield spark
    spark.table = before


def test_an_attached_session_finds_tables_of_the_lake_and_branches(attached: Any, lake: Lake) -> None:
    lake.table("db.t").create_branch("side", snapshot=1).write([{"id": 2}])
    assert attached.table("db.t").count() == 1
    assert attached.table("`db`.`t`").count() == 1
    assert attached.table("db.`t$branch_side`").count() == 2


def test_an_attached_session_still_finds_views_and_its_own_tables(attached: Any) -> None:
    attached.range(3).createOrReplaceTempView("db_view")
    attached.sql("CREATE TABLE IF NOT EXISTS default.own AS SELECT 1 AS one")
    try:
        assert attached.table("db_view").count() == 3
        assert attached.table("own").count() == 1
        assert attached.table("default.own").count() == 1
        assert attached.table("spark_catalog.default.own").count() == 1
        with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
            attached.table("db.nothing")
    finally:
        attached.sql("DROP TABLE default.own")


def test_a_second_lake_does_not_hide_the_first(attached: Any, tmp_path: Path) -> None:
    other = tl.connect(tmp_path / "other")
    other.create_table("shop.sales", {"id": "BIGINT"}).write([{"id": 7}])
    tl.attach(attached, other)
    assert attached.table("shop.sales").first().id == 7
    assert attached.table("db.t").first().id == 1


def test_the_session_that_runs_is_used(spark: Any, lake: Lake) -> None:
    assert sessions.start("local[*]", "again", {}) is spark
    assert sessions.start("local[2]", "again", {"spark.sql.shuffle.partitions": 2}) is spark
    assert sessions.current() is spark


def test_a_session_with_another_master_is_not_pretended(spark: Any) -> None:
    with pytest.raises(InvalidInputError, match="another master") as caught:
        sessions.start("spark://elsewhere:7077", "again", {})
    assert (caught.value.code, caught.value.facts["master"]) == ("session-runs", "local[2]")


def test_settings_of_a_session_that_runs_are_changed_or_refused(spark: Any) -> None:
    before = spark.conf.get("spark.sql.ansi.enabled")
    with pytest.raises(InvalidInputError, match="cannot be changed"):
        sessions.start("local[2]", "again", {"spark.sql.ansi.enabled": "false", "spark.driver.memory": "7g"})
    assert spark.conf.get("spark.sql.ansi.enabled") == before
    sessions.start("local[2]", "again", {"spark.sql.session.timeZone": "Europe/Paris"})
    try:
        assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Paris"
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


def test_something_that_is_not_a_session_is_refused(lake: Lake) -> None:
    with pytest.raises(InvalidInputError, match="not a Spark session"):
        tl.attach("local[*]", lake)


@pytest.mark.parametrize(
    ("master", "conf", "python"),
    [
        ("local[*]", {}, sys.executable),
        ("spark://host:7077", {}, sys.executable),
        ("yarn", {}, None),
        ("yarn", {"spark.pyspark.python": "/opt/python"}, "/opt/python"),
    ],
)
def test_workers_run_this_python_where_its_path_means_something(
    monkeypatch: pytest.MonkeyPatch, master: str, conf: dict[str, str], python: str | None
) -> None:
    environment = {"PATH": os.environ["PATH"]}
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(sessions, "find_java", lambda: "/some/java")
    sessions._prepare(master, conf)
    assert environment.get("PYSPARK_PYTHON") == python
    assert environment["JAVA_HOME"] == "/some/java"


def test_a_missing_extra_is_told_with_the_line_that_installs_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named '{name}'", name="pyspark")

    class Found:
        @staticmethod
        def load() -> Any:
            return missing("pyspark")

    port.engine.cache_clear()
    monkeypatch.setattr(port, "entry_points", lambda **_: [Found])
    try:
        with pytest.raises(InvalidInputError) as caught:
            tl.spark(lake)
    finally:
        port.engine.cache_clear()
    assert (caught.value.code, caught.value.facts["missing"]) == ("extra-missing", "pyspark")
    assert "tidelake[spark]" in str(caught.value.hint)


@pytest.mark.parametrize(
    "fault",
    [
        ImportError("cannot import name 'gone'", name="tidelake.engines.spark.write.job"),
        ModuleNotFoundError("No module named 'tidelake.gone'", name="tidelake.gone"),
        ModuleNotFoundError("No module named 'pyspark.sql.datasource'", name="pyspark.sql.datasource"),
    ],
    ids=lambda each: each.name,
)
def test_a_fault_of_the_engine_itself_is_not_reported_as_missing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, fault: ImportError
) -> None:
    class Found:
        @staticmethod
        def load() -> Any:
            raise fault

    port.engine.cache_clear()
    monkeypatch.setattr(port, "entry_points", lambda **_: [Found])
    try:
        with pytest.raises(ImportError) as caught:
            tl.spark(lake)
    finally:
        port.engine.cache_clear()
    assert caught.value is fault


def test_the_data_source_lies_where_spark_looks_for_it() -> None:
    assert importlib.import_module("pyspark_tidelake").DefaultSource.name() == "tidelake"


_ALONE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(3).write.format("tidelake").mode("append").save(sys.argv[1])
print("rows", spark.read.format("tidelake").load(sys.argv[1]).filter("id > 0").count())
print("ours", any(name.startswith("tidelake") for name in sys.modules))
"""
_WHEEL = """
import os, sys
import tidelake as tl
lake = tl.connect(sys.argv[1])
spark = tl.spark(lake, master="local[1]")
table = lake.create_table("db.t", {"id": "BIGINT"}, primary_key=["id"], options={"bucket": 1})
table.write(spark.range(3))
print("rows", spark.table("db.t").count(), "java", "tidelake-java-" in os.environ["JAVA_HOME"])
"""


def alone(code: str, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.cluster
def test_a_session_of_someone_else_knows_the_format_without_registration(tmp_path: Path) -> None:
    told = alone(_ALONE, tmp_path / "t", **{**os.environ, "PYSPARK_PYTHON": sys.executable})
    assert "rows 2" in told
    assert "ours False" in told


@pytest.mark.cluster
def test_a_session_starts_on_a_machine_without_java(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    found = {program.name: program for folder in (Path("/bin"), Path("/usr/bin")) for program in folder.iterdir()}
    for name, program in found.items():
        if not name.startswith("java"):
            (programs / name).symlink_to(program)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("JAVA", "PYSPARK", "SPARK"))}
    told = alone(_WHEEL, tmp_path / "lake", **{**environment, "PATH": str(programs)})
    assert "rows 3 java True" in told
