"""Names use the words of the field, in the source and in the tests.

A limit is MAX_X or MIN_X, a pause before a retry X_RETRY_INTERVAL_S. A public class has a name of its own.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("layer", "mapping", "schema_compat", "spark_connector")

LISTS_WORDS = ("tests/unit/test_words.py", "tests/house.py")
"""They contain the words to look for."""
CONSTANT = re.compile(r"\b[A-Z_][A-Z0-9_]+\b")
BAD_CONSTANT = re.compile(r"(?:^|_)(?<!AT_)(?:MOST|LEAST)(?:_(?!BITS\b)|$)|_AGAIN_S$")
"""Pulsar's own fields are called most_bits and least_bits."""

OFFICIAL = {
    *("Client", "Producer", "Consumer", "Reader", "Transaction", "PulsarException"),
    *("IncompatibleSchema", "InvalidTopicName", "TransactionConflict", "TransactionNotFound"),
}
"""Official names: the first row has one class for threads and one for asyncio, the second is raised by the floors under
the name of the exception that the program catches."""


def _modules(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def _bad_constants(text: str) -> list[str]:
    return [name for name in CONSTANT.findall(text) if BAD_CONSTANT.search(name)]


def test_limits_and_pauses_have_the_field_s_words() -> None:
    bad = {
        name: found
        for path in _modules(*SOURCES, "tests")
        if (name := path.relative_to(ROOT).as_posix()) not in LISTS_WORDS
        and (found := _bad_constants(path.read_text(encoding="utf-8")))
    }
    assert not bad, "expected MAX_X, MIN_X and X_RETRY_INTERVAL_S"


@pytest.mark.parametrize("name", ["MOST_BYTES", "_MOST_BYTES", "LEAST_BYTES", "HELD_MOST", "_HELD_MOST", "X_AGAIN_S"])
def test_a_constant_with_another_word_is_found(name: str) -> None:
    assert _bad_constants(f"{name} = 1") == [name]


@pytest.mark.parametrize("name", ["MAX_BYTES", "_TXN_MOST_BITS", "_MAX_LEAST_BITS", "RATIO_AT_MOST", "ALMOST_FULL"])
def test_a_constant_with_the_field_s_word_passes(name: str) -> None:
    assert not _bad_constants(f"{name} = 1")


def _public_classes(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def test_a_public_class_has_a_name_of_its_own() -> None:
    counts = Counter(name for path in _modules(*SOURCES) for name in _public_classes(path))
    assert {name for name, count in counts.items() if count > 1} == OFFICIAL
