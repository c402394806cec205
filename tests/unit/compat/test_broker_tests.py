"""What a run of Pulsar's own tests is told of: everything that the suite does not expect."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.broker_tests.suite import BadSuite, Seen, Suite, merged, read_suite

SUITE = """
classes = ["client.api.ATest", "client.impl.BTest"]

[[listed]]
why = "a gateway has no broker inside"
shows = "inside of a broker"
"client.api.ATest" = ["asks", "restarts"]

[[listed]]
why = "it depends on the time"
sometimes = true
"client.api.ATest" = ["waits"]

[[left_out]]
why = "it starts brokers"
classes = ["client.api.CTest"]
"""
INSIDE = "PulsarService.getBrokerService is inside of a broker"
AS_EXPECTED = [
    Seen("sends", True, "", 5),
    Seen("asks", False, INSIDE, 5),
    Seen("restarts", False, INSIDE, 5),
    Seen("waits", True, "", 5),
]


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return read(tmp_path, SUITE)


def read(folder: Path, text: str) -> Suite:
    file = folder / "suite.toml"
    file.write_text(text, encoding="utf-8")
    return read_suite(file)


def with_one(other: Seen) -> list[Seen]:
    return [other if other.method == each.method else each for each in AS_EXPECTED]


def test_what_is_expected_is_not_told(suite: Suite) -> None:
    assert list(suite.wrong("client.api.ATest", AS_EXPECTED)) == []
    assert list(suite.wrong("client.api.ATest", with_one(Seen("waits", False, "too late", 5)))) == []
    assert list(suite.wrong("client.impl.BTest", [Seen("sends", True, "", 5)])) == []


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (Seen("sends", False, "it is red", 5), "client.api.ATest.sends is not listed and failed: it is red"),
        (Seen("asks", True, "", 5), "client.api.ATest.asks is listed and passed (a gateway has no broker inside)"),
        (
            Seen("asks", False, "it is red", 5),
            "client.api.ATest.asks is listed for another failure (inside of a broker): it is red",
        ),
    ],
)
def test_what_is_not_expected_is_told(suite: Suite, other: Seen, told: str) -> None:
    assert list(suite.wrong("client.api.ATest", with_one(other))) == [told]


def test_a_listed_test_that_is_not_there_is_told(suite: Suite) -> None:
    assert list(suite.wrong("client.api.ATest", AS_EXPECTED[1:3])) == [
        "client.api.ATest.waits is listed and was not run"
    ]


def test_a_class_that_is_neither_run_nor_left_out_is_told(suite: Suite) -> None:
    known = ["client.api.ATest", "client.api.CTest", "client.api.DTest"]
    assert list(suite.not_named(known)) == ["client.api.DTest is neither run nor left out"]


def test_reasons_are_counted_by_what_did_not_pass(suite: Suite) -> None:
    assert suite.reasons("client.api.ATest", AS_EXPECTED) == {"a gateway has no broker inside": 2}


def test_a_method_passes_when_each_of_its_runs_does() -> None:
    runs = [
        {"method": "sends", "passed": True, "told": "", "ms": 1},
        {"method": "sends", "passed": False, "told": "with batches", "ms": 2},
        {"method": "sends", "passed": True, "told": "", "ms": 3},
        {"method": "asks", "passed": True, "told": "", "ms": 4},
    ]
    assert merged(runs) == [Seen("sends", False, "with batches", 6), Seen("asks", True, "", 4)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("classes = [", "cannot be read"),
        ('classes = ["ATest", "ATest"]', "ATest stands there twice"),
        ('classes = []\n[[listed]]\nwhy = "x"\nATest = ["a"]', "ATest.a is listed, and its class is not run"),
        ('classes = ["ATest"]\n[[listed]]\nwhy = "x"\nATest = ["a", "a"]', "ATest.a is listed twice"),
    ],
)
def test_a_file_that_is_no_suite_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(BadSuite, match=told):
        read(tmp_path, text)


def test_ours_is_a_suite() -> None:
    ours = read_suite()
    assert {"client.api.TopicReaderTest", "client.impl.TableViewTest"} <= set(ours.classes)
    assert all(ours.left_out.values())
