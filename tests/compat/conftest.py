"""What the suite against other implementations needs: a Java with the release jars, and an interpreter with pypaimon.

Where one is missing its tests are skipped, so that a plain checkout can be tested; with `CI=true` or
`TIDELAKE_REQUIRE_ORACLE=1` the absence is a failure, so that the suite cannot fall silent unnoticed.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import oracle
from compat.checks import Written
from compat.write_tables import RELEASES
from kit.spark_session import spark

__all__ = ["spark"]

ROOT = Path(__file__).resolve().parents[2]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "oracle: needs the real Apache Paimon (Java, Maven)")
    config.addinivalue_line("markers", "peers: needs an interpreter with pypaimon (TIDELAKE_PEERS_PYTHON)")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, missing in (("oracle", missing_oracle), ("peers", missing_peers)):
        reason = missing() if item.get_closest_marker(marker) else None
        if reason is None:
            continue
        if os.environ.get("CI") == "true" or os.environ.get("TIDELAKE_REQUIRE_ORACLE") == "1":
            pytest.fail(f"{marker} is required here: {reason}", pytrace=False)
        pytest.skip(reason)


@functools.cache
def missing_oracle() -> str | None:
    """Why Apache Paimon cannot be run here, or None."""
    if shutil.which("java") is None:
        return "there is no java on the path"
    try:
        for release in RELEASES:
            oracle.fetch_jars(release)
    except (RuntimeError, OSError) as error:
        return f"the jars cannot be had: {error}"
    return None


def peers_python() -> Path:
    return Path(os.environ.get("TIDELAKE_PEERS_PYTHON") or ROOT / ".venv-peers/bin/python")


@functools.cache
def missing_peers() -> str | None:
    """Why pypaimon cannot be run here, or None."""
    python = peers_python()
    if not python.exists():
        return f"there is no interpreter {python.name} for pypaimon; set TIDELAKE_PEERS_PYTHON"
    done = subprocess.run([str(python), "-c", "import pypaimon"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"pypaimon cannot be imported: {done.stderr[-300:]}"


@pytest.fixture(scope="session")
def jvm() -> None:
    """The newest release, in this process."""
    oracle.start(RELEASES[0])


@pytest.fixture
def catalog(jvm: None, tmp_path: Path) -> oracle.Catalog:
    """A warehouse of the newest release on an empty folder."""
    return oracle.Catalog(tmp_path)


@pytest.fixture(scope="session")
def peers() -> Callable[..., Any]:
    """Run a script with pypaimon's interpreter; its last line of output is JSON."""

    def run(script: Path, *arguments: str) -> Any:
        done = subprocess.run(
            [str(peers_python()), str(script), *arguments], capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="session", params=RELEASES)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The tables of each release in turn, written by a process of their own."""
    folder = tmp_path_factory.mktemp(f"paimon-{request.param}")
    script = Path(__file__).with_name("write_tables.py")
    command = [sys.executable, str(script), request.param, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    return Written(request.param, folder)
