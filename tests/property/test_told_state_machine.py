"""The machine of `changelog_machine.py`, run on a few examples."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from property.changelog_machine import ToldTable

TestToldTable = ToldTable.TestCase
TestToldTable.settings = settings(
    max_examples=8, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
