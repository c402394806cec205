"""The demo, on a sample; and that its verdict notices when something is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.programs import run_example

EXAMPLES = Path(__file__).parents[3] / "examples"
SAMPLE = 20_000

HOLES = {3: "UA", 7: "AA"}


@pytest.fixture
def truth(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ten flights, of which 3 and 7 never left."""
    pytest.importorskip("pandas")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from flights.data import Truth

    return Truth(frozenset(range(10)), frozenset(HOLES), {"UA": 1, "AA": 1})


@pytest.fixture
def observed(truth: Any) -> Any:
    """A run as it must be: killed after flight 6 was received and 0 to 2 were durable; 4 to 6 came again."""
    from flights.evidence import Event
    from flights.verdict import Observed

    first = [*(Event("r", float(f), (f,)) for f in range(7)), Event("d", 7.0, (0, 1, 2))]
    second = [*(Event("r", 10.0 + f, (f,)) for f in range(3, 10)), Event("d", 20.0, (4, 5, 6, 8, 9))]
    return Observed(10, [first, second], [(3, "UA"), (7, "AA")], 2)


def disagreeing(truth: Any, observed: Any) -> set[str]:
    from flights.verdict import verdict

    return {row.what.strip() for row in verdict(truth, observed) if not row.agrees}


def test_a_right_run_agrees_in_every_row(truth: Any, observed: Any) -> None:
    assert disagreeing(truth, observed) == set()


def test_what_came_twice_is_told_by_cause(truth: Any, observed: Any) -> None:
    from flights.verdict import verdict

    seen = {row.what.strip(): row.seen for row in verdict(truth, observed)}

    assert seen["delivered twice (allowed)"] == 4
    assert seen["never acknowledged: no departure time"] == 1
    assert seen["not yet durable when the process was killed"] == 3


def test_a_flight_that_is_never_delivered_disagrees(truth: Any, observed: Any) -> None:
    first, second = observed.processes
    lost = replace(observed, processes=[first, [event for event in second if event.flights != (9,)]])

    assert disagreeing(truth, lost) == {"delivered (distinct flights)", "never delivered"}


def test_a_durable_flight_that_comes_again_disagrees(truth: Any, observed: Any) -> None:
    first, second = observed.processes
    again = replace(observed, processes=[first, [second[0]._replace(flights=(2,)), *second]])

    assert disagreeing(truth, again) == {"of these, delivered again (must not be)"}


def test_a_durable_flight_that_remains_disagrees(truth: Any, observed: Any) -> None:
    remains = replace(observed, remaining=[*observed.remaining, (2, "DL")])

    assert disagreeing(truth, remains) == {
        "of these, delivered again (must not be)",
        "holes: what a new consumer still gets",
        "of these, with a departure time",
        "holes of DL",
    }


def test_the_same_number_of_holes_with_another_flight_among_them_disagrees(truth: Any, observed: Any) -> None:
    swapped = replace(observed, remaining=[(3, "UA"), (8, "AA")])

    assert disagreeing(truth, swapped) >= {
        "of these, with a departure time",
        "without departure time, but not among them",
    }


@pytest.mark.parametrize(
    ("falsify", "row"),
    [
        (lambda o: replace(o, published=9), "published"),
        (lambda o: replace(o, backlog=3), "backlog, as the admin client counts it"),
        (lambda o: replace(o, remaining=[*o.remaining, o.remaining[0]]), "delivered twice to that consumer"),
    ],
)
def test_a_wrong_count_disagrees(truth: Any, observed: Any, falsify: Callable[[Any], Any], row: str) -> None:
    assert row in disagreeing(truth, falsify(observed))


def test_spark_is_compared_with_the_consumer_flight_by_flight(truth: Any, observed: Any) -> None:
    from flights.spark_view import SparkView

    right = SparkView([(3, "UA"), (7, "AA")], {"UA": 1, "AA": 1})
    assert disagreeing(truth, replace(observed, by_spark=right)) == set()
    other = replace(right, flights=[(3, "UA"), (8, "AA")])
    assert disagreeing(truth, replace(observed, by_spark=other)) == {"not the flights that the new consumer gets"}
    twice = SparkView([*right.flights, (3, "UA")], {"UA": 2, "AA": 1})
    assert disagreeing(truth, replace(observed, by_spark=twice)) == {
        "holes: what Spark reads of the subscription",
        "not the flights that the new consumer gets",
        "carriers with another number of them",
    }


def test_a_line_that_a_kill_cut_off_was_not_said(truth: Any, tmp_path: Path) -> None:
    from flights.evidence import Follower

    file = tmp_path / "evidence.txt"
    file.write_text("r 1.000 5\nd 2.000 5 1", encoding="utf-8")
    follower = Follower(file)

    assert [event.flights for event in follower.read_on()] == [(5,)]
    file.write_text("r 1.000 5\nd 2.000 5 17\n", encoding="utf-8")
    assert [event.flights for event in follower.read_on()] == [(5, 17)]


@pytest.mark.kafka
@pytest.mark.long
def test_the_demo_on_a_sample(bootstrap: str, tmp_path: Path) -> None:
    """Without Spark's step, which has a test of its own (tests/spark/test_examples.py)."""
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    arguments = ["--flights", str(SAMPLE), "--output", str(tmp_path), "--without-spark"]
    run_example("flights_demo.py", *arguments, timeout_s=600, bootstrap=bootstrap)
    rows = {row["what"].strip(): row for row in json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8"))}
    assert all(row["agrees"] for row in rows.values())
    assert rows["published"]["seen"] == rows["delivered (distinct flights)"]["seen"] == SAMPLE
    assert rows["durably acknowledged before the kill"]["seen"] >= SAMPLE / 10
    holes = rows["holes: what a new consumer still gets"]
    assert holes["seen"] == holes["expected"] == rows["backlog, as the admin client counts it"]["seen"] > 0
    assert (tmp_path / "acknowledgements.png").stat().st_size > 20_000
