"""Texts of errors that go to Spark."""

from __future__ import annotations

import pytest

from pulsar_on_kafka_spark.base.query_errors import MAX_BYTES, QueryFailed, error_text, reported

JAVA = "py4j.protocol.Py4JJavaError: An error occurred while calling o1.save."


def _failing(failure: BaseException) -> str:
    @reported
    def call(number: int) -> int:
        raise failure

    with pytest.raises(QueryFailed) as raised:
        call(3)
    assert raised.value.__suppress_context__, "py4j would pass the whole failure, too"
    return str(raised.value)


def test_a_short_error_is_whole() -> None:
    lines = _failing(ValueError("no luck\nat all")).split("\n")
    assert lines[0] == "ValueError: no luck"
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-2:] == ["ValueError: no luck", "at all"]


@pytest.mark.parametrize("character", ["x", "\u00e9", "\u6f22", "\n", "\ud800"])
def test_a_long_one_keeps_its_first_line_its_beginning_and_its_end(character: str) -> None:
    text = _failing(RuntimeError(f"begins {character * 300_000} ends"))
    assert text.startswith("RuntimeError: begins ")
    assert text.endswith(" ends")
    assert "bytes are left out here" in text
    assert len(text.encode(errors="replace")) < MAX_BYTES + 16_200


def test_spark_finds_no_long_text_behind_its_pattern() -> None:
    frames = "\tat some.java.Frame(Frame.java:12)\n" * 1_000
    assert "py4j.protocol" not in _failing(RuntimeError(f"{JAVA}\n{frames}"))
    text = _failing(RuntimeError(f"{JAVA}\n: java.lang.InterruptedException\n{frames}"))
    pattern, _, behind = text.partition("py4j.protocol.Py4JJavaError: An error occurred while calling")
    assert behind == " Java: java.lang.InterruptedException"
    assert pattern.startswith("RuntimeError: Py4JJavaError: An error occurred while calling o1.save.")


@pytest.mark.parametrize("failure", [SystemExit("stopped"), KeyboardInterrupt()])
def test_ends_of_the_program_are_failures_here(failure: BaseException) -> None:
    assert _failing(failure).startswith(type(failure).__name__)


def test_a_call_that_succeeds_gives_its_value() -> None:
    assert reported(divmod)(7, 2) == (3, 1)
    assert "ZeroDivisionError" in error_text(ZeroDivisionError("by 0"))
