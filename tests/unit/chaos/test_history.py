"""What the judge of the chaos tests takes for certain, of what processes say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import evidence
from tests.chaos.evidence import NEVER, Position
from tests.chaos.history import History

SENT = [Position(0, offset, 0) for offset in range(10)]
OURS, NEXT = "0:5:0", "0:6:0"


def history(tmp_path: Path, *processes: str) -> History:
    testimonies = []
    for number, said in enumerate(processes):
        path = tmp_path / str(number)
        path.write_text("".join(f"{line}\n" for line in said.split("; ")))
        testimonies.append(evidence.Testimony(str(number), path))
        testimonies[-1].read_on()
    seeks = [seek for each in testimonies for seek in each.seeks]
    return History(SENT, (each.acknowledgements for each in testimonies), seeks)


@pytest.mark.parametrize("kind", ["a", "A"])
def test_an_acknowledgement_is_certain_once_it_is_said_to_be_durable(tmp_path: Path, kind: str) -> None:
    said = history(tmp_path, f"h 1.0 {OURS}; r 2.0 2.0 {OURS} 0; {kind} 3.0 {OURS}; d 4.0 {kind}{OURS}")
    assert said.durable_since(SENT[5], 3.5) is None
    assert said.durable_since(SENT[5], NEVER) == 4.0
    assert said.durable_since(SENT[3], NEVER) == (4.0 if kind == "A" else None)


@pytest.mark.parametrize("kind", ["a", "A"])
def test_what_was_handed_out_before_a_seek_may_be_acknowledged_in_vain(tmp_path: Path, kind: str) -> None:
    said = history(
        tmp_path,
        f"h 1.0 {OURS}; r 2.0 2.0 {OURS} 0; {kind} 3.0 {OURS}; d 4.0 {kind}{OURS}",
        "k 2.1 0:1:0; K 2.2 ",  # by somebody else, done before the acknowledgement is begun
    )
    assert said.durable_since(SENT[5], NEVER) is None


def test_what_is_handed_out_after_a_seek_counts(tmp_path: Path) -> None:
    said = history(
        tmp_path,
        f"h 1.0 {OURS}; r 1.1 1.1 {OURS} 0; h 3.0 {OURS}; r 3.1 3.1 {OURS} 0; A 4.0 {OURS}; d 5.0 A{OURS}",
        "k 2.1 0:1:0; K 2.2 ",
    )
    assert said.durable_since(SENT[5], NEVER) == 5.0
    assert said.durable_since(SENT[2], NEVER) == 5.0
    assert said.durable_since(SENT[6], NEVER) is None


def test_what_is_received_from_before_and_handed_out_once_more_is_not_certain(tmp_path: Path) -> None:
    said = history(
        tmp_path,
        f"h 1.0 {OURS}; r 1.1 1.1 {OURS} 0; h 3.0 {OURS} {NEXT}; a 4.0 {OURS}; d 5.0 a{OURS}",
        "k 2.1 0:1:0; K 2.2 ",
    )
    assert said.durable_since(SENT[5], NEVER) is None
