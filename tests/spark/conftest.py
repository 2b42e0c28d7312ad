"""What the tests on Spark share: one session, and a lake for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelake as tl
from kit.spark_cluster import cluster
from kit.spark_session import spark
from tidelake.catalog.lake import Lake

__all__ = ["cluster", "lake", "spark"]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake with the database `db`."""
    made = tl.connect(tmp_path / "lake", storage={"durability": "none"})
    made.create_database("db")
    return made
