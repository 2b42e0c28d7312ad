"""How tests are spread over processes: those that need a Spark session share one process, all others go anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

_ON_SPARK = (
    "tests/spark/",
    "tests/compat/test_spark.py",
    "tests/compat/test_buckets_on_spark.py",
    "tests/compat/test_streams.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """A session for each process would take the memory and the cores."""
    from xdist.scheduler import LoadScopeScheduling

    class OneSession(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith(_ON_SPARK) else nodeid

    return OneSession(config, log)
