"""One Spark session for a whole run: starting one takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tidelake as tl


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local session with two cores."""
    lake = tl.connect(tmp_path_factory.mktemp("lake"))
    session = tl.spark(
        lake,
        master="local[2]",
        conf={
            "spark.sql.shuffle.partitions": 2,
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": tmp_path_factory.mktemp("warehouse"),
            "spark.task.maxFailures": 3,
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
