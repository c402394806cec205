"""Made-up results for the harness's own tests."""

from __future__ import annotations

from tests.compat.harness.compare import Comparison, CompatReport, compare
from tests.compat.harness.history import Ending, Event, SideResult
from tests.compat.harness.scenario import Scenario


def a_scenario(name: str = "acks.single") -> Scenario:
    return Scenario(name, name.partition(".")[0], f"What {name} shows", 5.0, lambda run: None)


def did(*lines: str, ending: Ending = Ending.DONE, reason: str = "", detail: str = "") -> SideResult:
    driven_by = () if ending is Ending.NOT_PLAYED else ("java", "rest")
    return SideResult(
        ending, tuple(Event(line, index) for index, line in enumerate(lines)), reason, detail, 0.25, driven_by
    )


def every_verdict() -> CompatReport:
    not_played = did(ending=Ending.NOT_PLAYED, reason="no Java client")
    nasty = 'a <b> & "c" \x00 \ud800 ]]>'
    found: list[Comparison] = [
        compare(a_scenario("acks.agrees"), did("a"), did("a")),
        compare(a_scenario("acks.differs"), did(nasty), did("b")),
        compare(a_scenario("seek.explained"), did("a"), did("b"), f"wanted: {nasty}"),
        compare(a_scenario("seek.missing"), did("a"), did(ending=Ending.NOT_SUPPORTED, reason="readers")),
        compare(a_scenario("seek.fails"), did("a"), did(ending=Ending.FAILED, reason=nasty, detail="Traceback <x>")),
        compare(a_scenario("seek.absent"), not_played, not_played),
    ]
    return CompatReport(
        tuple(found), ("old.one: there is no such scenario",), "pulsar://p", "kafka://k", "5.0.1", 12.3, ("seek.fails",)
    )
