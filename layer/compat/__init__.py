"""The compatibility harness: one scenario, run on a real Pulsar and here, and what differs between the two.

A scenario is a function decorated with `scenario`; it is written against a `ScenarioRun` and sees the official module
on one side and `pulsar_on_kafka` on the other. docs/compat.md says how to write and run one.
"""

from __future__ import annotations

from pulsar_on_kafka.compat.driver import ScenarioRun
from pulsar_on_kafka.compat.scenario import Scenario, scenario

__all__ = ["Scenario", "ScenarioRun", "scenario"]
