"""An older commit may overwrite a newer one where librdkafka may have sent it twice, until the next generation."""

from __future__ import annotations

from pulsar_on_kafka.kafka.groups.resent_commits import ResentCommits


def test_a_prompt_answer_shows_that_the_commit_was_sent_once() -> None:
    resent = ResentCommits(retry_backoff_ms=500)
    resent.answered([0, 1], 0.399, known=True)
    assert not resent.is_exposed(0)


def test_a_slow_or_unknown_answer_exposes_its_partitions_until_the_next_generation() -> None:
    resent = ResentCommits(retry_backoff_ms=500)
    resent.answered([0], 0.4, known=True)
    resent.answered([1], 0.001, known=False)
    resent.answered([0, 1, 2], 0.001, known=True)  # it does not stop the copy of an older one
    assert [resent.is_exposed(partition) for partition in range(3)] == [True, True, False]
    resent.new_generation()
    assert not any(resent.is_exposed(partition) for partition in range(3))
