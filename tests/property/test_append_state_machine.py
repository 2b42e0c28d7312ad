"""The machine of `append_machine.py`, run on a few examples."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from property.append_machine import AppendTable

AppendTable.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestAppendTable = AppendTable.TestCase
