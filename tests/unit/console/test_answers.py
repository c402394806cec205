"""The cluster is asked once, however many want to know, and what it said last is kept while it says nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pulsar_on_kafka.base.clock import Clock, SystemClock
from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.console import response_cache
from pulsar_on_kafka.console.response_cache import FRESH_S, Answers, QuestionTurn, Unanswered
from pulsar_on_kafka.exceptions import PulsarException, Timeout, TopicNotFound
from tests.clocks import SetClock
from tests.waiting import until


def fails() -> str:
    raise PulsarException("no broker answers")


def some(clock: Clock, most: int = 3) -> Answers:
    return Answers(clock, most, QuestionTurn(clock))


def counted() -> tuple[list[int], Callable[[], int]]:
    asked: list[int] = []

    def ask() -> int:
        asked.append(len(asked))
        return len(asked)

    return asked, ask


def test_an_answer_is_good_for_a_while() -> None:
    clock = SetClock()
    answers, (asked, ask) = some(clock), counted()
    assert [answers.to("a", ask).value, answers.to("a", ask).value] == [1, 1]
    clock.seconds += FRESH_S + 0.1
    assert answers.to("a", ask).value == 2
    assert len(asked) == 2


def test_what_takes_long_is_asked_seldom() -> None:
    clock = SetClock()
    answers, (asked, ask) = some(clock), counted()

    def slow() -> int:
        clock.seconds += 3.0
        return ask()

    answers.to("a", slow)
    clock.seconds += 29.0
    answers.to("a", slow)
    assert len(asked) == 1
    clock.seconds += 2.0
    assert answers.to("a", slow).value == 2


def test_the_last_answer_is_kept_and_the_failure_told() -> None:
    clock = SetClock()
    answers = some(clock)
    first = answers.to("a", lambda: "well")
    clock.seconds += 60.0
    old = answers.to("a", fails)
    assert (old.value, old.at_ms, old.failure) == ("well", first.at_ms, "no broker answers")
    clock.seconds += 60.0
    assert answers.to("a", lambda: "better").failure == ""


def test_without_an_older_one_the_failure_is_all_there_is_and_is_not_asked_for_at_once() -> None:
    clock, asked = SetClock(), []
    answers = some(clock)

    def ask() -> str:
        asked.append(1)
        return fails()

    for _ in range(3):
        with pytest.raises(Unanswered, match="no broker answers"):
            answers.to("a", ask)
    assert len(asked) == 1


def test_while_the_cluster_is_away_one_question_waits_and_the_others_fail_at_once() -> None:
    clock = SetClock()
    answers, asked = some(clock), list[str]()

    def no_answer() -> str:
        asked.append("no answer")
        clock.seconds += 8.0
        raise Timeout("nobody answers")

    def refused() -> str:
        asked.append("refused")
        raise TopicNotFound("there is no such topic")

    for key in ("a", "b", "c"):
        with pytest.raises(Unanswered, match="nobody answers") as found:
            answers.to(key, no_answer)
        assert found.value.away
    assert asked == ["no answer"]
    clock.seconds += FRESH_S + 0.1  # and not ten times as long as it took
    with pytest.raises(Unanswered, match="no such topic") as found:
        answers.to("d", refused)
    assert not found.value.away
    assert answers.to("e", lambda: "well").value == "well", "a refusal is an answer"


def test_a_page_waits_for_seconds_at_most_and_gets_the_reply_when_it_is_loaded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(response_cache, "MAX_WAIT_S", 0.05)
    answers, answer, asked = some(SystemClock()), threading.Event(), list[str]()

    def late(key: str) -> str:
        asked.append(key)
        answer.wait(60)
        return "well"

    answers.to("old", lambda: "known")
    for key in ("a", "b", "c"):  # the questions of one page
        with pytest.raises(Unanswered, match="no reply within") as found:
            answers.to(key, lambda key=key: late(key))  # type: ignore[misc]
        assert found.value.away
    assert answers.to("old", lambda: late("old")).value == "known"
    assert asked == ["a"], "one question at a time"
    answer.set()

    def replied() -> bool:
        try:
            return answers.to("a", lambda: "asked again").value == "well"
        except Unanswered:
            return False

    until(replied, "the late reply")


def test_a_fault_of_a_question_is_raised_and_others_go_on() -> None:
    answers = some(SetClock())
    with pytest.raises(ZeroDivisionError):
        answers.to("a", lambda: 1 // 0)
    assert answers.to("b", lambda: "well").value == "well"


def test_those_used_last_are_kept() -> None:
    answers, (asked, ask) = some(SetClock(), most=2), counted()
    for key in ("a", "b", "a", "c", "a"):
        answers.to(key, ask)
    assert len(asked) == 3
    answers.to("b", ask)
    assert len(asked) == 4
    answers.forget()
    answers.to("b", ask)
    assert len(asked) == 5


def test_many_threads_ask_once_and_one_at_a_time() -> None:
    answers = some(SetClock())
    go, lock = threading.Event(), threading.Lock()
    asked, most, at_once, given = [], 0, 0, list[int]()

    def ask() -> int:
        nonlocal most, at_once
        with lock:
            at_once += 1
            most = max(most, at_once)
            asked.append(1)
        go.wait(60)
        with lock:
            at_once -= 1
        return 7

    threads = [
        aside(f"browser-{number}", lambda key=key: given.append(answers.to(key, ask).value))  # type: ignore[misc]
        for number, key in enumerate("aabbaabb")
    ]
    until(lambda: asked, "the first question")
    go.set()
    for thread in threads:
        thread.join(60)
    assert (given, len(asked), most) == ([7] * 8, 2, 1)
