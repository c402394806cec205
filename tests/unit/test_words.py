"""Names and sentences use the words of the field.

A limit is MAX_X or MIN_X, a pause before a retry X_RETRY_INTERVAL_S. A public class has a name of its own. The code of
the product has none of the replaced words, and its docstrings begin with the name of the thing.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.documents import ROOT
from tests.house import (
    REPLACED_WORDS,
    SOURCES,
    bad_constants,
    docstrings_without_subject,
    modules,
    public_classes,
)

LISTS_WORDS = ("tests/unit/test_words.py", "tests/house.py")
"""They contain the words to look for."""
OFFICIAL = {
    *("Client", "Producer", "Consumer", "Reader", "Transaction", "PulsarException"),
    *("IncompatibleSchema", "InvalidTopicName", "TransactionConflict", "TransactionNotFound"),
}
"""Official names: the first row has one class for threads and one for asyncio, the second is raised by the floors under
the name of the exception that the program catches."""


def test_limits_and_pauses_have_the_field_s_words() -> None:
    bad = {
        name: found
        for path in modules(*SOURCES, "tests", "benchmarks")
        if (name := path.relative_to(ROOT).as_posix()) not in LISTS_WORDS
        and (found := bad_constants(path.read_text(encoding="utf-8")))
    }
    assert not bad, "expected MAX_X, MIN_X and X_RETRY_INTERVAL_S"


@pytest.mark.parametrize("name", ["MOST_BYTES", "_MOST_BYTES", "LEAST_BYTES", "HELD_MOST", "_HELD_MOST", "X_AGAIN_S"])
def test_a_constant_with_another_word_is_found(name: str) -> None:
    assert bad_constants(f"{name} = 1") == [name]


@pytest.mark.parametrize("name", ["MAX_BYTES", "_TXN_MOST_BITS", "_MAX_LEAST_BITS", "RATIO_AT_MOST", "ALMOST_FULL"])
def test_a_constant_with_the_field_s_word_passes(name: str) -> None:
    assert not bad_constants(f"{name} = 1")


def test_a_public_class_has_a_name_of_its_own() -> None:
    counts = Counter(name for path in modules(*SOURCES) for name in public_classes(path))
    assert {name for name, count in counts.items() if count > 1} == OFFICIAL


def test_code_has_none_of_the_replaced_words() -> None:
    bad = {path: found for path in modules(*SOURCES) if (found := REPLACED_WORDS.findall(path.read_text("utf-8")))}
    assert not bad


def test_a_docstring_begins_with_the_name_of_the_thing() -> None:
    bad = {path: found for path in modules(*SOURCES) if (found := docstrings_without_subject(path))}
    assert not bad


@pytest.mark.parametrize("text", ["What it sends.", "Of a topic.", "How long it waits.", "One that waits."])
def test_a_docstring_without_a_subject_is_found(tmp_path: Path, text: str) -> None:
    module = tmp_path / "module.py"
    module.write_text(f'def f() -> None:\n    """{text}"""\n\n\ndef g() -> None:\n    """Sends it."""\n')
    assert docstrings_without_subject(module) == [text]
