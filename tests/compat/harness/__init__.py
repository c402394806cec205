"""The compatibility harness: one scenario, run on a real Pulsar and here, and what differs between the two.

A scenario is a function decorated with `scenario`; it is written against a `ScenarioRun` and sees the official module
on one side and `pulsar_on_kafka` on the other. docs/compat.md says how to write and run one.
"""

from __future__ import annotations

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import Scenario, scenario

__all__ = ["Scenario", "ScenarioRun", "scenario"]
