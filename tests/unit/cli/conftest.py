"""Lakes for the command line, and no settings of whoever runs the tests."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import tidelake as tl
from tidelake.cli.demo import run_demo


@pytest.fixture(autouse=True)
def _nobody_elses_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIDELAKE_WAREHOUSE", "TIDELAKE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-settings"))


@pytest.fixture(scope="session")
def demo_told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the demo tells programs."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        run_demo(str(tmp_path_factory.mktemp("demo") / "lake"), as_json=True, spark=False)
    told: dict[str, Any] = json.loads(out.getvalue())
    return told


@pytest.fixture(scope="session")
def made(demo_told: dict[str, Any]) -> Path:
    return Path(demo_told["lake"])


@pytest.fixture
def lake(tmp_path: Path, made: Path) -> Path:
    """The lake of the demo: an append table `shop.orders` and a primary-key table `shop.customers`."""
    return Path(shutil.copytree(made, tmp_path / "lake"))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "lake"
    table = tl.connect(folder).create_table(
        "shop.users",
        {"id": "BIGINT NOT NULL", "name": "STRING", "dt": "STRING NOT NULL"},
        primary_key=["id", "dt"],
        partition_by=["dt"],
        options={"bucket": "1"},
    )
    for name in ("ann", "bob", "cy"):
        table.write([{"id": n, "name": name, "dt": dt} for n in range(5) for dt in ("mon", "tue")])
    return folder


@pytest.fixture
def users(tmp_path: Path, small: Path) -> tl.Table:
    """A small primary-key table, partitioned, with three snapshots: `shop.users` in the folder `small`."""
    return tl.connect(shutil.copytree(small, tmp_path / "small")).table("shop.users")
