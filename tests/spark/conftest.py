"""What the tests on Spark share: one session, and a lake for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelake as tl
from spark_cluster import cluster
from spark_session import spark
from tidelake.catalog.filesystem import Lake

__all__ = ["cluster", "lake", "spark"]

HERE = Path(__file__).parent


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """All of them in one process: a session for each would take the memory and the cores.

    A wrapper, so that it runs before xdist looks at the groups.
    """
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))
    yield


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake with the database `db`."""
    made = tl.connect(tmp_path / "lake", storage={"durability": "none"})
    made.create_database("db")
    return made
